//! Moving: one core's part in emptying segments.
//!
//! The footer of a victim tells what it holds. A record moves if the index still points at it
//! when it is appended again: as one core owns the key, nothing can come in between. Live records
//! that lie close together are read in one piece, others each by itself. Tombstones are written
//! again if something older may be left that they hide.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::Now;
use crate::disk::{Disk, Done, Io, Op};
use crate::mem::{BufPool, DmaBuf};
use crate::shard::footer::{ENTRY_BYTES, Entry, TRAILER_AT, TRAILER_BYTES, Trailer, What};
use crate::shard::index::KeyHash;
use crate::shard::jobs::Job;
use crate::shard::log::AppendError;
use crate::shard::reading::Reading;
use crate::shard::record::{Body, Header, PlaceSeed, Put, TOMBSTONE_UNITS, UNIT};
use crate::shard::scan::{Scan, Scanned};
use crate::shard::segment::{Epoch, SEGMENT_SIZE};
use crate::shard::segment_buf::Need;
use crate::shard::table::{Segments, Tier};
use crate::shard::tags::{TagKind, tag};
use crate::shard::victims::{Conductor, DefragOptions};
use crate::shard::view::Kind;
use crate::shard::{Location, Shard, need_of_put};

/// Records of one read lie within this many bytes, and this far apart at most.
const CHUNK_BYTES: usize = 128 << 10;
const GAP_BYTES: usize = 8 << 10;
/// Reads under way.
const CHUNKS_MAX: usize = 3;
/// What looking at an entry and moving a record is taken to cost: time that is not measured but
/// counted, so that a run can be repeated.
const ENTRY_NS: i64 = 60;
const RECORD_NS: i64 = 400;
const BYTES_PER_NS: i64 = 3;

/// Time for one call, in nanoseconds of estimated work.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For work that can wait.
    pub background_ns: u64,
    /// In all, while writers wait for it.
    pub urgent_ns: u64,
}

/// What has been done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragCounts {
    pub records: u64,
    pub bytes: u64,
    pub tombstones: u64,
    pub read_bytes: u64,
    pub damaged: u64,
}

/// A record that was live when its entry was looked at.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    unit: u32,
    units: u32,
    hash: KeyHash,
    db: u8,
    kind: Kind,
}

/// A piece of a segment with records to be moved.
#[derive(Debug)]
struct Chunk {
    number: u64,
    /// Whole sectors of the segment, in bytes.
    start: usize,
    end: usize,
    records: Vec<Candidate>,
    /// The next of `records`.
    at: usize,
    reading: Reading,
}

/// The entries of a victim.
#[derive(Debug)]
enum Entries {
    /// What is read: the end of the segment, or all of it.
    Unread(Chunk),
    /// A footer; the entries not yet looked at are `start..end` of `buf`.
    Footer { buf: DmaBuf, start: usize, end: usize, unit: u32 },
    /// Found by a scan, because the footer is damaged.
    Scanned { records: VecDeque<Scanned> },
}

impl Entries {
    fn peek(&self) -> Option<(u32, Entry)> {
        match self {
            Entries::Unread(_) => None,
            Entries::Footer { buf, start, end, unit } => {
                Entry::decode(&buf[*start..*end]).map(|entry| (*unit, entry))
            }
            Entries::Scanned { records } => records.front().map(|found| (found.unit, found.entry)),
        }
    }

    fn advance(&mut self, entry: &Entry) {
        match self {
            Entries::Unread(_) => {}
            Entries::Footer { end, unit, .. } => {
                *end -= entry.len_bytes();
                *unit += entry.units;
            }
            Entries::Scanned { records } => {
                records.pop_front();
            }
        }
    }
}

/// A victim that this core is at.
#[derive(Debug)]
struct Work {
    job: Job,
    epoch: Epoch,
    entries: Entries,
    /// Being put together.
    building: Option<Chunk>,
    chunks: VecDeque<Chunk>,
    complete: bool,
}

