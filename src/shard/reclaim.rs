//! Gives segments without live records back to the free list.
//!
//! A segment may go when these hold: what superseded its records is durable on every core (else
//! a crash could lose both versions), no older segment holds a dead version that one of its
//! tombstones hides, and it is not the last that its core sealed (the next one refers to it).
//! It may be used again when its header says FREE durably.

use std::collections::VecDeque;
use std::io;

use crate::clock::Now;
use crate::disk::{Disk, Io, Op};
use crate::limits::SECTOR_SIZE_MAX;
use crate::mem::LogBuf;
use crate::shard::log::{Log, TagKind, tag};
use crate::shard::table::{Fence, Segments};

/// Segments looked at in one call.
const STEPS_PER_CALL: usize = 8;
/// Looks at tombstones, each a walk over the table, are at least so far apart.
const TOMBSTONE_LOOK_NS: u64 = 1_000_000;
/// Headers being written at a time.
const HEADERS_MAX: usize = 16;

#[derive(Debug)]
enum Step {
    /// Waits until all cores' logs are durable up to the fence.
    Fenced(Fence),
    /// Waits until its tombstones hide nothing any more.
    Hiding,
    /// Its FREE header is being written.
    Writing,
    /// The header is written and waits for a flush.
    Settling(u64),
}

#[derive(Debug)]
struct Candidate {
    segment: u32,
    step: Step,
}

/// The segments that one core is giving back.
#[derive(Debug)]
pub struct Reclaim {
    candidates: VecDeque<Candidate>,
    /// Headers on their way to the device.
    headers: LogBuf,
    headers_used: usize,
    tombstone_look_ns: u64,
}

impl Reclaim {
    pub fn new() -> io::Result<Reclaim> {
        Ok(Reclaim {
            candidates: VecDeque::new(),
            headers: LogBuf::new(HEADERS_MAX * SECTOR_SIZE_MAX, u16::MAX)?,
            headers_used: 0,
            tombstone_look_ns: 0,
        })
    }

    /// Takes candidates some steps further.
    pub fn maintain(&mut self, log: &mut Log, disk: &mut impl Disk, segments: &Segments, now: Now) {
        if log.poison().is_some() || !segments.is_recovered() {
            return;
        }
        while self.candidates.len() < STEPS_PER_CALL
            && let Some(segment) = segments.take_empty()
        {
            let step = Step::Fenced(segments.fence());
            self.candidates.push_back(Candidate { segment, step });
        }
        for _ in 0..self.candidates.len().min(STEPS_PER_CALL) {
            let Some(mut candidate) = self.candidates.pop_front() else { return };
            if !self.advance(&mut candidate, log, disk, segments, now) {
                self.candidates.push_back(candidate);
            }
        }
    }

    /// True when the segment is free.
    fn advance(
        &mut self,
        candidate: &mut Candidate,
        log: &mut Log,
        disk: &mut impl Disk,
        segments: &Segments,
        now: Now,
    ) -> bool {
        if matches!(&candidate.step, Step::Fenced(fence) if segments.passed(fence)) {
            candidate.step = Step::Hiding;
        }
        match candidate.step {
            Step::Hiding if self.may_go(candidate.segment, segments, now) => {
                if self.write_header(candidate.segment, log, disk, segments) {
                    candidate.step = Step::Writing;
                }
                false
            }
            Step::Settling(round) if log.is_settled(round) => {
                segments.freed(candidate.segment);
                true
            }
            _ => false,
        }
    }

    fn may_go(&mut self, segment: u32, segments: &Segments, now: Now) -> bool {
        if segments.is_last_sealed(segment) {
            return false;
        }
        if !segments.has_tombstones(segment) {
            return true;
        }
        if now.mono_ns < self.tombstone_look_ns {
            return false;
        }
        let idle = segments.tombstones_are_idle(segment);
        if !idle {
            self.tombstone_look_ns = now.mono_ns + TOMBSTONE_LOOK_NS;
        }
        idle
    }

    /// False when no header can be written now.
    fn write_header(
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
        let range = self.headers_used..self.headers_used + size;
        self.headers_used = range.end;
        segments.free_header(segment).encode(self.headers.get_mut(range.clone()));
        let data = self.headers.freeze(range);
        let (device, offset) = segments.place(segment);
        let tag = tag(TagKind::Free, u64::from(segment));
        log.submit(disk, Io { device: device.disk, tag, op: Op::Write { offset, data } });
        true
    }

    /// The FREE header of `segment` is written.
    pub fn complete(&mut self, log: &mut Log, segment: u32, device: u16) {
        let round = log.settle(device);
        let mut candidates = self.candidates.iter_mut();
        if let Some(found) = candidates.find(|candidate| candidate.segment == segment) {
            found.step = Step::Settling(round);
        }
    }

    /// Segments on their way to the free list that only wait for I/O.
    pub fn in_flight(&self) -> usize {
        let waits = |step: &Step| matches!(step, Step::Writing | Step::Settling(_));
        self.candidates.iter().filter(|candidate| waits(&candidate.step)).count()
    }
}
