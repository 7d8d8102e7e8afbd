//! Live records are moved, and nothing else changes.

use super::{Bench, Model, options, start, start_in};
use crate::disk::Disk;
use crate::mem::BufPool;
use crate::shard::record::Lsn;
use crate::shard::table::Life;
use crate::shard::{AppendError, ReadError, Segments, Shard};
use crate::testing::disk::{Cut, SimDisk, SimRandom};
use crate::testing::rig::{RigOptions, geometry};

fn moving(cores: u16) -> RigOptions {
    RigOptions { defrag: true, ..options(cores) }
}

impl Bench {
    /// Puts a value of one repeated byte; waits for room, but not for ever.
    fn put_patiently(&mut self, key: &[u8], byte: u8, len: usize) -> Result<(), AppendError> {
        for _ in 0..5000 {
            match self.put(key, &vec![byte; len], None) {
                Ok(_) => return Ok(()),
                Err(AppendError::Busy) => self.turns(1),
                Err(error) => return Err(error),
            }
        }
        panic!("no room, and no error either: {:?}", self.rig.segments.usage());
    }

    fn moved(&self) -> u64 {
        self.rig.shards.iter().map(|shard| shard.defrag_counts().records).sum()
    }

    fn segment_of(&self, key: &[u8]) -> u32 {
        let (core, hash) = self.rig.home(key);
        let found = self.rig.shards[core].lookup(0, &hash, 0).expect("the key is there");
        Segments::split(found.entry.location.units()).0
    }
}

/// Values of 200 kB, so many that `live` of the space is taken.
fn endless_overwrite(cores: u16, segments: u64, live: f64, fulls: f64, seed: u64) {
    const LEN: usize = 200_000;
    let geometry = geometry(&[segments], 4096, true);
    let disk = SimDisk::new(&geometry, seed);
    let mut bench = Bench::new(&disk, moving(cores), seed);
    let space = (segments - 1) as f64 * 8_388_608.0;
    let keys = (space * live / (LEN + 30) as f64) as usize;
    let name = |i: usize| format!("key{i}").into_bytes();
    for i in 0..keys {
        bench.put_patiently(&name(i), 1, LEN).expect("room for all keys once");
        bench.turns(1);
    }
    let mut values = vec![1; keys];
    bench.model.steps.clear();
    for round in 0..(keys as f64 * fulls) as usize {
        let key = bench.random.below(keys);
        values[key] = (round % 251) as u8;
        let put = bench.put_patiently(&name(key), values[key], LEN);
        put.unwrap_or_else(|error| panic!("round {round}: {error}"));
        bench.model.steps.clear();
        bench.turns(1);
    }
    assert!(bench.moved() > 0);
    bench.rig.shards.iter_mut().for_each(Shard::request_sync);
    bench.rig.settle();
    let media = disk.power_cut(Cut::Nothing, &mut bench.random);
    let disk = SimDisk::with_media(&geometry, media, 1);
    let mut after = start_in(&disk, options(cores + 1), &bench.rig.pool);
    let contents = after.contents();
    assert_eq!(contents.len(), keys);
    for (i, &value) in values.iter().enumerate() {
        assert!(contents[&(0, name(i))].0 == vec![value; LEN], "key {i}");
    }
}

#[test]
fn a_device_with_85_percent_live_data_is_overwritten_without_end() {
    endless_overwrite(1, 48, 0.85, 1.5, 31);
}

#[test]
fn a_device_with_90_percent_live_data_is_overwritten_without_end() {
    // Large enough that the segments held back for deletes and moves are well within the rest: of
    // 63 segments they and the open one are all of it but one, and then some orders of writes end
    // with an honest "no space".
    endless_overwrite(1, 96, 0.90, 0.7, 32);
}

#[test]
fn several_cores_share_a_nearly_full_device() {
    endless_overwrite(3, 64, 0.82, 0.8, 33);
}

