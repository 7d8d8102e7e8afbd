//! The log of one core: records are encoded into the buffer of the open segment, written in
//! chunks, and the segment is sealed with a footer when it is full.
//!
//! What reaches the device is a prefix: segments are filled one after the other, `written` and
//! `synced` only move over LSNs whose predecessors are there too, footers are written in order.

use std::collections::VecDeque;
use std::ops::Range;

use crate::clock::Now;
use crate::disk::{Disk, Done, Errno, Io, Op};
use crate::limits::SECTOR_SIZE_MAX;
use crate::mem::LogBuf;
use crate::shard::footer::{self, Trailer};
use crate::shard::index::KeyHash;
use crate::shard::log_clock::{Ages, Flusher};
use crate::shard::record::{self, Lsn, PlaceSeed, Put, TOMBSTONE_UNITS, UNIT};
use crate::shard::segment::{Header, SEGMENT_SIZE, Sector, State};
use crate::shard::segment_buf::{NO_SEGMENT, Need, Phase, SegmentBuf};
use crate::shard::table::{Segments, Tier};
use crate::shard::tags::{TagKind, tag};

/// Largest single device write of records, in bytes.
const WRITE_SIZE_MAX: usize = 1 << 20;
/// Device writes in flight that were not full chunks: more would only spread the same records
/// over more padded sectors.
const EAGER_WRITES_MAX: usize = 2;
/// A log that is not asked for more is made durable this long after it was written.
const SYNC_AGE_NS: u64 = 1_000_000_000;

/// Longest record, in bytes: it has to fit a segment with header, footer and padding.
pub const RECORD_SIZE_MAX: usize = SEGMENT_SIZE - 4 * SECTOR_SIZE_MAX;

/// Why nothing was appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendError {
    /// No space on the devices, and defrag cannot make any.
    Full,
    /// No write buffer is free now, or defrag has to make room first; try again later.
    Busy,
    /// A write or flush has failed; [`super::Shard::poison`] tells which.
    Poisoned,
    /// The record, or all records of the unit together, do not fit a segment.
    TooLarge,
}

impl std::fmt::Display for AppendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AppendError::Full => "no space left on the data devices",
            AppendError::Busy => "no write buffer is free",
            AppendError::Poisoned => "a write to the data devices has failed",
            AppendError::TooLarge => "the value does not fit a segment",
        })
    }
}

/// How the log behaves; the values of `--flush-*`.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Age of the oldest unwritten record at which it is written whatever its size.
    pub flush_max_ns: u64,
    /// Device write under load, in bytes.
    pub flush_size_bytes: usize,
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub lsn: Lsn,
    pub segment: u32,
    /// Offset in the segment in units.
    pub unit: u32,
}

/// A device write on its way.
#[derive(Debug)]
struct WriteMark {
    /// All records up to here are on the device when this write and those before it are done.
    last: Lsn,
    /// It was not a full chunk.
    eager: bool,
    done: bool,
}

/// The log of one core.
#[derive(Debug)]
pub struct Log {
    core: u16,
    options: LogOptions,
    sector: Sector,
    bufs: Vec<SegmentBuf>,
    open: Option<usize>,
    /// Buffers whose segments are not sealed, oldest first; the open one is the last.
    order: VecDeque<usize>,
    /// The next record takes this.
    next: Lsn,
    /// The last record took this.
    appended: Lsn,
    /// Last LSN of the segment before the open one.
    previous: Lsn,
    /// Handed to the device; complete there; durable there: each with all before it.
    handed: Lsn,
    written: Lsn,
    synced: Lsn,
    /// Everything up to here is to be written, or made durable, without waiting for its age.
    write_wanted: Lsn,
    sync_wanted: Lsn,
    /// The lowest LSN that somebody waits for to be durable, when it is not yet promised.
    sync_first: Lsn,
    ages: Ages,
    unsynced_since_ns: Option<u64>,
    writes: VecDeque<WriteMark>,
    /// Number of the first of `writes`.
    writes_first: u64,
    eager_in_flight: usize,
    flusher: Flusher,
    /// Requests that the device's queue had no room for.
    backlog: VecDeque<Io>,
    in_flight: u32,
    poison: Option<String>,
    /// Units of all values appended, of them those that were moved, and how far the sum of the
    /// others may go before writers have to wait for defrag.
    value_units: u64,
    moved_units: u64,
    put_limit: u64,
}

