//! WAIT and WAITAOF: connections that are held until their writes are safe, or their time is over.
//!
//! A fence asks every core for a sync, as SAVE does: it covers all that was appended before, so
//! also what its connection wrote anywhere. Fences of one moment share the writes and flushes.
//! Those that wait for a replica wait for their time only, and cost nothing meanwhile.

use crate::command::wait::Fence;
use crate::disk::Disk;
use crate::net::{Net, SocketId};
use crate::resp::Reply;

use super::Core;
use super::lifecycle::Stopping;
use super::message::Origin;

/// How often connections that have gone, and a stop, are looked for.
const LOOK_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FenceId(u64);

#[derive(Debug)]
struct Held {
    id: FenceId,
    origin: Origin,
    fence: Fence,
    until_ns: Option<u64>,
    synced: bool,
}

/// The held connections of a core.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// In the order of their ids.
    held: Vec<Held>,
    next_id: u64,
    /// When the next one has to be looked at.
    due_ns: u64,
}

impl Fences {
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// When the core has to be awake for them.
    pub fn due_ns(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.due_ns)
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    pub(super) fn fence_start(&mut self, socket: SocketId, fence: Fence) {
        let origin = self.reserve(socket);
        self.hold_back_later(socket);
        let id = FenceId(self.fences.next_id);
        self.fences.next_id += 1;
        let after = |ms: u64| self.now.mono_ns.saturating_add(ms.saturating_mul(1_000_000));
        let until_ns = fence.timeout_ms.map(after);
        let look_ns = self.fences.due_ns().unwrap_or(self.now.mono_ns + LOOK_NS);
        self.fences.due_ns = until_ns.map_or(look_ns, |until_ns| look_ns.min(until_ns));
        self.fences.held.push(Held { id, origin, fence, until_ns, synced: false });
        if fence.local {
            self.fence_sync(id);
        }
    }

    /// What the connection wrote is durable on all cores, or never will be.
    pub(super) fn fence_synced(&mut self, id: FenceId, failed: Option<String>) {
        let held = &mut self.fences.held;
        let Ok(place) = held.binary_search_by_key(&id, |held| held.id) else { return };
        held[place].synced = true;
        if failed.is_none() && held[place].fence.replicas {
            return;
        }
        let held = held.remove(place);
        match failed {
            Some(text) => self.reply_error(held.origin, &text),
            None => self.fence_answer(&held),
        }
    }

    fn fence_answer(&mut self, held: &Held) {
        let mut bytes = self.spare();
        held.fence.reply(held.synced, &mut Reply::new(&mut bytes, Default::default()));
        self.reply(held.origin, bytes);
        if let Some(conn) = self.conns.get_mut(held.origin.conn) {
            conn.session.last_active_ms = self.now.unix_ms;
        }
    }

    /// Phase 5: answers those that have no time left, and forgets those that have gone.
    pub(super) fn maintain_fences(&mut self) {
        let now_ns = self.now.mono_ns;
        if self.fences.held.is_empty() || now_ns < self.fences.due_ns {
            return;
        }
        let stopping = self.stopping != Stopping::No;
        let mut held = std::mem::take(&mut self.fences.held);
        let mut due_ns = now_ns + LOOK_NS;
        held.retain(|held| {
            let late = held.until_ns.is_some_and(|until_ns| until_ns <= now_ns);
            // A stop writes everything first, and no replica will ever come.
            let safe = held.synced || !held.fence.local;
            if late || (safe && stopping) {
                self.fence_answer(held);
                return false;
            }
            due_ns = held.until_ns.map_or(due_ns, |until_ns| due_ns.min(until_ns));
            !self.is_gone(held.origin.conn)
        });
        self.fences.held = held;
        self.fences.due_ns = due_ns;
    }

    /// Ends a held connection whose peer has gone. Nothing is received on a paused one, so it would
    /// never be heard of.
    fn is_gone(&mut self, socket: SocketId) -> bool {
        let Some(conn) = self.conns.get(socket) else { return true };
        let gone = conn.paused && self.net.has_hung_up(socket);
        if gone {
            self.close(socket);
        }
        gone
    }
}
