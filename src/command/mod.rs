//! Commands: a table of what they are called and take, and one file per family of functions.
//!
//! A [`Keyed`](Handler::Keyed) command is a pure function over its arguments and a
//! [`View`](crate::shard::view::View); see there how it meets data that is not in memory. A
//! [`Session`](Handler::Session) command concerns its connection or the server, not keys. A
//! [`Global`](Handler::Global) command concerns the keyspace of every core; its function only
//! parses the arguments into a [`Global`](global::Global), which the reactors carry out.

pub mod category;
pub mod client;
pub mod config;
pub mod connection;
pub mod counter;
pub mod distinct;
pub mod errors;
pub mod expire;
pub mod float;
pub mod glob;
pub mod global;
pub mod hash;
mod hash_random;
mod hash_scan;
pub mod hash_value;
pub mod info;
pub mod introspect;
pub mod key;
pub mod key_spec;
pub mod lcs;
pub mod maintenance;
mod natural;
pub mod number;
mod process;
pub mod profile;
pub mod server;
pub mod session;
pub mod string;
pub mod substring;
pub mod table;
#[cfg(test)]
pub mod testing;
pub mod wait;

use crate::resp::{Args, Reply};
use crate::shard::view::{Stop, View};

/// What a keyed command works with.
#[derive(Debug)]
pub struct Context<'a, 'r> {
    /// Name and arguments; the arity has been checked.
    pub args: Args<'a>,
    /// The keys that the table's key spec finds in `args`, in that order.
    pub view: View<'a>,
    /// Where the reply goes. What was written is taken back when the command stops early.
    pub reply: Reply<'r>,
}

pub type KeyedFn = fn(&mut Context<'_, '_>) -> Result<(), Stop>;
pub type SessionFn = fn(&mut session::SessionContext<'_>) -> session::After;
pub type GlobalFn = fn(Args<'_>) -> Result<global::Global, Stop>;

#[derive(Clone, Copy, Debug)]
pub enum Handler {
    Keyed(KeyedFn),
    Session(SessionFn),
    Global(GlobalFn),
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    None,
    /// From argument `first` to argument `last` (negative counts from the end, -1 is the last),
    /// every `step`-th.
    Range {
        first: u8,
        last: i8,
        step: u8,
    },
}

impl Keys {
    /// Positions of the keys among `count` arguments.
    pub fn positions(&self, count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, end, step) = match *self {
            Keys::None => (0, 0, 1),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { count as i64 + i64::from(last) } else { i64::from(last) };
                (first as usize, (last + 1).clamp(0, count as i64) as usize, step as usize)
            }
        };
        (first..end.max(first)).step_by(step)
    }
}

/// Flags of a command as COMMAND INFO shows them.
pub mod flag {
    pub const WRITE: u32 = 1 << 0;
    pub const READONLY: u32 = 1 << 1;
    /// May need more memory or space; refused when there is none.
    pub const DENYOOM: u32 = 1 << 2;
    pub const ADMIN: u32 = 1 << 3;
    pub const FAST: u32 = 1 << 4;
    pub const NOSCRIPT: u32 = 1 << 5;
    pub const LOADING: u32 = 1 << 6;
    pub const STALE: u32 = 1 << 7;
    /// May be sent before AUTH.
    pub const NO_AUTH: u32 = 1 << 8;
    pub const SKIP_MONITOR: u32 = 1 << 9;
    pub const NO_MULTI: u32 = 1 << 10;
    pub const ALLOW_BUSY: u32 = 1 << 11;
    pub const PUBSUB: u32 = 1 << 12;
    pub const BLOCKING: u32 = 1 << 13;
    pub const MOVABLEKEYS: u32 = 1 << 14;
    pub const SKIP_SLOWLOG: u32 = 1 << 15;
    /// Names a key of another database (COPY, MOVE): [`keys_across`](super::key::keys_across)
    /// tells the keys instead of the key spec. COMMAND INFO does not show this flag.
    pub const OTHER_DB: u32 = 1 << 31;
}

/// One row of the table.
#[derive(Debug)]
pub struct Command {
    /// Lower case.
    pub name: &'static str,
    /// Number of arguments with the name; negative: at least that many.
    pub arity: i16,
    pub flags: u32,
    pub keys: Keys,
    pub handler: Handler,
    /// For COMMAND DOCS: one sentence, the group (`string`, `hash`, ...), the Redis version that
    /// brought it, and its cost.
    pub summary: &'static str,
    pub group: &'static str,
    pub since: &'static str,
    pub complexity: &'static str,
}

impl Command {
    /// Whether `count` arguments (with the name) are acceptable.
    pub fn takes(&self, count: usize) -> bool {
        let count = count as i64;
        let arity = i64::from(self.arity);
        if arity >= 0 { count == arity } else { count >= -arity }
    }

    pub fn is(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Positions of the keys among `count` arguments.
    pub fn key_positions(&self, count: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        self.keys.positions(count)
    }
}
