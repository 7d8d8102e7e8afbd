//! When the log has to write and to flush: age of its records, rounds of flushes.

use std::collections::VecDeque;

use crate::shard::record::Lsn;

/// When the records that are not yet written were appended, to a sixteenth of the largest age.
#[derive(Debug)]
pub struct Ages {
    /// Records above the LSN were appended after the time.
    marks: VecDeque<(Lsn, u64)>,
    max_ns: u64,
}

impl Ages {
    pub fn new(max_ns: u64) -> Ages {
        Ages { marks: VecDeque::new(), max_ns }
    }

    pub fn set_max(&mut self, max_ns: u64) {
        self.max_ns = max_ns;
    }

    /// Takes note of how far the log is. True when its oldest unwritten record is due.
    pub fn note(&mut self, appended: Lsn, handed: Lsn, now_ns: u64) -> bool {
        if appended == handed {
            self.marks.clear();
            return false;
        }
        while self.marks.get(1).is_some_and(|&(lsn, _)| lsn <= handed) {
            self.marks.pop_front();
        }
        match self.marks.back() {
            None => self.marks.push_back((handed, now_ns)),
            Some(&(lsn, since_ns)) => {
                if lsn < appended && now_ns.saturating_sub(since_ns) >= self.max_ns / 16 {
                    self.marks.push_back((appended, now_ns));
                }
            }
        }
        self.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns)
    }

    pub fn deadline_ns(&self) -> Option<u64> {
        self.marks.front().map(|&(_, since_ns)| since_ns + self.max_ns)
    }
}

/// Flushes of all devices with completed writes, in rounds: one at a time, shared by all who wait.
#[derive(Debug, Default)]
pub struct Flusher {
    /// Without a volatile cache a completed write is durable and no round is ever needed.
    pub volatile_cache: bool,
    /// Devices with writes completed since their last flush was submitted, one bit each.
    pub dirty: u64,
    pub started: u64,
    pub completed: u64,
    pub wanted: u64,
    pub in_flight: u32,
    /// What the round in flight makes durable.
    pub covers: Lsn,
}

impl Flusher {
    /// A round that will start after now.
    pub fn next_round(&mut self) -> u64 {
        self.wanted = self.started + 1;
        self.wanted
    }

    pub fn is_durable(&self, round: u64) -> bool {
        !self.volatile_cache || self.completed >= round
    }

    pub fn is_due(&self) -> bool {
        self.volatile_cache && self.in_flight == 0 && self.wanted > self.started
    }
}
