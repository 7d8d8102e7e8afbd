//! The control plane: devices, listeners, one thread per core, signals, shutdown. It starts the
//! cores, watches for signals and serves the metrics meanwhile, and ends them; it takes no part in
//! their work.

mod core_thread;
mod devices;
mod listen;
#[cfg(feature = "spdk")]
mod spdk;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::clock;
use crate::command::session::Server;
use crate::config::{Config, Live, NetBackend, System};
use crate::disk::Geometry;
use crate::driver::Shared;
use crate::limits::RECORD_UNIT_BYTES;
use crate::mesh::{self, Bell};
use crate::metrics;
use crate::shard::Segments;

/// How often the control plane looks for signals and finished cores.
const WATCH_INTERVAL: Duration = Duration::from_millis(20);

/// How often figures of the segments are put together.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(200);

/// Runs the server until a signal or SHUTDOWN. The error is one line for the operator.
pub fn run(config: Config, system: &System) -> Result<(), String> {
    abort_on_panic();
    refuse_unbuilt(&config)?;
    raise_limits(&config);
    let plan = config.threads.plan(&system.cpus_allowed);
    let cores = plan.len();
    // Addresses first: a start that fails for want of one has not touched the devices.
    let sockets = listen::bind(&config.net)?;
    let metrics_listeners = metrics::bind(&metrics_addresses(&config))?;
    let cpu = plan.first().copied().flatten().or(system.cpus_allowed.first().copied());
    let (devices, opened) = devices::open(&config, cores, cpu.unwrap_or(0))?;
    let listeners = listen::listen(sockets, &config.net)?;
    let live = Arc::new(Live::new(config.clone(), system));
    let server = Arc::new(Server::new(live, run_id()?, clock::unix_ms(), cores));
    server.state.loading.store(true, Ordering::Relaxed);
    let shared = Arc::new(Shared::default());
    let geometry = devices.geometry();
    let sources = metrics_sources(&server, &shared, &geometry);
    metrics::serve(metrics_listeners, &sources)?;
    banner(&config, system, &geometry, cores);
    let (meshes, bells) = mesh::build(cores).map_err(|e| format!("cannot make eventfds: {e}"))?;
    let config = Arc::new(config);
    let (mut listeners, mut superblocks) = (Some(listeners), Some(opened.superblocks));
    let mut threads = Vec::new();
    for (mesh, cpu) in meshes.into_iter().zip(plan) {
        threads.push(core_thread::spawn(core_thread::Setup {
            config: Arc::clone(&config),
            cpu,
            mesh,
            listeners: listeners.take().unwrap_or_default(),
            devices: devices.clone(),
            segments: Arc::clone(&opened.segments),
            plan: Arc::clone(&opened.plan),
            hash_seed: opened.seed,
            databases: opened.databases,
            superblocks: superblocks.take(),
            server: Arc::clone(&server),
            shared: Arc::clone(&shared),
        })?);
    }
    #[cfg(feature = "spdk")]
    let mut health = spdk::Watch::new(&devices, &server, &geometry);
    let look = || {
        #[cfg(feature = "spdk")]
        health.poll();
    };
    let watched = watch(&shared, &bells, &threads, || publish(&sources, &opened.segments), look);
    let mut outcome = watched;
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err("a core thread panicked".into()));
        outcome = outcome.and(ended);
    }
    log::info!("stopped");
    outcome
}

/// Waits for a signal, SHUTDOWN, or the end of a core.
fn watch(
    shared: &Shared,
    bells: &[Bell],
    threads: &[thread::JoinHandle<Result<(), String>>],
    publish: impl Fn(),
    mut look: impl FnMut(),
) -> Result<(), String> {
    let asked = Arc::new(AtomicBool::new(false));
    // A terminal that is gone is no reason to stop: the flag of SIGHUP is looked at by nobody.
    let ignored = Arc::new(AtomicBool::new(false));
    for (signal, flag) in [(SIGINT, &asked), (SIGTERM, &asked), (SIGHUP, &ignored)] {
        signal_hook::flag::register(signal, Arc::clone(flag))
            .map_err(|error| format!("cannot handle signal {signal}: {error}"))?;
    }
    let mut published = None;
    loop {
        let ended = threads.iter().any(thread::JoinHandle::is_finished);
        let asked = asked.load(Ordering::Relaxed);
        if asked {
            log::info!("signal received: finishing what is under way");
        }
        if asked || ended || shared.stop.load(Ordering::Relaxed) {
            shared.stop.store(true, Ordering::Relaxed);
            bells.iter().for_each(Bell::ring);
            return Ok(());
        }
        look();
        // It walks over the table of segments.
        if published.is_none_or(|at: Instant| at.elapsed() >= PUBLISH_INTERVAL) {
            publish();
            published = Some(Instant::now());
        }
        thread::sleep(WATCH_INTERVAL);
    }
}

