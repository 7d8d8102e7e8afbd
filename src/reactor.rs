//! The loop of one core. Fixed phases in a fixed order; each takes what has come since the last
//! turn and is bounded by it. Completions first, for they free places; new work after; one
//! submit for everything at the end.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::driver::Core;
use crate::net::Net;
use crate::ring::Ring;

/// Messages taken from one core in one turn.
const MESH_BUDGET: usize = 256;
/// A parked core looks after its timers (flush age, expiry) at least this often.
const PARK_MAX: Duration = Duration::from_millis(100);

/// Where the requests of a core leave and where it parks: its ring, or the simulator.
pub trait Gate {
    /// Takes in what has arrived. From now on a ring of `bell` ends a wait.
    fn take_in(&self, bell: &OwnedFd);
    /// Lets out what is queued, and waits for news when told to, for so long at most.
    fn submit(&self, wait: Option<Duration>);
    /// Whether news is there that the next submit would bring.
    fn has_work(&self) -> bool;
}

/// One core: its parts, its clock, and the gate that it parks at.
pub struct Reactor<N: Net, D, C, G> {
    core: Core<N, D>,
    clock: C,
    gate: G,
    busy_poll_ns: u64,
    /// When the last turn that did something ended.
    last_work_ns: u64,
}

impl<N: Net, D: Disk, C: Clock, G: Gate> Reactor<N, D, C, G> {
    pub fn new(core: Core<N, D>, clock: C, gate: G, busy_poll_us: u64) -> Self {
        let busy_poll_ns = busy_poll_us.saturating_mul(1000);
        Reactor { core, clock, gate, busy_poll_ns, last_work_ns: 0 }
    }

    /// Turns until the core has stopped. The error says why it had to.
    pub fn run(&mut self) -> Result<(), String> {
        while !self.core.is_stopped() {
            self.step();
        }
        self.gate.submit(None);
        self.core.failed().map_or(Ok(()), Err)
    }

    /// One turn, and a wait if there was nothing to do.
    pub fn step(&mut self) {
        if !self.turn() {
            self.idle();
        }
    }

    pub fn core(&mut self) -> &mut Core<N, D> {
        &mut self.core
    }

    /// One turn; returns whether there was anything to do.
    fn turn(&mut self) -> bool {
        let now = self.clock.now(); // 1
        self.core.set_now(now);
        self.gate.take_in(self.core.mesh().bell().event());
        let disk = self.core.poll_disk(); // 2
        let mesh = self.core.poll_mesh(MESH_BUDGET); // 3
        let net = self.core.poll_net(); // 4
        self.core.maintain(disk + mesh + net > 0); // 5
        let left = self.core.flush(); // 6, 7
        self.gate.submit(None);
        let worked = left || disk + mesh + net > 0;
        if worked {
            self.last_work_ns = now.mono_ns;
        }
        self.core.count_turn();
        worked
    }

    /// Nothing to do: spin for a while, for the next request may be microseconds away, then park
    /// at the gate until a completion or a message comes.
    fn idle(&mut self) {
        let now = self.clock.now();
        let spins = now.mono_ns - self.last_work_ns < self.busy_poll_ns;
        if spins || self.core.disk_wants_polling() {
            return std::hint::spin_loop();
        }
        let bell = self.core.mesh().bell();
        bell.parking();
        if !self.core.has_messages() && !self.gate.has_work() {
            self.core.count_park();
            let limit = self.core.park_limit().map_or(PARK_MAX, |limit| limit.min(PARK_MAX));
            self.gate.submit(Some(limit));
        }
        self.core.mesh().bell().awake();
    }
}

impl Gate for Rc<Ring> {
    fn take_in(&self, bell: &OwnedFd) {
        self.reap();
        if self.take_watch_ended() {
            self.watch(bell);
        }
    }

    fn submit(&self, wait: Option<Duration>) {
        Ring::submit(self, wait);
    }

    fn has_work(&self) -> bool {
        Ring::has_work(self)
    }
}
