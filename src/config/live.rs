//! Settings at run time: what CONFIG GET shows and CONFIG SET changes, and how a core follows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::options::{self, Change, Opt};
use super::rewrite;
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
    system: System,
}

/// Why CONFIG SET has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetError {
    /// No option has this name.
    Unknown(String),
    /// The value of this option is the trouble, and why.
    Rejected { option: String, reason: String },
}

/// Why CONFIG REWRITE has changed nothing.
#[derive(Debug)]
pub enum RewriteError {
    NoFile,
    Io(std::io::Error),
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
        Live { config: Mutex::new(config), generation, system: system.clone() }
    }

    /// Changes whenever a setting has changed.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The values in force. Read [`generation`](Live::generation) *before*: then a change in
    /// between costs one snapshot more instead of being missed.
    pub fn snapshot(&self) -> Settings {
        Settings::of(&self.lock(), self.system.memory_bytes)
    }

    /// A copy of the whole configuration.
    pub fn config(&self) -> Config {
        self.lock().clone()
    }

    /// The value of one option as CONFIG GET shows it.
    pub fn get(&self, name: &str) -> Option<String> {
        options::find(name).map(|opt| opt.show(&self.lock()))
    }

    /// Sets all of these options or, on an error, none.
    pub fn set(&self, changes: &[(&str, &str)]) -> Result<(), SetError> {
        let mut seen: Vec<&'static Opt> = Vec::new();
        for (name, _) in changes {
            let opt = options::find(name).ok_or_else(|| SetError::Unknown(name.to_string()))?;
            let reason = refusal(opt, &seen);
            reason.map_or(Ok(()), |reason| Err(rejected(name, reason)))?;
            seen.push(opt);
        }
        let mut config = self.lock();
        let mut wanted = config.clone();
        for (opt, (name, text)) in seen.iter().zip(changes) {
            opt.set_text(&mut wanted, text).map_err(|reason| rejected(name, &reason))?;
        }
        if let Some(fault) = wanted.validate(&self.system).first() {
            return Err(rejected(fault.option, &fault.text));
        }
        log::set_max_level(wanted.logging.level.filter());
        *config = wanted;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Makes the config file say what is in force.
    pub fn rewrite(&self) -> Result<(), RewriteError> {
        let config = self.config();
        let path = config.file.as_ref().ok_or(RewriteError::NoFile)?;
        rewrite::rewrite(path, &config).map_err(RewriteError::Io)
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

/// Why an option cannot be set at run time, after those in `seen`.
fn refusal(opt: &'static Opt, seen: &[&'static Opt]) -> Option<&'static str> {
    match opt.change {
        Change::Start => Some("can't set immutable config"),
        Change::Protected => Some("can't set protected config"),
        Change::Live if seen.iter().any(|&s| std::ptr::eq(s, opt)) => Some("duplicate parameter"),
        Change::Live => None,
    }
}

fn rejected(option: &str, reason: &str) -> SetError {
    SetError::Rejected { option: option.to_string(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::config;
    use super::{Live, SetError};
    use crate::config::{Durability, System};

    #[test]
    fn a_change_moves_the_generation_and_the_snapshot() {
        let live = Live::default();
        let before = live.generation();
        assert_eq!(live.snapshot().durability, Durability::Received);
        live.set(&[("durability", "written"), ("flush-max-ms", "7")]).expect("set");
        assert_ne!(live.generation(), before);
        let settings = live.snapshot();
        assert_eq!((settings.durability, settings.flush_max_ms), (Durability::Written, 7));
    }

    #[test]
    fn all_or_nothing() {
        let live = Live::default();
        let before = (live.generation(), live.config());
        let error = live.set(&[("maxclients", "5"), ("flush-max-ms", "0")]);
        let reason = "argument must be between 1 and 3600000 inclusive".into();
        assert_eq!(error, Err(SetError::Rejected { option: "flush-max-ms".into(), reason }));
        let error = live.set(&[("maxclients", "5"), ("nosuch", "0")]);
        assert_eq!(error, Err(SetError::Unknown("nosuch".into())));
        assert_eq!((live.generation(), live.config()), before);
    }

    #[test]
    fn automatic_values_are_resolved() {
        let system = System { cpus_allowed: vec![0], memory_bytes: 1000 };
        let settings = |line: &str| Live::new(config(line), &system).snapshot();
        let default = settings("");
        assert_eq!(default.maxmemory_bytes, 800);
        assert_eq!(default.maxmemory_clients_bytes, 40);
        let given = settings("--maxmemory 2000 --maxmemory-clients 0 --requirepass x -i 5");
        assert_eq!((given.maxmemory_bytes, given.maxmemory_clients_bytes), (2000, 0));
        assert!(given.password_required && !default.password_required);
        assert_eq!((given.idle_timeout_ms, default.idle_timeout_ms), (5, 0));
    }

    #[test]
    fn passwords() {
        let live = Live::default();
        assert!(live.password_is(b"") && !live.password_is(b"x"));
        live.set(&[("requirepass", "secret")]).expect("set");
        assert!(live.password_is(b"secret"));
        for wrong in [&b""[..], b"secre", b"secrex", b"secret1"] {
            assert!(!live.password_is(wrong));
        }
    }
}
