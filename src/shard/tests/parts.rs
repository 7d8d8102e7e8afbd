//! Strings in parts over simulated devices.

use super::{options, start, start_in};
use crate::disk::Geometry;
use crate::shard::index::KeyHash;
use crate::shard::parts::{Chain, PART_BYTES, part_range};
use crate::shard::{AppendError, Shard, UnitOp, UnitWrite};
use crate::testing::disk::{Cut, SimDisk, SimRandom};
use crate::testing::rig::{Rig, RigOptions, geometry};

const KEY: &[u8] = b"large";

/// Bytes that differ by place and by `mark`.
fn value(len: usize, mark: u8) -> Vec<u8> {
    (0..len).map(|i| (i / 1000) as u8 ^ (i % 251) as u8 ^ mark).collect()
}

fn busy<T>(
    rig: &mut Rig,
    core: usize,
    mut append: impl FnMut(&mut Shard) -> Result<T, AppendError>,
) -> Result<T, AppendError> {
    let until_ns = rig.now.mono_ns + 60_000_000_000;
    loop {
        match append(&mut rig.shards[core]) {
            Err(AppendError::Busy) if rig.now.mono_ns < until_ns => {
                rig.now.mono_ns += 1_000_000;
                rig.turn(core);
            }
            done => return done,
        }
    }
}

/// Writes the parts of a value, without a root.
fn put_parts(rig: &mut Rig, key: &[u8], value: &[u8]) -> Result<Chain, AppendError> {
    let (core, hash) = rig.home(key);
    let chain = rig.shards[core].new_chain(0, &hash, value.len());
    for number in 0..chain.parts() {
        let part = &value[part_range(value.len(), number)];
        if let Err(error) = busy(rig, core, |shard| shard.put_part(chain.id, number, part)) {
            rig.shards[core].abandon(chain.id, number);
            return Err(error);
        }
    }
    Ok(chain)
}

fn put_root(rig: &mut Rig, key: &[u8], chain: Chain, expire_at_ms: Option<u64>) {
    let (core, hash) = rig.home(key);
    let op = UnitOp::Chain { chain, expire_at_ms };
    let write = UnitWrite { db: 0, hash, key, op };
    busy(rig, core, |shard| shard.append_unit(&[write])).expect("room for a root");
}

fn put(rig: &mut Rig, key: &[u8], value: &[u8]) -> Chain {
    let chain = put_parts(rig, key, value).expect("room for the parts");
    put_root(rig, key, chain, None);
    chain
}

/// The parts of a chain put together; None when one is missing.
fn read_chain(rig: &mut Rig, core: usize, chain: &Chain) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for number in 0..chain.parts() {
        let name = chain.id.part_name(number);
        let entry = rig.shards[core].part(&chain.id, number)?;
        match rig.shards[core].resident(&entry, &name) {
            Some(record) => value.extend_from_slice(record.value),
            None => value.extend(rig.read(core, &entry, &name).expect("a whole part")),
        }
    }
    Some(value)
}

fn read(rig: &mut Rig, key: &[u8]) -> Option<Vec<u8>> {
    let (core, hash) = rig.home(key);
    let now_ms = rig.now.unix_ms;
    let found = rig.shards[core].lookup(0, &hash, now_ms)?;
    assert!(Shard::meta(&found).in_parts);
    let chain = rig.shards[core].chain(0, &hash).expect("a root that is known");
    read_chain(rig, core, &chain)
}

fn free_segments(rig: &Rig) -> u32 {
    rig.segments.usage().free
}

/// Lets the segments go that hold nothing, but for the last one of each core.
fn rest(rig: &mut Rig) {
    for _ in 0..2 {
        rig.shards.iter_mut().for_each(Shard::seal_for_shutdown);
        rig.settle();
        (0..200).for_each(|_| {
            rig.now.mono_ns += 2_000_000;
            (0..rig.shards.len()).for_each(|core| rig.turn(core));
        });
    }
}

