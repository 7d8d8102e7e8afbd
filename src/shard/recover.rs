//! Recovery: rebuilds one core's index from the footers of sealed segments and a scan of the few
//! unsealed ones. Every core reads all of them and keeps the keys that are its own.
//!
//! A state machine without waiting: [`Recovery::step`] is called with completions until it says
//! that it is finished. It ends by giving every segment of earlier runs its final shape: unsealed
//! ones get a footer over what was found in them, what lies behind a cut is freed. Only then may
//! any segment be reused, so that a crash at any point leads the next recovery to the same result.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::disk::{Disk, Done, Io, Op};
use crate::limits::SEGMENT_SIZE_BYTES;
use crate::mem::{BufPool, DmaBuf, LogBuf};
use crate::shard::footer::{ENTRY_BYTES, Entries, TRAILER_AT, TRAILER_BYTES, Trailer};
use crate::shard::plan::{Plan, Planned};
use crate::shard::reading::Reading;
use crate::shard::record::{Lsn, UNIT};
use crate::shard::scan::{Scan, counts};
use crate::shard::segment::{SEGMENT_SIZE, SEGMENT_UNITS};
use crate::shard::tags::{TagKind, tag};
use crate::shard::{Shard, footer_units};

/// Segments whose ends are read ahead.
const READ_AHEAD: usize = 8;
/// Bytes of a segment's end that are read first, at least and at most.
const TAIL_BYTES_MIN: usize = 64 << 10;
const TAIL_BYTES_MAX: usize = 2 << 20;

/// How far a recovery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub segments_done: usize,
    pub segments_total: usize,
    /// Records applied on this core.
    pub records: u64,
    pub finished: bool,
}

/// Damage that stops a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The device as the user named it.
    pub device: String,
    /// Offset on the device in bytes.
    pub offset: u64,
    pub what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: the segment at offset {}: {}", self.device, self.offset, self.what)
    }
}

/// What is read of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The trailer and hopefully all entries.
    Tail,
    /// All of a footer that is longer than the tail.
    Footer,
    /// Everything, for a scan.
    Whole,
}

#[derive(Debug)]
struct Fetch {
    /// Place in the plan.
    at: usize,
    part: Part,
    len: usize,
    reading: Reading,
    /// A valid trailer whose entries do not verify.
    trailer: Option<Trailer>,
}

/// The log of one core in one run, as far as it is replayed.
#[derive(Clone, Copy, Debug)]
struct Chain {
    /// The last LSN that was accepted, 0 before the first segment; None when salvage has left
    /// something out.
    end: Option<Lsn>,
    /// The log broke off: nothing behind belongs to it.
    cut: bool,
}

/// A write that gives a segment its final shape.
#[derive(Debug)]
enum Finish {
    /// A footer, from this offset in the segment to its end.
    Seal {
        segment: u32,
        start: usize,
        bytes: Vec<u8>,
    },
    Free {
        segment: u32,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Reading,
    Finishing,
    Flushing,
    Finished,
}

/// The recovery of one core.
pub struct Recovery {
    plan: Arc<Plan>,
    pool: BufPool,
    salvage: bool,
    stage: Stage,
    fetches: VecDeque<Fetch>,
    fetched: usize,
    applied: usize,
    records: u64,
    tail_len: usize,
    chains: Vec<Chain>,
    finishes: VecDeque<Finish>,
    freed: Vec<u32>,
    buf: Option<LogBuf>,
    in_flight: usize,
    flushed: u16,
    notes: Vec<String>,
    own_notes: Vec<String>,
}

impl Recovery {
    /// `salvage` goes on where something is damaged.
    pub fn new(plan: Arc<Plan>, pool: BufPool, salvage: bool) -> Recovery {
        Recovery {
            chains: vec![Chain { end: Some(Lsn(0)), cut: false }; plan.chains],
            plan,
            pool,
            salvage,
            stage: Stage::Reading,
            fetches: VecDeque::new(),
            fetched: 0,
            applied: 0,
            records: 0,
            tail_len: TAIL_BYTES_MIN,
            finishes: VecDeque::new(),
            freed: Vec::new(),
            buf: None,
            in_flight: 0,
            flushed: 0,
            notes: Vec::new(),
            own_notes: Vec::new(),
        }
    }

