//! One io_uring of one thread: sends from per-connection buffers, receives into a shared ring of
//! provided buffers. A receive is armed once per connection and stays armed (multishot), so that
//! a round trip costs one submission and one completion.

#![allow(unsafe_code)]

use io_uring::squeue::{self, Flags};
use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// The only buffer group of a ring.
const GROUP: u16 = 0;

/// One receive buffer. It should hold the replies of a whole pipelined batch.
const BUFFER_BYTES: usize = 32 * 1024;

const PAGE_BYTES: usize = 4096;

/// Buffers of a ring: enough for every connection at once up to the larger figure.
const BUFFERS_MIN: usize = 64;
const BUFFERS_MAX: usize = 1024;

const SUBMISSIONS_MIN: usize = 64;
const SUBMISSIONS_MAX: usize = 4096;

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Receive,
    Send,
    Accept,
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub kind: Kind,
    pub token: u32,
    /// Bytes, a descriptor, or a negated errno.
    pub result: i32,
    /// The receive buffer that holds the bytes; goes back with [`Ring::give_back`].
    pub buffer: Option<u16>,
    /// Whether the request stays armed.
    pub more: bool,
}

/// An io_uring with its receive buffers.
pub struct Ring {
    io: IoUring,
    pool: BufferRing,
}

impl Ring {
    /// For up to about `connections` connections; more work, but re-arm receives more often.
    /// The ring belongs to the thread that makes it.
    pub fn new(connections: usize) -> io::Result<Ring> {
        let submissions =
            (2 * connections).next_power_of_two().clamp(SUBMISSIONS_MIN, SUBMISSIONS_MAX) as u32;
        let io = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(submissions * 4)
            .build(submissions)?;
        let pool = BufferRing::new(connections.next_power_of_two().clamp(BUFFERS_MIN, BUFFERS_MAX));
        // SAFETY: the pool's memory is page-aligned, holds `count` entries and is freed only
        // after the ring is closed (field order of `Ring`).
        unsafe {
            io.submitter().register_buf_ring_with_flags(
                pool.memory.as_ptr() as u64,
                pool.count,
                GROUP,
                0,
            )?;
        }
        Ok(Ring { io, pool })
    }

    /// Receives on `fd` until a completion says `more: false`.
    pub fn arm_receive(&mut self, fd: RawFd, token: u32) -> io::Result<()> {
        self.push(opcode::RecvMulti::new(Fd(fd), GROUP).build(), Kind::Receive, token)
    }

    /// Accepts on `fd` until a completion says `more: false`.
    pub fn arm_accept(&mut self, fd: RawFd) -> io::Result<()> {
        self.push(opcode::AcceptMulti::new(Fd(fd)).build(), Kind::Accept, 0)
    }

    /// Sends all of `bytes`; only a failure gives a completion unless `report` asks for one.
    /// The caller must leave `bytes` in place until the peer has answered them (a request) or the
    /// completion has come.
    pub fn send(&mut self, fd: RawFd, bytes: &[u8], token: u32, report: bool) -> io::Result<()> {
        let flags = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let send = opcode::Send::new(Fd(fd), bytes.as_ptr(), bytes.len() as u32).flags(flags);
        let entry = send.build();
        let entry = if report { entry } else { entry.flags(Flags::SKIP_SUCCESS) };
        self.push(entry, Kind::Send, token)
    }

    fn push(&mut self, entry: squeue::Entry, kind: Kind, token: u32) -> io::Result<()> {
        let entry = entry.user_data((kind as u64) << 32 | u64::from(token));
        loop {
            // SAFETY: what an entry points to is either the kernel's to write (the buffer ring,
            // which lives as long as the ring) or to read (a send buffer, which never moves while
            // its connection lives; a kernel read of stale bytes there cannot break our memory).
            if unsafe { self.io.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            self.io.submit()?;
        }
    }

    /// Submits everything and waits for a completion, at most `timeout`. Zero only polls.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timespec = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let args = SubmitArgs::new().timespec(&timespec);
        match self.io.submitter().submit_with_args(1, &args) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    pub fn next_done(&mut self) -> Option<Done> {
        let entry = self.io.completion().next()?;
        let kind = match entry.user_data() >> 32 {
            0 => Kind::Receive,
            1 => Kind::Send,
            _ => Kind::Accept,
        };
        Some(Done {
            kind,
            token: entry.user_data() as u32,
            result: entry.result(),
            buffer: cqueue::buffer_select(entry.flags()),
            more: cqueue::more(entry.flags()),
        })
    }

    /// The first `len` bytes of a receive buffer that a completion named.
    pub fn received(&self, buffer: u16, len: usize) -> &[u8] {
        self.pool.bytes(buffer, len)
    }

    /// Lets the kernel fill the buffer again.
    pub fn give_back(&mut self, buffer: u16) {
        self.pool.give(buffer);
    }
}

/// The kernel's ring of provided buffers and the buffers behind it, in one allocation.
struct BufferRing {
    memory: NonNull<u8>,
    layout: Layout,
    count: u16,
    tail: u16,
    entries_bytes: usize,
}

impl BufferRing {
    /// `count` is a power of two.
    fn new(count: usize) -> BufferRing {
        let entries_bytes = (count * size_of::<BufRingEntry>()).next_multiple_of(PAGE_BYTES);
        let bytes = entries_bytes + count * BUFFER_BYTES;
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a few MiB");
        // SAFETY: the layout is not empty.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let count = count as u16;
        let mut ring = BufferRing { memory, layout, count, tail: 0, entries_bytes };
        (0..count).for_each(|buffer| ring.give(buffer));
        ring
    }

    fn buffer(&self, index: u16) -> *mut u8 {
        assert!(index < self.count, "the kernel names buffers that it was given");
        // SAFETY: the allocation holds `count` buffers behind the entries.
        unsafe { self.memory.as_ptr().add(self.entries_bytes + usize::from(index) * BUFFER_BYTES) }
    }

    fn bytes(&self, index: u16, len: usize) -> &[u8] {
        assert!(len <= BUFFER_BYTES);
        // SAFETY: in bounds and initialised (zeroed at first); the kernel does not write to a
        // buffer between its completion and `give`.
        unsafe { std::slice::from_raw_parts(self.buffer(index), len) }
    }

    fn give(&mut self, index: u16) {
        let address = self.buffer(index) as u64;
        let base = self.memory.as_ptr().cast::<BufRingEntry>();
        // SAFETY: the slot is inside the entries, zeroed memory is a valid entry, and the kernel
        // reads a slot only after the tail has passed it. The tail overlays a field of the first
        // entry that the setters do not touch.
        unsafe {
            let slot = &mut *base.add(usize::from(self.tail & (self.count - 1)));
            slot.set_addr(address);
            slot.set_len(BUFFER_BYTES as u32);
            slot.set_bid(index);
            self.tail = self.tail.wrapping_add(1);
            let tail = BufRingEntry::tail(base).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout. The owner has ended all receives before (see
        // `Worker::hang_up`), so the kernel writes here no more.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}
