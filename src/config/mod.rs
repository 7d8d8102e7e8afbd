//! Settings: one table of options feeds flags, config file, CONFIG GET/SET and `--help`.

mod live;
mod sections;
mod system;
pub mod value;

pub use live::{Live, Settings};
pub use sections::{
    Access, Bypass, Config, Durability, LogLevel, Logging, Maintenance, Memory, Metrics, Net,
    NetBackend, Persistence, RxSteering, Slowlog, Storage, StorageBackend, Threads, TlsAuthClients,
};
pub use system::System;
