//! The Redis serialization protocol, versions 2 and 3: requests in, replies out. Imports nothing
//! of the rest of the system.

mod args;
mod reply;

pub use args::Args;
pub use reply::{Proto, Reply};
