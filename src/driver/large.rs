//! Writes of values in parts. The command has run and its task holds the keys; now the parts go
//! to the log one at a time, so that others are served in between, and then, as one unit, the
//! roots and whatever else the command writes. Until then nothing has happened.
//!
//! A change of a value in parts (APPEND, SETRANGE) writes the parts that it touches. Parts behind
//! the old end come first: no root counts them yet. Old ones that change go into the unit. When
//! these are many, or somebody reads the value, all parts are written again under a new id.

use std::borrow::Cow;
use std::ops::Range;

use crate::disk::Disk;
use crate::mem::{DmaBuf, Ticket};
use crate::net::Net;
use crate::resp::Args;
use crate::shard::index::Entry;
use crate::shard::parts::{Chain, PART_BYTES, part_range, parts_of};
use crate::shard::view::{KeyState, Kind, Write};
use crate::shard::{AppendError, Lsn, ReadError, ReadSpan, UnitOp, UnitWrite};

use super::Core;
use super::execute::{Bytes, DAMAGED, KeyRef, Run, Value, append_error};
use super::fast::Purpose;
use super::message::KeyWrite;
use super::task::Task;

/// Old parts that a unit of work takes besides the root. They are in memory until it is written.
const PATCHED_MAX: u32 = 4;

/// The writes of one command.
#[derive(Debug)]
pub(crate) struct Writing {
    items: Vec<Item>,
    at: usize,
    /// What is to be replied when they are done.
    pub reply: Vec<u8>,
    /// Of a part that could not be read.
    pub failed: Option<String>,
}

#[derive(Debug)]
struct Item {
    /// Place among the command's distinct keys.
    place: usize,
    op: ItemOp,
}

#[derive(Debug)]
enum ItemOp {
    Delete,
    Record {
        kind: Kind,
        value: Source,
        expire_at_ms: Option<u64>,
    },
    /// All of a value, or a patch of one that is in parts.
    Parts {
        source: Source,
        patch_at: Option<usize>,
        expire_at_ms: Option<u64>,
        compose: Option<Compose>,
    },
    Expire {
        expire_at_ms: Option<u64>,
    },
}

/// Where bytes are that are to be written: they are not copied.
#[derive(Debug)]
enum Source {
    Arg(usize),
    Loaded(usize),
    Owned(Vec<u8>),
}

/// A chain that is being written.
#[derive(Debug)]
struct Compose {
    chain: Chain,
    /// What the key had, pinned; its bytes go on where no other ones come.
    old: Option<Chain>,
    /// Parts that go first, and how far they are.
    parts: Range<u32>,
    next: u32,
    /// Parts of the old chain that go with the root, and those that are ready.
    patched: Range<u32>,
    ready: Vec<Vec<u8>>,
    /// The old part that has been read for the next one.
    fetched: Option<Vec<u8>>,
}

/// What writes: a task with its keys.
pub(crate) struct Owner<'a> {
    pub ticket: Ticket,
    /// Empty when all bytes are owned.
    pub args: Args<'a>,
    pub keys: &'a [KeyRef],
    pub values: &'a [Value],
    pub names: &'a dyn Fn(usize) -> &'a [u8],
}

/// How far a write is.
pub(crate) enum Progress {
    /// Go on in the next turn.
    Later,
    /// A read is under way.
    Wait,
    /// The key has changed before anything was done: look again.
    Stale,
    Done(Result<Lsn, String>),
}

/// Whether a write cannot be done at once.
pub(crate) fn is_large(write: &Write<'_>) -> bool {
    match write {
        Write::Put { kind: Kind::String, value, .. } => value.len() > PART_BYTES,
        Write::Patch { .. } | Write::Expire { .. } => true,
        _ => false,
    }
}

/// Whether a key's value from another core goes into parts.
pub(crate) fn is_large_put(write: &KeyWrite) -> bool {
    matches!(write, KeyWrite::Put { kind: Kind::String, value, .. } if value.len() > PART_BYTES)
}

