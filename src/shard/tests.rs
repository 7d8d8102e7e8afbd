//! The engine over simulated devices.

mod defrag;
mod extend;
mod media;
mod parts;

use crate::disk::Geometry;
use crate::limits::SEGMENT_SIZE_BYTES;
use crate::mem::BufPool;
use crate::shard::log::RECORD_SIZE_MAX;
use crate::shard::set::SetChange;
use crate::shard::table::Life;
use crate::shard::view::Kind;
use crate::shard::{AppendError, Lsn, ReadError, Shard, UnitOp, UnitWrite};
use crate::testing::disk::{Cut, Media, SimDisk, SimRandom};
use crate::testing::rig::{Contents, Rig, RigOptions, StartError, geometry};

/// Database and key; value and expiry.
type Key = (u8, Vec<u8>);
type Value = (Vec<u8>, Option<u64>);

/// What one append did, on the core of its keys.
struct Step {
    core: usize,
    lsn: Lsn,
    writes: Vec<(Key, Option<Value>)>,
}

/// What was appended since the contents were `start`.
#[derive(Default)]
struct Model {
    start: Contents,
    steps: Vec<Step>,
}

impl Model {
    fn apply(contents: &mut Contents, step: &Step) {
        for (key, value) in &step.writes {
            match value {
                Some(value) => contents.insert(key.clone(), value.clone()),
                None => contents.remove(key),
            };
        }
    }

    fn now(&self) -> Contents {
        let mut contents = self.start.clone();
        self.steps.iter().for_each(|step| Model::apply(&mut contents, step));
        contents
    }

    /// The part of `contents` whose keys are of one core.
    fn of_core(contents: &Contents, home: &dyn Fn(&[u8]) -> usize, core: usize) -> Contents {
        let mine = contents.iter().filter(|((_, key), _)| home(key) == core);
        mine.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Whether `found` is what each core had appended up to some LSN that is not below its floor.
    fn allows(&self, found: &Contents, home: &dyn Fn(&[u8]) -> usize, floors: &[Lsn]) -> bool {
        floors.iter().enumerate().all(|(core, &floor)| {
            let found = Model::of_core(found, home, core);
            let mut state = Model::of_core(&self.start, home, core);
            let mut steps = self.steps.iter().filter(|step| step.core == core).peekable();
            while let Some(step) = steps.next_if(|step| step.lsn <= floor) {
                Model::apply(&mut state, step);
            }
            state == found
                || steps.any(|step| {
                    Model::apply(&mut state, step);
                    state == found
                })
        })
    }
}

/// A rig and the model of what it should hold.
struct Bench {
    rig: Rig,
    model: Model,
    random: SimRandom,
}

impl Bench {
    fn new(disk: &SimDisk, options: RigOptions, seed: u64) -> Bench {
        let mut rig = start(disk, options);
        let start = rig.contents();
        let model = Model { start, steps: Vec::new() };
        Bench { rig, model, random: SimRandom::new(seed) }
    }

    fn put(&mut self, key: &[u8], value: &[u8], expire: Option<u64>) -> Result<Lsn, AppendError> {
        let (core, hash) = self.rig.home(key);
        let lsn = self.rig.shards[core].put(0, &hash, key, Kind::String, value, expire)?;
        let writes = vec![((0, key.to_vec()), Some((value.to_vec(), expire)))];
        self.model.steps.push(Step { core, lsn, writes });
        Ok(lsn)
    }

    fn delete(&mut self, key: &[u8]) -> Result<Option<Lsn>, AppendError> {
        let (core, hash) = self.rig.home(key);
        let lsn = self.rig.shards[core].delete(0, &hash)?;
        if let Some(lsn) = lsn {
            self.model.steps.push(Step { core, lsn, writes: vec![((0, key.to_vec()), None)] });
        }
        Ok(lsn)
    }

