//! Any command on keys of this core: run it over what the index and the log buffers know. What
//! is missing from memory makes it a task.

use crate::command::{Command, Context, Handler, KeyedFn, errors, flag, key};
use crate::disk::Disk;
use crate::net::{Net, SocketId};
use crate::resp::{Args, Proto, Reply};
use crate::shard::index::{Found, KeyHash};
use crate::shard::parts::Chain;
use crate::shard::segment::Epoch;
use crate::shard::view::{Fault, KeyState, Meta, Resident, Stop, View, Write};
use crate::shard::{AppendError, Lsn, Shard, UnitOp, UnitWrite};

use super::Core;
use super::intent::{KeyId, Mode};
use super::large::{Writing, is_large};
use super::message::Origin;
use super::parts::Assembly;

/// The error replies of the engine. docs/ARCHITECTURE.md says what each means.
pub const FULL: &str = "NOSPACE the data devices are full: delete keys";
pub const POISONED: &str =
    "IOERR a write to a data device failed: this server accepts no writes until it is restarted";
pub const TOO_LARGE: &str = "ERR the value is larger than one record can be";
pub const DAMAGED: &str = "IOERR the stored value is damaged: its checksum does not match";

/// What the input does after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    Continue,
    /// No room: the command was not executed; offer it again later.
    Stall,
    /// Nothing more is read from this connection.
    Close,
}

/// One distinct key of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyRef {
    /// Which argument names it.
    pub arg: u32,
    /// Logical database.
    pub db: u8,
    pub hash: KeyHash,
}

impl KeyRef {
    pub fn id(&self) -> KeyId {
        key_id(self.db, &self.hash)
    }
}

pub(crate) fn key_id(db: u8, hash: &KeyHash) -> KeyId {
    KeyId(hash.tag ^ u64::from(db).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// A key as the index knew it when the command first looked, and its value once loaded. A
/// command that runs again sees the same state: records never change where they are.
#[derive(Debug, Default)]
pub(crate) struct Value {
    pub found: Option<Found>,
    pub meta: Option<Meta>,
    /// Life of the record's segment then: later the place may belong to another.
    pub epoch: Epoch,
    pub bytes: Bytes,
    /// Where the value is when it is in parts.
    pub chain: Option<Chain>,
}

#[derive(Debug, Default)]
pub(crate) enum Bytes {
    #[default]
    Missing,
    /// A copy: device buffers are few, and a command may name many keys.
    Loaded(Vec<u8>),
    /// Some parts of a value in parts, from `start` on.
    Range {
        start: usize,
        bytes: Vec<u8>,
    },
    Assembling(Box<Assembly>),
}

impl Value {
    fn resident(&self) -> Resident<'_> {
        match &self.bytes {
            Bytes::Missing | Bytes::Assembling(_) => Resident::No,
            Bytes::Loaded(bytes) => Resident::Yes(bytes),
            Bytes::Range { start, bytes } => Resident::Range { start: *start, bytes },
        }
    }

    /// Whether the bytes that `fault` asks for are still to be read.
    pub fn lacks(&self, fault: Fault) -> bool {
        match (&self.bytes, fault) {
            (Bytes::Missing | Bytes::Assembling(_), _) => self.found.is_some(),
            (Bytes::Range { start: from, bytes }, Fault::Range { start, end, .. }) => {
                start < *from || end > from + bytes.len()
            }
            (Bytes::Range { .. }, _) => true,
            (Bytes::Loaded(_), _) => false,
        }
    }
}

/// A command with everything it needs to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub command: &'static Command,
    pub args: Args<'a>,
    pub keys: &'a [KeyRef],
    /// Key position -> place in `keys`; empty when they are the same.
    pub places: &'a [u32],
    pub proto: Proto,
    pub now_ms: u64,
    pub seed: u64,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// The reply is written. What it wrote to the log has this LSN.
    Done(Option<Lsn>),
    /// Values have to be read from the device first.
    Wait(Fault),
    /// The log has no buffer free; nothing has happened.
    Busy,
    /// What it writes takes more than a moment: a task has to do it, which holds the keys.
    Large(Box<Writing>),
}

