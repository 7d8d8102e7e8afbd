//! The index: where each key's record is, in DRAM, for one core and one database.
//!
//! # Shape
//!
//! Linear hashing over small sorted arrays. The low bits of a tag choose the partition, the high
//! half orders the slots of 16 bytes inside it:
//!
//! ```text
//! partitions   [ run | run | run | run | run | ... ]      2^L .. 2^(L+1) of them, 48 keys each
//!                 |      '------------.                   on average, 24 to 96
//! slots           [slot slot slot slot][slot slot ...]    dense, sorted by the high half of tag
//! expiries        [8 bytes each, only for slots that expire, in the order of the slots]
//! ```
//!
//! - A lookup goes to the place in the array that the tag is to be expected at: tags are uniform,
//!   so the slot is two or three places from there. There are no empty slots to keep such walks
//!   short, and none to pay for.
//! - Each time that 48 keys have come, one partition is split in two by the next bit of the tag;
//!   when half of all keys have gone, partitions are joined again, one at a time. The longest
//!   step of any call is one split: about a hundred slots copied.
//! - Arrays grow four slots at a time in an arena that moves them together. What a key costs
//!   beyond its 16 bytes: the unused slots of its array (1.5 of 48 on average, up to twice that
//!   after deletes), the unused ends of chunks (2 to 4 %), 20 bytes of tables per partition.
//!
//! # Identity
//!
//! A slot has no room for more than 64 bits of hash, but the number of its partition repeats the
//! low bits of the tag. The slot gives those bits to `place` when it is written. When partitions
//! have been split since, the slot still has the bits of the tag that the split needs, and is
//! recognised by fewer bits of `place`: see [`Slot::is`].
//!
//! So two keys of one core and database are taken for one another if the 64 bits of the tag agree
//! and those of `place` that the slot has: b of them if the slot was written when b bits chose
//! the partition, with 48 x 2^b keys or so in the index. A reader does not know b and accepts any
//! that fits, which costs log2(1 + b/2) bits. Two random keys thus meet with a probability of
//! (1 + b/2) / 2^(64+b), besides that of being on the same core.
//!
//! An index that has grown key by key to n keys has pairs that meet, with m = ln(n / 48):
//!
//! ```text
//! expected pairs = 48 n (1 + m + m^2 / (4 ln 2)) / 2^64
//!
//!   keys of one core    pairs     with the tag alone    a lookup of an absent key finds one
//!   10^6                1.1e-10   2.7e-8                1.1e-16
//!   10^8                2.4e-8    2.7e-4                2.4e-16
//!   10^9                3.1e-7    2.7e-2                3.1e-16
//! ```
//!
//! The last column is pairs / n: a million absent lookups a second find one in a hundred years.
//! A reader that compares the whole key notices; EXISTS, TYPE, TTL, STRLEN and an overwriting SET
//! do not read it. Nobody can bring a pair about who does not know the [`HashSeed`].

use std::{hint, mem};

pub use super::index_hash::{HashSeed, KeyHash, KeyHasher};
pub use super::index_slot::{Entry, EntryLen, Found, KEY_LEN_SLACK_BYTES, Location};

use super::index_partitions::{Key, Partitions};
use super::index_slot::{Ordered, Slot, guess, lower_bound};

/// Partitions are as many as keys divided by this.
const KEYS_PER_PARTITION: usize = 48;

/// Partitions are merged again when fewer keys than this fall on one: far enough from the above
/// that no partition is split and merged in turn.
const KEYS_PER_PARTITION_MIN: usize = 24;

/// Draws of [`Index::random`] before it takes what comes next.
const DRAWS_MAX: u32 = 64;

/// Names a key inside its index when the key itself is not known: the whole tag, and of `place`
/// what the slot has. For keys found by [`Index::scan`] and [`Index::expired`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(KeyHash);

impl SlotId {
    pub const SIZE_BYTES: usize = KeyHash::SIZE_BYTES;

    pub fn tag(&self) -> u64 {
        self.0.tag
    }

    /// For an image of the index; it is valid only for the core and the database that wrote it.
    pub fn to_bytes(self) -> [u8; SlotId::SIZE_BYTES] {
        self.0.to_bytes()
    }