/// Parts leave a write buffer to others, but not for ever when there are only two.
#[test]
fn two_write_buffers_are_enough_for_a_value_in_parts() {
    let disk = SimDisk::new(&geometry(&[20], 4096, true), 1);
    let mut rig = start(&disk, RigOptions { buffers: 2, ..options(1) });
    let wanted = value(20 * PART_BYTES, 3);
    put(&mut rig, KEY, &wanted);
    assert!(read(&mut rig, KEY).as_ref() == Some(&wanted));
}

#[test]
fn a_value_in_parts_is_found_by_any_number_of_cores() {
    let geometry = geometry(&[20, 20], 4096, true);
    let disk = SimDisk::new(&geometry, 1);
    let mut rig = start(&disk, options(2));
    let wanted = value(9 * PART_BYTES + 77, 1);
    put(&mut rig, KEY, &wanted);
    put(&mut rig, b"other", &value(PART_BYTES, 2));
    assert!(read(&mut rig, KEY).as_ref() == Some(&wanted), "from memory");
    assert_eq!(rig.shards.iter().map(|shard| shard.len(0)).sum::<usize>(), 2, "DBSIZE");
    rest(&mut rig);
    for cores in 1..=4 {
        let disk = SimDisk::with_media(&geometry, disk.media(), 5);
        let mut after = start(&disk, options(cores));
        assert!(read(&mut after, KEY).as_ref() == Some(&wanted), "{cores} cores");
        assert!(read(&mut after, b"other") == Some(value(PART_BYTES, 2)));
        assert_eq!(after.shards.iter().map(|shard| shard.len(0)).sum::<usize>(), 2, "DBSIZE");
    }
}

/// A change in place: a new second part, one more part, and the root.
fn patch(rig: &mut Rig, chain: Chain, value: &[u8]) -> Chain {
    let (core, hash) = rig.home(KEY);
    let longer = Chain { len: value.len() as u32, ..chain };
    let last = longer.parts() - 1;
    let part = &value[part_range(value.len(), last)];
    busy(rig, core, |shard| shard.put_part(chain.id, last, part)).expect("room");
    let part = UnitOp::Part { id: chain.id, number: 1, value: &value[part_range(value.len(), 1)] };
    let root = UnitOp::Chain { chain: longer, expire_at_ms: None };
    let unit = [part, root].map(|op| UnitWrite { db: 0, hash, key: KEY, op });
    busy(rig, core, |shard| shard.append_unit(&unit)).expect("room");
    longer
}

/// The device after a power cut has one of `allowed`, whole, and nothing that belongs to nobody.
fn check_cut(
    rig: &Rig,
    geometry: &[Geometry],
    random: &mut SimRandom,
    cores: u16,
    allowed: &[Option<Vec<u8>>],
) {
    for cut in [Cut::Nothing, Cut::Everything, Cut::Writes, Cut::Sectors] {
        let media = rig.disk.power_cut(cut, random);
        let disk = SimDisk::with_media(geometry, media, random.draw());
        let mut after = start_in(&disk, options(cores), &rig.pool);
        let found = read(&mut after, KEY);
        let len = found.as_ref().map(Vec::len);
        assert!(allowed.contains(&found), "{cut:?}: neither the old nor the new value: {len:?}");
        after.settle();
        let (core, hash) = after.home(KEY);
        let chain = after.shards[core].chain(0, &hash);
        let parts: usize = after.shards.iter().map(|shard| shard.chains.indexes[0].len()).sum();
        assert_eq!(parts, chain.map_or(0, |chain| chain.parts() as usize), "orphans");
    }
}

