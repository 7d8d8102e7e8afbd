use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::LazyLock;

use super::index::{Entry, EntryLen, Found, HashSeed, Index, KeyHash, KeyHasher, Location, SlotId};
use super::view::Kind;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

static HASHER: LazyLock<KeyHasher> =
    LazyLock::new(|| KeyHasher::new(&HashSeed(*b"a seed of a test")));

fn hash(key: u64) -> KeyHash {
    HASHER.hash(&key.to_le_bytes())
}

/// An entry that tells its key.
fn entry(key: u64) -> Entry {
    Entry::new(Location::new(key + 1), Kind::Hash, 8, 100, 0)
}

fn key_of(entry: Entry) -> u64 {
    entry.location.units() - 1
}

fn filled(keys: u64) -> Index {
    let mut index = Index::new();
    for key in 0..keys {
        assert_eq!(index.put(&hash(key), entry(key), None), None);
    }
    index
}

/// The index beside a map that does the same.
struct Model {
    index: Index,
    map: HashMap<u64, Found>,
    random: Random,
}

impl Model {
    fn entry(&mut self) -> Entry {
        let kinds = [Kind::String, Kind::List, Kind::Set, Kind::ZSet, Kind::Hash, Kind::Stream];
        let bits = self.random.next();
        let location = Location::new((bits >> 24).max(1));
        let key_len = if bits & 8 == 0 { 20 } else { 100 };
        let len = self.random.below(1 << 19);
        Entry::new(location, kinds[(bits % 6) as usize], key_len, len as usize, len as u32)
    }

    fn put(&mut self, key: u64) {
        let entry = self.entry();
        let at = self.random.next();
        let expire_at_ms = at.is_multiple_of(3).then_some(at >> 20);
        let old = self.index.put(&hash(key), entry, expire_at_ms);
        assert_eq!(old, self.map.insert(key, Found { entry, expire_at_ms }));
    }

    fn relocate(&mut self, key: u64) {
        let from = self.index.get(&hash(key)).map(|found| found.entry.location);
        let to = self.entry().location;
        let not_from = Location::new(to.units() ^ 1 << 39 | 1);
        let Some(from) = from else {
            assert!(!self.index.relocate(&hash(key), not_from, to));
            return;
        };
        if not_from != from {
            assert!(!self.index.relocate(&hash(key), not_from, to));
        }
        assert!(self.index.relocate(&hash(key), from, to));
        self.map.get_mut(&key).unwrap().entry.location = to;
    }

    fn step(&mut self, keys: u64, put_share: u64) {
        let key = self.random.below(keys);
        match self.random.below(100) {
            op if op < put_share => self.put(key),
            98.. => self.relocate(key),
            _ => assert_eq!(self.index.remove(&hash(key)), self.map.remove(&key)),
        }
        let key = self.random.below(keys);
        assert_eq!(self.index.get(&hash(key)), self.map.get(&key).copied());
        assert_eq!(self.index.len(), self.map.len());
    }

    fn check_all(&self, keys: u64) {
        for key in 0..keys {
            assert_eq!(self.index.get(&hash(key)), self.map.get(&key).copied(), "key {key}");
        }
        let expiring = self.map.values().filter(|found| found.expire_at_ms.is_some()).count();
        assert_eq!(self.index.expires(), expiring);
        let mut seen = 0;
        scan_all(&self.index, |_| seen += 1);
        assert_eq!(seen, self.map.len());
    }
}

fn scan_all(index: &Index, mut visit: impl FnMut(SlotId)) -> u64 {
    let (mut cursor, mut calls) = (0, 0);
    loop {
        cursor = index.scan(cursor, &mut |id, entry, expire_at_ms| {
            assert_eq!(index.get_at(&id), Some(Found { entry, expire_at_ms }));
            visit(id);
        });
        calls += 1;
        if cursor == 0 {
            return calls;
        }
    }
}

#[test]
fn the_index_does_what_a_map_does() {
    let mut model = Model { index: Index::new(), map: HashMap::new(), random: Random(0x1de7_0001) };
    // Growth, churn, shrinking to nothing, and all of it again.
    for (keys, put_share, steps) in [
        (30_000, 90, 60_000),
        (30_000, 50, 60_000),
        (30_000, 5, 150_000),
        (300, 50, 20_000),
        (60_000, 80, 150_000),
        (60_000, 10, 100_000),
    ] {
        for _ in 0..steps {
            model.step(keys, put_share);
        }
        model.check_all(60_000);
    }
    for key in 0..60_000 {
        assert_eq!(model.index.remove(&hash(key)), model.map.remove(&key));
    }
    model.check_all(60_000);
    assert!(model.index.is_empty());
}

