//! Settings against each other, against the machine and against what is built.

use std::fmt;

use super::options::{self, Opt};
use super::sections::{Config, NetBackend, StorageBackend};
use super::system::System;
use super::value::{DataFile, show_cpu_list};
use crate::limits;

/// Something wrong with the settings as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The option to change.
    pub option: &'static str,
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.option, self.text)
    }
}

/// Smallest data file that can hold the fixed parts and a few segments of every core.
const DATA_FILE_SIZE_MIN_BYTES: u64 = 10 * limits::SEGMENT_SIZE_BYTES;

impl Config {
    /// Everything that keeps the server from starting with these settings on this machine.
    pub fn validate(&self, system: &System) -> Vec<Fault> {
        let mut faults = Vec::new();
        self.check_ports(&mut faults);
        self.check_devices(&mut faults);
        self.check_cores(system, &mut faults);
        self.check_buffers(system, &mut faults);
        self.check_access(&mut faults);
        self.check_built(&mut faults);
        faults
    }

    fn check_ports(&self, faults: &mut Vec<Fault>) {
        let mut fault = |option, text: String| faults.push(Fault { option, text });
        let (port, tls, metrics) = (self.net.port, self.access.tls_port, self.metrics.port);
        if port == 0 && tls == 0 {
            fault("port", "is 0 and there is no other listener for clients".into());
        }
        if self.net.bind.is_empty() {
            fault("bind", "needs at least one address".into());
        }
        let repeated = first_repeated(self.net.bind.iter().map(|bind| bind.addr));
        if let Some(addr) = repeated {
            fault("bind", format!("{addr} is given twice"));
        }
        if metrics != 0 && metrics == port {
            fault("metrics-port", format!("{metrics} is the port for clients too"));
        }
        if metrics != 0 && metrics == tls {
            fault("metrics-port", format!("{metrics} is the tls-port too"));
        }
        if tls != 0 && tls == port {
            fault("tls-port", format!("{tls} is the port without TLS too"));
        }
    }

    fn check_devices(&self, faults: &mut Vec<Fault>) {
        let mut fault = |option, text: String| faults.push(Fault { option, text });
        let files = &self.storage.data_files;
        if files.len() > limits::DEVICES_MAX {
            fault("data-file", format!("more than {} devices", limits::DEVICES_MAX));
        }
        if let Some(file) = first_repeated(files.iter()) {
            fault("data-file", format!("{file} is given twice"));
        }
        let spdk = self.storage.backend == StorageBackend::Spdk;
        for file in files {
            match (file, spdk) {
                (DataFile::Spdk { .. }, false) => {
                    fault("data-file", format!("{file} needs storage spdk"))
                }
                (DataFile::Path(_), true) => {
                    fault(
                        "data-file",
                        format!("storage spdk needs spdk://CONTROLLER/NSID, not {file}"),
                    );
                }
                _ => {}
            }
        }
        let size_bytes = self.storage.data_file_size_bytes;
        if size_bytes.is_some_and(|bytes| bytes < DATA_FILE_SIZE_MIN_BYTES) {
            let min_mib = DATA_FILE_SIZE_MIN_BYTES >> 20;
            fault("data-file-size", format!("must be at least {min_mib} MiB"));
        }
        if spdk && size_bytes.is_some() {
            fault(
                "data-file-size",
                "is for regular files, there are none with storage spdk".into(),
            );
        }
    }

    fn check_cores(&self, system: &System, faults: &mut Vec<Fault>) {
        let mut fault = |option, text: String| faults.push(Fault { option, text });
        let allowed = &system.cpus_allowed;
        let cpus = if self.threads.cpus.is_empty() { allowed } else { &self.threads.cpus };
        let foreign: Vec<usize> = cpus.iter().copied().filter(|c| !allowed.contains(c)).collect();
        if !foreign.is_empty() {
            let (foreign, allowed) = (show_cpu_list(&foreign), show_cpu_list(allowed));
            fault("cpus", format!("{foreign} is outside the affinity mask {allowed}"));
        }
        let threads = self.threads.threads;
        if self.threads.pin_workers && threads > cpus.len() {
            let list = show_cpu_list(cpus);
            let advice = "give more CPUs or --no-pin-workers";
            fault("threads", format!("{threads} pinned threads on the CPUs {list}: {advice}"));
        }
    }

