//! What the server tells monitoring: figures in Prometheus's text format, health and readiness.
//!
//! Counters of the cores are read where they are; a scrape costs the cores nothing.

mod http;
mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use http::{bind, serve};

use crate::command::session::Server;
use crate::config::{REVISION, VERSION};
use crate::limits::DATABASES;
use crate::stats::{CoreStats, Counter, Gauge};
use text::Text;

/// Where the figures come from.
#[derive(Debug)]
pub struct Sources {
    pub server: Arc<Server>,
    /// Recovery is over and clients are served.
    pub ready: Arc<AtomicBool>,
    pub devices: Vec<Arc<Device>>,
}

/// Space on one device.
#[derive(Debug)]
pub struct Device {
    pub path: String,
    pub capacity_bytes: u64,
    /// In segments that are free. Whoever allocates them keeps it up to date.
    pub available_bytes: AtomicU64,
}

impl Sources {
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// All figures in the text format of Prometheus. Until recovery is over only
    /// `lavik_server_ready`, as half-recovered figures would only alarm.
    pub fn exposition(&self) -> String {
        let mut text = Text::default();
        text.gauge("server_ready", "1 when clients are served.", u64::from(self.is_ready()));
        if self.is_ready() {
            self.write_process(&mut text);
            self.write_clients(&mut text);
            self.write_keyspace(&mut text);
            self.write_storage(&mut text);
            self.write_segments(&mut text);
            self.write_memory(&mut text);
            self.write_cores(&mut text);
        }
        text.finish()
    }

    /// Since the start of the process: CONFIG RESETSTAT must not make a counter fall.
    fn total(&self, counter: fn(&CoreStats) -> &Counter) -> u64 {
        self.server.stats.iter().map(|core| counter(core).get()).sum()
    }

    fn level(&self, gauge: impl Fn(&CoreStats) -> &Gauge) -> u64 {
        self.server.level(gauge)
    }

    fn write_process(&self, text: &mut Text) {
        text.family("build_info", "gauge", "The build, in labels.");
        text.sample("build_info", &[("version", VERSION), ("revision", REVISION)], 1);
        let start = self.server.started_ms / 1000;
        text.gauge("start_time_seconds", "Start, in seconds since the Unix epoch.", start);
        text.counter("commands_total", "Commands run.", self.total(|c| &c.commands));
        let remote = self.total(|c| &c.remote_commands);
        text.counter("commands_remote_total", "Commands that went to another core.", remote);
        text.counter("errors_total", "Error replies.", self.total(|c| &c.errors));
    }

    fn write_clients(&self, text: &mut Text) {
        let accepted = self.total(|c| &c.connections_accepted);
        text.counter("connections_total", "Connections accepted.", accepted);
        let rejected = self.total(|c| &c.connections_rejected);
        text.counter("connections_rejected_total", "Connections refused by a limit.", rejected);
        text.gauge("connected_clients", "Open connections.", self.level(|c| &c.clients));
        text.family("network_bytes_total", "counter", "Bytes from and to clients.");
        let (from, to) = (self.total(|c| &c.net_in_bytes), self.total(|c| &c.net_out_bytes));
        text.sample("network_bytes_total", &[("direction", "in")], from);
        text.sample("network_bytes_total", &[("direction", "out")], to);
    }

    fn write_keyspace(&self, text: &mut Text) {
        let hits = self.total(|c| &c.keyspace_hits);
        text.counter("keyspace_hits_total", "Lookups of keys that exist.", hits);
        let misses = self.total(|c| &c.keyspace_misses);
        text.counter("keyspace_misses_total", "Lookups of keys that do not exist.", misses);
        let expired = self.total(|c| &c.expired_keys);
        text.counter("expired_keys_total", "Keys removed because they expired.", expired);
        text.family("keys", "gauge", "Keys of a database.");
        for db in 0..DATABASES {
            text.sample("keys", &[("db", &db.to_string())], self.level(|c| &c.keys[db]));
        }
        text.family("keys_with_expiry", "gauge", "Keys of a database that will expire.");
        for db in 0..DATABASES {
            let count = self.level(|c| &c.expires[db]);
            text.sample("keys_with_expiry", &[("db", &db.to_string())], count);
        }
    }

    fn write_storage(&self, text: &mut Text) {
        let name = "storage_io_operations_total";
        text.family(name, "counter", "Requests to the devices.");
        text.sample(name, &[("operation", "read")], self.total(|c| &c.device_reads));
        text.sample(name, &[("operation", "write")], self.total(|c| &c.device_writes));
        text.sample(name, &[("operation", "fdatasync")], self.total(|c| &c.device_flushes));
        let name = "storage_io_bytes_total";
        text.family(name, "counter", "Bytes moved from and to the devices.");
        text.sample(name, &[("operation", "read")], self.total(|c| &c.device_read_bytes));
        text.sample(name, &[("operation", "write")], self.total(|c| &c.device_write_bytes));
        text.family("storage_capacity_bytes", "gauge", "Space for records on a device.");
        self.write_devices(text, "storage_capacity_bytes", |device| device.capacity_bytes);
        text.family("storage_available_bytes", "gauge", "Space in free segments of a device.");
        let available = |device: &Device| device.available_bytes.load(Ordering::Relaxed);
        self.write_devices(text, "storage_available_bytes", available);
        self.write_health(text);
    }

