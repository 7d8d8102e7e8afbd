//! The options themselves. A row here is all it takes: flag, directive, CONFIG parameter, help
//! text and (checked by a test) an entry in docs/OPERATIONS.md.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::options::{Field, Group, Opt, YES_NO};
use super::sections::{
    Config, Durability, LogLevel, NetBackend, RxSteering, StorageBackend, TlsAuthClients,
};
use super::value::{
    Bind, DataFile, MemoryShare, choice, cpu_list, integer, show_choice, show_cpu_list,
    show_yes_no, size, yes_no,
};
use crate::limits;

type Get = fn(&Config) -> String;
type Set = fn(&mut Config, &str) -> Result<(), String>;

const fn one(
    group: Group,
    name: &'static str,
    takes: &'static str,
    help: &'static str,
    get: Get,
    set: Set,
) -> Opt {
    Opt::new(group, name, takes, help, Field::One { get, set })
}

/// Stores a value that could be read; passes the error on otherwise.
fn put<T>(field: &mut T, read: Result<T, String>) -> Result<(), String> {
    *field = read?;
    Ok(())
}

const NET_BACKENDS: &[(&str, NetBackend)] =
    &[("kernel", NetBackend::Kernel), ("dpdk", NetBackend::Dpdk)];
const STORAGE_BACKENDS: &[(&str, StorageBackend)] =
    &[("uring", StorageBackend::Uring), ("spdk", StorageBackend::Spdk)];
const DURABILITIES: &[(&str, Durability)] = &[
    ("received", Durability::Received),
    ("written", Durability::Written),
    ("synced", Durability::Synced),
];
const RECOVERIES: &[(&str, bool)] = &[("strict", false), ("salvage", true)];
const LOG_LEVELS: &[(&str, LogLevel)] = &[
    ("debug", LogLevel::Debug),
    ("verbose", LogLevel::Verbose),
    ("notice", LogLevel::Notice),
    ("warning", LogLevel::Warning),
];
const TLS_AUTH: &[(&str, TlsAuthClients)] = &[
    ("no", TlsAuthClients::No),
    ("yes", TlsAuthClients::Yes),
    ("optional", TlsAuthClients::Optional),
];
const STEERINGS: &[(&str, RxSteering)] = &[("hash", RxSteering::Hash), ("rss", RxSteering::Rss)];

/// Longest pause or period that can be set, in milliseconds: some 24 days, as in Redis.
const MS_MAX: i64 = i32::MAX as i64;
const US_MAX: i64 = 1_000_000;

