//! Changes of the whole keyspace at one moment: FLUSHALL, FLUSHDB, SWAPDB.
//!
//! Core 0 conducts, one change at a time. It tells every core to freeze: to start no further
//! command and to report once those begun are done. When all have reported, nothing is under
//! way anywhere, and every core's log position is known. The change is written to the
//! superblocks, every core carries it out, and when all have, all go on: a core that went on
//! alone would reach another with the change half made. The pause lasts as long as the slowest
//! command under way and two device writes.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::command::GlobalFn;
use crate::command::global::Global;
use crate::disk::Disk;
use crate::limits::DATABASES;
use crate::mem::Ticket;
use crate::net::{Net, SocketId};
use crate::resp::{Args, Reply};
use crate::shard::Lsn;
use crate::shard::set::SetChange;
use crate::shard::view::Stop;

use super::Core;
use super::execute::Flow;
use super::fence::FenceId;
use super::message::{Asker, Change, Message, Origin};
use super::task::Task;

/// A core's part in changes; on core 0 also the conductor's.
#[derive(Debug, Default)]
pub(crate) struct Frozen {
    /// Frozen, and whether that has been reported to this conductor.
    by: Option<Asker>,
    reported: bool,
    /// Cores that asked to have everything written, and up to where.
    syncs: Vec<(Lsn, Asker)>,
    conductor: Conductor,
}

#[derive(Debug, Default)]
struct Conductor {
    queue: VecDeque<(Asker, Change)>,
    active: Option<Active>,
}

#[derive(Debug)]
struct Active {
    asker: Asker,
    change: Change,
    step: Step,
    pending: u32,
    horizon: Lsn,
    /// What `set_durable` must reach.
    recorded: u64,
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Waiting for all to be quiet.
    Freezing,
    /// All are quiet; the superblocks are being written.
    Recording,
    Thawing,
}

/// The asking side of a change or of a sync.
#[derive(Debug)]
pub(crate) struct Changing {
    /// Nobody waits for the end of a BGSAVE, and a fence has an answer of its own.
    origin: Option<Origin>,
    pending: u32,
    failed: Option<String>,
    purpose: Purpose,
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Change,
    Save,
    Fence(FenceId),
}

