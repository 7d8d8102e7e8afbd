//! Strings that are longer than a record should be: they lie in *parts*.
//!
//! A part is an ordinary record with an index entry of its own, so that whatever moves, counts or
//! recovers records needs to know nothing else about it. The *root*, the record of the key, names
//! the parts by a number that is never used twice, and is written last: until then the parts
//! belong to nobody, after a crash too. What belongs to nobody is freed:
//!
//! ```text
//!  key -> index -> root: id, length          parts -> index of parts -> part 0, part 1, ...
//!           \-> chains (DRAM): the same           place of the key, hash of (place, id, number)
//! ```
//!
//! All parts of a chain have the `place` of their key, and so live on its core however many cores
//! there are. Readers *pin* a chain; it stays whole until the last of them has gone, even if the
//! key has been overwritten, deleted or flushed.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::limits::DATABASES;
use crate::shard::index::{Entry, Index, KeyHash, KeyHasher};
use crate::shard::le::{get_u32, get_u64, put_u32, put_u64};
use crate::shard::record::Put;
use crate::shard::view::Kind;
use crate::shard::{AppendError, Dropped, Lsn, Shard, need_of_put, release};

/// Bytes of every part of a chain but the last. Eight fill a segment, and one with the
/// sectors that it begins and ends in fits a read buffer of 1 MiB.
pub const PART_BYTES: usize = (1 << 20) - (12 << 10);
/// Bytes of the value of a root, and of what its footer entry has more than others.
pub const ROOT_BYTES: usize = 12;
/// Bytes of a part's name: place and id of its chain, number of the part.
pub const PART_NAME_BYTES: usize = 16;
/// Parts that are freed in one call of [`Shard::maintain`].
const FREED_PER_CALL: usize = 64;

/// What a root says, as it stands in the record and in the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    pub id: u64,
    pub len: u32,
}

impl Root {
    pub fn to_bytes(self) -> [u8; ROOT_BYTES] {
        let mut bytes = [0; ROOT_BYTES];
        put_u64(&mut bytes, 0, self.id);
        put_u32(&mut bytes, 8, self.len);
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Root> {
        let bytes: &[u8; ROOT_BYTES] = bytes.try_into().ok()?;
        Some(Root { id: get_u64(bytes, 0), len: get_u32(bytes, 8) })
    }
}

/// Names a chain for as long as anybody may ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainId {
    /// Physical database.
    pub db: u8,
    /// Of the key.
    pub place: u32,
    /// Unique among all chains of the place.
    pub id: u64,
}

impl ChainId {
    /// The key of a part's record.
    pub fn part_name(&self, number: u32) -> [u8; PART_NAME_BYTES] {
        let mut name = [0; PART_NAME_BYTES];
        put_u32(&mut name, 0, self.place);
        put_u64(&mut name, 4, self.id);
        put_u32(&mut name, 12, number);
        name
    }
}

/// The hash of the part that is called `name`; None when nothing can be called so.
pub fn part_hash(hasher: &KeyHasher, name: &[u8]) -> Option<KeyHash> {
    let name: &[u8; PART_NAME_BYTES] = name.try_into().ok()?;
    Some(KeyHash { tag: hasher.hash(name).tag, place: get_u32(name, 0) })
}

/// A value in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    pub id: ChainId,
    /// Of the whole value, in bytes.
    pub len: u32,
}

impl Chain {
    pub fn root(&self) -> Root {
        Root { id: self.id.id, len: self.len }
    }

    pub fn parts(&self) -> u32 {
        parts_of(self.len as usize)
    }
}

/// How many parts a value of `len` bytes has.
pub fn parts_of(len: usize) -> u32 {
    len.div_ceil(PART_BYTES) as u32
}

/// The bytes of part `number` in a value of `len` bytes.
pub fn part_range(len: usize, number: u32) -> std::ops::Range<usize> {
    let start = (number as usize * PART_BYTES).min(len);
    start..(start + PART_BYTES).min(len)
}

/// Parts that nobody wants any more.
#[derive(Clone, Copy, Debug)]
struct Retired {
    id: ChainId,
    next: u32,
    end: u32,
}

/// The chains of one core.
#[derive(Debug, Default)]
pub struct Chains {
    /// Where the parts are, by physical database.
    pub indexes: [Index; DATABASES],
    /// By physical database and tag of the key: what the root says. In DRAM, so that neither an
    /// overwrite nor a read has to look at the root.
    roots: [HashMap<u64, Chain>; DATABASES],
    /// Readers of a chain.
    pins: HashMap<ChainId, u32>,
    retired: VecDeque<Retired>,
    /// Retired ones that are pinned.
    held: Vec<Retired>,
    last_id: u64,
}

impl Chains {
    pub fn set_root(&mut self, tag: u64, chain: Chain) -> Option<Chain> {
        self.roots[usize::from(chain.id.db)].insert(tag, chain)
    }

    pub fn remove_root(&mut self, db: u8, tag: u64) -> Option<Chain> {
        self.roots[usize::from(db)].remove(&tag)
    }

