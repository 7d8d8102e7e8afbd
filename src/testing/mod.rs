//! Simulated parts for tests and for the simulator.

pub mod disk;