impl Log {
    pub fn new(core: u16, options: LogOptions, segments: &Segments, bufs: Vec<LogBuf>) -> Log {
        let start = segments.info().start;
        let flusher =
            Flusher { volatile_cache: segments.info().volatile_cache, ..Flusher::default() };
        Log {
            core,
            options,
            sector: Sector::new(segments.sector_size()),
            bufs: bufs.into_iter().map(SegmentBuf::new).collect(),
            open: None,
            order: VecDeque::new(),
            next: Lsn(start.0 + 1),
            appended: start,
            previous: Lsn(0),
            handed: start,
            written: start,
            synced: start,
            write_wanted: start,
            sync_wanted: start,
            sync_first: start,
            ages: Ages::new(options.flush_max_ns),
            unsynced_since_ns: None,
            writes: VecDeque::new(),
            writes_first: 0,
            eager_in_flight: 0,
            flusher,
            backlog: VecDeque::new(),
            in_flight: 0,
            poison: None,
            value_units: 0,
            moved_units: 0,
            put_limit: u64::MAX,
        }
    }

    /// The values of `--flush-*` have changed.
    pub fn set_options(&mut self, options: LogOptions) {
        self.ages.set_max(options.flush_max_ns);
        self.options = options;
    }

    pub fn appended(&self) -> Lsn {
        self.appended
    }

    /// Complete on the device, with everything before it.
    pub fn written(&self) -> Lsn {
        self.written
    }

    /// Durable on the device, with everything before it.
    pub fn synced(&self) -> Lsn {
        if self.flusher.volatile_cache { self.synced } else { self.written }
    }

    /// The failure that ended all writing.
    pub fn poison(&self) -> Option<&str> {
        self.poison.as_deref()
    }

    /// Finds room for all of `need` in one segment.
    pub fn reserve(&mut self, segments: &Segments, need: Need) -> Result<(), AppendError> {
        if self.poison.is_some() {
            return Err(AppendError::Poisoned);
        }
        if need.tier == Tier::Put && self.put_units() >= self.put_limit {
            return Err(AppendError::Busy);
        }
        if let Some(slot) = self.open {
            let open = &self.bufs[slot];
            if open.has_room(need, self.sector) {
                let lent = need.tier == Tier::Delete && open.is_half_empty();
                let allowed = need.tier >= open.tier || lent || segments.can_allocate(need.tier);
                return if allowed { Ok(()) } else { Err(no_segment(segments, need.tier)) };
            }
        }
        self.roll(segments, need)
    }

    /// Whether `need` leaves a write buffer to others, or takes none. Where there are but two it
    /// takes the second once the first is the only one that is not sealed.
    pub fn has_spare(&self, need: Need) -> bool {
        let fits = self.open.is_some_and(|slot| self.bufs[slot].has_room(need, self.sector));
        fits || self.order.len() + 2 <= self.bufs.len().max(3) || self.order.is_empty()
    }

    /// Counts a value that has been appended.
    pub fn count_value(&mut self, units: u32, moved: bool) {
        if let Some(slot) = self.open {
            self.bufs[slot].units += units;
        }
        self.value_units += u64::from(units);
        self.moved_units += if moved { u64::from(units) } else { 0 };
    }

    /// Units of the values that clients have written.
    pub fn put_units(&self) -> u64 {
        self.value_units - self.moved_units
    }

    /// Units of the values that have been moved.
    pub fn moved_units(&self) -> u64 {
        self.moved_units
    }

