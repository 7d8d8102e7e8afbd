//! Access to keys whose names are not known yet: SCAN, KEYS, RANDOMKEY.

use crate::shard::index::{Entry, Found, SlotId};
use crate::shard::log::LogOptions;
use crate::shard::record::{Body, Header, PlaceSeed};
use crate::shard::segment::Epoch;
use crate::shard::table::Tier;
use crate::shard::{Lsn, Segments, Shard};

impl Shard {
    /// `--flush-max-ms` and `--flush-size-kb` have changed.
    pub fn set_flush(&mut self, max_ms: u64, size_bytes: u64) {
        self.log.set_options(LogOptions {
            flush_max_ns: max_ms.saturating_mul(1_000_000),
            flush_size_bytes: size_bytes as usize,
        });
    }

    /// Life of the segment that an entry points into.
    pub fn epoch_of(&self, entry: &Entry) -> Epoch {
        self.segments.epoch(Segments::split(entry.location.units()).0)
    }

    /// Whether new data finds room without touching the reserve for deletes, now or soon. Whoever
    /// is told that it does not is refused.
    pub fn admits_growth(&self) -> bool {
        let room = self.segments.can_allocate(Tier::Put) || self.segments.pace.is_hopeful();
        if !room {
            self.segments.pace.note_refused();
        }
        room
    }

    /// Writes of clients that found no space on the devices, on all cores.
    pub fn refused_writes(&self) -> u64 {
        self.segments.pace.refused()
    }

    /// An LSN above all that any core has given out; see [`Segments::new_horizon`].
    pub fn new_horizon(&self) -> Lsn {
        self.segments.new_horizon()
    }

    /// The key of a slot that a scan has visited; None when it is gone or has expired.
    pub fn lookup_at(&self, db: u8, id: &SlotId, now_ms: u64) -> Option<Found> {
        let found = self.index(db).get_at(id)?;
        found.expire_at_ms.is_none_or(|at_ms| at_ms > now_ms).then_some(found)
    }

    /// The name of a record that is still in a log buffer.
    pub fn resident_key(&self, entry: &Entry) -> Option<&[u8]> {
        let (segment, unit) = Segments::split(entry.location.units());
        let (bytes, seed) = self.log.resident(segment, unit)?;
        let header = Header::decode(bytes, PlaceSeed::new(seed, unit)).ok()?;
        matches!(header.body, Body::Value(_)).then(|| header.payload(bytes).0)
    }
}