impl Writing {
    /// The writes of a command that has run, with the reply that it made.
    pub fn new(
        run: &Run<'_>,
        values: &[Value],
        states: Vec<KeyState<'_>>,
        reply: Vec<u8>,
    ) -> Writing {
        let places = states.into_iter().enumerate();
        let items = places.filter_map(|(place, state)| {
            let op = match state.write? {
                Write::Delete => ItemOp::Delete,
                Write::Expire { expire_at_ms } => ItemOp::Expire { expire_at_ms },
                Write::Patch { offset, bytes, expire_at_ms } => {
                    let source = Source::find(run, values, Cow::Borrowed(bytes));
                    ItemOp::Parts { source, patch_at: Some(offset), expire_at_ms, compose: None }
                }
                Write::Put { kind, value, expire_at_ms } => {
                    ItemOp::put(kind, Source::find(run, values, value), expire_at_ms, run, values)
                }
            };
            Some(Item { place, op })
        });
        Writing { items: items.collect(), at: 0, reply, failed: None }
    }

    /// The writes of a home core's part of a command.
    pub fn owned(writes: Vec<KeyWrite>) -> Writing {
        let places = writes.into_iter().enumerate();
        let items = places.filter_map(|(place, write)| {
            let op = match write {
                KeyWrite::Keep => return None,
                KeyWrite::Delete => ItemOp::Delete,
                KeyWrite::Put { kind, value, expire_at_ms } => {
                    let large = kind == Kind::String && value.len() > PART_BYTES;
                    ItemOp::of_source(kind, Source::Owned(value), expire_at_ms, large)
                }
            };
            Some(Item { place, op })
        });
        Writing { items: items.collect(), at: 0, reply: Vec::new(), failed: None }
    }
}

impl ItemOp {
    fn put(
        kind: Kind,
        source: Source,
        expire_at_ms: Option<u64>,
        run: &Run<'_>,
        values: &[Value],
    ) -> ItemOp {
        let large = kind == Kind::String && source.bytes(run.args, values).len() > PART_BYTES;
        ItemOp::of_source(kind, source, expire_at_ms, large)
    }

    fn of_source(kind: Kind, source: Source, expire_at_ms: Option<u64>, large: bool) -> ItemOp {
        match large {
            true => ItemOp::Parts { source, patch_at: None, expire_at_ms, compose: None },
            false => ItemOp::Record { kind, value: source, expire_at_ms },
        }
    }
}

impl Source {
    fn find(run: &Run<'_>, values: &[Value], bytes: Cow<'_, [u8]>) -> Source {
        let bytes = match bytes {
            Cow::Owned(bytes) => return Source::Owned(bytes),
            Cow::Borrowed(bytes) => bytes,
        };
        let is = |other: &[u8]| std::ptr::eq(other, bytes);
        if let Some(at) = run.args.iter().position(is) {
            return Source::Arg(at);
        }
        let loaded = |value: &Value| matches!(&value.bytes, Bytes::Loaded(loaded) if is(loaded));
        match values.iter().position(loaded) {
            Some(place) => Source::Loaded(place),
            None => Source::Owned(bytes.to_vec()),
        }
    }

    fn bytes<'a>(&'a self, args: Args<'a>, values: &'a [Value]) -> &'a [u8] {
        match self {
            Source::Arg(at) => args.at(*at),
            Source::Owned(bytes) => bytes,
            Source::Loaded(place) => match &values[*place].bytes {
                Bytes::Loaded(bytes) => bytes,
                _ => &[],
            },
        }
    }
}

impl Compose {
    fn needs_old(&self, number: u32, offset: usize, len: usize) -> bool {
        let range = part_range(self.chain.len as usize, number);
        let covered = offset <= range.start && range.end <= offset + len;
        !covered && self.old.is_some_and(|old| number < old.parts())
    }

