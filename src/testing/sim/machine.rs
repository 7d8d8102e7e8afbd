//! One run of the server on simulated devices: its cores and what they share.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::command::session::Server;
use crate::config::{Config, Live, System};
use crate::driver::{Core, Message, Parts, Shared};
use crate::limits::{DATABASES, SEGMENT_SIZE_BYTES};
use crate::mem::{BufPool, LogBuf};
use crate::mesh::{self, Mesh};
use crate::reactor::{Gate, Reactor};
use crate::shard::index::{HashSeed, KeyHasher};
use crate::shard::open::{OpenOptions, open};
use crate::shard::plan::Plan;
use crate::shard::recover::Recovery;
use crate::shard::superblock::Superblocks;
use crate::shard::{Segments, Shard, ShardOptions};
use crate::testing::clock::SimClock;
use crate::testing::disk::{SimDisk, SimPort, SimRandom};
use crate::testing::net::{SimNet, SimWires};

/// Read buffers of a core.
const POOL_BYTES: usize = 32 << 20;

/// What outlives the runs: buffers, which are expensive to map anew, and time.
#[derive(Clone, Debug)]
pub struct Ground {
    pub disk: SimDisk,
    pub clock: SimClock,
    pools: Vec<BufPool>,
}

/// How a run is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    pub cores: usize,
    pub config: Config,
    pub buffers: usize,
}

/// Where a simulated core parks: its place in the scheduler.
#[derive(Clone, Debug, Default)]
struct Bench {
    asleep: Rc<Cell<Option<Duration>>>,
}

impl Gate for Bench {
    fn take_in(&self, _: &OwnedFd) {}

    fn submit(&self, wait: Option<Duration>) {
        self.asleep.set(wait);
    }

    fn has_work(&self) -> bool {
        false
    }
}

struct Seat {
    reactor: Reactor<SimNet, SimPort, SimClock, Bench>,
    bench: Bench,
    port: usize,
    /// Parked until then, unless something comes.
    until_ns: u64,
}

/// See the module.
pub struct Machine {
    seats: Vec<Seat>,
    ground: Ground,
    shared: Arc<Shared>,
    hasher: KeyHasher,
    pub wires: SimWires,
}

impl Ground {
    pub fn new(disk: SimDisk, clock: SimClock, cores_max: usize) -> std::io::Result<Ground> {
        let pools = (0..cores_max).map(|_| BufPool::new(POOL_BYTES, 0));
        Ok(Ground { disk, clock, pools: pools.collect::<std::io::Result<_>>()? })
    }
}

impl Machine {
    /// Opens the devices and builds the cores; their recovery runs in their turns.
    pub fn start(
        ground: &Ground,
        setup: &Setup,
        random: &mut SimRandom,
    ) -> Result<Machine, String> {
        let cores = setup.cores;
        let options =
            OpenOptions { cores: cores as u16, salvage: setup.config.persistence.salvage };
        let mut port = ground.disk.port();
        let fill = &mut |bytes: &mut [u8]| random.fill(bytes);
        let opened = open(&mut port, &ground.pools[0], options, fill);
        let opened = opened.map_err(|error| error.to_string())?;
        let system = System { cpus_allowed: (0..cores).collect(), memory_bytes: 1 << 32 };
        let live = Arc::new(Live::new(setup.config.clone(), &system));
        let started_ms = ground.clock.wall_ms();
        let server = Arc::new(Server::new(live, "0".repeat(40), started_ms, cores));
        server.state.loading.store(true, Ordering::Relaxed);
        let shared = Arc::new(Shared::default());
        let wires = SimWires::new(ground.clock.clone());
        let (meshes, _) = mesh::build(cores).map_err(|error| error.to_string())?;
        let seed = opened.seed;
        let mut builder = Builder {
            ground,
            setup,
            superblocks: Some(opened.superblocks),
            segments: opened.segments,
            plan: opened.plan,
            seed,
            databases: opened.databases,
            server,
            shared: Arc::clone(&shared),
            wires: wires.clone(),
        };
        let seats = meshes.into_iter().map(|mesh| builder.seat(mesh, random.draw()));
        let seats = seats.collect::<std::io::Result<_>>().map_err(|error| error.to_string())?;
        Ok(Machine { seats, ground: ground.clone(), shared, hasher: KeyHasher::new(&seed), wires })
    }

    pub fn cores(&self) -> usize {
        self.seats.len()
    }

