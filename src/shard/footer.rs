//! The footer of a sealed segment: one entry per record, so that recovery and sweeps need not
//! read values. It grows downwards from the end of the segment while the segment is filled:
//!
//! ```text
//!  ... records | pad |  (free)  | entry n-1 | ... | entry 1 | entry 0 | trailer |
//! ```
//!
//! A footer is a copy of what the records say: whatever is wrong with it, the segment can still
//! be read record by record.

use crate::shard::index::KeyHash;
use crate::shard::le::{HASH_BYTES, get_hash, get_u32, get_u64, put_hash, put_u32, put_u64};
use crate::shard::parts::{ROOT_BYTES, Root};
use crate::shard::record::{
    EXTENSION_BYTES, HEADER_BYTES, KIND_NONE, KIND_PAD, Lsn, PAYLOAD_CRC_BYTES, UNIT,
    VALUE_LEN_NARROW_MAX,
};
use crate::shard::segment::{Epoch, SEGMENT_SIZE, SEGMENT_UNITS};
use crate::shard::view::Kind;

/// Bytes of an entry without an expiry.
pub const ENTRY_BYTES: usize = 17;
/// Bytes that an expiry adds to an entry.
pub const EXPIRY_BYTES: usize = 8;
/// Bytes of the trailer at the very end of a segment.
pub const TRAILER_BYTES: usize = 64;
/// Offset of the trailer in a segment, and the upper end of the entries.
pub const TRAILER_AT: usize = SEGMENT_SIZE - TRAILER_BYTES;

/// Key lengths from here on are all stored as this one.
const KEY_LEN_LONG: u8 = 127;
const MAGIC: &[u8; 8] = b"LAVIKEND";
const CRC_AT: usize = TRAILER_BYTES - 4;

const UNITS_BITS: u32 = 19;
const SLACK_SHIFT: u32 = UNITS_BITS;
const KIND_SHIFT: u32 = SLACK_SHIFT + 4;
const DB_SHIFT: u32 = KIND_SHIFT + 4;
const TOMBSTONE_SHIFT: u32 = DB_SHIFT + 4;
const EXPIRY_SHIFT: u32 = TOMBSTONE_SHIFT + 1;
const KEY_LEN_SHIFT: u32 = EXPIRY_SHIFT + 1;

const _: () = assert!(SEGMENT_UNITS as usize <= 1 << UNITS_BITS);
const _: () = assert!(KEY_LEN_SHIFT + 7 == 8 * (ENTRY_BYTES - HASH_BYTES) as u32);

/// What an entry tells of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub hash: KeyHash,
    pub what: What,
    /// Units that the record takes.
    pub units: u32,
    /// Unused bytes behind the record in its last unit.
    pub slack: u8,
    /// Physical database.
    pub db: u8,
    /// Length of the key; 127 stands for all that are as long or longer.
    pub key_len: u8,
    pub expire_at_ms: Option<u64>,
    /// Of a string in parts: its parts can be told from orphans without a look at the record.
    pub root: Option<Root>,
}

/// What the record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Value(Kind),
    Tombstone,
    Pad,
}

impl Entry {
    pub fn pad(units: u32) -> Entry {
        let hash = KeyHash { tag: 0, place: 0 };
        let what = What::Pad;
        Entry { hash, what, units, slack: 0, db: 0, key_len: 0, expire_at_ms: None, root: None }
    }

    pub fn tombstone(hash: KeyHash, db: u8, units: u32) -> Entry {
        let what = What::Tombstone;
        Entry { hash, what, units, slack: 0, db, key_len: 0, expire_at_ms: None, root: None }
    }

    /// A record with a value of `len` bytes in all and a key of `key_len`.
    pub fn value(
        hash: KeyHash,
        db: u8,
        kind: Kind,
        len: usize,
        key_len: usize,
        expire_at_ms: Option<u64>,
    ) -> Entry {
        let units = len.div_ceil(UNIT) as u32;
        Entry {
            hash,
            what: What::Value(kind),
            units,
            slack: (units as usize * UNIT - len) as u8,
            db,
            key_len: key_len.min(KEY_LEN_LONG as usize) as u8,
            expire_at_ms,
            root: None,
        }
    }

    /// The entry of a record whose value is `value`.
    pub fn with_root(self, value: &[u8]) -> Entry {
        match self.what {
            What::Value(Kind::Chain) => Entry { root: Root::from_bytes(value), ..self },
            _ => self,
        }
    }

