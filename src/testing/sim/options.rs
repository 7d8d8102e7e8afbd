//! What a simulation is like, drawn from its seed: every kind of load and of fault is absent in
//! some simulations and frequent in others, for what happens all the time hides what is rare.

use crate::config::{Config, Durability};
use crate::disk::Geometry;
use crate::limits::SEGMENT_SIZE_BYTES;
use crate::testing::clock::SimClock;
use crate::testing::disk::SimRandom;
use crate::testing::faults::{Faults, Timing};

/// Cores of a run, at most.
pub const CORES_MAX: usize = 4;

/// See the module.
#[derive(Clone, Debug)]
pub struct Options {
    pub devices: usize,
    pub segments: u64,
    pub sector_size: u32,
    pub volatile_cache: bool,
    pub cores: usize,
    pub durability: Durability,
    pub flush_max_ms: u64,
    pub flush_size_bytes: u64,
    pub buffers: usize,
    pub clients: usize,
    pub groups: usize,
    /// Commands that a client sends before it is answered.
    pub depth: usize,
    /// Longest piece that a client sends at a time, and takes.
    pub chunk_bytes: usize,
    pub value_bytes: usize,
    /// Time between two acts of a client, at most.
    pub think_ns: u64,
    /// Time that passes in a turn, at most.
    pub turn_ns: u64,
    pub latency_ns: u64,
    pub slow: u32,
    pub slow_ns: u64,
    pub faults: Faults,
    /// Chances per million steps.
    pub crashes: u32,
    pub checks: u32,
    pub wall_jumps: u32,
    pub disconnects: u32,
    pub lazy_readers: u32,
    /// Weights of kinds of commands.
    pub expiring: u32,
    pub globals: u32,
    pub many: u32,
    pub hashes: u32,
    pub saves: u32,
}

fn one_of<T: Copy>(random: &mut SimRandom, values: &[T]) -> T {
    values[random.below(values.len())]
}

impl Options {
    pub fn draw(random: &mut SimRandom) -> Options {
        let large = random.below(4) == 0;
        let durabilities = [Durability::Received, Durability::Written, Durability::Synced];
        Options {
            devices: one_of(random, &[1, 1, 2, 3]),
            segments: one_of(random, &[17, 18, 20, 24]),
            sector_size: one_of(random, &[512, 4096]),
            volatile_cache: random.below(3) > 0,
            cores: 1 + random.below(CORES_MAX),
            durability: one_of(random, &durabilities),
            flush_max_ms: one_of(random, &[1, 5, 50, 300]),
            flush_size_bytes: one_of(random, &[4 << 10, 32 << 10, 128 << 10, 1 << 20]),
            buffers: one_of(random, &[2, 3, 4]),
            clients: 1 + random.below(6),
            groups: 1 + random.below(6),
            depth: one_of(random, &[1, 1, 2, 5]),
            chunk_bytes: one_of(random, &[1 << 20, 1 << 20, 512, if large { 4096 } else { 3 }]),
            value_bytes: if large {
                one_of(random, &[64 << 10, 300 << 10, 2 << 20])
            } else {
                one_of(random, &[16, 200, 5000])
            },
            think_ns: one_of(random, &[20_000, 200_000, 3_000_000]),
            turn_ns: one_of(random, &[2_000, 20_000]),
            latency_ns: one_of(random, &[20_000, 100_000, 1_000_000]),
            slow: one_of(random, &[0, 0, 1_000, 100_000]),
            slow_ns: one_of(random, &[5_000_000, 100_000_000]),
            faults: draw_faults(random),
            crashes: one_of(random, &[0, 100, 400, 1500]),
            checks: one_of(random, &[50, 300]),
            wall_jumps: one_of(random, &[0, 0, 500]),
            disconnects: one_of(random, &[0, 0, 1000]),
            lazy_readers: one_of(random, &[0, 0, 2000]),
            expiring: one_of(random, &[0, 1, 5]),
            globals: one_of(random, &[0, 1, 3]),
            many: one_of(random, &[0, 4, 12]),
            hashes: one_of(random, &[0, 4, 10]),
            saves: one_of(random, &[0, 1]),
        }
    }

    pub fn geometry(&self) -> Vec<Geometry> {
        let device = |number| Geometry {
            name: format!("sim{number}"),
            size_bytes: self.segments * SEGMENT_SIZE_BYTES,
            sector_size: self.sector_size,
            volatile_cache: self.volatile_cache,
        };
        (0..self.devices).map(device).collect()
    }

    pub fn config(&self) -> Config {
        let mut config = Config::default();
        config.persistence.durability = self.durability;
        config.persistence.flush_max_ms = self.flush_max_ms;
        config.persistence.flush_size_bytes = self.flush_size_bytes;
        config
    }

    pub fn timing(&self, clock: &SimClock) -> Timing {
        Timing {
            clock: clock.clone(),
            least_ns: self.latency_ns / 4,
            most_ns: self.latency_ns,
            slow: self.slow,
            slow_ns: self.slow_ns,
        }
    }

    /// What a request and the wait for a turn may add to a promise made in milliseconds.
    pub fn margin_ns(&self) -> u64 {
        let request = if self.slow > 0 { self.slow_ns } else { self.latency_ns };
        20_000_000 + 12 * request.max(self.latency_ns) + 100 * self.turn_ns
    }
}

fn draw_faults(random: &mut SimRandom) -> Faults {
    let mut faults = Faults::default();
    if random.below(4) == 0 {
        faults.read_error = one_of(random, &[500, 20_000]);
    }
    if random.below(6) == 0 {
        faults.write_error = one_of(random, &[100, 2_000]);
        faults.flush_error = one_of(random, &[0, 2_000]);
    }
    if random.below(6) == 0 {
        let often = one_of(random, &[200, 2_000]);
        for chance in [
            &mut faults.flipped_write,
            &mut faults.flipped_read,
            &mut faults.lost_write,
            &mut faults.misdirected_write,
        ] {
            *chance = if random.below(2) == 0 { often } else { 0 };
        }
    }
    faults
}