pub static OPTIONS: &[Opt] = &[
    Opt::new(
        Group::Network,
        "bind",
        "ADDR",
        "address to listen on (repeat); * is any IPv4, ::* any IPv6, a leading - makes it optional",
        Field::Many {
            get: |c| c.net.bind.iter().map(Bind::to_string).collect(),
            set: |c, texts| put(&mut c.net.bind, texts.iter().map(|t| Bind::parse(t)).collect()),
        },
    )
    .short('b'),
    one(
        Group::Network,
        "port",
        "N",
        "TCP port; 0 = off",
        |c| c.net.port.to_string(),
        |c, v| put(&mut c.net.port, integer(v, 0, 65535)),
    )
    .short('p'),
    one(
        Group::Network,
        "network",
        "kernel|dpdk",
        "who carries TCP: the kernel, or the userspace stack on DPDK queues",
        |c| show_choice(c.net.backend, NET_BACKENDS),
        |c, v| put(&mut c.net.backend, choice(v, NET_BACKENDS)),
    ),
    one(
        Group::Network,
        "maxclients",
        "N",
        "connections at the same time",
        |c| c.net.maxclients.to_string(),
        |c, v| put(&mut c.net.maxclients, integer(v, 1, u32::MAX.into())),
    )
    .live(),
    one(
        Group::Network,
        "idle-timeout",
        "MS",
        "close a connection that is silent for so long; off, 0 or -1 = never",
        |c| show_idle_timeout(c.net.idle_timeout_ms),
        |c, v| put(&mut c.net.idle_timeout_ms, idle_timeout_ms(v)),
    )
    .short('i')
    .live(),
    one(
        Group::Network,
        "timeout",
        "S",
        "the same in seconds, as Redis has it",
        |c| c.net.idle_timeout_ms.div_ceil(1000).to_string(),
        |c, v| put(&mut c.net.idle_timeout_ms, integer(v, 0, MS_MAX).map(|s: u64| s * 1000)),
    )
    .live()
    .mirrors("idle-timeout"),
    one(
        Group::Network,
        "tcp-backlog",
        "N",
        "connections that may wait to be accepted",
        |c| c.net.tcp_backlog.to_string(),
        |c, v| put(&mut c.net.tcp_backlog, integer(v, 0, i32::MAX.into())),
    ),
    one(
        Group::Network,
        "tcp-keepalive",
        "S",
        "silence after which a peer is probed, for new connections; 0 = off",
        |c| c.net.tcp_keepalive_s.to_string(),
        |c, v| put(&mut c.net.tcp_keepalive_s, integer(v, 0, i32::MAX.into())),
    )
    .live(),
    one(
        Group::Storage,
        "storage",
        "uring|spdk",
        "who drives the devices: the kernel through io_uring, or SPDK",
        |c| show_choice(c.storage.backend, STORAGE_BACKENDS),
        |c, v| put(&mut c.storage.backend, choice(v, STORAGE_BACKENDS)),
    ),
    Opt::new(
        Group::Storage,
        "data-file",
        "PATH|spdk://CONTROLLER/NSID",
        "member of the device set (repeat, in any order); without any: lavik.data",
        Field::Many {
            get: |c| c.storage.devices().iter().map(DataFile::to_string).collect(),
            set: |c, texts| {
                put(&mut c.storage.data_files, texts.iter().map(|t| DataFile::parse(t)).collect())
            },
        },
    ),
    one(
        Group::Storage,
        "data-file-size",
        "SIZE",
        "create a missing regular file with this size; without it a missing file is an error",
        |c| c.storage.data_file_size_bytes.unwrap_or(0).to_string(),
        |c, v| put(&mut c.storage.data_file_size_bytes, size(v).map(|b| (b > 0).then_some(b))),
    ),
    one(
        Group::Storage,
        "registered-buffer-mb-per-worker",
        "MB",
        "device read buffers of a core",
        |c| (c.storage.registered_buffer_bytes_per_worker >> 20).to_string(),
        |c, v| {
            let read = integer(v, 1, 65536).map(|mb: u64| mb << 20);
            put(&mut c.storage.registered_buffer_bytes_per_worker, read)
        },
    ),
    one(
        Group::Storage,
        "storage-write-buffers-per-worker",
        "N",
        "open and sealing segments of a core, 8 MiB each",
        |c| c.storage.write_buffers_per_worker.to_string(),
        |c, v| put(&mut c.storage.write_buffers_per_worker, integer(v, 2, 1024)),
    ),
    one(
        Group::Durability,
        "durability",
        "received|written|synced",
        "when a write is acknowledged: in the log buffer, device write done, device cache flushed",
        |c| show_choice(c.persistence.durability, DURABILITIES),
        |c, v| put(&mut c.persistence.durability, choice(v, DURABILITIES)),
    )
    .live(),
    one(
        Group::Durability,
        "recover",
        "strict|salvage",
        "damage found at start stops it, or is reported and left out",
        |c| show_choice(c.persistence.salvage, RECOVERIES),
        |c, v| put(&mut c.persistence.salvage, choice(v, RECOVERIES)),
    ),
    one(
        Group::Durability,
        "flush-max-ms",
        "MS",
        "age at which an unflushed write goes to the device",
        |c| c.persistence.flush_max_ms.to_string(),
        |c, v| put(&mut c.persistence.flush_max_ms, integer(v, 1, 3_600_000)),
    )
    .live(),
    one(
        Group::Durability,
        "flush-size-kb",
        "KB",
        "size of a device write, a multiple of 4",
        |c| (c.persistence.flush_size_bytes >> 10).to_string(),
        |c, v| put(&mut c.persistence.flush_size_bytes, flush_size_bytes(v)),
    )
    .live(),
    one(
        Group::Durability,
        "shutdown-checkpoint",
        YES_NO,
        "write the index image at a clean stop",
        |c| show_yes_no(c.persistence.shutdown_checkpoint),
        |c, v| put(&mut c.persistence.shutdown_checkpoint, yes_no(v)),
    )
    .live()
    .later(),
    one(
        Group::Cores,
        "threads",
        "N",
        "cores that serve, one thread each; 0 = one per CPU of the affinity mask or of --cpus",
        |c| c.threads.threads.to_string(),
        |c, v| put(&mut c.threads.threads, integer(v, 0, limits::CORES_MAX as i64)),
    )
    .short('t')
    .aliases(&["shards"]),
    one(
        Group::Cores,
        "cpus",
        "LIST",
        "CPUs to use, such as 0-3,8; without it those of the affinity mask",
        |c| show_cpu_list(&c.threads.cpus),
        |c, v| put(&mut c.threads.cpus, if v.is_empty() { Ok(vec![]) } else { cpu_list(v) }),
    ),
    one(
        Group::Cores,
        "pin-workers",
        YES_NO,
        "bind each thread to its CPU; more threads than CPUs need --no-pin-workers",
        |c| show_yes_no(c.threads.pin_workers),
        |c, v| put(&mut c.threads.pin_workers, yes_no(v)),
    ),
    one(
        Group::Cores,
        "busy-poll-us",
        "US",
        "spin so long for more work before sleeping",
        |c| c.threads.busy_poll_us.to_string(),
        |c, v| put(&mut c.threads.busy_poll_us, integer(v, 0, US_MAX)),
    ),
    one(
        Group::Cores,
        "foreground-budget-us",
        "US",
        "time slice of commands; defrag that writers wait for may take a quarter of it a turn",
        |c| c.threads.foreground_budget_us.to_string(),
        |c, v| put(&mut c.threads.foreground_budget_us, integer(v, 1, US_MAX)),
    )
    .live(),
    one(
        Group::Cores,
        "background-budget-us",
        "US",
        "time that defrag may take in one turn of the loop",
        |c| c.threads.background_budget_us.to_string(),
        |c, v| put(&mut c.threads.background_budget_us, integer(v, 1, US_MAX)),
    )
    .live(),
    one(
        Group::Cores,
        "background-warrant-percent",
        "N",
        "share of a core that defrag gets even when there are commands to run",
        |c| c.threads.background_warrant_percent.to_string(),
        |c, v| put(&mut c.threads.background_warrant_percent, integer(v, 0, 90)),
    )
    .live(),
    one(
        Group::Memory,
        "maxmemory",
        "SIZE",
        "memory above which commands that need more are refused; 0 = 80 % of the machine's",
        |c| c.memory.maxmemory_bytes.to_string(),
        |c, v| put(&mut c.memory.maxmemory_bytes, size(v)),
    )
    .aliases(&["max-memory"])
    .live(),
    one(
        Group::Memory,
        "maxmemory-clients",
        "SIZE|N%",
        "memory of all query and reply buffers, absolute or of maxmemory; 0 = no limit",
        |c| c.memory.maxmemory_clients.to_string(),
        |c, v| put(&mut c.memory.maxmemory_clients, MemoryShare::parse(v)),
    )
    .live(),
    one(
        Group::Memory,
        "client-query-buffer-limit",
        "SIZE",
        "unprocessed input of one connection, at least 1 MiB",
        |c| c.memory.client_query_buffer_limit_bytes.to_string(),
        |c, v| put(&mut c.memory.client_query_buffer_limit_bytes, query_buffer_bytes(v)),
    )
    .live(),
    one(
        Group::Maintenance,
        "defrag-paused",
        YES_NO,
        "do not reclaim space",
        |c| show_yes_no(c.maintenance.defrag_paused),
        |c, v| put(&mut c.maintenance.defrag_paused, yes_no(v)),
    )
    .live(),
    one(
        Group::Maintenance,
        "defrag-max-active-per-device",
        "N",
        "segments of one device that are reclaimed at the same time",
        |c| c.maintenance.defrag_max_active_per_device.to_string(),
        |c, v| put(&mut c.maintenance.defrag_max_active_per_device, integer(v, 1, 1024)),
    )
    .live(),
    one(
        Group::Maintenance,
        "defrag-sleep-ms",
        "MS",
        "pause after each reclaimed segment",
        |c| c.maintenance.defrag_sleep_ms.to_string(),
        |c, v| put(&mut c.maintenance.defrag_sleep_ms, integer(v, 0, MS_MAX)),
    )
    .live(),
    one(
        Group::Maintenance,
        "defrag-record-sleep-us",
        "US",
        "pause after each moved record",
        |c| c.maintenance.defrag_record_sleep_us.to_string(),
        |c, v| put(&mut c.maintenance.defrag_record_sleep_us, integer(v, 0, US_MAX)),
    )
    .live(),
    one(
        Group::Maintenance,
        "tomb-raider-interval-ms",
        "MS",
        "period of the sweep that drops tombstones no longer needed; 0 = off",
        |c| c.maintenance.tomb_raider_interval_ms.to_string(),
        |c, v| put(&mut c.maintenance.tomb_raider_interval_ms, integer(v, 0, MS_MAX)),
    )
    .live()
    .later(),
    one(
        Group::Maintenance,
        "tomb-raider-sleep-ms",
        "MS",
        "pause after each swept segment",
        |c| c.maintenance.tomb_raider_sleep_ms.to_string(),
        |c, v| put(&mut c.maintenance.tomb_raider_sleep_ms, integer(v, 0, MS_MAX)),
    )
    .live()
    .later(),
    one(
        Group::Logging,
        "log-dir",
        "DIR",
        "directory of the log files",
        |c| c.logging.dir.display().to_string(),
        |c, v| put(&mut c.logging.dir, not_empty(v).map(PathBuf::from)),
    ),
    one(
        Group::Logging,
        "logtostderr",
        YES_NO,
        "log to standard error and to no file",
        |c| show_yes_no(c.logging.to_stderr),
        |c, v| put(&mut c.logging.to_stderr, yes_no(v)),
    ),
    one(
        Group::Logging,
        "loglevel",
        "debug|verbose|notice|warning",
        "least important messages that are logged",
        |c| show_choice(c.logging.level, LOG_LEVELS),
        |c, v| put(&mut c.logging.level, choice(v, LOG_LEVELS)),
    )
    .live(),
    one(
        Group::Logging,
        "max-log-size-mb",
        "MB",
        "size at which a new log file is started",
        |c| c.logging.max_size_mb.to_string(),
        |c, v| put(&mut c.logging.max_size_mb, integer(v, 1, 1 << 20)),
    ),
    one(
        Group::Logging,
        "max-log-files",
        "N",
        "log files that are kept, the current one included",
        |c| c.logging.max_files.to_string(),
        |c, v| put(&mut c.logging.max_files, integer(v, 1, 10_000)),
    ),
    one(
        Group::Monitoring,
        "metrics-port",
        "N",
        "HTTP port of /metrics, /healthz and /readyz; 0 = off",
        |c| c.metrics.port.to_string(),
        |c, v| put(&mut c.metrics.port, integer(v, 0, 65535)),
    ),
    one(
        Group::Monitoring,
        "slowlog-log-slower-than",
        "US",
        "run time from which a command is put into the slow log; 0 = all, -1 = none",
        |c| c.slowlog.log_slower_than_us.to_string(),
        |c, v| put(&mut c.slowlog.log_slower_than_us, integer(v, -1, i64::MAX)),
    )
    .live()
    .later(),
    one(
        Group::Monitoring,
        "slowlog-max-len",
        "N",
        "entries of the slow log",
        |c| c.slowlog.max_len.to_string(),
        |c, v| put(&mut c.slowlog.max_len, integer(v, 0, i64::MAX)),
    )
    .live()
    .later(),
    one(
        Group::Access,
        "requirepass",
        "PASSWORD",
        "password of the default user; empty = none needed",
        |c| c.access.requirepass.clone(),
        |c, v| put(&mut c.access.requirepass, Ok(v.to_string())),
    )
    .live(),
    one(
        Group::Access,
        "protected-mode",
        YES_NO,
        "refuse to start without a password on addresses that others can reach",
        |c| show_yes_no(c.access.protected_mode),
        |c, v| put(&mut c.access.protected_mode, yes_no(v)),
    )
    .live(),
    one(
        Group::Access,
        "aclfile",
        "FILE",
        "users and their rights",
        |c| c.access.aclfile.clone(),
        |c, v| put(&mut c.access.aclfile, Ok(v.to_string())),
    )
    .later(),
    one(
        Group::Access,
        "tls-port",
        "N",
        "TCP port for TLS; 0 = off",
        |c| c.access.tls_port.to_string(),
        |c, v| put(&mut c.access.tls_port, integer(v, 0, 65535)),
    )
    .later(),
    one(
        Group::Access,
        "tls-cert-file",
        "FILE",
        "certificate chain, PEM",
        |c| c.access.tls_cert_file.clone(),
        |c, v| put(&mut c.access.tls_cert_file, Ok(v.to_string())),
    )
    .later(),
    one(
        Group::Access,
        "tls-key-file",
        "FILE",
        "private key, PEM",
        |c| c.access.tls_key_file.clone(),
        |c, v| put(&mut c.access.tls_key_file, Ok(v.to_string())),
    )
    .later(),
    one(
        Group::Access,
        "tls-ca-cert-file",
        "FILE",
        "authorities that may sign client certificates, PEM",
        |c| c.access.tls_ca_cert_file.clone(),
        |c, v| put(&mut c.access.tls_ca_cert_file, Ok(v.to_string())),
    )
    .later(),
    one(
        Group::Access,
        "tls-auth-clients",
        "no|yes|optional",
        "whether clients need a certificate",
        |c| show_choice(c.access.tls_auth_clients, TLS_AUTH),
        |c, v| put(&mut c.access.tls_auth_clients, choice(v, TLS_AUTH)),
    )
    .later(),
    one(
        Group::Bypass,
        "spdk-max-completions-per-poll",
        "N",
        "device completions taken at once; 0 = all that are there",
        |c| c.storage.spdk_max_completions_per_poll.to_string(),
        |c, v| put(&mut c.storage.spdk_max_completions_per_poll, integer(v, 0, 4096)),
    )
    .live(),
    one(
        Group::Bypass,
        "spdk-foreground-pre-poll-us",
        "US",
        "time for commands that are ready before the devices are polled",
        |c| c.storage.spdk_foreground_pre_poll_us.to_string(),
        |c, v| put(&mut c.storage.spdk_foreground_pre_poll_us, integer(v, 0, US_MAX)),
    )
    .later(),
    one(
        Group::Bypass,
        "eal-args",
        "ARGS",
        "more arguments for the DPDK environment, such as the PCI allow list -a BDF",
        |c| c.bypass.eal_args.clone(),
        |c, v| put(&mut c.bypass.eal_args, Ok(v.to_string())),
    )
    .env(&["BYCORF_EAL_ARGS", "LAVIK_EAL_ARGS"]),
    one(
        Group::Bypass,
        "dpdk-memory-mb",
        "MB",
        "hugepage memory; 0 = what the buffers need",
        |c| c.bypass.dpdk_memory_mb.to_string(),
        |c, v| put(&mut c.bypass.dpdk_memory_mb, integer(v, 0, 1 << 24)),
    )
    .env(&["BYCORF_DPDK_MEMORY_MB", "LAVIK_DPDK_MEMORY_MB"]),
    one(
        Group::Bypass,
        "dpdk-ip",
        "IPV4",
        "address of the userspace stack",
        |c| show_address(c.bypass.dpdk_ip),
        |c, v| put(&mut c.bypass.dpdk_ip, address(v)),
    )
    .env(&["BYCORF_DPDK_IP", "LAVIK_DPDK_IP"])
    .later(),
    one(
        Group::Bypass,
        "dpdk-netmask",
        "IPV4",
        "its network mask",
        |c| show_address(c.bypass.dpdk_netmask),
        |c, v| put(&mut c.bypass.dpdk_netmask, netmask(v)),
    )
    .env(&["BYCORF_DPDK_NETMASK", "LAVIK_DPDK_NETMASK"])
    .later(),
    one(
        Group::Bypass,
        "dpdk-gateway",
        "IPV4",
        "its gateway",
        |c| show_address(c.bypass.dpdk_gateway),
        |c, v| put(&mut c.bypass.dpdk_gateway, address(v)),
    )
    .env(&["BYCORF_DPDK_GATEWAY", "LAVIK_DPDK_GATEWAY"])
    .later(),
    one(
        Group::Bypass,
        "dpdk-queues",
        "N",
        "hardware queue pairs; 0 = one per core",
        |c| c.bypass.dpdk_queues.to_string(),
        |c, v| put(&mut c.bypass.dpdk_queues, integer(v, 0, limits::CORES_MAX as i64)),
    )
    .env(&["BYCORF_DPDK_QUEUES", "LAVIK_DPDK_QUEUES"])
    .later(),
    one(
        Group::Bypass,
        "dpdk-rx-steering",
        "hash|rss",
        "who decides which core gets a packet: we, or the network card",
        |c| show_choice(c.bypass.dpdk_rx_steering, STEERINGS),
        |c, v| put(&mut c.bypass.dpdk_rx_steering, choice(v, STEERINGS)),
    )
    .env(&["BYCORF_DPDK_RX_STEERING", "LAVIK_DPDK_RX_STEERING"])
    .later(),
];

