//! NVMe controllers: connected, checked, watched. Queue pairs belong to cores; the admin queue and
//! the health log are the control plane's.

use std::ffi::{CString, c_void};
use std::fmt;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use lavik_sys as sys;

use super::preflight;
use crate::disk::{Geometry, Health};
use crate::mem::{Region, environment};

/// Commands that a queue pair holds; the controller may allow fewer.
const QUEUE_DEPTH: u32 = 1024;
/// SPDK's bookkeeping of one queue pair: a request beyond the depth, or a part of one that is
/// longer than the controller transfers at once, needs one of these.
const QUEUE_REQUESTS: u32 = 2048;
/// How long the commands of a controller's setup may take.
const SETUP_TIMEOUT_MS: u32 = 8_000;
/// A command that takes longer is aborted; a controller that does not answer to that either is
/// given up.
const COMMAND_TIMEOUT_US: u64 = 20_000_000;
/// A segment written at once must not need more parts than a queue pair has requests.
const TRANSFER_MIN_BYTES: u32 = 16 << 10;
/// The health log is read once in so many calls of [`Admin::poll`]: about once a minute.
const POLLS_PER_HEALTH: u32 = 3_000;

/// Where a controller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `DDDD:BB:DD.F`.
    Pci(String),
    Tcp {
        address: SocketAddr,
        subnqn: String,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Pci(address) => write!(f, "spdk://{address}"),
            Address::Tcp { address, subnqn } => write!(f, "spdk://tcp:{address}/{subnqn}"),
        }
    }
}

impl Address {
    /// In the words of SPDK.
    fn transport_id(&self) -> String {
        match self {
            Address::Pci(address) => format!("trtype:PCIe traddr:{address}"),
            Address::Tcp { address, subnqn } => format!(
                "trtype:TCP adrfam:{} traddr:{} trsvcid:{} subnqn:{subnqn}",
                if address.is_ipv4() { "IPv4" } else { "IPv6" },
                address.ip(),
                address.port(),
            ),
        }
    }
}

/// A connected controller.
#[derive(Debug)]
pub struct Controller {
    raw: NonNull<sys::spdk_nvme_ctrlr>,
    address: Address,
    /// It has not answered an admin command in time.
    hangs: AtomicBool,
    /// It was given up, and that was said.
    failed: AtomicBool,
    /// The health log has arrived in the page of [`Admin`].
    health_read: AtomicBool,
}

// SAFETY: SPDK takes a lock of the controller in every call that we make on it from several
// threads (queue pairs, admin queue, abort); the rest of the structure is atomic or constant.
unsafe impl Send for Controller {}
// SAFETY: as above.
unsafe impl Sync for Controller {}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

impl Controller {
    fn connect(address: Address) -> Result<Arc<Controller>, String> {
        let mut id = sys::spdk_nvme_transport_id::default();
        let text = CString::new(address.transport_id()).map_err(|error| error.to_string())?;
        // SAFETY: both pointers are valid for the call.
        if unsafe { sys::spdk_nvme_transport_id_parse(&mut id, text.as_ptr()) } != 0 {
            return Err(format!("{address}: SPDK does not understand this address"));
        }
        // SAFETY: `id` lives for the call and is copied by SPDK.
        let raw = NonNull::new(unsafe { sys::lavik_connect(&id, SETUP_TIMEOUT_MS, QUEUE_DEPTH) });
        let raw = raw.ok_or_else(|| {
            format!("{address}: no controller there lets us in: {}", environment::last_line())
        })?;
        let controller = Arc::new(Controller {
            raw,
            address,
            hangs: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            health_read: AtomicBool::new(false),
        });
        let arg: *const Controller = &*controller;
        // SAFETY: the Arc keeps the controller at its address until it is detached, after which
        // SPDK calls nobody.
        unsafe {
            sys::lavik_set_timeout(raw.as_ptr(), COMMAND_TIMEOUT_US, Some(late), arg as *mut _);
        }
        Ok(controller)
    }

    /// A queue pair, to be used by the calling thread alone.
    pub(super) fn queue_pair(&self) -> Result<NonNull<sys::spdk_nvme_qpair>, String> {
        // SAFETY: the controller is connected; SPDK locks it.
        let pair = unsafe { sys::lavik_queue_pair(self.raw.as_ptr(), QUEUE_REQUESTS) };
        NonNull::new(pair).ok_or_else(|| {
            let reason = environment::last_line();
            format!("{self}: it has no queue pair left for this core ({reason}): fewer --threads")
        })
    }

    fn is_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Ends the use of a controller that has failed or hangs: every core finds its queue pair
    /// broken at its next poll.
    fn give_up(&self) {
        self.failed.store(true, Ordering::Relaxed);
        log::error!("{self}: the controller has failed; its data answers errors until a restart");
        // SAFETY: the controller is attached. Its access to memory is cut off first, for the
        // buffers of what was under way will be used again.
        unsafe {
            sys::lavik_stop_dma(self.raw.as_ptr());
            sys::spdk_nvme_ctrlr_fail(self.raw.as_ptr());
        }
    }

