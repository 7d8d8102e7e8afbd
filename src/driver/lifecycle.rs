//! A core's own life: recovering its keys, following the settings, stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::config::Settings;
use crate::disk::{Disk, Done};
use crate::limits::DATABASES;
use crate::net::{Net, SocketId};
use crate::shard::recover::Progress;
use crate::shard::victims::DefragOptions;
use crate::stats::Gauge;

use super::{Core, Shares};

/// Time that clients get to take their last replies when the server stops.
const GOODBYE_NS: u64 = 1_000_000_000;
/// Time between two looks for expired keys, and how many steps one look takes at most.
const EXPIRY_INTERVAL_NS: u64 = 5_000_000;
const EXPIRY_STEPS_MAX: usize = 64;
/// Keys that one step looks at, times the steps of three seconds.
const KEYS_PER_STEP_AND_ROUND: usize = 500 * 600;
/// Time between two reports of recovery's progress.
const REPORT_INTERVAL_NS: u64 = 1_000_000_000;

/// What all cores and the control plane share about the life of the server.
#[derive(Debug, Default)]
pub struct Shared {
    /// Finish what is under way, write everything, and end.
    pub stop: Arc<AtomicBool>,
    /// All cores have recovered their keys.
    pub ready: Arc<AtomicBool>,
    /// Cores that have nothing under way any more while stopping.
    quiet: AtomicU32,
    /// A core could not recover its keys: nobody is waited for.
    pub failed: AtomicBool,
    /// Cores that have recovered their keys.
    recovered: AtomicU32,
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

/// The part of the settings that the shard follows.
pub(super) fn defrag_options(settings: &Settings) -> DefragOptions {
    let maintenance = &settings.maintenance;
    DefragOptions {
        paused: maintenance.defrag_paused,
        max_active_per_device: maintenance.defrag_max_active_per_device,
        sleep_ms: maintenance.defrag_sleep_ms,
        record_sleep_us: maintenance.defrag_record_sleep_us,
    }
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
        let waits = [self.retry.is_empty(), self.asks.is_empty(), self.stalled.is_empty()];
        if waits.contains(&false) || self.stopping != Stopping::No || self.is_loading() {
            return Some(Duration::from_millis(1));
        }
        let expiring = self.stats.expires.iter().any(|count| count.get() > 0);
        let expiry = expiring.then(|| Duration::from_nanos(EXPIRY_INTERVAL_NS));
        let due = match self.shard.poison() {
            None => self.shard.deadline_ns(),
            Some(_) => None,
        };
        let due = due.into_iter().chain(self.fences.due_ns()).min();
        let due = due.map(|at| Duration::from_nanos(at.saturating_sub(self.now.mono_ns)));
        [due, expiry].into_iter().flatten().min()
    }

    /// Commands are refused until every core has its keys.
    pub(super) fn is_loading(&self) -> bool {
        !self.shared.ready.load(Ordering::Acquire)
    }

    /// Goes on with recovery; when all cores are through, commands are served.
    pub(super) fn recover_step(&mut self, done: &mut Vec<Done>) {
        let Some(recovery) = &mut self.recovery else { return };
        match recovery.step(&mut self.shard, &mut self.disk, done) {
            Ok(progress) if progress.finished => self.recovered(),
            Ok(progress) => self.report(&progress),
            Err(damage) => {
                log::error!("recovery stopped: {damage}");
                self.failed = Some(damage.to_string());
                self.shared.failed.store(true, Ordering::Relaxed);
                self.shared.stop.store(true, Ordering::Relaxed);
                self.stopping = Stopping::Stopped;
            }
        }
    }

    fn recovered(&mut self) {
        let Some(mut recovery) = self.recovery.take() else { return };
        if self.id == 0 {
            recovery.take_notes().iter().for_each(|note| log::warn!("{note}"));
        }
        recovery.take_own_notes().iter().for_each(|note| log::warn!("{note}"));
        let keys: usize = (0..DATABASES as u8).map(|db| self.shard.len(db)).sum();
        log::info!("recovered {keys} keys");
        (0..DATABASES as u8).for_each(|db| self.count_keys(db));
        if self.shared.recovered.fetch_add(1, Ordering::AcqRel) + 1 == self.cores {
            self.server.state.loading.store(false, Ordering::Relaxed);
            self.shared.ready.store(true, Ordering::Release);
            log::info!("ready to serve clients");
        }
    }

    fn report(&mut self, progress: &Progress) {
        if self.id == 0 && self.now.mono_ns >= self.next_report_ns {
            self.next_report_ns = self.now.mono_ns + REPORT_INTERVAL_NS;
            let Progress { segments_done, segments_total, records, .. } = progress;
            log::info!(
                "recovering: {segments_done} of {segments_total} segments, {records} records"
            );
        }
    }

    /// Publishes how many keys a database has here.
    pub(super) fn count_keys(&self, db: u8) {
        let place = usize::from(db);
        self.stats.keys[place].set(self.shard.len(db) as i64);
        self.stats.expires[place].set(self.shard.expires(db) as i64);
    }

