//! Lavik: a Redis-compatible server for data larger than memory.
//!
//! ```text
//!  client --TCP--> net --bytes--> resp --Args--> command --> shard --> disk --> NVMe
//!                   ^                            pure code   index+log
//!                   '------------- reply queue <---------------'
//! ```
//!
//! One thread per core runs [`reactor`]'s loop alone: clock, device completions, mesh, network,
//! maintenance, one submit, park. A core owns its memory, its sockets, its rings and the keys
//! that hash to it; cores talk through [`mesh`]. docs/ARCHITECTURE.md is the tour.

#![deny(unsafe_code)]

pub mod clock;
pub mod command;
pub mod config;
pub mod disk;
pub mod driver;
pub mod limits;
pub mod logging;
#[allow(unsafe_code)]
pub mod mem;
#[allow(unsafe_code)]
pub mod mesh;
pub mod metrics;
pub mod net;
pub mod reactor;
pub mod resp;
#[allow(unsafe_code)]
pub mod ring;
pub mod server;
pub mod shard;
pub mod stats;
pub mod testing;
