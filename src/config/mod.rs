//! Settings: one table of options feeds flags, config file, CONFIG GET/SET and `--help`.
//!
//! ```text
//!  file < environment < flags --load--> Config --validate--> Live <--CONFIG GET/SET-- client
//!                          ^                                  |
//!                options: table + compat                      '--snapshot--> Settings (a core)
//! ```
//!
//! To add an option: a field in [`sections`], a row in [`table`], an entry in
//! docs/OPERATIONS.md; if cores follow it at run time, a field in [`Settings`].

mod banner;
mod check;
mod compat;
mod file;
mod help;
mod live;
mod load;
pub mod options;
mod rewrite;
mod sections;
mod system;
mod table;
pub mod value;

pub use check::Fault;
pub use live::{Live, RewriteError, SetError, Settings};
pub use load::{Start, load};
pub use sections::{
    Access, Bypass, Config, Durability, LogLevel, Logging, Maintenance, Memory, Metrics, Net,
    NetBackend, Persistence, RxSteering, Slowlog, Storage, StorageBackend, Threads, TlsAuthClients,
};
pub use system::System;

/// Version of the package, `MAJOR.MINOR.PATCH`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that was built; `dev` in builds that are not releases.
pub const REVISION: &str = env!("LAVIK_REVISION");

#[cfg(test)]
mod docs_tests;