/// Finds the distinct keys of a command. `places` stays empty when no key is named twice.
pub(crate) fn resolve(
    command: &Command,
    args: Args<'_>,
    db: u8,
    hash: impl Fn(&[u8]) -> KeyHash,
    keys: &mut Vec<KeyRef>,
    places: &mut Vec<u32>,
) {
    keys.clear();
    places.clear();
    let mut add = |arg: usize, db: u8| {
        keys.push(KeyRef { arg: arg as u32, db, hash: hash(args.at(arg)) });
    };
    if command.is(flag::OTHER_DB) {
        for (arg, db) in key::keys_across(args, db) {
            add(arg, db);
        }
    } else {
        command.key_positions(args.len()).for_each(|arg| add(arg, db));
    }
    if keys.len() > 1 {
        merge_repeated(keys, places);
    }
}

/// Keeps the first of keys that are named twice and records who is who.
fn merge_repeated(keys: &mut Vec<KeyRef>, places: &mut Vec<u32>) {
    let mut seen = std::collections::HashMap::with_capacity(keys.len());
    let mut distinct = 0u32;
    for key in keys.iter() {
        let identity = (key.db, key.hash.tag, key.hash.place);
        let place = *seen.entry(identity).or_insert_with(|| {
            distinct += 1;
            distinct - 1
        });
        places.push(place);
    }
    if distinct as usize == keys.len() {
        return places.clear();
    }
    let mut next = 0;
    let mut position = 0;
    keys.retain(|_| {
        let first = places[position] == next;
        next += u32::from(first);
        position += 1;
        first
    });
}

impl<N: Net, D: Disk> Core<N, D> {
    /// The core that owns a key.
    pub(super) fn home(&self, hash: &KeyHash) -> u16 {
        hash.core(self.cores) as u16
    }

    /// Executes a keyed command of a connection of this core.
    pub(super) fn keyed(
        &mut self,
        socket: SocketId,
        command: &'static Command,
        args: Args<'_>,
    ) -> Flow {
        let Some(conn) = self.conns.get(socket) else { return Flow::Close };
        let (db, proto) = (conn.session.db, conn.session.proto);
        if command.is(flag::DENYOOM) && self.is_out_of_memory() {
            return self.immediate_error(socket, errors::OUT_OF_MEMORY);
        }
        let mut keys = std::mem::take(&mut self.keys);
        let mut places = Vec::new();
        let shard = &self.shard;
        resolve(command, args, db, |key| shard.hash(key), &mut keys, &mut places);
        let (now_ms, seed) = (self.now.unix_ms, self.next_seed());
        let run = Run { command, args, keys: &keys, places: &places, proto, now_ms, seed };
        let flow = self.route(socket, db, &run);
        self.keys = keys;
        flow
    }

    fn route(&mut self, socket: SocketId, db: u8, run: &Run<'_>) -> Flow {
        let home = run.keys.first().map_or(self.id, |key| self.home(&key.hash));
        if run.keys.iter().any(|key| self.home(&key.hash) != home) {
            return self.multi_start(socket, run);
        }
        if home != self.id {
            return self.ship(socket, home, db, run);
        }
        self.local(socket, run)
    }

    /// Runs a command of a local connection on local keys.
    fn local(&mut self, socket: SocketId, run: &Run<'_>) -> Flow {
        if self.is_blocked(run) {
            let origin = self.reserve_expecting(socket, run.args.len_bytes() as u32);
            self.task_start(origin, run, Vec::new());
            return Flow::Continue;
        }
        let mut values = self.look(run);
        let mut out = self.begin(socket);
        let start = out.len();
        let attempt = self.attempt(run, &mut values, &mut out);
        match attempt {
            Attempt::Done(lsn) => {
                self.finish(socket, out, start, lsn);
                Flow::Continue
            }
            Attempt::Wait(_) => {
                self.finish(socket, out, start, None);
                let lens = values.iter().filter_map(|value| value.meta?.value_len);
                let expected = lens.fold(0, u32::saturating_add);
                let origin = self.reserve_expecting(socket, expected);
                self.task_start(origin, run, values);
                Flow::Continue
            }
            Attempt::Large(_) => {
                self.finish(socket, out, start, None);
                // A large argument counts until its reply is there: the next one waits.
                let origin = self.reserve_expecting(socket, run.args.len_bytes() as u32);
                self.task_start(origin, run, values);
                Flow::Continue
            }
            Attempt::Busy => {
                self.finish(socket, out, start, None);
                Flow::Stall
            }
        }
    }

