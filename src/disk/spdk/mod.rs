//! NVMe namespaces that SPDK drives from userspace: one queue pair per core and controller, polled
//! by the core's own loop.
//!
//! Buffers go to the device as they are: once the environment has started, all regions are memory
//! that it can reach. A request is in the table from `submit` to its `Done`, and SPDK knows it by
//! the address of its [`Landing`].

mod controller;
pub mod preflight;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use lavik_sys as sys;

use super::{Counts, Disk, Done, Errno, Geometry, Io, Op};
use crate::mem::{Slots, Ticket};

pub use controller::{Address, Admin, Namespace, Set};

/// Requests of one core in flight or waiting, on all devices.
const IN_FLIGHT_MAX: usize = 4096;
/// One core's access to the namespaces.
#[derive(Debug)]
pub struct SpdkDisk {
    set: Arc<Set>,
    geometry: Vec<Geometry>,
    queues: Vec<Queue>,
    requests: Slots<Io>,
    /// What has ended, as index in `requests` and status. At a fixed address: callbacks write
    /// here.
    landed: Box<Landed>,
    /// One for each place in `requests`.
    landings: Vec<Landing>,
    counts: Counts,
}

/// The queue pair of this core at one controller.
#[derive(Debug)]
struct Queue {
    /// None: lost. Its requests answer errors until a restart.
    pair: Option<NonNull<sys::spdk_nvme_qpair>>,
    in_flight: usize,
    /// Found no room in the queue pair.
    waiting: VecDeque<Ticket>,
}

type Landed = RefCell<Vec<(usize, Result<(), Errno>)>>;

/// Where the completion of the request at `index` is to be written down.
#[derive(Debug)]
struct Landing {
    index: usize,
    landed: *const Landed,
}

extern "C" fn land(arg: *mut c_void, completion: *const sys::spdk_nvme_cpl) {
    // SAFETY: `arg` is one of the landings of a disk that polls or frees its queue pair at this
    // moment: nothing else of it is borrowed, and its thread is this one.
    let landing = unsafe { &*arg.cast::<Landing>() };
    // SAFETY: SPDK passes a completion that lives for the call.
    let status = unsafe { sys::lavik_status(completion) };
    // SAFETY: the list is at its address as long as the landings are.
    unsafe { &*landing.landed }.borrow_mut().push((landing.index, outcome(status)));
}

/// The status of a completion as an error number.
fn outcome(status: u16) -> Result<(), Errno> {
    match status & 0x7fff {
        _ if status == 0 => Ok(()),
        0x0020 => Err(Errno(libc::EROFS)),
        0x0080 => Err(Errno(libc::EINVAL)),
        0x0081 => Err(Errno(libc::ENOSPC)),
        _ => Err(Errno(libc::EIO)),
    }
}

impl SpdkDisk {
    /// Takes a queue pair at every controller of the set, for the calling thread.
    pub fn new(set: Arc<Set>) -> Result<SpdkDisk, String> {
        let landed = Box::<Landed>::default();
        let list: *const Landed = &*landed;
        let landings = (0..IN_FLIGHT_MAX).map(|index| Landing { index, landed: list }).collect();
        let geometry = set.namespaces().iter().map(|n| n.geometry.clone()).collect();
        let mut disk = SpdkDisk {
            geometry,
            queues: Vec::new(),
            requests: Slots::new(IN_FLIGHT_MAX),
            landed,
            landings,
            counts: Counts::default(),
            set,
        };
        for controller in disk.set.controllers() {
            let pair = controller.queue_pair()?;
            let waiting = VecDeque::new();
            disk.queues.push(Queue { pair: Some(pair), in_flight: 0, waiting });
        }
        Ok(disk)
    }

    fn start(&mut self, ticket: Ticket) {
        let Some(io) = self.requests.get_mut(ticket) else { return };
        let namespace = &self.set.namespaces()[usize::from(io.device)];
        let queue = &mut self.queues[namespace.controller()];
        let Some(pair) = queue.pair else {
            return self.land_now(ticket, Err(Errno(libc::ENXIO)));
        };
        if matches!(io.op, Op::Flush) && !namespace.geometry.volatile_cache {
            return self.land_now(ticket, Ok(()));
        }
        let landing: *const Landing = &self.landings[ticket.index()];
        match issue(namespace, pair, &mut io.op, landing) {
            0 => queue.in_flight += 1,
            // No room. Something that ends will make some; if nothing is under way never.
            code if code == -libc::ENOMEM && queue.in_flight > 0 => queue.waiting.push_back(ticket),
            code => self.land_now(ticket, Err(Errno(code.abs()))),
        }
    }

    /// Ends a request that never was at the controller.
    fn land_now(&mut self, ticket: Ticket, result: Result<(), Errno>) {
        let namespace = self.requests.get_mut(ticket).map(|io| usize::from(io.device));
        if let Some(namespace) = namespace {
            let controller = self.set.namespaces()[namespace].controller();
            self.queues[controller].in_flight += 1;
        }
        self.landed.borrow_mut().push((ticket.index(), result));
    }

    /// Takes completions of one controller; a queue pair that is broken is given up.
    fn poll_queue(&mut self, index: usize) {
        let queue = &mut self.queues[index];
        let Some(pair) = queue.pair.filter(|_| queue.in_flight > 0) else { return };
        let max = self.set.completions_max();
        // SAFETY: the queue pair is this thread's and alive.
        let taken = unsafe { sys::spdk_nvme_qpair_process_completions(pair.as_ptr(), max) };
        if taken < 0 {
            self.lose(index, pair);
        }
    }