/// What stops the work of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The budget is used up.
    Budget,
    /// A completion is waited for.
    Wait,
    /// The log takes nothing any more.
    Poisoned,
}

/// One core's part in defrag.
pub struct Defrag {
    pool: BufPool,
    options: DefragOptions,
    conductor: Option<Conductor>,
    /// Id of the job that was taken up last.
    seen: u64,
    jobs: VecDeque<Job>,
    work: Option<Work>,
    in_flight: usize,
    chunks: u64,
    counts: DefragCounts,
    notes: Vec<String>,
    stopped: bool,
    /// No record before this time, and what is left of the call's budget.
    record_ns: u64,
    now_ns: u64,
    background_ns: i64,
    urgent_ns: i64,
    spent_ns: u64,
    /// There was something to do when the budget ended.
    hungry: bool,
    /// Units that clients had written when the debt was last counted.
    put_units: u64,
}

impl Shard {
    /// Lets defrag work, with read buffers of `pool`.
    pub fn enable_defrag(&mut self, pool: BufPool) {
        let conductor = (self.options.core == 0).then(|| Conductor::new(&self.segments));
        self.defrag = Some(Box::new(Defrag {
            pool,
            options: DefragOptions::default(),
            conductor,
            seen: 0,
            jobs: VecDeque::new(),
            work: None,
            in_flight: 0,
            chunks: 0,
            counts: DefragCounts::default(),
            notes: Vec::new(),
            stopped: false,
            record_ns: 0,
            now_ns: 0,
            background_ns: 0,
            urgent_ns: 0,
            spent_ns: 0,
            hungry: false,
            put_units: 0,
        }));
    }

    /// `--defrag-*` have changed.
    pub fn set_defrag(&mut self, options: DefragOptions) {
        if let Some(defrag) = &mut self.defrag {
            defrag.options = options;
        }
    }

    /// Goes on with defrag within `budget`; returns what was spent, in nanoseconds. Costs next to
    /// nothing when there is nothing to do.
    pub fn defrag(&mut self, disk: &mut impl Disk, now: Now, budget: Budget) -> u64 {
        let Some(mut defrag) = self.defrag.take() else { return 0 };
        defrag.spent_ns = 0;
        defrag.turn(self, disk, now, budget);
        let spent_ns = defrag.spent_ns;
        self.defrag = Some(defrag);
        spent_ns
    }

    /// Bytes of the records that clients have written.
    pub fn put_bytes(&self) -> u64 {
        self.log.put_units() * UNIT as u64
    }

    /// The table of segments of the set.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    pub fn defrag_counts(&self) -> DefragCounts {
        self.defrag.as_ref().map_or_else(DefragCounts::default, |defrag| defrag.counts)
    }

    /// Damage that defrag has met, one line each.
    pub fn take_defrag_notes(&mut self) -> Vec<String> {
        self.defrag.as_mut().map_or_else(Vec::new, |defrag| std::mem::take(&mut defrag.notes))
    }
}

impl Defrag {
    fn turn(&mut self, shard: &mut Shard, disk: &mut impl Disk, now: Now, budget: Budget) {
        let idle = self.work.is_none() && self.seen == shard.segments.jobs.started();
        if let Some(conductor) = &mut self.conductor
            && !self.stopped
        {
            conductor.step(&shard.segments, &self.options, now);
        } else if idle && !shard.segments.pace.is_on() {
            self.put_units = shard.log.put_units();
            return shard.log.limit_puts(None);
        }
        self.now_ns = now.mono_ns;
        self.background_ns = budget.background_ns as i64;
        self.urgent_ns = budget.urgent_ns as i64;
        self.hungry = false;
        self.take_jobs(&shard.segments, shard.options.core);
        while let Err(Stop::Poisoned) = self.go_on(shard, disk) {
            self.abandon(&shard.segments);
        }
        let units = shard.log.put_units();
        let limit = shard.segments.pace.owe(units - self.put_units);
        self.put_units = units;
        shard.log.limit_puts(limit);
    }

