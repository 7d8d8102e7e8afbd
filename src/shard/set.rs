//! Changes of the whole set while it runs, written into the superblocks by one core: flushed and
//! exchanged databases.

use std::io;

use crate::disk::Disk;
use crate::limits::DATABASES;
use crate::mem::LogBuf;
use crate::shard::log::Log;
use crate::shard::record::Lsn;
use crate::shard::superblock::{COPIES_AT, Superblocks};
use crate::shard::table::Segments;

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetChange {
    /// Records of a logical database up to the horizon are dead.
    Clear { db: u8, horizon: Lsn },
    /// Two logical databases are exchanged.
    Swap { a: u8, b: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// So many writes are under way.
    Writing(usize),
    Settling(u64),
}

/// Writes the superblocks, one copy of all members at a time.
pub struct SetWriter {
    superblocks: Superblocks,
    buf: LogBuf,
    phase: Phase,
    /// Copies that do not have the latest change.
    copies_behind: usize,
    /// Changes asked for, in the copy under way, and durable.
    changes: u64,
    writing: u64,
    durable: u64,
    horizons: [Lsn; DATABASES],
}

impl SetWriter {
    pub fn new(superblocks: Superblocks) -> io::Result<SetWriter> {
        Ok(SetWriter {
            buf: superblocks.buffer()?,
            horizons: superblocks.state.horizons,
            superblocks,
            phase: Phase::Idle,
            copies_behind: 0,
            changes: 0,
            writing: 0,
            durable: 0,
        })
    }

    /// Takes a change up. It is durable when [`SetWriter::durable`] reaches the result.
    pub fn change(&mut self, change: SetChange) -> u64 {
        let state = &mut self.superblocks.state;
        match change {
            SetChange::Clear { db, horizon } => {
                let db = usize::from(state.databases[usize::from(db)]);
                state.horizons[db] = state.horizons[db].max(horizon);
            }
            SetChange::Swap { a, b } => state.databases.swap(usize::from(a), usize::from(b)),
        }
        self.changes += 1;
        self.copies_behind = COPIES_AT.len();
        self.changes
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && self.copies_behind == 0
    }

    pub fn maintain(&mut self, log: &mut Log, disk: &mut impl Disk, segments: &Segments) {
        if log.poison().is_some() {
            return;
        }
        match self.phase {
            Phase::Idle if self.copies_behind > 0 && self.buf.reset() => {
                self.writing = self.changes;
                self.horizons = self.superblocks.state.horizons;
                let all = self.superblocks.members();
                let writes = self.superblocks.next_writes(all, &mut self.buf);
                self.phase = Phase::Writing(writes.len());
                writes.into_iter().for_each(|io| log.submit(disk, io));
            }
            Phase::Settling(round) if log.is_settled(round) => {
                self.phase = Phase::Idle;
                self.copies_behind -= 1;
                self.durable = self.writing;
                for (db, &horizon) in self.horizons.iter().enumerate() {
                    segments.set_horizon(db as u8, horizon);
                }
            }
            _ => {}
        }
    }

    /// The superblock of one device is written.
    pub fn complete(&mut self, log: &mut Log, device: u16) {
        let round = log.settle(device);
        self.phase = match self.phase {
            Phase::Writing(writes) if writes > 1 => Phase::Writing(writes - 1),
            _ => Phase::Settling(round),
        };
    }
}