    /// How many more units clients may write before they have to wait; None: as many as they like.
    pub fn limit_puts(&mut self, units: Option<u64>) {
        self.put_limit = units.map_or(u64::MAX, |units| self.put_units().saturating_add(units));
    }

    /// Seals the open segment and opens another.
    #[cold]
    fn roll(&mut self, segments: &Segments, need: Need) -> Result<(), AppendError> {
        let fresh = SECTOR_SIZE_MAX + need.units as usize * UNIT;
        let spare = need.footer_bytes as usize + footer::ENTRY_BYTES;
        if fresh.next_multiple_of(SECTOR_SIZE_MAX) + spare > SEGMENT_SIZE - 2 * SECTOR_SIZE_MAX {
            return Err(AppendError::TooLarge);
        }
        // The reserve for moves has a segment for each core: one that has none open may take its
        // own for deletes, for it can move records into that as well.
        let share =
            need.tier == Tier::Delete && self.open.is_none() && segments.free_segments() > 1;
        let need = if share { Need { tier: Tier::Move, ..need } } else { need };
        if !segments.can_allocate(need.tier) {
            return Err(no_segment(segments, need.tier));
        }
        let slot = self.idle_buffer().ok_or(AppendError::Busy)?;
        self.seal();
        let tiers = [Tier::Put, Tier::Delete, Tier::Move];
        let tier = tiers.into_iter().find(|&tier| segments.can_allocate(tier));
        let allocated = segments.allocate(self.core, self.next, need.tier);
        let allocated = allocated.ok_or_else(|| no_segment(segments, need.tier))?;
        for buf in &mut self.bufs {
            if buf.segment == allocated.segment {
                buf.segment = NO_SEGMENT;
            }
        }
        let open = &mut self.bufs[slot];
        open.phase = Phase::Open;
        open.segment = allocated.segment;
        open.epoch = allocated.epoch;
        open.seed = segments.seed(allocated.epoch);
        open.base = self.next;
        open.previous = self.previous;
        open.tier = tier.unwrap_or(need.tier);
        open.end = self.sector.size();
        open.footer_at = footer::TRAILER_AT;
        open.submitted = 0;
        open.values = 0;
        open.units = 0;
        open.tombstones = 0;
        open.entries = 0;
        open.whole = self.appended;
        self.open = Some(slot);
        self.order.push_back(slot);
        Ok(())
    }

    /// A buffer to be filled next: the one whose segment was sealed first.
    fn idle_buffer(&mut self) -> Option<usize> {
        let idle = (0..self.bufs.len()).filter(|&slot| self.bufs[slot].phase == Phase::Idle);
        let mut idle: Vec<usize> = idle.collect();
        idle.sort_by_key(|&slot| (self.bufs[slot].segment != NO_SEGMENT, self.bufs[slot].base));
        idle.into_iter().find(|&slot| self.bufs[slot].buf.reset())
    }

    /// Gives a buffer away before anything is appended.
    pub fn lend_buffer(&mut self) -> Option<LogBuf> {
        self.bufs.pop().map(|held| held.buf)
    }

    pub fn return_buffer(&mut self, buf: LogBuf) {
        self.bufs.push(SegmentBuf::new(buf));
    }

    /// Ends the open segment, if any; nothing more goes into it.
    pub fn seal(&mut self) {
        let Some(slot) = self.open else { return };
        if self.bufs[slot].entries == 0 {
            return;
        }
        self.pad(slot);
        self.bufs[slot].phase = Phase::Draining;
        self.previous = self.appended;
        self.open = None;
    }

    /// Every record from now on is above `lsn`.
    pub fn raise(&mut self, lsn: Lsn) {
        if lsn < self.next {
            return;
        }
        self.seal();
        self.next = Lsn(lsn.0 + 1);
        if let Some(slot) = self.open {
            self.bufs[slot].base = self.next;
        }
    }

