//! Some cores' shards over simulated devices, driven by hand: for tests of the storage engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Now;
use crate::disk::{Disk, Done, Geometry, Io, Op};
use crate::limits::{DATABASES, SEGMENT_SIZE_BYTES};
use crate::mem::{BufPool, LogBuf};
use crate::shard::defrag::Budget;
use crate::shard::index::{Entry, KeyHash};
use crate::shard::open::{OpenError, OpenOptions, Opened, open};
use crate::shard::recover::{Damage, Recovery};
use crate::shard::{ReadError, Segments, Shard, ShardOptions};
use crate::testing::disk::{SimDisk, SimPort, SimRandom};

/// How a rig is set up.
#[derive(Clone, Copy, Debug)]
pub struct RigOptions {
    pub cores: u16,
    pub salvage: bool,
    pub flush_size_bytes: usize,
    pub buffers: usize,
    /// Live records are moved.
    pub defrag: bool,
}

impl Default for RigOptions {
    fn default() -> RigOptions {
        RigOptions {
            cores: 1,
            salvage: false,
            flush_size_bytes: 128 << 10,
            buffers: 4,
            defrag: false,
        }
    }
}

/// Why a rig did not start.
#[derive(Debug)]
pub enum StartError {
    Open(OpenError),
    Damage(Damage),
}

/// Database and key, and what is stored there.
pub type Contents = BTreeMap<(u8, Vec<u8>), (Vec<u8>, Option<u64>)>;

/// A machine with an open set.
pub struct Rig {
    pub disk: SimDisk,
    pub ports: Vec<SimPort>,
    pub shards: Vec<Shard>,
    pub segments: Arc<Segments>,
    pub pool: BufPool,
    pub now: Now,
    pub formatted: bool,
    pub joined: Vec<String>,
    /// From opening and from the first core's recovery.
    pub notes: Vec<String>,
}

/// Devices of so many segments each.
pub fn geometry(segments: &[u64], sector_size: u32, volatile_cache: bool) -> Vec<Geometry> {
    let device = |(i, &count): (usize, &u64)| Geometry {
        name: format!("sim{i}"),
        size_bytes: count * SEGMENT_SIZE_BYTES,
        sector_size,
        volatile_cache,
    };
    segments.iter().enumerate().map(device).collect()
}

impl Rig {
    /// Opens the set of `disk`, formatting it if it is blank, and recovers all cores.
    pub fn start(disk: &SimDisk, options: RigOptions) -> Result<Rig, StartError> {
        let pool = BufPool::new(32 << 20, 0).expect("memory for the test");
        Rig::start_in(disk, options, &pool)
    }

    /// [`Rig::start`] with read buffers that are there already.
    pub fn start_in(
        disk: &SimDisk,
        options: RigOptions,
        pool: &BufPool,
    ) -> Result<Rig, StartError> {
        let mut port = disk.port();
        let mut random = SimRandom::new(disk.draw());
        let open_options = OpenOptions { cores: options.cores, salvage: options.salvage };
        let opened = open(&mut port, pool, open_options, &mut |bytes| random.fill(bytes));
        let opened = opened.map_err(StartError::Open)?;
        let mut rig = Rig {
            disk: disk.clone(),
            ports: (0..options.cores).map(|_| disk.port()).collect(),
            shards: (0..options.cores).map(|core| new_shard(core, options, &opened)).collect(),
            segments: Arc::clone(&opened.segments),
            pool: pool.clone(),
            now: Now { mono_ns: 1, unix_ms: 1_000_000 },
            formatted: opened.formatted,
            joined: opened.joined.clone(),
            notes: opened.warnings.clone(),
        };
        rig.recover(&opened, options)?;
        if options.defrag {
            rig.shards.iter_mut().for_each(|shard| shard.enable_defrag(pool.clone()));
        }
        rig.shards[0].adopt(opened.superblocks).expect("memory for the test");
        Ok(rig)
    }

    fn recover(&mut self, opened: &Opened, options: RigOptions) -> Result<(), StartError> {
        for (core, shard) in self.shards.iter_mut().enumerate() {
            let port = &mut self.ports[core];
            let plan = Arc::clone(&opened.plan);
            let mut recovery = Recovery::new(plan, self.pool.clone(), options.salvage);
            let mut done = Vec::new();
            while !recovery.step(shard, port, &mut done).map_err(StartError::Damage)?.finished {
                port.poll(&mut done);
            }
            if core == 0 {
                self.notes.extend(recovery.take_notes());
            }
        }
        Ok(())
    }

