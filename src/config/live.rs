//! Settings at run time: what CONFIG GET shows and CONFIG SET changes, and how a core follows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::sections::{Config, Durability, Maintenance};
use super::system::System;

/// The settings in force.
///
/// Changes are rare and reading is not: a core compares [`generation`](Live::generation) with
/// the one that it knows once a turn, and takes a new [`snapshot`](Live::snapshot) only when
/// they differ.
#[derive(Debug)]
pub struct Live {
    config: Mutex<Config>,
    generation: AtomicU64,
    memory_bytes: u64,
}

/// What cores need of the settings, resolved: no zero that means "automatic" is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub durability: Durability,
    pub flush_max_ms: u64,
    pub flush_size_bytes: u64,
    pub shutdown_checkpoint: bool,
    pub foreground_budget_us: u64,
    pub background_budget_us: u64,
    pub background_warrant_percent: u32,
    pub spdk_max_completions_per_poll: u32,
    pub maintenance: Maintenance,
    pub maxclients: u32,
    /// 0 = never.
    pub idle_timeout_ms: u64,
    pub tcp_keepalive_s: u32,
    pub maxmemory_bytes: u64,
    /// Bytes of all query and reply buffers together; 0 = no limit.
    pub maxmemory_clients_bytes: u64,
    pub client_query_buffer_limit_bytes: u64,
    pub slowlog_log_slower_than_us: i64,
    pub slowlog_max_len: u64,
    /// A new connection has to authenticate first.
    pub password_required: bool,
}

impl Settings {
    /// `memory_bytes` is [`System::memory_bytes`].
    pub fn of(config: &Config, memory_bytes: u64) -> Settings {
        let maxmemory_bytes = config.memory.limit_bytes(memory_bytes);
        Settings {
            durability: config.persistence.durability,
            flush_max_ms: config.persistence.flush_max_ms,
            flush_size_bytes: config.persistence.flush_size_bytes,
            shutdown_checkpoint: config.persistence.shutdown_checkpoint,
            foreground_budget_us: config.threads.foreground_budget_us,
            background_budget_us: config.threads.background_budget_us,
            background_warrant_percent: config.threads.background_warrant_percent,
            spdk_max_completions_per_poll: config.storage.spdk_max_completions_per_poll,
            maintenance: config.maintenance.clone(),
            maxclients: config.net.maxclients,
            idle_timeout_ms: config.net.idle_timeout_ms,
            tcp_keepalive_s: config.net.tcp_keepalive_s,
            maxmemory_bytes,
            maxmemory_clients_bytes: config.memory.maxmemory_clients.bytes(maxmemory_bytes),
            client_query_buffer_limit_bytes: config.memory.client_query_buffer_limit_bytes,
            slowlog_log_slower_than_us: config.slowlog.log_slower_than_us,
            slowlog_max_len: config.slowlog.max_len,
            password_required: !config.access.requirepass.is_empty(),
        }
    }
}

impl Default for Live {
    /// Default settings on a machine of one CPU and 1 GiB: for tests.
    fn default() -> Live {
        Live::new(Config::default(), &System { cpus_allowed: vec![0], memory_bytes: 1 << 30 })
    }
}

impl Live {
    pub fn new(config: Config, system: &System) -> Live {
        let generation = AtomicU64::new(1);
        Live { config: Mutex::new(config), generation, memory_bytes: system.memory_bytes }
    }

    /// Changes whenever a setting has changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The values in force. Read [`generation`](Live::generation) *before*: then a change in
    /// between costs one snapshot more instead of being missed.
    pub fn snapshot(&self) -> Settings {
        Settings::of(&self.lock(), self.memory_bytes)
    }

    /// A copy of the whole configuration.
    pub fn config(&self) -> Config {
        self.lock().clone()
    }

    /// Whether `given` is the password of the default user. Takes the same time for every wrong
    /// password of the same length.
    pub fn password_is(&self, given: &[u8]) -> bool {
        let config = self.lock();
        let wanted = config.access.requirepass.as_bytes();
        let differing = wanted.iter().zip(given).fold(0, |acc, (a, b)| acc | (a ^ b));
        wanted.len() == given.len() && differing == 0
    }

    /// A panic while the lock was held cannot have left half a change: [`Live::set`] replaces
    /// the configuration in one assignment.
    fn lock(&self) -> MutexGuard<'_, Config> {
        self.config.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
