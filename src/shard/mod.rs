//! The keys of one core: index in DRAM, records in the log. [`Shard`] is the only door to both.

pub mod defrag;
pub mod footer;
mod format;
pub mod index;
mod index_arena;
mod index_hash;
mod index_pages;
mod index_partitions;
mod index_slot;
#[cfg(test)]
mod index_tests;
mod jobs;
mod le;
pub mod log;
mod log_clock;
mod members;
pub mod open;
mod open_error;
mod pace;
pub mod parts;
pub mod plan;
mod reading;
pub mod reclaim;
pub mod record;
pub mod recover;
pub mod scan;
pub mod segment;
mod segment_buf;
pub mod set;
pub mod superblock;
pub mod table;
pub mod tags;
#[cfg(test)]
mod tests;
pub mod victims;
pub mod view;
mod visit;

use std::io;
use std::sync::Arc;

use crate::clock::Now;
use crate::disk::{Disk, Done};
use crate::limits::DATABASES;
use crate::mem::LogBuf;
use crate::shard::defrag::Defrag;
use crate::shard::footer::{ENTRY_BYTES, EXPIRY_BYTES, What};
use crate::shard::index::{
    Entry, EntryLen, Found, HashSeed, Index, KEY_LEN_SLACK_BYTES, KeyHash, KeyHasher, Location,
    SlotId,
};
use crate::shard::log::{Appended, Log, LogOptions};
use crate::shard::parts::{Chain, ChainId, Chains, ROOT_BYTES, part_put};
use crate::shard::reclaim::Reclaim;
use crate::shard::record::{
    Body, EXTENSION_BYTES, HEADER_BYTES, Header, PAYLOAD_CRC_BYTES, PlaceSeed, Put,
    TOMBSTONE_UNITS, UNIT,
};
use crate::shard::segment::{Epoch, SEGMENT_SIZE, Sector};
use crate::shard::segment_buf::Need;
use crate::shard::set::{SetChange, SetWriter};
use crate::shard::superblock::Superblocks;
use crate::shard::table::Tier;
use crate::shard::tags::{TagKind, untag};
use crate::shard::view::{Kind, Meta};

pub use crate::shard::log::AppendError;
pub use crate::shard::record::Lsn;
pub use crate::shard::table::Segments;

/// Tags of requests that [`Shard::complete`] takes have this bit set; others never have it.
pub use crate::shard::tags::OWN_TAG;

/// Keys of a cleared database whose records are counted off in one call.
const DROPPED_PARTITIONS_PER_CALL: usize = 16;
/// Index partitions that one step of expiry looks at.
const EXPIRY_PARTITIONS_PER_STEP: usize = 16;

/// How a shard is set up.
#[derive(Clone)]
pub struct ShardOptions {
    pub core: u16,
    pub cores: u16,
    /// Secret of the set, from its superblock.
    pub seed: HashSeed,
    /// Logical to physical database, from the superblock.
    pub databases: [u8; DATABASES],
    /// `--flush-max-ms`.
    pub flush_max_ms: u64,
    /// `--flush-size-kb`, in bytes.
    pub flush_size_bytes: usize,
}

/// Where to read a record: whole sectors of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadSpan {
    /// Position among the devices of [`Disk`].
    pub device: u16,
    pub offset: u64,
    pub len: u32,
    /// The record starts so many bytes behind `offset`.
    pub skip: u32,
    /// Life of the segment when the read was planned.
    epoch: Epoch,
}

/// A record in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordRef<'b> {
    pub key: &'b [u8],
    pub value: &'b [u8],
    /// Offset of `value` in the buffer that was decoded. At least 16 bytes of the buffer lie
    /// before it and 4 behind it.
    pub value_offset: usize,
    pub kind: Kind,
    pub expire_at_ms: Option<u64>,
}

/// Why a record that was read cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// The segment has been reused since the read was planned: look the key up again.
    Stale,
    /// The record is whole and belongs to another key with the same hash.
    OtherKey,
    /// The device returned bytes that are not the record.
    Corrupt,
}

/// One write of a unit.
#[derive(Clone, Copy, Debug)]
pub struct UnitWrite<'a> {
    pub db: u8,
    pub hash: KeyHash,
    pub key: &'a [u8],
    pub op: UnitOp<'a>,
}

