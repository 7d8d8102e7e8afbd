//! Commands on the connection and the server: they touch no keys.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::clock::Now;
use crate::command::global::Global;
use crate::command::wait::Fence;
use crate::limits;
use crate::resp::{Args, BeforeAuth, Limits, Proto, Reply};
use crate::stats::{CoreStats, Counter, DeviceHealth, Gauge, SpaceStats};

/// What a connection has said about itself, and how it wants to be served.
#[derive(Clone, Debug)]
pub struct Session {
    /// Unique among all connections of the process, from 1.
    pub id: u64,
    pub db: u8,
    pub proto: Proto,
    /// Has given the password, or came when none was needed.
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

impl Session {
    /// A connection that has just been accepted; the caller adds `core` and `fd`.
    pub fn new(id: u64, addr: String, local_addr: String, now_ms: u64, trusted: bool) -> Session {
        Session {
            id,
            db: 0,
            proto: Proto::Resp2,
            authenticated: trusted,
            reply_mode: ReplyMode::On,
            name: Vec::new(),
            lib_name: Vec::new(),
            lib_ver: Vec::new(),
            addr,
            local_addr,
            created_ms: now_ms,
            last_active_ms: now_ms,
            last_command: "",
            no_evict: false,
            no_touch: false,
            core: 0,
            fd: -1,
        }
    }

    /// Whether commands without [`NO_AUTH`](super::flag::NO_AUTH) are to be refused.
    /// `password_required` is the setting in force: without a password everyone is in.
    pub fn must_authenticate(&self, password_required: bool) -> bool {
        password_required && !self.authenticated
    }

    /// What the connection may send.
    pub fn limits(&self, password_required: bool) -> &'static Limits {
        if self.must_authenticate(password_required) { &STRANGER } else { &KNOWN }
    }

    /// RESET: as new, except for what identifies the connection and its client's library.
    pub fn reset(&mut self, password_required: bool) {
        self.db = 0;
        self.proto = Proto::Resp2;
        self.authenticated = !password_required;
        self.name.clear();
        self.no_evict = false;
        self.no_touch = false;
        if self.reply_mode != ReplyMode::SkipThis {
            self.reply_mode = ReplyMode::On;
        }
    }

    /// To be called before each command, and before the reply to bytes that are none.
    pub fn begin_command(&mut self) {
        if self.reply_mode == ReplyMode::SkipNext {
            self.reply_mode = ReplyMode::SkipThis;
        }
    }

    /// To be called once a session command has run, or another has been started: whether its
    /// reply is sent.
    pub fn end_command(&mut self) -> bool {
        match self.reply_mode {
            ReplyMode::On | ReplyMode::SkipNext => true,
            ReplyMode::Off => false,
            ReplyMode::SkipThis => {
                self.reply_mode = ReplyMode::On;
                false
            }
        }
    }
}

const KNOWN: Limits = Limits {
    args_max: limits::ARGS_MAX,
    bulk_len_max: limits::BULK_LEN_MAX,
    line_len_max: limits::LINE_LEN_MAX,
    before_auth: None,
};

const STRANGER: Limits = Limits {
    before_auth: Some(BeforeAuth {
        args_max: limits::ARGS_MAX_UNAUTHENTICATED,
        bulk_len_max: limits::BULK_LEN_MAX_UNAUTHENTICATED,
    }),
    ..KNOWN
};

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    On,
    Off,
    /// Drop the reply of the next command, then `On`.
    SkipNext,
    /// Drop the reply of the command that is running, then `On`.
    SkipThis,
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
    /// Write everything to the devices; reply `+OK` when that is done (SAVE), or nothing more
    /// when the reply was written already (BGSAVE).
    Save {
        reply_now: bool,
    },
    /// Hold the connection until its earlier writes are safe; nothing was written.
    Fence(Fence),
    /// Stop the server; when `save` is false even unwritten data may be left behind. Without
    /// `force`, a failure to write cancels the stop with
    /// [`SHUTDOWN_FAILED`](super::errors::SHUTDOWN_FAILED).
    Shutdown {
        save: bool,
        force: bool,
    },
}

