//! Counters of one core. Written by their core alone (relaxed, no read-modify-write needed by
//! others), read by INFO and the metrics endpoint at any time.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// A number that one core writes and anyone reads.
#[derive(Debug, Default)]
pub struct Counter {
    value: AtomicU64,
    /// The value at the last reset. Apart from `value`, so that the core stays the only writer
    /// of that.
    baseline: AtomicU64,
}

impl Counter {
    /// Adds without a locked instruction: only the owning core writes.
    pub fn add(&self, amount: u64) {
        self.value
            .store(self.value.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// The count since the start: never falls.
    pub fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }

    /// The count since CONFIG RESETSTAT, which is what INFO shows.
    pub fn since_reset(&self) -> u64 {
        self.get().saturating_sub(self.baseline.load(Ordering::Relaxed))
    }

    /// Lets [`since_reset`](Counter::since_reset) count from zero again. Any thread may.
    pub fn reset(&self) {
        self.baseline.store(self.get(), Ordering::Relaxed);
    }
}

/// A level that goes up and down.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn add(&self, amount: i64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counters of one core, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CoreStats {
    pub commands: Counter,
    pub connections_accepted: Counter,
    pub connections_rejected: Counter,
    pub clients: Gauge,
    /// Held by WAIT or WAITAOF.
    pub blocked_clients: Gauge,
    pub net_in_bytes: Counter,
    pub net_out_bytes: Counter,
    pub keyspace_hits: Counter,
    pub keyspace_misses: Counter,
    pub expired_keys: Counter,
    pub errors: Counter,
    /// Device reads and writes: requests and bytes.
    pub device_reads: Counter,
    pub device_read_bytes: Counter,
    pub device_writes: Counter,
    pub device_write_bytes: Counter,
    pub device_flushes: Counter,
    /// Bytes of records that clients have written.
    pub put_bytes: Counter,
    /// Records that defrag has moved, what it has read for that, tombstones it has written again.
    pub defrag_moved_records: Counter,
    pub defrag_moved_bytes: Counter,
    pub defrag_read_bytes: Counter,
    pub defrag_tombstones: Counter,
    /// Places that defrag could not read.
    pub defrag_damaged: Counter,
    /// Bytes of values that have been replaced and are kept for their readers.
    pub pinned_bytes: Gauge,
    /// Keys and keys with an expiry, per database.
    pub keys: [Gauge; crate::limits::DATABASES],
    pub expires: [Gauge; crate::limits::DATABASES],
    /// Bytes of DRAM of the index (slots, directories, expiries).
    pub index_bytes: Gauge,
    /// Bytes of query and reply buffers.
    pub client_bytes: Gauge,
    /// Turns of the loop, and how many ended parked.
    pub turns: Counter,
    pub parks: Counter,
    /// Commands that went to another core.
    pub remote_commands: Counter,
}

/// The segments of the set. The control plane keeps it up to date.
#[derive(Debug, Default)]
pub struct SpaceStats {
    pub segments: Gauge,
    pub free: Gauge,
    /// Being filled.
    pub open: Gauge,
    pub sealed: Gauge,
    /// Without live records, not yet free.
    pub empty: Gauge,
    /// Being emptied.
    pub victims: Gauge,
    /// Bytes of values in sealed segments, and those of them that are superseded.
    pub value_bytes: Gauge,
    pub dead_bytes: Gauge,
    pub tombstones: Gauge,
    /// Segments that defrag has been through, and of these the ones where something stayed.
    pub defrag_runs: Counter,
    pub defrag_incomplete: Counter,
}

impl SpaceStats {
    /// Share of the values in sealed segments that is live, in percent.
    pub fn live_percent(&self) -> f64 {
        let (all, dead) = (self.value_bytes.get() as f64, self.dead_bytes.get() as f64);
        if all > 0.0 { (100.0 * (1.0 - dead / all)).clamp(0.0, 100.0) } else { 100.0 }
    }
}

impl CoreStats {
    /// CONFIG RESETSTAT for the counters of this core. Any thread may.
    pub fn reset(&self) {
        let counters = [
            &self.commands,
            &self.connections_accepted,
            &self.connections_rejected,
            &self.net_in_bytes,
            &self.net_out_bytes,
            &self.keyspace_hits,
            &self.keyspace_misses,
            &self.expired_keys,
            &self.errors,
            &self.device_reads,
            &self.device_read_bytes,
            &self.device_writes,
            &self.device_write_bytes,
            &self.device_flushes,
            &self.put_bytes,
            &self.defrag_moved_records,
            &self.defrag_moved_bytes,
            &self.defrag_read_bytes,
            &self.defrag_tombstones,
            &self.defrag_damaged,
            &self.turns,
            &self.parks,
            &self.remote_commands,
        ];
        counters.into_iter().for_each(Counter::reset);
    }
}

/// What a controller that we drive ourselves says of its health. The control plane writes it.
#[derive(Debug, Default)]
pub struct DeviceHealth {
    pub name: String,
    /// 1 until the controller was given up.
    pub working: Gauge,
    pub critical_warning: Gauge,
    pub available_spare_percent: Gauge,
    pub used_percent: Gauge,
    pub temperature_celsius: Gauge,
    pub media_errors: Gauge,
    pub unsafe_shutdowns: Gauge,
}

impl DeviceHealth {
    pub fn new(name: &str) -> DeviceHealth {
        DeviceHealth { name: name.to_string(), ..DeviceHealth::default() }
    }

    /// All figures with the names that INFO and the metrics endpoint give them.
    pub fn figures(&self) -> [(&'static str, i64); 7] {
        [
            ("working", self.working.get()),
            ("critical_warning", self.critical_warning.get()),
            ("available_spare_percent", self.available_spare_percent.get()),
            ("used_percent", self.used_percent.get()),
            ("temperature_celsius", self.temperature_celsius.get()),
            ("media_errors", self.media_errors.get()),
            ("unsafe_shutdowns", self.unsafe_shutdowns.get()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::CoreStats;

    #[test]
    fn reset_counts_from_zero_and_keeps_the_total() {
        let stats = CoreStats::default();
        stats.commands.add(5);
        stats.clients.add(3);
        stats.reset();
        stats.commands.add(2);
        assert_eq!(stats.commands.since_reset(), 2);
        assert_eq!(stats.commands.get(), 7);
        assert_eq!(stats.clients.get(), 3);
    }
}
