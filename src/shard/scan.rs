//! Reads an unsealed segment record by record, up to where its log ends.

use crate::shard::footer::{Entry, What};
use crate::shard::index::KeyHasher;
use crate::shard::parts::part_hash;
use crate::shard::record::{self, Body, Header, Lsn, PlaceSeed, UNIT};
use crate::shard::view::Kind;

/// A record that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    pub unit: u32,
    pub entry: Entry,
    continues: bool,
}

/// What a segment holds.
#[derive(Debug, Default)]
pub struct Scan {
    /// All records in a row from the first one, LSNs without a gap.
    pub records: Vec<Scanned>,
    /// Unit behind the last of them.
    pub end: u32,
    /// Some filler says that the log was durable up to here.
    pub durable: Lsn,
}

impl Scan {
    /// Scans `segment`, whose records start at `first_unit` with the LSN `base`.
    pub fn new(segment: &[u8], seed: u32, first_unit: u32, base: Lsn, hashes: &KeyHasher) -> Scan {
        let mut scan = Scan { end: first_unit, ..Scan::default() };
        let mut lsn = base;
        while let Some(header) = valid(segment, seed, scan.end, lsn) {
            let bytes = &segment[scan.end as usize * UNIT..];
            let (entry, continues) = (entry(&header, bytes, hashes), header.continues);
            scan.records.push(Scanned { unit: scan.end, entry, continues });
            scan.see_durable(&header);
            scan.end += header.units();
            lsn.0 += 1;
        }
        scan
    }

    fn see_durable(&mut self, header: &Header) {
        if let Body::Pad { durable: Some(durable), .. } = header.body {
            self.durable = self.durable.max(durable);
        }
    }

    /// Looks for fillers behind the end, which tell whether what is missing was durable once.
    pub fn look_beyond(&mut self, segment: &[u8], seed: u32) {
        for unit in self.end..(segment.len() / UNIT) as u32 {
            let bytes = &segment[unit as usize * UNIT..];
            if record::looks_like_pad(bytes)
                && let Ok(header) = Header::decode(bytes, PlaceSeed::new(seed, unit))
            {
                self.see_durable(&header);
            }
        }
    }

    /// Drops the records at the end that belong to a unit whose last record is missing.
    pub fn drop_incomplete_unit(&mut self) {
        while let Some(last) = self.records.pop_if(|last| last.continues) {
            self.end = last.unit;
        }
    }

    /// LSN of the last record, when the first has `base`.
    pub fn last(&self, base: Lsn) -> Lsn {
        Lsn(base.0 + self.records.len() as u64 - 1)
    }
}

fn valid(segment: &[u8], seed: u32, unit: u32, lsn: Lsn) -> Option<Header> {
    let bytes = segment.get(unit as usize * UNIT..)?;
    let header = Header::decode(bytes, PlaceSeed::new(seed, unit)).ok()?;
    let whole = header.lsn == lsn && header.verify_payload(bytes).is_ok();
    whole.then_some(header)
}

fn entry(header: &Header, bytes: &[u8], hashes: &KeyHasher) -> Entry {
    match header.body {
        Body::Pad { units, .. } => Entry::pad(units),
        Body::Tombstone => {
            Entry::tombstone(header.tombstone_hash(bytes), header.db, header.units())
        }
        Body::Value(kind) => {
            let (key, value) = header.payload(bytes);
            let part = if kind == Kind::Part { part_hash(hashes, key) } else { None };
            let hash = part.unwrap_or_else(|| hashes.hash(key));
            Entry::value(hash, header.db, kind, header.len_bytes(), key.len(), header.expire_at_ms)
                .with_root(value)
        }
    }
}

/// Whether an entry is a value or a tombstone, for counting.
pub fn counts(entry: &Entry) -> (u32, u32) {
    match entry.what {
        What::Value(_) => (1, 0),
        What::Tombstone => (0, 1),
        What::Pad => (0, 0),
    }
}
