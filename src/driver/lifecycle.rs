//! A core's own life: recovering its keys, following the settings, stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::disk::Disk;
use crate::net::{Net, SocketId};

use super::Core;

/// Time that clients get to take their last replies when the server stops.
const GOODBYE_NS: u64 = 1_000_000_000;

/// What all cores and the control plane share about the life of the server.
#[derive(Debug, Default)]
pub struct Shared {
    /// Finish what is under way, write everything, and end.
    pub stop: Arc<AtomicBool>,
    /// All cores have recovered their keys.
    pub ready: Arc<AtomicBool>,
    /// Cores that have nothing under way any more while stopping.
    quiet: AtomicU32,
    /// Cores that have written everything.
    written: AtomicU32,
}

/// How far a stopping core is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stopping {
    #[default]
    No,
    /// Finishing commands; then all other cores are waited for, which may still ask.
    Finishing,
    Finished,
    /// Writing what is in the log buffers.
    Sealing,
    /// Sending the last replies.
    Goodbye {
        until_ns: u64,
    },
    Stopped,
}

impl<N: Net, D: Disk> Core<N, D> {
    pub fn is_stopped(&self) -> bool {
        self.stopping == Stopping::Stopped
    }

    pub fn count_turn(&self) {
        self.stats.turns.add(1);
    }

    pub fn count_park(&self) {
        self.stats.parks.add(1);
    }

    /// The longest time that the core may park, if something is due.
    pub fn park_limit(&self) -> Option<Duration> {
        let waits = !self.retry.is_empty() || !self.stalled.is_empty();
        if waits || self.stopping != Stopping::No || self.is_loading() {
            return Some(Duration::from_millis(1));
        }
        let due_ns = self.shard.deadline_ns()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(self.now.mono_ns)))
    }

    /// Commands are refused until every core has its keys.
    pub(super) fn is_loading(&self) -> bool {
        !self.shared.ready.load(Ordering::Acquire)
    }

    /// Phase 5, the rare part: settings, statistics, expiry, stopping.
    pub(super) fn maintain_self(&mut self) {
        let generation = self.server.config.generation();
        if generation != self.generation {
            self.generation = generation;
            self.settings = self.server.config.snapshot();
            self.shard.set_flush(self.settings.flush_max_ms, self.settings.flush_size_bytes);
        }
        self.loading = self.is_loading();
        if self.shared.stop.load(Ordering::Relaxed) {
            self.stop_step();
        }
    }

    fn stop_step(&mut self) {
        self.stopping = match self.stopping {
            Stopping::No => {
                self.net.stop_accepting();
                Stopping::Finishing
            }
            Stopping::Finishing if self.is_quiet() => {
                self.shared.quiet.fetch_add(1, Ordering::AcqRel);
                Stopping::Finished
            }
            Stopping::Finished if self.all(&self.shared.quiet) => {
                self.shard.seal_for_shutdown();
                Stopping::Sealing
            }
            Stopping::Sealing if self.is_written() => {
                self.shared.written.fetch_add(1, Ordering::AcqRel);
                let sockets: Vec<SocketId> = self.conns.iter().map(|(id, _)| id).collect();
                sockets.into_iter().for_each(|socket| self.close_when_drained(socket));
                Stopping::Goodbye { until_ns: self.now.mono_ns + GOODBYE_NS }
            }
            Stopping::Goodbye { until_ns }
                if self.all(&self.shared.written)
                    && (self.conns.is_empty() || self.now.mono_ns > until_ns) =>
            {
                Stopping::Stopped
            }
            waiting => waiting,
        };
    }

    fn all(&self, count: &AtomicU32) -> bool {
        count.load(Ordering::Acquire) >= self.cores
    }

    /// Everything is durable, or never will be.
    fn is_written(&self) -> bool {
        if let Some(reason) = self.shard.poison() {
            log::error!("stopping with unwritten data: {reason}");
            return true;
        }
        self.shard.is_idle()
    }

    /// Commands of clients wait: the server stops, or a change of the whole keyspace is made.
    pub(super) fn holds_back(&self) -> bool {
        self.stopping != Stopping::No || self.frozen.holds_back()
    }
}
