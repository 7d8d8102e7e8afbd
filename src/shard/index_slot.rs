//! What the index keeps of one key, and how 16 bytes hold it.

use super::index_hash::KeyHash;
use super::view::Kind;
use crate::limits::LOCATION_BITS;

/// Where a record starts: units of 16 bytes over all devices, below 2^40. Zero is no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(u64);

impl Location {
    /// `units` is [`crate::limits::RECORD_UNIT_BYTES`] each, not zero, below 2^40.
    pub fn new(units: u64) -> Location {
        assert!(units != 0 && units >> LOCATION_BITS == 0, "location {units:#x} out of range");
        Location(units)
    }

    pub fn units(self) -> u64 {
        self.0
    }
}

/// How much there is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryLen {
    /// Exact length of the value in bytes; the key has at most [`KEY_LEN_SLACK_BYTES`].
    Value(u32),
    /// Exact size of the record in 16-byte units.
    Units(u32),
}

/// Longest key whose record is described by the length of its value alone: a reader adds so many
/// bytes for the key that it cannot know.
pub const KEY_LEN_SLACK_BYTES: usize = 64;

/// Bits of either length.
const LEN_BITS: u32 = 19;

/// The record of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub location: Location,
    pub kind: Kind,
    pub len: EntryLen,
}

impl Entry {
    /// Keeps the length of the value if it is below 512 KiB and the key is short, else the size
    /// of the record, which is below a segment: `record_units` < 2^19.
    pub fn new(
        location: Location,
        kind: Kind,
        key_len: usize,
        value_len: usize,
        record_units: u32,
    ) -> Entry {
        let len = if value_len >> LEN_BITS == 0 && key_len <= KEY_LEN_SLACK_BYTES {
            EntryLen::Value(value_len as u32)
        } else {
            assert!(record_units >> LEN_BITS == 0, "record of {record_units} units");
            EntryLen::Units(record_units)
        };
        Entry { location, kind, len }
    }
}

/// A live key as the index knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub entry: Entry,
    /// Unix time in milliseconds.
    pub expire_at_ms: Option<u64>,
}

/// An element of a sorted run.
pub trait Ordered {
    /// What the run is sorted by: uniform over all of `u32`.
    fn order(&self) -> u32;
}

/// About where `order` stands in a run of `len` items.
///
/// The items are a uniform sample, so the item of `order` is about 0.3 times the root of `len`
/// away on average: two or three places.
#[inline]
pub fn guess(len: usize, order: u32) -> usize {
    ((u64::from(order) * len as u64) >> 32) as usize
}

/// Place of the first item whose order is not below `order`.
#[inline]
pub fn lower_bound<T: Ordered>(items: &[T], order: u32) -> usize {
    let mut at = guess(items.len(), order);
    if at >= items.len() {
        return 0;
    }
    if items[at].order() < order {
        return at + items[at..].iter().take_while(|item| item.order() < order).count();
    }
    while at > 0 && items[at - 1].order() >= order {
        at -= 1;
    }
    at
}

// Layout of `Slot::meta`, from bit 0: location 40, kind 3, expires 1, units 1, length 19.
const KIND_SHIFT: u32 = LOCATION_BITS;
const EXPIRES: u64 = 1 << (KIND_SHIFT + 3);
const UNITS: u64 = EXPIRES << 1;
const LEN_SHIFT: u32 = KIND_SHIFT + 5;

const _: () = assert!(LEN_SHIFT + LEN_BITS == 64);
const _: () = assert!(size_of::<Slot>() == 16);

/// Kind by its three bits. A part, which is in no index of keys, loses its fourth.
const KINDS: [Kind; 8] = [
    Kind::Part,
    Kind::String,
    Kind::List,
    Kind::Set,
    Kind::ZSet,
    Kind::Hash,
    Kind::Stream,
    Kind::Chain,
];

/// One key in its partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// High half of the tag.
    order: u32,
    /// Low half of the tag, except that the lowest bits may be those of `place`: see [`mark`].
    mark: u32,
    meta: u64,
}

/// The low half of the tag, with the bits that the partition number repeats given to `place`.
/// `mask` covers the bits that choose the partition.
fn mark(hash: &KeyHash, mask: u32) -> u32 {
    hash.tag as u32 & !mask | hash.place & mask
}

impl Slot {
    /// `mask` covers the bits of the tag that choose the partition. Without expiry.
    pub fn new(hash: &KeyHash, mask: u32, entry: Entry) -> Slot {
        Slot { order: (hash.tag >> 32) as u32, mark: mark(hash, mask), meta: pack(entry) }
    }

