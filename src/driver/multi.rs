//! A command on keys of several cores, as one step for everybody else.
//!
//! The core of the connection coordinates: it takes intents on the home cores in ascending
//! order, learns what the keys are (and their values, if the command asks), runs the command
//! once over all of them, and sends every home core what to write there. The keys stay held
//! until each home core has written its part, so no other command sees half of it.

use std::collections::VecDeque;

use crate::command::{Command, flag};
use crate::disk::Disk;
use crate::mem::Ticket;
use crate::net::{Net, SocketId};
use crate::resp::{Args, Proto, Reply};
use crate::shard::log::RECORD_SIZE_MAX;
use crate::shard::view::{Fault, KeyState, Stop, Write};
use crate::shard::{AppendError, UnitOp, UnitWrite};

use super::Core;
use super::execute::{Bytes, FULL, Flow, KeyRef, Run, TOO_LARGE, Value, append_error, mode_of};
use super::intent::Mode;
use super::large::{Owner, Progress, Writing, is_large_put};
use super::message::{Asker, KeyData, KeyWrite, Message, Origin, Packet};
use super::output::Then;
use super::task::{Loads, Task};

/// More than a record and its footer entry take beside key and value, in bytes.
const RECORD_OVERHEAD_MAX: usize = 96;
/// Two cores cannot both be sure of room for parts before one of them writes.
const SPREAD: &str = "ERR values of more than 1012 KiB can be set on one core only by one command";

/// The coordinating side.
#[derive(Debug)]
pub(crate) struct Multi {
    origin: Origin,
    command: &'static Command,
    proto: Proto,
    packet: Packet,
    keys: Vec<KeyRef>,
    places: Vec<u32>,
    values: Vec<Value>,
    now_ms: u64,
    seed: u64,
    parts: Vec<Part>,
    /// Answers still to come in the present step.
    pending: usize,
    /// What is sent when the commits before have succeeded: a value in parts goes first, for it
    /// takes the longest and may find no room; deletes go last, for a RENAME whose new name finds
    /// no room must not lose the old one.
    stages: VecDeque<Vec<(u16, Ticket, Vec<KeyWrite>)>>,
    failed: Option<String>,
    reply: Vec<u8>,
}

/// The keys of one home core.
#[derive(Debug)]
struct Part {
    core: u16,
    /// Places in the command's distinct keys.
    places: Vec<u32>,
    hold: Option<Ticket>,
}

/// What a coordinator asks of a home core.
struct Holding {
    asker: Asker,
    part: u16,
    exclusive: bool,
    grows: bool,
    now_ms: u64,
}

/// The side of a home core: keys held for a coordinator.
#[derive(Debug)]
pub(crate) struct Hold {
    asker: Asker,
    part: u16,
    grows: bool,
    pub names: Vec<Vec<u8>>,
    pub loads: Loads,
    writing: Option<Writing>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Locking,
    Held,
    Loading,
    Committing(Vec<KeyWrite>),
    Writing,
}