/// Figures of the segments for INFO and the metrics endpoint. The table counts free segments of
/// all devices together; they are shown in proportion to the devices' sizes.
fn publish(sources: &metrics::Sources, segments: &Segments) {
    const UNIT: u64 = RECORD_UNIT_BYTES;
    let (usage, space) = (segments.usage(), &sources.server.space);
    for device in &sources.devices {
        let share = u128::from(device.capacity_bytes) * u128::from(usage.free);
        let available = share / u128::from(usage.segments.max(1));
        device.available_bytes.store(available as u64, Ordering::Relaxed);
    }
    space.segments.set(usage.segments.into());
    space.free.set(usage.free.into());
    space.open.set(usage.open.into());
    space.sealed.set(usage.sealed.into());
    space.empty.set(usage.empty.into());
    space.victims.set(usage.victims.into());
    space.value_bytes.set((usage.value_units * UNIT) as i64);
    space.dead_bytes.set((usage.dead_units * UNIT) as i64);
    space.tombstones.set(usage.tombstones as i64);
    let (ended, incomplete) = segments.jobs_ended();
    space.defrag_runs.set(ended);
    space.defrag_incomplete.set(incomplete);
}

/// A core that has panicked leaves the others waiting for its answers, and its state is not to be
/// trusted: the process ends, and recovery starts from what is on the devices.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        log::error!("internal error: {info}");
        report(info);
        std::process::abort();
    }));
}

/// Choices that this build cannot serve are errors, never something else silently.
fn refuse_unbuilt(config: &Config) -> Result<(), String> {
    if config.net.backend == NetBackend::Dpdk {
        return Err("--network dpdk: this build has no DPDK support".into());
    }
    Ok(())
}

/// Asks for as many descriptors as connections may need, and for lockable memory. Both are
/// best effort: what is missing shows later, where it is needed, with its own message.
fn raise_limits(config: &Config) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = u64::from(config.net.maxclients) + 256;
    let files = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: files.current.map(|current| current.max(wanted)),
        maximum: files.maximum.map(|maximum| maximum.max(wanted)),
    };
    if setrlimit(Resource::Nofile, raised).is_err() {
        let capped = Rlimit { current: files.maximum, maximum: files.maximum };
        let _ = setrlimit(Resource::Nofile, capped);
    }
    let memory = getrlimit(Resource::Memlock);
    let unlimited = Rlimit { current: None, maximum: None };
    if setrlimit(Resource::Memlock, unlimited).is_err() {
        let _ = setrlimit(Resource::Memlock, Rlimit { current: memory.maximum, ..memory });
    }
}

fn run_id() -> Result<String, String> {
    let mut bytes = [0u8; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Where to listen for HTTP (`true`: may be missing).
fn metrics_addresses(config: &Config) -> Vec<(SocketAddr, bool)> {
    match config.metrics.port {
        0 => Vec::new(),
        port => {
            let binds = config.net.bind.iter();
            binds.map(|bind| (SocketAddr::new(bind.addr, port), bind.optional)).collect()
        }
    }
}

fn metrics_sources(
    server: &Arc<Server>,
    shared: &Shared,
    devices: &[Geometry],
) -> Arc<metrics::Sources> {
    let devices = devices.iter().map(|device| {
        Arc::new(metrics::Device {
            path: device.name.clone(),
            capacity_bytes: device.size_bytes,
            available_bytes: AtomicU64::new(0),
        })
    });
    Arc::new(metrics::Sources {
        server: Arc::clone(server),
        ready: Arc::clone(&shared.ready),
        devices: devices.collect(),
    })
}

fn banner(config: &Config, system: &System, devices: &[Geometry], cores: usize) {
    config.banner_lines(system).iter().for_each(|line| log::info!("{line}"));
    for geometry in devices {
        log::info!(
            "device {}: {} MiB, {}-byte sectors, {} write cache",
            geometry.name,
            geometry.size_bytes >> 20,
            geometry.sector_size,
            if geometry.volatile_cache { "volatile (flushed)" } else { "no volatile" },
        );
    }
    log::info!("{cores} core(s)");
}