    /// Takes admin completions and sends keep-alives.
    fn poll(&self) {
        if self.is_failed() {
            return;
        }
        // SAFETY: SPDK locks the controller.
        let taken = unsafe { sys::spdk_nvme_ctrlr_process_admin_completions(self.raw.as_ptr()) };
        if taken < 0 || self.hangs.load(Ordering::Relaxed) {
            self.give_up();
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // SAFETY: the queue pairs are gone with the cores, which hold the set by counted
        // references.
        unsafe { sys::spdk_nvme_detach(self.raw.as_ptr()) };
    }
}

/// A command is late: it is aborted; if that was an admin command, the controller hangs.
extern "C" fn late(
    arg: *mut c_void,
    raw: *mut sys::spdk_nvme_ctrlr,
    pair: *mut sys::spdk_nvme_qpair,
    command: u16,
) {
    // SAFETY: `arg` is the controller that `connect` gave, alive while it is attached.
    let controller = unsafe { &*arg.cast::<Controller>() };
    if pair.is_null() {
        log::error!("{controller}: an admin command is not answered");
        return controller.hangs.store(true, Ordering::Relaxed);
    }
    log::error!("{controller}: command {command} takes too long, it is aborted");
    // SAFETY: SPDK has just named these three; an abort points at no memory.
    let code = unsafe {
        sys::spdk_nvme_ctrlr_cmd_abort(raw, pair, command, Some(ignore), std::ptr::null_mut())
    };
    if code != 0 {
        controller.hangs.store(true, Ordering::Relaxed);
    }
}

extern "C" fn ignore(_arg: *mut c_void, _completion: *const sys::spdk_nvme_cpl) {}

extern "C" fn health_landed(arg: *mut c_void, completion: *const sys::spdk_nvme_cpl) {
    // SAFETY: `arg` is the controller that `Admin::poll` gave, alive while it is attached.
    let controller = unsafe { &*arg.cast::<Controller>() };
    // SAFETY: SPDK passes a completion that lives for the call.
    let is_read = unsafe { sys::lavik_status(completion) } == 0;
    controller.health_read.store(is_read, Ordering::Relaxed);
}

/// A namespace of a controller of the set: one device.
#[derive(Debug)]
pub struct Namespace {
    raw: NonNull<sys::spdk_nvme_ns>,
    controller: usize,
    pub geometry: Geometry,
    /// Keeps other servers on this machine out while it lives.
    _lock: UnixListener,
}

// SAFETY: SPDK only reads a namespace's structure when commands are built.
unsafe impl Send for Namespace {}
// SAFETY: as above.
unsafe impl Sync for Namespace {}

impl Namespace {
    fn open(controllers: &[Arc<Controller>], index: usize, nsid: u32) -> Result<Self, String> {
        let controller = &controllers[index];
        let name = format!("{controller}/{nsid}");
        let ctrlr = controller.raw.as_ptr();
        // SAFETY: the controller is attached; the results are read only.
        let (raw, count) = unsafe {
            let active = sys::spdk_nvme_ctrlr_is_active_ns(ctrlr, nsid);
            let raw = if active {
                sys::spdk_nvme_ctrlr_get_ns(ctrlr, nsid)
            } else {
                std::ptr::null_mut()
            };
            (raw, sys::spdk_nvme_ctrlr_get_num_ns(ctrlr))
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            format!(
                "{name}: there is no namespace {nsid}; the controller has numbers up to {count}"
            )
        })?;
        let namespace = Namespace {
            geometry: identify(controller, raw, name)?,
            raw,
            controller: index,
            _lock: lock(controller, nsid)?,
        };
        Ok(namespace)
    }

    pub(super) fn raw(&self) -> *mut sys::spdk_nvme_ns {
        self.raw.as_ptr()
    }

    /// Index of its controller in the set.
    pub(super) fn controller(&self) -> usize {
        self.controller
    }
}

/// Checks that we can work with the namespace.
fn identify(
    controller: &Controller,
    raw: NonNull<sys::spdk_nvme_ns>,
    name: String,
) -> Result<Geometry, String> {
    let ns = raw.as_ptr();
    // SAFETY: the namespace is active; these read what identify has brought.
    let (sector_size, metadata, size_bytes, transfer, protected, volatile_cache) = unsafe {
        (
            sys::spdk_nvme_ns_get_sector_size(ns),
            sys::spdk_nvme_ns_get_md_size(ns),
            sys::spdk_nvme_ns_get_size(ns),
            sys::spdk_nvme_ns_get_max_io_xfer_size(ns),
            sys::lavik_is_write_protected(ns),
            sys::lavik_has_write_cache(controller.raw.as_ptr()),
        )
    };
    if !matches!(sector_size, 512 | 4096) {
        return Err(format!("{name}: its sectors have {sector_size} bytes, not 512 or 4096"));
    }
    if metadata != 0 {
        return Err(format!(
            "{name}: it is formatted with {metadata} bytes of metadata per sector"
        ));
    }
    if protected {
        return Err(format!("{name}: it is write-protected"));
    }
    if transfer < TRANSFER_MIN_BYTES {
        return Err(format!("{name}: it transfers only {transfer} bytes at a time"));
    }
    Ok(Geometry { name, size_bytes, sector_size, volatile_cache })
}

