//! INFO: figures and facts in sections of `name:value` lines, under the names that clients and
//! monitoring know.
//!
//! What has no counterpart here (forks, append-only files, replicas) shows the value of a Redis
//! that does not use it. Own lines: `lavik_*`, `device_*`, `index_bytes`, `client_bytes`.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use super::connection::REDIS_VERSION;
use super::process::Process;
use super::session::{After, Server, SessionContext};
use crate::clock::Now;
use crate::config::{REVISION, VERSION};
use crate::limits::DATABASES;
use crate::resp::Args;
use crate::stats::Gauge;

type Writer = fn(&mut Text, &Facts<'_>);

/// Name, whether a plain INFO shows it, and what writes it. In the order of the reply.
const SECTIONS: &[(&str, bool, Writer)] = &[
    ("Server", true, server),
    ("Clients", true, clients),
    ("Memory", true, memory),
    ("Persistence", true, persistence),
    ("Stats", true, stats),
    ("Storage", true, storage),
    ("Replication", true, replication),
    ("CPU", true, cpu),
    ("Modules", true, nothing),
    ("Commandstats", false, nothing),
    ("Errorstats", true, nothing),
    ("Cluster", true, cluster),
    ("Keyspace", true, keyspace),
];

/// What the sections are written from.
struct Facts<'a> {
    server: &'a Server,
    process: &'a Process,
    now: Now,
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn section(&mut self, name: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        self.0.push_str(&format!("# {name}\r\n"));
    }

    fn line(&mut self, name: &str, value: impl Display) {
        self.0.push_str(&format!("{name}:{value}\r\n"));
    }

    fn lines<const N: usize>(&mut self, lines: [(&str, u64); N]) {
        lines.into_iter().for_each(|(name, value)| self.line(name, value));
    }

    /// Two lines, the second in a unit that people read.
    fn bytes(&mut self, name: &str, bytes: u64) {
        self.line(name, bytes);
        self.line(&format!("{name}_human"), human(bytes));
    }
}

pub(super) fn info(context: &mut SessionContext<'_>) -> After {
    let process = Process::read();
    let text = render(context.args.from(1), context.server, &process, context.now);
    context.reply.verbatim("txt", text.as_bytes());
    After::Nothing
}

/// The sections that `wanted` names, each once, in the order of [`SECTIONS`].
fn render(wanted: Args<'_>, server: &Server, process: &Process, now: Now) -> String {
    let facts = Facts { server, process, now };
    let mut text = Text::default();
    for &(name, by_default, write) in SECTIONS {
        if is_wanted(wanted, name, by_default) {
            text.section(name);
            write(&mut text, &facts);
        }
    }
    text.0
}

fn is_wanted(wanted: Args<'_>, name: &str, by_default: bool) -> bool {
    let means_it = |word: &[u8]| match word.to_ascii_lowercase().as_slice() {
        b"default" => by_default,
        b"all" => name != "Modules",
        b"everything" => true,
        word => word.eq_ignore_ascii_case(name.as_bytes()),
    };
    if wanted.is_empty() { by_default } else { wanted.iter().any(means_it) }
}

