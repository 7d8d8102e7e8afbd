//! Replies find their place in their connection's order; what is complete leaves.

use crate::disk::Disk;
use crate::net::{Net, SocketId, Tx};
use crate::resp::Reply;
use crate::shard::Lsn;

use super::Core;
use super::conn::Conn;
use super::message::{Message, Origin};

/// A finished reply that must not leave before `lsn` is as durable as the settings ask.
#[derive(Debug)]
pub(crate) struct Waiting {
    lsn: Lsn,
    to: Then,
}

/// What happens when it is.
#[derive(Debug)]
pub(crate) enum Then {
    Reply { origin: Origin, bytes: Vec<u8> },
    Send { core: u16, message: Box<Message> },
}

impl<N: Net, D: Disk> Core<N, D> {
    /// Delivers a reply that was waited for.
    pub(super) fn reply(&mut self, origin: Origin, bytes: Vec<u8>) {
        if origin.core == self.id {
            return self.fill(origin, Tx::Bytes(bytes));
        }
        let Origin { conn, seq, expected, .. } = origin;
        let message = Message::Reply { conn, seq, expected, bytes };
        self.mesh.send(usize::from(origin.core), message);
    }

    pub(super) fn reply_error(&mut self, origin: Origin, text: &str) {
        let mut bytes = self.spare();
        Reply::new(&mut bytes, Default::default()).error(text);
        self.stats.errors.add(1);
        self.reply(origin, bytes);
    }

    /// Puts a reply into its place on a connection of this core.
    pub(super) fn fill(&mut self, origin: Origin, tx: Tx) {
        let tx = self.spare_device_buffers(tx);
        let Some(conn) = self.conns.get_mut(origin.conn) else { return };
        conn.expected_bytes -= origin.expected as usize;
        let before = conn.reply_bytes();
        conn.fill(origin.seq, tx, &mut self.spares);
        self.reply_bytes = self.reply_bytes + conn.reply_bytes() - before;
        list(&mut self.unsent, origin.conn, conn);
    }

    /// A value leaves from the buffer it was read into, unless device buffers are getting scarce:
    /// peers that do not read must not keep others from reading the device.
    pub(super) fn spare_device_buffers(&mut self, tx: Tx) -> Tx {
        match tx {
            Tx::Value { .. } if self.pool.is_scarce() => Tx::Bytes(tx.as_slice().to_vec()),
            tx => tx,
        }
    }

    /// Delivers `bytes` now, or when the log has made `lsn` durable.
    pub(super) fn reply_durable(&mut self, origin: Origin, bytes: Vec<u8>, lsn: Option<Lsn>) {
        match lsn {
            Some(lsn) if !self.is_durable(lsn) => {
                self.wait_durable(lsn, Then::Reply { origin, bytes });
            }
            _ => self.reply(origin, bytes),
        }
    }

    pub(super) fn wait_durable(&mut self, lsn: Lsn, to: Then) {
        self.request_durable();
        self.waiting.push_back(Waiting { lsn, to });
    }

    /// Whether a write of `lsn` may be acknowledged under the settings in force.
    pub(super) fn is_durable(&self, lsn: Lsn) -> bool {
        use crate::config::Durability;
        match self.settings.durability {
            Durability::Received => true,
            Durability::Written => self.shard.written_lsn() >= lsn,
            // The bug that the simulator has to find in a build for that purpose.
            Durability::Synced if cfg!(feature = "sim-canary") => self.shard.written_lsn() >= lsn,
            Durability::Synced => self.shard.synced_lsn() >= lsn,
        }
    }

    fn request_durable(&mut self) {
        use crate::config::Durability;
        match self.settings.durability {
            Durability::Received => {}
            Durability::Written => self.shard.request_flush(),
            Durability::Synced => self.shard.request_sync(),
        }
    }

    /// Lets the replies go whose writes have become durable. When the log cannot write any more
    /// they become errors: what they promise will not happen.
    pub(super) fn release_durable(&mut self) {
        while let Some(front) = self.waiting.front() {
            let durable = self.is_durable(front.lsn);
            if !durable && self.shard.poison().is_none() {
                self.request_durable();
                return;
            }
            let Some(front) = self.waiting.pop_front() else { return };
            match front.to {
                Then::Reply { origin, bytes } if durable => self.reply(origin, bytes),
                Then::Reply { origin, bytes } => {
                    self.recycle(bytes);
                    self.reply_error(origin, super::execute::POISONED);
                }
                Then::Send { core, message } => self.send_settled(core, *message, durable),
            }
        }
    }

    fn send_settled(&mut self, core: u16, message: Message, durable: bool) {
        let message = match message {
            Message::Committed { task, .. } if !durable => {
                Message::Committed { task, result: Err(super::execute::POISONED.into()) }
            }
            message => message,
        };
        self.send(core, message);
    }

    /// Notes that a connection may have something to send at the end of the turn.
    pub(super) fn wants_send(&mut self, socket: SocketId) {
        if let Some(conn) = self.conns.get_mut(socket) {
            list(&mut self.unsent, socket, conn);
        }
    }

    /// Notes that a reply of so many bytes was appended to the buffer of a connection that is
    /// lent out.
    pub(super) fn made(&mut self, conn: &mut Conn, socket: SocketId, bytes: usize) {
        conn.made(bytes);
        self.reply_bytes += bytes;
        list(&mut self.unsent, socket, conn);
    }

    pub(super) fn flush_output(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        for socket in unsent.drain(..) {
            let Some(conn) = self.conns.get_mut(socket) else { continue };
            conn.listed = false;
            if !conn.streams.is_empty() {
                self.stream_pump(socket);
            }
            let Some(conn) = self.conns.get_mut(socket) else { continue };
            if conn.stalled && !conn.is_congested() {
                self.stalled.push_back(socket);
            }
            if let Some(tx) = conn.next_out() {
                self.stats.net_out_bytes.add(tx.len() as u64);
                self.net.send(socket, tx);
            } else if conn.closing && conn.is_drained() {
                self.close(socket);
            }
        }
        // A part of a stream may have been added meanwhile.
        unsent.append(&mut self.unsent);
        self.unsent = unsent;
    }

    pub(super) fn sent(&mut self, socket: SocketId, tx: Tx) {
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.sent(tx.len());
            self.reply_bytes -= tx.len();
            let more = conn.has_output() || !conn.streams.is_empty();
            if more || conn.stalled || conn.closing {
                list(&mut self.unsent, socket, conn);
            }
        }
        if let Tx::Bytes(bytes) = tx {
            self.recycle(bytes);
        }
    }
}

/// Lists a connection among those with something to send, once.
fn list(unsent: &mut Vec<SocketId>, socket: SocketId, conn: &mut Conn) {
    if !conn.listed {
        conn.listed = true;
        unsent.push(socket);
    }
}