    /// Appends a value. [`Log::reserve`] has found room.
    #[inline]
    pub fn append_put(
        &mut self,
        segments: &Segments,
        hash: &KeyHash,
        put: &Put<'_>,
        continues: bool,
    ) -> Appended {
        let len = put.len_bytes();
        let entry =
            footer::Entry::value(*hash, put.db, put.kind, len, put.key.len(), put.expire_at_ms)
                .with_root(put.value);
        let (slot, at) = self.begin(entry.units);
        let (open, lsn) = (&mut self.bufs[slot], self.next);
        let seed = PlaceSeed::new(open.seed, (at / UNIT) as u32);
        let out = open.buf.get_mut(at..at + entry.units as usize * UNIT);
        put.encode(out, seed, lsn, continues);
        open.values += 1;
        self.finish(segments, slot, at, &entry)
    }

    /// Appends a tombstone. [`Log::reserve`] has found room.
    pub fn append_tombstone(
        &mut self,
        segments: &Segments,
        hash: &KeyHash,
        db: u8,
        continues: bool,
    ) -> Appended {
        let entry = footer::Entry::tombstone(*hash, db, TOMBSTONE_UNITS);
        let (slot, at) = self.begin(entry.units);
        let (open, lsn) = (&mut self.bufs[slot], self.next);
        let seed = PlaceSeed::new(open.seed, (at / UNIT) as u32);
        let out = open.buf.get_mut(at..at + record::TOMBSTONE_BYTES);
        record::encode_tombstone(out, seed, lsn, db, hash, continues);
        open.tombstones += 1;
        self.finish(segments, slot, at, &entry)
    }

    fn begin(&mut self, units: u32) -> (usize, usize) {
        let slot = self.open.expect("room was reserved");
        let open = &self.bufs[slot];
        debug_assert!(open.end + units as usize * UNIT < open.footer_at);
        (slot, open.end)
    }

    fn finish(
        &mut self,
        segments: &Segments,
        slot: usize,
        at: usize,
        entry: &footer::Entry,
    ) -> Appended {
        let lsn = self.account(slot, entry);
        segments.set_appended(self.core, lsn);
        let segment = self.bufs[slot].segment;
        Appended { lsn, segment, unit: (at / UNIT) as u32 }
    }

    /// Adds a record that has been encoded to the books of its segment.
    #[inline]
    fn account(&mut self, slot: usize, entry: &footer::Entry) -> Lsn {
        let open = &mut self.bufs[slot];
        let lsn = self.next;
        let footer_at = open.footer_at - entry.len_bytes();
        entry.encode(open.buf.get_mut(footer_at..open.footer_at));
        open.footer_at = footer_at;
        let start = open.end;
        open.end += entry.units as usize * UNIT;
        let whole_end = self.sector.floor(open.end);
        if whole_end > start {
            let ends_there = whole_end == open.end;
            open.whole = if ends_there { lsn } else { Lsn(lsn.0 - 1) };
        }
        open.entries += 1;
        self.appended = lsn;
        self.next = Lsn(lsn.0 + 1);
        lsn
    }

    /// Fills the last sector, so that it can be written; nothing happens at its end.
    fn pad(&mut self, slot: usize) {
        let open = &self.bufs[slot];
        let at = open.end;
        let end = self.sector.ceil(at);
        if at == end {
            return;
        }
        let (lsn, durable) = (self.next, self.synced());
        let open = &mut self.bufs[slot];
        let seed = PlaceSeed::new(open.seed, (at / UNIT) as u32);
        record::encode_pad(open.buf.get_mut(at..end), seed, lsn, durable);
        self.account(slot, &footer::Entry::pad(((end - at) / UNIT) as u32));
    }

    /// The bytes of a segment that is in memory, from `unit` on, and its checksum seed.
    #[inline]
    pub fn resident(&self, segment: u32, unit: u32) -> Option<(&[u8], u32)> {
        let held = self.bufs.iter().find(|held| held.segment == segment)?;
        let at = unit as usize * UNIT;
        (at < held.end).then(|| (held.buf.get(at..held.end), held.seed))
    }

