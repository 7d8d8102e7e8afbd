//! Commands on the keyspace of every core. Here only their arguments are parsed; the reactors
//! carry them out.

use crate::shard::view::Kind;

/// A request to all cores (SCAN: to one core at a time).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Global {
    DbSize,
    Keys { pattern: Vec<u8> },
    RandomKey,
    Scan { cursor: u64, count: usize, pattern: Option<Vec<u8>>, kind: ScanKind },
    FlushDb,
    FlushAll,
    SwapDb { a: u8, b: u8 },
}

/// The TYPE filter of SCAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    Any,
    Only(Kind),
    /// A type name that no key can have.
    Nothing,
}