    /// A unit of puts and one delete on keys of one core.
    fn unit(&mut self, keys: &[Vec<u8>], value: &[u8]) -> Result<Lsn, AppendError> {
        let core = self.rig.home(&keys[0]).0;
        let mut writes: Vec<UnitWrite<'_>> = Vec::new();
        for (i, key) in keys.iter().enumerate() {
            let (home, hash) = self.rig.home(key);
            if home != core || writes.iter().any(|write| write.key == key) {
                continue;
            }
            let op = match i {
                1 => UnitOp::Delete,
                _ => UnitOp::Put { kind: Kind::String, value, expire_at_ms: None },
            };
            writes.push(UnitWrite { db: 0, hash, key, op });
        }
        let lsn = self.rig.shards[core].append_unit(&writes)?;
        let of_write = |write: &UnitWrite<'_>| {
            let value = match write.op {
                UnitOp::Put { value, .. } => Some((value.to_vec(), None)),
                UnitOp::Delete | UnitOp::Chain { .. } | UnitOp::Part { .. } => None,
            };
            ((0, write.key.to_vec()), value)
        };
        let writes = writes.iter().map(of_write).collect();
        self.model.steps.push(Step { core, lsn, writes });
        Ok(lsn)
    }

    /// Turns of a millisecond, by all cores.
    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.rig.now.mono_ns += 1_000_000;
            (0..self.rig.shards.len()).for_each(|core| self.rig.turn(core));
        }
    }

    /// A random write. Busy is answered by turns until there is room.
    fn step(&mut self, keys: usize, large: usize) {
        let key = |random: &mut SimRandom| format!("key{}", random.below(keys)).into_bytes();
        let names: Vec<Vec<u8>> = (0..4).map(|_| key(&mut self.random)).collect();
        let len = match self.random.below(4) {
            0 => self.random.below(large),
            _ => self.random.below(300),
        };
        let value = vec![self.random.draw() as u8; len];
        let expire = (self.random.below(8) == 0).then_some(2_000_000 + len as u64);
        let choice = self.random.below(10);
        for tries in 0.. {
            assert!(tries < 100_000, "no progress: {:?}", self.rig.segments.usage());
            let result = match choice {
                0 | 1 => self.delete(&names[0]).map(|_| ()),
                2 => self.unit(&names, &value[..len.min(2000)]).map(|_| ()),
                _ => self.put(&names[0], &value, expire).map(|_| ()),
            };
            match result {
                Ok(()) => return,
                Err(AppendError::Busy) => self.turns(1),
                Err(error) => panic!("{error}: {:?}", self.rig.segments.usage()),
            }
        }
    }

    fn floors(&self, synced: bool) -> Vec<Lsn> {
        let floor = |shard: &Shard| match synced {
            true => shard.synced_lsn(),
            false => shard.written_lsn(),
        };
        self.rig.shards.iter().map(floor).collect()
    }

    /// Cuts the power and checks what is found by `options`, which may name another number of
    /// cores; then crashes again right after that recovery.
    fn check_crash(&mut self, cut: Cut, floors: &[Lsn], options: RigOptions) {
        let geometry = self.rig.disk_geometry();
        let media = self.rig.disk.power_cut(cut, &mut self.random);
        let disk = SimDisk::with_media(&geometry, media, self.random.draw());
        let mut after = start_in(&disk, options, &self.rig.pool);
        let found = after.contents();
        let cores = self.rig.shards.len() as u32;
        let hash = |key: &[u8]| self.rig.shards[0].hash(key);
        let home = |key: &[u8]| hash(key).core(cores) as usize;
        assert!(self.model.allows(&found, &home, floors), "{cut:?}: {}", self.explain(&found));
        if self.random.below(4) == 0 {
            let media = disk.power_cut(Cut::Nothing, &mut self.random);
            let disk = SimDisk::with_media(&geometry, media, self.random.draw());
            let options = RigOptions { cores: 1, ..options };
            let mut again = start_in(&disk, options, &self.rig.pool);
            assert_eq!(again.contents().len(), found.len(), "a second recovery");
            assert!(again.contents() == found, "a second recovery finds other values");
        }
    }

    fn explain(&self, found: &Contents) -> String {
        let now = self.model.now();
        let differs = |(key, _): &(&Key, &Value)| found.get(*key) != now.get(*key);
        let keys = now.iter().filter(differs).map(|(key, _)| String::from_utf8_lossy(&key.1));
        let keys: Vec<_> = keys.collect();
        format!("{} found, {} expected, different: {keys:?}", found.len(), now.len())
    }
}