    /// Asks that everything appended so far is written, or made durable, now.
    pub fn request_flush(&mut self) {
        self.write_wanted = self.appended;
    }

    pub fn request_sync(&mut self) {
        self.write_wanted = self.appended;
        self.want_sync(self.appended);
    }

    fn want_sync(&mut self, lsn: Lsn) {
        let promised = self.promised();
        if lsn > promised {
            let waiting = self.sync_first > promised;
            self.sync_first = if waiting { self.sync_first.min(lsn) } else { lsn };
            self.sync_wanted = self.sync_wanted.max(lsn);
        }
    }

    /// Durable when the round in flight, if any, is over.
    fn promised(&self) -> Lsn {
        if self.flusher.in_flight > 0 { self.flusher.covers } else { self.synced() }
    }

    /// Nothing is appended that is not durable, and nothing is under way.
    pub fn is_idle(&self) -> bool {
        let open = usize::from(self.open.is_some());
        self.in_flight == 0
            && self.backlog.is_empty()
            && self.order.len() == open
            && self.synced() == self.appended
    }

    /// When [`Log::maintain`] has to be called again at the latest, on the monotonic clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        let write = self.ages.deadline_ns();
        let sync = self.unsynced_since_ns.map(|since| since + SYNC_AGE_NS);
        match (write, sync) {
            (Some(write), Some(sync)) => Some(write.min(sync)),
            (write, sync) => write.or(sync),
        }
    }

    /// Submits what is due. Bounded: a write per open or draining segment, one footer, one
    /// flush of each device.
    pub fn maintain(&mut self, disk: &mut impl Disk, segments: &Segments, now: Now) {
        if self.rests() || self.poison.is_some() || !self.drain_backlog(disk) {
            return;
        }
        self.note_age(segments, now);
        self.write_out(disk, segments);
        self.close_oldest(disk, segments);
        self.flush(disk);
    }

    /// Nothing is due and nothing becomes due by itself.
    fn rests(&self) -> bool {
        self.is_idle() && self.deadline_ns().is_none() && !self.flusher.is_due()
    }

    /// Submits what the device had no room for. False when some is left.
    pub fn drain_backlog(&mut self, disk: &mut impl Disk) -> bool {
        while let Some(io) = self.backlog.pop_front() {
            if let Err(io) = disk.submit(io) {
                self.backlog.push_front(io);
                return false;
            }
        }
        true
    }

    /// Sends a request of the shard; it is kept when the device has no room for it now.
    pub fn submit(&mut self, disk: &mut impl Disk, io: Io) {
        self.in_flight += 1;
        if let Err(io) = disk.submit(io) {
            self.backlog.push_back(io);
        }
    }

    fn note_age(&mut self, segments: &Segments, now: Now) {
        let wanted = segments.wanted(self.core) > self.synced();
        let due = self.ages.note(self.appended, self.handed, now.mono_ns);
        if due || wanted {
            self.write_wanted = self.appended;
        }
        let unsynced = self.written > self.synced();
        if !unsynced {
            self.unsynced_since_ns = None;
            return;
        }
        let since = *self.unsynced_since_ns.get_or_insert(now.mono_ns);
        if wanted || now.mono_ns.saturating_sub(since) >= SYNC_AGE_NS {
            self.want_sync(self.written);
        }
    }

    fn write_out(&mut self, disk: &mut impl Disk, segments: &Segments) {
        for at in 0..self.order.len() {
            let slot = self.order[at];
            if self.bufs[slot].phase == Phase::Open {
                self.write_open(disk, segments, slot);
            } else if self.bufs[slot].phase == Phase::Draining {
                self.write_to_end(disk, segments, slot, false);
            }
        }
    }

    fn write_open(&mut self, disk: &mut impl Disk, segments: &Segments, slot: usize) {
        let wanted = self.write_wanted > self.handed;
        if wanted && self.eager_in_flight < EAGER_WRITES_MAX {
            self.pad(slot);
            segments.set_appended(self.core, self.appended);
            self.write_to_end(disk, segments, slot, true);
        } else {
            let open = &self.bufs[slot];
            let whole = self.sector.floor(open.end);
            if whole >= open.submitted + self.options.flush_size_bytes {
                self.write_to_end(disk, segments, slot, false);
            }
        }
    }

    /// Writes the whole sectors that are filled.
    fn write_to_end(
        &mut self,
        disk: &mut impl Disk,
        segments: &Segments,
        slot: usize,
        eager: bool,
    ) {
        if self.bufs[slot].submitted == 0 {
            self.encode_header(segments, slot);
        }
        let end = self.sector.floor(self.bufs[slot].end);
        while self.bufs[slot].submitted < end {
            let start = self.bufs[slot].submitted;
            let stop = end.min(start + WRITE_SIZE_MAX);
            let last = if stop == end { self.bufs[slot].whole } else { self.handed };
            let number = self.writes_first + self.writes.len() as u64;
            self.writes.push_back(WriteMark { last, eager, done: false });
            self.eager_in_flight += usize::from(eager);
            self.handed = last;
            self.bufs[slot].submitted = stop;
            self.write(disk, segments, slot, start..stop, tag(TagKind::Write, number));
        }
    }

    fn encode_header(&mut self, segments: &Segments, slot: usize) {
        let durable = self.synced();
        let open = &mut self.bufs[slot];
        let place = segments.member_place(open.segment);
        let header = Header {
            set: segments.info().set,
            device: place.member,
            segment: place.segment,
            state: State::Data,
            epoch: open.epoch,
            core: self.core,
            base: open.base,
            previous: open.previous,
            durable,
        };
        header.encode(open.buf.get_mut(0..self.sector.size()));
    }

    fn write(
        &mut self,
        disk: &mut impl Disk,
        segments: &Segments,
        slot: usize,
        range: Range<usize>,
        tag: u64,
    ) {
        let (device, start) = segments.place(self.bufs[slot].segment);
        let offset = start + range.start as u64;
        let data = self.bufs[slot].buf.freeze(range);
        self.submit(disk, Io { device: device.disk, tag, op: Op::Write { offset, data } });
    }

    /// Takes the oldest unsealed segment one step further. Footers are written in the order of
    /// the segments, and only when all records before them are durable.
    fn close_oldest(&mut self, disk: &mut impl Disk, segments: &Segments) {
        let Some(&slot) = self.order.front() else { return };
        let phase = self.bufs[slot].phase;
        match phase {
            Phase::Draining if self.is_drained(slot) => self.write_footer(disk, segments, slot),
            Phase::Settling(round) if self.flusher.is_durable(round) => {
                let closed = &mut self.bufs[slot];
                closed.phase = Phase::Idle;
                segments.seal(closed.segment, closed.counts());
                self.order.pop_front();
            }
            _ => {}
        }
    }

    fn is_drained(&mut self, slot: usize) -> bool {
        let draining = &self.bufs[slot];
        let last = Lsn(draining.base.0 + u64::from(draining.entries) - 1);
        if draining.submitted < draining.end {
            return false;
        }
        self.want_sync(last);
        self.synced() >= last
    }

    fn write_footer(&mut self, disk: &mut impl Disk, segments: &Segments, slot: usize) {
        let closing = &mut self.bufs[slot];
        closing.phase = Phase::Closing;
        let start = self.sector.floor(closing.footer_at);
        closing.buf.get_mut(start..closing.footer_at).fill(0);
        let entries = closing.buf.get(closing.footer_at..footer::TRAILER_AT);
        let trailer = Trailer {
            epoch: closing.epoch,
            base: closing.base,
            entries: closing.entries,
            values: closing.values,
            tombstones: closing.tombstones,
            entries_bytes: entries.len() as u32,
            entries_crc: crc32c::crc32c_append(closing.seed, entries),
            end: (closing.end / UNIT) as u32,
        };
        trailer.encode(closing.buf.get_mut(footer::TRAILER_AT..SEGMENT_SIZE), closing.seed);
        self.write(disk, segments, slot, start..SEGMENT_SIZE, tag(TagKind::Footer, slot as u64));
    }

    /// Starts a round of flushes when somebody waits for one that would reach far enough.
    fn flush(&mut self, disk: &mut impl Disk) {
        if self.sync_wanted > self.promised() && self.written >= self.sync_first {
            self.flusher.next_round();
        }
        if !self.flusher.is_due() {
            return;
        }
        self.flusher.started += 1;
        self.flusher.covers = self.written;
        self.sync_first = self.sync_wanted;
        let mut dirty = std::mem::take(&mut self.flusher.dirty);
        while dirty != 0 {
            let device = dirty.trailing_zeros() as u16;
            dirty &= dirty - 1;
            self.flusher.in_flight += 1;
            let tag = tag(TagKind::Flush, u64::from(device));
            self.submit(disk, Io { device, tag, op: Op::Flush });
        }
        if self.flusher.in_flight == 0 {
            self.end_flush_round();
        }
    }

    fn end_flush_round(&mut self) {
        self.flusher.completed = self.flusher.started;
        self.synced = self.synced.max(self.flusher.covers);
    }

    /// A write of this core is complete on the device: the next flush round makes it durable.
    /// Returns that round.
    pub fn settle(&mut self, device: u16) -> u64 {
        self.flusher.dirty |= 1 << device;
        self.flusher.next_round()
    }

    /// Whether a flush round that [`Log::settle`] named is over.
    pub fn is_settled(&self, round: u64) -> bool {
        self.flusher.is_durable(round)
    }

    /// Takes the end of one of the log's own requests.
    pub fn complete(&mut self, segments: &Segments, kind: TagKind, number: u64, done: &Done) {
        self.in_flight -= 1;
        if let Err(errno) = done.result {
            return self.fail(segments, done.device, kind, errno);
        }
        match kind {
            TagKind::Write => self.complete_write(number, done.device),
            TagKind::Footer => {
                let round = self.settle(done.device);
                self.bufs[number as usize].phase = Phase::Settling(round);
            }
            TagKind::Flush => {
                self.flusher.in_flight -= 1;
                if self.flusher.in_flight == 0 {
                    self.end_flush_round();
                }
            }
            TagKind::Free | TagKind::Superblock | TagKind::Recovery | TagKind::Defrag => {}
        }
        segments.set_durable(self.core, self.synced());
    }

    fn complete_write(&mut self, number: u64, device: u16) {
        self.flusher.dirty |= 1 << device;
        let mark = &mut self.writes[(number - self.writes_first) as usize];
        mark.done = true;
        self.eager_in_flight -= usize::from(mark.eager);
        while self.writes.front().is_some_and(|mark| mark.done) {
            let mark = self.writes.pop_front().expect("it is there");
            self.writes_first += 1;
            self.written = mark.last;
        }
    }

    /// Ends all writing: what a device did with a failed request is not known.
    fn fail(&mut self, segments: &Segments, device: u16, kind: TagKind, errno: Errno) {
        if self.poison.is_some() {
            return;
        }
        let what = match kind {
            TagKind::Write => "a write of records",
            TagKind::Footer => "a write of a segment's footer",
            TagKind::Flush => "a flush",
            TagKind::Free => "a write of a free segment's header",
            TagKind::Superblock => "a write of a superblock",
            TagKind::Recovery => "a write of recovery",
            TagKind::Defrag => "a read of defrag",
        };
        let name = segments.disk_name(device);
        self.poison = Some(format!("{what} on {name} failed: {errno}"));
    }
}

/// Why there is no segment for a write.
fn no_segment(segments: &Segments, tier: Tier) -> AppendError {
    if tier == Tier::Move {
        return AppendError::Full;
    }
    if segments.pace.is_hopeful() {
        return AppendError::Busy;
    }
    segments.pace.note_refused();
    AppendError::Full
}
