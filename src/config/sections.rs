//! The settings, one struct per module that reads them. Defaults are those of an option that
//! nobody gave; [`options`](super::options) is the door through which values get in.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::value::{Bind, DataFile, MemoryShare};

/// Size in bytes of the `lavik.data` that a bare `lavik` creates.
pub const DEFAULT_DATA_FILE_SIZE_BYTES: u64 = 1 << 30;

/// Name of the data file when none is given.
pub const DEFAULT_DATA_FILE: &str = "lavik.data";

/// Everything that can be set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// The config file that was read, if any.
    pub file: Option<PathBuf>,
    pub net: Net,
    pub storage: Storage,
    pub threads: Threads,
    pub memory: Memory,
    pub persistence: Persistence,
    pub maintenance: Maintenance,
    pub logging: Logging,
    pub metrics: Metrics,
    pub access: Access,
    pub slowlog: Slowlog,
    pub bypass: Bypass,
    /// Parameters of Redis that have no effect here, as far as they were changed.
    pub compat: BTreeMap<&'static str, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetBackend {
    Kernel,
    Dpdk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageBackend {
    Uring,
    Spdk,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// In the log buffer; on the device within `flush-max-ms`.
    #[default]
    Received,
    /// The device has completed the write.
    Written,
    /// The device's cache has been flushed.
    Synced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxSteering {
    Hash,
    Rss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsAuthClients {
    No,
    Optional,
    Yes,
}

/// Listeners and connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Net {
    pub backend: NetBackend,
    pub bind: Vec<Bind>,
    /// 0: no plain TCP listener.
    pub port: u16,
    pub maxclients: u32,
    /// Close a connection that is silent for this long; 0 = never.
    pub idle_timeout_ms: u64,
    pub tcp_backlog: u32,
    /// Period of TCP keepalive probes in seconds; 0 = off.
    pub tcp_keepalive_s: u32,
}

impl Default for Net {
    fn default() -> Net {
        Net {
            backend: NetBackend::Kernel,
            bind: vec![Bind::required(IpAddr::V4(Ipv4Addr::LOCALHOST))],
            port: 6379,
            maxclients: 10_000,
            idle_timeout_ms: 0,
            tcp_backlog: 511,
            tcp_keepalive_s: 300,
        }
    }
}

impl Net {
    /// Addresses to listen on for clients, each with whether failing to do so may be ignored.
    /// Empty when the port is 0.
    pub fn listen_addresses(&self) -> Vec<(SocketAddr, bool)> {
        self.addresses(self.port)
    }

    fn addresses(&self, port: u16) -> Vec<(SocketAddr, bool)> {
        let binds = if port == 0 { &[][..] } else { &self.bind };
        binds.iter().map(|bind| (SocketAddr::new(bind.addr, port), bind.optional)).collect()
    }
}

/// Devices and the log's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    pub backend: StorageBackend,
    /// As given; [`devices`](Storage::devices) is what counts.
    pub data_files: Vec<DataFile>,
    /// As given; [`create_size_bytes`](Storage::create_size_bytes) is what counts.
    pub data_file_size_bytes: Option<u64>,
    /// Device read buffers of a core, in bytes.
    pub registered_buffer_bytes_per_worker: u64,
    /// Open and sealing segments of a core.
    pub write_buffers_per_worker: u32,
    pub spdk_max_completions_per_poll: u32,
    pub spdk_foreground_pre_poll_us: u64,
}

impl Default for Storage {
    fn default() -> Storage {
        Storage {
            backend: StorageBackend::Uring,
            data_files: Vec::new(),
            data_file_size_bytes: None,
            registered_buffer_bytes_per_worker: 64 << 20,
            write_buffers_per_worker: 4,
            spdk_max_completions_per_poll: 8,
            spdk_foreground_pre_poll_us: 5,
        }
    }
}

impl Storage {
    /// The complete device set.
    pub fn devices(&self) -> Vec<DataFile> {
        match self.data_files.is_empty() {
            true => vec![DataFile::Path(PathBuf::from(DEFAULT_DATA_FILE))],
            false => self.data_files.clone(),
        }
    }

    /// Size in bytes with which a missing regular file is created; `None`: it is an error.
    pub fn create_size_bytes(&self) -> Option<u64> {
        let bare = self.data_files.is_empty().then_some(DEFAULT_DATA_FILE_SIZE_BYTES);
        self.data_file_size_bytes.or(bare)
    }
}

/// Cores and how their time is shared out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Threads {
    /// As given; 0: one per CPU. [`plan`](Threads::plan) is what counts.
    pub threads: usize,
    /// As given; empty: the CPUs of the affinity mask.
    pub cpus: Vec<usize>,
    pub pin_workers: bool,
    /// Spin this long before parking.
    pub busy_poll_us: u64,
    pub foreground_budget_us: u64,
    pub background_budget_us: u64,
    /// Share of a core that maintenance is owed even when there is other work.
    pub background_warrant_percent: u32,
}

impl Default for Threads {
    fn default() -> Threads {
        Threads {
            threads: 0,
            cpus: Vec::new(),
            pin_workers: true,
            busy_poll_us: 20,
            foreground_budget_us: 1000,
            background_budget_us: 10,
            background_warrant_percent: 1,
        }
    }
}

impl Threads {
    /// One entry per core: the CPU to pin it to, or `None`. `allowed` is the affinity mask.
    pub fn plan(&self, allowed: &[usize]) -> Vec<Option<usize>> {
        let cpus = if self.cpus.is_empty() { allowed } else { &self.cpus };
        let count = match self.threads {
            0 => cpus.len().clamp(1, crate::limits::CORES_MAX),
            count => count,
        };
        let cpu_of = |core: usize| cpus.get(core).copied().filter(|_| self.pin_workers);
        (0..count).map(cpu_of).collect()
    }
}