impl Rig {
    fn disk_geometry(&self) -> Vec<Geometry> {
        crate::disk::Disk::geometry(&self.ports[0]).to_vec()
    }
}

fn start(disk: &SimDisk, options: RigOptions) -> Rig {
    let pool = BufPool::new(32 << 20, 0).unwrap();
    start_in(disk, options, &pool)
}

fn start_in(disk: &SimDisk, options: RigOptions, pool: &BufPool) -> Rig {
    match Rig::start_in(disk, options, pool) {
        Ok(rig) => rig,
        Err(StartError::Open(error)) => panic!("{error}"),
        Err(StartError::Damage(damage)) => panic!("{damage}"),
    }
}

fn options(cores: u16) -> RigOptions {
    RigOptions { cores, ..RigOptions::default() }
}

/// Random writes with a power cut after every write and flush that is submitted or completed.
fn crash_everywhere(geometry: &[Geometry], cores: u16, large: usize, steps: usize, seed: u64) {
    let disk = SimDisk::new(geometry, seed);
    let volatile_cache = geometry[0].volatile_cache;
    let mut bench = Bench::new(&disk, options(cores), seed);
    let mut events = disk.events();
    let mut images = 0;
    for _ in 0..steps {
        for _ in 0..bench.random.below(6) {
            bench.step(40, large);
        }
        if bench.random.below(5) == 0 {
            let core = bench.random.below(cores.into());
            bench.rig.shards[core].request_sync();
        }
        bench.rig.now.mono_ns += 1_000_000 * bench.random.below(60) as u64;
        for core in 0..usize::from(cores) {
            bench.rig.turn(core);
        }
        if disk.events() == events {
            continue;
        }
        events = disk.events();
        let floors = bench.floors(volatile_cache);
        for cut in [Cut::Nothing, Cut::Everything, Cut::Writes, Cut::Sectors] {
            let cores = 1 + (images % 3) as u16;
            bench.check_crash(cut, &floors, options(cores));
            images += 1;
        }
    }
    assert!(images > steps, "{images} images");
}

#[test]
fn what_was_written_is_there_after_any_power_cut() {
    crash_everywhere(&geometry(&[24], 512, false), 1, 600_000, 40, 1);
}

#[test]
fn what_was_synced_is_there_after_any_power_cut_with_a_volatile_cache() {
    crash_everywhere(&geometry(&[24], 4096, true), 1, 600_000, 40, 2);
}

#[test]
fn two_devices_and_two_cores_survive_any_power_cut() {
    crash_everywhere(&geometry(&[14, 18], 4096, true), 2, 600_000, 40, 3);
}

#[test]
fn a_log_over_many_segments_breaks_off_at_one_place() {
    crash_everywhere(&geometry(&[40], 4096, false), 1, 6_000_000, 20, 24);
    crash_everywhere(&geometry(&[40], 4096, true), 1, 6_000_000, 20, 25);
}

/// Fills some segments and overwrites and deletes in them, then looks after cuts at the end.
#[test]
fn sealed_segments_are_recovered_by_any_number_of_cores() {
    let geometry = geometry(&[20, 20], 512, true);
    let disk = SimDisk::new(&geometry, 4);
    let mut bench = Bench::new(&disk, options(2), 4);
    for _ in 0..250 {
        bench.step(150, 3_000_000);
        (0..2).for_each(|core| bench.rig.turn(core));
    }
    let usage = bench.rig.segments.usage();
    assert!(usage.segments - usage.free > 6, "{usage:?}");
    for cores in 1..=4 {
        for cut in [Cut::Nothing, Cut::Everything, Cut::Sectors] {
            let floors = bench.floors(true);
            bench.check_crash(cut, &floors, options(cores));
        }
    }
    bench.rig.shards.iter_mut().for_each(Shard::seal_for_shutdown);
    bench.rig.settle();
    let floors: Vec<Lsn> = bench.rig.shards.iter().map(Shard::appended_lsn).collect();
    assert_eq!(bench.floors(true), floors);
    for cores in 1..=4 {
        let mut after = start(&SimDisk::with_media(&geometry, disk.media(), 5), options(cores));
        assert!(after.contents() == bench.model.now());
        assert_eq!(after.notes, Vec::<String>::new(), "all segments are sealed");
    }
}

