//! The one io_uring of a core, shared by its sockets, its devices and its wake-ups.
//!
//! Anyone on the core may queue requests with [`Ring::push`]; the reactor alone submits and
//! reaps. A completion is sorted by the class in its `user_data` into the queue of the part that
//! asked, which takes it in its own phase of the turn.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};

/// Submission entries between two submits; a full queue is submitted early.
const SUBMISSION_ENTRIES: u32 = 1024;
/// Completions that may wait for a reap; the kernel keeps what is beyond (`NODROP`).
const COMPLETION_ENTRIES: u32 = 8192;

/// Whose completion it is: the top byte of `user_data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Nobody looks at the result.
    Ignore = 0,
    Net = 1,
    Disk = 2,
    Wake = 3,
}

/// The `user_data` of a request: class, an operation code of that class, and a payload of 48
/// bits.
pub fn user_data(class: Class, code: u8, payload: u64) -> u64 {
    debug_assert!(payload >> 48 == 0);
    (class as u64) << 56 | u64::from(code) << 48 | payload
}

/// One completion.
#[derive(Clone, Copy, Debug)]
pub struct Completion {
    user_data: u64,
    pub result: i32,
    flags: u32,
}

impl Completion {
    pub fn code(&self) -> u8 {
        (self.user_data >> 48) as u8
    }

    pub fn payload(&self) -> u64 {
        self.user_data & ((1 << 48) - 1)
    }

    /// A multishot request goes on after this completion.
    pub fn more(&self) -> bool {
        cqueue::more(self.flags)
    }

    /// The provided buffer that the kernel picked.
    pub fn buffer(&self) -> Option<u16> {
        cqueue::buffer_select(self.flags)
    }
}

/// See the module.
pub struct Ring {
    uring: IoUring,
    queues: RefCell<Queues>,
}

#[derive(Default)]
struct Queues {
    net: Vec<Completion>,
    disk: Vec<Completion>,
    watch_ended: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").field("fd", &self.uring.as_raw_fd()).finish()
    }
}

impl Ring {
    /// Makes the ring of the calling thread, which must be the only one to use it.
    pub fn new() -> io::Result<Ring> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETION_ENTRIES)
            .build(SUBMISSION_ENTRIES)?;
        if !uring.params().is_feature_nodrop() || !uring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        Ok(Ring { uring, queues: RefCell::default() })
    }

    /// Makes every signal on the descriptor count as a wake-up of this core.
    pub fn watch(&self, event: &impl AsRawFd) {
        let poll = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), libc::POLLIN as u32);
        let entry = poll.multi(true).build().user_data(user_data(Class::Wake, 0, 0));
        // SAFETY: a poll points at no memory.
        unsafe { self.push(entry) };
    }

    pub fn uring(&self) -> &IoUring {
        &self.uring
    }

    /// Queues a request.
    ///
    /// # Safety
    /// Everything that the entry points at stays valid until its completion.
    #[inline]
    pub unsafe fn push(&self, entry: squeue::Entry) {
        loop {
            // SAFETY: the ring belongs to one thread (it is not `Sync`), and no other handle to
            // the submission queue lives across this call.
            let mut queue = unsafe { self.uring.submission_shared() };
            // SAFETY: the caller keeps the memory behind the entry valid.
            if unsafe { queue.push(&entry) }.is_ok() {
                return;
            }
            drop(queue);
            self.enter(0);
        }
    }

    /// Submits what is queued, runs deferred completions, and waits for at least one when `wait`
    /// is given, for that long at most.
    pub fn submit(&self, wait: Option<Duration>) {
        match wait {
            None if self.is_idle() => {}
            None => self.enter(0),
            Some(wait) => {
                let timeout = Timespec::new().sec(wait.as_secs()).nsec(wait.subsec_nanos());
                let args = SubmitArgs::new().timespec(&timeout);
                check(self.uring.submitter().submit_with_args(1, &args));
            }
        }
    }

    /// Nothing is queued and the kernel has nothing for us: no reason for a system call.
    fn is_idle(&self) -> bool {
        // SAFETY: the ring belongs to one thread and no other handle is alive.
        let submission = unsafe { self.uring.submission_shared() };
        submission.is_empty() && !submission.taskrun() && !submission.cq_overflow()
    }

    fn enter(&self, min_complete: u32) {
        // SAFETY: the ring belongs to one thread and no other handle is alive.
        let queued = unsafe { self.uring.submission_shared() }.len() as u32;
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument structure is passed; the entries were queued under `push`'s
        // contract.
        check(unsafe {
            self.uring.submitter().enter::<libc::sigset_t>(queued, min_complete, flags, None)
        });
    }

    /// Whether the kernel has completions that the next submit will bring.
    pub fn has_work(&self) -> bool {
        // SAFETY: as in `push`.
        let submission = unsafe { self.uring.submission_shared() };
        // SAFETY: the ring belongs to one thread and no other handle is alive.
        let completion = unsafe { self.uring.completion_shared() };
        submission.taskrun() || submission.cq_overflow() || !completion.is_empty()
    }

    /// Sorts arrived completions into their queues; returns how many there were.
    pub fn reap(&self) -> usize {
        let mut queues = self.queues.borrow_mut();
        // SAFETY: the ring belongs to one thread and no other handle is alive.
        let completions = unsafe { self.uring.completion_shared() };
        let total = completions.len();
        for entry in completions {
            queues.sort(&entry);
        }
        total
    }

    /// Exchanges the network's completions for the empty `out`.
    pub fn take_net(&self, out: &mut Vec<Completion>) {
        debug_assert!(out.is_empty());
        std::mem::swap(out, &mut self.queues.borrow_mut().net);
    }

    /// Exchanges the devices' completions for the empty `out`.
    pub fn take_disk(&self, out: &mut Vec<Completion>) {
        debug_assert!(out.is_empty());
        std::mem::swap(out, &mut self.queues.borrow_mut().disk);
    }

    /// Whether the kernel has ended the watch since the last call; it is to be set up again.
    pub fn take_watch_ended(&self) -> bool {
        std::mem::take(&mut self.queues.borrow_mut().watch_ended)
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.uring.as_raw_fd()
    }
}

impl Queues {
    fn sort(&mut self, entry: &cqueue::Entry) {
        let user_data = entry.user_data();
        let completion = Completion { user_data, result: entry.result(), flags: entry.flags() };
        match (user_data >> 56) as u8 {
            class if class == Class::Net as u8 => self.net.push(completion),
            class if class == Class::Disk as u8 => self.disk.push(completion),
            class if class == Class::Wake as u8 => self.watch_ended |= !completion.more(),
            _ => {}
        }
    }
}

/// A submit fails for passing reasons only (interrupted, time over, completions to be reaped
/// first); anything else means that the ring itself is broken.
fn check(result: io::Result<usize>) {
    if let Err(error) = result {
        match error.raw_os_error() {
            Some(libc::EINTR | libc::ETIME | libc::EBUSY | libc::EAGAIN) => {}
            _ => panic!("io_uring_enter failed: {error}"),
        }
    }
}
