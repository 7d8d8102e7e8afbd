//! Kernel TCP over the core's io_uring: multishot accept and receive, buffers provided by a ring
//! that the kernel picks from, one send at a time and socket.

use std::cell::RefCell;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{opcode, squeue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::{Event, Net, SocketId, Tx};
use crate::mem::{Region, Slots};
use crate::ring::{Class, Completion, Ring, user_data};

/// Receive buffers of one core: they hold a whole pipelined batch, and idle connections hold none.
const RX_BUFFERS: u16 = 128;
const RX_BUFFER_BYTES: usize = 32 * 1024;
const RX_GROUP: u16 = 0;

const ACCEPT: u8 = 1;
const RECV: u8 = 2;
const SEND: u8 = 3;

/// The receive buffers and the ring in which they are offered to the kernel.
#[derive(Debug)]
struct RxPool {
    entries: Region,
    memory: Region,
    /// Entries offered so far, modulo 2^16.
    tail: RefCell<u16>,
}

impl RxPool {
    fn new(ring: &Ring) -> io::Result<RxPool> {
        let entry_bytes = size_of::<BufRingEntry>() * usize::from(RX_BUFFERS);
        let entries = Region::new(entry_bytes, u16::MAX)?;
        let memory = Region::new(RX_BUFFER_BYTES * usize::from(RX_BUFFERS), u16::MAX)?;
        // SAFETY: the mapping is page-aligned, large enough, and lives in the pool, which lives
        // as long as the ring's user.
        unsafe {
            ring.uring().submitter().register_buf_ring_with_flags(
                entries.as_ptr() as u64,
                RX_BUFFERS,
                RX_GROUP,
                0,
            )?;
        }
        let pool = RxPool { entries, memory, tail: RefCell::new(0) };
        (0..RX_BUFFERS).for_each(|buffer| pool.offer(buffer));
        Ok(pool)
    }

    /// Gives a buffer (back) to the kernel.
    fn offer(&self, buffer: u16) {
        let mut tail = self.tail.borrow_mut();
        let base = self.entries.as_ptr().cast::<BufRingEntry>();
        let address = self.memory.as_ptr() as u64 + u64::from(buffer) * RX_BUFFER_BYTES as u64;
        // SAFETY: the slot is inside the mapping, and the kernel does not read it before the
        // tail says so.
        let entry = unsafe { &mut *base.add(usize::from(*tail % RX_BUFFERS)) };
        entry.set_addr(address);
        entry.set_len(RX_BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        *tail = tail.wrapping_add(1);
        // SAFETY: the tail lies in the mapping at the place that the interface defines, and is
        // accessed atomically by both sides.
        let shared = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        shared.store(*tail, Ordering::Release);
    }
}

/// Received bytes in a buffer of the pool, which gets it back on drop.
#[derive(Debug)]
pub struct Rx {
    pool: Rc<RxPool>,
    buffer: u16,
    len: u32,
}

impl Deref for Rx {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = usize::from(self.buffer) * RX_BUFFER_BYTES;
        // SAFETY: the kernel has filled the buffer and will not touch it until it is offered
        // again, which happens on drop.
        unsafe { self.pool.memory.slice(start, self.len as usize) }
    }
}

impl Drop for Rx {
    fn drop(&mut self) {
        self.pool.offer(self.buffer);
    }
}

/// What Linux takes at most.
const KEEPALIVE_S_MAX: u32 = 32_767;
const KEEPALIVE_PROBES: u32 = 3;

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    /// Requests that will still complete. The slot lives until there are none.
    requests: u8,
    receiving: bool,
    paused: bool,
    closing: bool,
    /// Being sent, and how far.
    tx: Option<(Tx, usize)>,
}

/// See the module.
#[derive(Debug)]
pub struct KernelNet {
    ring: Rc<Ring>,
    listeners: Vec<OwnedFd>,
    accepting: bool,
    sockets: Slots<Socket>,
    pool: Rc<RxPool>,
    completions: Vec<Completion>,
    /// Sockets whose receive ended because no buffer was free.
    starved: Vec<SocketId>,
    /// Listeners whose accept ended for want of descriptors or memory; tried again next poll.
    resting: Vec<usize>,
    keepalive_s: u32,
}