#[derive(Clone, Copy, Debug)]
pub enum UnitOp<'a> {
    Put {
        kind: Kind,
        value: &'a [u8],
        expire_at_ms: Option<u64>,
    },
    /// The value is in parts, which are written.
    Chain {
        chain: Chain,
        expire_at_ms: Option<u64>,
    },
    /// Not the key, but one part of its value.
    Part {
        id: ChainId,
        number: u32,
        value: &'a [u8],
    },
    Delete,
}

/// The index of a cleared database, whose records have yet to be counted as dead.
#[derive(Debug)]
struct Dropped {
    index: Index,
    /// It is one of parts, which may still be read.
    parts: bool,
    /// Physical database, and the horizon that has to be durable first.
    db: u8,
    horizon: Lsn,
    cursor: u64,
}

/// The keys of one core.
pub struct Shard {
    options: ShardOptions,
    hasher: KeyHasher,
    segments: Arc<Segments>,
    sector: Sector,
    log: Log,
    reclaim: Reclaim,
    /// On the one core that writes superblocks.
    set_writer: Option<SetWriter>,
    /// By physical database.
    indexes: [Index; DATABASES],
    chains: Chains,
    dropped: Vec<Dropped>,
    /// Where expiry goes on: physical database and cursor.
    expiry: (u8, u64),
    /// None until it may work, and while it does.
    defrag: Option<Box<Defrag>>,
}

impl Shard {
    /// A shard without keys; [`recover`] fills it. `bufs` are of the size of a segment.
    pub fn new(
        options: ShardOptions,
        segments: Arc<Segments>,
        bufs: Vec<LogBuf>,
    ) -> io::Result<Shard> {
        let log_options = LogOptions {
            flush_max_ns: options.flush_max_ms * 1_000_000,
            flush_size_bytes: options.flush_size_bytes,
        };
        Ok(Shard {
            log: Log::new(options.core, log_options, &segments, bufs),
            reclaim: Reclaim::new()?,
            set_writer: None,
            indexes: std::array::from_fn(|_| Index::new()),
            chains: Chains::default(),
            dropped: Vec::new(),
            expiry: (0, 0),
            defrag: None,
            hasher: KeyHasher::new(&options.seed),
            options,
            sector: Sector::new(segments.sector_size()),
            segments,
        })
    }

    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    fn physical(&self, db: u8) -> u8 {
        self.options.databases[usize::from(db)]
    }

    fn index(&self, db: u8) -> &Index {
        &self.indexes[usize::from(self.physical(db))]
    }

    /// The key as the index knows it; None when it does not exist or has expired at `now_ms`.
    #[inline]
    pub fn lookup(&self, db: u8, hash: &KeyHash, now_ms: u64) -> Option<Found> {
        let found = self.index(db).get(hash)?;
        match found.expire_at_ms {
            Some(at_ms) if at_ms <= now_ms => None,
            _ => Some(found),
        }
    }

    /// What a command may know without the value.
    pub fn meta(found: &Found) -> Meta {
        let kind = found.entry.kind.of_value();
        let in_parts = found.entry.kind == Kind::Chain;
        let value_len = match found.entry.len {
            EntryLen::Value(len) if !in_parts => Some(len),
            _ => None,
        };
        Meta { kind, value_len, expire_at_ms: found.expire_at_ms, in_parts }
    }