    /// Against the machine and not against maxmemory, which may be set as low as one likes.
    fn check_buffers(&self, system: &System, faults: &mut Vec<Fault>) {
        let per_core = self.storage.registered_buffer_bytes_per_worker
            + u64::from(self.storage.write_buffers_per_worker) * limits::SEGMENT_SIZE_BYTES;
        let cores = self.threads.plan(&system.cpus_allowed).len() as u64;
        if per_core * cores >= system.memory_bytes {
            let (per_core_mib, memory_mib) = (per_core >> 20, system.memory_bytes >> 20);
            let text = format!(
                "with storage-write-buffers-per-worker that is {per_core_mib} MiB for each of \
                 {cores} cores, the machine has {memory_mib} MiB"
            );
            faults.push(Fault { option: "registered-buffer-mb-per-worker", text });
        }
    }

    fn check_access(&self, faults: &mut Vec<Fault>) {
        let access = &self.access;
        let reachable = self.net.bind.iter().any(|bind| !bind.addr.is_loopback());
        if access.protected_mode && access.requirepass.is_empty() && reachable {
            let text = "needs a requirepass, as bind is not only loopback addresses".into();
            faults.push(Fault { option: "protected-mode", text });
        }
    }

    /// Parts that this build does not have may be named, but not asked for.
    fn check_built(&self, faults: &mut Vec<Fault>) {
        let mut fault = |option, text: &str| faults.push(Fault { option, text: text.into() });
        if self.storage.backend == StorageBackend::Spdk && !cfg!(feature = "spdk") {
            fault("storage", "this build has no SPDK support, only uring");
        }
        if self.net.backend == NetBackend::Dpdk {
            fault("network", "this build has no DPDK support, only kernel");
        }
        if self.access.tls_port != 0 {
            fault("tls-port", "TLS is not built yet");
        }
        if !self.access.aclfile.is_empty() {
            fault("aclfile", "ACL users are not built yet; requirepass is");
        }
    }

    /// What deserves a line in the log at start, though it does not stop it.
    pub fn warnings(&self, system: &System) -> Vec<String> {
        let changed = |wanted: fn(&Opt) -> bool| {
            let default = Config::default();
            let differs = |opt: &&Opt| wanted(opt) && opt.show(self) != opt.show(&default);
            options::all().filter(differs).map(|opt| opt.name).collect::<Vec<_>>().join(", ")
        };
        let mut warnings = Vec::new();
        let mut warn = |text: &str, names: String| {
            if !names.is_empty() {
                warnings.push(format!("{text}: {names}"));
            }
        };
        warn("not in effect yet", changed(|opt| opt.later));
        warn("accepted for compatibility, no effect", changed(Opt::is_compat));
        if self.memory.maxmemory_bytes > system.memory_bytes {
            let (limit, memory) = (self.memory.maxmemory_bytes >> 20, system.memory_bytes >> 20);
            warnings.push(format!("maxmemory is {limit} MiB, but the machine has {memory} MiB"));
        }
        warnings
    }
}

/// The first element that was there before.
fn first_repeated<T: PartialEq + Clone>(items: impl Iterator<Item = T>) -> Option<T> {
    let items: Vec<T> = items.collect();
    (1..items.len()).find(|&at| items[..at].contains(&items[at])).map(|at| items[at].clone())
}

#[cfg(test)]
mod tests {
    use super::super::load::tests::config;
    use super::super::system::System;

