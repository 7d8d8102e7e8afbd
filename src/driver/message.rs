//! What cores say to each other.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::conn::Seq;
use super::stream::Ask;
use crate::command::Command;
use crate::command::session::Gather;
use crate::mem::Ticket;
use crate::net::SocketId;
use crate::resp::{Args, Proto, Span};
use crate::shard::Lsn;
use crate::shard::parts::Chain;
use crate::shard::view::{Kind, Meta};

/// A command in memory of its own.
#[derive(Debug, Default)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub spans: Vec<Span>,
    /// The buffer that a large command came in, instead of `bytes`.
    pub shared: Option<Arc<Vec<u8>>>,
}

impl Packet {
    /// Fills the packet with a copy of `args`.
    pub fn fill(&mut self, args: Args<'_>) {
        self.bytes.clear();
        self.spans.clear();
        for arg in args.iter() {
            let start = self.bytes.len() as u32;
            self.bytes.extend_from_slice(arg);
            self.spans.push((start, self.bytes.len() as u32));
        }
    }

    /// Takes over `args`, which lie in `buffer`.
    pub fn share(&mut self, args: Args<'_>, buffer: &Arc<Vec<u8>>) {
        self.spans.clear();
        self.spans.extend(args.spans_in(buffer));
        self.shared = Some(Arc::clone(buffer));
    }

    pub fn args(&self) -> Args<'_> {
        Args::new(self.shared.as_deref().unwrap_or(&self.bytes), &self.spans)
    }

    /// Memory that did not come from the core's own spare packets, in bytes.
    pub fn shared_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, |shared| shared.capacity())
    }
}

/// Where a reply goes: a place in the reply order of a connection of some core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    pub core: u16,
    pub conn: SocketId,
    pub seq: Seq,
    /// What the connection counts against its limit until the reply is there, in bytes.
    pub expected: u32,
}

/// An operation that waits on some core for answers of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    pub core: u16,
    pub task: Ticket,
}

/// What a home core tells of one of its keys.
#[derive(Debug, Default)]
pub struct KeyData {
    pub meta: Option<Meta>,
    /// The value, when it was asked for.
    pub value: Option<Vec<u8>>,
}

/// What an operation does to one key of another core.
#[derive(Debug)]
pub enum KeyWrite {
    Keep,
    Put { kind: Kind, value: Vec<u8>, expire_at_ms: Option<u64> },
    Delete,
}

/// A step of an operation over several cores; answers carry the [`Asker`]'s task.
#[derive(Debug)]
pub enum Message {
    /// A connection for the receiving core to serve.
    Adopt(OwnedFd),
    /// A command all of whose keys live on the receiving core.
    Command {
        origin: Origin,
        command: &'static Command,
        db: u8,
        proto: Proto,
        packet: Packet,
    },
    /// The reply to a `Command`.
    Reply {
        conn: SocketId,
        seq: Seq,
        expected: u32,
        bytes: Vec<u8>,
    },
    /// The reply to a `Command` comes in parts, which are asked for.
    Stream {
        conn: SocketId,
        seq: Seq,
        expected: u32,
        home: u16,
        chain: Chain,
    },
    ReadPart(Ask),
    Part {
        conn: SocketId,
        seq: Seq,
        part: Result<Vec<u8>, String>,
    },
    /// No more parts of the chain are asked for.
    Unpin {
        chain: Chain,
    },
    /// Take intents on `keys` (database, name) and tell what is known of them.
    Lock {
        asker: Asker,
        part: u16,
        exclusive: bool,
        /// The command may write more than it deletes: refuse it while there is no room.
        grows: bool,
        now_ms: u64,
        keys: Vec<(u8, Vec<u8>)>,
    },
    Locked {
        task: Ticket,
        part: u16,
        hold: Ticket,
        keys: Result<Vec<KeyData>, String>,
    },
    /// Read the values of all held keys that exist.
    Load {
        hold: Ticket,
    },
    Loaded {
        task: Ticket,
        part: u16,
        keys: Result<Vec<KeyData>, String>,
    },
    /// Write as one unit and let go of the keys.
    Commit {
        hold: Ticket,
        writes: Vec<KeyWrite>,
    },
    Committed {
        task: Ticket,
        result: Result<(), String>,
    },
    /// Visit part of the keyspace of one database.
    Walk {
        asker: Asker,
        walk: Walk,
    },
    Walked {
        task: Ticket,
        result: Result<Walked, String>,
    },
    /// Ask the receiving core's connections.
    Ask {
        asker: Asker,
        gather: Gather,
        conn: u64,
    },
    Answer {
        task: Ticket,
        text: String,
        count: u64,
    },
    /// Stop starting commands, finish those begun, then report.
    Freeze {
        asker: Asker,
    },
    Frozen,
    /// Carry out the change for which all cores were frozen (none if it failed).
    Thaw {
        change: Option<Change>,
        horizon: Lsn,
    },
    Thawed,
    /// All cores have carried it out: go on.
    Resume,
    /// Write everything to the devices.
    Sync {
        asker: Asker,
    },
    Synced {
        task: Ticket,
        result: Result<(), String>,
    },
    /// Ask core 0 for a change of the whole keyspace.
    Request {
        asker: Asker,
        change: Change,
    },
    Done {
        task: Ticket,
        result: Result<(), String>,
    },
}

/// A change that happens on all cores at one moment. Databases are logical.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    FlushDb { db: u8 },
    FlushAll,
    Swap { a: u8, b: u8 },
}

/// A visit to keys of one logical database on one core.
#[derive(Clone, Debug)]
pub struct Walk {
    pub db: u8,
    pub cursor: u64,
    /// About how many keys to visit.
    pub count: usize,
    pub kind: Option<Kind>,
    /// Keys that are named must match this pattern.
    pub pattern: Option<Vec<u8>>,
    /// One random key instead of the next ones.
    pub random: Option<u64>,
    pub now_ms: u64,
}

#[derive(Debug, Default)]
pub struct Walked {
    /// Where to go on; 0 at the end.
    pub cursor: u64,
    pub keys: Vec<Vec<u8>>,
}