    pub fn from_bytes(bytes: [u8; SlotId::SIZE_BYTES]) -> SlotId {
        SlotId(KeyHash::from_bytes(bytes))
    }
}

/// Which partition a tag belongs to, and the bits of the tag that say so.
#[derive(Clone, Copy, Debug)]
struct Home {
    partition: u32,
    mask: u32,
}

impl Home {
    fn id(self, key: &Key) -> SlotId {
        SlotId(key.slot.name(self.partition, self.mask))
    }
}

/// The keys of one core and one database.
#[derive(Debug, Default)]
pub struct Index {
    partitions: Partitions,
    /// Partitions at the start of the current round of splits, less one.
    mask: u32,
    /// The partition to be split next. Those before it have been split in this round.
    split: u32,
    /// Empty but for the time of a split or merge: memory for the keys on their way.
    moving: Vec<Key>,
    len: usize,
}

impl Index {
    /// Without memory until the first key.
    pub fn new() -> Index {
        Index::default()
    }

    /// Ready for so many keys: they will cause no split. For recovery, which knows their number;
    /// takes time and a third of a byte for each. Putting keys by [`KeyHash::point`] is several
    /// times as fast as in any other order.
    pub fn with_capacity(keys: usize) -> Index {
        let mut index = Index::new();
        let partitions = keys.div_ceil(KEYS_PER_PARTITION).max(1);
        for _ in 0..partitions {
            index.partitions.grow();
        }
        index.mask = (1 << partitions.ilog2()) - 1;
        index.split = partitions as u32 - 1 - index.mask;
        index
    }

    #[inline]
    pub fn get(&self, hash: &KeyHash) -> Option<Found> {
        if self.is_empty() {
            return None;
        }
        let home = self.home(hash.tag as u32);
        let slots = self.partitions.slots(home.partition);
        let at = search(slots, hash, home.mask).ok()?;
        Some(self.found(home.partition, slots, at))
    }

    /// Reads ahead what [`Index::get`] will read for these keys, so that the waits for memory of
    /// a batch overlap instead of following one another. Changes nothing.
    pub fn warm(&self, hashes: &[KeyHash]) {
        if self.is_empty() {
            return;
        }
        // First all partitions, then all slots: no read waits for another within a pass.
        let partition = |hash: &KeyHash| self.home(hash.tag as u32).partition;
        let lens =
            hashes.iter().fold(0, |sum, hash| sum ^ self.partitions.slots_len(partition(hash)));
        let orders = hashes.iter().fold(0, |sum, hash| {
            let slots = self.partitions.slots(partition(hash));
            let at = guess(slots.len(), (hash.tag >> 32) as u32);
            sum ^ slots.get(at).map_or(0, Slot::order)
        });
        hint::black_box((lens, orders));
    }

    /// Sets the entry and the expiry of a key. Returns what they were.
    #[inline]
    pub fn put(
        &mut self,
        hash: &KeyHash,
        entry: Entry,
        expire_at_ms: Option<u64>,
    ) -> Option<Found> {
        if self.is_empty() && self.partitions.len() == 0 {
            self.partitions.grow();
        }
        let home = self.home(hash.tag as u32);
        let slots = self.partitions.slots_mut(home.partition);
        match search(slots, hash, home.mask) {
            Ok(at) => {
                let slot = &mut slots[at];
                let old = slot.entry();
                slot.overwrite(hash, home.mask, entry);
                let expire_at_ms = match expire_at_ms {
                    None if !slot.expires() => None,
                    _ => self.partitions.set_expiry(home.partition, at, expire_at_ms),
                };
                Some(Found { entry: old, expire_at_ms })
            }
            Err(at) => {
                self.insert(home, at, Slot::new(hash, home.mask, entry), expire_at_ms);
                None
            }
        }
    }

    pub fn remove(&mut self, hash: &KeyHash) -> Option<Found> {
        let (home, at) = self.find(hash).ok()?;
        let expire_at_ms = self.partitions.set_expiry(home.partition, at, None);
        let entry = self.partitions.remove(home.partition, at).entry();
        self.len -= 1;
        if self.len < self.partitions.len() * KEYS_PER_PARTITION_MIN && self.partitions.len() > 1 {
            self.merge();
        }
        Some(Found { entry, expire_at_ms })
    }

