//! Gives segments without live records back to the free list.
//!
//! A segment may go when these hold: what superseded its records is durable on every core (else
//! a crash could lose both versions), no older segment holds a dead version that one of its
//! tombstones hides, and it is not the last that its core sealed (the next one refers to it).
//! It may be used again when its header says FREE durably.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;

use crate::clock::Now;
use crate::disk::{Disk, Io, Op};
use crate::limits::SECTOR_SIZE_MAX;
use crate::mem::LogBuf;
use crate::shard::log::Log;
use crate::shard::record::Lsn;
use crate::shard::table::{Fence, Segments};
use crate::shard::tags::{TagKind, tag};

/// Segments taken up, and headers written, in one call.
const STEPS_PER_CALL: usize = 8;
/// Looks at tombstones, each a walk over the table, are at least so far apart.
const LOOK_INTERVAL_NS: u64 = 1_000_000;
/// Headers being written at a time.
const HEADERS_MAX: usize = 16;

/// Run, first LSN and number of a segment: the oldest first.
type Age = (u32, Lsn, u32);

/// A segment and the time that it was found empty.
type Find = (u32, u32);

/// The segments that one core is giving back.
#[derive(Debug)]
pub struct Reclaim {
    /// Waiting until all cores' logs are durable up to the fence.
    fenced: VecDeque<(Find, Fence)>,
    /// Waiting for older segments to go, for defrag to carry their tombstones on, or for the
    /// next one of their core to be sealed.
    held: BTreeMap<Age, Find>,
    /// The one that was looked at last.
    looked_at: Age,
    look_ns: u64,
    /// FREE headers being written, and written ones with the flush that they wait for.
    writing: Vec<u32>,
    settling: Vec<(u32, u64)>,
    /// Headers on their way to the device.
    headers: LogBuf,
    headers_used: usize,
}

impl Reclaim {
    pub fn new() -> io::Result<Reclaim> {
        Ok(Reclaim {
            fenced: VecDeque::new(),
            held: BTreeMap::new(),
            looked_at: (0, Lsn(0), 0),
            look_ns: 0,
            writing: Vec::new(),
            settling: Vec::new(),
            headers: LogBuf::new(HEADERS_MAX * SECTOR_SIZE_MAX, u16::MAX)?,
            headers_used: 0,
        })
    }

    /// Takes segments some steps further.
    pub fn maintain(&mut self, log: &mut Log, disk: &mut impl Disk, segments: &Segments, now: Now) {
        if log.poison().is_some() || !segments.is_recovered() {
            return;
        }
        self.settling.retain(|&(segment, round)| {
            let settled = log.is_settled(round);
            if settled {
                segments.freed(segment);
            }
            !settled
        });
        for _ in 0..STEPS_PER_CALL {
            let Some(find) = segments.take_empty() else { break };
            self.fenced.push_back((find, segments.fence()));
        }
        for _ in 0..STEPS_PER_CALL {
            let Some((_, fence)) = self.fenced.front() else { break };
            if !segments.passed(fence) {
                break;
            }
            let Some((find, _)) = self.fenced.pop_front() else { break };
            let (epoch, base) = segments.life_start(find.0);
            self.held.insert((epoch.run(), base, find.0), find);
        }
        self.look(log, disk, segments, now);
    }

    /// Starts to free held segments that may go: the ones without tombstones first, for which
    /// nothing has to be searched.
    fn look(&mut self, log: &mut Log, disk: &mut impl Disk, segments: &Segments, now: Now) {
        if self.held.is_empty() || now.mono_ns < self.look_ns {
            return;
        }
        self.held.retain(|_, &mut (segment, find)| segments.is_empty_find(segment, find));
        let plain = |segment: &u32| {
            !segments.has_tombstones(*segment) && !segments.is_last_sealed(*segment)
        };
        let held = self.held.values().map(|&(segment, _)| segment);
        let going: Vec<u32> = held.filter(plain).take(STEPS_PER_CALL).collect();
        for segment in &going {
            if !self.free(*segment, log, disk, segments) {
                return;
            }
        }
        if going.is_empty() && !self.look_at_next(log, disk, segments) {
            self.look_ns = now.mono_ns + LOOK_INTERVAL_NS;
        }
    }

    /// Looks at one held segment, in turn from the oldest on. True when it goes.
    fn look_at_next(&mut self, log: &mut Log, disk: &mut impl Disk, segments: &Segments) -> bool {
        let after = (Bound::Excluded(self.looked_at), Bound::Unbounded);
        let next = self.held.range(after).next().or_else(|| self.held.iter().next());
        let Some((&age, &(segment, _))) = next else { return false };
        self.looked_at = age;
        let goes = !segments.is_last_sealed(segment)
            && segments.tombstones_are_idle(segment)
            && self.free(segment, log, disk, segments);
        if goes {
            self.looked_at = (0, Lsn(0), 0);
        }
        goes
    }

    /// Writes the FREE header. False when that is not possible now.
    fn free(
        &mut self,
        segment: u32,
        log: &mut Log,
        disk: &mut impl Disk,
        segments: &Segments,
    ) -> bool {
        let size = segments.sector_size();
        if self.headers_used + size > self.headers.len() {
            if !self.headers.reset() {
                return false;
            }
            self.headers_used = 0;
        }
        self.held.retain(|_, held| held.0 != segment);
        if !segments.begin_free(segment) {
            return true;
        }
        let range = self.headers_used..self.headers_used + size;
        self.headers_used = range.end;
        segments.free_header(segment).encode(self.headers.get_mut(range.clone()));
        let data = self.headers.freeze(range);
        let (device, offset) = segments.place(segment);
        let tag = tag(TagKind::Free, u64::from(segment));
        log.submit(disk, Io { device: device.disk, tag, op: Op::Write { offset, data } });
        self.writing.push(segment);
        true
    }

    /// The FREE header of `segment` is written.
    pub fn complete(&mut self, log: &mut Log, segment: u32, device: u16) {
        self.writing.retain(|&writing| writing != segment);
        self.settling.push((segment, log.settle(device)));
    }

    /// Segments on their way to the free list that only wait for I/O.
    pub fn in_flight(&self) -> usize {
        self.writing.len() + self.settling.len()
    }
}