impl Multi {
    fn run(&self) -> Run<'_> {
        Run {
            command: self.command,
            args: self.packet.args(),
            keys: &self.keys,
            places: &self.places,
            proto: self.proto,
            now_ms: self.now_ms,
            seed: self.seed,
        }
    }

    /// Whether every part's writes are a unit that a log can take.
    fn fits(&self, writes: &[KeyWrite]) -> bool {
        let args = self.packet.args();
        let size = |place: u32| match &writes[place as usize] {
            write if is_large_put(write) => RECORD_OVERHEAD_MAX,
            KeyWrite::Put { value, .. } => {
                let name = args.at(self.keys[place as usize].arg as usize);
                name.len() + value.len() + RECORD_OVERHEAD_MAX
            }
            KeyWrite::Keep | KeyWrite::Delete => RECORD_OVERHEAD_MAX,
        };
        let part_size = |part: &Part| part.places.iter().map(|&place| size(place)).sum::<usize>();
        self.parts.iter().all(|part| part_size(part) <= RECORD_SIZE_MAX)
    }

    /// Whether at most one core has values in parts to write: two could not both be sure of room.
    fn is_settled_by_one(&self, writes: &[KeyWrite]) -> bool {
        let is_large = |&place: &u32| is_large_put(&writes[place as usize]);
        self.parts.iter().filter(|part| part.places.iter().any(is_large)).count() <= 1
    }

    /// Takes over what part `part` tells of its keys.
    fn learn(&mut self, part: u16, keys: Vec<KeyData>) {
        let places = self.parts[usize::from(part)].places.iter();
        for (&place, data) in places.zip(keys) {
            let value = &mut self.values[place as usize];
            value.meta = data.meta;
            if let Some(bytes) = data.value {
                value.bytes = Bytes::Loaded(bytes);
            }
        }
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    pub(super) fn multi_start(&mut self, socket: SocketId, run: &Run<'_>) -> Flow {
        let origin = self.reserve(socket);
        let packet = self.pack(run.args);
        let multi = Multi {
            origin,
            command: run.command,
            proto: run.proto,
            packet,
            keys: run.keys.to_vec(),
            places: run.places.to_vec(),
            values: run.keys.iter().map(|_| Value::default()).collect(),
            now_ms: run.now_ms,
            seed: run.seed,
            parts: self.split(run),
            pending: 0,
            stages: VecDeque::new(),
            failed: None,
            reply: Vec::new(),
        };
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.barrier = true;
        }
        let task = self.task_insert(Task::Multi(multi));
        self.multi_lock(task, 0);
        Flow::Continue
    }

    /// The keys by home core, cores ascending.
    fn split(&self, run: &Run<'_>) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for (place, key) in run.keys.iter().enumerate() {
            let core = self.home(&key.hash);
            match parts.iter_mut().find(|part| part.core == core) {
                Some(part) => part.places.push(place as u32),
                None => parts.push(Part { core, places: vec![place as u32], hold: None }),
            }
        }
        parts.sort_unstable_by_key(|part| part.core);
        parts
    }

    fn with_multi(&mut self, task: Ticket, step: impl FnOnce(&mut Self, &mut Multi)) {
        let Some(mut owner) = self.task_take(task) else { return };
        if let Task::Multi(multi) = &mut *owner {
            step(self, multi);
        }
        self.task_put(task, owner);
    }

    fn multi_lock(&mut self, task: Ticket, part: u16) {
        self.with_multi(task, |core, multi| {
            let Part { core: home, places, .. } = &multi.parts[usize::from(part)];
            let args = multi.packet.args();
            let named = places.iter().map(|&place| {
                let key = &multi.keys[place as usize];
                (key.db, args.at(key.arg as usize).to_vec())
            });
            let message = Message::Lock {
                asker: Asker { core: core.id, task },
                part,
                exclusive: mode_of(multi.command) == Mode::Exclusive,
                grows: multi.command.is(flag::DENYOOM),
                now_ms: multi.now_ms,
                keys: named.collect(),
            };
            core.send(*home, message);
        });
    }

    pub(super) fn multi_message(&mut self, message: Message) {
        match message {
            Message::Lock { asker, part, exclusive, grows, now_ms, keys } => {
                let hold = Holding { asker, part, exclusive, grows, now_ms };
                self.hold_start(hold, keys);
            }
            Message::Locked { task, part, hold, keys } => self.multi_locked(task, part, hold, keys),
            Message::Load { hold } => self.hold_load(hold),
            Message::Loaded { task, part, keys } => self.multi_loaded(task, part, keys),
            Message::Commit { hold, writes } => self.hold_commit(hold, writes),
            Message::Committed { task, result } => self.multi_committed(task, result),
            _ => panic!("not a message of a command over several cores"),
        }
    }

    fn multi_locked(
        &mut self,
        task: Ticket,
        part: u16,
        hold: Ticket,
        keys: Result<Vec<KeyData>, String>,
    ) {
        let mut parts = 0;
        self.with_multi(task, |_, multi| {
            multi.parts[usize::from(part)].hold = Some(hold);
            match keys {
                Ok(keys) => multi.learn(part, keys),
                Err(text) => multi.failed = Some(text),
            }
            parts = multi.parts.len();
        });
        let next = part + 1;
        if usize::from(next) < parts { self.multi_lock(task, next) } else { self.multi_run(task) }
    }

    fn multi_loaded(&mut self, task: Ticket, part: u16, keys: Result<Vec<KeyData>, String>) {
        let mut ready = false;
        self.with_multi(task, |_, multi| {
            match keys {
                Ok(keys) => multi.learn(part, keys),
                Err(text) => multi.failed = Some(text),
            }
            multi.pending -= 1;
            ready = multi.pending == 0;
        });
        if ready {
            self.multi_run(task);
        }
    }

    /// Runs the command over what the home cores told; all keys are held.
    fn multi_run(&mut self, task: Ticket) {
        self.with_multi(task, |core, multi| {
            let mut out = core.spare();
            let outcome = match multi.failed.take() {
                Some(text) => Err(Stop::from(text)),
                None => run_all(&multi.run(), &multi.values, &mut out),
            };
            match outcome {
                Ok(writes) if !multi.fits(&writes) || !multi.is_settled_by_one(&writes) => {
                    out.clear();
                    let text = if multi.fits(&writes) { SPREAD } else { TOO_LARGE };
                    Reply::new(&mut out, multi.proto).error(text);
                    core.stats.errors.add(1);
                    core.multi_commit(multi, Vec::new());
                }
                Ok(writes) => core.multi_commit(multi, writes),
                Err(Stop::Error(text)) => {
                    out.clear();
                    Reply::new(&mut out, multi.proto).error(&text);
                    core.stats.errors.add(1);
                    core.multi_commit(multi, Vec::new());
                }
                Err(Stop::Fault(_)) => {
                    out.clear();
                    core.multi_load(multi);
                }
            }
            multi.reply = out;
        });
    }

    fn multi_load(&mut self, multi: &mut Multi) {
        for part in &multi.parts {
            let Some(hold) = part.hold else { continue };
            multi.pending += 1;
            self.send(part.core, Message::Load { hold });
        }
    }

    /// Sends every home core its writes (`writes` by place; empty = none at all).
    fn multi_commit(&mut self, multi: &mut Multi, mut writes: Vec<KeyWrite>) {
        writes.resize_with(multi.keys.len(), || KeyWrite::Keep);
        for part in &multi.parts {
            let Some(hold) = part.hold else { continue };
            let take =
                |&place: &u32| std::mem::replace(&mut writes[place as usize], KeyWrite::Keep);
            let writes: Vec<KeyWrite> = part.places.iter().map(take).collect();
            let stage = if writes.iter().any(is_large_put) {
                0
            } else if writes.iter().any(|write| matches!(write, KeyWrite::Put { .. })) {
                1
            } else {
                2
            };
            multi.stages.resize_with(3.max(multi.stages.len()), Vec::new);
            multi.stages[stage].push((part.core, hold, writes));
        }
        self.multi_commit_stage(multi);
    }

    /// The next step of a commit. Where one has failed nothing more is written.
    fn multi_commit_stage(&mut self, multi: &mut Multi) {
        while multi.pending == 0
            && let Some(stage) = multi.stages.pop_front()
        {
            for (core, hold, mut writes) in stage {
                if multi.failed.is_some() {
                    writes.iter_mut().for_each(|write| *write = KeyWrite::Keep);
                }
                multi.pending += 1;
                self.send(core, Message::Commit { hold, writes });
            }
        }
    }

    fn multi_committed(&mut self, task: Ticket, result: Result<(), String>) {
        let mut done = false;
        self.with_multi(task, |core, multi| {
            if let Err(text) = result {
                multi.failed = Some(text);
            }
            multi.pending -= 1;
            if multi.pending == 0 {
                core.multi_commit_stage(multi);
            }
            done = multi.pending == 0;
        });
        if !done {
            return;
        }
        let Some(Some(owner)) = self.tasks.remove(task) else { return };
        let Task::Multi(multi) = *owner else { return };
        match multi.failed {
            Some(text) => self.reply_error(multi.origin, &text),
            None => self.reply(multi.origin, multi.reply),
        }
        self.recycle_packet(multi.packet);
    }

    // The side of a home core.

    fn hold_start(&mut self, holding: Holding, keys: Vec<(u8, Vec<u8>)>) {
        let refs: Vec<KeyRef> = keys
            .iter()
            .map(|(db, name)| KeyRef { arg: 0, db: *db, hash: self.shard.hash(name) })
            .collect();
        let ids = refs.iter().map(KeyRef::id).collect();
        let loads = Loads::new(refs, Vec::new(), Vec::new(), holding.now_ms, 0);
        let loads = Loads { patient: false, ..loads };
        let names = keys.into_iter().map(|(_, name)| name).collect();
        let mode = if holding.exclusive { Mode::Exclusive } else { Mode::Shared };
        let Holding { asker, part, grows, .. } = holding;
        let hold = Hold { asker, part, grows, names, loads, writing: None, step: Step::Locking };
        let ticket = self.task_insert(Task::Hold(hold));
        self.task_acquire(ticket, ids, mode);
    }

    /// A hold has what it waited for. Returns whether it is over.
    pub(super) fn hold_run(&mut self, ticket: Ticket, hold: &mut Hold) -> bool {
        match std::mem::replace(&mut hold.step, Step::Held) {
            Step::Locking => {
                self.hold_look(hold);
                let keys = match hold.grows && !self.shard.admits_growth() {
                    true => Err(FULL.to_string()),
                    false => Ok(hold.metas()),
                };
                let (task, part) = (hold.asker.task, hold.part);
                self.send(hold.asker.core, Message::Locked { task, part, hold: ticket, keys });
                false
            }
            Step::Loading => {
                self.hold_read(ticket, hold);
                false
            }
            Step::Committing(writes) => self.hold_write(ticket, hold, writes),
            Step::Writing => self.hold_write_parts(ticket, hold),
            Step::Held => false,
        }
    }

    fn hold_look(&mut self, hold: &mut Hold) {
        let now_ms = hold.loads.now_ms;
        hold.loads.values = hold.loads.keys.iter().map(|key| self.look_one(key, now_ms)).collect();
    }

    fn with_hold(&mut self, ticket: Ticket, step: impl FnOnce(&mut Self, &mut Hold)) {
        let Some(mut owner) = self.task_take(ticket) else { return };
        if let Task::Hold(hold) = &mut *owner {
            step(self, hold);
        }
        self.task_put(ticket, owner);
    }

    fn hold_load(&mut self, ticket: Ticket) {
        self.with_hold(ticket, |core, hold| core.hold_read(ticket, hold));
    }

    /// Loads the values of all keys; reports when none is missing.
    fn hold_read(&mut self, ticket: Ticket, hold: &mut Hold) {
        if hold.loads.stale {
            hold.loads.stale = false;
            self.loads_release(&mut hold.loads);
            self.hold_look(hold);
        }
        let failed = hold.loads.failed.take();
        let mut missing = Vec::new();
        for (place, value) in hold.loads.values.iter_mut().enumerate() {
            let Some(found) = value.found.as_ref().filter(|_| value.lacks(Fault::All)) else {
                continue;
            };
            if value.chain.is_some() {
                missing.push(place);
                continue;
            }
            match self.shard.resident(&found.entry, &hold.names[place]) {
                Some(record) => value.bytes = Bytes::Loaded(record.value.to_vec()),
                None => missing.push(place),
            }
        }
        if failed.is_none() && !missing.is_empty() {
            hold.step = Step::Loading;
            if !self.loads_submit(ticket, &mut hold.loads, &missing, Fault::All) {
                self.retry.push_back(ticket);
            }
            return;
        }
        let keys = match failed {
            Some(text) => Err(text),
            None => Ok(hold.take_values()),
        };
        let (task, part) = (hold.asker.task, hold.part);
        self.send(hold.asker.core, Message::Loaded { task, part, keys });
    }

    fn hold_commit(&mut self, ticket: Ticket, writes: Vec<KeyWrite>) {
        self.with_hold(ticket, |_, hold| hold.step = Step::Committing(writes));
        self.task_run(ticket);
    }

    /// Writes a hold's part. Returns whether that is settled; when the log is busy the hold runs
    /// again.
    fn hold_write(&mut self, ticket: Ticket, hold: &mut Hold, writes: Vec<KeyWrite>) -> bool {
        if writes.iter().any(is_large_put) {
            hold.writing = Some(Writing::owned(writes));
            return self.hold_write_parts(ticket, hold);
        }
        let units: Vec<UnitWrite<'_>> = hold.units(&writes);
        let (core, task) = (hold.asker.core, hold.asker.task);
        let appended = if units.is_empty() {
            Ok(None)
        } else {
            let appended = self.shard.append_unit(&units).map(Some);
            units.iter().for_each(|unit| self.count_keys(unit.db));
            appended
        };
        let result = match appended {
            Err(AppendError::Busy) => {
                hold.step = Step::Committing(writes);
                self.retry.push_back(ticket);
                return false;
            }
            Err(error) => Err(append_error(error).to_string()),
            Ok(Some(lsn)) if !self.is_durable(lsn) => {
                let message = Box::new(Message::Committed { task, result: Ok(()) });
                self.wait_durable(lsn, Then::Send { core, message });
                return true;
            }
            Ok(_) => Ok(()),
        };
        self.send(core, Message::Committed { task, result });
        true
    }

    /// [`Core::hold_write`] with values in parts, over some turns.
    fn hold_write_parts(&mut self, ticket: Ticket, hold: &mut Hold) -> bool {
        let Some(mut writing) = hold.writing.take() else { return false };
        let names = |place: usize| hold.names[place].as_slice();
        let (keys, values, args) = (&hold.loads.keys, &hold.loads.values, Args::new(&[], &[]));
        let owner = Owner { ticket, args, keys, values, names: &names };
        let (core, task) = (hold.asker.core, hold.asker.task);
        match self.writing_step(&owner, &mut writing) {
            Progress::Done(Ok(lsn)) if !self.is_durable(lsn) => {
                let message = Box::new(Message::Committed { task, result: Ok(()) });
                self.wait_durable(lsn, Then::Send { core, message });
                true
            }
            Progress::Done(end) => {
                self.send(core, Message::Committed { task, result: end.map(|_| ()) });
                true
            }
            Progress::Later | Progress::Wait | Progress::Stale => {
                hold.writing = Some(writing);
                hold.step = Step::Writing;
                self.retry.push_back(ticket);
                false
            }
        }
    }
}