    pub fn is_pinned(&self, id: &ChainId) -> bool {
        self.pins.contains_key(id)
    }

    /// Whether somebody reads a chain of the database.
    pub fn is_read(&self, db: u8) -> bool {
        self.pins.keys().any(|id| id.db == db)
    }

    /// Forgets the roots of a database and hands out the index of its parts.
    pub fn clear(&mut self, db: u8) -> Index {
        self.roots[usize::from(db)] = HashMap::new();
        std::mem::take(&mut self.indexes[usize::from(db)])
    }

    /// Whether [`Shard::maintain`] has parts to free.
    pub fn is_freeing(&self) -> bool {
        !self.retired.is_empty()
    }

    pub fn memory_bytes(&self) -> usize {
        let root_bytes = size_of::<(u64, Chain)>() + 1;
        let roots = self.roots.iter().map(|roots| roots.capacity() * root_bytes);
        self.indexes.iter().map(Index::memory_bytes).chain(roots).sum()
    }

    /// Ends the reads of all chains that are not the value of a key any more.
    fn forget_readers(&mut self) -> usize {
        if self.pins.is_empty() {
            return 0;
        }
        let live: HashSet<ChainId> =
            self.roots.iter().flat_map(HashMap::values).map(|chain| chain.id).collect();
        let before = self.pins.len();
        self.pins.retain(|id, _| live.contains(id));
        let pins = &self.pins;
        self.retired.extend(self.held.extract_if(.., |held| !pins.contains_key(&held.id)));
        before - self.pins.len()
    }

    fn retire(&mut self, id: ChainId, parts: u32) {
        let retired = Retired { id, next: 0, end: parts };
        if self.is_pinned(&id) { self.held.push(retired) } else { self.retired.push_back(retired) }
    }
}

impl Shard {
    /// The value of a key whose entry is of [`Kind::Chain`]. None when the entry is that of
    /// another key: all 96 bits of the hash are compared here, and the name never.
    pub fn chain(&self, db: u8, hash: &KeyHash) -> Option<Chain> {
        let roots = &self.chains.roots[usize::from(self.physical(db))];
        roots.get(&hash.tag).copied().filter(|chain| chain.id.place == hash.place)
    }

    /// Starts a chain for a key.
    pub fn new_chain(&mut self, db: u8, hash: &KeyHash, len: usize) -> Chain {
        // Later runs start far above what this one can have given out.
        self.chains.last_id = (self.chains.last_id + 1).max(self.log.appended().0 + 1);
        let id = ChainId { db: self.physical(db), place: hash.place, id: self.chains.last_id };
        Chain { id, len: len as u32 }
    }

    /// Writes a part of a chain. It is `Busy` while only one write buffer is left: that is for
    /// others.
    pub fn put_part(&mut self, id: ChainId, number: u32, bytes: &[u8]) -> Result<Lsn, AppendError> {
        let name = id.part_name(number);
        let put = part_put(&id, &name, bytes);
        let need = need_of_put(&put);
        if !self.log.has_spare(need) {
            return Err(AppendError::Busy);
        }
        self.log.reserve(&self.segments, need)?;
        Ok(self.write_part(&put, false))
    }

    pub(super) fn write_part(&mut self, put: &Put<'_>, continues: bool) -> Lsn {
        let hash = part_hash(&self.hasher, put.key).expect("the name of a part");
        let (lsn, entry) = self.append_entry(&hash, put, continues, false);
        let index = &mut self.chains.indexes[usize::from(put.db)];
        if let Some(old) = index.put(&hash, entry, None) {
            release(&self.segments, &old.entry);
        }
        lsn
    }

    /// Where a part is, of a live chain or a pinned one.
    pub fn part(&self, id: &ChainId, number: u32) -> Option<Entry> {
        let hash = part_hash(&self.hasher, &id.part_name(number))?;
        let flushed = self.dropped.iter().filter(|dropped| dropped.parts && dropped.db == id.db);
        let mut indexes = std::iter::once(&self.chains.indexes[usize::from(id.db)])
            .chain(flushed.map(|dropped| &dropped.index));
        indexes.find_map(|index| index.get(&hash)).map(|found| found.entry)
    }

    /// Keeps a chain until [`Shard::unpin`]. False when it is not the value of its key any more.
    pub fn pin(&mut self, hash: &KeyHash, chain: &Chain) -> bool {
        let live = self.chains.roots[usize::from(chain.id.db)].get(&hash.tag) == Some(chain);
        if live {
            *self.chains.pins.entry(chain.id).or_insert(0) += 1;
        }
        live
    }

    pub fn unpin(&mut self, id: &ChainId) {
        let Some(readers) = self.chains.pins.get_mut(id) else { return };
        *readers -= 1;
        if *readers > 0 {
            return;
        }
        self.chains.pins.remove(id);
        let held = self.chains.held.extract_if(.., |held| held.id == *id);
        self.chains.retired.extend(held);
    }