    /// Whether the command must queue behind operations that hold its keys.
    pub(super) fn is_blocked(&self, run: &Run<'_>) -> bool {
        if self.intents.is_empty() {
            return false;
        }
        let mode = mode_of(run.command);
        run.keys.iter().any(|key| self.intents.blocks(key.id(), mode))
    }

    /// Looks all keys up in the index.
    pub(super) fn look(&self, run: &Run<'_>) -> Vec<Value> {
        run.keys.iter().map(|key| self.look_one(key, run.now_ms)).collect()
    }

    pub(super) fn look_one(&self, key: &KeyRef, now_ms: u64) -> Value {
        let found = self.shard.lookup(key.db, &key.hash, now_ms);
        let mut meta = found.as_ref().map(Shard::meta);
        let epoch = found.as_ref().map(|found| self.shard.epoch_of(&found.entry));
        let epoch = epoch.unwrap_or_default();
        let mut chain = None;
        if let Some(known) = meta.as_mut().filter(|meta| meta.in_parts) {
            chain = self.shard.chain(key.db, &key.hash);
            let Some(chain) = &chain else { return Value::default() };
            known.value_len = Some(chain.len);
        }
        Value { found, meta, epoch, bytes: Bytes::Missing, chain }
    }

    /// Runs the command until it is done or needs the device. `out` ends with the reply, or as
    /// it was.
    pub(super) fn attempt(
        &mut self,
        run: &Run<'_>,
        values: &mut [Value],
        out: &mut Vec<u8>,
    ) -> Attempt {
        let Handler::Keyed(function) = run.command.handler else {
            panic!("{} is not a keyed command", run.command.name);
        };
        let start = out.len();
        loop {
            let (result, states) = run_once(run, function, values, out);
            match result {
                Ok(()) if states.iter().any(writes_large) => {
                    let reply = out.split_off(start);
                    return Attempt::Large(Box::new(Writing::new(run, values, states, reply)));
                }
                Ok(()) => return self.commit(run, states, start, out),
                Err(Stop::Error(text)) => {
                    out.truncate(start);
                    Reply::new(out, run.proto).error(&text);
                    self.stats.errors.add(1);
                    return Attempt::Done(None);
                }
                Err(Stop::Fault(fault)) => {
                    drop(states);
                    out.truncate(start);
                    if !self.load_from_log(run, fault, values) {
                        return Attempt::Wait(fault);
                    }
                }
            }
        }
    }

    /// Writes what a command did to the log as one unit.
    fn commit(
        &mut self,
        run: &Run<'_>,
        states: Vec<KeyState<'_>>,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Attempt {
        match self.append(run, &states) {
            Ok(lsn) => Attempt::Done(lsn),
            Err(AppendError::Busy) => {
                out.truncate(start);
                Attempt::Busy
            }
            Err(error) => {
                out.truncate(start);
                Reply::new(out, run.proto).error(append_error(error));
                self.stats.errors.add(1);
                Attempt::Done(None)
            }
        }
    }

    fn append(
        &mut self,
        run: &Run<'_>,
        states: &[KeyState<'_>],
    ) -> Result<Option<Lsn>, AppendError> {
        let mut written = states.iter().zip(run.keys).filter(|(state, _)| state.write.is_some());
        let Some((state, key)) = written.next() else { return Ok(None) };
        if written.next().is_some() {
            let pairs = states.iter().zip(run.keys);
            let writes: Vec<UnitWrite<'_>> = pairs
                .filter_map(|(state, key)| Some(unit_write(key, state.name, state.write.as_ref()?)))
                .collect();
            let lsn = self.shard.append_unit(&writes)?;
            writes.iter().for_each(|write| self.count_keys(write.db));
            return Ok(Some(lsn));
        }
        let lsn = self.append_one(key, state)?;
        self.count_keys(key.db);
        Ok(lsn)
    }

    fn append_one(
        &mut self,
        key: &KeyRef,
        state: &KeyState<'_>,
    ) -> Result<Option<Lsn>, AppendError> {
        match &state.write {
            Some(Write::Put { kind, value, expire_at_ms }) => {
                self.shard.put(key.db, &key.hash, state.name, *kind, value, *expire_at_ms).map(Some)
            }
            Some(Write::Delete) => self.shard.delete(key.db, &key.hash),
            Some(Write::Patch { .. } | Write::Expire { .. }) => {
                panic!("values in parts are written by their own task")
            }
            None => Ok(None),
        }
    }

    /// Copies the missing values that are still in a log buffer. Returns false when one of them
    /// is on the device only.
    fn load_from_log(&mut self, run: &Run<'_>, fault: Fault, values: &mut [Value]) -> bool {
        let mut complete = true;
        for place in wanted(run, fault, values) {
            let Some(found) = &values[place].found else { continue };
            if values[place].chain.is_some() {
                complete = false;
                continue;
            }
            let name = run.args.at(run.keys[place].arg as usize);
            match self.shard.resident(&found.entry, name) {
                Some(record) => values[place].bytes = Bytes::Loaded(record.value.to_vec()),
                None => complete = false,
            }
        }
        complete
    }

    pub(super) fn is_out_of_memory(&self) -> bool {
        self.memory_bytes() > self.shares.memory_bytes
    }

    /// DRAM of this core that grows with data and clients, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.index_bytes + self.client_bytes) as u64
    }