    fn take_jobs(&mut self, segments: &Segments, core: u16) {
        let started = segments.jobs.started();
        if self.seen == started || self.stopped {
            return;
        }
        let jobs = segments.jobs.since(self.seen).into_iter();
        self.jobs.extend(jobs.filter(|job| segments.concerns(job.segment, core)));
        self.seen = started;
    }

    /// Works until something stops it; Ok when there is nothing to do.
    fn go_on(&mut self, shard: &mut Shard, disk: &mut impl Disk) -> Result<(), Stop> {
        loop {
            let mut work = match self.work.take() {
                Some(work) => work,
                None if self.stopped => return Ok(()),
                None => match self.jobs.pop_front() {
                    Some(job) => self.begin(&shard.segments, job),
                    None => return Ok(()),
                },
            };
            let result = self.work_on(shard, disk, &mut work);
            let finished = result.is_ok();
            if finished {
                shard.segments.finish_job(&work.job, work.complete);
            } else {
                self.work = Some(work);
            }
            result?;
        }
    }

    /// The log has failed: what is left of this core's records stays where it is.
    fn abandon(&mut self, segments: &Segments) {
        if let Some(work) = self.work.take() {
            segments.finish_job(&work.job, false);
        }
    }

    fn begin(&mut self, segments: &Segments, job: Job) -> Work {
        let expected = segments.entries(job.segment) as usize * ENTRY_BYTES;
        let wanted = expected + expected / 8 + TRAILER_BYTES;
        let size = segments.sector_size();
        let start = SEGMENT_SIZE.saturating_sub(wanted) / size * size;
        let entries = Entries::Unread(self.chunk(start, SEGMENT_SIZE));
        let epoch = segments.epoch(job.segment);
        Work { job, epoch, entries, building: None, chunks: VecDeque::new(), complete: true }
    }

    fn chunk(&mut self, start: usize, end: usize) -> Chunk {
        self.chunks += 1;
        let (records, reading) = (Vec::new(), Reading::Wanted);
        Chunk { number: self.chunks, start, end, records, at: 0, reading }
    }

    /// Ok when all of the victim's records of this core have been looked after.
    fn work_on(
        &mut self,
        shard: &mut Shard,
        disk: &mut impl Disk,
        work: &mut Work,
    ) -> Result<(), Stop> {
        if shard.log.poison().is_some() {
            return Err(Stop::Poisoned);
        }
        while let Entries::Unread(_) = &work.entries {
            self.open_entries(shard, disk, work)?;
        }
        loop {
            self.move_records(shard, work)?;
            let gathered = self.gather(shard, work);
            for chunk in &mut work.chunks {
                self.read(&shard.segments, disk, work.job.segment, chunk);
            }
            gathered?;
            match work.chunks.front() {
                None if work.building.is_none() && work.entries.peek().is_none() => {
                    return Ok(());
                }
                Some(Chunk { reading: Reading::Wanted | Reading::Submitted, .. }) => {
                    return Err(Stop::Wait);
                }
                _ => {}
            }
        }
    }

    /// Reads the footer, more of it, or the whole segment.
    fn open_entries(
        &mut self,
        shard: &Shard,
        disk: &mut impl Disk,
        work: &mut Work,
    ) -> Result<(), Stop> {
        let Entries::Unread(chunk) = &mut work.entries else { return Ok(()) };
        self.read(&shard.segments, disk, work.job.segment, chunk);
        match std::mem::replace(&mut chunk.reading, Reading::Wanted) {
            Reading::Ready(buf) => {
                let start = chunk.start;
                work.entries = self.decode_entries(shard, work, start, buf);
                Ok(())
            }
            Reading::Failed(errno) => {
                self.note(&shard.segments, work, None, &format!("reading it failed: {errno}"));
                work.entries = Entries::Scanned { records: VecDeque::new() };
                Ok(())
            }
            waiting => {
                chunk.reading = waiting;
                Err(Stop::Wait)
            }
        }
    }

