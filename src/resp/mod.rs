//! The Redis serialization protocol, versions 2 and 3: requests in, replies out. Imports nothing
//! of the rest of the system.

mod args;
mod parse;
mod reply;
mod words;

pub use args::{Args, Span};
pub use parse::{BeforeAuth, Limits, ParseState, Parsed, Parser, ProtocolError};
pub use reply::{Proto, Reply, double_string};
