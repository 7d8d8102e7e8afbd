//! Simulated time: it moves when the simulator says so, and the wall clock may jump.

use std::cell::RefCell;
use std::rc::Rc;

use crate::clock::{Clock, Now};

const START_NS: u64 = 1_000_000_000;
const START_MS: i64 = 1_700_000_000_000;

/// The one clock of a simulation. Cheap to clone; clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    time: Rc<RefCell<Time>>,
}

#[derive(Debug)]
struct Time {
    mono_ns: u64,
    /// From which monotonic time on the wall clock was how far ahead of it, in milliseconds.
    offsets: Vec<(u64, i64)>,
}

impl Time {
    fn wall_ms(offset: i64, mono_ns: u64) -> u64 {
        (offset + (mono_ns / 1_000_000) as i64) as u64
    }
}

impl Default for SimClock {
    fn default() -> SimClock {
        let time = Time { mono_ns: START_NS, offsets: vec![(0, START_MS)] };
        SimClock { time: Rc::new(RefCell::new(time)) }
    }
}

impl SimClock {
    pub fn mono_ns(&self) -> u64 {
        self.time.borrow().mono_ns
    }

    pub fn wall_ms(&self) -> u64 {
        let time = self.time.borrow();
        let (_, offset) = time.offsets[time.offsets.len() - 1];
        Time::wall_ms(offset, time.mono_ns)
    }

    pub fn advance(&self, ns: u64) {
        self.time.borrow_mut().mono_ns += ns;
    }

    /// Goes to `mono_ns` unless that is past.
    pub fn advance_to(&self, mono_ns: u64) {
        let mut time = self.time.borrow_mut();
        time.mono_ns = time.mono_ns.max(mono_ns);
    }

    /// Somebody sets the wall clock.
    pub fn jump(&self, by_ms: i64) {
        let mut time = self.time.borrow_mut();
        let (_, offset) = time.offsets[time.offsets.len() - 1];
        let from = time.mono_ns;
        time.offsets.push((from, offset + by_ms));
    }

    /// The lowest and the highest wall time since the monotonic time `from`.
    pub fn wall_since(&self, from: u64) -> (u64, u64) {
        let time = self.time.borrow();
        let (mut low, mut high) = (u64::MAX, 0);
        let mut end = time.mono_ns;
        for &(start, offset) in time.offsets.iter().rev() {
            low = low.min(Time::wall_ms(offset, start.max(from)));
            high = high.max(Time::wall_ms(offset, end));
            if start <= from {
                break;
            }
            end = start;
        }
        (low, high)
    }
}

impl Clock for SimClock {
    fn now(&mut self) -> Now {
        Now { mono_ns: self.mono_ns(), unix_ms: self.wall_ms() }
    }
}

#[cfg(test)]
mod tests {
    use super::SimClock;

    #[test]
    fn the_range_covers_jumps_in_both_directions() {
        let clock = SimClock::default();
        let (start_ns, start_ms) = (clock.mono_ns(), clock.wall_ms());
        clock.advance(5_000_000);
        clock.jump(100);
        clock.advance(2_000_000);
        clock.jump(-300);
        let now_ns = clock.mono_ns();
        clock.advance(1_000_000);
        assert_eq!(clock.wall_ms(), start_ms + 8 - 200);
        assert_eq!(clock.wall_since(start_ns), (start_ms - 193, start_ms + 107));
        assert_eq!(clock.wall_since(now_ns), (start_ms - 193, start_ms - 192));
    }
}