    /// What was cut or left out, one line each. The same on all cores.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// What concerns the keys of this core only, one line each.
    pub fn take_own_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.own_notes)
    }

    /// Requests of this recovery that are not back yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Goes on with what `done` brings. At most one segment is replayed per call.
    pub fn step(
        &mut self,
        shard: &mut Shard,
        disk: &mut impl Disk,
        done: &mut Vec<Done>,
    ) -> Result<Progress, Damage> {
        for done in done.drain(..) {
            self.complete(shard, done)?;
        }
        match self.stage {
            Stage::Reading => {
                self.read_ahead(shard, disk);
                self.replay_next(shard)?;
                if self.applied == self.plan.len() {
                    self.own_notes = shard.match_parts();
                    self.buf = shard.log.lend_buffer();
                    self.stage = Stage::Finishing;
                }
            }
            Stage::Finishing => self.finish_next(shard, disk),
            Stage::Flushing => self.flush(shard, disk),
            Stage::Finished => {}
        }
        Ok(Progress {
            segments_done: self.applied,
            segments_total: self.plan.len(),
            records: self.records,
            finished: self.stage == Stage::Finished,
        })
    }

    fn complete(&mut self, shard: &Shard, done: Done) -> Result<(), Damage> {
        self.in_flight -= 1;
        if self.stage != Stage::Reading {
            let segment = (done.tag & u64::from(u32::MAX)) as u32;
            return done.result.map_err(|errno| Damage {
                device: shard.segments.disk_name(done.device).to_owned(),
                offset: if segment > 0 { shard.segments.place(segment).1 } else { 0 },
                what: format!("writing at the end of recovery failed: {errno}"),
            });
        }
        let at = (done.tag & u64::from(u32::MAX)) as usize;
        if let Some(fetch) = self.fetches.iter_mut().find(|fetch| fetch.at == at) {
            fetch.reading = Reading::from(done);
        }
        Ok(())
    }

    fn read_ahead(&mut self, shard: &Shard, disk: &mut impl Disk) {
        while self.fetches.len() < READ_AHEAD && self.fetched < self.plan.len() {
            let (at, len) = (self.fetched, self.tail_len);
            let (part, reading) = (Part::Tail, Reading::Wanted);
            self.fetches.push_back(Fetch { at, part, len, reading, trailer: None });
            self.fetched += 1;
        }
        for i in 0..self.fetches.len() {
            if matches!(self.fetches[i].reading, Reading::Wanted) && !self.read(shard, disk, i) {
                break;
            }
        }
        self.make_room();
    }

    /// False when there is no buffer or no room in the device's queue now.
    fn read(&mut self, shard: &Shard, disk: &mut impl Disk, i: usize) -> bool {
        let fetch = &mut self.fetches[i];
        let Some(buf) = self.pool.get(fetch.len) else { return false };
        let (device, start) = shard.segments.place(self.plan.segments[fetch.at].segment);
        let offset = start + (SEGMENT_SIZE - fetch.len) as u64;
        let op = Op::Read { offset, len: fetch.len as u32, buf };
        let tag = tag(TagKind::Recovery, fetch.at as u64);
        if disk.submit(Io { device: device.disk, tag, op }).is_err() {
            return false;
        }
        fetch.reading = Reading::Submitted;
        self.in_flight += 1;
        true
    }

    /// Gives up what was read ahead when the oldest segment cannot get a buffer because of it.
    fn make_room(&mut self) {
        let stuck = matches!(self.fetches.front(), Some(Fetch { reading: Reading::Wanted, .. }));
        if stuck && self.in_flight == 0 {
            for fetch in self.fetches.iter_mut().skip(1) {
                fetch.reading = Reading::Wanted;
            }
        }
    }

    fn replay_next(&mut self, shard: &mut Shard) -> Result<(), Damage> {
        let Some(fetch) = self.fetches.front_mut() else { return Ok(()) };
        let (at, part, trailer) = (fetch.at, fetch.part, fetch.trailer);
        let replayed = match std::mem::replace(&mut fetch.reading, Reading::Wanted) {
            Reading::Ready(buf) => match part {
                Part::Tail | Part::Footer => self.replay_footer(shard, at, &buf),
                Part::Whole => self.replay_scan(shard, at, &buf, trailer),
            },
            Reading::Failed(errno) => {
                Err(self.damage(shard, at, &format!("reading it failed: {errno}")))
            }
            waiting => {
                fetch.reading = waiting;
                return Ok(());
            }
        };
        match replayed {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(damage) if self.salvage => {
                self.notes.push(format!("{damage}; it is left out"));
                self.chains[self.plan.segments[at].chain].end = None;
            }
            Err(damage) => return Err(damage),
        }
        self.fetches.pop_front();
        self.applied += 1;
        Ok(())
    }

    fn damage(&self, shard: &Shard, at: usize, what: &str) -> Damage {
        let (device, offset) = shard.segments.place(self.plan.segments[at].segment);
        Damage { device: device.name.clone(), offset, what: what.to_owned() }
    }

    /// Reads more of the segment in front before it can be replayed.
    fn want(&mut self, part: Part, len: usize, trailer: Option<Trailer>) -> bool {
        if let Some(fetch) = self.fetches.front_mut() {
            (fetch.part, fetch.len, fetch.trailer) = (part, len, trailer);
        }
        false
    }

    /// Replays a segment from its footer. False when more of it has to be read first.
    fn replay_footer(
        &mut self,
        shard: &mut Shard,
        at: usize,
        buf: &DmaBuf,
    ) -> Result<bool, Damage> {
        let plan = Arc::clone(&self.plan);
        let planned = &plan.segments[at];
        let len = self.fetches[0].len;
        let seed = shard.segments.seed(planned.header.epoch);
        let chain = self.chains[planned.chain];
        let Some(trailer) = Trailer::decode(&buf[..len], seed) else {
            let follows = chain.end.is_none_or(|end| end == planned.header.previous);
            if chain.cut || !follows {
                self.discard(shard, planned);
                return Ok(true);
            }
            return Ok(self.want(Part::Whole, SEGMENT_SIZE, None));
        };
        if chain.cut {
            return Err(self.damage(shard, at, "records before it have been lost"));
        }
        if trailer.epoch != planned.header.epoch || trailer.base != planned.header.base {
            return Err(self.damage(shard, at, "header and footer contradict each other"));
        }
        let needed = trailer.entries_bytes as usize + TRAILER_BYTES;
        let sector_size = shard.segments.sector_size();
        if needed > len {
            return Ok(self.want(Part::Footer, needed.next_multiple_of(sector_size), None));
        }
        self.tail_len = (needed + needed / 4)
            .next_multiple_of(sector_size)
            .clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX);
        let entries = &buf[len - needed..len - TRAILER_BYTES];
        if !trailer.verify(entries, seed) {
            return Ok(self.want(Part::Whole, SEGMENT_SIZE, Some(trailer)));
        }
        let first = shard.is_first(planned.segment);
        shard.segments.recount(planned.segment, trailer.values, trailer.tombstones, first);
        let (mut lsn, mut units) = (planned.header.base, 0);
        for (unit, entry) in Entries::new(entries, (sector_size / UNIT) as u32) {
            if u64::from(unit) + u64::from(entry.units) > u64::from(trailer.end)
                || !shard.replay(planned.segment, unit, lsn, &entry)
            {
                return Err(self.damage(shard, at, "its footer contradicts itself"));
            }
            lsn.0 += 1;
            units += footer_units(&entry);
        }
        if first {
            shard.segments.measure(planned.segment, units, trailer.end);
        }
        self.records += u64::from(trailer.entries);
        self.chains[planned.chain].end = Some(trailer.last());
        Ok(true)
    }

    /// Replays a segment from its records. `trailer` is one that vouches for all of them.
    fn replay_scan(
        &mut self,
        shard: &mut Shard,
        at: usize,
        buf: &DmaBuf,
        trailer: Option<Trailer>,
    ) -> Result<bool, Damage> {
        let plan = Arc::clone(&self.plan);
        let planned = &plan.segments[at];
        let base = planned.header.base;
        let segment = &buf[..SEGMENT_SIZE];
        let seed = shard.segments.seed(planned.header.epoch);
        let first_unit = (shard.segments.sector_size() / UNIT) as u32;
        let mut scan = Scan::new(segment, seed, first_unit, base, shard.hasher());
        let next = planned.next.map(|next| &plan.segments[next].header);
        let last = scan.last(base);
        let complete = match trailer {
            Some(trailer) => last == trailer.last(),
            None => next.is_some_and(|next| next.previous == last),
        };
        let mut end = Some(last);
        if !complete {
            scan.look_beyond(segment, seed);
            let vouched = trailer.map_or(Lsn(0), |trailer| trailer.last());
            let durable = next.map_or(Lsn(0), |next| next.durable);
            let broken = scan.durable.max(vouched).max(durable) > last;
            scan.drop_incomplete_unit();
            if broken {
                self.report_damage(shard, at, scan.end)?;
            }
            self.chains[planned.chain].cut = next.is_some() && !broken;
            end = (!broken).then_some(scan.last(base));
        }
        if !scan.records.is_empty() {
            self.chains[planned.chain].end = end;
        }
        self.accept(shard, planned, &scan);
        Ok(true)
    }

    /// A record that was on the device once is not what it was.
    fn report_damage(&mut self, shard: &Shard, at: usize, unit: u32) -> Result<(), Damage> {
        let what = format!("the record at {} in it is damaged", unit as usize * UNIT);
        let damage = self.damage(shard, at, &what);
        if !self.salvage {
            return Err(damage);
        }
        self.notes.push(format!("{damage}; it and what follows in the segment are left out"));
        Ok(())
    }

    fn accept(&mut self, shard: &mut Shard, planned: &Planned, scan: &Scan) {
        let first = shard.is_first(planned.segment);
        if scan.records.is_empty() {
            return self.discard(shard, planned);
        }
        let totals = scan.records.iter().map(|record| counts(&record.entry));
        let (values, tombstones) = totals.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        shard.segments.recount(planned.segment, values, tombstones, first);
        let mut lsn = planned.header.base;
        for record in &scan.records {
            let replayed = shard.replay(planned.segment, record.unit, lsn, &record.entry);
            assert!(replayed, "an entry made from a record is right");
            lsn.0 += 1;
        }
        self.records += scan.records.len() as u64;
        if first {
            let units = scan.records.iter().map(|record| footer_units(&record.entry)).sum();
            shard.segments.measure(planned.segment, units, scan.end);
            let seed = shard.segments.seed(planned.header.epoch);
            let footer = build_footer(planned, scan, (values, tombstones), seed);
            let start = (SEGMENT_SIZE - footer.len()) / shard.segments.sector_size();
            let start = start * shard.segments.sector_size();
            let mut bytes = vec![0; SEGMENT_SIZE - start - footer.len()];
            bytes.extend_from_slice(&footer);
            let segment = planned.segment;
            self.finishes.push_back(Finish::Seal { segment, start, bytes });
        }
        let (device, offset) = shard.segments.place(planned.segment);
        self.notes.push(format!(
            "{}: the segment at offset {offset} was not sealed: {} records, up to {}",
            device.name,
            scan.records.len(),
            scan.end as usize * UNIT
        ));
    }

    /// Nothing of the segment counts: its header was written, but not what should be before it.
    fn discard(&mut self, shard: &Shard, planned: &Planned) {
        self.chains[planned.chain].cut = true;
        let segment = planned.segment;
        if shard.is_first(segment) {
            self.finishes.push_back(Finish::Free { segment });
        }
        let (device, offset) = shard.segments.place(segment);
        self.notes.push(format!(
            "{}: the segment at offset {offset} follows writes that never completed; it is freed",
            device.name
        ));
    }

    /// Writes one footer or FREE header at a time.
    fn finish_next(&mut self, shard: &mut Shard, disk: &mut impl Disk) {
        if self.in_flight > 0 {
            return;
        }
        let Some(finish) = self.finishes.front() else {
            self.stage = Stage::Flushing;
            return;
        };
        let buf = self.buf.as_mut().expect("lent before this stage");
        if !buf.reset() {
            return;
        }
        let (segment, range) = match finish {
            Finish::Seal { segment, start, bytes } => {
                buf.get_mut(*start..SEGMENT_SIZE).copy_from_slice(bytes);
                (*segment, *start..SEGMENT_SIZE)
            }
            Finish::Free { segment } => {
                let sector_size = shard.segments.sector_size();
                shard.segments.free_header(*segment).encode(buf.get_mut(0..sector_size));
                (*segment, 0..sector_size)
            }
        };
        let (device, start) = shard.segments.place(segment);
        let offset = start + range.start as u64;
        let op = Op::Write { offset, data: buf.freeze(range) };
        let tag = tag(TagKind::Recovery, u64::from(segment));
        if disk.submit(Io { device: device.disk, tag, op }).is_ok() {
            self.in_flight += 1;
            if let Some(Finish::Free { segment }) = self.finishes.pop_front() {
                self.freed.push(segment);
            }
        }
    }

    /// Makes durable what was believed and what was written, then opens the shard.
    fn flush(&mut self, shard: &mut Shard, disk: &mut impl Disk) {
        let devices = shard.segments.info().devices.len() as u16;
        let volatile_cache = shard.segments.info().volatile_cache;
        while volatile_cache && self.flushed < devices {
            let tag = tag(TagKind::Recovery, 0);
            if disk.submit(Io { device: self.flushed, tag, op: Op::Flush }).is_err() {
                return;
            }
            self.flushed += 1;
            self.in_flight += 1;
        }
        if self.in_flight > 0 {
            return;
        }
        for segment in self.freed.drain(..) {
            shard.segments.freed(segment);
        }
        if let Some(buf) = self.buf.take() {
            shard.log.return_buffer(buf);
        }
        shard.segments.set_recovered(shard.options.core);
        self.stage = Stage::Finished;
    }
}