    /// The record, when it is still in a log buffer. Offsets count from the record's start.
    pub fn resident(&self, entry: &Entry, key: &[u8]) -> Option<RecordRef<'_>> {
        self.resident_any(entry).filter(|record| record.key == key)
    }

    /// [`Shard::resident`] when the key is not known, for SCAN and RANDOMKEY.
    pub fn resident_any(&self, entry: &Entry) -> Option<RecordRef<'_>> {
        let (segment, unit) = Segments::split(entry.location.units());
        let (bytes, seed) = self.log.resident(segment, unit)?;
        let header = Header::decode(bytes, PlaceSeed::new(seed, unit)).ok()?;
        record_ref(header, bytes, 0)
    }

    /// What to read from which device for the whole record.
    #[inline]
    pub fn read_request(&self, entry: &Entry) -> ReadSpan {
        let (segment, unit) = Segments::split(entry.location.units());
        let sector = self.sector;
        let (device, segment_at) = self.segments.place(segment);
        let at = unit as usize * UNIT;
        let start = sector.floor(at);
        let end = sector.ceil(at + record_bytes_max(entry)).min(SEGMENT_SIZE);
        ReadSpan {
            device: device.disk,
            offset: segment_at + start as u64,
            len: (end - start) as u32,
            skip: (at - start) as u32,
            epoch: self.segments.epoch(segment),
        }
    }

    /// Verifies and opens a record that was read into the start of `buf` as `span` says.
    #[inline]
    pub fn decode<'b>(
        &self,
        entry: &Entry,
        span: &ReadSpan,
        buf: &'b [u8],
        key: &[u8],
    ) -> Result<RecordRef<'b>, ReadError> {
        let record = self.decode_any(entry, span, buf)?;
        if record.key != key {
            return Err(ReadError::OtherKey);
        }
        Ok(record)
    }

    /// The key of a record that was read as `span` says, for SCAN and RANDOMKEY.
    #[inline]
    pub fn decode_any<'b>(
        &self,
        entry: &Entry,
        span: &ReadSpan,
        buf: &'b [u8],
    ) -> Result<RecordRef<'b>, ReadError> {
        let (segment, unit) = Segments::split(entry.location.units());
        let epoch = self.segments.epoch(segment);
        if epoch != span.epoch {
            return Err(ReadError::Stale);
        }
        let (len, skip) = (span.len as usize, span.skip as usize);
        let bytes = buf.get(skip..len).ok_or(ReadError::Corrupt)?;
        let seed = PlaceSeed::new(self.segments.seed(epoch), unit);
        let header = Header::decode_whole(bytes, seed).map_err(|_| ReadError::Corrupt)?;
        record_ref(header, bytes, skip).ok_or(ReadError::Corrupt)
    }

    /// Whether this core is the one that writes and counts for a segment of an earlier run.
    fn is_first(&self, segment: u32) -> bool {
        segment % u32::from(self.options.cores) == u32::from(self.options.core)
    }

    fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Applies a record of an earlier run, if its key is of this core. False when the entry
    /// contradicts itself.
    fn replay(&mut self, segment: u32, unit: u32, lsn: Lsn, entry: &footer::Entry) -> bool {
        let core = entry.hash.core(u32::from(self.options.cores));
        if entry.what == What::Pad || core != u32::from(self.options.core) {
            return entry.units > 0;
        }
        let dead = lsn <= self.segments.horizon(entry.db);
        let index = &mut self.indexes[usize::from(entry.db)];
        let replaced = match entry.what {
            What::Value(_) if dead => {
                self.segments.release(segment, footer_units(entry));
                None
            }
            What::Value(kind) => {
                let Some(value_len) = entry.value_len() else { return false };
                let location = Location::new(Segments::location(segment, unit));
                let key_len = usize::from(entry.key_len);
                let new = Entry::new(location, kind, key_len, value_len, entry.units);
                let index = match kind {
                    Kind::Part => &mut self.chains.indexes[usize::from(entry.db)],
                    _ => index,
                };
                index.put(&entry.hash, new, entry.expire_at_ms)
            }
            What::Tombstone if !dead => index.remove(&entry.hash),
            What::Tombstone | What::Pad => None,
        };
        if let Some(old) = replaced {
            release(&self.segments, &old.entry);
            if old.entry.kind == Kind::Chain {
                // Its parts are told from others at the end of recovery.
                self.chains.remove_root(entry.db, entry.hash.tag);
            }
        }
        if let Some(root) = entry.root.filter(|_| !dead) {
            let id = ChainId { db: entry.db, place: entry.hash.place, id: root.id };
            self.chains.set_root(entry.hash.tag, Chain { id, len: root.len });
        }
        true
    }

    /// Sets a key. The value is in the log buffer and visible when this returns.
    #[inline]
    pub fn put(
        &mut self,
        db: u8,
        hash: &KeyHash,
        key: &[u8],
        kind: Kind,
        value: &[u8],
        expire_at_ms: Option<u64>,
    ) -> Result<Lsn, AppendError> {
        let db = self.physical(db);
        let put = Put { db, key, kind, value, expire_at_ms };
        self.log.reserve(&self.segments, need_of_put(&put))?;
        Ok(self.write_put(hash, &put, false))
    }

    #[inline]
    fn write_put(&mut self, hash: &KeyHash, put: &Put<'_>, continues: bool) -> Lsn {
        let (lsn, entry) = self.append_entry(hash, put, continues, false);
        let index = &mut self.indexes[usize::from(put.db)];
        if let Some(old) = index.put(hash, entry, put.expire_at_ms) {
            self.supersede(put.db, hash.tag, &old.entry);
        }
        lsn
    }

    /// Appends a record again whose place is given up; the index points at it.
    fn write_moved(&mut self, hash: &KeyHash, put: &Put<'_>) -> Lsn {
        let (lsn, entry) = self.append_entry(hash, put, false, true);
        let index = self.index_of(put.db, put.kind);
        if let Some(old) = index.put(hash, entry, put.expire_at_ms) {
            release(&self.segments, &old.entry);
        }
        lsn
    }

    /// The index that a record of this kind is in.
    fn index_of(&mut self, db: u8, kind: Kind) -> &mut Index {
        match kind {
            Kind::Part => &mut self.chains.indexes[usize::from(db)],
            _ => &mut self.indexes[usize::from(db)],
        }
    }

    fn append_entry(
        &mut self,
        hash: &KeyHash,
        put: &Put<'_>,
        continues: bool,
        moved: bool,
    ) -> (Lsn, Entry) {
        let appended = self.log.append_put(&self.segments, hash, put, continues);
        let location = location(&appended);
        let entry = Entry::new(location, put.kind, put.key.len(), put.value.len(), put.units());
        self.log.count_value(record_units_estimate(&entry), moved);
        (appended.lsn, entry)
    }

    /// The root of a chain; its parts are there. If they are those that the key had before, with
    /// some more or other ones, they stay.
    fn write_chain(
        &mut self,
        write: &UnitWrite<'_>,
        chain: &Chain,
        expire_at_ms: Option<u64>,
        continues: bool,
    ) {
        let (db, tag) = (chain.id.db, write.hash.tag);
        let known = self.chains.remove_root(db, tag);
        let value = chain.root().to_bytes();
        let put = Put { db, key: write.key, kind: Kind::Chain, value: &value, expire_at_ms };
        self.write_put(&write.hash, &put, continues);
        if let Some(old) = known.filter(|old| old.id != chain.id) {
            self.abandon(old.id, old.parts());
        }
        self.chains.set_root(tag, *chain);
    }

    /// Counts a record as dead whose key has another now, or none.
    fn supersede(&mut self, db: u8, tag: u64, old: &Entry) {
        release(&self.segments, old);
        if old.kind == Kind::Chain {
            self.retire_chain(db, tag);
        }
    }

    /// Removes a key. None, and nothing written, when the index does not have it.
    pub fn delete(&mut self, db: u8, hash: &KeyHash) -> Result<Option<Lsn>, AppendError> {
        let db = self.physical(db);
        if self.indexes[usize::from(db)].get(hash).is_none() {
            return Ok(None);
        }
        self.log.reserve(&self.segments, NEED_OF_DELETE)?;
        Ok(Some(self.write_delete(hash, db, false)))
    }

    fn write_delete(&mut self, hash: &KeyHash, db: u8, continues: bool) -> Lsn {
        let appended = self.log.append_tombstone(&self.segments, hash, db, continues);
        if let Some(old) = self.indexes[usize::from(db)].remove(hash) {
            self.supersede(db, hash.tag, &old.entry);
        }
        appended.lsn
    }

    /// Appends the writes of one command: after a crash all of them are there or none is.
    /// Deletes of absent keys are left out. Returns the LSN of the last one.
    pub fn append_unit(&mut self, writes: &[UnitWrite<'_>]) -> Result<Lsn, AppendError> {
        let mut need = Need { tier: Tier::Delete, ..Need::default() };
        let mut last = None;
        for (at, write) in writes.iter().enumerate() {
            if let Some(one) = self.need_of(write) {
                need = need.and(one);
                last = Some(at);
            }
        }
        let Some(last) = last else { return Ok(self.log.appended()) };
        self.log.reserve(&self.segments, need)?;
        for (at, write) in writes.iter().enumerate().take(last + 1) {
            if self.need_of(write).is_some() {
                self.write_one(write, at < last);
            }
        }
        Ok(self.log.appended())
    }

    fn need_of(&self, write: &UnitWrite<'_>) -> Option<Need> {
        match write.op {
            UnitOp::Put { kind, value, expire_at_ms } => {
                let db = self.physical(write.db);
                Some(need_of_put(&Put { db, key: write.key, kind, value, expire_at_ms }))
            }
            UnitOp::Chain { chain, expire_at_ms } => {
                let value = &chain.root().to_bytes();
                let (db, kind) = (chain.id.db, Kind::Chain);
                Some(need_of_put(&Put { db, key: write.key, kind, value, expire_at_ms }))
            }
            UnitOp::Part { id, number, value } => {
                Some(need_of_put(&part_put(&id, &id.part_name(number), value)))
            }
            UnitOp::Delete => self.index(write.db).get(&write.hash).map(|_| NEED_OF_DELETE),
        }
    }

    fn write_one(&mut self, write: &UnitWrite<'_>, continues: bool) {
        let db = self.physical(write.db);
        match write.op {
            UnitOp::Put { kind, value, expire_at_ms } => {
                let put = Put { db, key: write.key, kind, value, expire_at_ms };
                self.write_put(&write.hash, &put, continues);
            }
            UnitOp::Chain { chain, expire_at_ms } => {
                self.write_chain(write, &chain, expire_at_ms, continues);
            }
            UnitOp::Part { id, number, value } => {
                self.write_part(&part_put(&id, &id.part_name(number), value), continues);
            }
            UnitOp::Delete => {
                self.write_delete(&write.hash, db, continues);
            }
        }
    }

    /// The last record appended.
    pub fn appended_lsn(&self) -> Lsn {
        self.log.appended()
    }

    /// Complete on the device, with all before it: `--durability written`.
    pub fn written_lsn(&self) -> Lsn {
        self.log.written()
    }

    /// Durable, with all before it: `--durability synced`.
    pub fn synced_lsn(&self) -> Lsn {
        self.log.synced()
    }

    /// Asks that everything appended so far is written at the next [`Shard::maintain`].
    pub fn request_flush(&mut self) {
        self.log.request_flush();
    }

    /// Asks that everything appended so far is made durable.
    pub fn request_sync(&mut self) {
        self.log.request_sync();
    }

    /// Why writing has ended for good, if it has.
    pub fn poison(&self) -> Option<&str> {
        self.log.poison()
    }

    /// Submits what is due: writes, footers, flushes, freed segments. Bounded work per call.
    pub fn maintain(&mut self, disk: &mut impl Disk, now: Now) {
        self.log.maintain(disk, &self.segments, now);
        if let Some(writer) = &mut self.set_writer {
            writer.maintain(&mut self.log, disk, &self.segments);
        }
        self.drop_cleared();
        self.free_retired();
        self.reclaim.maintain(&mut self.log, disk, &self.segments, now);
    }

    /// When [`Shard::maintain`] has to be called again at the latest, on the monotonic clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        let freeing = self.chains.is_freeing();
        if freeing || self.dropped.iter().any(|dropped| self.is_droppable(dropped)) {
            return Some(0);
        }
        let defrag = self.defrag.as_ref().and_then(|defrag| defrag.deadline_ns());
        [self.log.deadline_ns(), defrag].into_iter().flatten().min()
    }

    fn is_droppable(&self, dropped: &Dropped) -> bool {
        let durable = self.segments.horizon(dropped.db) >= dropped.horizon;
        durable && !(dropped.parts && self.chains.is_read(dropped.db))
    }

    /// Takes the end of a request whose tag has [`OWN_TAG`].
    pub fn complete(&mut self, done: Done) {
        let Some((kind, number)) = untag(done.tag) else { return };
        if kind == TagKind::Defrag {
            if let Some(defrag) = &mut self.defrag {
                defrag.complete(number, done);
            }
            return;
        }
        self.log.complete(&self.segments, kind, number, &done);
        if done.result.is_err() {
            return;
        }
        match (kind, &mut self.set_writer) {
            (TagKind::Free, _) => {
                self.reclaim.complete(&mut self.log, number as u32, done.device);
            }
            (TagKind::Superblock, Some(writer)) => writer.complete(&mut self.log, done.device),
            _ => {}
        }
    }

    /// Makes this core the one that writes superblocks.
    pub fn adopt(&mut self, superblocks: Superblocks) -> io::Result<()> {
        self.set_writer = Some(SetWriter::new(superblocks)?);
        Ok(())
    }

    /// Writes a change into the superblocks; only on the core that has adopted them. The change
    /// lasts when [`Shard::set_durable`] reaches the result.
    pub fn change_set(&mut self, change: SetChange) -> u64 {
        self.set_writer.as_mut().expect("the core that writes superblocks").change(change)
    }

    pub fn set_durable(&self) -> u64 {
        self.set_writer.as_ref().map_or(0, SetWriter::durable)
    }

    /// Nothing is appended that is not durable, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        let set_idle = self.set_writer.as_ref().is_none_or(SetWriter::is_idle);
        let defrag_idle = self.defrag.as_ref().is_none_or(|defrag| defrag.is_idle());
        let idle = self.log.is_idle() && !self.chains.is_freeing() && defrag_idle;
        idle && self.reclaim.in_flight() == 0 && set_idle
    }

    /// Ends the open segment, so that the next start reads footers only. The shard is idle when
    /// [`Shard::maintain`] and completions have taken it there.
    pub fn seal_for_shutdown(&mut self) {
        if let Some(defrag) = &mut self.defrag {
            defrag.stop();
        }
        self.log.seal();
        self.log.request_sync();
    }

    /// Keys of a database, expired ones that are not yet removed included.
    pub fn len(&self, db: u8) -> usize {
        self.index(db).len()
    }

    pub fn is_empty(&self, db: u8) -> bool {
        self.len(db) == 0
    }

    /// Keys of a database that have an expiry.
    pub fn expires(&self, db: u8) -> usize {
        self.index(db).expires()
    }

    /// Visits some keys of a database; see [`Index::scan`].
    pub fn scan(
        &self,
        db: u8,
        cursor: u64,
        visit: &mut dyn FnMut(SlotId, Entry, Option<u64>),
    ) -> u64 {
        self.index(db).scan(cursor, visit)
    }

    /// A key drawn by the bits of `random`.
    pub fn random(&self, db: u8, random: u64) -> Option<Found> {
        let (entry, expire_at_ms) = self.index(db).random(random)?;
        Some(Found { entry, expire_at_ms })
    }

    /// Removes some of the keys that have expired at `now_ms`; at most `limit` partitions' worth
    /// of work. Returns how many. Nothing is written: the record's expiry is its tombstone.
    pub fn expire_step(&mut self, now_ms: u64) -> usize {
        let mut expired = Vec::new();
        for _ in 0..EXPIRY_PARTITIONS_PER_STEP {
            let (db, cursor) = self.expiry;
            let index = &mut self.indexes[usize::from(db)];
            let next = if index.expires() == 0 {
                0
            } else {
                index.expired(cursor, now_ms, &mut |id, entry, _| expired.push((db, id, entry)))
            };
            let db_next = if next == 0 { (db + 1) % DATABASES as u8 } else { db };
            self.expiry = (db_next, next);
        }
        for (db, id, entry) in &expired {
            if self.indexes[usize::from(*db)].remove_at(id).is_some() {
                let (segment, _) = Segments::split(entry.location.units());
                self.segments.expire(segment, record_units_estimate(entry));
                if entry.kind == Kind::Chain {
                    self.retire_chain(*db, id.tag());
                }
            }
        }
        expired.len()
    }

    /// Forgets all keys of a database. `horizon` is from [`Segments::new_horizon`], the same for
    /// all cores; the flush lasts when the superblocks with it are durable.
    pub fn clear_db(&mut self, db: u8, horizon: Lsn) {
        let db = self.physical(db);
        self.log.raise(horizon);
        let keys = std::mem::take(&mut self.indexes[usize::from(db)]);
        for (index, parts) in [(keys, false), (self.chains.clear(db), true)] {
            if !index.is_empty() {
                self.dropped.push(Dropped { index, parts, db, horizon, cursor: 0 });
            }
        }
    }

    /// Counts the records of cleared databases as dead, some at a time.
    fn drop_cleared(&mut self) {
        let due = self.dropped.iter().position(|dropped| self.is_droppable(dropped));
        let Some(at) = due else { return };
        let dropped = &mut self.dropped[at];
        for _ in 0..DROPPED_PARTITIONS_PER_CALL {
            let segments = &self.segments;
            let visit = &mut |_, entry: Entry, _| release(segments, &entry);
            dropped.cursor = dropped.index.scan(dropped.cursor, visit);
            if dropped.cursor == 0 {
                self.dropped.swap_remove(at);
                return;
            }
        }
    }

    /// Exchanges two logical databases; the superblocks have it durably before any core does.
    pub fn swap(&mut self, a: u8, b: u8) {
        self.options.databases.swap(usize::from(a), usize::from(b));
    }

    /// DRAM of the index, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let dropped = self.dropped.iter().map(|dropped| &dropped.index);
        let indexes = self.indexes.iter().chain(dropped).map(Index::memory_bytes);
        indexes.sum::<usize>() + self.chains.memory_bytes()
    }
}

