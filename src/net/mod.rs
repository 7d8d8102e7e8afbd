//! Connections behind one small trait. A backend moves bytes; it knows no protocol.

#[allow(unsafe_code)]
pub mod kernel;

use std::ops::Deref;
use std::os::fd::OwnedFd;

use crate::mem::{DmaBuf, Ticket};

/// Names one connection of one core for as long as it is open.
pub type SocketId = Ticket;

/// What happened since the last poll. `R` is [`Net::Rx`].
#[derive(Debug)]
pub enum Event<R> {
    /// A client has connected. The core that is to serve it calls [`Net::adopt`].
    Incoming(OwnedFd),
    /// Bytes arrived; dropping `rx` gives its buffer back.
    Received { socket: SocketId, rx: R },
    /// All of what was sent last is with the transport; its buffer comes back.
    Sent { socket: SocketId, tx: Tx },
    /// The peer is gone or the connection broke. The owner calls [`Net::close`].
    Closed { socket: SocketId },
}

/// Bytes to send, owned until they are sent.
#[derive(Debug)]
pub enum Tx {
    Bytes(Vec<u8>),
    /// A part of a device buffer: a value framed where it was read.
    Value {
        buf: DmaBuf,
        start: u32,
        len: u32,
    },
}

impl Tx {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Tx::Bytes(bytes) => bytes,
            Tx::Value { buf, start, len } => &buf[*start as usize..][..*len as usize],
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Tx::Bytes(bytes) => bytes.len(),
            Tx::Value { len, .. } => *len as usize,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The connections of one core.
pub trait Net {
    /// Received bytes in a buffer of the backend.
    type Rx: Deref<Target = [u8]>;
    /// Moves what happened to the end of `events`.
    fn poll(&mut self, events: &mut Vec<Event<Self::Rx>>);
    /// Takes over a connection; `None` when the table is full (the connection is closed).
    fn adopt(&mut self, incoming: OwnedFd) -> Option<SocketId>;
    /// Sends `tx`. At most one send of a socket is under way; the next follows its `Sent`.
    fn send(&mut self, socket: SocketId, tx: Tx);
    /// Stops (or goes on) receiving: back-pressure on this peer. Bytes that are already on
    /// their way may still arrive after a pause.
    fn pause(&mut self, socket: SocketId, paused: bool);
    /// Whether the connection has ended or the peer has closed its side, as far as the transport
    /// knows: for connections that are paused, which get no events of that.
    fn has_hung_up(&self, socket: SocketId) -> bool;
    /// Ends the connection; no event of it follows.
    fn close(&mut self, socket: SocketId);
    /// Period in seconds of the probes of silent peers, for connections adopted from now on;
    /// 0 = none.
    fn set_keepalive(&mut self, period_s: u32);
    /// Stops accepting new connections.
    fn stop_accepting(&mut self);
}