    pub(super) fn origin(&self, conn: SocketId, seq: super::conn::Seq) -> Origin {
        Origin { core: self.id, conn, seq, expected: 0 }
    }
}

/// Runs a keyed command over a view of `values`; gives back the keys with what it wrote.
pub(crate) fn run_states<'a>(
    run: &Run<'a>,
    values: &'a [Value],
    out: &mut Vec<u8>,
) -> Result<Vec<KeyState<'a>>, Stop> {
    let Handler::Keyed(function) = run.command.handler else {
        panic!("{} is not a keyed command", run.command.name);
    };
    let (result, states) = run_once(run, function, values, out);
    result.map(|()| states)
}

/// Runs the function over a view of `values`; gives back the keys with what it wrote.
fn run_once<'a>(
    run: &Run<'a>,
    function: KeyedFn,
    values: &'a [Value],
    out: &mut Vec<u8>,
) -> (Result<(), Stop>, Vec<KeyState<'a>>) {
    let states = run.keys.iter().zip(values).map(|(key, value)| KeyState {
        name: run.args.at(key.arg as usize),
        meta: value.meta,
        value: value.resident(),
        write: None,
    });
    let view = View::new(run.now_ms, run.seed, states.collect(), run.places.to_vec());
    let mut context = Context { args: run.args, view, reply: Reply::new(out, run.proto) };
    let result = function(&mut context);
    (result, context.view.into_keys())
}

/// The places of the values that a fault asks for and that are not there.
pub(crate) fn wanted(run: &Run<'_>, fault: Fault, values: &[Value]) -> Vec<usize> {
    let missing = |place: &usize| values[*place].lacks(fault);
    match fault {
        Fault::All => (0..values.len()).filter(missing).collect(),
        Fault::Key(position) | Fault::Range { key: position, .. } => {
            let place =
                if run.places.is_empty() { position } else { run.places[position] as usize };
            Some(place).into_iter().filter(missing).collect()
        }
    }
}

fn writes_large(state: &KeyState<'_>) -> bool {
    state.write.as_ref().is_some_and(is_large)
}

pub(crate) fn mode_of(command: &Command) -> Mode {
    if command.is(flag::WRITE) { Mode::Exclusive } else { Mode::Shared }
}

fn unit_write<'a>(key: &KeyRef, name: &'a [u8], write: &'a Write<'a>) -> UnitWrite<'a> {
    let op = match write {
        Write::Put { kind, value, expire_at_ms } => {
            UnitOp::Put { kind: *kind, value, expire_at_ms: *expire_at_ms }
        }
        Write::Delete => UnitOp::Delete,
        Write::Patch { .. } | Write::Expire { .. } => {
            panic!("values in parts are written by their own task")
        }
    };
    UnitWrite { db: key.db, hash: key.hash, key: name, op }
}

/// The error reply for a refused append.
pub(crate) fn append_error(error: AppendError) -> &'static str {
    match error {
        AppendError::Full => FULL,
        AppendError::Poisoned => POISONED,
        AppendError::TooLarge => TOO_LARGE,
        AppendError::Busy => panic!("a busy log is waited for, not reported"),
    }
}
