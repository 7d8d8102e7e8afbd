//! Access to keys whose names are not known yet: SCAN, KEYS, RANDOMKEY.

use crate::shard::index::{Entry, Found, SlotId};
use crate::shard::record::{Body, Header, PlaceSeed};
use crate::shard::{Segments, Shard};

impl Shard {
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
impl Shard {
    pub fn begin_change(&mut self, _c: u8) -> crate::shard::Lsn { crate::shard::Lsn(0) }
    pub fn take_recorded(&mut self) -> Option<Result<(), String>> { None }
    pub fn set_flush(&mut self, _a: u64, _b: u64) {}
}