impl Frozen {
    /// No command may start now.
    pub fn holds_back(&self) -> bool {
        self.by.is_some()
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    /// A command on the whole keyspace. It starts when every earlier one of its connection is
    /// done, so that it sees what they did on other cores.
    pub(super) fn global(&mut self, socket: SocketId, function: GlobalFn, args: Args<'_>) -> Flow {
        match function(args) {
            Ok(request) => self.global_request(socket, request),
            Err(Stop::Error(text)) => self.immediate_error(socket, &text),
            Err(Stop::Fault(_)) => panic!("the parse of a command's arguments needs no values"),
        }
    }

    pub(super) fn global_request(&mut self, socket: SocketId, request: Global) -> Flow {
        let Some(conn) = self.conns.get(socket) else { return Flow::Close };
        if !conn.owes_nothing() {
            return Flow::Stall;
        }
        let db = conn.session.db;
        match request {
            Global::DbSize => {
                let stats = self.server.stats.iter();
                let keys: i64 = stats.map(|core| core.keys[usize::from(db)].get()).sum();
                self.immediate(socket, |reply| reply.int(keys))
            }
            Global::FlushDb => self.change_start(socket, Change::FlushDb { db }),
            Global::FlushAll => self.change_start(socket, Change::FlushAll),
            Global::SwapDb { a, b } => self.change_start(socket, Change::Swap { a, b }),
            walk => self.walks_start(socket, walk),
        }
    }

    fn change_start(&mut self, socket: SocketId, change: Change) -> Flow {
        let origin = Some(self.reserve(socket));
        // Later commands of the connection must not overtake it on their own core.
        self.hold_back_later(socket);
        let changing = Changing { origin, pending: 1, failed: None, purpose: Purpose::Change };
        let task = self.task_insert(Task::Changing(changing));
        let asker = Asker { core: self.id, task };
        self.send(0, Message::Request { asker, change });
        Flow::Continue
    }

    /// Further commands of the connection wait for the last one's reply.
    pub(super) fn hold_back_later(&mut self, socket: SocketId) {
        if let Some(conn) = self.conns.get_mut(socket) {
            conn.barrier = true;
        }
    }

    /// SAVE: everything acknowledged so far is on the devices when the reply leaves.
    pub(super) fn save_start(&mut self, origin: Option<Origin>) {
        self.sync_start(origin, Purpose::Save);
    }

    /// The same for a fence.
    pub(super) fn fence_sync(&mut self, fence: FenceId) {
        self.sync_start(None, Purpose::Fence(fence));
    }

    fn sync_start(&mut self, origin: Option<Origin>, purpose: Purpose) {
        let changing = Changing { origin, pending: self.cores, failed: None, purpose };
        let task = self.task_insert(Task::Changing(changing));
        let asker = Asker { core: self.id, task };
        (0..self.cores as u16).for_each(|core| self.send(core, Message::Sync { asker }));
    }

    pub(super) fn global_message(&mut self, message: Message) {
        match message {
            Message::Request { asker, change } => {
                self.frozen.conductor.queue.push_back((asker, change));
                self.conduct();
            }
            Message::Freeze { asker } => {
                self.frozen.by = Some(asker);
                self.frozen.reported = false;
            }
            Message::Frozen | Message::Thawed => self.conduct_step(),
            Message::Thaw { change, horizon } => self.thaw(change, horizon),
            Message::Resume => self.frozen.by = None,
            Message::Sync { asker } => {
                self.shard.request_sync();
                self.frozen.syncs.push((self.shard.appended_lsn(), asker));
            }
            Message::Synced { task, result } | Message::Done { task, result } => {
                self.changing_step(task, result);
            }
            _ => panic!("not a message of a change"),
        }
    }

    /// Starts the next change, if none is under way.
    fn conduct(&mut self) {
        let conductor = &mut self.frozen.conductor;
        if conductor.active.is_some() {
            return;
        }
        let Some((asker, change)) = conductor.queue.pop_front() else { return };
        let pending = self.cores;
        conductor.active = Some(Active {
            asker,
            change,
            step: Step::Freezing,
            pending,
            horizon: Lsn(0),
            recorded: 0,
            failed: false,
        });
        self.freeze_all();
    }

    fn freeze_all(&mut self) {
        // The conductor is no task of its own; the ticket is not looked at.
        let asker = Asker { core: self.id, task: Ticket::from_bits(0) };
        (0..self.cores as u16).for_each(|core| self.send(core, Message::Freeze { asker }));
    }

    /// A core has reported; goes on to the next step when that was the last.
    fn conduct_step(&mut self) {
        let Some(active) = &mut self.frozen.conductor.active else { return };
        active.pending -= 1;
        if active.pending > 0 {
            return;
        }
        active.pending = self.cores;
        match active.step {
            Step::Freezing => {
                active.step = Step::Recording;
                self.conduct_record();
            }
            Step::Recording => panic!("a core has reported twice"),
            Step::Thawing => {
                let (asker, failed) = (active.asker, active.failed);
                self.frozen.conductor.active = None;
                (0..self.cores as u16).for_each(|core| self.send(core, Message::Resume));
                let result = if failed { Err(super::execute::POISONED.into()) } else { Ok(()) };
                self.send(asker.core, Message::Done { task: asker.task, result });
                self.conduct();
            }
        }
    }

    /// All cores are quiet: writes the change into the superblocks.
    fn conduct_record(&mut self) {
        let Some(active) = &mut self.frozen.conductor.active else { return };
        let horizon = self.shard.new_horizon();
        active.horizon = horizon;
        active.recorded = match active.change {
            Change::Swap { a, b } => self.shard.change_set(SetChange::Swap { a, b }),
            Change::FlushDb { db } => self.shard.change_set(SetChange::Clear { db, horizon }),
            Change::FlushAll => (0..DATABASES as u8)
                .map(|db| self.shard.change_set(SetChange::Clear { db, horizon }))
                .fold(0, u64::max),
        };
    }

    /// The superblocks have the change (or could not be written): all cores carry it out.
    fn conduct_recorded(&mut self) {
        let Some(active) = &mut self.frozen.conductor.active else { return };
        if active.step != Step::Recording {
            return;
        }
        let failed = self.shard.poison().is_some();
        if self.shard.set_durable() < active.recorded && !failed {
            return;
        }
        active.step = Step::Thawing;
        active.failed = failed;
        let horizon = active.horizon;
        let change = (!failed).then_some(active.change);
        for core in 0..self.cores as u16 {
            self.send(core, Message::Thaw { change, horizon });
        }
    }

    fn thaw(&mut self, change: Option<Change>, horizon: Lsn) {
        match change {
            None => {}
            Some(Change::Swap { a, b }) => self.shard.swap(a, b),
            Some(Change::FlushDb { db }) => self.shard.clear_db(db, horizon),
            Some(Change::FlushAll) => {
                (0..DATABASES as u8).for_each(|db| self.shard.clear_db(db, horizon));
            }
        }
        (0..DATABASES as u8).for_each(|db| self.count_keys(db));
        self.send(0, Message::Thawed);
    }

    /// Phase 5: reports of frozen cores and finished syncs.
    pub(super) fn maintain_changes(&mut self) {
        if let Some(asker) = self.frozen.by
            && !self.frozen.reported
            && self.is_quiet()
        {
            self.frozen.reported = true;
            self.send(asker.core, Message::Frozen);
        }
        if self.frozen.conductor.active.is_some() {
            self.conduct_recorded();
        }
        if !self.frozen.syncs.is_empty() {
            self.finish_syncs();
        }
    }

    /// No command that may write is under way on behalf of this core's connections.
    pub(super) fn is_quiet(&self) -> bool {
        let writes =
            |task: &Task| matches!(task, Task::Command(_) | Task::Multi(_) | Task::Hold(_));
        let busy = self.tasks.iter().any(|(_, task)| task.as_deref().is_some_and(writes));
        self.remote_in_flight == 0 && !busy
    }

    fn finish_syncs(&mut self) {
        let synced = self.shard.synced_lsn();
        let poisoned = self.shard.poison().is_some();
        let mut syncs = std::mem::take(&mut self.frozen.syncs);
        syncs.retain(|&(lsn, asker)| {
            if lsn > synced && !poisoned {
                return true;
            }
            let result = if lsn <= synced { Ok(()) } else { Err(super::execute::POISONED.into()) };
            self.send(asker.core, Message::Synced { task: asker.task, result });
            false
        });
        if !syncs.is_empty() {
            self.shard.request_sync();
        }
        self.frozen.syncs = syncs;
    }

    fn changing_step(&mut self, task: Ticket, result: Result<(), String>) {
        let Some(mut owner) = self.task_take(task) else { return };
        let mut over = false;
        if let Task::Changing(changing) = &mut *owner {
            changing.failed = result.err().or(changing.failed.take());
            changing.pending -= 1;
            over = changing.pending == 0;
        }
        if !over {
            return self.task_put(task, owner);
        }
        self.tasks.remove(task);
        let Task::Changing(changing) = *owner else { return };
        match changing.purpose {
            Purpose::Change => {}
            Purpose::Save => self.note_save(changing.failed.is_none()),
            Purpose::Fence(fence) => return self.fence_synced(fence, changing.failed),
        }
        let Some(origin) = changing.origin else { return };
        match changing.failed {
            Some(text) => self.reply_error(origin, &text),
            None => {
                let mut bytes = self.spare();
                Reply::new(&mut bytes, Default::default()).ok();
                self.reply(origin, bytes);
            }
        }
    }

    /// For LASTSAVE and INFO.
    fn note_save(&self, succeeded: bool) {
        let state = &self.server.state;
        state.last_save_failed.store(!succeeded, Ordering::Relaxed);
        if succeeded {
            state.last_save_ms.store(self.now.unix_ms, Ordering::Relaxed);
        }
    }
}
