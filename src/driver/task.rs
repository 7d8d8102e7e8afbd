//! A command that has to wait: for keys that others hold, for values on the device, for room in
//! the log. It keeps its arguments and what it has loaded, and runs again from the start.

use crate::command::Command;
use crate::disk::Disk;
use crate::mem::{DmaBuf, Ticket};
use crate::net::{Net, Tx};
use crate::resp::Proto;
use crate::shard::index::Entry;
use crate::shard::parts::ChainId;
use crate::shard::view::Fault;
use crate::shard::{ReadError, ReadSpan};

use super::Core;
use super::execute::{Attempt, Bytes, DAMAGED, KeyRef, Run, Value, mode_of, resolve, wanted};
use super::fast::Purpose;
use super::gather::Gathering;
use super::global::Changing;
use super::intent::{KeyId, Mode};
use super::large::{Owner, Progress, Writing};
use super::message::{Message, Origin, Packet};
use super::multi::{Hold, Multi};
use super::walk::{Walking, Walks};

/// An operation that waits.
#[derive(Debug)]
pub(crate) enum Task {
    Command(Waiter),
    /// The coordinating side of a command over several cores.
    Multi(Multi),
    /// Keys held here for such a command.
    Hold(Hold),
    /// A visit of this core's keys, and the asking side of such visits.
    Walking(Walking),
    Walks(Walks),
    Gathering(Gathering),
    Changing(Changing),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub origin: Origin,
    pub command: &'static Command,
    pub proto: Proto,
    pub packet: Packet,
    pub loads: Loads,
    /// Its writes, when the command has run and writes values in parts.
    pub writing: Option<Writing>,
}

/// Keys, the intents on them and the values read so far: what tasks of two kinds have in common.
#[derive(Debug)]
pub(crate) struct Loads {
    pub keys: Vec<KeyRef>,
    pub places: Vec<u32>,
    pub values: Vec<Value>,
    pub now_ms: u64,
    pub seed: u64,
    /// Intents requested; held once `pending` has reached 0 for the first time.
    pub intents: Vec<KeyId>,
    /// Grants or reads still to come.
    pub pending: usize,
    /// A read met a record that has moved: look everything up again.
    pub stale: bool,
    pub failed: Option<String>,
    /// Chains that stay as they are while their bytes are read, and the memory for these.
    pub pins: Vec<ChainId>,
    pub large_bytes: usize,
    /// It may wait for that memory; who is waited for by other cores may not.
    pub patient: bool,
}

impl Loads {
    pub fn new(
        keys: Vec<KeyRef>,
        places: Vec<u32>,
        values: Vec<Value>,
        now_ms: u64,
        seed: u64,
    ) -> Loads {
        Loads {
            keys,
            places,
            values,
            now_ms,
            seed,
            intents: Vec::new(),
            pending: 0,
            stale: false,
            failed: None,
            pins: Vec::new(),
            large_bytes: 0,
            patient: true,
        }
    }
}

impl Waiter {
    fn run(&self) -> Run<'_> {
        Run {
            command: self.command,
            args: self.packet.args(),
            keys: &self.loads.keys,
            places: &self.loads.places,
            proto: self.proto,
            now_ms: self.loads.now_ms,
            seed: self.loads.seed,
        }
    }
}

/// What a task that has run needs next.
enum Next {
    Wait,
    Retry,
    Finished,
}