/// Runs after runs on the same devices, with other numbers of cores, each ended by a power cut.
#[test]
fn history_does_not_come_back_over_many_runs() {
    let geometry = geometry(&[40], 4096, true);
    let mut disk = SimDisk::new(&geometry, 6);
    let mut random = SimRandom::new(6);
    let mut before: Option<(Model, Vec<Lsn>, u32)> = None;
    for run in 0..12 {
        let cores = 1 + (run % 3) as u16;
        let mut bench = Bench::new(&disk, options(cores), run);
        if let Some((model, floors, cores)) = &before {
            let hashes = &bench.rig.shards[0];
            let home = |key: &[u8]| hashes.hash(key).core(*cores) as usize;
            assert!(model.allows(&bench.model.start, &home, floors), "run {run}");
        }
        for _ in 0..60 {
            bench.step(30, 700_000);
            bench.rig.now.mono_ns += 30_000_000;
            (0..usize::from(cores)).for_each(|core| bench.rig.turn(core));
        }
        let media = disk.power_cut([Cut::Sectors, Cut::Writes][run as usize % 2], &mut random);
        before = Some((std::mem::take(&mut bench.model), bench.floors(true), cores.into()));
        disk = SimDisk::with_media(&geometry, media, run);
    }
}

#[test]
fn a_full_device_takes_deletes_and_then_puts_again() {
    let disk = SimDisk::new(&geometry(&[12], 4096, true), 7);
    let mut bench = Bench::new(&disk, options(1), 7);
    let value = vec![1; 500_000];
    let mut stored = 0;
    loop {
        match bench.put(format!("key{stored}").as_bytes(), &value, None) {
            Ok(_) => stored += 1,
            Err(AppendError::Busy) => {}
            Err(error) => break assert_eq!(error, AppendError::Full),
        }
        bench.rig.turn(0);
    }
    assert!(stored > 100, "{stored}");
    assert_eq!(bench.put(b"small", b"x", None).err(), None, "what is open may be filled");
    for i in 0..stored {
        assert!(bench.delete(format!("key{i}").as_bytes()).unwrap().is_some());
    }
    bench.rig.settle();
    for _ in 0..200 {
        bench.rig.now.mono_ns += 10_000_000;
        bench.rig.turn(0);
    }
    for i in 0..stored / 2 {
        let key = format!("new{i}").into_bytes();
        while bench.put(&key, &value, None) == Err(AppendError::Busy) {
            bench.rig.turn(0);
        }
    }
    assert_eq!(bench.rig.shards[0].len(0), stored / 2 + 1);
    assert!(bench.rig.contents() == bench.model.now());
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let floors = bench.floors(true);
    bench.check_crash(Cut::Nothing, &floors, options(1));
}

#[test]
fn steady_overwrite_reuses_segments_and_stale_records_stay_dead() {
    let geometry = geometry(&[14], 512, true);
    let disk = SimDisk::new(&geometry, 8);
    let mut bench = Bench::new(&disk, options(1), 8);
    // Six times the device, over the same forty keys.
    for round in 0..1600u32 {
        let key = format!("key{}", round % 40).into_bytes();
        let value = vec![round as u8; 400_000];
        while bench.put(&key, &value, None) == Err(AppendError::Busy) {
            bench.rig.turn(0);
        }
        bench.rig.now.mono_ns += 1_000_000;
        (0..4).for_each(|_| bench.rig.turn(0));
        if round % 200 == 199 {
            let floors = bench.floors(true);
            bench.check_crash(Cut::Sectors, &floors, options(2));
        }
    }
    assert!(disk.written_bytes() > 6 * geometry[0].size_bytes / 2);
    assert!(bench.rig.contents() == bench.model.now());
}