fn nothing(_: &mut Text, _: &Facts<'_>) {}

fn server(text: &mut Text, facts: &Facts<'_>) {
    let uptime_s = facts.now.unix_ms.saturating_sub(facts.server.started_ms) / 1000;
    text.line("redis_version", REDIS_VERSION);
    text.line("redis_git_sha1", "00000000");
    text.line("redis_git_dirty", 0);
    text.line("redis_mode", "standalone");
    text.line("lavik_version", VERSION);
    text.line("lavik_revision", REVISION);
    text.line("os", &facts.process.os);
    text.line("arch_bits", usize::BITS);
    text.line("process_id", facts.process.id);
    text.line("run_id", &facts.server.run_id);
    text.line("tcp_port", facts.server.config.config().net.port);
    text.line("server_time_usec", facts.now.unix_ms * 1000);
    text.line("uptime_in_seconds", uptime_s);
    text.line("uptime_in_days", uptime_s / 86400);
    text.line("executable", &facts.process.executable);
    let file = facts.server.config.config().file;
    text.line("config_file", file.unwrap_or_default().display());
    text.line("io_threads_active", 0);
    text.line("worker_threads", facts.server.stats.len());
}

fn clients(text: &mut Text, facts: &Facts<'_>) {
    text.lines([
        ("connected_clients", facts.server.level(|core| &core.clients)),
        ("cluster_connections", 0),
        ("maxclients", facts.server.config.snapshot().maxclients.into()),
        ("blocked_clients", facts.server.level(|core| &core.blocked_clients)),
        ("tracking_clients", 0),
        ("clients_in_timeout_table", 0),
    ]);
}

/// Memory that grows with keys and connections is `used_memory`; the fixed buffers of the cores
/// are in `used_memory_rss` only.
fn memory(text: &mut Text, facts: &Facts<'_>) {
    let index_bytes = facts.server.level(|core| &core.index_bytes);
    let client_bytes = facts.server.level(|core| &core.client_bytes);
    text.bytes("used_memory", index_bytes + client_bytes);
    text.bytes("used_memory_rss", facts.process.rss_bytes);
    text.bytes("used_memory_peak", facts.process.rss_peak_bytes);
    text.bytes("total_system_memory", facts.process.system_bytes);
    text.bytes("maxmemory", facts.server.config.snapshot().maxmemory_bytes);
    text.line("maxmemory_policy", "noeviction");
    text.line("mem_clients_normal", client_bytes);
    text.line("mem_allocator", "libc");
    text.lines([("index_bytes", index_bytes), ("client_bytes", client_bytes)]);
}

fn persistence(text: &mut Text, facts: &Facts<'_>) {
    let state = &facts.server.state;
    let failed = state.last_save_failed.load(Ordering::Relaxed);
    let last_s = state.last_save_ms.load(Ordering::Relaxed) / 1000;
    text.line("loading", u64::from(state.loading.load(Ordering::Relaxed)));
    text.line("async_loading", 0);
    text.line("rdb_changes_since_last_save", 0);
    text.line("rdb_bgsave_in_progress", u64::from(state.saving.load(Ordering::Relaxed)));
    text.line("rdb_last_save_time", last_s);
    text.line("rdb_last_bgsave_status", if failed { "err" } else { "ok" });
    text.line("rdb_last_bgsave_time_sec", -1);
    text.line("rdb_current_bgsave_time_sec", -1);
    text.line("aof_enabled", 0);
    text.line("aof_rewrite_in_progress", 0);
    text.line("aof_rewrite_scheduled", 0);
    text.line("aof_last_rewrite_time_sec", -1);
    text.line("aof_current_rewrite_time_sec", -1);
    text.line("aof_last_bgrewrite_status", "ok");
    text.line("aof_last_write_status", "ok");
}

fn stats(text: &mut Text, facts: &Facts<'_>) {
    let server = facts.server;
    text.lines([
        ("total_connections_received", server.total(|core| &core.connections_accepted)),
        ("total_commands_processed", server.total(|core| &core.commands)),
        ("instantaneous_ops_per_sec", server.state.commands_per_second.load(Ordering::Relaxed)),
        ("total_net_input_bytes", server.total(|core| &core.net_in_bytes)),
        ("total_net_output_bytes", server.total(|core| &core.net_out_bytes)),
        ("rejected_connections", server.total(|core| &core.connections_rejected)),
        ("sync_full", 0),
        ("sync_partial_ok", 0),
        ("sync_partial_err", 0),
        ("expired_keys", server.total(|core| &core.expired_keys)),
        ("evicted_keys", 0),
        ("evicted_clients", 0),
        ("keyspace_hits", server.total(|core| &core.keyspace_hits)),
        ("keyspace_misses", server.total(|core| &core.keyspace_misses)),
        ("pubsub_channels", 0),
        ("pubsub_patterns", 0),
        ("latest_fork_usec", 0),
        ("total_forks", 0),
        ("total_error_replies", server.total(|core| &core.errors)),
        ("remote_commands", server.total(|core| &core.remote_commands)),
        ("device_reads", server.total(|core| &core.device_reads)),
        ("device_read_bytes", server.total(|core| &core.device_read_bytes)),
        ("device_writes", server.total(|core| &core.device_writes)),
        ("device_write_bytes", server.total(|core| &core.device_write_bytes)),
        ("device_flushes", server.total(|core| &core.device_flushes)),
    ]);
    for (index, device) in server.state.devices.get().into_iter().flatten().enumerate() {
        let figures = device.figures().map(|(name, value)| format!(",{name}={value}"));
        text.line(&format!("device{index}"), format!("name={}{}", device.name, figures.concat()));
    }
}

/// Segments by state, what their values are worth, and what defrag costs.
fn storage(text: &mut Text, facts: &Facts<'_>) {
    let (server, space) = (facts.server, &facts.server.space);
    let level = |gauge: &Gauge| gauge.get().max(0) as u64;
    let puts = server.total(|core| &core.put_bytes);
    let moved = server.total(|core| &core.defrag_moved_bytes);
    text.lines([
        ("segments_total", level(&space.segments)),
        ("segments_free", level(&space.free)),
        ("segments_open", level(&space.open)),
        ("segments_sealed", level(&space.sealed)),
        ("segments_empty", level(&space.empty)),
        ("segments_defrag", level(&space.victims)),
        ("value_bytes", level(&space.value_bytes)),
        ("dead_bytes", level(&space.dead_bytes)),
        ("tombstones", level(&space.tombstones)),
        ("pinned_bytes", server.level(|core| &core.pinned_bytes)),
    ]);
    text.line("live_percent", format!("{:.2}", space.live_percent()));
    text.lines([
        ("client_write_bytes", puts),
        ("defrag_runs", space.defrag_runs.since_reset()),
        ("defrag_incomplete_runs", space.defrag_incomplete.since_reset()),
        ("defrag_moved_records", server.total(|core| &core.defrag_moved_records)),
        ("defrag_moved_bytes", moved),
        ("defrag_read_bytes", server.total(|core| &core.defrag_read_bytes)),
        ("defrag_tombstones", server.total(|core| &core.defrag_tombstones)),
        ("defrag_damaged", server.total(|core| &core.defrag_damaged)),
    ]);
    let amplification = (puts + moved) as f64 / puts.max(1) as f64;
    text.line("write_amplification", format!("{:.3}", if puts > 0 { amplification } else { 1.0 }));
}

fn replication(text: &mut Text, facts: &Facts<'_>) {
    text.line("role", "master");
    text.line("connected_slaves", 0);
    text.line("master_failover_state", "no-failover");
    text.line("master_replid", &facts.server.run_id);
    text.line("master_replid2", "0".repeat(40));
    text.line("master_repl_offset", 0);
    text.line("second_repl_offset", -1);
    text.line("repl_backlog_active", 0);
    text.line("repl_backlog_size", 0);
    text.line("repl_backlog_first_byte_offset", 0);
    text.line("repl_backlog_histlen", 0);
}

fn cpu(text: &mut Text, facts: &Facts<'_>) {
    text.line("used_cpu_sys", format!("{:.6}", facts.process.cpu_system_s));
    text.line("used_cpu_user", format!("{:.6}", facts.process.cpu_user_s));
    text.line("used_cpu_sys_children", "0.000000");
    text.line("used_cpu_user_children", "0.000000");
}

fn cluster(text: &mut Text, _: &Facts<'_>) {
    text.line("cluster_enabled", 0);
}

fn keyspace(text: &mut Text, facts: &Facts<'_>) {
    for db in 0..DATABASES {
        let keys = facts.server.level(|core| &core.keys[db]);
        let expires = facts.server.level(|core| &core.expires[db]);
        if keys > 0 {
            text.line(&format!("db{db}"), format!("keys={keys},expires={expires},avg_ttl=0"));
        }
    }
}

/// `1.63M`: two decimals of the largest unit of 1024 that gives at least 1.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let power = bytes.ilog2() / 10;
    let scaled = bytes as f64 / (1u64 << (power * 10)) as f64;
    format!("{scaled:.2}{}", UNITS[power as usize - 1])
}

#[cfg(test)]
mod tests;