    /// The core that owns a key.
    pub fn home(&self, key: &[u8]) -> usize {
        self.hasher.hash(key).core(self.seats.len() as u32) as usize
    }

    /// All cores have recovered their keys.
    pub fn is_ready(&self) -> bool {
        self.shared.ready.load(Ordering::Relaxed)
    }

    /// Asks for a clean stop.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.seats.iter_mut().for_each(|seat| seat.until_ns = 0);
    }

    /// All cores have ended.
    pub fn is_stopped(&mut self) -> bool {
        self.seats.iter_mut().all(|seat| seat.reactor.core().is_stopped())
    }

    /// Why cores have ended early.
    pub fn failures(&mut self) -> Vec<String> {
        self.seats.iter_mut().filter_map(|seat| seat.reactor.core().failed()).collect()
    }

    /// Every core learns that all have their keys: until its next turn one may answer `-LOADING`.
    pub fn notice_ready(&mut self) {
        (0..self.seats.len()).for_each(|core| self.turn(core));
    }

    /// When a core has something to do next; None when it has ended.
    pub fn due_ns(&mut self, core: usize) -> Option<u64> {
        let seat = &mut self.seats[core];
        if seat.reactor.core().is_stopped() {
            return None;
        }
        if seat.bench.asleep.get().is_none() || seat.reactor.core().has_messages() {
            return Some(0);
        }
        let disk = self.ground.disk.next_due_ns(Some(seat.port));
        let net = self.wires.next_due_ns(core);
        [disk, net].into_iter().flatten().chain([seat.until_ns]).min()
    }

    /// One turn of a core.
    pub fn turn(&mut self, core: usize) {
        let seat = &mut self.seats[core];
        seat.bench.asleep.set(None);
        seat.reactor.step();
        if let Some(limit) = seat.bench.asleep.get() {
            seat.until_ns = self.ground.clock.mono_ns() + limit.as_nanos() as u64;
        }
    }

    /// Every core is parked and no request is under way.
    pub fn is_idle(&mut self) -> bool {
        let asleep = |seat: &mut Seat| {
            seat.bench.asleep.get().is_some() && !seat.reactor.core().has_messages()
        };
        self.seats.iter_mut().all(asleep) && self.ground.disk.next_due_ns(None).is_none()
    }
}

struct Builder<'a> {
    ground: &'a Ground,
    setup: &'a Setup,
    segments: Arc<Segments>,
    plan: Arc<Plan>,
    seed: HashSeed,
    databases: [u8; DATABASES],
    superblocks: Option<Superblocks>,
    server: Arc<Server>,
    shared: Arc<Shared>,
    wires: SimWires,
}

impl Builder<'_> {
    fn seat(&mut self, mesh: Mesh<Message>, seed: u64) -> std::io::Result<Seat> {
        let core = mesh.core();
        let disk = self.ground.disk.port();
        let port = disk.number();
        let pool = self.ground.pools[core].clone();
        let plan = Arc::clone(&self.plan);
        let recovery = Recovery::new(plan, pool.clone(), self.setup.config.persistence.salvage);
        let parts = Parts {
            shard: self.shard(core)?,
            recovery,
            disk,
            net: self.wires.net(core),
            pool,
            mesh,
            server: Arc::clone(&self.server),
            stats: Arc::clone(&self.server.stats[core]),
            seed,
            shared: Arc::clone(&self.shared),
        };
        let bench = Bench::default();
        let clock = self.ground.clock.clone();
        let reactor = Reactor::new(Core::new(parts), clock, bench.clone(), 0);
        Ok(Seat { reactor, bench, port, until_ns: 0 })
    }

    fn shard(&mut self, core: usize) -> std::io::Result<Shard> {
        let persistence = &self.setup.config.persistence;
        let options = ShardOptions {
            core: core as u16,
            cores: self.setup.cores as u16,
            seed: self.seed,
            databases: self.databases,
            flush_max_ms: persistence.flush_max_ms,
            flush_size_bytes: persistence.flush_size_bytes as usize,
        };
        let buf = |index| LogBuf::new(SEGMENT_SIZE_BYTES as usize, index as u16);
        let bufs = (0..self.setup.buffers).map(buf).collect::<std::io::Result<_>>()?;
        let mut shard = Shard::new(options, Arc::clone(&self.segments), bufs)?;
        if let Some(superblocks) = self.superblocks.take() {
            shard.adopt(superblocks)?;
        }
        Ok(shard)
    }
}