    fn write_health(&self, text: &mut Text) {
        let Some(devices) = self.server.state.devices.get() else { return };
        let name = "storage_health";
        text.family(name, "gauge", "What a device that SPDK drives says of its health.");
        for (index, device) in devices.iter().enumerate() {
            for (figure, value) in device.figures() {
                let index = index.to_string();
                let labels = [("device", &*index), ("path", &*device.name), ("figure", figure)];
                text.sample(name, &labels, value);
            }
        }
    }

    fn write_segments(&self, text: &mut Text) {
        let space = &self.server.space;
        let level = |gauge: &Gauge| gauge.get().max(0) as u64;
        text.family("segments", "gauge", "Segments of the device set, by state.");
        let states = [
            ("free", &space.free),
            ("open", &space.open),
            ("sealed", &space.sealed),
            ("empty", &space.empty),
            ("defrag", &space.victims),
        ];
        for (state, gauge) in states {
            text.sample("segments", &[("state", state)], level(gauge));
        }
        let (values, dead) = (level(&space.value_bytes), level(&space.dead_bytes));
        text.gauge("storage_value_bytes", "Values in sealed segments.", values);
        text.gauge("storage_dead_bytes", "Of these, superseded ones.", dead);
        let tombstones = level(&space.tombstones);
        text.gauge("storage_tombstones", "Tombstones in sealed segments.", tombstones);
        let pinned = self.level(|c| &c.pinned_bytes);
        text.gauge("storage_pinned_bytes", "Replaced values kept for their readers.", pinned);
        let puts = self.total(|c| &c.put_bytes);
        text.counter("storage_client_write_bytes_total", "Records written by clients.", puts);
        let name = "storage_defrag_runs_total";
        text.family(name, "counter", "Segments that defrag has been through.");
        let (runs, left) = (space.defrag_runs.get(), space.defrag_incomplete.get());
        text.sample(name, &[("result", "success")], runs.saturating_sub(left));
        text.sample(name, &[("result", "failure")], left);
        let settings = self.server.config.snapshot().maintenance;
        text.gauge("storage_defrag_active", "Segments being emptied.", level(&space.victims));
        let paused = u64::from(settings.defrag_paused);
        text.gauge("storage_defrag_paused", "1 when defrag is paused.", paused);
        let max = settings.defrag_max_active_per_device.into();
        text.gauge("storage_defrag_max_active_per_device", "Setting.", max);
        let moved = self.total(|c| &c.defrag_moved_bytes);
        text.counter("storage_defrag_moved_bytes_total", "Records moved by defrag.", moved);
        let read = self.total(|c| &c.defrag_read_bytes);
        text.counter("storage_defrag_read_bytes_total", "Bytes read by defrag.", read);
    }

    fn write_devices(&self, text: &mut Text, name: &str, value: impl Fn(&Device) -> u64) {
        for (index, device) in self.devices.iter().enumerate() {
            let labels = [("device", &*index.to_string()), ("path", &*device.path)];
            text.sample(name, &labels, value(device));
        }
    }

    fn write_memory(&self, text: &mut Text) {
        let settings = self.server.config.snapshot();
        let (index, clients) = (self.level(|c| &c.index_bytes), self.level(|c| &c.client_bytes));
        if let Some(rss) = rss_bytes() {
            text.gauge("memory_rss_bytes", "Resident memory of the process.", rss);
        }
        text.gauge("memory_max_bytes", "maxmemory.", settings.maxmemory_bytes);
        text.gauge("index_bytes", "Memory of the index.", index);
        text.gauge("client_buffer_bytes", "Memory of query and reply buffers.", clients);
        let limit = settings.maxmemory_clients_bytes;
        text.gauge("client_buffer_limit_bytes", "maxmemory-clients; 0 = no limit.", limit);
    }

    fn write_cores(&self, text: &mut Text) {
        self.write_per_core(text, "core_commands_total", "Commands of a core.", |c| &c.commands);
        self.write_per_core(text, "core_turns_total", "Turns of a core's loop.", |c| &c.turns);
        let help = "Turns of a core's loop that ended asleep.";
        self.write_per_core(text, "core_parks_total", help, |c| &c.parks);
    }

    fn write_per_core(
        &self,
        text: &mut Text,
        name: &str,
        help: &str,
        counter: fn(&CoreStats) -> &Counter,
    ) {
        text.family(name, "counter", help);
        for (core, stats) in self.server.stats.iter().enumerate() {
            text.sample(name, &[("core", &core.to_string())], counter(stats).get());
        }
    }
}

/// Resident memory of the process, in bytes.
fn rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests;