    fn decode_entries(
        &mut self,
        shard: &Shard,
        work: &mut Work,
        start: usize,
        buf: DmaBuf,
    ) -> Entries {
        let segments = &shard.segments;
        let (seed, size) = (segments.seed(work.epoch), segments.sector_size());
        let base = segments.life_start(work.job.segment).1;
        let len = SEGMENT_SIZE - start;
        let trailer = Trailer::decode(&buf[..len], seed);
        let trailer = trailer.filter(|trailer| trailer.epoch == work.epoch && trailer.base == base);
        if let Some(trailer) = trailer {
            let at = TRAILER_AT - trailer.entries_bytes as usize;
            if at < start {
                return Entries::Unread(self.chunk(at / size * size, SEGMENT_SIZE));
            }
            let (start, end) = (at - start, TRAILER_AT - start);
            if trailer.verify(&buf[start..end], seed) {
                return Entries::Footer { buf, start, end, unit: (size / UNIT) as u32 };
            }
        }
        if start > 0 {
            return Entries::Unread(self.chunk(0, SEGMENT_SIZE));
        }
        // What a scan does not reach stays: the segment is not complete.
        self.note(segments, work, None, "its footer is damaged");
        let first_unit = (size / UNIT) as u32;
        let scan = Scan::new(&buf[..len], seed, first_unit, base, shard.hasher());
        Entries::Scanned { records: scan.records.into() }
    }

    /// Puts the next records to be moved together into chunks; tombstones are carried on.
    fn gather(&mut self, shard: &mut Shard, work: &mut Work) -> Result<(), Stop> {
        while work.chunks.len() < CHUNKS_MAX {
            let Some((unit, entry)) = work.entries.peek() else {
                work.chunks.extend(work.building.take());
                return Ok(());
            };
            if !self.spend(&shard.segments, ENTRY_NS) {
                return Err(Stop::Budget);
            }
            if self.is_candidate(shard, work, unit, &entry)? {
                self.add(shard, work, unit, &entry);
            }
            work.entries.advance(&entry);
        }
        Ok(())
    }

    /// Whether the entry's record is live. A tombstone, or what stands for one, is appended again
    /// when that is needed.
    fn is_candidate(
        &mut self,
        shard: &mut Shard,
        work: &Work,
        unit: u32,
        entry: &Entry,
    ) -> Result<bool, Stop> {
        let core = entry.hash.core(u32::from(shard.options.cores));
        if entry.what == What::Pad || core != u32::from(shard.options.core) {
            return Ok(false);
        }
        let found = shard.index_of(entry.db, kind_of(entry)).get(&entry.hash);
        let hides = entry.what == What::Tombstone || entry.expire_at_ms.is_some();
        match found {
            Some(found) => Ok(found.entry.location == location(work.job.segment, unit)),
            None if hides && work.job.carry => {
                self.carry(shard, entry)?;
                Ok(false)
            }
            None => Ok(false),
        }
    }

    fn carry(&mut self, shard: &mut Shard, entry: &Entry) -> Result<(), Stop> {
        let footer_bytes = ENTRY_BYTES as u32;
        let need = Need { units: TOMBSTONE_UNITS, footer_bytes, tier: Tier::Move };
        reserve(shard, need)?;
        shard.log.append_tombstone(&shard.segments, &entry.hash, entry.db, false);
        self.counts.tombstones += 1;
        Ok(())
    }