#[test]
fn an_empty_index_has_nothing_and_holds_no_memory() {
    let mut index = Index::new();
    assert_eq!(index.memory_bytes(), 0);
    assert_eq!(index.get(&hash(1)), None);
    assert_eq!(index.remove(&hash(1)), None);
    assert!(!index.relocate(&hash(1), Location::new(1), Location::new(2)));
    assert_eq!(index.random(1), None);
    assert_eq!(index.scan(0, &mut |_, _, _| panic!("visited")), 0);
    assert_eq!(index.expired(0, u64::MAX, &mut |_, _, _| panic!("visited")), 0);
    index.put(&hash(1), entry(1), Some(5));
    index.clear();
    assert_eq!((index.len(), index.expires(), index.memory_bytes()), (0, 0, 0));
    assert_eq!(index.get(&hash(1)), None);
}

#[test]
fn equal_orders_keep_their_expiries_apart() {
    // Eight keys with the same high half of the tag, through splits and merges.
    let twin = |n: u64| KeyHash { tag: 0x7777_7777 << 32 | n << 29 | n, place: hash(n).place };
    let mut index = Index::new();
    for n in 0..8 {
        index.put(&twin(n), entry(n), (n % 2 == 0).then_some(1000 + n));
    }
    let check = |index: &Index| {
        for n in 0..8 {
            let found = index.get(&twin(n)).unwrap();
            assert_eq!(key_of(found.entry), n);
            assert_eq!(found.expire_at_ms, (n % 2 == 0).then_some(1000 + n));
        }
    };
    check(&index);
    for key in 0..5000 {
        index.put(&hash(key), entry(key), Some(key));
        if key % 100 == 0 {
            check(&index);
        }
    }
    for n in 0..8 {
        index.put(&twin(n), entry(n), None);
        index.put(&twin(n), entry(n), (n % 2 == 0).then_some(1000 + n));
    }
    for key in 0..5000 {
        index.remove(&hash(key));
        if key % 100 == 0 {
            check(&index);
        }
    }
    check(&index);
    for n in 0..8 {
        assert_eq!(index.remove(&twin(n)).map(|found| key_of(found.entry)), Some(n));
    }
    assert!(index.is_empty());
}

#[test]
fn keys_that_differ_in_one_bit_of_the_tag_are_two_keys() {
    let mut index = filled(20_000);
    let base = hash(1 << 40);
    index.put(&base, entry(1 << 30), None);
    for bit in 0..64 {
        let other = KeyHash { tag: base.tag ^ 1 << bit, ..base };
        assert_eq!(index.get(&other), None, "bit {bit}");
    }
    // A fresh slot also knows the bits of the place that the partition number made room for:
    // 20,000 keys are at least 8 of them.
    for bit in 0..8 {
        let other = KeyHash { place: base.place ^ 1 << bit, ..base };
        // From that bit on tag and place must differ somewhere, or the mark reads both ways.
        let readable = (base.tag as u32 ^ base.place) & 0xff & !((1 << bit) - 1) == 0;
        assert_eq!(index.get(&other).is_some(), readable, "bit {bit}");
    }
}

#[test]
fn a_scan_of_a_quiet_index_visits_each_key_once() {
    for keys in [1, 48, 49, 1000, 12_345] {
        let index = filled(keys);
        let mut seen = HashSet::new();
        scan_all(&index, |id| {
            assert!(seen.insert(key_of(index.get_at(&id).unwrap().entry)));
        });
        assert_eq!(seen.len() as u64, keys);
        assert!(seen.iter().all(|&key| key < keys));
    }
}

/// Scans while `change` runs between the calls; what was visited, and how often.
fn scan_under(index: &mut Index, mut change: impl FnMut(&mut Index)) -> BTreeMap<u64, u32> {
    let mut seen = BTreeMap::new();
    let mut cursor = 0;
    loop {
        cursor = index.scan(cursor, &mut |_, entry, _| {
            *seen.entry(key_of(entry)).or_default() += 1;
        });
        if cursor == 0 {
            return seen;
        }
        change(index);
    }
}

