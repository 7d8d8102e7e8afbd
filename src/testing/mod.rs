//! Simulated parts for tests and for the simulator.

pub mod disk;
#[cfg(test)]
pub mod rig;