    /// Faults of a command line on a machine with the CPUs 0-3 and 8 GiB.
    fn faults(line: &str) -> Vec<String> {
        let system = System { cpus_allowed: vec![0, 1, 2, 3], memory_bytes: 8 << 30 };
        config(line).validate(&system).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn launch_lines_of_the_documents_are_fine() {
        for line in [
            "",
            "--bind 127.0.0.1 --port 6379 --metrics-port 0 --threads 2 --no-pin-workers \
             --registered-buffer-mb-per-worker 64 --shutdown-checkpoint --data-file F --log-dir D",
            "--network kernel --storage uring --pin-workers --flush-max-ms 100 \
             --defrag-max-active-per-device 8 --defrag-sleep-ms 0 --defrag-record-sleep-us 0",
            "--tomb-raider-interval-ms=0 --spdk-max-completions-per-poll=16",
        ] {
            assert_eq!(faults(line), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn all_faults_are_found_at_once() {
        assert_eq!(
            faults("--port 0 --metrics-port 9000 --tls-port 9000 --aclfile f"),
            [
                "metrics-port: 9000 is the tls-port too",
                "tls-port: TLS is not built yet",
                "aclfile: ACL users are not built yet; requirepass is",
            ]
        );
        assert_eq!(
            faults("--port 0 --threads 5 --data-file a --data-file a --data-file-size 1mb"),
            [
                "port: is 0 and there is no other listener for clients",
                "data-file: a is given twice",
                "data-file-size: must be at least 80 MiB",
                "threads: 5 pinned threads on the CPUs 0-3: give more CPUs or --no-pin-workers",
            ]
        );
    }

    #[test]
    fn ports_and_addresses() {
        assert_eq!(
            faults("--metrics-port 6379 --bind ::1 --bind ::1"),
            ["bind: ::1 is given twice", "metrics-port: 6379 is the port for clients too"]
        );
        assert_eq!(
            faults("--tls-port 6379"),
            ["tls-port: 6379 is the port without TLS too", "tls-port: TLS is not built yet"]
        );
    }

    #[test]
    fn cpus() {
        assert_eq!(faults("--cpus 2-5"), ["cpus: 4-5 is outside the affinity mask 0-3"]);
        assert_eq!(
            faults("--cpus 0-1 --threads 3"),
            ["threads: 3 pinned threads on the CPUs 0-1: give more CPUs or --no-pin-workers"]
        );
        assert_eq!(faults("--cpus 0-1 --threads 3 --no-pin-workers"), Vec::<String>::new());
    }

    #[test]
    fn backends_and_their_devices() {
        assert_eq!(
            faults("--storage spdk --data-file spdk://0000:01:00.0/1"),
            ["storage: this build has no SPDK support, only uring"]
        );
        assert_eq!(
            faults("--storage spdk"),
            ["storage: this build has no SPDK support, only uring"]
        );
        assert_eq!(
            faults("--data-file spdk://0000:01:00.0/1"),
            ["data-file: spdk://0000:01:00.0/1 needs storage spdk"]
        );
        assert_eq!(
            faults("--storage spdk --data-file f --data-file-size 1gb"),
            [
                "data-file: storage spdk needs spdk://CONTROLLER/NSID, not f",
                "data-file-size: is for regular files, there are none with storage spdk",
                "storage: this build has no SPDK support, only uring",
            ]
        );
        assert_eq!(
            faults("--network dpdk"),
            ["network: this build has no DPDK support, only kernel"]
        );
    }

    #[test]
    fn memory_and_access() {
        assert_eq!(
            faults("--registered-buffer-mb-per-worker 4096"),
            ["registered-buffer-mb-per-worker: with storage-write-buffers-per-worker that is \
                 4128 MiB for each of 4 cores, the machine has 8192 MiB"]
        );
        let unprotected =
            "protected-mode: needs a requirepass, as bind is not only loopback addresses";
        assert_eq!(faults("--protected-mode yes --bind *"), [unprotected]);
        assert_eq!(faults("--protected-mode yes --bind * --requirepass x"), Vec::<String>::new());
        assert_eq!(faults("--protected-mode yes"), Vec::<String>::new());
    }

    #[test]
    fn warnings_name_what_does_nothing() {
        let system = System { cpus_allowed: vec![0], memory_bytes: 1 << 30 };
        let warnings = |line: &str| config(line).warnings(&system);
        assert_eq!(warnings("--port 7 --defrag-sleep-ms 0"), Vec::<String>::new());
        assert_eq!(
            warnings("--shutdown-checkpoint --tls-key-file k --appendonly yes --maxmemory 2gb"),
            [
                "not in effect yet: shutdown-checkpoint, tls-key-file",
                "accepted for compatibility, no effect: appendonly",
                "maxmemory is 2048 MiB, but the machine has 1024 MiB",
            ]
        );
    }
}