/// Admission limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// 0: 80 % of what the host and the cgroup allow.
    pub maxmemory_bytes: u64,
    pub maxmemory_clients: MemoryShare,
    pub client_query_buffer_limit_bytes: u64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            maxmemory_bytes: 0,
            maxmemory_clients: MemoryShare::Percent(5),
            client_query_buffer_limit_bytes: 1 << 30,
        }
    }
}

impl Memory {
    /// The limit in bytes; `memory_bytes` is [`System::memory_bytes`](super::System).
    pub fn limit_bytes(&self, memory_bytes: u64) -> u64 {
        match self.maxmemory_bytes {
            0 => memory_bytes / 100 * 80,
            bytes => bytes,
        }
    }
}

/// What a reply promises, and when data goes to the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Persistence {
    pub durability: Durability,
    /// Age at which an unflushed write is written.
    pub flush_max_ms: u64,
    /// Chunk of a device write, in bytes.
    pub flush_size_bytes: u64,
    pub shutdown_checkpoint: bool,
    /// Damage found at start is reported and left out instead of stopping the start.
    pub salvage: bool,
}

impl Default for Persistence {
    fn default() -> Persistence {
        Persistence {
            durability: Durability::Received,
            flush_max_ms: 100,
            flush_size_bytes: 128 << 10,
            shutdown_checkpoint: false,
            salvage: false,
        }
    }
}

/// Reclaiming space and sweeping tombstones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maintenance {
    pub defrag_paused: bool,
    pub defrag_max_active_per_device: u32,
    pub defrag_sleep_ms: u64,
    pub defrag_record_sleep_us: u64,
    /// 0 = off.
    pub tomb_raider_interval_ms: u64,
    pub tomb_raider_sleep_ms: u64,
}

impl Default for Maintenance {
    fn default() -> Maintenance {
        Maintenance {
            defrag_paused: false,
            defrag_max_active_per_device: 8,
            defrag_sleep_ms: 0,
            defrag_record_sleep_us: 0,
            tomb_raider_interval_ms: 86_400_000,
            tomb_raider_sleep_ms: 10,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    Debug,
    Verbose,
    #[default]
    Notice,
    Warning,
}

impl LogLevel {
    /// Redis's four levels on those of the log facade.
    pub fn filter(self) -> log::LevelFilter {
        match self {
            LogLevel::Debug => log::LevelFilter::Trace,
            LogLevel::Verbose => log::LevelFilter::Debug,
            LogLevel::Notice => log::LevelFilter::Info,
            LogLevel::Warning => log::LevelFilter::Warn,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logging {
    pub dir: PathBuf,
    pub to_stderr: bool,
    pub level: LogLevel,
    pub max_size_mb: u64,
    /// Files kept, the one being written included.
    pub max_files: usize,
}

impl Default for Logging {
    fn default() -> Logging {
        Logging {
            dir: PathBuf::from("./logs"),
            to_stderr: false,
            level: LogLevel::Notice,
            max_size_mb: 100,
            max_files: 10,
        }
    }
}

impl Config {
    /// Addresses of the HTTP endpoint for monitoring, each with whether failing to listen there
    /// may be ignored. Empty when it is off.
    pub fn metrics_addresses(&self) -> Vec<(SocketAddr, bool)> {
        self.net.addresses(self.metrics.port)
    }
}

/// The HTTP endpoint for monitoring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// 0 = off. Listens on the addresses of `--bind`.
    pub port: u16,
}

/// Who may talk to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Password of the default user; empty: none needed.
    pub requirepass: String,
    /// Refuse to serve others than this host without a password.
    pub protected_mode: bool,
    pub aclfile: String,
    /// 0 = off.
    pub tls_port: u16,
    pub tls_cert_file: String,
    pub tls_key_file: String,
    pub tls_ca_cert_file: String,
    pub tls_auth_clients: TlsAuthClients,
}

impl Default for Access {
    fn default() -> Access {
        Access {
            requirepass: String::new(),
            protected_mode: false,
            aclfile: String::new(),
            tls_port: 0,
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
            tls_ca_cert_file: String::new(),
            tls_auth_clients: TlsAuthClients::No,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slowlog {
    /// Commands that run longer are logged; 0 = all, negative = none.
    pub log_slower_than_us: i64,
    pub max_len: u64,
}

impl Default for Slowlog {
    fn default() -> Slowlog {
        Slowlog { log_slower_than_us: 10_000, max_len: 128 }
    }
}

/// The environment of SPDK and DPDK and the userspace network stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bypass {
    /// Extra arguments for the environment, such as `-a BDF` allow-list entries.
    pub eal_args: String,
    /// Hugepage memory in MiB; 0: the environment's own choice.
    pub dpdk_memory_mb: u64,
    pub dpdk_ip: Option<Ipv4Addr>,
    pub dpdk_netmask: Option<Ipv4Addr>,
    pub dpdk_gateway: Option<Ipv4Addr>,
    /// Hardware queue pairs; 0: one per core.
    pub dpdk_queues: u32,
    pub dpdk_rx_steering: RxSteering,
}

impl Default for Bypass {
    fn default() -> Bypass {
        Bypass {
            eal_args: String::new(),
            dpdk_memory_mb: 0,
            dpdk_ip: None,
            dpdk_netmask: None,
            dpdk_gateway: None,
            dpdk_queues: 0,
            dpdk_rx_steering: RxSteering::Hash,
        }
    }
}