    /// Length of the value; for a long key an upper bound. None when the sizes contradict each
    /// other.
    pub fn value_len(&self) -> Option<usize> {
        let len = (self.units as usize * UNIT).checked_sub(self.slack.into())?;
        let expiry = if self.expire_at_ms.is_some() { EXTENSION_BYTES } else { 0 };
        let frame = HEADER_BYTES + expiry + usize::from(self.key_len) + PAYLOAD_CRC_BYTES;
        let rest = len.checked_sub(frame)?;
        Some(if rest > VALUE_LEN_NARROW_MAX { rest - EXTENSION_BYTES } else { rest })
    }

    /// Bytes in the footer.
    pub fn len_bytes(&self) -> usize {
        let expiry = if self.expire_at_ms.is_some() { EXPIRY_BYTES } else { 0 };
        let root = if self.root.is_some() { ROOT_BYTES } else { 0 };
        ENTRY_BYTES + expiry + root
    }

    /// Writes the entry over all of `out`, which is [`Entry::len_bytes`] long.
    #[inline]
    pub fn encode(&self, out: &mut [u8]) {
        let mut at = 0;
        if let Some(root) = self.root {
            out[..ROOT_BYTES].copy_from_slice(&root.to_bytes());
            at = ROOT_BYTES;
        }
        if let Some(expire_at_ms) = self.expire_at_ms {
            put_u64(out, at, expire_at_ms);
        }
        let (kind, tombstone) = match self.what {
            What::Value(kind) => (kind as u8, 0),
            What::Tombstone => (KIND_NONE, 1),
            What::Pad => (KIND_PAD, 0),
        };
        let bits = u64::from(self.units)
            | u64::from(self.slack) << SLACK_SHIFT
            | u64::from(kind) << KIND_SHIFT
            | u64::from(self.db) << DB_SHIFT
            | tombstone << TOMBSTONE_SHIFT
            | u64::from(self.expire_at_ms.is_some()) << EXPIRY_SHIFT
            | u64::from(self.key_len) << KEY_LEN_SHIFT;
        let at = out.len() - ENTRY_BYTES;
        put_hash(out, at, &self.hash);
        out[at + HASH_BYTES..].copy_from_slice(&bits.to_le_bytes()[..ENTRY_BYTES - HASH_BYTES]);
    }

    /// Reads the entry that ends at the end of `buf`.
    pub fn decode(buf: &[u8]) -> Option<Entry> {
        let bytes = buf.last_chunk::<ENTRY_BYTES>()?;
        let bits = u64::from(get_u32(bytes, HASH_BYTES)) | u64::from(bytes[ENTRY_BYTES - 1]) << 32;
        let expire_at_ms = match bits >> EXPIRY_SHIFT & 1 {
            0 => None,
            _ => Some(get_u64(buf, buf.len().checked_sub(ENTRY_BYTES + EXPIRY_BYTES)?)),
        };
        let what = match ((bits >> KIND_SHIFT & 15) as u8, bits >> TOMBSTONE_SHIFT & 1) {
            (KIND_NONE, 1) => What::Tombstone,
            (KIND_PAD, 0) => What::Pad,
            (kind, 0) => What::Value(Kind::from_bits(kind)?),
            _ => return None,
        };
        let root = match what {
            What::Value(Kind::Chain) => {
                let expiry = if expire_at_ms.is_some() { EXPIRY_BYTES } else { 0 };
                let start = buf.len().checked_sub(ENTRY_BYTES + expiry + ROOT_BYTES)?;
                Some(Root::from_bytes(&buf[start..start + ROOT_BYTES])?)
            }
            _ => None,
        };
        Some(Entry {
            hash: get_hash(bytes, 0),
            what,
            units: (bits & ((1 << UNITS_BITS) - 1)) as u32,
            slack: (bits >> SLACK_SHIFT & 15) as u8,
            db: (bits >> DB_SHIFT & 15) as u8,
            key_len: (bits >> KEY_LEN_SHIFT & 127) as u8,
            expire_at_ms,
            root,
        })
    }
}

