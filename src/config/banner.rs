//! The settings part of what the log says at start.

use super::options;
use super::sections::{Config, NetBackend, StorageBackend};
use super::system::System;
use super::value::show_cpu_list;

impl Config {
    /// One line per subject.
    pub fn banner_lines(&self, system: &System) -> Vec<String> {
        vec![
            self.banner_file(),
            self.banner_net(),
            self.banner_cores(system),
            self.banner_storage(),
            self.banner_durability(),
            self.banner_memory(system),
        ]
    }

    fn banner_file(&self) -> String {
        match &self.file {
            Some(path) => format!("config: {}", path.display()),
            None => "config: no file, defaults and flags".into(),
        }
    }

    fn banner_net(&self) -> String {
        let backend = match self.net.backend {
            NetBackend::Kernel => "kernel TCP",
            NetBackend::Dpdk => "DPDK",
        };
        let addresses: Vec<String> =
            self.net.listen_addresses().iter().map(|(addr, _)| addr.to_string()).collect();
        let metrics = match self.metrics.port {
            0 => "off".to_string(),
            port => format!("port {port}"),
        };
        let (list, clients) = (addresses.join(" "), self.net.maxclients);
        format!("network: {backend} on {list}, at most {clients} clients, metrics {metrics}")
    }

    fn banner_cores(&self, system: &System) -> String {
        let plan = self.threads.plan(&system.cpus_allowed);
        let cpus: Vec<usize> = plan.iter().copied().flatten().collect();
        match cpus.is_empty() {
            true => format!("cores: {}, not pinned", plan.len()),
            false => format!("cores: {}, pinned to CPUs {}", plan.len(), show_cpu_list(&cpus)),
        }
    }

    fn banner_storage(&self) -> String {
        let backend = match self.storage.backend {
            StorageBackend::Uring => "io_uring",
            StorageBackend::Spdk => "SPDK",
        };
        let files: Vec<String> = self.storage.devices().iter().map(ToString::to_string).collect();
        let read_mib = self.storage.registered_buffer_bytes_per_worker >> 20;
        let segments = self.storage.write_buffers_per_worker;
        format!(
            "storage: {backend} on {}; per core {read_mib} MiB of read buffers, {segments} write \
             segments",
            files.join(" ")
        )
    }

    fn banner_durability(&self) -> String {
        let level = options::find("durability").map(|opt| opt.show(self)).unwrap_or_default();
        let persistence = &self.persistence;
        format!(
            "durability: {level}; writes reach the device within {} ms, in chunks of {} KiB",
            persistence.flush_max_ms,
            persistence.flush_size_bytes >> 10
        )
    }

    fn banner_memory(&self, system: &System) -> String {
        let limit_mib = self.memory.limit_bytes(system.memory_bytes) >> 20;
        let memory_mib = system.memory_bytes >> 20;
        let clients = self.memory.maxmemory_clients;
        format!("memory: at most {limit_mib} of {memory_mib} MiB, client buffers {clients}")
    }
}