/// Overwrites, deletes and expiries on a device so small that live records have to move, with a
/// power cut after every write and flush of a part of the run.
fn crash_while_moving(sector_size: u32, volatile_cache: bool, cores: u16, seed: u64) {
    let geometry = geometry(&[13], sector_size, volatile_cache);
    let disk = SimDisk::new(&geometry, seed);
    let mut bench = Bench::new(&disk, moving(cores), seed);
    let mut images = 0;
    while bench.moved() < 300 {
        bench.step(120, 2_600_000);
        bench.turns(2);
    }
    // The history up to here is settled; from here on every state is checked.
    bench.rig.shards.iter_mut().for_each(Shard::request_sync);
    bench.rig.settle();
    bench.model = Model { start: bench.model.now(), steps: Vec::new() };
    assert!(bench.rig.contents() == bench.model.start);
    let (mut events, moved) = (disk.events(), bench.moved());
    while images < 48 {
        for _ in 0..bench.random.below(4) {
            bench.step(120, 2_600_000);
        }
        bench.turns(1);
        if disk.events() == events || bench.random.below(3) > 0 {
            continue;
        }
        events = disk.events();
        let floors = bench.floors(volatile_cache);
        let cut = [Cut::Nothing, Cut::Everything, Cut::Writes, Cut::Sectors][images % 4];
        bench.check_crash(cut, &floors, options(1 + (images % 3) as u16));
        images += 1;
    }
    assert!(bench.moved() > moved, "records moved while the power was cut");
}

#[test]
fn moved_records_survive_any_power_cut() {
    crash_while_moving(4096, false, 1, 34);
}

#[test]
fn moved_records_survive_any_power_cut_with_a_volatile_cache() {
    crash_while_moving(512, true, 1, 35);
}

#[test]
fn two_cores_move_their_records_through_power_cuts() {
    crash_while_moving(4096, true, 2, 36);
}

/// Runs with other numbers of cores over segments that the runs before have half emptied.
#[test]
fn history_does_not_come_back_when_other_cores_move_it() {
    let geometry = geometry(&[19], 4096, true);
    let mut disk = SimDisk::new(&geometry, 37);
    let mut random = SimRandom::new(37);
    let pool = BufPool::new(32 << 20, 0).unwrap();
    let mut before: Option<(Model, Vec<Lsn>, u32)> = None;
    let mut moved = 0;
    for run in 0..10 {
        let cores = 1 + (run % 3) as u16;
        let mut rig = start_in(&disk, moving(cores), &pool);
        let start = rig.contents();
        let model = Model { start, steps: Vec::new() };
        let mut bench = Bench { rig, model, random: SimRandom::new(run) };
        if let Some((model, floors, cores)) = &before {
            let hashes = &bench.rig.shards[0];
            let home = |key: &[u8]| hashes.hash(key).core(*cores) as usize;
            assert!(model.allows(&bench.model.start, &home, floors), "run {run}");
        }
        for _ in 0..70 {
            bench.step(80, 2_600_000);
            bench.turns(2);
        }
        moved += bench.moved();
        let media = disk.power_cut([Cut::Sectors, Cut::Writes][run as usize % 2], &mut random);
        before = Some((std::mem::take(&mut bench.model), bench.floors(true), cores.into()));
        disk = SimDisk::with_media(&geometry, media, run);
    }
    assert!(moved > 100, "{moved}");
}

/// Adds live data until free segments are few, then overwrites a little over and over.
fn press(bench: &mut Bench, until: &mut dyn FnMut(&Bench) -> bool) {
    for i in 0.. {
        if bench.rig.segments.headroom() <= 3 {
            break;
        }
        bench.put_patiently(format!("ballast{i}").as_bytes(), 5, 1_600_000).expect("room");
        bench.turns(3);
    }
    for round in 0..2000u32 {
        if until(bench) {
            return;
        }
        let key = format!("hot{}", round % 4).into_bytes();
        bench.put_patiently(&key, round as u8, 1_500_000).expect("room");
        bench.turns(3);
    }
    panic!("it does not happen: {:?}", bench.rig.segments.usage());
}

/// A dead version of "victim" lies among live keys; its tombstone, or the expired version that
/// stands for one, lies among others that move.
fn what_hides_moves(expired: bool) {
    let geometry = geometry(&[13], 4096, false);
    let disk = SimDisk::new(&geometry, 38);
    let mut bench = Bench::new(&disk, moving(1), 38);
    let fill = |bench: &mut Bench, name: &str, count: usize, len: usize| {
        for i in 0..count {
            bench.put_patiently(format!("{name}{i}").as_bytes(), 1, len).unwrap();
            bench.turns(2);
        }
    };
    bench.put_patiently(b"victim", 7, 1000).unwrap();
    fill(&mut bench, "cold", 5, 1_600_000);
    fill(&mut bench, "dead", 3, 1_600_000);
    if expired {
        bench.put(b"victim", b"mortal", Some(1)).unwrap();
        assert_eq!((0..2).map(|_| bench.rig.shards[0].expire_step(1)).sum::<usize>(), 1);
    } else {
        bench.delete(b"victim").unwrap();
    }
    fill(&mut bench, "live", 2, 1_600_000);
    fill(&mut bench, "dead", 3, 1_600_000);
    let hiding = bench.segment_of(b"live0");
    assert_ne!(hiding, bench.segment_of(b"cold0"));
    press(&mut bench, &mut |bench| bench.rig.segments.life(hiding) == Life::Free);
    assert!(bench.rig.shards[0].defrag_counts().tombstones > 0, "it was written again");
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let mut media = disk.media();
    for cores in 1..=2 {
        let disk = SimDisk::with_media(&geometry, media, 1);
        let mut after = start(&disk, moving(cores));
        let (core, hash) = after.home(b"victim");
        assert_eq!(after.shards[core].lookup(0, &hash, 2), None, "it does not come back");
        after.settle();
        media = disk.media();
    }
}

