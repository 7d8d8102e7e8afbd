//! A simulated client: what it has to send, what it is owed, and how it reads.

use std::collections::VecDeque;

use crate::testing::net::{SimWires, WireId};

use super::group::OpId;
use super::reply::Reply;

/// What a reply will be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owed {
    /// A command on keys of a group, or of all groups.
    Op {
        id: OpId,
        group: Option<usize>,
    },
    /// A command on a key of the ballast.
    Ballast {
        id: OpId,
        key: usize,
        version: u64,
    },
    Select,
    /// SAVE or WAITAOF, sent at this time.
    Save(u64),
    /// Asked by the simulator itself.
    Call,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Client {
    pub wire: Option<WireId>,
    /// Number of the connection: a new one owes nothing to the old one's commands.
    pub session: usize,
    pub db: usize,
    pub outbox: Vec<u8>,
    inbox: Vec<u8>,
    pub owed: VecDeque<Owed>,
    /// When it acts next.
    pub due_ns: u64,
    /// It reads nothing until then.
    pub lazy_until_ns: u64,
}

impl Client {
    pub fn connect(&mut self, wires: &SimWires, session: usize) {
        self.wire = Some(wires.connect());
        self.session = session;
    }

    /// Forgets the connection and what it was owed.
    pub fn disconnect(&mut self, wires: Option<&SimWires>) {
        if let (Some(wire), Some(wires)) = (self.wire, wires) {
            wires.close(wire);
        }
        *self = Client { due_ns: self.due_ns, ..Client::default() };
    }

    /// Sends a piece of what is to be sent.
    pub fn send(&mut self, wires: &SimWires, most: usize, delay_ns: u64) {
        let Some(wire) = self.wire else { return };
        let rest = self.outbox.split_off(self.outbox.len().min(most));
        let piece = std::mem::replace(&mut self.outbox, rest);
        if !piece.is_empty() {
            wires.send(wire, piece, delay_ns);
        }
    }

    /// Reads a piece; returns the replies that are complete.
    pub fn read(&mut self, wires: &SimWires, most: usize) -> Result<Vec<(Owed, Reply)>, String> {
        let Some(wire) = self.wire else { return Ok(Vec::new()) };
        let bytes = wires.take(wire, most);
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        self.inbox.extend(bytes);
        let (mut used, mut replies) = (0, Vec::new());
        while used < self.inbox.len()
            && let Some((reply, len)) = Reply::parse(&self.inbox[used..])?
        {
            used += len;
            let owed = self.owed.pop_front();
            replies.push((owed.ok_or_else(|| format!("not asked for: {reply:?}"))?, reply));
        }
        self.inbox.drain(..used);
        Ok(replies)
    }
}
