//! The simulator: the real cores (reactor, driver, commands, shard, mesh) over simulated devices,
//! time and clients, all on one thread, in an order that a seed chooses. A checker compares every
//! reply with what the commands allow, and every restart with what was promised to be durable.
//!
//! ```text
//!   seed ──▶ Options                  what this simulation is like
//!        └─▶ World ── step ──▶ Machine   a turn of a core: reactor, driver, shard
//!              │        └────▶ Client    an act of a client: send, read
//!              ├─ incident: crash, stop, restart, clock     SimDisk, SimClock, SimWires
//!              └─ Group: which states of some keys are possible
//! ```
//!
//! The same seed gives the same run: nothing here reads a clock or draws from the system. What
//! happened is summed up in a hash, and two runs of a seed are compared by it.

mod audit;
mod client;
mod group;
mod incident;
mod machine;
mod model;
mod options;
mod reply;
#[cfg(test)]
mod tests;
mod trace;
mod workload;
mod world;

pub use trace::Sink;
pub use world::Counts;
use world::World;

/// How a simulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Of everything that happened.
    pub hash: u64,
    pub steps: u64,
    pub counts: Counts,
    /// What is wrong with the server, if something is.
    pub fault: Option<String>,
}

/// Runs the simulation of a seed for so many steps. `sink` takes the lines of its trace.
pub fn simulate(seed: u64, steps: u64, sink: Option<Sink>) -> Report {
    let mut world = match World::new(seed, sink) {
        Ok(world) => world,
        Err(text) => {
            let fault = Some(format!("the simulator does not start: {text}"));
            return Report { hash: 0, steps: 0, counts: Counts::default(), fault };
        }
    };
    let fault = world.run(steps).err();
    Report { hash: world.hash(), steps: world.steps(), counts: world.counts(), fault }
}

/// What the simulation of a seed is like, in one line.
pub fn describe(seed: u64) -> String {
    World::new(seed, None).map_or_else(|text| text, |world| format!("{:?}", world.options()))
}