    /// The core of a key, and its hash.
    pub fn home(&self, key: &[u8]) -> (usize, KeyHash) {
        let hash = self.shards[0].hash(key);
        (hash.core(self.shards.len() as u32) as usize, hash)
    }

    /// One turn of a core without new work: maintenance, then one completion.
    pub fn turn(&mut self, core: usize) {
        self.maintain(core);
        self.complete_one(core);
    }

    pub fn maintain(&mut self, core: usize) {
        self.shards[core].maintain(&mut self.ports[core], self.now);
        let budget = Budget { background_ns: 200_000, urgent_ns: 2_000_000 };
        self.shards[core].defrag(&mut self.ports[core], self.now, budget);
    }

    pub fn complete_one(&mut self, core: usize) {
        let mut done = Vec::new();
        self.ports[core].poll(&mut done);
        done.into_iter().for_each(|done| self.shards[core].complete(done));
    }

    /// Turns of all cores, time moving on, until nothing more happens.
    pub fn settle(&mut self) {
        for _ in 0..20_000 {
            self.now.mono_ns += 1_000_000;
            (0..self.shards.len()).for_each(|core| self.turn(core));
            if self.shards.iter().all(Shard::is_idle) {
                return;
            }
        }
        panic!("the shards do not come to rest");
    }

    /// Reads a record from the device as the driver would.
    pub fn read(&mut self, core: usize, entry: &Entry, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let span = self.shards[core].read_request(entry);
        let done = self.read_span(span.device, span.offset, span.len);
        let buf = done.buf.expect("a read brings its buffer back");
        let record = self.shards[core].decode(entry, &span, &buf, key)?;
        let at = record.value_offset;
        assert_eq!(&buf[at..at + record.value.len()], record.value);
        Ok(record.value.to_vec())
    }

    fn read_span(&mut self, device: u16, offset: u64, len: u32) -> Done {
        let buf = self.pool.get(len as usize).expect("a buffer");
        let mut port = self.disk.port();
        let op = Op::Read { offset, len, buf };
        port.submit(Io { device, tag: 1, op }).expect("an empty queue");
        let mut done = Vec::new();
        port.poll(&mut done);
        done.pop().expect("one request")
    }

    /// All keys with their values, from memory where they are there, else from the device.
    pub fn contents(&mut self) -> Contents {
        let mut all = Contents::new();
        for core in 0..self.shards.len() {
            for db in 0..DATABASES as u8 {
                let before = all.len();
                for (entry, expire_at_ms) in self.entries(core, db) {
                    let (key, value) = self.record(core, &entry);
                    all.insert((db, key), (value, expire_at_ms));
                }
                assert_eq!(all.len() - before, self.shards[core].len(db), "DBSIZE");
            }
        }
        all
    }

    fn entries(&self, core: usize, db: u8) -> Vec<(Entry, Option<u64>)> {
        let mut entries = Vec::new();
        let mut cursor = 0;
        loop {
            let visit = &mut |_, entry, expire_at_ms| entries.push((entry, expire_at_ms));
            cursor = self.shards[core].scan(db, cursor, visit);
            if cursor == 0 {
                return entries;
            }
        }
    }

    fn record(&mut self, core: usize, entry: &Entry) -> (Vec<u8>, Vec<u8>) {
        if let Some(record) = self.shards[core].resident_any(entry) {
            return (record.key.to_vec(), record.value.to_vec());
        }
        let span = self.shards[core].read_request(entry);
        let done = self.read_span(span.device, span.offset, span.len);
        let buf = done.buf.expect("a read brings its buffer back");
        let record = self.shards[core].decode_any(entry, &span, &buf).expect("a whole record");
        (record.key.to_vec(), record.value.to_vec())
    }
}

fn new_shard(core: u16, options: RigOptions, opened: &Opened) -> Shard {
    let buf = |i| LogBuf::new(SEGMENT_SIZE_BYTES as usize, i as u16).expect("memory for the test");
    let shard_options = ShardOptions {
        core,
        cores: options.cores,
        seed: opened.seed,
        databases: opened.databases,
        flush_max_ms: 100,
        flush_size_bytes: options.flush_size_bytes,
    };
    let bufs = (0..options.buffers).map(buf).collect();
    Shard::new(shard_options, Arc::clone(&opened.segments), bufs).expect("memory for the test")
}