/// A question to the connections of all cores; the answers are put together by the asking core.
/// The functions that answer and put together are in [`client`](super::client).
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
    pub kind: Option<ClientKind>,
    /// Id of a connection that is not meant: the one that asks.
    pub except: Option<u64>,
    /// Only connections that are at least this old.
    pub min_age_s: Option<u64>,
}

/// The types of connections that CLIENT LIST and KILL tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    Normal,
    Master,
    Replica,
    PubSub,
}

/// What the buffers of a connection hold, for CLIENT LIST. All but the counts are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSizes {
    pub query: usize,
    pub query_free: usize,
    /// Arguments of a request that has not arrived as a whole.
    pub arguments: usize,
    /// Capacity of the reply buffer and what of it waits to be sent.
    pub reply_capacity: usize,
    pub reply: usize,
    /// Replies that do not fit there: how many pieces, and their bytes.
    pub queue_count: usize,
    pub queue: usize,
    /// Everything that the connection costs.
    pub total: usize,
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
    pub stats: Vec<Arc<CoreStats>>,
    pub space: SpaceStats,
    pub state: ServerState,
}

impl Server {
    pub fn new(
        config: Arc<crate::config::Live>,
        run_id: String,
        started_ms: u64,
        cores: usize,
    ) -> Server {
        let state = ServerState { last_save_ms: started_ms.into(), ..ServerState::default() };
        let stats = (0..cores).map(|_| Arc::default()).collect();
        let (next_client_id, space) = (AtomicU64::new(1), SpaceStats::default());
        Server { config, run_id, started_ms, next_client_id, stats, space, state }
    }

    /// Sum of a counter over the cores since CONFIG RESETSTAT.
    pub fn total(&self, counter: fn(&CoreStats) -> &Counter) -> u64 {
        self.stats.iter().map(|core| counter(core).since_reset()).sum()
    }

    /// Sum of a level over the cores. One core's part may be below zero for a moment, when
    /// another has counted what it takes away.
    pub fn level(&self, gauge: impl Fn(&CoreStats) -> &Gauge) -> u64 {
        let sum: i64 = self.stats.iter().map(|core| gauge(core).get()).sum();
        sum.max(0) as u64
    }

    /// Notes how many commands have been run by now. One core calls this about once a second;
    /// INFO shows the rate between the last two calls.
    pub fn sample_rate(&self, now_ms: u64) {
        let commands = self.stats.iter().map(|core| core.commands.get()).sum();
        let before_ms = self.state.sampled_ms.swap(now_ms, Ordering::Relaxed);
        let before = self.state.sampled_commands.swap(commands, Ordering::Relaxed);
        let elapsed_ms = now_ms.saturating_sub(before_ms);
        if before_ms > 0 && elapsed_ms > 0 {
            let rate = u128::from(commands.saturating_sub(before)) * 1000 / u128::from(elapsed_ms);
            self.state.commands_per_second.store(rate as u64, Ordering::Relaxed);
        }
    }
}

/// What the server is doing, for INFO and LASTSAVE. The control plane keeps it up to date.
#[derive(Debug, Default)]
pub struct ServerState {
    /// Recovery is not over; only commands with [`LOADING`](super::flag::LOADING) run.
    pub loading: AtomicBool,
    pub saving: AtomicBool,
    pub last_save_failed: AtomicBool,
    /// Unix time in milliseconds of the last save that succeeded, at first that of the start.
    pub last_save_ms: AtomicU64,
    sampled_ms: AtomicU64,
    sampled_commands: AtomicU64,
    pub commands_per_second: AtomicU64,
    /// Health of devices that are driven without the kernel; otherwise the kernel tells it.
    pub devices: OnceLock<Vec<DeviceHealth>>,
}

/// What a session command works with.
#[derive(Debug)]
pub struct SessionContext<'a> {
    pub args: Args<'a>,
    pub session: &'a mut Session,
    pub server: &'a Server,
    pub now: Now,
    /// Of the connection's buffers, for CLIENT INFO.
    pub sizes: ClientSizes,
    pub reply: Reply<'a>,
}

impl SessionContext<'_> {
    pub fn password_required(&self) -> bool {
        self.server.config.snapshot().password_required
    }
}

#[cfg(test)]
mod tests;