impl Next {
    fn finished_if(over: bool) -> Next {
        if over { Next::Finished } else { Next::Wait }
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    pub(super) fn tasks_are_full(&self) -> bool {
        self.tasks.len() >= super::TASKS_MAX
    }

    pub(super) fn task_insert(&mut self, task: Task) -> Ticket {
        match self.tasks.insert(Some(Box::new(task))) {
            Ok(ticket) => ticket,
            Err(_) => panic!("more operations than all cores together may have under way"),
        }
    }

    pub(super) fn task_take(&mut self, ticket: Ticket) -> Option<Box<Task>> {
        self.tasks.get_mut(ticket)?.take()
    }

    pub(super) fn task_put(&mut self, ticket: Ticket, task: Box<Task>) {
        if let Some(slot) = self.tasks.get_mut(ticket) {
            *slot = Some(task);
        }
    }

    /// Makes a command wait. `values` are what it has looked up already, if it has run.
    pub(super) fn task_start(&mut self, origin: Origin, run: &Run<'_>, values: Vec<Value>) {
        let packet = self.pack(run.args);
        let (keys, places) = (run.keys.to_vec(), run.places.to_vec());
        let loads = Loads::new(keys, places, values, run.now_ms, run.seed);
        let (command, proto) = (run.command, run.proto);
        self.waiter_start(Waiter { origin, command, proto, packet, loads, writing: None });
    }

    fn waiter_start(&mut self, waiter: Waiter) {
        let mode = mode_of(waiter.command);
        let blocked = self.is_blocked(&waiter.run());
        let keys: Vec<KeyId> = waiter.loads.keys.iter().map(KeyRef::id).collect();
        let ticket = self.task_insert(Task::Command(waiter));
        // A read that nobody is in the way of needs no intent: records never change in place.
        if mode == Mode::Exclusive || blocked {
            self.task_acquire(ticket, keys, mode);
        } else {
            self.task_run(ticket);
        }
    }

    /// Requests intents for a task and runs it when it has them all.
    pub(super) fn task_acquire(&mut self, ticket: Ticket, mut keys: Vec<KeyId>, mode: Mode) {
        keys.sort_unstable_by_key(|key| key.0);
        keys.dedup();
        let missing = self.intents.acquire(ticket, &keys, mode);
        if let Some(loads) = self.task_loads(ticket) {
            loads.intents = keys;
            loads.pending = missing;
        }
        if missing == 0 {
            self.task_run(ticket);
        }
    }

    fn task_loads(&mut self, ticket: Ticket) -> Option<&mut Loads> {
        match self.tasks.get_mut(ticket)?.as_deref_mut()? {
            Task::Command(waiter) => Some(&mut waiter.loads),
            Task::Hold(hold) => Some(&mut hold.loads),
            _ => None,
        }
    }

    /// One of the things that a task waits for has come; runs it when that was the last.
    pub(super) fn task_step(&mut self, ticket: Ticket) {
        let Some(loads) = self.task_loads(ticket) else { return };
        loads.pending -= 1;
        if loads.pending == 0 {
            self.task_run(ticket);
        }
    }

    /// Runs a task that waits for nothing more.
    pub(super) fn task_run(&mut self, ticket: Ticket) {
        let Some(mut task) = self.task_take(ticket) else { return };
        let next = match &mut *task {
            Task::Command(waiter) => self.waiter_run(ticket, waiter),
            Task::Hold(hold) => Next::finished_if(self.hold_run(ticket, hold)),
            Task::Walking(walking) => Next::finished_if(self.walking_run(ticket, walking)),
            _ => Next::Wait,
        };
        match (next, *task) {
            (Next::Finished, Task::Command(mut waiter)) => {
                self.tasks.remove(ticket);
                self.recycle_packet(waiter.packet);
                self.loads_release(&mut waiter.loads);
                self.release_intents(waiter.loads.intents);
            }
            (Next::Finished, Task::Hold(mut hold)) => {
                self.tasks.remove(ticket);
                self.loads_release(&mut hold.loads);
                self.release_intents(hold.loads.intents);
            }
            (Next::Finished, Task::Walking(_)) => {
                self.tasks.remove(ticket);
            }
            (Next::Retry, task) => {
                self.task_put(ticket, Box::new(task));
                self.retry.push_back(ticket);
            }
            (_, task) => self.task_put(ticket, Box::new(task)),
        }
    }

    fn waiter_run(&mut self, ticket: Ticket, waiter: &mut Waiter) -> Next {
        if let Some(text) = waiter.loads.failed.take() {
            match &mut waiter.writing {
                Some(writing) => writing.failed = Some(text),
                None => {
                    self.reply_error(waiter.origin, &text);
                    return Next::Finished;
                }
            }
        }
        if waiter.writing.is_some() {
            return self.waiter_write(ticket, waiter);
        }
        if waiter.loads.stale || waiter.loads.values.is_empty() {
            waiter.loads.stale = false;
            self.loads_release(&mut waiter.loads);
            waiter.loads.values = self.look(&waiter.run());
        }
        if waiter.command.name == "get"
            && let Some(chain) = waiter.loads.values[0].chain
        {
            let hash = waiter.loads.keys[0].hash;
            waiter.loads.stale = true;
            let opened = self.stream_open(waiter.origin, &hash, chain);
            return if opened { Next::Finished } else { Next::Retry };
        }
        let mut values = std::mem::take(&mut waiter.loads.values);
        let mut out = self.spare();
        let attempt = self.attempt(&waiter.run(), &mut values, &mut out);
        waiter.loads.values = values;
        match attempt {
            Attempt::Done(lsn) => {
                self.reply_durable(waiter.origin, out, lsn);
                Next::Finished
            }
            Attempt::Busy => {
                self.recycle(out);
                Next::Retry
            }
            Attempt::Large(writing) => {
                self.recycle(out);
                waiter.writing = Some(*writing);
                self.waiter_write(ticket, waiter)
            }
            Attempt::Wait(fault) => {
                self.recycle(out);
                let places = wanted(&waiter.run(), fault, &waiter.loads.values);
                if self.loads_submit(ticket, &mut waiter.loads, &places, fault) {
                    Next::Wait
                } else {
                    Next::Retry
                }
            }
        }
    }

    /// Goes on with the writes of a command that has run.
    fn waiter_write(&mut self, ticket: Ticket, waiter: &mut Waiter) -> Next {
        let Some(mut writing) = waiter.writing.take() else { return Next::Retry };
        let (args, loads) = (waiter.packet.args(), &waiter.loads);
        let names = |place: usize| args.at(loads.keys[place].arg as usize);
        let (keys, values) = (&loads.keys, &loads.values);
        let owner = Owner { ticket, args, keys, values, names: &names };
        match self.writing_step(&owner, &mut writing) {
            Progress::Done(Ok(lsn)) => {
                self.reply_durable(waiter.origin, writing.reply, Some(lsn));
                Next::Finished
            }
            Progress::Done(Err(text)) => {
                self.reply_error(waiter.origin, &text);
                Next::Finished
            }
            Progress::Stale => {
                waiter.loads.stale = true;
                Next::Retry
            }
            Progress::Later => {
                waiter.writing = Some(writing);
                Next::Retry
            }
            Progress::Wait => {
                waiter.writing = Some(writing);
                waiter.loads.pending += 1;
                Next::Wait
            }
        }
    }

    /// Starts reads of the values at `places` that are missing. Returns false when not even one
    /// could be started; the others follow when the task runs again.
    pub(super) fn loads_submit(
        &mut self,
        ticket: Ticket,
        loads: &mut Loads,
        places: &[usize],
        fault: Fault,
    ) -> bool {
        for &place in places {
            if loads.values[place].chain.is_some() {
                self.parts_submit(ticket, loads, place, fault);
                continue;
            }
            let Some(found) = &loads.values[place].found else { continue };
            let entry = found.entry;
            if self.shard.epoch_of(&entry) != loads.values[place].epoch {
                loads.stale = true;
                continue;
            }
            let Some(buf) = self.read_buffer(&entry) else { break };
            loads.pending += 1;
            self.read(entry, buf, Purpose::Load { task: ticket, place: place as u32 });
        }
        loads.pending > 0
    }

    pub(super) fn task_loaded(
        &mut self,
        task: Ticket,
        place: u32,
        entry: &Entry,
        span: &ReadSpan,
        buf: DmaBuf,
    ) {
        let Some(mut owner) = self.task_take(task) else { return };
        let name = match &*owner {
            Task::Command(waiter) => {
                let arg = waiter.loads.keys[place as usize].arg;
                waiter.packet.args().at(arg as usize)
            }
            Task::Hold(hold) => &hold.names[place as usize],
            _ => return self.task_put(task, owner),
        };
        let decoded =
            self.shard.decode(entry, span, &buf, name).map(|record| record.value.to_vec());
        drop(buf);
        let loads = match &mut *owner {
            Task::Command(waiter) => &mut waiter.loads,
            Task::Hold(hold) => &mut hold.loads,
            _ => return self.task_put(task, owner),
        };
        match decoded {
            Ok(value) => loads.values[place as usize].bytes = Bytes::Loaded(value),
            Err(ReadError::Stale) => loads.stale = true,
            Err(ReadError::OtherKey) => {
                // Another key with the same hash bits: this one does not exist.
                loads.values[place as usize] = Value::default();
            }
            Err(ReadError::Corrupt) => {
                log::error!("{}", self.describe(span));
                loads.failed = Some(DAMAGED.into());
            }
        }
        self.task_put(task, owner);
        self.task_step(task);
    }

    pub(super) fn task_failed(&mut self, task: Ticket, text: String) {
        if let Some(loads) = self.task_loads(task) {
            loads.failed = Some(text);
        }
        self.task_step(task);
    }

    /// Lets go of keys. Whoever has them all now runs, in one loop: a task that runs releases its
    /// own keys in turn, and thousands may stand in line.
    pub(super) fn release_intents(&mut self, keys: Vec<KeyId>) {
        if keys.is_empty() {
            return;
        }
        let first = self.granted.is_empty();
        self.intents.release(&keys, &mut self.granted);
        if !first {
            return;
        }
        let mut next = 0;
        while let Some(&ticket) = self.granted.get(next) {
            next += 1;
            self.task_step(ticket);
        }
        self.granted.clear();
    }

    /// Runs tasks again that found no room, each once.
    pub(super) fn retry_tasks(&mut self) {
        for _ in 0..self.retry.len() {
            let Some(ticket) = self.retry.pop_front() else { return };
            self.task_run(ticket);
        }
    }

    /// A command that another core has sent here.
    pub(super) fn command_remote(
        &mut self,
        origin: Origin,
        command: &'static Command,
        db: u8,
        proto: Proto,
        packet: Packet,
    ) {
        let args = packet.args();
        if command.name == "get" && self.get_remote(origin, db, proto, args.at(1)) {
            return self.recycle_packet(packet);
        }
        let mut keys = std::mem::take(&mut self.keys);
        let mut places = Vec::new();
        let shard = &self.shard;
        resolve(command, args, db, |key| shard.hash(key), &mut keys, &mut places);
        let (now_ms, seed) = (self.now.unix_ms, self.next_seed());
        let run = Run { command, args, keys: &keys, places: &places, proto, now_ms, seed };
        let started = self.run_remote(origin, &run);
        let waits =
            started.map(|values| Loads::new(keys.clone(), places.clone(), values, now_ms, seed));
        self.keys = keys;
        match waits {
            None => self.recycle_packet(packet),
            Some(loads) => {
                let writing = None;
                self.waiter_start(Waiter { origin, command, proto, packet, loads, writing });
            }
        }
    }

    /// Runs a remote command at once if it can; otherwise returns what it has looked up.
    fn run_remote(&mut self, origin: Origin, run: &Run<'_>) -> Option<Vec<Value>> {
        if self.is_blocked(run) {
            return Some(Vec::new());
        }
        let mut values = self.look(run);
        let mut out = self.spare();
        match self.attempt(run, &mut values, &mut out) {
            Attempt::Done(lsn) => {
                self.reply_durable(origin, out, lsn);
                None
            }
            Attempt::Busy | Attempt::Wait(_) | Attempt::Large(_) => {
                self.recycle(out);
                Some(values)
            }
        }
    }

    /// One message of another core (or of this one to itself).
    pub(super) fn handle(&mut self, message: Message) {
        match message {
            Message::Adopt(fd) => self.adopt(fd),
            Message::Command { origin, command, db, proto, packet } => {
                self.client_bytes += packet.shared_bytes();
                self.command_remote(origin, command, db, proto, packet);
            }
            Message::Reply { conn, seq, expected, bytes } => {
                self.remote_in_flight -= 1;
                let origin = Origin { expected, ..self.origin(conn, seq) };
                if let Some(conn) = self.conns.get_mut(conn) {
                    conn.note_remote(bytes.len());
                }
                self.reply(origin, bytes);
            }
            Message::Stream { conn, seq, expected, home, chain } => {
                self.remote_in_flight -= 1;
                let origin = Origin { expected, ..self.origin(conn, seq) };
                self.stream_start(origin, home, chain);
            }
            Message::ReadPart(ask) => self.part_ask(ask),
            Message::Part { conn, seq, part } => {
                self.stream_feed(conn, seq, part.map(Tx::Bytes));
            }
            Message::Unpin { chain } => self.shard.unpin(&chain.id),
            Message::Lock { .. }
            | Message::Locked { .. }
            | Message::Load { .. }
            | Message::Loaded { .. }
            | Message::Commit { .. }
            | Message::Committed { .. } => self.multi_message(message),
            Message::Walk { asker, walk } => self.walking_start(asker, walk),
            Message::Walked { task, result } => self.walks_step(task, result),
            Message::Ask { asker, gather, conn } => self.answer(asker, gather, conn),
            Message::Answer { task, text, count } => self.gathering_step(task, text, count),
            _ => self.global_message(message),
        }
    }
}
