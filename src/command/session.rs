//! Commands on the connection and the server: they touch no keys.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::clock::Now;
use crate::command::global::Global;
use crate::resp::{Args, Proto, Reply};

/// What a connection has said about itself, and how it wants to be served.
#[derive(Clone, Debug)]
pub struct Session {
    /// Unique among all connections of the process, from 1.
    pub id: u64,
    pub db: u8,
    pub proto: Proto,
    pub authenticated: bool,
    pub reply_mode: ReplyMode,
    pub name: Vec<u8>,
    pub lib_name: Vec<u8>,
    pub lib_ver: Vec<u8>,
    /// `ip:port` of the client and of our end.
    pub addr: String,
    pub local_addr: String,
    pub created_ms: u64,
    /// Time and lower-case name of the last command, `client|list` for a subcommand.
    pub last_active_ms: u64,
    pub last_command: &'static str,
    pub no_evict: bool,
    pub no_touch: bool,
    /// Core that serves the connection.
    pub core: u16,
    pub fd: i32,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    On,
    Off,
    /// Drop the reply of the next command, then `On`.
    SkipNext,
}

/// What the driver does after a session command's function has returned. Whatever the function
/// wrote to its reply is sent first.
#[derive(Debug, PartialEq, Eq)]
pub enum After {
    Nothing,
    /// Close the connection once its replies are sent.
    Close,
    /// The reply is to be made by every core together; nothing was written.
    Gather(Gather),
    /// The function turned into a keyspace request.
    Global(Global),
    /// Write everything to the devices; reply `+OK` when that is done (SAVE), or at once when
    /// the text is given (BGSAVE).
    Save {
        reply_now: bool,
    },
    /// Stop the server; when `save` is false even unwritten data may be left behind.
    Shutdown {
        save: bool,
    },
}

/// A question to the connections of all cores; the answers are put together by the asking core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gather {
    /// CLIENT LIST with its filters.
    ClientList(ClientFilter),
    /// CLIENT KILL; `old_form` replies `+OK` or an error instead of a count.
    ClientKill { filter: ClientFilter, old_form: bool },
}

/// Which connections are meant. An empty filter means all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    pub ids: Option<Vec<u64>>,
    pub addr: Option<Vec<u8>>,
    pub local_addr: Option<Vec<u8>>,
    pub user: Option<Vec<u8>>,
    /// `normal`, `master`, `replica`, `pubsub`.
    pub kind: Option<Vec<u8>>,
    /// Skip the connection that asks.
    pub skip_me: bool,
    pub max_age_s: Option<u64>,
}

/// What all cores share: settings, identity and counters.
#[derive(Debug)]
pub struct Server {
    pub config: Arc<crate::config::Live>,
    /// 40 hexadecimal digits, new at every start.
    pub run_id: String,
    pub started_ms: u64,
    pub next_client_id: AtomicU64,
    /// One block of counters per core.
    pub stats: Vec<Arc<crate::stats::CoreStats>>,
}

/// What a session command works with.
#[derive(Debug)]
pub struct SessionContext<'a> {
    pub args: Args<'a>,
    pub session: &'a mut Session,
    pub server: &'a Server,
    pub now: Now,
    pub reply: Reply<'a>,
}