    fn add(&mut self, shard: &Shard, work: &mut Work, unit: u32, entry: &Entry) {
        let size = shard.segments.sector_size();
        let at = unit as usize * UNIT;
        let end = (at + entry.units as usize * UNIT).next_multiple_of(size).min(SEGMENT_SIZE);
        let fits = |chunk: &Chunk| end - chunk.start <= CHUNK_BYTES && at <= chunk.end + GAP_BYTES;
        let fitting = work.building.take_if(|chunk| fits(chunk));
        work.chunks.extend(work.building.take());
        let mut chunk = fitting.unwrap_or_else(|| self.chunk(at / size * size, end));
        chunk.end = end;
        let (units, hash, db, kind) = (entry.units, entry.hash, entry.db, kind_of(entry));
        chunk.records.push(Candidate { unit, units, hash, db, kind });
        work.building = Some(chunk);
    }

    /// Submits the read of a chunk when there is a buffer and room in the device's queue.
    /// Clients go first: the last quarter of the buffers is theirs.
    fn read(&mut self, segments: &Segments, disk: &mut impl Disk, segment: u32, chunk: &mut Chunk) {
        let scarce = self.pool.used_bytes() / 3 >= self.pool.region().len() / 4;
        if !matches!(chunk.reading, Reading::Wanted) || scarce || disk.is_busy() {
            return;
        }
        let len = chunk.end - chunk.start;
        let Some(buf) = self.pool.get(len) else { return };
        let (device, at) = segments.place(segment);
        let op = Op::Read { offset: at + chunk.start as u64, len: len as u32, buf };
        let tag = tag(TagKind::Defrag, chunk.number);
        if disk.submit(Io { device: device.disk, tag, op }).is_ok() {
            chunk.reading = Reading::Submitted;
            self.in_flight += 1;
            self.counts.read_bytes += len as u64;
        }
    }

    /// A read is over.
    pub fn complete(&mut self, number: u64, done: Done) {
        self.in_flight -= 1;
        let Some(work) = &mut self.work else { return };
        let footer = match &mut work.entries {
            Entries::Unread(chunk) => Some(chunk),
            _ => None,
        };
        let mut chunks = footer.into_iter().chain(&mut work.chunks);
        if let Some(chunk) = chunks.find(|chunk| chunk.number == number) {
            chunk.reading = Reading::from(done);
        }
    }

    /// Appends again what has been read and is still live.
    fn move_records(&mut self, shard: &mut Shard, work: &mut Work) -> Result<(), Stop> {
        while let Some(mut chunk) = work.chunks.pop_front() {
            let result = match &chunk.reading {
                Reading::Ready(buf) => self.move_chunk(shard, work, &chunk, buf),
                Reading::Failed(errno) => {
                    let what = format!("reading {} bytes failed: {errno}", chunk.end - chunk.start);
                    self.note(&shard.segments, work, Some(chunk.start), &what);
                    (chunk.records.len(), Ok(()))
                }
                Reading::Wanted | Reading::Submitted => {
                    work.chunks.push_front(chunk);
                    return Ok(());
                }
            };
            let (at, stop) = result;
            chunk.at = at;
            if stop.is_err() {
                work.chunks.push_front(chunk);
                return stop;
            }
        }
        Ok(())
    }

    /// Returns the record that is next, and why it is not moved now.
    fn move_chunk(
        &mut self,
        shard: &mut Shard,
        work: &mut Work,
        chunk: &Chunk,
        buf: &DmaBuf,
    ) -> (usize, Result<(), Stop>) {
        for (at, record) in chunk.records.iter().enumerate().skip(chunk.at) {
            let bytes = record.units as usize * UNIT;
            let cost_ns = RECORD_NS + bytes as i64 / BYTES_PER_NS;
            self.hungry = self.now_ns < self.record_ns;
            if self.hungry || !self.spend(&shard.segments, cost_ns) {
                return (at, Err(Stop::Budget));
            }
            let start = record.unit as usize * UNIT - chunk.start;
            let bytes = buf.get(start..start + bytes).unwrap_or_default();
            if let Err(stop) = self.move_record(shard, work, record, bytes) {
                return (at, Err(stop));
            }
        }
        (chunk.records.len(), Ok(()))
    }