    /// The controller is gone, or the way to it. What was under way ends in errors; writes that
    /// had completed may be lost from its cache, so that nothing is written there before a restart
    /// has read what is left.
    fn lose(&mut self, index: usize, pair: NonNull<sys::spdk_nvme_qpair>) {
        let controller = &self.set.controllers()[index];
        log::error!("{controller}: the queue pair of this core is lost; a restart is needed");
        self.queues[index].pair = None;
        // SAFETY: the queue pair is this thread's, and `pair` was the only handle to it. Its
        // requests end in this call, by `land`.
        unsafe { sys::spdk_nvme_ctrlr_free_io_qpair(pair.as_ptr()) };
        for ticket in std::mem::take(&mut self.queues[index].waiting) {
            self.land_now(ticket, Err(Errno(libc::ENXIO)));
        }
    }

    fn finish(&mut self, index: usize, result: Result<(), Errno>) -> Option<Done> {
        let ticket = self.requests.ticket_at(index)?;
        let io = self.requests.remove(ticket)?;
        let controller = self.set.namespaces()[usize::from(io.device)].controller();
        self.queues[controller].in_flight -= 1;
        let buf = match io.op {
            Op::Read { buf, .. } => Some(buf),
            Op::Write { .. } | Op::Flush => None,
        };
        Some(Done { device: io.device, tag: io.tag, result, buf })
    }

    /// Starts what had found no room, until there is none again.
    fn retry(&mut self, index: usize) {
        for _ in 0..self.queues[index].waiting.len() {
            let Some(ticket) = self.queues[index].waiting.pop_front() else { return };
            let before = self.queues[index].waiting.len();
            self.start(ticket);
            if self.queues[index].waiting.len() > before {
                // It went to the end; its turn is the next one all the same.
                self.queues[index].waiting.rotate_right(1);
                return;
            }
        }
    }
}

/// Hands a request to the queue pair; 0 or a negative error number.
fn issue(
    namespace: &Namespace,
    pair: NonNull<sys::spdk_nvme_qpair>,
    op: &mut Op,
    landing: *const Landing,
) -> c_int {
    let (ns, pair) = (namespace.raw(), pair.as_ptr());
    let sector = u64::from(namespace.geometry.sector_size);
    let arg = landing.cast_mut().cast::<c_void>();
    match op {
        Op::Read { offset, len, buf } => {
            let to = buf[..*len as usize].as_mut_ptr().cast();
            let (first, count) = (*offset / sector, *len / sector as u32);
            // SAFETY: the request, and with it the buffer, stays in the table until `land`.
            unsafe { sys::spdk_nvme_ns_cmd_read(ns, pair, to, first, count, Some(land), arg, 0) }
        }
        Op::Write { offset, data } => {
            let bytes = data.as_slice();
            let from = bytes.as_ptr().cast_mut().cast();
            let (first, count) = (*offset / sector, (bytes.len() as u64 / sector) as u32);
            // SAFETY: as above; a write only reads the buffer.
            unsafe { sys::spdk_nvme_ns_cmd_write(ns, pair, from, first, count, Some(land), arg, 0) }
        }
        // SAFETY: a flush points at no memory but the landing.
        Op::Flush => unsafe { sys::spdk_nvme_ns_cmd_flush(ns, pair, Some(land), arg) },
    }
}

impl Disk for SpdkDisk {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let controller = self.set.namespaces()[usize::from(io.device)].controller();
        self.counts.add(&io.op);
        let ticket = self.requests.insert(io)?;
        match self.queues[controller].waiting.is_empty() {
            true => self.start(ticket),
            false => self.queues[controller].waiting.push_back(ticket),
        }
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        for index in 0..self.queues.len() {
            self.poll_queue(index);
        }
        let mut landed = self.landed.take();
        for (index, result) in landed.drain(..) {
            done.extend(self.finish(index, result));
        }
        // Keeps the capacity; what starts below may land at once.
        self.landed.replace(landed);
        for index in 0..self.queues.len() {
            self.retry(index);
        }
    }

    fn geometry(&self) -> &[Geometry] {
        &self.geometry
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    fn is_busy(&self) -> bool {
        self.requests.len() >= IN_FLIGHT_MAX / 4 * 3
    }

    fn wants_polling(&self) -> bool {
        !self.requests.is_empty()
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

impl Drop for SpdkDisk {
    fn drop(&mut self) {
        for pair in self.queues.iter_mut().filter_map(|queue| queue.pair.take()) {
            // SAFETY: the queue pair is this thread's, and nobody has another handle to it. What
            // is under way ends in this call; buffers and landings are still there.
            unsafe { sys::spdk_nvme_ctrlr_free_io_qpair(pair.as_ptr()) };
        }
    }
}

/// Access for the control plane before the cores run: it looks after the admin queues too.
#[derive(Debug)]
pub struct BlockingDisk {
    disk: SpdkDisk,
    admin: Admin,
}

impl BlockingDisk {
    pub fn new(set: &Arc<Set>) -> Result<BlockingDisk, String> {
        let disk = SpdkDisk::new(Arc::clone(set))?;
        Ok(BlockingDisk { disk, admin: Admin::new(Arc::clone(set)) })
    }
}

impl Disk for BlockingDisk {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.disk.submit(io)
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        self.admin.keep_alive();
        self.disk.poll(done);
    }

    fn geometry(&self) -> &[Geometry] {
        self.disk.geometry()
    }

    fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    fn is_busy(&self) -> bool {
        self.disk.is_busy()
    }

    fn counts(&self) -> Counts {
        self.disk.counts()
    }
}