    /// Whether this can be the key of `hash`, both in a partition chosen by the bits of `mask`.
    ///
    /// When the slot was written, the partition was chosen by the same or fewer bits, say b: so
    /// the mark has b bits of `place` and then bits of the tag, for some b. That is: the lowest
    /// bit that differs from `place` lies above every bit that differs from the tag.
    #[inline]
    pub fn is(&self, hash: &KeyHash, mask: u32) -> bool {
        let off_tag = self.mark ^ hash.tag as u32;
        let off_place = self.mark ^ hash.place;
        let below_off_place = (off_place & off_place.wrapping_neg()).wrapping_sub(1);
        off_tag & !mask == 0 && off_tag <= below_off_place
    }

    /// The whole tag, and of `place` what is known.
    pub fn name(&self, partition: u32, mask: u32) -> KeyHash {
        let low = self.mark & !mask | partition & mask;
        KeyHash { tag: u64::from(self.order) << 32 | u64::from(low), place: self.mark }
    }

    /// The bit of the tag by which its partition is about to be split.
    pub fn has(&self, bit: u32) -> bool {
        self.mark & bit != 0
    }

    /// Puts a bit of the tag back that the number of the partition will no longer tell.
    pub fn restore(&mut self, bit: u32, set: bool) {
        self.mark = self.mark & !bit | if set { bit } else { 0 };
    }

    /// Replaces the rest for a key that is here already. The expiry stays.
    pub fn overwrite(&mut self, hash: &KeyHash, mask: u32, entry: Entry) {
        self.mark = mark(hash, mask);
        self.meta = pack(entry) | self.meta & EXPIRES;
    }

    pub fn relocate(&mut self, to: Location) {
        self.meta = self.meta & !((1 << LOCATION_BITS) - 1) | to.0;
    }

    pub fn expires(&self) -> bool {
        self.meta & EXPIRES != 0
    }

    pub fn set_expires(&mut self, expires: bool) {
        self.meta = self.meta & !EXPIRES | if expires { EXPIRES } else { 0 };
    }

    #[inline]
    pub fn location(&self) -> Location {
        Location(self.meta & ((1 << LOCATION_BITS) - 1))
    }

    #[inline]
    pub fn entry(&self) -> Entry {
        let len = (self.meta >> LEN_SHIFT) as u32;
        Entry {
            location: self.location(),
            kind: KINDS[(self.meta >> KIND_SHIFT & 7) as usize],
            len: if self.meta & UNITS == 0 { EntryLen::Value(len) } else { EntryLen::Units(len) },
        }
    }
}

impl Ordered for Slot {
    fn order(&self) -> u32 {
        self.order
    }
}

fn pack(entry: Entry) -> u64 {
    let (len, units) = match entry.len {
        EntryLen::Value(len) => (len, 0),
        EntryLen::Units(len) => (len, UNITS),
    };
    debug_assert!(len >> LEN_BITS == 0);
    let kind = entry.kind as u64 & 7;
    entry.location.0 | kind << KIND_SHIFT | units | u64::from(len) << LEN_SHIFT
}

/// When a key expires: the high 16 bits of its order, then 48 bits of Unix milliseconds.
///
/// Expiries of a partition are in the order of its slots, so that the n-th belongs to the n-th
/// slot that expires; the 16 bits only serve to find the place without counting from the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Expiry(u64);

const AT_BITS: u32 = 48;

impl Expiry {
    /// `at_ms` beyond 2^48 (the year 10889) is cut to that.
    pub fn new(order: u32, at_ms: u64) -> Expiry {
        Expiry(u64::from(order >> 16) << AT_BITS | at_ms.min((1 << AT_BITS) - 1))
    }

    pub fn at_ms(self) -> u64 {
        self.0 & ((1 << AT_BITS) - 1)
    }
}

impl Ordered for Expiry {
    fn order(&self) -> u32 {
        ((self.0 >> AT_BITS) as u32) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, EntryLen, Expiry, Location, Ordered, Slot, lower_bound};
    use crate::shard::index_hash::KeyHash;
    use crate::shard::view::Kind;

    fn entry(location: u64, kind: Kind, len: EntryLen) -> Entry {
        Entry { location: Location::new(location), kind, len }
    }

