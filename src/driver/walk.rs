//! Visits of keys whose names are not in DRAM: SCAN, KEYS, RANDOMKEY. A core collects the index
//! entries of a part of its keys, reads the names that are on the device in parallel, and
//! answers with those that match.

use crate::command::glob;
use crate::command::global::{Global, ScanKind};
use crate::disk::Disk;
use crate::mem::{DmaBuf, Ticket};
use crate::net::{Net, SocketId};
use crate::resp::{Proto, Reply};
use crate::shard::index::{Entry, SlotId};
use crate::shard::segment::Epoch;
use crate::shard::{ReadError, ReadSpan};

use super::Core;
use super::execute::{DAMAGED, Flow};
use super::fast::Purpose;
use super::message::{Asker, Message, Origin, Walk, Walked};
use super::task::Task;

/// Low bits of a SCAN cursor that name the core.
const CORE_BITS: u32 = 8;
/// Keys that one step of KEYS visits on a core.
const KEYS_STEP: usize = 1024;

/// The visited side: entries whose names are being found out.
#[derive(Debug)]
pub(crate) struct Walking {
    asker: Asker,
    walk: Walk,
    cursor: u64,
    entries: Vec<Visit>,
    pending: usize,
    failed: Option<String>,
}

#[derive(Debug)]
struct Visit {
    /// Unknown for a key that was drawn at random.
    id: Option<SlotId>,
    entry: Entry,
    /// Life of the record's segment when the entry was found.
    epoch: Epoch,
    name: Name,
}

#[derive(Debug)]
enum Name {
    Unknown,
    Reading,
    Known(Vec<u8>),
    Gone,
}

/// The asking side.
#[derive(Debug)]
pub(crate) struct Walks {
    origin: Origin,
    proto: Proto,
    goal: Goal,
    walk: Walk,
    core: u16,
    /// Cores still to be asked.
    left: u16,
    found: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Scan,
    Keys,
    Random,
}

impl<N: Net, D: Disk> Core<N, D> {
    pub(super) fn walks_start(&mut self, socket: SocketId, request: Global) -> Flow {
        let Some(conn) = self.conns.get(socket) else { return Flow::Close };
        let (db, proto) = (conn.session.db, conn.session.proto);
        let origin = self.reserve(socket);
        self.hold_back_later(socket);
        let mut walk = Walk {
            db,
            cursor: 0,
            count: KEYS_STEP,
            kind: None,
            pattern: None,
            random: None,
            now_ms: self.now.unix_ms,
        };
        let (mut core, mut left) = (0, self.cores as u16);
        let goal = match request {
            Global::Scan { cursor, count, pattern, kind } => {
                core = (cursor & ((1 << CORE_BITS) - 1)) as u16;
                walk.cursor = cursor >> CORE_BITS;
                walk.count = count;
                walk.pattern = pattern;
                match kind {
                    ScanKind::Any => {}
                    ScanKind::Only(kind) => walk.kind = Some(kind),
                    ScanKind::Nothing => walk.pattern = Some(Vec::new()),
                }
                left = 1;
                Goal::Scan
            }
            Global::Keys { pattern } => {
                walk.pattern = Some(pattern);
                Goal::Keys
            }
            _ => {
                let random = self.next_seed();
                core = self.random_core(db, random);
                walk.random = Some(random);
                Goal::Random
            }
        };
        let walks = Walks { origin, proto, goal, walk, core, left, found: Vec::new() };
        if u32::from(core) >= self.cores {
            self.walks_reply(walks, 0);
            return Flow::Continue;
        }
        let walk = walks.walk.clone();
        let task = self.task_insert(Task::Walks(walks));
        let asker = Asker { core: self.id, task };
        self.send(core, Message::Walk { asker, walk });
        Flow::Continue
    }

    /// A core picked with a probability in proportion to its keys.
    fn random_core(&self, db: u8, random: u64) -> u16 {
        let db = usize::from(db);
        let keys = |core: usize| self.server.stats[core].keys[db].get().max(0) as u64;
        let total: u64 = (0..self.cores as usize).map(keys).sum();
        let mut pick = (random >> 8) % total.max(1);
        for core in 0..self.cores as usize {
            if pick < keys(core) {
                return core as u16;
            }
            pick -= keys(core);
        }
        0
    }