/// The record at the start of `bytes`, which lie `skip` bytes behind the start of their buffer;
/// none when it holds no value.
#[inline(always)]
fn record_ref(header: Header, bytes: &[u8], skip: usize) -> Option<RecordRef<'_>> {
    let Body::Value(kind) = header.body else { return None };
    let (key, value) = header.payload(bytes);
    let (value_offset, expire_at_ms) = (skip + header.value_offset(), header.expire_at_ms);
    Some(RecordRef { key, value, value_offset, kind, expire_at_ms })
}

/// Bytes within which the record of an entry ends.
fn record_bytes_max(entry: &Entry) -> usize {
    match entry.len {
        EntryLen::Units(units) => units as usize * UNIT,
        EntryLen::Value(len) => {
            let extensions = 1 + usize::from(len > u32::from(u16::MAX));
            let frame = HEADER_BYTES + extensions * EXTENSION_BYTES + PAYLOAD_CRC_BYTES;
            frame + KEY_LEN_SLACK_BYTES + len as usize
        }
    }
}

/// Units of a record as far as the index knows: the key may be shorter or longer than assumed.
fn record_units_estimate(entry: &Entry) -> u32 {
    const KEY_LEN_ASSUMED: usize = 16;
    match entry.len {
        EntryLen::Units(units) => units,
        EntryLen::Value(len) => {
            let frame = HEADER_BYTES + KEY_LEN_ASSUMED + PAYLOAD_CRC_BYTES;
            (frame + len as usize).div_ceil(UNIT) as u32
        }
    }
}

