//! Simulated devices, time and network, a rig of shards, and the simulator of the whole server.

pub mod clock;
pub mod disk;
pub mod faults;
pub mod net;
#[cfg(test)]
pub mod rig;
pub mod sim;