#[test]
fn after_any_power_cut_the_old_or_the_new_value_is_whole() {
    for (seed, volatile_cache) in [(1, false), (2, true)] {
        let geometry = geometry(&[40], 4096, volatile_cache);
        let disk = SimDisk::new(&geometry, seed);
        let mut random = SimRandom::new(seed);
        let mut rig = start(&disk, options(1));
        let first = value(3 * PART_BYTES + 5, 1);
        let mut second = value(5 * PART_BYTES, 2);
        let mut cores = 0;
        let mut cut = |rig: &mut Rig, random: &mut SimRandom, allowed: &[Option<Vec<u8>>]| {
            for _ in 0..6 {
                rig.now.mono_ns += 40_000_000;
                rig.turn(0);
                cores += 1;
                check_cut(rig, &geometry, random, 1 + cores % 3, allowed);
            }
        };
        let chain = put_parts(&mut rig, KEY, &first).unwrap();
        cut(&mut rig, &mut random, &[None]);
        put_root(&mut rig, KEY, chain, None);
        cut(&mut rig, &mut random, &[None, Some(first.clone())]);
        rig.shards[0].request_sync();
        rig.settle();
        let chain = put_parts(&mut rig, KEY, &second).unwrap();
        cut(&mut rig, &mut random, &[Some(first.clone())]);
        put_root(&mut rig, KEY, chain, None);
        cut(&mut rig, &mut random, &[Some(first.clone()), Some(second.clone())]);
        rig.shards[0].request_sync();
        rig.settle();
        let before = second.clone();
        second.extend_from_slice(&value(1000, 3));
        second[PART_BYTES + 7..PART_BYTES + 9].fill(0xee);
        patch(&mut rig, chain, &second);
        cut(&mut rig, &mut random, &[Some(before), Some(second.clone())]);
        rig.shards[0].request_sync();
        rig.settle();
        let hash = rig.home(KEY).1;
        busy(&mut rig, 0, |shard| shard.delete(0, &hash)).unwrap();
        cut(&mut rig, &mut random, &[Some(second), None]);
    }
}

#[test]
fn parts_that_belong_to_nobody_give_their_space_back() {
    let geometry = geometry(&[30], 4096, false);
    let disk = SimDisk::new(&geometry, 3);
    let mut rig = start(&disk, options(1));
    let empty = free_segments(&rig);
    let hash = rig.home(KEY).1;
    // Overwritten, deleted, and never finished.
    put(&mut rig, KEY, &value(20 * PART_BYTES, 1));
    put(&mut rig, KEY, &value(20 * PART_BYTES, 2));
    busy(&mut rig, 0, |shard| shard.delete(0, &hash)).unwrap();
    let chain = put_parts(&mut rig, KEY, &value(20 * PART_BYTES, 3)).unwrap();
    rig.shards[0].abandon(chain.id, chain.parts());
    rest(&mut rig);
    assert!(free_segments(&rig) + 3 >= empty, "{} of {empty}", free_segments(&rig));
    // A crash before the root: the next run frees them.
    put_parts(&mut rig, KEY, &value(60 * PART_BYTES, 4)).unwrap();
    rig.shards[0].request_sync();
    rig.settle();
    let mut after = start(&SimDisk::with_media(&geometry, disk.media(), 4), options(2));
    assert!(free_segments(&after) + 8 <= empty);
    rest(&mut after);
    assert!(free_segments(&after) + 5 >= empty, "{} of {empty}", free_segments(&after));
}

#[test]
fn a_reader_keeps_a_chain_over_overwrite_delete_and_flush() {
    let disk = SimDisk::new(&geometry(&[40], 4096, false), 5);
    let mut rig = start(&disk, options(1));
    let hash: KeyHash = rig.home(KEY).1;
    let wanted = value(4 * PART_BYTES, 1);
    let chain = put(&mut rig, KEY, &wanted);
    assert!(rig.shards[0].pin(&hash, &chain));
    put(&mut rig, KEY, &value(2 * PART_BYTES, 2));
    assert!(!rig.shards[0].pin(&hash, &chain), "it is not the value of the key any more");
    busy(&mut rig, 0, |shard| shard.delete(0, &hash)).unwrap();
    rest(&mut rig);
    assert!(read_chain(&mut rig, 0, &chain).as_ref() == Some(&wanted));
    let horizon = rig.shards[0].new_horizon();
    rig.shards[0].clear_db(0, horizon);
    rig.segments.set_horizon(0, horizon);
    rest(&mut rig);
    assert!(read_chain(&mut rig, 0, &chain).as_ref() == Some(&wanted));
    rig.shards[0].unpin(&chain.id);
    rest(&mut rig);
    assert!(read_chain(&mut rig, 0, &chain).is_none());
    assert_eq!(rig.shards[0].dropped.len(), 0);
}