impl KernelNet {
    /// Serves `listeners` (bound and listening) and at most `sockets_max` connections.
    pub fn new(
        ring: Rc<Ring>,
        listeners: Vec<OwnedFd>,
        sockets_max: usize,
    ) -> io::Result<KernelNet> {
        let pool = Rc::new(RxPool::new(&ring)?);
        let mut net = KernelNet {
            ring,
            listeners,
            accepting: true,
            sockets: Slots::new(sockets_max),
            pool,
            completions: Vec::new(),
            starved: Vec::new(),
            resting: Vec::new(),
            keepalive_s: 0,
        };
        (0..net.listeners.len()).for_each(|listener| net.accept(listener));
        Ok(net)
    }

    fn push(&self, entry: squeue::Entry, code: u8, index: usize) {
        let entry = entry.user_data(user_data(Class::Net, code, index as u64));
        // SAFETY: accept and receive point at no memory of ours; a send's bytes stay in the
        // socket's slot until its completion.
        unsafe { self.ring.push(entry) };
    }

    fn accept(&mut self, listener: usize) {
        let fd = Fd(self.listeners[listener].as_raw_fd());
        let entry = opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build();
        self.push(entry, ACCEPT, listener);
    }

    fn receive(&mut self, socket: SocketId) {
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        if slot.receiving || slot.paused || slot.closing {
            return;
        }
        slot.receiving = true;
        slot.requests += 1;
        let entry = opcode::RecvMulti::new(Fd(slot.fd.as_raw_fd()), RX_GROUP).build();
        self.push(entry, RECV, socket.index());
    }

    fn send_rest(&mut self, socket: SocketId) {
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        let Some((tx, sent)) = &slot.tx else { return };
        let rest = &tx.as_slice()[*sent..];
        slot.requests += 1;
        let entry = opcode::Send::new(Fd(slot.fd.as_raw_fd()), rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.push(entry, SEND, socket.index());
    }

    fn handle(&mut self, completion: Completion, events: &mut Vec<Event<Rx>>) {
        let index = completion.payload() as usize;
        match completion.code() {
            ACCEPT => self.accepted(index, completion, events),
            RECV => self.received(index, completion, events),
            SEND => self.sent(index, completion, events),
            _ => {}
        }
    }

    fn accepted(&mut self, listener: usize, completion: Completion, events: &mut Vec<Event<Rx>>) {
        if completion.result >= 0 {
            // SAFETY: the kernel has just made this descriptor for us.
            let fd = unsafe { OwnedFd::from_raw_fd(completion.result) };
            events.push(Event::Incoming(fd));
        }
        if !completion.more() && self.accepting {
            self.resting.push(listener);
        }
    }

    fn received(&mut self, index: usize, completion: Completion, events: &mut Vec<Event<Rx>>) {
        let rx = completion.buffer().map(|buffer| {
            let len = completion.result.max(0) as u32;
            Rx { pool: Rc::clone(&self.pool), buffer, len }
        });
        let Some(socket) = self.sockets.ticket_at(index) else { return };
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        if !completion.more() {
            slot.receiving = false;
            slot.requests -= 1;
        }
        if slot.closing {
            return self.reclaim(socket);
        }
        match (completion.result, rx) {
            (1.., Some(rx)) => events.push(Event::Received { socket, rx }),
            (result, _) if result == -libc::ECANCELED => {}
            (result, _) if result == -libc::ENOBUFS => return self.starved.push(socket),
            _ => return events.push(Event::Closed { socket }),
        }
        if !completion.more() {
            self.receive(socket);
        }
    }

    fn sent(&mut self, index: usize, completion: Completion, events: &mut Vec<Event<Rx>>) {
        let Some(socket) = self.sockets.ticket_at(index) else { return };
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        slot.requests -= 1;
        if slot.closing {
            return self.reclaim(socket);
        }
        let Some((tx, sent)) = &mut slot.tx else { return };
        match completion.result {
            error if error == -libc::EINTR || error == -libc::EAGAIN => {}
            bytes if bytes >= 0 => *sent += bytes as usize,
            _ => return events.push(Event::Closed { socket }),
        }
        if *sent < tx.len() {
            self.send_rest(socket);
        } else if let Some((tx, _)) = slot.tx.take() {
            events.push(Event::Sent { socket, tx });
        }
    }

    /// Goes on where there was no buffer or no descriptor.
    #[cold]
    fn arm_again(&mut self) {
        for socket in std::mem::take(&mut self.starved) {
            self.receive(socket);
        }
        for listener in std::mem::take(&mut self.resting) {
            self.accept(listener);
        }
    }

    /// Frees the slot of a closed socket once no request refers to it.
    fn reclaim(&mut self, socket: SocketId) {
        if self.sockets.get(socket).is_some_and(|slot| slot.closing && slot.requests == 0) {
            self.sockets.remove(socket);
        }
    }
}

impl Net for KernelNet {
    type Rx = Rx;