/// [`record_units_estimate`] of the record of a footer's entry; 0 for what is no value.
fn footer_units(entry: &footer::Entry) -> u32 {
    let What::Value(kind) = entry.what else { return 0 };
    let Some(value_len) = entry.value_len() else { return 0 };
    let (location, key_len) = (Location::new(1), usize::from(entry.key_len));
    record_units_estimate(&Entry::new(location, kind, key_len, value_len, entry.units))
}

fn release(segments: &Segments, entry: &Entry) {
    let (segment, _) = Segments::split(entry.location.units());
    segments.release(segment, record_units_estimate(entry));
}

fn location(appended: &Appended) -> Location {
    Location::new(Segments::location(appended.segment, appended.unit))
}

const NEED_OF_DELETE: Need =
    Need { units: TOMBSTONE_UNITS, footer_bytes: ENTRY_BYTES as u32, tier: Tier::Delete };

fn need_of_put(put: &Put<'_>) -> Need {
    let expiry = EXPIRY_BYTES * usize::from(put.expire_at_ms.is_some());
    let root = ROOT_BYTES * usize::from(put.kind == Kind::Chain);
    let footer_bytes = (ENTRY_BYTES + expiry + root) as u32;
    Need { units: put.units(), footer_bytes, tier: Tier::Put }
}
