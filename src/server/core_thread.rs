//! The thread of one core: its memory, ring, devices, network and shard, then the loop.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::clock::SystemClock;
use crate::command::session::Server;
use crate::config::Config;
use crate::disk::Disk;
use crate::disk::uring::UringDisk;
use crate::driver::{Core, Message, Parts, Shared};
use crate::limits::{DATABASES, SEGMENT_SIZE_BYTES};
use crate::mem::{BufPool, LogBuf, Region};
use crate::mesh::Mesh;
use crate::net::kernel::KernelNet;
use crate::reactor::Reactor;
use crate::ring::Ring;
use crate::shard::index::HashSeed;
use crate::shard::plan::Plan;
use crate::shard::recover::Recovery;
use crate::shard::superblock::Superblocks;
use crate::shard::{Segments, Shard, ShardOptions};

use super::devices::{Devices, ring_failed};

/// What a core's thread starts with.
pub struct Setup {
    pub config: Arc<Config>,
    /// CPU to pin the thread to.
    pub cpu: Option<usize>,
    pub mesh: Mesh<Message>,
    pub listeners: Vec<OwnedFd>,
    pub devices: Devices,
    pub segments: Arc<Segments>,
    pub plan: Arc<Plan>,
    pub hash_seed: HashSeed,
    pub databases: [u8; DATABASES],
    /// On core 0, which writes them.
    pub superblocks: Option<Superblocks>,
    pub server: Arc<Server>,
    pub shared: Arc<Shared>,
}

/// Starts the thread.
pub fn spawn(setup: Setup) -> Result<JoinHandle<Result<(), String>>, String> {
    let name = format!("core-{}", setup.mesh.core());
    let thread = thread::Builder::new().name(name);
    thread.spawn(|| run(setup)).map_err(|error| format!("cannot start a thread: {error}"))
}

fn run(setup: Setup) -> Result<(), String> {
    if let Some(cpu) = setup.cpu {
        pin(cpu)?;
    }
    let config = Arc::clone(&setup.config);
    let ring = Rc::new(Ring::new().map_err(|error| ring_failed(&error))?);
    ring.watch(setup.mesh.bell().event());
    let memory = Memory::map(&config)?;
    match setup.devices.clone() {
        Devices::Kernel(devices) => {
            let disk = UringDisk::new(Rc::clone(&ring), devices, &memory.regions());
            if !disk.is_registered() {
                log::warn!("device buffers are not registered: raise the limit on locked memory");
            }
            turn(build(setup, &ring, memory, disk)?, ring, &config)
        }
        #[cfg(feature = "spdk")]
        Devices::Spdk(set) => {
            let disk = crate::disk::spdk::SpdkDisk::new(set)?;
            turn(build(setup, &ring, memory, disk)?, ring, &config)
        }
    }
}

fn turn<D: Disk>(core: Core<KernelNet, D>, ring: Rc<Ring>, config: &Config) -> Result<(), String> {
    Reactor::new(core, SystemClock::default(), ring, config.threads.busy_poll_us).run()
}

fn no_memory(error: std::io::Error) -> String {
    format!("no memory for device buffers: {error}")
}

/// What devices read from and write to.
struct Memory {
    pool: BufPool,
    bufs: Vec<LogBuf>,
}

impl Memory {
    fn map(config: &Config) -> Result<Memory, String> {
        let pool_bytes = config.storage.registered_buffer_bytes_per_worker as usize;
        let pool = BufPool::new(pool_bytes, 0).map_err(no_memory)?;
        let write_buffers = config.storage.write_buffers_per_worker as u16;
        let bufs = (1..=write_buffers).map(|i| LogBuf::new(SEGMENT_SIZE_BYTES as usize, i));
        let bufs = bufs.collect::<Result<_, _>>().map_err(no_memory)?;
        Ok(Memory { pool, bufs })
    }

    /// In the order of their indices.
    fn regions(&self) -> Vec<&Region> {
        let mut regions: Vec<&Region> = vec![self.pool.region()];
        regions.extend(self.bufs.iter().map(|buf| &**buf.region()));
        regions
    }
}

fn build<D: Disk>(
    setup: Setup,
    ring: &Rc<Ring>,
    Memory { pool, bufs }: Memory,
    disk: D,
) -> Result<Core<KernelNet, D>, String> {
    let config = &setup.config;
    let sockets_max = config.net.maxclients as usize;
    let net = KernelNet::new(Rc::clone(ring), setup.listeners, sockets_max)
        .map_err(|error| format!("cannot set up receive buffers: {error}"))?;
    let options = ShardOptions {
        core: setup.mesh.core() as u16,
        cores: setup.mesh.cores() as u16,
        seed: setup.hash_seed,
        databases: setup.databases,
        flush_max_ms: config.persistence.flush_max_ms,
        flush_size_bytes: config.persistence.flush_size_bytes as usize,
    };
    let mut shard = Shard::new(options, setup.segments, bufs).map_err(no_memory)?;
    if let Some(superblocks) = setup.superblocks {
        shard.adopt(superblocks).map_err(no_memory)?;
    }
    let stats = Arc::clone(&setup.server.stats[setup.mesh.core()]);
    let recovery = Recovery::new(setup.plan, pool.clone(), config.persistence.salvage);
    Ok(Core::new(Parts {
        shard,
        recovery,
        disk,
        net,
        pool,
        mesh: setup.mesh,
        server: setup.server,
        stats,
        seed: seed()?,
        shared: setup.shared,
    }))
}

fn seed() -> Result<u64, String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(u64::from_le_bytes(bytes))
}

fn pin(cpu: usize) -> Result<(), String> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
        .map_err(|error| format!("cannot pin a thread to CPU {cpu}: {error}"))
}
