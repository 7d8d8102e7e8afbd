//! The control plane of SPDK: the environment, the controllers of the settings, their health.

use std::sync::Arc;

use crate::command::session::Server;
use crate::config::Config;
use crate::config::value::{Controller, DataFile};
use crate::disk::Geometry;
use crate::disk::spdk::{Address, Admin, Set, preflight};
use crate::limits::SEGMENT_SIZE_BYTES;
use crate::mem::environment;
use crate::stats::DeviceHealth;

use super::devices::Devices;

/// Hugepages beyond the buffers of the settings: for the start, and for each core (receive
/// buffers, headers, queue pairs).
const START_MIB: u64 = 64;
const CORE_MIB: u64 = 16;

/// Starts the environment and connects the controllers of the settings. Nothing else may run yet.
pub fn open(config: &Config, cores: usize, cpu: usize) -> Result<Arc<Set>, String> {
    let wanted: Vec<(Address, u32)> = config.storage.devices().iter().filter_map(wanted).collect();
    for (address, _) in &wanted {
        preflight::check_address(address)?;
    }
    let memory_mib = needed_mib(config, cores);
    if !config.bypass.eal_args.contains("--no-huge") {
        preflight::check_hugepages(memory_mib)?;
    }
    start_environment(config, &wanted, memory_mib, cpu)?;
    let set = Set::open(&wanted)?;
    set.set_completions_max(config.storage.spdk_max_completions_per_poll);
    Ok(Arc::new(set))
}

fn wanted(file: &DataFile) -> Option<(Address, u32)> {
    let DataFile::Spdk { controller, nsid } = file else { return None };
    let address = match controller {
        Controller::Pci(pci) => Address::Pci(pci.to_string()),
        Controller::Tcp { address, subnqn } => {
            Address::Tcp { address: *address, subnqn: subnqn.clone() }
        }
    };
    Some((address, *nsid))
}

fn needed_mib(config: &Config, cores: usize) -> u64 {
    let storage = &config.storage;
    let buffers = storage.registered_buffer_bytes_per_worker
        + u64::from(storage.write_buffers_per_worker) * SEGMENT_SIZE_BYTES;
    let needed = START_MIB + cores as u64 * ((buffers >> 20) + CORE_MIB);
    needed.max(config.bypass.dpdk_memory_mb)
}

/// All hugepages are taken at once: what is missing shows here and not in the middle of a command.
/// The environment pins the thread that starts it; our threads are pinned by our own settings.
fn start_environment(
    config: &Config,
    wanted: &[(Address, u32)],
    memory_mib: u64,
    cpu: usize,
) -> Result<(), String> {
    let pci_allowed = wanted.iter().filter_map(|(address, _)| match address {
        Address::Pci(pci) => Some(pci.clone()),
        Address::Tcp { .. } => None,
    });
    let start = environment::Start {
        eal_args: config.bypass.eal_args.clone(),
        memory_mb: memory_mib as u32,
        pci_allowed: pci_allowed.collect(),
        cpu,
    };
    let affinity = rustix::thread::sched_getaffinity(None);
    let outcome = environment::start(&start);
    if let Ok(affinity) = affinity {
        let _ = rustix::thread::sched_setaffinity(None, &affinity);
    }
    outcome
}

/// Looks after the admin queues and shows what the controllers say of themselves.
pub struct Watch<'a> {
    admin: Option<Admin>,
    set: Option<Arc<Set>>,
    server: &'a Server,
}

impl<'a> Watch<'a> {
    pub fn new(devices: &Devices, server: &'a Server, geometry: &[Geometry]) -> Watch<'a> {
        let set = match devices {
            Devices::Spdk(set) => Some(Arc::clone(set)),
            Devices::Kernel(_) => None,
        };
        if set.is_some() {
            let health = geometry.iter().map(|device| DeviceHealth::new(&device.name));
            // Nobody else sets it.
            let _ = server.state.devices.set(health.collect());
        }
        Watch { admin: set.as_ref().map(|set| Admin::new(Arc::clone(set))), set, server }
    }

    /// To be called every 20 ms.
    pub fn poll(&mut self) {
        let (Some(admin), Some(set)) = (&mut self.admin, &self.set) else { return };
        set.set_completions_max(self.server.config.snapshot().spdk_max_completions_per_poll);
        let Some(devices) = self.server.state.devices.get() else { return };
        admin.poll(|index, health, is_working| {
            let device = &devices[index];
            device.working.set(i64::from(is_working));
            let Some(health) = health else { return };
            device.critical_warning.set(health.critical_warning.into());
            device.available_spare_percent.set(health.available_spare_percent.into());
            device.used_percent.set(health.used_percent.into());
            device.temperature_celsius.set(health.temperature_celsius.into());
            device.media_errors.set(health.media_errors as i64);
            device.unsafe_shutdowns.set(health.unsafe_shutdowns as i64);
        });
    }
}