    fn poll(&mut self, events: &mut Vec<Event<Rx>>) {
        if !self.starved.is_empty() || !self.resting.is_empty() {
            self.arm_again();
        }
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take_net(&mut completions);
        for completion in completions.drain(..) {
            self.handle(completion, events);
        }
        self.completions = completions;
    }

    fn adopt(&mut self, incoming: OwnedFd) -> Option<SocketId> {
        // Failure (not a TCP socket) does no harm.
        let _ = tune(&incoming, self.keepalive_s);
        let socket = Socket {
            fd: incoming,
            requests: 0,
            receiving: false,
            paused: false,
            closing: false,
            tx: None,
        };
        let socket = self.sockets.insert(socket).ok()?;
        self.receive(socket);
        Some(socket)
    }

    fn send(&mut self, socket: SocketId, tx: Tx) {
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        assert!(slot.tx.is_none(), "two sends of one socket at a time");
        slot.tx = Some((tx, 0));
        self.send_rest(socket);
    }

    fn pause(&mut self, socket: SocketId, paused: bool) {
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        slot.paused = paused;
        if !paused {
            return self.receive(socket);
        }
        if slot.receiving {
            let target = user_data(Class::Net, RECV, socket.index() as u64);
            let entry = opcode::AsyncCancel::new(target).build();
            let entry = entry.user_data(user_data(Class::Ignore, 0, 0));
            // SAFETY: a cancellation points at no memory.
            unsafe { self.ring.push(entry) };
        }
    }

    fn has_hung_up(&self, socket: SocketId) -> bool {
        let Some(slot) = self.sockets.get(socket) else { return true };
        let mut fds = [PollFd::new(&slot.fd, PollFlags::RDHUP)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn close(&mut self, socket: SocketId) {
        let Some(slot) = self.sockets.get_mut(socket) else { return };
        slot.closing = true;
        // SAFETY: the descriptor is open; requests on it end with an error or end of file.
        unsafe { libc::shutdown(slot.fd.as_raw_fd(), libc::SHUT_RDWR) };
        self.reclaim(socket);
    }

    fn set_keepalive(&mut self, period_s: u32) {
        self.keepalive_s = period_s;
    }

    fn stop_accepting(&mut self) {
        self.accepting = false;
        for listener in &self.listeners {
            // SAFETY: the descriptor is open; the pending accept ends with an error.
            unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
        }
    }
}

/// Replies leave at once. A peer that has been silent for the period is probed, and given up after
/// three probes without an answer, a third of the period apart: its slot and its memory come back
/// where no FIN ever arrives.
fn tune(socket: &OwnedFd, keepalive_s: u32) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    if keepalive_s == 0 {
        return Ok(());
    }
    let period_s = keepalive_s.min(KEEPALIVE_S_MAX);
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(period_s.into()))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs((period_s / 3).max(1).into()))?;
    sockopt::set_tcp_keepcnt(socket, KEEPALIVE_PROBES)
}
