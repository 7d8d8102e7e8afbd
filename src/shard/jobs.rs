//! The segments that are being emptied, and which cores are still at it.
//!
//! One core, the conductor, starts jobs; every core that may have keys in the segment takes part
//! and says when it is through. The last one ends the job.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Jobs at a time.
pub const JOBS_MAX: usize = 64;

/// A job as one core has taken it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    place: usize,
    id: u64,
    pub segment: u32,
    /// Tombstones have to be written again.
    pub carry: bool,
}

#[derive(Debug, Default)]
struct Place {
    /// 0: no job.
    id: AtomicU64,
    segment: AtomicU32,
    carry: AtomicBool,
    /// Cores that are not through.
    pending: AtomicU32,
    /// Some core has left something behind.
    incomplete: AtomicBool,
}

/// All jobs. Written by the conductor but for what a job's end changes.
#[derive(Debug)]
pub struct Jobs {
    places: [Place; JOBS_MAX],
    /// Id of the job that was started last.
    started: AtomicU64,
    active: AtomicU32,
    complete: AtomicU64,
    incomplete: AtomicU64,
}

impl Jobs {
    pub fn new() -> Jobs {
        Jobs {
            places: std::array::from_fn(|_| Place::default()),
            started: AtomicU64::new(0),
            active: AtomicU32::new(0),
            complete: AtomicU64::new(0),
            incomplete: AtomicU64::new(0),
        }
    }

    /// Grows with every job; a core that has seen it has seen all jobs.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::Acquire)
    }

    pub fn active(&self) -> u32 {
        self.active.load(Ordering::Acquire)
    }

    /// Jobs that have ended, and how many of them have left something behind.
    pub fn ended(&self) -> (u64, u64) {
        let incomplete = self.incomplete.load(Ordering::Relaxed);
        (self.complete.load(Ordering::Relaxed) + incomplete, incomplete)
    }

    /// The segments of all jobs under way.
    pub fn segments(&self) -> impl Iterator<Item = u32> {
        self.places.iter().filter_map(|place| {
            let busy = place.id.load(Ordering::Acquire) != 0;
            busy.then(|| place.segment.load(Ordering::Relaxed))
        })
    }

    /// By the conductor, which keeps [`Jobs::active`] below [`JOBS_MAX`].
    pub fn start(&self, segment: u32, cores: u32, carry: bool) {
        let free = |place: &&Place| place.id.load(Ordering::Acquire) == 0;
        let place = self.places.iter().find(free).expect("the conductor counts jobs");
        let id = self.started.load(Ordering::Relaxed) + 1;
        place.segment.store(segment, Ordering::Relaxed);
        place.carry.store(carry, Ordering::Relaxed);
        place.pending.store(cores, Ordering::Relaxed);
        place.incomplete.store(false, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::AcqRel);
        place.id.store(id, Ordering::Release);
        self.started.store(id, Ordering::Release);
    }

    /// The jobs that were started after the one with the id `seen`, oldest first.
    pub fn since(&self, seen: u64) -> Vec<Job> {
        let job = |(place, job): (usize, &Place)| {
            let id = job.id.load(Ordering::Acquire);
            let segment = job.segment.load(Ordering::Relaxed);
            let carry = job.carry.load(Ordering::Relaxed);
            (id > seen).then_some(Job { place, id, segment, carry })
        };
        let mut jobs: Vec<Job> = self.places.iter().enumerate().filter_map(job).collect();
        jobs.sort_by_key(|job| job.id);
        jobs
    }

    /// One core is through. The last one is told whether all were complete.
    pub fn finish(&self, job: &Job, complete: bool) -> Option<bool> {
        let place = &self.places[job.place];
        if !complete {
            place.incomplete.store(true, Ordering::SeqCst);
        }
        let last = place.pending.fetch_sub(1, Ordering::SeqCst) == 1;
        last.then(|| !place.incomplete.load(Ordering::SeqCst))
    }

    /// The last core has drawn the conclusions.
    pub fn clear(&self, job: &Job) {
        let place = &self.places[job.place];
        let incomplete = place.incomplete.load(Ordering::SeqCst);
        let count = if incomplete { &self.incomplete } else { &self.complete };
        count.fetch_add(1, Ordering::Relaxed);
        place.id.store(0, Ordering::Release);
        self.active.fetch_sub(1, Ordering::AcqRel);
    }
}
