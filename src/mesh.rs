//! Messages between cores: one bounded ring per ordered pair, and a bell for a parked receiver.
//!
//! A message that finds its ring full waits in its sender's outbox, in order; how many can be
//! under way is bounded by the senders' own tables (a request holds a place there until its
//! answer is back).

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rtrb::{Consumer, Producer, RingBuffer};

/// Messages in one ring.
const RING_ENTRIES: usize = 1024;

/// Wakes one parked core.
#[derive(Debug)]
pub struct Bell {
    parked: AtomicBool,
    event: OwnedFd,
}

impl Bell {
    fn new() -> io::Result<Bell> {
        // SAFETY: no pointers; the result is checked.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was made just now and belongs to nobody else.
        Ok(Bell { parked: AtomicBool::new(false), event: unsafe { OwnedFd::from_raw_fd(fd) } })
    }

    /// Wakes the core if it is parked or about to park. Call after the message is in its ring.
    pub fn ring(&self) {
        // The message before the flag here, the flag before the last look at the rings there:
        // one of the two sides sees the other.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) && self.parked.swap(false, Ordering::Relaxed) {
            let one = 1u64;
            // SAFETY: writes eight bytes from a live local.
            unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Announces that the core is about to park. It must look at its rings once more after this.
    pub fn parking(&self) {
        self.parked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub fn awake(&self) {
        self.parked.store(false, Ordering::Relaxed);
    }

    /// The descriptor that becomes readable when the bell is rung.
    pub fn event(&self) -> &OwnedFd {
        &self.event
    }
}

/// One core's ends of the rings.
#[derive(Debug)]
pub struct Mesh<M> {
    core: usize,
    outgoing: Vec<Option<Producer<M>>>,
    incoming: Vec<Option<Consumer<M>>>,
    outbox: Vec<VecDeque<M>>,
    bells: Arc<Vec<Bell>>,
    /// Cores that have new messages since the last flush.
    dirty: Vec<bool>,
}

/// The ends of all cores, and their bells.
pub type Built<M> = (Vec<Mesh<M>>, Arc<Vec<Bell>>);

/// The ends for `cores` cores, in order, and the bells for the control plane.
pub fn build<M>(cores: usize) -> io::Result<Built<M>> {
    let bells = Arc::new((0..cores).map(|_| Bell::new()).collect::<io::Result<Vec<_>>>()?);
    let mut meshes: Vec<Mesh<M>> = (0..cores)
        .map(|core| Mesh {
            core,
            outgoing: (0..cores).map(|_| None).collect(),
            incoming: (0..cores).map(|_| None).collect(),
            outbox: (0..cores).map(|_| VecDeque::new()).collect(),
            bells: Arc::clone(&bells),
            dirty: vec![false; cores],
        })
        .collect();
    for from in 0..cores {
        for to in (0..cores).filter(|&to| to != from) {
            let (producer, consumer) = RingBuffer::new(RING_ENTRIES);
            meshes[from].outgoing[to] = Some(producer);
            meshes[to].incoming[from] = Some(consumer);
        }
    }
    Ok((meshes, bells))
}

impl<M> Mesh<M> {
    pub fn core(&self) -> usize {
        self.core
    }

    pub fn cores(&self) -> usize {
        self.bells.len()
    }

    /// Queues a message; it leaves at once or with the next [`Mesh::flush`].
    pub fn send(&mut self, to: usize, message: M) {
        self.dirty[to] = true;
        let queued = &mut self.outbox[to];
        let Some(ring) = &mut self.outgoing[to] else {
            panic!("core {to} sent a message to itself or to no core");
        };
        if !queued.is_empty() {
            return queued.push_back(message);
        }
        if let Err(rtrb::PushError::Full(message)) = ring.push(message) {
            queued.push_back(message);
        }
    }

    /// Takes the next message of any core, round robin being the caller's affair.
    pub fn receive(&mut self, from: usize) -> Option<M> {
        self.incoming[from].as_mut()?.pop().ok()
    }

    /// Moves what waited for room and rings the bells of the cores that have news. Returns
    /// whether something still waits.
    pub fn flush(&mut self) -> bool {
        let mut waiting = false;
        for to in 0..self.outbox.len() {
            if !self.dirty[to] {
                continue;
            }
            if let Some(ring) = &mut self.outgoing[to] {
                while let Some(message) = self.outbox[to].pop_front() {
                    if let Err(rtrb::PushError::Full(message)) = ring.push(message) {
                        self.outbox[to].push_front(message);
                        break;
                    }
                }
            }
            self.dirty[to] = !self.outbox[to].is_empty();
            waiting |= self.dirty[to];
            self.bells[to].ring();
        }
        waiting
    }

    /// Whether a message is there to be received.
    pub fn has_messages(&self) -> bool {
        self.incoming.iter().flatten().any(|ring| !ring.is_empty())
    }

    pub fn bell(&self) -> &Bell {
        &self.bells[self.core]
    }
}

#[cfg(test)]
mod tests {
    use super::build;

    #[test]
    fn messages_keep_their_order_beyond_the_ring() {
        let (mut meshes, _) = build::<u32>(2).unwrap();
        let mut b = meshes.pop().unwrap();
        let mut a = meshes.pop().unwrap();
        (0..5000).for_each(|n| a.send(1, n));
        let mut got = Vec::new();
        while got.len() < 5000 {
            a.flush();
            while let Some(n) = b.receive(0) {
                got.push(n);
            }
        }
        assert!(got.iter().copied().eq(0..5000));
        assert!(!b.has_messages());
    }

    #[test]
    fn a_parked_core_is_woken() {
        use std::os::fd::AsRawFd;
        let (mut meshes, bells) = build::<u32>(2).unwrap();
        let mut a = meshes.remove(0);
        bells[1].parking();
        a.send(1, 7);
        a.flush();
        let mut count = 0u64;
        let fd = bells[1].event().as_raw_fd();
        // SAFETY: reads eight bytes into a live local.
        let read = unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
        assert_eq!((read, count), (8, 1));
        a.send(1, 8);
        a.flush();
        // SAFETY: as above.
        let read = unsafe { libc::read(fd, (&raw mut count).cast(), 8) };
        assert_eq!(read, -1, "a core that is awake gets no system call");
    }
}