    #[test]
    fn a_slot_returns_what_was_put_in() {
        let hash = KeyHash { tag: u64::MAX, place: u32::MAX };
        let kinds = [Kind::String, Kind::List, Kind::Set, Kind::ZSet, Kind::Hash, Kind::Stream];
        for kind in kinds.into_iter().chain([Kind::Chain, Kind::Part]) {
            for location in [1, 0x55_5555_5555, (1 << 40) - 1] {
                for len in [0, 1, (1 << 19) - 1] {
                    for len in [EntryLen::Value(len), EntryLen::Units(len)] {
                        let entry = entry(location, kind, len);
                        let mut slot = Slot::new(&hash, 0, entry);
                        assert_eq!((slot.entry(), slot.expires()), (entry, false));
                        slot.set_expires(true);
                        assert_eq!((slot.entry(), slot.expires()), (entry, true));
                        slot.relocate(Location::new(7));
                        assert_eq!(slot.entry(), Entry { location: Location::new(7), ..entry });
                        assert!(slot.expires());
                        slot.overwrite(&hash, 0, entry);
                        assert_eq!((slot.entry(), slot.expires()), (entry, true));
                    }
                }
            }
        }
    }

    #[test]
    fn the_length_is_the_values_while_it_fits() {
        let len = |key_len, value_len| {
            Entry::new(Location::new(1), Kind::String, key_len, value_len, 77).len
        };
        assert_eq!(len(64, 0), EntryLen::Value(0));
        assert_eq!(len(64, (512 << 10) - 1), EntryLen::Value((512 << 10) - 1));
        assert_eq!(len(64, 512 << 10), EntryLen::Units(77));
        assert_eq!(len(65, 10), EntryLen::Units(77));
    }

    #[test]
    fn a_slot_is_its_key_at_every_level_and_no_other() {
        let entry = entry(1, Kind::String, EntryLen::Value(0));
        let hash = KeyHash { tag: 0x1234_5678_9abc_def0, place: 0x0f1e_2d3c };
        for written in 0..20 {
            let slot = Slot::new(&hash, (1 << written) - 1, entry);
            for level in written..32 {
                let mask = (1 << level) - 1;
                assert!(slot.is(&hash, mask), "written {written} read {level}");
                let name = slot.name(hash.tag as u32 & mask, mask);
                assert_eq!(name.tag, hash.tag);
                assert!(slot.is(&name, mask));
                // A key of the same partition that differs in one bit which the slot knows.
                for bit in level..32 {
                    let other = KeyHash { tag: hash.tag ^ 1 << bit, ..hash };
                    assert!(!slot.is(&other, mask), "written {written} read {level} bit {bit}");
                }
            }
            for bit in 0..written {
                let other = KeyHash { place: hash.place ^ 1 << bit, ..hash };
                // The altered bit of place is met only if the mark can be read with fewer bits
                // of place: when tag and place agree from there on.
                let mask = (1u32 << written) - 1;
                let known = (hash.tag as u32 ^ hash.place) & mask & !((1 << bit) - 1) != 0;
                assert_eq!(slot.is(&other, mask), !known, "written {written} bit {bit}");
            }
        }
    }

    #[test]
    fn equal_tags_meet_as_often_as_documented() {
        let entry = entry(1, Kind::String, EntryLen::Value(0));
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 32) as u32
        };
        for written in [0, 4, 8] {
            for level in [written, written + 3] {
                let mut met = 0;
                for _ in 0..100_000 {
                    let tag = u64::from(random());
                    let slot =
                        Slot::new(&KeyHash { tag, place: random() }, (1 << written) - 1, entry);
                    let other = KeyHash { tag, place: random() };
                    met += u32::from(slot.is(&other, (1 << level) - 1));
                }
                let expected = 1e5 * (1.0 + f64::from(written) / 2.0) / f64::from(1 << written);
                assert!((f64::from(met) / expected - 1.0).abs() < 0.1, "{met} for {expected}");
            }
        }
    }

    #[test]
    fn lower_bound_is_that_of_a_sorted_slice() {
        let mut seed = 1u64;
        for len in 0..100 {
            let mut items: Vec<Expiry> = (0..len)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Few distinct orders, so that equal ones are met.
                    Expiry::new(((seed >> 60) as u32) << 28, 0)
                })
                .collect();
            items.sort_by_key(Ordered::order);
            for order in (0..=16u64).flat_map(|n| [n << 28, (n << 28) + 1]) {
                let order = order.min(u64::from(u32::MAX)) as u32;
                let expected = items.partition_point(|item| item.order() < order);
                assert_eq!(lower_bound(&items, order), expected, "{len} {order:#x}");
            }
        }
    }

    #[test]
    fn an_expiry_beyond_48_bits_is_the_last_one() {
        assert_eq!(Expiry::new(u32::MAX, 1_700_000_000_123).at_ms(), 1_700_000_000_123);
        assert_eq!(Expiry::new(0x1234_5678, u64::MAX).at_ms(), (1 << 48) - 1);
        assert_eq!(Expiry::new(0x1234_5678, u64::MAX).order(), 0x1234_0000);
    }
}