fn idle_timeout_ms(text: &str) -> Result<u64, String> {
    match text {
        "off" | "-1" => Ok(0),
        _ => integer(text, 0, i64::MAX),
    }
}

fn show_idle_timeout(ms: u64) -> String {
    if ms == 0 { "off".into() } else { ms.to_string() }
}

/// Chunks are whole sectors of any device and fit into a segment.
fn flush_size_bytes(text: &str) -> Result<u64, String> {
    let kb: u64 = integer(text, 4, (limits::SEGMENT_SIZE_BYTES >> 10) as i64)?;
    match kb.is_multiple_of(4) {
        true => Ok(kb << 10),
        false => Err("argument must be a multiple of 4".into()),
    }
}

fn query_buffer_bytes(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    match bytes >= 1 << 20 && bytes <= i64::MAX as u64 {
        true => Ok(bytes),
        false => Err(format!("argument must be between 1048576 and {} inclusive", i64::MAX)),
    }
}

fn not_empty(text: &str) -> Result<&str, String> {
    if text.is_empty() { Err("argument must not be empty".into()) } else { Ok(text) }
}

fn address(text: &str) -> Result<Option<Ipv4Addr>, String> {
    match text {
        "" => Ok(None),
        _ => text.parse().map(Some).map_err(|_| "argument must be an IPv4 address".into()),
    }
}

fn netmask(text: &str) -> Result<Option<Ipv4Addr>, String> {
    let mask = address(text)?;
    match mask.map(u32::from) {
        Some(bits) if bits.leading_ones() + bits.trailing_zeros() < 32 => {
            Err("argument must be an IPv4 network mask".into())
        }
        _ => Ok(mask),
    }
}

fn show_address(address: Option<Ipv4Addr>) -> String {
    address.map(|a| a.to_string()).unwrap_or_default()
}