#[test]
fn a_scan_visits_each_key_once_while_the_index_grows() {
    let mut index = filled(5000);
    let mut next = 5000;
    // Faster than the scan: it ends all the same.
    let seen = scan_under(&mut index, |index| {
        for _ in 0..200 {
            index.put(&hash(next), entry(next), None);
            next += 1;
        }
    });
    assert!(next > 40_000, "grew to {next}");
    assert!((0..5000).all(|key| seen.get(&key) == Some(&1)));
    assert!(seen.values().all(|&times| times == 1));
}

#[test]
fn a_scan_visits_each_survivor_while_the_index_shrinks() {
    let mut index = filled(40_000);
    let before = index.memory_bytes();
    let mut next = 0;
    let seen = scan_under(&mut index, |index| {
        for _ in 0..300 {
            // Every tenth key lives on.
            if next < 40_000 && next % 10 != 0 {
                index.remove(&hash(next)).unwrap();
            }
            next += 1;
        }
    });
    assert!(next >= 40_000);
    assert!((0..40_000).step_by(10).all(|key| seen.contains_key(&key)));
    assert!(index.memory_bytes() < before / 4, "{} of {before}", index.memory_bytes());
}

#[test]
fn any_cursor_is_taken() {
    let index = filled(1000);
    for cursor in [1, 77, u64::from(u32::MAX), 1 << 32, u64::MAX] {
        let next = index.scan(cursor, &mut |_, _, _| {});
        assert!(next == 0 || next > cursor);
        index.expired(cursor, 0, &mut |_, _, _| panic!("nothing expires"));
    }
}

