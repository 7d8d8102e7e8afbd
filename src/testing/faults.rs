//! What goes wrong with simulated devices, and how slow they are.

use crate::testing::clock::SimClock;
use crate::testing::disk::SimRandom;

/// Chances per million requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The request fails; a write may have landed in part, or as a whole.
    pub read_error: u32,
    pub write_error: u32,
    pub flush_error: u32,
    /// The request succeeds, but a bit of what is written, or read, is another.
    pub flipped_write: u32,
    pub flipped_read: u32,
    /// The request succeeds, but nothing is written, or it is written elsewhere.
    pub lost_write: u32,
    pub misdirected_write: u32,
}

/// What has gone wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    pub read_errors: u32,
    pub write_errors: u32,
    /// Flipped bits, lost and misdirected writes.
    pub lies: u32,
}

/// What happens to one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteFault {
    None,
    Fails,
    Flipped,
    Lost,
    Misdirected,
}

impl Faults {
    pub(crate) fn of_write(&self, random: &mut SimRandom) -> WriteFault {
        let chances = [
            (self.write_error, WriteFault::Fails),
            (self.flipped_write, WriteFault::Flipped),
            (self.lost_write, WriteFault::Lost),
            (self.misdirected_write, WriteFault::Misdirected),
        ];
        let hit = chances.into_iter().find(|(chance, _)| random.chance(*chance));
        hit.map_or(WriteFault::None, |(_, fault)| fault)
    }
}

/// How long requests take.
#[derive(Clone, Debug)]
pub struct Timing {
    pub clock: SimClock,
    pub least_ns: u64,
    pub most_ns: u64,
    /// Some requests, per million, take up to so long: others overtake them.
    pub slow: u32,
    pub slow_ns: u64,
}

impl Timing {
    pub(crate) fn due_ns(&self, random: &mut SimRandom) -> u64 {
        let slow = random.chance(self.slow);
        let most = if slow { self.slow_ns } else { self.most_ns };
        let span = most.saturating_sub(self.least_ns).max(1);
        self.clock.mono_ns() + self.least_ns + random.below(span as usize) as u64
    }
}