/// Seven values of a megabyte: most of a segment.
fn put_seven(bench: &mut Bench, name: &str) {
    for i in 0..7 {
        let key = format!("{name}{i}").into_bytes();
        while bench.put(&key, &[1; 1_000_000], None) == Err(AppendError::Busy) {
            bench.rig.turn(0);
        }
        bench.rig.turn(0);
    }
}

/// Makes everything durable and gives reclaim time to free what it can.
fn rest(rig: &mut Rig) {
    rig.shards.iter_mut().for_each(Shard::request_sync);
    rig.settle();
    for _ in 0..100 {
        rig.now.mono_ns += 2_000_000;
        (0..rig.shards.len()).for_each(|core| rig.turn(core));
    }
}

/// A dead version of "victim" in segment 1, among live keys, is hidden by what segment 2 holds,
/// beside dead values only: a tombstone or an expired version.
fn what_hides_stays(expired: bool) {
    let geometry = geometry(&[20], 4096, false);
    let disk = SimDisk::new(&geometry, 27);
    let mut bench = Bench::new(&disk, options(1), 27);
    bench.put(b"victim", &[2; 1_000_000], None).unwrap();
    put_seven(&mut bench, "keep");
    bench.put(b"first in the second", &[2; 1_000_000], None).unwrap();
    if expired {
        bench.put(b"victim", b"mortal", Some(1)).unwrap();
        assert_eq!((0..2).map(|_| bench.rig.shards[0].expire_step(1)).sum::<usize>(), 1);
    } else {
        bench.delete(b"victim").unwrap();
    }
    (0..5).for_each(|_| put_seven(&mut bench, "change"));
    bench.put(b"first in the second", b"", None).unwrap();
    rest(&mut bench.rig);
    let life = |bench: &Bench, segment| bench.rig.segments.life(segment);
    assert_eq!(life(&bench, 1), Life::Sealed, "it holds the dead victim and live keys");
    assert_eq!(life(&bench, 2), Life::Empty, "what it holds hides the victim");
    assert_eq!(life(&bench, 3), Life::Free, "only dead values");
    // Two restarts, because the first one could free what the second one misses.
    let mut media = disk.media();
    for _ in 0..2 {
        let disk = SimDisk::with_media(&geometry, media, 1);
        let mut after = start(&disk, options(2));
        for shard in &mut after.shards {
            let removed: usize = (0..3).map(|_| shard.expire_step(1)).sum();
            assert!(removed <= 1);
        }
        let (core, hash) = after.home(b"victim");
        assert_eq!(after.shards[core].lookup(0, &hash, 2), None);
        assert_eq!(after.shards.iter().map(|shard| shard.len(0)).sum::<usize>(), 15);
        rest(&mut after);
        media = disk.media();
    }
    put_seven(&mut bench, "keep");
    (0..3).for_each(|_| put_seven(&mut bench, "change"));
    rest(&mut bench.rig);
    assert_eq!((life(&bench, 1), life(&bench, 2)), (Life::Free, Life::Free));
}

#[test]
fn a_tombstone_stays_while_it_hides_something() {
    what_hides_stays(false);
}

#[test]
fn an_expired_record_stays_while_it_hides_something() {
    what_hides_stays(true);
}

#[test]
fn a_read_that_meets_a_reused_segment_is_stale() {
    let disk = SimDisk::new(&geometry(&[12], 4096, false), 9);
    let mut bench = Bench::new(&disk, options(1), 9);
    bench.put(b"old", b"value", None).unwrap();
    let (_, hash) = bench.rig.home(b"old");
    let found = bench.rig.shards[0].lookup(0, &hash, 0).unwrap();
    let span = bench.rig.shards[0].read_request(&found.entry);
    let segment = crate::shard::Segments::split(found.entry.location.units()).0;
    let epoch = bench.rig.segments.epoch(segment);
    assert_eq!(bench.rig.shards[0].resident(&found.entry, b"old").unwrap().value, b"value");
    let value = vec![2; 1_000_000];
    bench.put(b"old", &value, None).unwrap();
    for round in 0.. {
        assert!(round < 400, "the segment is reused within the size of the device");
        while bench.put(b"other", &value, None) == Err(AppendError::Busy) {
            bench.rig.turn(0);
        }
        (0..8).for_each(|_| bench.rig.turn(0));
        bench.put(b"old", &value, None).unwrap();
        bench.rig.now.mono_ns += 10_000_000;
        if bench.rig.segments.epoch(segment) != epoch {
            break;
        }
    }
    let buf = disk.peek(0, span.offset, span.len as usize);
    let decoded = bench.rig.shards[0].decode(&found.entry, &span, &buf, b"old");
    assert_eq!(decoded.err(), Some(ReadError::Stale));
}