    /// Why the core has ended early, if it has.
    pub fn failed(&mut self) -> Option<String> {
        self.failed.take()
    }

    /// Phase 5, the rare part: settings, statistics, expiry, stopping.
    pub(super) fn maintain_self(&mut self) {
        self.follow_settings();
        self.loading = self.is_loading();
        if !self.loading && self.now.mono_ns >= self.next_expiry_ns {
            self.next_expiry_ns = self.now.mono_ns + EXPIRY_INTERVAL_NS;
            self.expire();
            self.publish();
            self.watch();
        }
        if self.shared.stop.load(Ordering::Relaxed) {
            self.stop_step();
        }
    }

    /// Takes over settings that have changed.
    pub(super) fn follow_settings(&mut self) {
        let generation = self.server.config.generation();
        if generation != self.generation {
            self.generation = generation;
            self.settings = self.server.config.snapshot();
            self.shares = Shares::new(&self.settings, self.cores);
            self.shard.set_flush(self.settings.flush_max_ms, self.settings.flush_size_bytes);
            self.shard.set_defrag(defrag_options(&self.settings));
            self.net.set_keepalive(self.settings.tcp_keepalive_s);
        }
    }

    /// Phase 5: makes the turn's figures visible to INFO and the metrics endpoint.
    pub(super) fn publish(&mut self) {
        self.index_bytes = self.shard.memory_bytes();
        self.stats.blocked_clients.set(self.fences.len() as i64);
        let counts = self.disk.counts();
        self.stats.device_reads.set(counts.reads);
        self.stats.device_read_bytes.set(counts.read_bytes);
        self.stats.device_writes.set(counts.writes);
        self.stats.device_write_bytes.set(counts.write_bytes);
        self.stats.device_flushes.set(counts.flushes);
        self.stats.client_bytes.set((self.client_bytes + self.reply_bytes) as i64);
        self.stats.index_bytes.set(self.index_bytes as i64);
        let moved = self.shard.defrag_counts();
        self.stats.put_bytes.set(self.shard.put_bytes());
        self.stats.defrag_moved_records.set(moved.records);
        self.stats.defrag_moved_bytes.set(moved.bytes);
        self.stats.defrag_read_bytes.set(moved.read_bytes);
        self.stats.defrag_tombstones.set(moved.tombstones);
        self.stats.defrag_damaged.set(moved.damaged);
        self.stats.pinned_bytes.set(self.shard.pinned_bytes() as i64);
    }

    /// Removes expired keys: a few looks each time, more while they find something.
    fn expire(&mut self) {
        let expiring: i64 = self.stats.expires.iter().map(Gauge::get).sum();
        // Enough to look at all of them once in a few seconds, more while something is found.
        let steps_min = (expiring as usize / KEYS_PER_STEP_AND_ROUND + 1).min(EXPIRY_STEPS_MAX);
        let mut removed = 0;
        for step in 0..EXPIRY_STEPS_MAX {
            let found = self.shard.expire_step(self.now.unix_ms);
            removed += found;
            if found == 0 && step + 1 >= steps_min {
                break;
            }
        }
        if removed > 0 {
            self.stats.expired_keys.add(removed as u64);
            (0..DATABASES as u8).for_each(|db| self.count_keys(db));
        }
    }

    /// What has to be noticed within milliseconds or seconds.
    fn watch(&mut self) {
        if let Some(reason) = self.shard.poison()
            && !self.poison_logged
        {
            log::error!("no writes until a restart: {reason}");
            self.poison_logged = true;
        }
        self.make_room_of_readers();
        if self.now.mono_ns < self.next_second_ns {
            return;
        }
        self.next_second_ns = self.now.mono_ns + 1_000_000_000;
        self.shard.take_defrag_notes().iter().for_each(|note| log::error!("{note}"));
        if self.id == 0 {
            self.server.sample_rate(self.now.unix_ms);
        }
        self.close_idle();
    }

    /// `--idle-timeout`.
    fn close_idle(&mut self) {
        let limit_ms = self.settings.idle_timeout_ms;
        if limit_ms == 0 {
            return;
        }
        let since_ms = self.now.unix_ms.saturating_sub(limit_ms);
        // Whoever waits for a reply is not silent: we are.
        let idle = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.session.last_active_ms < since_ms && conn.owes_nothing());
        let idle: Vec<SocketId> = idle.map(|(socket, _)| socket).collect();
        idle.into_iter().for_each(|socket| self.close(socket));
    }

    fn stop_step(&mut self) {
        self.stopping = match self.stopping {
            _ if self.shared.failed.load(Ordering::Relaxed) => Stopping::Stopped,
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
                if let Some(reason) = self.shard.poison() {
                    self.failed = Some(format!("stopped with unwritten data: {reason}"));
                }
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
        self.shard.poison().is_some() || self.shard.is_idle()
    }

    /// Commands of clients wait: the server stops, or a change of the whole keyspace is made.
    pub(super) fn holds_back(&self) -> bool {
        self.stopping != Stopping::No || self.frozen.holds_back()
    }
}