#[test]
fn expired_names_those_and_only_those() {
    let mut index = Index::new();
    for key in 0..20_000 {
        index.put(&hash(key), entry(key), (key % 4 != 0).then_some(key));
    }
    let mut cursor = 0;
    let mut due = Vec::new();
    loop {
        cursor = index.expired(cursor, 10_000, &mut |id, entry, at_ms| {
            assert_eq!(key_of(entry), at_ms);
            due.push((id, entry));
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(due.len(), (0..=10_000).filter(|key| key % 4 != 0).count());
    for (id, entry) in due {
        assert_eq!(index.remove_at(&id).map(|found| found.entry), Some(entry));
        assert_eq!(index.remove_at(&id), None);
    }
    let alive = |key: &u64| key.is_multiple_of(4) || *key > 10_000;
    assert_eq!(index.len(), (0..20_000).filter(alive).count());
    assert_eq!(index.expires(), (10_001..20_000).filter(|key| key % 4 != 0).count());
}

#[test]
fn a_slot_id_holds_through_splits_and_merges_and_an_image() {
    let mut index = filled(1000);
    let mut ids = Vec::new();
    scan_all(&index, |id| ids.push(id));
    let image: Vec<_> = ids.iter().map(|id| (id.to_bytes(), index.get_at(id).unwrap())).collect();
    for key in 1000..30_000 {
        index.put(&hash(key), entry(key), None);
    }
    assert!(image.iter().zip(&ids).all(|((_, found), id)| index.get_at(id) == Some(*found)));
    for key in 1000..30_000 {
        index.remove(&hash(key));
    }
    assert!(image.iter().zip(&ids).all(|((_, found), id)| index.get_at(id) == Some(*found)));

    let mut copy = Index::new();
    for (bytes, found) in image {
        let id = SlotId::from_bytes(bytes);
        assert_eq!(copy.put_at(&id, found.entry, found.expire_at_ms), None);
    }
    for key in 0..1000 {
        assert_eq!(copy.get(&hash(key)).map(|found| key_of(found.entry)), Some(key));
    }
}

#[test]
fn random_draws_every_key_about_equally_often() {
    let index = filled(2000);
    let mut random = Random(5);
    let mut times = vec![0u32; 2000];
    for _ in 0..200_000 {
        let (entry, _) = index.random(random.next()).unwrap();
        times[key_of(entry) as usize] += 1;
    }
    // Mean 100, standard deviation 10: within five of them.
    assert!(times.iter().all(|&n| (50..=150).contains(&n)), "{:?}", times.iter().max());
    let spread: f64 = times.iter().map(|&n| (f64::from(n) - 100.0).powi(2)).sum();
    assert!(spread / 2000.0 < 115.0, "variance {}", spread / 2000.0);
}

#[test]
fn random_finds_the_last_key() {
    let mut index = filled(3000);
    for key in 1..3000 {
        index.remove(&hash(key));
    }
    for r in 0..100 {
        assert_eq!(index.random(r).map(|(entry, _)| key_of(entry)), Some(0));
    }
}

#[test]
fn a_key_costs_at_most_20_bytes_at_every_size() {
    let mut index = Index::new();
    let mut sample = 100_000;
    for key in 0..3_000_000 {
        index.put(&hash(key), entry(key), None);
        if index.len() == sample {
            let per_key = index.memory_bytes() as f64 / sample as f64;
            assert!(per_key <= 20.0, "{per_key} bytes per key of {sample}");
            sample += sample / 100;
        }
    }
    assert!(index.memory_bytes() as f64 / 3e6 < 18.0);
    // Replacing each key keeps to the same bound.
    for key in 0..1_000_000 {
        index.remove(&hash(key)).unwrap();
        index.put(&hash(3_000_000 + key), entry(key), None);
    }
    let per_key = index.memory_bytes() as f64 / 3e6;
    assert!(per_key <= 19.0, "{per_key} bytes per key after churn");
}

#[test]
fn an_expiry_costs_at_most_16_bytes() {
    for share in [1, 2, 10] {
        let (mut with, mut without) = (Index::new(), Index::new());
        for key in 0..300_000 {
            let expiry = (key % share == 0).then_some(1_700_000_000_000 + key);
            with.put(&hash(key), entry(key), expiry);
            without.put(&hash(key), entry(key), None);
        }
        let extra = with.memory_bytes() - without.memory_bytes();
        let per_key = extra as f64 / with.expires() as f64;
        assert!(per_key <= 16.0, "{per_key} bytes for one key in {share}");
        // And it is given back when the keys do not expire any more.
        for key in 0..300_000 {
            with.put(&hash(key), entry(key), None);
        }
        assert_eq!(with.expires(), 0);
        assert!(with.memory_bytes() - without.memory_bytes() < extra / 10);
    }
}

#[test]
fn memory_is_given_back_when_keys_go() {
    let mut index = filled(1_000_000);
    let mut left = 1_000_000;
    for target in [500_000, 200_000, 100_000] {
        while left > target {
            left -= 1;
            index.remove(&hash(left)).unwrap();
        }
        let per_key = index.memory_bytes() as f64 / index.len() as f64;
        assert!(per_key <= 24.0, "{per_key} bytes per key of {target} left");
    }
    index.clear();
    assert_eq!(index.memory_bytes(), 0);
}

#[test]
fn lengths_come_back() {
    let mut index = Index::new();
    let long = Entry::new(Location::new(9), Kind::String, 65, 3, 77);
    let short = Entry::new(Location::new(9), Kind::String, 64, 3, 77);
    index.put(&hash(1), long, None);
    index.put(&hash(2), short, None);
    assert_eq!(index.get(&hash(1)).unwrap().entry.len, EntryLen::Units(77));
    assert_eq!(index.get(&hash(2)).unwrap().entry.len, EntryLen::Value(3));
}

#[test]
fn an_index_made_for_its_keys_is_like_one_that_grew() {
    for keys in [0, 1, 48, 49, 96, 97, 5000, 100_000] {
        let mut hashes: Vec<(KeyHash, u64)> = (0..keys).map(|key| (hash(key), key)).collect();
        hashes.sort_by_key(|(hash, _)| hash.point());
        let mut index = Index::with_capacity(keys as usize);
        for (hash, key) in &hashes {
            assert_eq!(index.put(hash, entry(*key), None), None);
        }
        let grown = filled(keys);
        let order = |index: &Index| {
            let mut ids = Vec::new();
            scan_all(index, |id| ids.push(id.tag()));
            ids
        };
        assert_eq!(order(&index), order(&grown));
        assert!(index.memory_bytes() <= grown.memory_bytes() * 21 / 20 + 20_000);
        for (hash, key) in &hashes {
            assert_eq!(index.remove(hash).map(|found| key_of(found.entry)), Some(*key));
        }
        assert!(index.is_empty());
    }
}

#[test]
fn warming_changes_nothing() {
    let hashes: Vec<KeyHash> = (0..1000).map(hash).collect();
    Index::new().warm(&hashes);
    let index = filled(500);
    index.warm(&hashes);
    assert!((0..1000).all(|key| index.get(&hash(key)).is_some() == (key < 500)));
}