#[test]
fn reads_tell_damage_from_other_keys() {
    let disk = SimDisk::new(&geometry(&[12], 512, false), 10);
    let mut bench = Bench::new(&disk, options(1), 10);
    bench.put(b"key", &[7; 3000], Some(5_000_000)).unwrap();
    bench.put(&[b'l'; 300], &[8; 100], None).unwrap();
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let rig = &mut bench.rig;
    let (_, hash) = rig.home(b"key");
    let found = rig.shards[0].lookup(0, &hash, 4_999_999).unwrap();
    assert_eq!(found.expire_at_ms, Some(5_000_000));
    assert!(rig.shards[0].lookup(0, &hash, 5_000_000).is_none(), "expired");
    assert_eq!(Shard::meta(&found).value_len, Some(3000));
    assert_eq!(rig.read(0, &found.entry, b"key"), Ok(vec![7; 3000]));
    assert_eq!(rig.read(0, &found.entry, b"kez"), Err(ReadError::OtherKey));
    let (_, long) = rig.home(&[b'l'; 300]);
    let long = rig.shards[0].lookup(0, &long, 0).unwrap();
    assert_eq!(Shard::meta(&long).value_len, None);
    assert_eq!(rig.read(0, &long.entry, &[b'l'; 300]), Ok(vec![8; 100]));
    let span = rig.shards[0].read_request(&found.entry);
    disk.poke(0, span.offset + 1000, &[9]);
    assert_eq!(rig.read(0, &found.entry, b"key"), Err(ReadError::Corrupt));
}

#[test]
fn a_record_may_fill_a_segment_and_no_more() {
    let disk = SimDisk::new(&geometry(&[12], 4096, false), 11);
    let mut bench = Bench::new(&disk, options(1), 11);
    let frame = 28 + 3;
    let largest = vec![3; RECORD_SIZE_MAX - frame];
    bench.put(b"key", &largest, None).unwrap();
    let larger = vec![4; SEGMENT_SIZE_BYTES as usize - 4096];
    assert_eq!(bench.put(b"big", &larger, None).err(), Some(AppendError::TooLarge));
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    let floors = bench.floors(false);
    bench.check_crash(Cut::Nothing, &floors, options(1));
    let (_, hash) = bench.rig.home(b"key");
    let found = bench.rig.shards[0].lookup(0, &hash, 0).unwrap();
    assert!(bench.rig.read(0, &found.entry, b"key") == Ok(largest));
}

#[test]
fn a_failed_write_ends_writing_and_not_reading() {
    let disk = SimDisk::new(&geometry(&[12], 4096, false), 12);
    let mut bench = Bench::new(&disk, options(1), 12);
    bench.put(b"key", b"value", None).unwrap();
    bench.rig.shards[0].request_flush();
    bench.rig.settle();
    let written = bench.rig.shards[0].written_lsn();
    disk.fail_writes();
    bench.put(b"lost", b"value", None).unwrap();
    bench.rig.shards[0].request_flush();
    (0..5).for_each(|_| bench.rig.turn(0));
    assert_eq!(
        bench.rig.shards[0].poison(),
        Some("a write of records on sim0 failed: Input/output error (os error 5)")
    );
    assert_eq!(bench.rig.shards[0].written_lsn(), written);
    assert_eq!(bench.put(b"more", b"value", None).err(), Some(AppendError::Poisoned));
    assert_eq!(bench.delete(b"key").err(), Some(AppendError::Poisoned));
    let (_, hash) = bench.rig.home(b"key");
    let found = bench.rig.shards[0].lookup(0, &hash, 0).unwrap();
    assert_eq!(bench.rig.read(0, &found.entry, b"key"), Ok(b"value".to_vec()));
}

