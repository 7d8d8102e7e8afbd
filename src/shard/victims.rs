//! Which segments are emptied, and when: the part of defrag that one core does for all.
//!
//! Nothing happens while enough segments are free. Below that the table is looked through, a slice
//! per call; the segments that cost least to empty become the next victims. When nothing is to be
//! gained the next look waits, longer the larger the table is.

use std::collections::VecDeque;

use crate::clock::Now;
use crate::shard::jobs::JOBS_MAX;
use crate::shard::segment::SEGMENT_UNITS;
use crate::shard::table::{Segments, Worth};

/// How space is made; the values of `--defrag-*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefragOptions {
    pub paused: bool,
    /// Segments of one device that are emptied at a time.
    pub max_active_per_device: u32,
    /// After each segment, and after each record.
    pub sleep_ms: u64,
    pub record_sleep_us: u64,
}

impl Default for DefragOptions {
    fn default() -> DefragOptions {
        DefragOptions { paused: false, max_active_per_device: 8, sleep_ms: 0, record_sleep_us: 0 }
    }
}

/// Segments looked at in one call.
const SLICE: u32 = 4096;
/// What a victim has to give back: else a device full of live data would be copied for nothing.
const GAIN_MIN: u32 = SEGMENT_UNITS / 32;
/// Victims that one walk over the table finds, at most.
const BATCH_MAX: u32 = 32;
/// After a walk that has found nothing: so long for each segment of the table, but at least.
const FRUITLESS_NS_PER_SEGMENT: u64 = 1000;
const FRUITLESS_NS_MIN: u64 = 20_000_000;
/// Who finds no space waits for defrag while something has moved within this time.
const PATIENCE_NS: u64 = 10_000_000_000;

/// Chooses victims. On one core only.
#[derive(Debug)]
pub struct Conductor {
    /// Free segments that puts may take, below which defrag works.
    start: u32,
    batch: usize,
    /// Where the walk over the table is; None between two walks.
    walk: Option<u32>,
    /// The cheapest of the walk so far: cost and segment, in this order.
    best: Vec<(u32, u32)>,
    /// Found by the last walk, the cheapest first.
    next: VecDeque<u32>,
    /// No walk, and no job, before these times.
    walk_ns: u64,
    job_ns: u64,
    ended: u64,
    recovered: bool,
    working: bool,
    /// The last walk has found nothing.
    exhausted: bool,
    /// Segments that had been sealed when the last walk began.
    sealed: u64,
    /// What grows while defrag makes progress, and when it last did.
    progress: (u64, u64, u64),
    progress_ns: u64,
}

impl Conductor {
    pub fn new(segments: &Segments) -> Conductor {
        let count = segments.count();
        // Until the first look nobody knows that there is nothing to be gained.
        segments.pace.set(None, true);
        Conductor {
            start: 1 + u32::from(segments.info().cores) + count / 512 + 1,
            batch: (count / 64).clamp(1, BATCH_MAX) as usize,
            walk: None,
            best: Vec::new(),
            next: VecDeque::new(),
            walk_ns: 0,
            job_ns: 0,
            ended: 0,
            recovered: false,
            working: false,
            exhausted: false,
            sealed: 0,
            progress: (0, 0, 0),
            progress_ns: 0,
        }
    }

    /// One step: a slice of a walk, jobs started, the pace set.
    pub fn step(&mut self, segments: &Segments, options: &DefragOptions, now: Now) {
        if !self.is_recovered(segments) {
            return;
        }
        if segments.headroom() >= self.start || options.paused {
            if self.working || segments.pace.is_hopeful() {
                self.rest(segments);
            }
            return;
        }
        if !self.working {
            (self.working, self.progress_ns) = (true, now.mono_ns);
        }
        self.note_progress(segments, options, now);
        if self.next.is_empty() && (self.walk.is_some() || now.mono_ns >= self.walk_ns) {
            self.walk(segments, now);
        }
        self.start_jobs(segments, options, now);
        self.set_pace(segments, now);
    }

    fn is_recovered(&mut self, segments: &Segments) -> bool {
        self.recovered = self.recovered || segments.is_recovered();
        self.recovered
    }