/// The end of a segment. A valid one says that all records of the segment, and of the segments
/// that its core filled before, were complete on the device before it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    pub epoch: Epoch,
    pub base: Lsn,
    /// Entries: values, tombstones and pads.
    pub entries: u32,
    pub values: u32,
    pub tombstones: u32,
    /// Bytes of all entries, and their checksum.
    pub entries_bytes: u32,
    pub entries_crc: u32,
    /// End of the records, in units from the start of the segment.
    pub end: u32,
}

impl Trailer {
    /// LSN of the last record.
    pub fn last(&self) -> Lsn {
        Lsn(self.base.0 + u64::from(self.entries) - 1)
    }

    /// Writes the trailer over all of `out`. `seed` is the segment's.
    pub fn encode(&self, out: &mut [u8], seed: u32) {
        out.fill(0);
        out[..8].copy_from_slice(MAGIC);
        put_u64(out, 8, self.epoch.0);
        put_u64(out, 16, self.base.0);
        put_u32(out, 24, self.entries);
        put_u32(out, 28, self.values);
        put_u32(out, 32, self.tombstones);
        put_u32(out, 36, self.entries_bytes);
        put_u32(out, 40, self.entries_crc);
        put_u32(out, 44, self.end);
        let crc = crc32c::crc32c_append(seed, &out[..CRC_AT]);
        put_u32(out, CRC_AT, crc);
    }

    /// Reads the trailer that ends at the end of `buf`. None when there is none of this life of
    /// the segment.
    pub fn decode(buf: &[u8], seed: u32) -> Option<Trailer> {
        let bytes = buf.last_chunk::<TRAILER_BYTES>()?;
        let crc = crc32c::crc32c_append(seed, &bytes[..CRC_AT]);
        if &bytes[..8] != MAGIC || crc != get_u32(bytes, CRC_AT) {
            return None;
        }
        let trailer = Trailer {
            epoch: Epoch(get_u64(bytes, 8)),
            base: Lsn(get_u64(bytes, 16)),
            entries: get_u32(bytes, 24),
            values: get_u32(bytes, 28),
            tombstones: get_u32(bytes, 32),
            entries_bytes: get_u32(bytes, 36),
            entries_crc: get_u32(bytes, 40),
            end: get_u32(bytes, 44),
        };
        let sane = trailer.entries > 0
            && trailer.entries_bytes as usize <= TRAILER_AT
            && trailer.end <= SEGMENT_UNITS
            && trailer.base <= Lsn(Lsn::MAX.0 - u64::from(trailer.entries));
        sane.then_some(trailer)
    }

    /// Checks the bytes of all entries.
    pub fn verify(&self, entries: &[u8], seed: u32) -> bool {
        crc32c::crc32c_append(seed, entries) == self.entries_crc
    }
}

/// The entries of a footer in the order of their records, each with its offset in units.
#[derive(Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    unit: u32,
}

impl<'a> Entries<'a> {
    /// `bytes` are all entries; `first_unit` is the place of the first record.
    pub fn new(bytes: &'a [u8], first_unit: u32) -> Entries<'a> {
        Entries { bytes, unit: first_unit }
    }
}

impl Iterator for Entries<'_> {
    type Item = (u32, Entry);

