//! A simulated network: wires between clients, which the simulator plays, and the cores of a
//! server. Bytes take their time, come in whatever pieces they were sent in, and stay with the
//! server while the client does not take them.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use crate::mem::Slots;
use crate::net::{Event, Net, SocketId, Tx};
use crate::testing::clock::SimClock;

/// Connections that one core can hold.
const SOCKETS_MAX: usize = 64;

/// Names a connection from the client's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WireId(usize);

/// One connection.
#[derive(Debug, Default)]
struct Wire {
    /// Core that serves it.
    core: Option<usize>,
    /// On the way to the server, with the time of arrival.
    inbound: VecDeque<(u64, Vec<u8>)>,
    paused: bool,
    /// Being sent by the server: when its first byte can be taken, and how much has been.
    sending: Option<(u64, Tx, usize)>,
    client_closed: bool,
    server_closed: bool,
    told: bool,
}

#[derive(Debug, Default)]
struct State {
    wires: Vec<Wire>,
    incoming: VecDeque<OwnedFd>,
    /// Which wire a descriptor stands for until a core adopts it.
    arriving: BTreeMap<RawFd, WireId>,
    refusing: bool,
    ready: Vec<usize>,
}

/// All wires of one machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimWires {
    state: Rc<RefCell<State>>,
    clock: SimClock,
}

impl SimWires {
    pub fn new(clock: SimClock) -> SimWires {
        SimWires { state: Rc::default(), clock }
    }

    /// A core's access.
    pub fn net(&self, core: usize) -> SimNet {
        SimNet { wires: self.clone(), core, sockets: Slots::new(SOCKETS_MAX) }
    }

    /// A client connects. The descriptor that the server gets is only a name for the wire.
    pub fn connect(&self) -> WireId {
        let mut state = self.state.borrow_mut();
        let wire = WireId(state.wires.len());
        state.wires.push(Wire::default());
        match File::open("/dev/null") {
            Ok(file) if !state.refusing => {
                let fd = OwnedFd::from(file);
                state.arriving.insert(fd.as_raw_fd(), wire);
                state.incoming.push_back(fd);
            }
            _ => state.wires[wire.0].server_closed = true,
        }
        wire
    }

    /// Sends bytes to the server; they arrive `delay_ns` later, but not before earlier ones.
    pub fn send(&self, wire: WireId, bytes: Vec<u8>, delay_ns: u64) {
        let mut state = self.state.borrow_mut();
        let wire = &mut state.wires[wire.0];
        let last = wire.inbound.back().map_or(0, |(at, _)| *at);
        let at = (self.clock.mono_ns() + delay_ns).max(last);
        wire.inbound.push_back((at, bytes));
    }

    /// Takes up to `most` bytes that the server has sent.
    pub fn take(&self, wire: WireId, most: usize) -> Vec<u8> {
        let mut state = self.state.borrow_mut();
        let now_ns = self.clock.mono_ns();
        match &mut state.wires[wire.0].sending {
            Some((at, tx, taken)) if *at <= now_ns => {
                let rest = &tx.as_slice()[*taken..];
                let bytes = rest[..rest.len().min(most)].to_vec();
                *taken += bytes.len();
                bytes
            }
            _ => Vec::new(),
        }
    }

    /// Whether there is something to take, or when.
    pub fn takeable_at(&self, wire: WireId) -> Option<u64> {
        let state = self.state.borrow();
        let (at, tx, taken) = state.wires[wire.0].sending.as_ref()?;
        (*taken < tx.len()).then_some(*at)
    }

    /// The client closes its end. What it has sent still arrives.
    pub fn close(&self, wire: WireId) {
        self.state.borrow_mut().wires[wire.0].client_closed = true;
    }

    pub fn is_closed(&self, wire: WireId) -> bool {
        self.state.borrow().wires[wire.0].server_closed
    }