impl Hold {
    fn metas(&self) -> Vec<KeyData> {
        let values = self.loads.values.iter();
        values.map(|value| KeyData { meta: value.meta, value: None }).collect()
    }

    fn take_values(&mut self) -> Vec<KeyData> {
        let values = self.loads.values.iter_mut();
        values
            .map(|value| KeyData {
                meta: value.meta,
                value: match std::mem::take(&mut value.bytes) {
                    Bytes::Loaded(bytes) => Some(bytes),
                    _ => None,
                },
            })
            .collect()
    }

    fn units<'a>(&'a self, writes: &'a [KeyWrite]) -> Vec<UnitWrite<'a>> {
        let keys = self.loads.keys.iter().zip(&self.names);
        keys.zip(writes)
            .filter_map(|((key, name), write)| {
                let op = match write {
                    KeyWrite::Keep => return None,
                    KeyWrite::Delete => UnitOp::Delete,
                    KeyWrite::Put { kind, value, expire_at_ms } => {
                        UnitOp::Put { kind: *kind, value, expire_at_ms: *expire_at_ms }
                    }
                };
                Some(UnitWrite { db: key.db, hash: key.hash, key: name, op })
            })
            .collect()
    }
}

/// Runs a command over what all home cores told; returns its writes by place.
fn run_all(run: &Run<'_>, values: &[Value], out: &mut Vec<u8>) -> Result<Vec<KeyWrite>, Stop> {
    let states = super::execute::run_states(run, values, out)?;
    Ok(states.into_iter().map(owned_write).collect())
}

fn owned_write(state: KeyState<'_>) -> KeyWrite {
    match state.write {
        None => KeyWrite::Keep,
        Some(Write::Delete) => KeyWrite::Delete,
        Some(Write::Put { kind, value, expire_at_ms }) => {
            KeyWrite::Put { kind, value: value.into_owned(), expire_at_ms }
        }
        Some(Write::Patch { .. } | Write::Expire { .. }) => {
            panic!("only commands on one key change a value in parts")
        }
    }
}
