//! Time. Read once a turn by the reactor and handed down as a value; nothing else reads a clock.

/// One reading of both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time in nanoseconds from an arbitrary start: intervals, budgets, deadlines.
    pub mono_ns: u64,
    /// Wall-clock time in milliseconds since the Unix epoch: expiry of keys, nothing else.
    pub unix_ms: u64,
}

/// A source of [`Now`]. The simulator has its own.
pub trait Clock {
    fn now(&mut self) -> Now;
}

/// The wall clock is read again after this time; it has no finer unit.
const WALL_NS: u64 = 1_000_000;

/// The kernel's clocks.
#[derive(Debug, Default)]
pub struct SystemClock {
    unix_ms: u64,
    /// When the wall clock is to be read again.
    wall_ns: u64,
}

impl Clock for SystemClock {
    fn now(&mut self) -> Now {
        let mono_ns = monotonic_ns();
        if mono_ns >= self.wall_ns {
            self.unix_ms = unix_ms();
            self.wall_ns = mono_ns + WALL_NS;
        }
        Now { mono_ns, unix_ms: self.unix_ms }
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`. For the control plane and for [`SystemClock`] only.
pub fn monotonic_ns() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Milliseconds since the Unix epoch.
pub fn unix_ms() -> u64 {
    use std::time::{SystemTime, UNIX_EPOCH};
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}