    fn move_record(
        &mut self,
        shard: &mut Shard,
        work: &mut Work,
        record: &Candidate,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let segment = work.job.segment;
        let found = shard.index_of(record.db, record.kind).get(&record.hash);
        let from = location(segment, record.unit);
        let live = found.is_some_and(|found| found.entry.location == from);
        if !live || shard.segments.epoch(segment) != work.epoch {
            return Ok(());
        }
        let seed = PlaceSeed::new(shard.segments.seed(work.epoch), record.unit);
        let header = Header::decode(bytes, seed);
        let header = header.and_then(|header| header.verify_payload(bytes).map(|()| header));
        let Ok(Header { body: Body::Value(kind), .. }) = header else {
            let at = record.unit as usize * UNIT;
            self.note(&shard.segments, work, Some(at), "a live record is damaged");
            return Ok(());
        };
        let Ok(header) = header else { return Ok(()) };
        let (key, value) = header.payload(bytes);
        let (db, expire_at_ms) = (record.db, header.expire_at_ms);
        let put = Put { db, key, kind, value, expire_at_ms };
        reserve(shard, Need { tier: Tier::Move, ..need_of_put(&put) })?;
        shard.write_moved(&record.hash, &put);
        shard.segments.pace.pay(put.units().into());
        self.counts.records += 1;
        self.counts.bytes += bytes.len() as u64;
        self.record_ns = self.now_ns + self.options.record_sleep_us.saturating_mul(1000);
        Ok(())
    }

    /// Takes some work off the budget; false when there is none left.
    fn spend(&mut self, segments: &Segments, ns: i64) -> bool {
        let left = if segments.pace.is_behind() { self.urgent_ns } else { self.background_ns };
        self.hungry = left <= 0;
        if !self.hungry {
            self.background_ns -= ns;
            self.urgent_ns -= ns;
            self.spent_ns += ns as u64;
        }
        !self.hungry
    }

    /// The segment stays, for something in it cannot be moved. Said once for each place.
    fn note(&mut self, segments: &Segments, work: &mut Work, at: Option<usize>, what: &str) {
        let (device, start) = segments.place(work.job.segment);
        let place = at.map_or_else(String::new, |at| format!(" at {at} in it"));
        self.notes.push(format!(
            "defrag: {}: the segment at offset {start}: {what}{place}; the segment is left alone",
            device.name
        ));
        self.counts.damaged += 1;
        work.complete = false;
    }

    /// No job is begun any more, and the one under way is left.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.work = None;
        self.jobs.clear();
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// When there is something to do that no completion announces.
    pub fn deadline_ns(&self) -> Option<u64> {
        let conductor = self.conductor.as_ref().and_then(Conductor::deadline_ns);
        let mine = if self.hungry {
            Some(self.record_ns)
        } else {
            // A buffer, a place in the queue or in the log is waited for.
            self.work.is_some().then_some(self.now_ns + RETRY_NS)
        };
        [conductor, mine].into_iter().flatten().min()
    }
}

/// A wait that nothing ends for certain is looked after so often.
const RETRY_NS: u64 = 1_000_000;

fn location(segment: u32, unit: u32) -> Location {
    Location::new(Segments::location(segment, unit))
}

/// The kind of a record; of a tombstone any kind that a key may have.
fn kind_of(entry: &Entry) -> Kind {
    match entry.what {
        What::Value(kind) => kind,
        What::Tombstone | What::Pad => Kind::String,
    }
}

fn reserve(shard: &mut Shard, need: Need) -> Result<(), Stop> {
    match shard.log.reserve(&shard.segments, need) {
        Ok(()) => Ok(()),
        Err(AppendError::Poisoned) => Err(Stop::Poisoned),
        Err(AppendError::Busy | AppendError::Full | AppendError::TooLarge) => Err(Stop::Wait),
    }
}