#[test]
fn age_and_demand_decide_when_records_are_written() {
    let disk = SimDisk::new(&geometry(&[12], 4096, false), 13);
    let mut bench = Bench::new(&disk, options(1), 13);
    let first = bench.put(b"key", b"value", None).unwrap();
    let start = bench.rig.now.mono_ns;
    let before = disk.events();
    bench.rig.turn(0);
    assert_eq!(bench.rig.shards[0].deadline_ns(), Some(start + 100_000_000));
    bench.rig.now.mono_ns = start + 99_999_999;
    bench.rig.turn(0);
    assert_eq!(disk.events(), before);
    bench.rig.now.mono_ns = start + 100_000_000;
    bench.rig.turn(0);
    assert!(bench.rig.shards[0].written_lsn() >= first);
    bench.rig.turn(0);
    assert_eq!(bench.rig.shards[0].deadline_ns(), None);
    let second = bench.put(b"key", b"value", None).unwrap();
    bench.rig.shards[0].request_flush();
    bench.rig.turn(0);
    assert!(bench.rig.shards[0].written_lsn() >= second);
    // A chunk is written when it is full, whatever its age.
    let written = disk.written_bytes();
    bench.put(b"key", &[1; 100 << 10], None).unwrap();
    bench.rig.turn(0);
    assert_eq!(disk.written_bytes(), written);
    bench.put(b"key", &[1; 100 << 10], None).unwrap();
    bench.rig.turn(0);
    assert_eq!(disk.written_bytes() - written, (200 << 10) / 4096 * 4096);
}

#[test]
fn under_load_the_device_takes_little_more_than_the_data() {
    for (value_len, percent_max) in [(128, 135), (1024, 106)] {
        let disk = SimDisk::new(&geometry(&[20], 4096, true), 14);
        let mut bench = Bench::new(&disk, options(1), 14);
        let before = disk.written_bytes();
        let value = vec![5; value_len];
        let (mut count, mut random) = (0u64, SimRandom::new(1));
        while count * (16 + value_len as u64) < 40 << 20 {
            let key = format!("{:016x}", random.draw());
            let (_, hash) = bench.rig.home(key.as_bytes());
            let shard = &mut bench.rig.shards[0];
            match shard.put(0, &hash, key.as_bytes(), Kind::String, &value, None) {
                Ok(_) => count += 1,
                Err(error) => assert_eq!(error, AppendError::Busy),
            }
            if count % 64 == 0 {
                bench.rig.now.mono_ns += 1_000_000;
                bench.rig.turn(0);
            }
        }
        bench.rig.shards[0].seal_for_shutdown();
        bench.rig.settle();
        let data = count * (16 + value_len as u64);
        let percent = (disk.written_bytes() - before) as f64 * 100.0 / data as f64;
        assert!(percent < f64::from(percent_max), "{value_len}: {percent}");
        assert!(percent > 100.0);
    }
}

#[test]
fn expired_keys_go_and_do_not_uncover_older_versions() {
    let geometry = geometry(&[12], 4096, false);
    let disk = SimDisk::new(&geometry, 15);
    let mut bench = Bench::new(&disk, options(1), 15);
    bench.put(b"key", b"first", None).unwrap();
    bench.put(b"key", b"second", Some(2_000_000)).unwrap();
    bench.put(b"stays", b"x", Some(2_000_001)).unwrap();
    let shard = &mut bench.rig.shards[0];
    assert_eq!((0..2).map(|_| shard.expire_step(1_999_999)).sum::<usize>(), 0);
    assert_eq!((0..2).map(|_| shard.expire_step(2_000_000)).sum::<usize>(), 1);
    assert_eq!((shard.len(0), shard.expires(0)), (1, 1));
    shard.request_sync();
    bench.rig.settle();
    let mut after = start(&SimDisk::with_media(&geometry, disk.media(), 1), options(1));
    let shard = &mut after.shards[0];
    assert_eq!((0..2).map(|_| shard.expire_step(2_000_000)).sum::<usize>(), 1);
    let (_, hash) = after.home(b"key");
    assert_eq!(after.shards[0].lookup(0, &hash, 0), None);
}