    /// Enough is free, or defrag is paused: what is under way is finished.
    fn rest(&mut self, segments: &Segments) {
        (self.walk, self.working) = (None, false);
        self.next.clear();
        self.best.clear();
        segments.pace.set(None, false);
    }

    fn note_progress(&mut self, segments: &Segments, options: &DefragOptions, now: Now) {
        let ended = segments.jobs.ended().0;
        if ended != self.ended {
            self.ended = ended;
            self.job_ns = now.mono_ns + options.sleep_ms.saturating_mul(1_000_000);
        }
        let progress = (segments.times_freed(), ended, segments.pace.moved());
        if progress != self.progress {
            self.progress = progress;
            self.progress_ns = now.mono_ns;
        }
    }

    fn walk(&mut self, segments: &Segments, now: Now) {
        if self.walk.is_none() {
            self.sealed = segments.times_sealed();
        }
        let from = self.walk.unwrap_or(0);
        let to = (from + SLICE).min(segments.numbers());
        for segment in from..to {
            if let Some(worth) = segments.worth(segment).filter(is_worth_it)
                && !segments.is_last_sealed(segment)
            {
                self.rank(worth.cost, segment);
            }
        }
        self.walk = (to < segments.numbers()).then_some(to);
        if self.walk.is_none() {
            self.next = self.best.drain(..).map(|(_, segment)| segment).collect();
            self.exhausted = self.next.is_empty();
            let pause = FRUITLESS_NS_PER_SEGMENT * u64::from(segments.numbers());
            let pause = if self.exhausted { pause.max(FRUITLESS_NS_MIN) } else { 0 };
            self.walk_ns = now.mono_ns + pause;
        }
    }

    fn rank(&mut self, cost: u32, segment: u32) {
        if self.best.len() == self.batch && self.best.last().is_some_and(|last| last.0 <= cost) {
            return;
        }
        self.best.truncate(self.batch - 1);
        let at = self.best.partition_point(|&(other, _)| other <= cost);
        self.best.insert(at, (cost, segment));
    }

    fn start_jobs(&mut self, segments: &Segments, options: &DefragOptions, now: Now) {
        let limit = jobs_limit(segments);
        while now.mono_ns >= self.job_ns && segments.jobs.active() < limit {
            let Some(segment) = self.next.pop_front() else { return };
            let worth = segments.worth(segment).filter(is_worth_it);
            if worth.is_none() || !has_place(segments, options, segment) {
                continue;
            }
            segments.start_job(segment);
        }
    }

    fn set_pace(&mut self, segments: &Segments, now: Now) {
        let at_work = segments.jobs.active() > 0 || !self.exhausted;
        // A segment whose records are dead counts only from when it, and the next one of its
        // core, are sealed: who finds no space before that has to wait.
        let to_come =
            segments.has_empty() || segments.is_sealing() || segments.times_sealed() != self.sealed;
        if !at_work && !to_come {
            self.progress_ns = now.mono_ns;
        }
        let moving = now.mono_ns.saturating_sub(self.progress_ns) < PATIENCE_NS;
        let missing = self.start - segments.headroom().min(self.start);
        let shortage = f64::from(missing) / f64::from(self.start);
        let hopeful = moving && (at_work || to_come);
        segments.pace.set((at_work && moving).then_some(shortage), hopeful);
    }

    /// When [`Conductor::step`] has something to do without being asked.
    pub fn deadline_ns(&self) -> Option<u64> {
        (self.working && !self.next.is_empty()).then_some(self.job_ns)
    }
}

fn is_worth_it(worth: &Worth) -> bool {
    worth.gain >= GAIN_MIN && worth.cost <= SEGMENT_UNITS - GAIN_MIN
}

/// Jobs at a time: one for each core and one to follow, fewer when few segments are free, for each
/// may take a segment before it gives one.
fn jobs_limit(segments: &Segments) -> u32 {
    let cores = u32::from(segments.info().cores);
    let spare = segments.free_segments().saturating_sub(cores);
    (cores + 1).min(spare).clamp(1, JOBS_MAX as u32)
}

fn has_place(segments: &Segments, options: &DefragOptions, segment: u32) -> bool {
    let member = segments.member_place(segment).member;
    let there = |&other: &u32| segments.member_place(other).member == member;
    let active = segments.jobs.segments().filter(there).count();
    active < options.max_active_per_device as usize
}