    /// How many read the chain.
    pub fn pins(&self, id: &ChainId) -> u32 {
        self.chains.pins.get(id).copied().unwrap_or(0)
    }

    /// Lets go of all values that are only kept for their readers: the devices are full. Returns
    /// of how many; whoever reads one finds no further part.
    pub fn forget_readers(&mut self) -> usize {
        self.chains.forget_readers()
    }

    /// Whether a chain is kept for its readers.
    pub fn is_pinned(&self, id: &ChainId) -> bool {
        self.chains.is_pinned(id)
    }

    /// Bytes of values that have been overwritten or deleted and are kept for their readers.
    pub fn pinned_bytes(&self) -> u64 {
        let parts = self.chains.held.iter().map(|held| u64::from(held.end - held.next));
        parts.sum::<u64>() * PART_BYTES as u64
    }

    /// Frees parts at once that were to become part of a chain and will not.
    pub fn forget_parts(&mut self, id: &ChainId, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.forget_part(id, number);
        }
    }

    fn forget_part(&mut self, id: &ChainId, number: u32) {
        let Some(hash) = part_hash(&self.hasher, &id.part_name(number)) else { return };
        if let Some(old) = self.chains.indexes[usize::from(id.db)].remove(&hash) {
            release(&self.segments, &old.entry);
        }
    }

    /// Gives up the first `parts` parts of a chain that has no root.
    pub fn abandon(&mut self, id: ChainId, parts: u32) {
        self.chains.retire(id, parts);
    }

    /// The key has another value, or none.
    pub(super) fn retire_chain(&mut self, db: u8, tag: u64) {
        if let Some(chain) = self.chains.remove_root(db, tag) {
            self.chains.retire(chain.id, chain.parts());
        }
    }

    /// Counts parts that nobody wants as dead, some at a time.
    pub(super) fn free_retired(&mut self) {
        for _ in 0..FREED_PER_CALL {
            let Some(retired) = self.chains.retired.front_mut() else { return };
            let (id, number) = (retired.id, retired.next);
            retired.next += 1;
            if retired.next >= retired.end {
                self.chains.retired.pop_front();
            }
            self.forget_part(&id, number);
        }
    }

    /// The end of recovery: what belongs to a root stays, the rest is freed in the background.
    /// Returns what is to be told.
    pub(super) fn match_parts(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        for db in 0..DATABASES as u8 {
            let mut found = std::mem::take(&mut self.chains.indexes[usize::from(db)]);
            let roots: Vec<(u64, Chain)> = self.chains.roots[usize::from(db)]
                .iter()
                .map(|(&tag, &chain)| (tag, chain))
                .collect();
            for (tag, chain) in roots {
                if !self.adopt_parts(&mut found, &chain) {
                    notes.extend(self.forget_incomplete(tag, &chain));
                }
            }
            if !found.is_empty() {
                self.dropped.push(Dropped {
                    index: found,
                    parts: true,
                    db,
                    horizon: Lsn(0),
                    cursor: 0,
                });
            }
        }
        notes
    }

    /// Moves the parts of a chain from `found` to where they are looked for. False when one is
    /// missing.
    fn adopt_parts(&mut self, found: &mut Index, chain: &Chain) -> bool {
        let mut complete = true;
        for number in 0..chain.parts() {
            let hash = part_hash(&self.hasher, &chain.id.part_name(number));
            let part = hash.and_then(|hash| found.remove(&hash).map(|part| (hash, part)));
            match part {
                Some((hash, part)) => {
                    let index = &mut self.chains.indexes[usize::from(chain.id.db)];
                    index.put(&hash, part.entry, None);
                }
                None => complete = false,
            }
        }
        complete
    }

    /// A key that had expired once has lost its parts for good, whatever the clock says now. Of
    /// any other key they cannot be missing, unless damage has been left out.
    fn forget_incomplete(&mut self, tag: u64, chain: &Chain) -> Option<String> {
        let hash = KeyHash { tag, place: chain.id.place };
        let index = &mut self.indexes[usize::from(chain.id.db)];
        let expires = index.get(&hash)?.expire_at_ms.is_some();
        if !expires {
            return Some(format!("a value of {} bytes lacks some of its parts", chain.len));
        }
        let old = index.remove(&hash)?;
        let (segment, _) = super::Segments::split(old.entry.location.units());
        self.segments.expire(segment, super::record_units_estimate(&old.entry));
        self.retire_chain(chain.id.db, tag);
        None
    }
}

/// A part as the log takes it.
pub(super) fn part_put<'a>(id: &ChainId, name: &'a [u8], bytes: &'a [u8]) -> Put<'a> {
    Put { db: id.db, key: name, kind: Kind::Part, value: bytes, expire_at_ms: None }
}

const _: () = assert!(
    8 * (PART_BYTES + 64) + 4 * crate::limits::SECTOR_SIZE_MAX < super::segment::SEGMENT_SIZE,
    "eight parts and some small records fill a segment"
);
const _: () = assert!(PART_BYTES + 64 + 2 * crate::limits::SECTOR_SIZE_MAX <= 1 << 20);