    fn next(&mut self) -> Option<(u32, Entry)> {
        let entry = Entry::decode(self.bytes)?;
        self.bytes = &self.bytes[..self.bytes.len() - entry.len_bytes()];
        let unit = self.unit;
        self.unit = self.unit.saturating_add(entry.units);
        Some((unit, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::{ENTRY_BYTES, Entries, Entry, Epoch, KeyHash, Lsn, TRAILER_BYTES, Trailer};
    use crate::shard::record::Put;
    use crate::shard::view::Kind;

    fn value(key_len: usize, value_len: usize, expire_at_ms: Option<u64>) -> Entry {
        let (key, value) = (vec![0; key_len], vec![0; value_len]);
        let put = Put { db: 15, key: &key, kind: Kind::Stream, value: &value, expire_at_ms };
        let hash = KeyHash { tag: u64::MAX - 1, place: 0x8000_0001 };
        Entry::value(hash, 15, Kind::Stream, put.len_bytes(), key_len, expire_at_ms)
    }

    #[test]
    fn the_length_of_the_value_comes_back_exactly() {
        for key_len in [0, 1, 16, 63, 64, 126] {
            for value_len in [0, 1, 15, 16, 100, 65_535, 65_536, 70_000, 524_287] {
                for expire_at_ms in [None, Some(9)] {
                    let entry = value(key_len, value_len, expire_at_ms);
                    assert_eq!(entry.value_len(), Some(value_len), "{key_len} {value_len}");
                }
            }
        }
    }

    #[test]
    fn entries_are_read_in_the_order_of_their_records() {
        let hash = KeyHash { tag: 3, place: 4 };
        let written = [
            value(16, 128, None),
            value(200, 10, Some(u64::MAX)),
            Entry::tombstone(hash, 7, 2),
            Entry::pad(31),
            value(1, 8_000_000, Some(0)),
        ];
        let mut bytes = vec![0xaa; 1000];
        let mut at = bytes.len();
        for entry in &written {
            entry.encode(&mut bytes[at - entry.len_bytes()..at]);
            at -= entry.len_bytes();
        }
        let mut unit = 32;
        let mut read = Entries::new(&bytes[at..], 32);
        for entry in written {
            assert_eq!(read.next(), Some((unit, entry)));
            unit += entry.units;
        }
        assert_eq!(read.next(), None);
        assert_eq!(1000 - at, 5 * ENTRY_BYTES + 2 * 8);
    }

    #[test]
    fn any_bytes_can_be_read_as_entries() {
        let mut random = crate::testing::disk::SimRandom::new(1);
        let mut entries = 0;
        for _ in 0..2000 {
            let mut bytes = vec![0; random.below(100)];
            random.fill(&mut bytes);
            for (_, entry) in Entries::new(&bytes, 32) {
                entries += 1;
                assert!(entry.value_len().is_none_or(|len| len <= super::SEGMENT_SIZE));
            }
        }
        assert!(entries > 300, "{entries}");
    }

    #[test]
    fn no_flipped_bit_of_a_trailer_is_accepted() {
        let trailer = Trailer {
            epoch: Epoch(1 << 40 | 5),
            base: Lsn(100),
            entries: 3,
            values: 2,
            tombstones: 1,
            entries_bytes: 51,
            entries_crc: 0x0bad_cafe,
            end: 77,
        };
        let mut bytes = vec![0; TRAILER_BYTES];
        trailer.encode(&mut bytes, 9);
        assert_eq!(Trailer::decode(&bytes, 9), Some(trailer));
        assert_eq!(trailer.last(), Lsn(102));
        assert_eq!(Trailer::decode(&bytes, 8), None);
        for bit in 0..TRAILER_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Trailer::decode(&bytes, 9), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn space_per_record_stays_within_the_bars() {
        // Key of 16 bytes; a segment of 8 MiB less header sector, trailer, padding and footer.
        let amplification = |value_len: usize, sector_size: usize| {
            let entry = value(16, value_len, None);
            let taken = entry.units as usize * 16 + ENTRY_BYTES;
            let overhead = 3 * sector_size + TRAILER_BYTES + ENTRY_BYTES;
            let records = (super::SEGMENT_SIZE - overhead) / taken;
            super::SEGMENT_SIZE as f64 / (records * (16 + value_len)) as f64
        };
        assert!(amplification(128, 4096) < 1.343, "{}", amplification(128, 4096));
        assert!(amplification(1024, 4096) < 1.051, "{}", amplification(1024, 4096));
    }

    #[test]
    fn a_trailer_with_impossible_numbers_is_refused() {
        let good = Trailer {
            epoch: Epoch(1 << 40),
            base: Lsn(Lsn::MAX.0 - 3),
            entries: 3,
            values: 3,
            tombstones: 0,
            entries_bytes: 51,
            entries_crc: 0,
            end: super::SEGMENT_UNITS,
        };
        let decoded = |trailer: Trailer| {
            let mut bytes = [0; TRAILER_BYTES];
            trailer.encode(&mut bytes, 9);
            Trailer::decode(&bytes, 9)
        };
        assert_eq!(decoded(good), Some(good));
        assert_eq!(decoded(Trailer { base: Lsn(Lsn::MAX.0 - 2), ..good }), None);
        assert_eq!(decoded(Trailer { base: Lsn(u64::MAX), ..good }), None);
        assert_eq!(decoded(Trailer { entries: 0, ..good }), None);
        assert_eq!(decoded(Trailer { end: super::SEGMENT_UNITS + 1, ..good }), None);
        let entries_bytes = super::TRAILER_AT as u32 + 1;
        assert_eq!(decoded(Trailer { entries_bytes, ..good }), None);
    }
}