    /// Sets the location of a key whose record has moved. False, and nothing done, when the key
    /// is not at `from` any more.
    pub fn relocate(&mut self, hash: &KeyHash, from: Location, to: Location) -> bool {
        let Ok((home, at)) = self.find(hash) else { return false };
        let slot = &mut self.partitions.slots_mut(home.partition)[at];
        let stays = slot.location() == from;
        if stays {
            slot.relocate(to);
        }
        stays
    }

    /// [`Index::get`] of a key that a walk has named.
    pub fn get_at(&self, id: &SlotId) -> Option<Found> {
        self.get(&id.0)
    }

    /// [`Index::remove`] of a key that a walk has named.
    pub fn remove_at(&mut self, id: &SlotId) -> Option<Found> {
        self.remove(&id.0)
    }

    /// [`Index::put`] of a key that a walk has named, into this index or one rebuilt from its
    /// image.
    pub fn put_at(
        &mut self,
        id: &SlotId,
        entry: Entry,
        expire_at_ms: Option<u64>,
    ) -> Option<Found> {
        self.put(&id.0, entry, expire_at_ms)
    }

    /// Live keys, expired but not yet removed ones included.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keys that have an expiry.
    pub fn expires(&self) -> usize {
        self.partitions.expires()
    }

    /// Memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.partitions.memory_bytes() + self.moving.capacity() * size_of::<Key>()
    }

    /// Forgets all keys and gives the memory back.
    pub fn clear(&mut self) {
        *self = Index::new();
    }

    /// Visits the keys of one partition. Returns the cursor of the next call, 0 at the end; the
    /// first call has cursor 0.
    ///
    /// A key that lives through a whole scan is visited at least once, whatever happens to others
    /// meanwhile. The cursor is a [`KeyHash::point`]. A partition is an interval of points,
    /// splitting and merging only cut and join neighbouring intervals, and a key never changes
    /// its point. While partitions are only split, nothing is visited twice.
    pub fn scan(&self, cursor: u64, visit: &mut dyn FnMut(SlotId, Entry, Option<u64>)) -> u64 {
        if self.is_empty() || cursor > u64::from(u32::MAX) {
            return 0;
        }
        let home = self.home((cursor as u32).reverse_bits());
        for key in self.partitions.keys(home.partition) {
            visit(home.id(&key), key.slot.entry(), key.expire_at_ms());
        }
        let first = home.partition.reverse_bits();
        let size = (1 << 32) / (u64::from(home.mask) + 1);
        (u64::from(first) + size) & u64::from(u32::MAX)
    }

    /// Visits the keys of one partition that have expired at `now_ms`. Returns the cursor of the
    /// next call, 0 at the end. Calls with any cursor, over and over, reach every key.
    pub fn expired(
        &self,
        cursor: u64,
        now_ms: u64,
        visit: &mut dyn FnMut(SlotId, Entry, u64),
    ) -> u64 {
        if cursor >= self.partitions.len() as u64 {
            return 0;
        }
        let home = self.home(cursor as u32);
        let expiries = self.partitions.expiries(home.partition);
        if expiries.iter().any(|expiry| expiry.at_ms() <= now_ms) {
            for key in self.partitions.keys(home.partition) {
                if let Some(at_ms) = key.expire_at_ms().filter(|&at_ms| at_ms <= now_ms) {
                    visit(home.id(&key), key.slot.entry(), at_ms);
                }
            }
        }
        let next = cursor + 1;
        if next == self.partitions.len() as u64 { 0 } else { next }
    }

    /// A key drawn by the random bits `r`; all keys are equally likely but for the odd case that
    /// no draw succeeds, when the index has lost most of its keys.
    pub fn random(&self, mut r: u64) -> Option<(Entry, Option<u64>)> {
        if self.is_empty() {
            return None;
        }
        for _ in 0..DRAWS_MAX {
            let home = self.home(r as u32);
            // The longest that a partition gets: twice the mean if it waits for its split, and
            // as much again for chance. One that has been split is drawn half as often.
            let len_max = (4 * KEYS_PER_PARTITION) >> u32::from(home.mask != self.mask);
            let at = (((r >> 32) * len_max as u64) >> 32) as usize;
            if at < self.partitions.slots_len(home.partition) {
                return Some(self.drawn(home.partition, at));
            }
            r = next_random(r);
        }
        let start = self.home(r as u32).partition;
        let end = self.partitions.len() as u32;
        let partition = (start..end).chain(0..start).find(|&p| self.partitions.slots_len(p) > 0)?;
        let at = (r >> 32) as usize % self.partitions.slots_len(partition);
        Some(self.drawn(partition, at))
    }

    fn drawn(&self, partition: u32, at: usize) -> (Entry, Option<u64>) {
        let found = self.found(partition, self.partitions.slots(partition), at);
        (found.entry, found.expire_at_ms)
    }

    #[inline]
    fn home(&self, tag_low: u32) -> Home {
        let unsplit = tag_low & self.mask;
        if unsplit >= self.split {
            return Home { partition: unsplit, mask: self.mask };
        }
        let mask = (self.mask << 1) | 1;
        Home { partition: tag_low & mask, mask }
    }

    /// Where the key is, or where it would be inserted.
    fn find(&self, hash: &KeyHash) -> Result<(Home, usize), (Home, usize)> {
        let home = self.home(hash.tag as u32);
        if self.is_empty() {
            return Err((home, 0));
        }
        match search(self.partitions.slots(home.partition), hash, home.mask) {
            Ok(at) => Ok((home, at)),
            Err(at) => Err((home, at)),
        }
    }

    #[inline]
    fn found(&self, partition: u32, slots: &[Slot], at: usize) -> Found {
        let expires = slots[at].expires();
        let expire_at_ms =
            if expires { Some(self.partitions.expire_at_ms(partition, at)) } else { None };
        Found { entry: slots[at].entry(), expire_at_ms }
    }

    fn insert(&mut self, home: Home, at: usize, slot: Slot, expire_at_ms: Option<u64>) {
        self.partitions.insert(home.partition, at, slot);
        if expire_at_ms.is_some() {
            self.partitions.set_expiry(home.partition, at, expire_at_ms);
        }
        self.len += 1;
        if self.len > self.partitions.len() * KEYS_PER_PARTITION {
            self.split();
        }
    }

    /// Adds a partition: half of the keys of the next one to be split.
    fn split(&mut self) {
        let bit = self.mask + 1;
        let low = self.split;
        self.partitions.grow();
        let mut keys = mem::take(&mut self.moving);
        self.partitions.take(low, &mut keys);
        self.partitions.fill(low, keys.iter().filter(|key| !key.slot.has(bit)));
        self.partitions.fill(low + bit, keys.iter().filter(|key| key.slot.has(bit)));
        self.put_back(keys);
        self.split += 1;
        if self.split == bit {
            self.mask = (self.mask << 1) | 1;
            self.split = 0;
        }
    }

    /// Undoes the latest [`Index::split`].
    fn merge(&mut self) {
        if self.split == 0 {
            self.mask >>= 1;
            self.split = self.mask + 1;
        }
        self.split -= 1;
        let bit = self.mask + 1;
        let low = self.split;
        let mut keys = mem::take(&mut self.moving);
        self.partitions.take(low, &mut keys);
        let stay = keys.len();
        self.partitions.take(low + bit, &mut keys);
        for (place, key) in keys.iter_mut().enumerate() {
            key.slot.restore(bit, place >= stay);
        }
        // Stable: slots of equal order stay in step with their expiries. Two sorted halves.
        keys.sort_by_key(|key| key.slot.order());
        self.partitions.fill(low, keys.iter());
        self.put_back(keys);
        self.partitions.shrink();
    }

    fn put_back(&mut self, mut keys: Vec<Key>) {
        keys.clear();
        self.moving = keys;
    }
}

/// Place of the key among the slots of its partition, or the place to insert it.
#[inline]
fn search(slots: &[Slot], hash: &KeyHash, mask: u32) -> Result<usize, usize> {
    let order = (hash.tag >> 32) as u32;
    let mut at = lower_bound(slots, order);
    while let Some(slot) = slots.get(at).filter(|slot| slot.order() == order) {
        if slot.is(hash, mask) {
            return Ok(at);
        }
        at += 1;
    }
    Err(at)
}

/// One step of splitmix64 (Steele, Lea, Flood 2014).
fn next_random(r: u64) -> u64 {
    let mut z = r.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
