//! The engine over simulated devices.

use std::collections::BTreeMap;

use crate::limits::SEGMENT_SIZE_BYTES;
use crate::shard::index::KeyHash;
use crate::shard::log::RECORD_SIZE_MAX;
use crate::shard::open::OpenError;
use crate::shard::set::SetChange;
use crate::shard::view::Kind;
use crate::shard::{AppendError, Lsn, ReadError, Shard, UnitOp, UnitWrite};
use crate::testing::disk::{Cut, SimDisk, SimRandom};
use crate::testing::rig::{Contents, Rig, RigOptions, StartError, geometry};

/// What one append did, on the core of its keys.
struct Step {
    core: usize,
    lsn: Lsn,
    writes: Vec<((u8, Vec<u8>), Option<(Vec<u8>, Option<u64>)>)>,
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
                UnitOp::Delete => None,
            };
            ((0, write.key.to_vec()), value)
        };
        let writes = writes.iter().map(of_write).collect();
        self.model.steps.push(Step { core, lsn, writes });
        Ok(lsn)
    }

    /// A random write. Busy is answered by turns until there is room.
    fn step(&mut self, keys: usize, large: usize) {
        let key = |random: &mut SimRandom| format!("key{}", random.below(keys)).into_bytes();
        let names: Vec<Vec<u8>> = (0..4).map(|_| key(&mut self.random)).collect();
        let len = match self.random.below(4) {
            0 => self.random.below(large),
            _ => self.random.below(300),
        };
        let value = vec![self.random.next() as u8; len];
        let expire = (self.random.below(8) == 0).then_some(2_000_000 + len as u64);
        let choice = self.random.below(10);
        loop {
            let result = match choice {
                0 | 1 => self.delete(&names[0]).map(|_| ()),
                2 => self.unit(&names, &value[..len.min(2000)]).map(|_| ()),
                _ => self.put(&names[0], &value, expire).map(|_| ()),
            };
            match result {
                Ok(()) => return,
                Err(AppendError::Busy) => {
                    (0..self.rig.shards.len()).for_each(|core| self.rig.turn(core));
                }
                Err(error) => panic!("{error}"),
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
        let disk = SimDisk::with_media(&geometry, media, self.random.next());
        let mut after = start(&disk, options);
        let found = after.contents();
        let cores = self.rig.shards.len() as u32;
        let hash = |key: &[u8]| self.rig.shards[0].hash(key);
        let home = |key: &[u8]| hash(key).core(cores) as usize;
        assert!(self.model.allows(&found, &home, floors), "{cut:?}: {}", self.explain(&found));
        if self.random.below(4) == 0 {
            let media = disk.power_cut(Cut::Nothing, &mut self.random);
            let disk = SimDisk::with_media(&geometry, media, self.random.next());
            let mut again = start(&disk, RigOptions { cores: 1, ..options });
            assert_eq!(again.contents().len(), found.len(), "a second recovery");
            assert!(again.contents() == found, "a second recovery finds other values");
        }
    }

    fn explain(&self, found: &Contents) -> String {
        let now = self.model.now();
        let differs =
            |(key, _): &(&(u8, Vec<u8>), &(Vec<u8>, Option<u64>))| found.get(*key) != now.get(*key);
        let keys = now.iter().filter(differs).map(|(key, _)| String::from_utf8_lossy(&key.1));
        let keys: Vec<_> = keys.collect();
        format!("{} found, {} expected, different: {keys:?}", found.len(), now.len())
    }
}

impl Rig {
    fn disk_geometry(&self) -> Vec<crate::disk::Geometry> {
        crate::disk::Disk::geometry(&self.ports[0]).to_vec()
    }
}

fn start(disk: &SimDisk, options: RigOptions) -> Rig {
    match Rig::start(disk, options) {
        Ok(rig) => rig,
        Err(StartError::Open(error)) => panic!("{error}"),
        Err(StartError::Damage(damage)) => panic!("{damage}"),
    }
}

fn options(cores: u16) -> RigOptions {
    RigOptions { cores, ..RigOptions::default() }
}

/// Random writes with a power cut after every write and flush that is submitted or completed.
fn crash_everywhere(
    segments: &[u64],
    sector_size: u32,
    volatile_cache: bool,
    cores: u16,
    steps: usize,
    seed: u64,
) {
    let geometry = geometry(segments, sector_size, volatile_cache);
    let disk = SimDisk::new(&geometry, seed);
    let mut bench = Bench::new(&disk, options(cores), seed);
    let mut events = disk.events();
    let mut images = 0;
    for _ in 0..steps {
        for _ in 0..bench.random.below(6) {
            bench.step(40, 600_000);
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
    crash_everywhere(&[24], 512, false, 1, 60, 1);
}

#[test]
fn what_was_synced_is_there_after_any_power_cut_with_a_volatile_cache() {
    crash_everywhere(&[24], 4096, true, 1, 60, 2);
}

#[test]
fn two_devices_and_two_cores_survive_any_power_cut() {
    crash_everywhere(&[14, 18], 4096, true, 2, 60, 3);
}