    pub(super) fn walks_step(&mut self, task: Ticket, result: Result<Walked, String>) {
        let Some(Some(owner)) = self.tasks.remove(task) else { return };
        let Task::Walks(mut walks) = *owner else { return };
        let walked = match result {
            Ok(walked) => walked,
            Err(text) => return self.reply_error(walks.origin, &text),
        };
        let some = !walked.keys.is_empty();
        walks.found.extend(walked.keys);
        walks.walk.cursor = walked.cursor;
        if walked.cursor == 0 {
            walks.left -= 1;
            if walks.goal != Goal::Scan {
                walks.core = (walks.core + 1) % self.cores as u16;
            }
        }
        let over = match walks.goal {
            Goal::Scan => true,
            Goal::Keys => walks.left == 0,
            Goal::Random => some || walks.left == 0,
        };
        if over {
            let next = self.scan_cursor(&walks, walked.cursor);
            return self.walks_reply(walks, next);
        }
        let (core, walk) = (walks.core, walks.walk.clone());
        let task = self.task_insert(Task::Walks(walks));
        let asker = Asker { core: self.id, task };
        self.send(core, Message::Walk { asker, walk });
    }

    fn scan_cursor(&self, walks: &Walks, cursor: u64) -> u64 {
        let next = u32::from(walks.core) + 1;
        match cursor {
            0 if next < self.cores => u64::from(next),
            0 => 0,
            cursor => cursor << CORE_BITS | u64::from(walks.core),
        }
    }

    fn walks_reply(&mut self, walks: Walks, cursor: u64) {
        let mut bytes = self.spare();
        let mut reply = Reply::new(&mut bytes, walks.proto);
        match walks.goal {
            Goal::Random => match walks.found.first() {
                Some(name) => reply.bulk(name),
                None => reply.null(),
            },
            Goal::Scan => {
                reply.array(2);
                reply.bulk(cursor.to_string().as_bytes());
                reply.array(walks.found.len());
                walks.found.iter().for_each(|name| reply.bulk(name));
            }
            Goal::Keys => {
                reply.array(walks.found.len());
                walks.found.iter().for_each(|name| reply.bulk(name));
            }
        }
        self.reply(walks.origin, bytes);
    }

    // The visited side.

    pub(super) fn walking_start(&mut self, asker: Asker, walk: Walk) {
        let mut entries = Vec::new();
        let cursor = match walk.random {
            Some(random) => {
                entries.extend(self.random_entry(&walk, random));
                0
            }
            None => self.collect(&walk, &mut entries),
        };
        let walking = Walking { asker, walk, cursor, entries, pending: 0, failed: None };
        let ticket = self.task_insert(Task::Walking(walking));
        self.task_run(ticket);
    }