    /// When the next event for a core is due.
    pub fn next_due_ns(&self, core: usize) -> Option<u64> {
        let state = self.state.borrow();
        if core == 0 && !state.incoming.is_empty() {
            return Some(0);
        }
        let mine = state.wires.iter().filter(|wire| wire.core == Some(core));
        mine.filter_map(Wire::due_ns).min()
    }
}

impl Wire {
    fn due_ns(&self) -> Option<u64> {
        if self.server_closed {
            return None;
        }
        let sent = matches!(&self.sending, Some((_, tx, taken)) if *taken == tx.len());
        let gone = self.client_closed && self.inbound.is_empty() && !self.told;
        if sent || gone {
            return Some(0);
        }
        self.inbound.front().filter(|_| !self.paused).map(|(at, _)| *at)
    }
}

/// The connections of one core.
#[derive(Debug)]
pub struct SimNet {
    wires: SimWires,
    core: usize,
    sockets: Slots<WireId>,
}

impl SimNet {
    fn with_wire<R>(&self, socket: SocketId, act: impl FnOnce(&mut Wire) -> R) -> Option<R> {
        let wire = self.sockets.get(socket)?;
        Some(act(&mut self.wires.state.borrow_mut().wires[wire.0]))
    }
}

impl Net for SimNet {
    type Rx = Vec<u8>;

    fn poll(&mut self, events: &mut Vec<Event<Vec<u8>>>) {
        let mut state = self.wires.state.borrow_mut();
        let state = &mut *state;
        if self.core == 0 {
            events.extend(state.incoming.drain(..).map(Event::Incoming));
        }
        let now_ns = self.wires.clock.mono_ns();
        let mut ready = std::mem::take(&mut state.ready);
        ready.extend(0..SOCKETS_MAX);
        for socket in ready.drain(..).filter_map(|index| self.sockets.ticket_at(index)) {
            let Some(wire) = self.sockets.get(socket) else { continue };
            let wire = &mut state.wires[wire.0];
            let sent = |(_, tx, taken): &mut (u64, Tx, usize)| *taken == tx.len();
            if let Some((_, tx, _)) = wire.sending.take_if(sent) {
                events.push(Event::Sent { socket, tx });
            }
            let due = |(at, _): &mut (u64, Vec<u8>)| *at <= now_ns;
            while !wire.paused
                && let Some((_, rx)) = wire.inbound.pop_front_if(due)
            {
                events.push(Event::Received { socket, rx });
            }
            if wire.client_closed && wire.inbound.is_empty() && !wire.told {
                wire.told = true;
                events.push(Event::Closed { socket });
            }
        }
        state.ready = ready;
    }

    fn adopt(&mut self, incoming: OwnedFd) -> Option<SocketId> {
        let mut state = self.wires.state.borrow_mut();
        let wire = state.arriving.remove(&incoming.as_raw_fd())?;
        match self.sockets.insert(wire) {
            Ok(socket) => {
                state.wires[wire.0].core = Some(self.core);
                Some(socket)
            }
            Err(_) => {
                state.wires[wire.0].server_closed = true;
                None
            }
        }
    }

    fn send(&mut self, socket: SocketId, tx: Tx) {
        let now_ns = self.wires.clock.mono_ns();
        self.with_wire(socket, |wire| {
            assert!(wire.sending.is_none(), "two sends of one socket at a time");
            wire.sending = Some((now_ns, tx, 0));
        });
    }

    fn pause(&mut self, socket: SocketId, paused: bool) {
        self.with_wire(socket, |wire| wire.paused = paused);
    }

    fn close(&mut self, socket: SocketId) {
        self.with_wire(socket, |wire| wire.server_closed = true);
        self.sockets.remove(socket);
    }

    /// A peer's close is an event even on a paused connection.
    fn has_hung_up(&self, _socket: SocketId) -> bool {
        false
    }

    /// Nobody is silent here: a peer is there or it has closed.
    fn set_keepalive(&mut self, _period_s: u32) {}

    fn stop_accepting(&mut self) {
        self.wires.state.borrow_mut().refusing = true;
    }
}