/// The footer over the records of a scan, trailer included.
fn build_footer(
    planned: &Planned,
    scan: &Scan,
    (values, tombstones): (u32, u32),
    seed: u32,
) -> Vec<u8> {
    let mut footer = Vec::with_capacity(scan.records.len() * ENTRY_BYTES + TRAILER_BYTES);
    for record in scan.records.iter().rev() {
        let start = footer.len();
        footer.resize(start + record.entry.len_bytes(), 0);
        record.entry.encode(&mut footer[start..]);
    }
    let trailer = Trailer {
        epoch: planned.header.epoch,
        base: planned.header.base,
        entries: scan.records.len() as u32,
        values,
        tombstones,
        entries_bytes: footer.len() as u32,
        entries_crc: crc32c::crc32c_append(seed, &footer),
        end: scan.end,
    };
    let start = footer.len();
    footer.resize(start + TRAILER_BYTES, 0);
    trailer.encode(&mut footer[start..], seed);
    footer
}

const _: () = assert!(TRAILER_AT + TRAILER_BYTES == SEGMENT_SIZE);
const _: () = assert!(SEGMENT_SIZE as u64 == SEGMENT_SIZE_BYTES);
const _: () = assert!(SEGMENT_UNITS as usize * UNIT == SEGMENT_SIZE);