    fn random_entry(&self, walk: &Walk, random: u64) -> Option<Visit> {
        // An expired key is not an answer; a few more picks find a live one unless nearly all
        // keys of this core have expired, and then the next core is asked.
        let pick = |attempt: u64| {
            let random = random.wrapping_add(attempt.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let found = self.shard.random(walk.db, random)?;
            found.expire_at_ms.is_none_or(|at_ms| at_ms > walk.now_ms).then_some(found.entry)
        };
        let entry = (0..64).find_map(pick)?;
        Some(self.visit(None, entry))
    }

    fn visit(&self, id: Option<SlotId>, entry: Entry) -> Visit {
        Visit { id, entry, epoch: self.shard.epoch_of(&entry), name: Name::Unknown }
    }

    /// Takes the next entries of the index; returns where to go on.
    fn collect(&self, walk: &Walk, entries: &mut Vec<Visit>) -> u64 {
        let mut cursor = walk.cursor;
        // Partitions of the wrong type must not make one call unbounded.
        for _ in 0..walk.count.max(16) {
            cursor = self.shard.scan(walk.db, cursor, &mut |id, entry, expire_at_ms| {
                let live = expire_at_ms.is_none_or(|at_ms| at_ms > walk.now_ms);
                if live && walk.kind.is_none_or(|kind| kind == entry.kind.of_value()) {
                    entries.push(self.visit(Some(id), entry));
                }
            });
            if cursor == 0 || entries.len() >= walk.count {
                break;
            }
        }
        cursor
    }

    /// Finds out names until all are known; runs again after each batch of reads. Returns whether
    /// the visit is over.
    pub(super) fn walking_run(&mut self, ticket: Ticket, walking: &mut Walking) -> bool {
        let (db, now_ms) = (walking.walk.db, walking.walk.now_ms);
        for place in 0..walking.entries.len() {
            if walking.failed.is_some() {
                break;
            }
            let visit = &mut walking.entries[place];
            if !matches!(visit.name, Name::Unknown) {
                continue;
            }
            if self.shard.epoch_of(&visit.entry) != visit.epoch {
                // Overwritten or moved meanwhile: the index knows where it is now.
                let found = visit.id.and_then(|id| self.shard.lookup_at(db, &id, now_ms));
                let Some(found) = found else {
                    visit.name = Name::Gone;
                    continue;
                };
                visit.entry = found.entry;
                visit.epoch = self.shard.epoch_of(&found.entry);
            }
            if let Some(name) = self.shard.resident_key(&visit.entry) {
                visit.name = Name::Known(name.to_vec());
                continue;
            }
            let entry = visit.entry;
            let Some(buf) = self.read_buffer(&entry) else { break };
            visit.name = Name::Reading;
            walking.pending += 1;
            self.read(entry, buf, Purpose::Walk { task: ticket, place: place as u32 });
        }
        if walking.pending > 0 {
            return false;
        }
        let unknown = walking.entries.iter().any(|visit| matches!(visit.name, Name::Unknown));
        if unknown && walking.failed.is_none() {
            self.retry.push_back(ticket);
            return false;
        }
        self.walking_end(walking);
        true
    }

    fn walking_end(&mut self, walking: &mut Walking) {
        let task = walking.asker.task;
        let result = match walking.failed.take() {
            Some(text) => Err(text),
            None => Ok(Walked { cursor: walking.cursor, keys: walking.matching() }),
        };
        self.send(walking.asker.core, Message::Walked { task, result });
    }

    pub(super) fn walk_read(
        &mut self,
        task: Ticket,
        place: u32,
        entry: &Entry,
        span: &ReadSpan,
        buf: DmaBuf,
    ) {
        let Some(mut owner) = self.task_take(task) else { return };
        if let Task::Walking(walking) = &mut *owner {
            walking.pending -= 1;
            let visit = &mut walking.entries[place as usize];
            match self.shard.decode_any(entry, span, &buf) {
                Ok(record) => visit.name = Name::Known(record.key.to_vec()),
                Err(ReadError::Stale | ReadError::OtherKey) => {
                    // The next run looks it up again.
                    visit.name = Name::Unknown;
                }
                Err(ReadError::Corrupt) => {
                    log::error!("{}", self.describe(span));
                    walking.failed = Some(DAMAGED.into());
                }
            }
        }
        self.walking_continue(task, owner);
    }

    pub(super) fn walk_failed(&mut self, task: Ticket, text: String) {
        let Some(mut owner) = self.task_take(task) else { return };
        if let Task::Walking(walking) = &mut *owner {
            walking.pending -= 1;
            walking.failed = Some(text);
        }
        self.walking_continue(task, owner);
    }

    fn walking_continue(&mut self, task: Ticket, owner: Box<Task>) {
        let idle = matches!(&*owner, Task::Walking(walking) if walking.pending == 0);
        self.task_put(task, owner);
        if idle {
            self.task_run(task);
        }
    }
}

impl Walking {
    fn matching(&mut self) -> Vec<Vec<u8>> {
        let pattern = self.walk.pattern.take();
        let names = self.entries.drain(..).filter_map(|visit| match visit.name {
            Name::Known(name) => Some(name),
            _ => None,
        });
        names.filter(|name| pattern.as_ref().is_none_or(|p| glob::matches(p, name))).collect()
    }
}