#[test]
fn a_full_device_keeps_nothing_for_readers_alone() {
    let disk = SimDisk::new(&geometry(&[40], 4096, false), 8);
    let mut rig = start(&disk, options(1));
    let hash: KeyHash = rig.home(KEY).1;
    let old = put(&mut rig, KEY, &value(4 * PART_BYTES, 1));
    assert!(rig.shards[0].pin(&hash, &old));
    let wanted = value(2 * PART_BYTES, 2);
    let new = put(&mut rig, KEY, &wanted);
    assert!(rig.shards[0].pin(&hash, &new));
    assert_eq!(rig.shards[0].pinned_bytes(), 4 * PART_BYTES as u64);
    assert_eq!(rig.shards[0].forget_readers(), 1, "the old value, not the live one");
    rest(&mut rig);
    assert!(read_chain(&mut rig, 0, &old).is_none());
    assert!(read_chain(&mut rig, 0, &new).as_ref() == Some(&wanted));
    assert_eq!(rig.shards[0].pinned_bytes(), 0);
    rig.shards[0].unpin(&old.id);
    rig.shards[0].unpin(&new.id);
    assert_eq!(rig.shards[0].forget_readers(), 0);
}

#[test]
fn all_cores_learn_of_writes_that_found_no_space() {
    let disk = SimDisk::new(&geometry(&[16], 4096, false), 8);
    let mut rig = start(&disk, options(2));
    assert!(rig.shards[0].admits_growth());
    assert_eq!(rig.shards[1].refused_writes(), 0);
    let error = put_parts(&mut rig, KEY, &value(150 * PART_BYTES, 2)).err();
    assert_eq!(error, Some(AppendError::Full));
    assert_eq!(rig.shards[0].refused_writes(), 1);
    assert_eq!(rig.shards[1].refused_writes(), 1);
}

#[test]
fn an_expired_value_frees_its_parts_and_does_not_come_back_without_them() {
    let geometry = geometry(&[20], 4096, false);
    let disk = SimDisk::new(&geometry, 6);
    let mut rig = start(&disk, options(1));
    let chain = put_parts(&mut rig, KEY, &value(20 * PART_BYTES, 1)).unwrap();
    let expire_at_ms = rig.now.unix_ms + 10;
    put_root(&mut rig, KEY, chain, Some(expire_at_ms));
    rest(&mut rig);
    rig.now.unix_ms += 11;
    assert_eq!((0..100).map(|_| rig.shards[0].expire_step(rig.now.unix_ms)).sum::<usize>(), 1);
    rest(&mut rig);
    // The segments of the parts are free by now; the root may still be there, and the clock of
    // the next run is before its expiry.
    let mut after = start(&SimDisk::with_media(&geometry, disk.media(), 7), options(1));
    assert!(read(&mut after, KEY).is_none());
    assert_eq!(after.shards[0].len(0), 0);
}

#[test]
fn a_full_device_refuses_a_large_value_and_gets_its_room_back() {
    let disk = SimDisk::new(&geometry(&[16], 4096, false), 8);
    let mut rig = start(&disk, options(1));
    let small = value(2 * PART_BYTES, 1);
    put(&mut rig, KEY, &small);
    let error = put_parts(&mut rig, KEY, &value(150 * PART_BYTES, 2)).err();
    assert_eq!(error, Some(AppendError::Full));
    assert!(read(&mut rig, KEY).as_ref() == Some(&small), "the old value is intact");
    rest(&mut rig);
    put(&mut rig, b"next", &value(30 * PART_BYTES, 3));
    assert!(read(&mut rig, b"next") == Some(value(30 * PART_BYTES, 3)));
}