#[test]
fn a_tombstone_that_hides_something_is_carried_on() {
    what_hides_moves(false);
}

#[test]
fn an_expired_record_that_hides_something_leaves_a_tombstone() {
    what_hides_moves(true);
}

#[test]
fn expiry_is_kept_and_a_read_under_way_is_stale() {
    let disk = SimDisk::new(&geometry(&[13], 4096, false), 39);
    let mut bench = Bench::new(&disk, moving(1), 39);
    bench.put(b"mortal", &[3; 2000], Some(5_000_000)).unwrap();
    for i in 0..6 {
        bench.put_patiently(format!("dead{}", i % 2).as_bytes(), 1, 1_600_000).unwrap();
        bench.turns(2);
    }
    let (_, hash) = bench.rig.home(b"mortal");
    let found = bench.rig.shards[0].lookup(0, &hash, 0).unwrap();
    let span = bench.rig.shards[0].read_request(&found.entry);
    let segment = bench.segment_of(b"mortal");
    let epoch = bench.rig.segments.epoch(segment);
    press(&mut bench, &mut |bench| bench.rig.segments.epoch(segment) != epoch);
    let buf = disk.peek(0, span.offset, span.len as usize);
    let decoded = bench.rig.shards[0].decode(&found.entry, &span, &buf, b"mortal");
    assert_eq!(decoded.err(), Some(ReadError::Stale));
    let again = bench.rig.shards[0].lookup(0, &hash, 0).unwrap();
    assert_ne!(again.entry.location, found.entry.location);
    assert_eq!(again.expire_at_ms, Some(5_000_000));
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    assert_eq!(bench.rig.read(0, &again.entry, b"mortal"), Ok(vec![3; 2000]));
}

#[test]
fn a_damaged_record_stays_and_the_others_move() {
    let disk = SimDisk::new(&geometry(&[13], 4096, false), 40);
    let mut bench = Bench::new(&disk, moving(1), 40);
    for i in 0..6 {
        bench.put_patiently(format!("cold{i}").as_bytes(), 4, 10_000).unwrap();
    }
    for i in 0..6 {
        bench.put_patiently(format!("dead{}", i % 2).as_bytes(), 1, 1_600_000).unwrap();
        bench.turns(2);
    }
    let (_, hash) = bench.rig.home(b"cold3");
    let damaged = bench.rig.shards[0].lookup(0, &hash, 0).unwrap().entry;
    let span = bench.rig.shards[0].read_request(&damaged);
    disk.poke(0, span.offset + 5000, &[9, 9, 9]);
    let segment = bench.segment_of(b"cold0");
    press(&mut bench, &mut |bench| bench.segment_of(b"cold5") != segment);
    let reads = bench.rig.ports[0].counts().reads;
    let mut rounds = 0;
    press(&mut bench, &mut |_| {
        rounds += 1;
        rounds > 100
    });
    assert!(bench.rig.ports[0].counts().reads > reads, "defrag goes on");
    assert_eq!(bench.segment_of(b"cold3"), segment, "it stays");
    assert_ne!(bench.segment_of(b"cold0"), segment);
    assert_eq!(bench.rig.segments.life(segment), Life::Sealed);
    let notes = bench.rig.shards[0].take_defrag_notes();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let expected = "a live record is damaged at ";
    assert!(notes[0].starts_with("defrag: sim0: the segment at offset 8388608: "), "{notes:?}");
    assert!(notes[0].contains(expected), "{notes:?}");
}

#[test]
fn a_damaged_footer_costs_a_scan() {
    let disk = SimDisk::new(&geometry(&[13], 4096, false), 41);
    let mut bench = Bench::new(&disk, moving(1), 41);
    bench.put_patiently(b"cold", 4, 10_000).unwrap();
    for i in 0..6 {
        bench.put_patiently(format!("dead{}", i % 2).as_bytes(), 1, 1_600_000).unwrap();
        bench.turns(2);
    }
    let segment = bench.segment_of(b"cold");
    let at = u64::from(segment + 1) * 8_388_608;
    // The footer is there before it is damaged.
    bench.rig.settle();
    disk.poke(0, at - 64 - 10, &[9, 9, 9]);
    press(&mut bench, &mut |bench| bench.segment_of(b"cold") != segment);
    assert_eq!(bench.rig.shards[0].take_defrag_notes().len(), 1);
}