#[test]
fn a_cleared_database_stays_cleared_from_when_the_superblock_says_so() {
    let geometry = geometry(&[14, 14], 4096, true);
    let disk = SimDisk::new(&geometry, 16);
    let mut bench = Bench::new(&disk, options(2), 16);
    for i in 0..50 {
        bench.put(format!("key{i}").as_bytes(), &[1; 200_000], None).unwrap();
        bench.rig.turn(i % 2);
    }
    bench.rig.shards.iter_mut().for_each(Shard::request_sync);
    bench.rig.settle();
    let before = bench.rig.contents();
    let horizon = bench.rig.segments.new_horizon();
    bench.rig.shards.iter_mut().for_each(|shard| shard.clear_db(0, horizon));
    assert_eq!(bench.rig.shards.iter().map(|shard| shard.len(0)).sum::<usize>(), 0);
    rest(&mut bench.rig);
    let usage = bench.rig.segments.usage();
    assert_eq!(usage.dead_units, 0, "nothing is dead before the superblocks say so");
    let put_after: Vec<Vec<u8>> = (0..9).map(|i| format!("after{i}").into_bytes()).collect();
    for key in &put_after {
        bench.put(key, b"new", None).unwrap();
    }
    let mut random = SimRandom::new(2);
    let crash = |disk: &SimDisk, random: &mut SimRandom| {
        let media = disk.power_cut(Cut::Nothing, random);
        start(&SimDisk::with_media(&geometry, media, 3), options(1)).contents()
    };
    assert!(crash(&disk, &mut random) == before, "nothing happened yet");
    let change = bench.rig.shards[0].change_set(SetChange::Clear { db: 0, horizon });
    bench.rig.shards.iter_mut().for_each(Shard::request_sync);
    while bench.rig.shards[0].set_durable() < change {
        (0..2).for_each(|core| bench.rig.complete_one(core));
        (0..2).for_each(|core| bench.rig.maintain(core));
        let found = crash(&disk, &mut random);
        let old = found.keys().filter(|(_, key)| key.starts_with(b"key")).count();
        assert!(old == 0 || old == 50, "{old} of 50");
    }
    let found = crash(&disk, &mut random);
    assert!(!found.keys().any(|(_, key)| key.starts_with(b"key")), "it is durable now");
    bench.rig.settle();
    let found = crash(&disk, &mut random);
    let keys: Vec<&[u8]> = found.keys().map(|(_, key)| &key[..]).collect();
    assert_eq!(keys, put_after);
    for _ in 0..300 {
        bench.rig.now.mono_ns += 10_000_000;
        (0..2).for_each(|core| bench.rig.turn(core));
    }
    let usage = bench.rig.segments.usage();
    assert!(usage.segments - usage.free <= 6, "cleared records give their space back: {usage:?}");
}

#[test]
fn exchanged_databases_stay_exchanged() {
    let geometry = geometry(&[12], 4096, true);
    let disk = SimDisk::new(&geometry, 17);
    let mut bench = Bench::new(&disk, options(1), 17);
    bench.put(b"key", b"value", None).unwrap();
    let change = bench.rig.shards[0].change_set(SetChange::Swap { a: 0, b: 5 });
    bench.rig.shards[0].request_sync();
    bench.rig.settle();
    assert_eq!(bench.rig.shards[0].set_durable(), change);
    bench.rig.shards[0].swap(0, 5);
    assert_eq!((bench.rig.shards[0].len(0), bench.rig.shards[0].len(5)), (0, 1));
    let mut random = SimRandom::new(1);
    let media = disk.power_cut(Cut::Nothing, &mut random);
    let mut after = start(&SimDisk::with_media(&geometry, media, 3), options(1));
    assert_eq!(after.contents().keys().next(), Some(&(5, b"key".to_vec())));
}