    /// What part `number` becomes.
    fn part<'a>(&mut self, number: u32, offset: usize, source: &'a [u8]) -> Cow<'a, [u8]> {
        let range = part_range(self.chain.len as usize, number);
        if offset <= range.start && range.end <= offset + source.len() {
            return Cow::Borrowed(&source[range.start - offset..range.end - offset]);
        }
        let mut bytes = self.fetched.take().unwrap_or_default();
        bytes.resize(range.len(), 0);
        let (from, to) = (offset.max(range.start), (offset + source.len()).min(range.end));
        if from < to {
            bytes[from - range.start..to - range.start]
                .copy_from_slice(&source[from - offset..to - offset]);
        }
        Cow::Owned(bytes)
    }

    /// The next part to be made, and whether it goes with the root.
    fn next_part(&self) -> Option<(u32, bool)> {
        if self.next < self.parts.end {
            return Some((self.next, false));
        }
        let number = self.patched.start + self.ready.len() as u32;
        (number < self.patched.end).then_some((number, true))
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    /// Writes the next part, or, when there is none, everything else.
    pub(super) fn writing_step(&mut self, owner: &Owner<'_>, writing: &mut Writing) -> Progress {
        if let Some(text) = writing.failed.take() {
            return self.writing_end(writing, Err(text));
        }
        while let Some(item) = writing.items.get_mut(writing.at) {
            let ItemOp::Parts { source, patch_at, compose, .. } = &mut item.op else {
                writing.at += 1;
                continue;
            };
            let bytes = source.bytes(owner.args, owner.values);
            let Some(compose) = compose else {
                let Some(begun) = self.compose(owner, item.place, *patch_at, bytes.len()) else {
                    self.writing_undo(writing);
                    return Progress::Stale;
                };
                *compose = Some(begun);
                continue;
            };
            match self.compose_step(owner.ticket, compose, patch_at.unwrap_or(0), bytes) {
                Ok(Some(Progress::Done(end))) => return self.writing_end(writing, end),
                Ok(Some(progress)) => return progress,
                Ok(None) => writing.at += 1,
                Err(error) => {
                    return self.writing_end(writing, Err(append_error(error).to_string()));
                }
            }
        }
        self.writing_commit(owner, writing)
    }

    /// How a value comes about. None when what it starts from is gone.
    fn compose(
        &mut self,
        owner: &Owner<'_>,
        place: usize,
        patch_at: Option<usize>,
        len: usize,
    ) -> Option<Compose> {
        let key = &owner.keys[place];
        let old = owner.values[place].chain.filter(|_| patch_at.is_some());
        let offset = patch_at.unwrap_or(0);
        let old_len = old.map_or(0, |old| old.len as usize);
        if let Some(old) = &old
            && !self.shard.pin(&key.hash, old)
        {
            return None;
        }
        let new_len = old_len.max(offset + len);
        let touched = (offset.min(old_len) / PART_BYTES) as u32;
        let patched = touched..parts_of(offset + len).min(parts_of(old_len)).max(touched);
        let alone = old.is_some_and(|old| self.shard.pins(&old.id) == 1);
        let in_place = alone && patched.len() as u32 <= PATCHED_MAX;
        let (chain, parts, patched) = match old {
            Some(old) if in_place => {
                let chain = Chain { len: new_len as u32, ..old };
                (chain, old.parts()..chain.parts().max(old.parts()), patched)
            }
            _ => (self.shard.new_chain(key.db, &key.hash, new_len), 0..parts_of(new_len), 0..0),
        };
        let next = parts.start;
        Some(Compose { chain, old, parts, next, patched, ready: Vec::new(), fetched: None })
    }

    /// One part of a chain. None when there is no further one.
    fn compose_step(
        &mut self,
        ticket: Ticket,
        compose: &mut Compose,
        offset: usize,
        source: &[u8],
    ) -> Result<Option<Progress>, AppendError> {
        let Some((number, with_root)) = compose.next_part() else { return Ok(None) };
        if compose.needs_old(number, offset, source.len()) && compose.fetched.is_none() {
            return Ok(Some(self.fetch_old(ticket, compose, number)));
        }
        let kept = compose.fetched.clone().filter(|_| !with_root);
        let part = compose.part(number, offset, source);
        if with_root {
            compose.ready.push(part.into_owned());
            self.progress = true;
            return Ok(Some(Progress::Later));
        }
        match self.shard.put_part(compose.chain.id, number, &part) {
            Ok(_) => compose.next += 1,
            Err(AppendError::Busy) => {
                compose.fetched = kept;
                return Ok(Some(Progress::Later));
            }
            Err(error) => return Err(error),
        }
        self.progress = true;
        Ok(Some(Progress::Later))
    }

    /// Gets a part of the old value.
    fn fetch_old(&mut self, ticket: Ticket, compose: &mut Compose, number: u32) -> Progress {
        let Some(old) = compose.old else { return Progress::Later };
        let Some(entry) = self.shard.part(&old.id, number) else {
            return Progress::Done(Err(self.why_no_part(&old.id).into()));
        };
        if let Some(record) = self.shard.resident(&entry, &old.id.part_name(number)) {
            compose.fetched = Some(record.value.to_vec());
            self.progress = true;
            return Progress::Later;
        }
        let Some(buf) = self.read_buffer(&entry) else { return Progress::Later };
        self.read(entry, buf, Purpose::Patch { task: ticket, number });
        Progress::Wait
    }

    /// A part of the old value has been read.
    pub(super) fn patched_loaded(
        &mut self,
        (task, number): (Ticket, u32),
        entry: &Entry,
        span: &ReadSpan,
        buf: DmaBuf,
    ) {
        let Some(mut owner) = self.task_take(task) else { return };
        if let Task::Command(waiter) = &mut *owner
            && let Some(writing) = &mut waiter.writing
            && let Some(Item { op: ItemOp::Parts { compose: Some(compose), .. }, .. }) =
                writing.items.get_mut(writing.at)
            && let Some(old) = compose.old
        {
            match self.shard.decode(entry, span, &buf, &old.id.part_name(number)) {
                Ok(record) => compose.fetched = Some(record.value.to_vec()),
                // It is looked for again.
                Err(ReadError::Stale) => {}
                Err(ReadError::Corrupt | ReadError::OtherKey) => {
                    log::error!("{}", self.describe(span));
                    writing.failed = Some(DAMAGED.into());
                }
            }
        }
        drop(buf);
        self.task_put(task, owner);
        self.task_step(task);
    }

    /// All parts are in the log: now the unit that makes them the values of their keys.
    fn writing_commit(&mut self, owner: &Owner<'_>, writing: &mut Writing) -> Progress {
        // A value that is read by now must not change under its reader: start over, on new parts.
        if self.is_read_meanwhile(writing) {
            self.writing_undo(writing);
            return Progress::Later;
        }
        let mut units = Vec::new();
        for item in &writing.items {
            let key = &owner.keys[item.place];
            let unit =
                |op| UnitWrite { db: key.db, hash: key.hash, key: (owner.names)(item.place), op };
            match &item.op {
                ItemOp::Delete => units.push(unit(UnitOp::Delete)),
                ItemOp::Record { kind, value, expire_at_ms } => {
                    let value = value.bytes(owner.args, owner.values);
                    let (kind, expire_at_ms) = (*kind, *expire_at_ms);
                    units.push(unit(UnitOp::Put { kind, value, expire_at_ms }));
                }
                ItemOp::Expire { expire_at_ms } => {
                    let Some(chain) = self.shard.chain(key.db, &key.hash) else { continue };
                    units.push(unit(UnitOp::Chain { chain, expire_at_ms: *expire_at_ms }));
                }
                ItemOp::Parts { compose: Some(compose), expire_at_ms, .. } => {
                    let (id, chain) = (compose.chain.id, compose.chain);
                    for (number, value) in compose.patched.clone().zip(&compose.ready) {
                        units.push(unit(UnitOp::Part { id, number, value }));
                    }
                    units.push(unit(UnitOp::Chain { chain, expire_at_ms: *expire_at_ms }));
                }
                ItemOp::Parts { compose: None, .. } => {}
            }
        }
        match self.shard.append_unit(&units) {
            Err(AppendError::Busy) => Progress::Later,
            Err(error) => self.writing_end(writing, Err(append_error(error).to_string())),
            Ok(lsn) => {
                units.iter().for_each(|unit| self.count_keys(unit.db));
                self.writing_end(writing, Ok(lsn))
            }
        }
    }

    fn is_read_meanwhile(&self, writing: &Writing) -> bool {
        writing.items.iter().any(|item| match &item.op {
            ItemOp::Parts { compose: Some(compose), .. } => {
                !compose.patched.is_empty() && self.shard.pins(&compose.chain.id) > 1
            }
            _ => false,
        })
    }

    fn writing_end(&mut self, writing: &mut Writing, end: Result<Lsn, String>) -> Progress {
        if end.is_err() {
            self.writing_undo(writing);
        }
        for item in &mut writing.items {
            if let ItemOp::Parts { compose: Some(Compose { old: Some(old), .. }), .. } = &item.op {
                self.shard.unpin(&old.id);
            }
        }
        Progress::Done(end)
    }

    /// Gives up what has been written.
    fn writing_undo(&mut self, writing: &mut Writing) {
        writing.at = 0;
        for item in &mut writing.items {
            let ItemOp::Parts { compose, .. } = &mut item.op else { continue };
            let Some(compose) = compose.take() else { continue };
            match compose.old {
                Some(old) if old.id == compose.chain.id => {
                    self.shard.forget_parts(&old.id, compose.parts.start..compose.next);
                }
                _ => self.shard.abandon(compose.chain.id, compose.next),
            }
            if let Some(old) = compose.old {
                self.shard.unpin(&old.id);
            }
        }
    }
}