#[test]
fn live_data_is_left_alone() {
    let disk = SimDisk::new(&geometry(&[13], 4096, true), 42);
    let mut bench = Bench::new(&disk, moving(1), 42);
    let mut stored = 0;
    let error = loop {
        match bench.put_patiently(format!("key{stored}").as_bytes(), 1, 400_000) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        bench.turns(1);
    };
    assert_eq!(error, AppendError::Full);
    bench.rig.settle();
    let reads = bench.rig.ports[0].counts().reads;
    bench.turns(3000);
    assert_eq!(bench.rig.ports[0].counts().reads, reads, "nothing is to be gained");
    assert_eq!(bench.put(b"more", &[1; 400_000], None).err(), Some(AppendError::Full));
    // Every fourth key goes: the space comes back although no segment is without live records.
    for i in (0..stored).step_by(4) {
        bench.delete(format!("key{i}").as_bytes()).unwrap();
    }
    for i in 0..stored / 8 {
        bench.turns(20);
        bench.put_patiently(format!("new{i}").as_bytes(), 2, 400_000).expect("room again");
    }
    assert!(bench.moved() > 0);
    assert!(bench.rig.contents() == bench.model.now());
}

#[test]
fn a_cleared_database_gives_its_space_back_behind_live_ones() {
    let geometry = geometry(&[13], 4096, false);
    let disk = SimDisk::new(&geometry, 43);
    let mut bench = Bench::new(&disk, moving(1), 43);
    for i in 0..15 {
        let (_, hash) = bench.rig.home(b"key");
        let (_, other) = bench.rig.home(format!("gone{i}").as_bytes());
        for (db, hash, key) in [(1, hash, "key".into()), (0, other, format!("gone{i}"))] {
            let (kind, value) = (crate::shard::view::Kind::String, vec![i as u8; 1_600_000]);
            let shard = &mut bench.rig.shards[0];
            shard.put(db, &hash, key.as_bytes(), kind, &value, None).expect("room");
        }
        bench.turns(4);
    }
    let horizon = bench.rig.segments.new_horizon();
    bench.rig.shards[0].clear_db(0, horizon);
    let change = crate::shard::set::SetChange::Clear { db: 0, horizon };
    bench.rig.shards[0].change_set(change);
    bench.model = Model::default();
    press(&mut bench, &mut |bench| bench.rig.segments.times_freed() > 30);
    assert_eq!(bench.rig.shards[0].len(1), 1);
    let contents = bench.rig.contents();
    assert!(contents.keys().all(|(db, key)| *db == 1 || key.starts_with(b"hot")));
}

/// A restart leaves no segment open, and what was open partly filled: deletes find room all the
/// same, each time, on every core.
#[test]
fn a_full_device_takes_deletes_after_every_restart() {
    const LEN: usize = 30_000;
    let geometry = geometry(&[24], 4096, true);
    let mut disk = SimDisk::new(&geometry, 41);
    let mut bench = Bench::new(&disk, moving(2), 41);
    let mut keys = 0;
    while bench.put_patiently(format!("key{keys}").as_bytes(), 1, LEN).is_ok() {
        keys += 1;
        bench.turns(1);
    }
    assert!(keys > 2000, "{keys}");
    let mut deleted = 0;
    for restart in 0..6u64 {
        bench.rig.shards.iter_mut().for_each(Shard::request_sync);
        bench.rig.settle();
        let media = disk.power_cut(Cut::Nothing, &mut bench.random);
        disk = SimDisk::with_media(&geometry, media, restart);
        let rig = start_in(&disk, moving(2), &bench.rig.pool);
        bench = Bench { rig, model: Model::default(), random: SimRandom::new(restart) };
        for _ in 0..12 {
            let key = format!("key{deleted}").into_bytes();
            let gone = (0..2000).find_map(|_| match bench.delete(&key) {
                Err(AppendError::Busy) => {
                    bench.turns(1);
                    None
                }
                result => Some(result),
            });
            assert!(matches!(gone, Some(Ok(Some(_)))), "{restart}: {gone:?}");
            deleted += 1;
        }
    }
    assert_eq!(bench.rig.contents().len(), keys - deleted);
}