/// Two servers would destroy each other's data. The kernel lets go of the name when the process
/// ends, however it ends.
fn lock(controller: &Controller, nsid: u32) -> Result<UnixListener, String> {
    let name = format!("{controller}/{nsid}");
    let address = UnixAddress::from_abstract_name(format!("lavik/{name}"));
    let bound = address.and_then(|address| UnixListener::bind_addr(&address));
    bound.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => format!("{name}: it is in use by another process"),
        _ => format!("{name}: cannot be locked: {error}"),
    })
}

/// The devices in the order given, and their controllers, each connected once.
#[derive(Debug)]
pub struct Set {
    // Before the controllers: locks go first.
    namespaces: Vec<Namespace>,
    controllers: Vec<Arc<Controller>>,
    completions_max: AtomicU32,
}

impl Set {
    /// Connects what is wanted. The environment must have started.
    pub fn open(wanted: &[(Address, u32)]) -> Result<Set, String> {
        let mut set = Set {
            namespaces: Vec::new(),
            controllers: Vec::new(),
            completions_max: AtomicU32::new(0),
        };
        for (address, nsid) in wanted {
            let known = set.controllers.iter().position(|known| known.address == *address);
            let index = match known {
                Some(index) => index,
                None => {
                    preflight::check_address(address)?;
                    set.controllers.push(Controller::connect(address.clone())?);
                    set.controllers.len() - 1
                }
            };
            set.namespaces.push(Namespace::open(&set.controllers, index, *nsid)?);
        }
        Ok(set)
    }

    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    pub(super) fn controllers(&self) -> &[Arc<Controller>] {
        &self.controllers
    }

    /// Completions taken from a queue pair at once; 0: all.
    pub(super) fn completions_max(&self) -> u32 {
        self.completions_max.load(Ordering::Relaxed)
    }

    pub fn set_completions_max(&self, max: u32) {
        self.completions_max.store(max, Ordering::Relaxed);
    }
}

/// The control plane's part: admin queues and health logs.
#[derive(Debug)]
pub struct Admin {
    set: Arc<Set>,
    /// Where a controller writes its health log; made when first needed.
    pages: Vec<Option<Region>>,
    polls: u32,
}

impl Admin {
    pub fn new(set: Arc<Set>) -> Admin {
        let pages = set.controllers.iter().map(|_| None).collect();
        Admin { set, pages, polls: 0 }
    }

    /// Answers what the controllers want of us.
    pub fn keep_alive(&self) {
        self.set.controllers.iter().for_each(|controller| controller.poll());
    }

    /// To be called every 20 ms. `report` gets the health of each device as it becomes known, and
    /// whether its controller works.
    pub fn poll(&mut self, report: impl Fn(usize, Option<Health>, bool)) {
        self.keep_alive();
        if self.polls == 0 {
            (0..self.pages.len()).for_each(|index| self.ask_health(index));
        }
        self.polls = (self.polls + 1) % POLLS_PER_HEALTH;
        for (index, controller) in self.set.controllers.iter().enumerate() {
            let is_read = controller.health_read.swap(false, Ordering::Relaxed);
            let health = self.pages[index].as_ref().filter(|_| is_read).map(read_health);
            for (device, namespace) in self.set.namespaces.iter().enumerate() {
                if namespace.controller == index {
                    report(device, health, !controller.is_failed());
                }
            }
        }
    }

    fn ask_health(&mut self, index: usize) {
        let controller = &self.set.controllers[index];
        if controller.is_failed() {
            return;
        }
        if self.pages[index].is_none() {
            self.pages[index] = Region::new(4096, u16::MAX).ok();
        }
        let Some(page) = &self.pages[index] else { return };
        let arg: *const Controller = &**controller;
        // SAFETY: page and controller outlive the command: it ends when the controller is
        // detached at the latest, and `self` holds the set.
        let code = unsafe {
            sys::lavik_get_health(
                controller.raw.as_ptr(),
                page.as_ptr().cast(),
                Some(health_landed),
                arg.cast_mut().cast(),
            )
        };
        if code != 0 {
            log::debug!("{controller}: no health log ({code})");
        }
    }
}

fn read_health(page: &Region) -> Health {
    let mut raw = sys::lavik_health::default();
    // SAFETY: the page holds a whole health log, and the controller has ended writing it.
    unsafe { sys::lavik_read_health(page.as_ptr().cast(), &mut raw) };
    Health {
        critical_warning: raw.critical_warning,
        available_spare_percent: raw.available_spare_percent,
        used_percent: raw.used_percent,
        temperature_celsius: celsius(raw.temperature_kelvin),
        media_errors: raw.media_errors,
        unsafe_shutdowns: raw.unsafe_shutdowns,
    }
}

/// 0 for a controller that does not measure.
fn celsius(kelvin: u16) -> i32 {
    if kelvin == 0 { 0 } else { i32::from(kelvin) - 273 }
}
