//! The index: where each key's record is, in DRAM.

use super::view::Kind;
use std::collections::HashMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash {
    pub tag: u64,
    pub place: u32,
}

impl KeyHash {
    pub fn core(&self, cores: u32) -> u32 {
        (u64::from(self.place) * u64::from(cores) >> 32) as u32
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HashSeed(pub [u8; 16]);

impl HashSeed {
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        use siphasher::sip128::SipHasher13;
        let hash = SipHasher13::new_with_key(&self.0).hash(key);
        KeyHash { tag: hash.h1, place: hash.h2 as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(u64);

impl Location {
    pub fn new(units: u64) -> Location {
        assert!(units != 0);
        Location(units)
    }
    pub fn units(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryLen {
    Value(u32),
    Units(u32),
}

pub const KEY_LEN_SLACK_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub location: Location,
    pub kind: Kind,
    pub len: EntryLen,
}

impl Entry {
    pub fn new(
        location: Location,
        kind: Kind,
        key_len: usize,
        value_len: usize,
        record_units: u32,
    ) -> Entry {
        let len = if value_len >> 19 == 0 && key_len <= KEY_LEN_SLACK_BYTES {
            EntryLen::Value(value_len as u32)
        } else {
            EntryLen::Units(record_units)
        };
        Entry { location, kind, len }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    pub entry: Entry,
    pub expire_at_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(KeyHash);

#[derive(Debug, Default)]
pub struct Index {
    map: HashMap<KeyHash, Found>,
}

impl Index {
    pub fn new() -> Index {
        Index::default()
    }
    pub fn len(&self) -> usize {
        self.map.len()
    }
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
    pub fn get(&self, hash: &KeyHash) -> Option<Found> {
        self.map.get(hash).copied()
    }
    pub fn put(&mut self, hash: &KeyHash, entry: Entry, expire: Option<u64>) -> Option<Found> {
        self.map.insert(*hash, Found { entry, expire_at_ms: expire })
    }
    pub fn remove(&mut self, hash: &KeyHash) -> Option<Found> {
        self.map.remove(hash)
    }
    pub fn memory_bytes(&self) -> usize {
        self.map.len() * 40
    }
    pub fn remove_at(&mut self, id: &SlotId) -> Option<Found> {
        self.map.remove(&id.0)
    }
    pub fn expires(&self) -> usize {
        self.map.values().filter(|found| found.expire_at_ms.is_some()).count()
    }
    pub fn scan(&self, _cursor: u64, visit: &mut dyn FnMut(SlotId, Entry, Option<u64>)) -> u64 {
        for (hash, found) in &self.map {
            visit(SlotId(*hash), found.entry, found.expire_at_ms);
        }
        0
    }
    pub fn expired(&self, _: u64, now_ms: u64, visit: &mut dyn FnMut(SlotId, Entry, u64)) -> u64 {
        for (hash, found) in &self.map {
            if let Some(at) = found.expire_at_ms.filter(|&at| at <= now_ms) {
                visit(SlotId(*hash), found.entry, at);
            }
        }
        0
    }
    pub fn random(&self, r: u64) -> Option<(Entry, Option<u64>)> {
        let at = r as usize % self.map.len().max(1);
        self.map.values().nth(at).map(|found| (found.entry, found.expire_at_ms))
    }
}
