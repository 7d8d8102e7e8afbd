//! The segments of all devices, shared by all cores: who lives where, what is dead, what is free.
//!
//! Counters are atomics; the mutex guards the lists of free and of empty segments, which are
//! touched once in the life of a segment.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limits::{DATABASES, RECORD_UNIT_BYTES, SEGMENT_SIZE_BYTES};
use crate::shard::jobs::{Job, Jobs};
use crate::shard::pace::Pace;
use crate::shard::record::{Lsn, TOMBSTONE_UNITS};
use crate::shard::segment::{Epoch, Header, SEGMENT_UNITS, SetId, State, seed, set_seed};

/// A member of the set.
#[derive(Clone, Debug)]
pub struct Device {
    /// The name that the user gave.
    pub name: String,
    /// Position among the devices of [`crate::disk::Disk`].
    pub disk: u16,
    /// Number of segments; the first holds the superblocks.
    pub segments: u32,
    /// Number of its first segment in the set.
    pub first: u32,
}

/// What all cores need to know of an open set.
#[derive(Clone, Debug)]
pub struct SetInfo {
    pub set: SetId,
    /// How often the set was opened, this time included.
    pub run: u32,
    /// Sector that the set was formatted for, in bytes.
    pub sector_size: u32,
    /// Some device keeps completed writes in a volatile cache until a flush.
    pub volatile_cache: bool,
    /// In the order of the set.
    pub devices: Vec<Device>,
    /// Number of cores of this run.
    pub cores: u16,
    /// Every record of this run is above it.
    pub start: Lsn,
    /// Records of a physical database up to its horizon are dead.
    pub horizons: [Lsn; DATABASES],
}

/// Where a segment is in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    pub member: u16,
    /// Number on its device.
    pub segment: u32,
}

/// What a segment is to the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Life {
    /// Holds superblocks, never records.
    Reserved = 0,
    Free = 1,
    /// Being filled, or not all on the device.
    Open = 2,
    Sealed = 3,
    /// Sealed without a live record; its freeing is under way.
    Empty = 4,
    /// Its live records are being moved. Nobody frees it meanwhile.
    Victim = 5,
    /// Its FREE header is on the way to the device.
    Freeing = 6,
}

impl Life {
    fn from_bits(bits: u8) -> Life {
        match bits {
            1 => Life::Free,
            2 => Life::Open,
            3 => Life::Sealed,
            4 => Life::Empty,
            5 => Life::Victim,
            6 => Life::Freeing,
            _ => Life::Reserved,
        }
    }
}

#[derive(Debug, Default)]
struct Slot {
    epoch: AtomicU64,
    base: AtomicU64,
    /// Superseded values: records in the upper half, their units in the lower.
    dead: AtomicU64,
    /// Values, their units as [`Segments::release`] counts them, tombstones, and the unit behind
    /// the last record; set when the segment is sealed.
    values: AtomicU32,
    units: AtomicU32,
    tombstones: AtomicU32,
    end: AtomicU32,
    /// Tombstones that are known to hide nothing any more.
    idle: AtomicU32,
    core: AtomicU32,
    /// How often the segment was found empty; tells one such find from another.
    finds: AtomicU32,
    life: AtomicU8,
    /// Its records have been moved as far as they can be: not to be chosen again in this life.
    skipped: AtomicBool,
}

/// Who wants a segment. The later ones may reach deeper into the free ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    #[default]
    Put,
    /// Only deletes: they make room.
    Delete,
    /// Moved records: they make room at once.
    Move,
}

/// What a sealed segment holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub values: u32,
    /// As [`Segments::release`] counts them.
    pub units: u32,
    pub tombstones: u32,
    /// Unit behind the last record.
    pub end: u32,
}

/// What moving the live records of a segment costs and gives, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    pub cost: u32,
    pub gain: u32,
}

/// How far one core's log is; on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct CoreMark {
    appended: AtomicU64,
    durable: AtomicU64,
    /// Another core waits until this much is durable.
    wanted: AtomicU64,
    /// The segment that was sealed last in this run.
    last_sealed: AtomicU32,
    /// Segments taken in this run that are not sealed: the open one, and those being written.
    unsealed: AtomicU32,
    recovered: AtomicBool,
}

impl CoreMark {
    fn new(start: Lsn) -> CoreMark {
        CoreMark {
            appended: AtomicU64::new(start.0),
            durable: AtomicU64::new(start.0),
            wanted: AtomicU64::new(0),
            last_sealed: AtomicU32::new(NO_SEGMENT),
            unsealed: AtomicU32::new(0),
            recovered: AtomicBool::new(false),
        }
    }
}

#[derive(Debug)]
struct Lists {
    /// Free segments of each device.
    free: Vec<Vec<u32>>,
    /// What each device is owed, in segments times free segments: see [`Lists::pick`].
    credits: Vec<i64>,
    /// Segments without a live record that no core has taken up yet.
    empty: Vec<u32>,
}

impl Lists {
    /// The device that gives the next segment. Each has its share of them in proportion to its
    /// free ones, spread evenly (smooth weighted round-robin): devices of any size fill up
    /// together, and one that has joined later catches up.
    fn pick(&mut self) -> Option<usize> {
        let mut total = 0;
        let mut best: Option<usize> = None;
        for (device, free) in self.free.iter().enumerate() {
            let weight = free.len() as i64;
            if weight == 0 {
                continue;
            }
            total += weight;
            self.credits[device] += weight;
            if best.is_none_or(|best| self.credits[device] > self.credits[best]) {
                best = Some(device);
            }
        }
        self.credits[best?] -= total;
        best
    }
}

/// A fresh life of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    pub segment: u32,
    pub epoch: Epoch,
}

/// What a core has to see durable on every core before a segment may be reused.
pub type Fence = Box<[Lsn]>;

/// Counts of the whole set, for INFO and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub segments: u32,
    pub free: u32,
    /// Being filled, or not all on the device.
    pub open: u32,
    pub sealed: u32,
    /// Without live records, on their way to be free.
    pub empty: u32,
    /// Being emptied by defrag.
    pub victims: u32,
    /// Units of values in sealed segments, and how many of them are superseded.
    pub value_units: u64,
    pub dead_units: u64,
    pub tombstones: u64,
}

/// The table. One per process.
#[derive(Debug)]
pub struct Segments {
    info: SetInfo,
    set_seed: u32,
    slots: Box<[Slot]>,
    marks: Box<[CoreMark]>,
    lists: Mutex<Lists>,
    free: AtomicU32,
    empty: AtomicU32,
    /// Segments without live records that are not yet free.
    coming: AtomicU32,
    /// Times that a segment became free.
    freed: AtomicU64,
    /// Times that a segment was sealed.
    sealed: AtomicU64,
    /// Free segments that puts, and deletes, leave for the others.
    put_reserve: u32,
    delete_reserve: u32,
    pub(super) jobs: Jobs,
    pub(super) pace: Pace,
    epoch: AtomicU64,
    /// Above every LSN that may be in use or promised to a flush.
    ceiling: AtomicU64,
    horizons: [AtomicU64; DATABASES],
}

/// Values of a segment that is not sealed or not yet recovered: no count of dead ones equals it.
const UNCOUNTED: u32 = u32::MAX;
const NO_SEGMENT: u32 = u32::MAX;

/// Distance that a flush of a database keeps from every LSN in use: more than any core appends
/// before it has heard of the flush.
const HORIZON_MARGIN: u64 = 1 << 32;

impl Segments {
    /// A table of a set from the headers that could be read. A segment without one is left out.
    pub fn new(info: SetInfo, headers: &[(u32, Header)]) -> Segments {
        let total: u32 = info.devices.iter().map(|device| device.segments).sum();
        let cores = usize::from(info.cores);
        let slots: Box<[Slot]> = (0..total).map(|_| Slot::default()).collect();
        for &(segment, header) in headers {
            let slot = &slots[segment as usize];
            let life = match header.state {
                State::Free => Life::Free,
                State::Data => Life::Sealed,
            };
            slot.life.store(life as u8, Ordering::Relaxed);
            slot.epoch.store(header.epoch.0, Ordering::Relaxed);
            slot.base.store(header.base.0, Ordering::Relaxed);
            slot.core.store(u32::from(header.core), Ordering::Relaxed);
            slot.values.store(UNCOUNTED, Ordering::Relaxed);
        }
        let mut free = Vec::new();
        for device in &info.devices {
            // The lists are stacks: the lowest number is taken first.
            let numbers = (device.first + 1..device.first + device.segments).rev();
            let life = |n: &u32| slots[*n as usize].life.load(Ordering::Relaxed);
            free.push(numbers.filter(|n| life(n) == Life::Free as u8).collect::<Vec<u32>>());
        }
        let free_count = free.iter().map(Vec::len).sum::<usize>() as u32;
        Segments {
            set_seed: set_seed(info.set),
            slots,
            marks: (0..cores).map(|_| CoreMark::new(info.start)).collect(),
            lists: Mutex::new(Lists { credits: vec![0; free.len()], free, empty: Vec::new() }),
            free: AtomicU32::new(free_count),
            empty: AtomicU32::new(0),
            coming: AtomicU32::new(0),
            freed: AtomicU64::new(0),
            sealed: AtomicU64::new(0),
            put_reserve: put_reserve(total, info.cores),
            delete_reserve: delete_reserve(info.cores),
            jobs: Jobs::new(),
            pace: Pace::default(),
            epoch: AtomicU64::new(Epoch::start_of_run(info.run).0),
            ceiling: AtomicU64::new(info.start.0 + HORIZON_MARGIN),
            horizons: info.horizons.map(|lsn| AtomicU64::new(lsn.0)),
            info,
        }
    }

    pub fn info(&self) -> &SetInfo {
        &self.info
    }

    pub fn sector_size(&self) -> usize {
        self.info.sector_size as usize
    }

    /// Walks over the whole table: for INFO.
    pub fn usage(&self) -> Usage {
        let mut usage =
            Usage { segments: self.count(), free: self.free_segments(), ..Usage::default() };
        for slot in &self.slots {
            match Life::from_bits(slot.life.load(Ordering::Relaxed)) {
                Life::Reserved | Life::Free => continue,
                Life::Open => {
                    usage.open += 1;
                    continue;
                }
                Life::Sealed => usage.sealed += 1,
                Life::Empty | Life::Freeing => usage.empty += 1,
                Life::Victim => usage.victims += 1,
            }
            usage.value_units += u64::from(slot.units.load(Ordering::Relaxed));
            usage.dead_units += slot.dead_units();
            usage.tombstones += u64::from(slot.tombstones.load(Ordering::Relaxed));
        }
        usage
    }

    /// Segments for records, whatever is in them.
    pub fn count(&self) -> u32 {
        (self.slots.len() - self.info.devices.len()) as u32
    }

    /// All numbers of segments are below.
    pub fn numbers(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn free_segments(&self) -> u32 {
        self.free.load(Ordering::Relaxed)
    }

    /// Jobs of defrag that have ended, and how many of them have left something behind.
    pub fn jobs_ended(&self) -> (u64, u64) {
        self.jobs.ended()
    }

    /// Times that a segment became free.
    pub fn times_freed(&self) -> u64 {
        self.freed.load(Ordering::Relaxed)
    }

    /// Times that a segment was sealed.
    pub fn times_sealed(&self) -> u64 {
        self.sealed.load(Ordering::Relaxed)
    }

    /// Whether a segment that is full is on its way to be sealed.
    pub fn is_sealing(&self) -> bool {
        self.marks.iter().any(|mark| mark.unsealed.load(Ordering::Relaxed) > 1)
    }

    /// Which member of the set a segment belongs to, and its number there.
    pub fn member_place(&self, segment: u32) -> MemberPlace {
        let member = self.info.devices.iter().rposition(|device| device.first <= segment);
        let member = member.expect("the first device starts at segment 0");
        let segment = segment - self.info.devices[member].first;
        MemberPlace { member: member as u16, segment }
    }

    /// The device of a segment and the segment's offset there in bytes.
    pub fn place(&self, segment: u32) -> (&Device, u64) {
        let place = self.member_place(segment);
        let device = &self.info.devices[usize::from(place.member)];
        (device, u64::from(place.segment) * SEGMENT_SIZE_BYTES)
    }

    /// The user's name of a device by its position among the devices of the disk.
    pub fn disk_name(&self, disk: u16) -> &str {
        let device = self.info.devices.iter().find(|device| device.disk == disk);
        device.map_or("a device", |device| &device.name)
    }

    /// Segment and offset in it, in units, of a location in the index.
    pub fn split(location: u64) -> (u32, u32) {
        let units = u64::from(SEGMENT_UNITS);
        ((location / units) as u32, (location % units) as u32)
    }

    /// The location of a unit of a segment.
    pub fn location(segment: u32, unit: u32) -> u64 {
        u64::from(segment) * u64::from(SEGMENT_UNITS) + u64::from(unit)
    }

    pub fn epoch(&self, segment: u32) -> Epoch {
        Epoch(self.slots[segment as usize].epoch.load(Ordering::Acquire))
    }

    /// Epoch and first LSN of a segment.
    pub fn life_start(&self, segment: u32) -> (Epoch, Lsn) {
        let base = self.slots[segment as usize].base.load(Ordering::Relaxed);
        (self.epoch(segment), Lsn(base))
    }

    /// Checksum seed of a life of a segment.
    pub fn seed(&self, epoch: Epoch) -> u32 {
        seed(self.set_seed, epoch)
    }

    pub fn life(&self, segment: u32) -> Life {
        Life::from_bits(self.slots[segment as usize].life.load(Ordering::SeqCst))
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`Segments::allocate`] would succeed now.
    pub fn can_allocate(&self, tier: Tier) -> bool {
        let reserve = match tier {
            Tier::Put => self.put_reserve,
            Tier::Delete => self.delete_reserve,
            Tier::Move => 0,
        };
        self.free_segments() > reserve
    }

    /// Free segments that puts may still take.
    pub fn headroom(&self) -> u32 {
        self.free_segments().saturating_sub(self.put_reserve)
    }

    /// Takes a free segment for a core's log.
    pub fn allocate(&self, core: u16, base: Lsn, tier: Tier) -> Option<Allocated> {
        let mut lists = self.lists();
        if !self.can_allocate(tier) {
            return None;
        }
        let member = lists.pick()?;
        let segment = lists.free[member].pop()?;
        self.free.fetch_sub(1, Ordering::Relaxed);
        let epoch = Epoch(self.epoch.fetch_add(1, Ordering::Relaxed) + 1);
        let slot = &self.slots[segment as usize];
        slot.base.store(base.0, Ordering::Relaxed);
        slot.core.store(u32::from(core), Ordering::Relaxed);
        slot.dead.store(0, Ordering::Relaxed);
        slot.values.store(UNCOUNTED, Ordering::Relaxed);
        slot.units.store(0, Ordering::Relaxed);
        slot.tombstones.store(0, Ordering::Relaxed);
        slot.idle.store(0, Ordering::Relaxed);
        slot.skipped.store(false, Ordering::Relaxed);
        slot.epoch.store(epoch.0, Ordering::Release);
        slot.life.store(Life::Open as u8, Ordering::SeqCst);
        self.marks[usize::from(core)].unsealed.fetch_add(1, Ordering::Relaxed);
        self.ceiling.fetch_max(base.0 + HORIZON_MARGIN, Ordering::Relaxed);
        Some(Allocated { segment, epoch })
    }

    /// Counts a value as superseded: its key has been overwritten or deleted.
    pub fn release(&self, segment: u32, units: u32) {
        let slot = &self.slots[segment as usize];
        slot.dead.fetch_add(1 << 32 | u64::from(units), Ordering::SeqCst);
        self.note_if_empty(segment);
    }

    /// Counts a value as expired for good: it is dead and hides what is older, as a tombstone does.
    pub fn expire(&self, segment: u32, units: u32) {
        self.slots[segment as usize].tombstones.fetch_add(1, Ordering::SeqCst);
        self.release(segment, units);
    }

    /// All records are complete on the device and counted.
    pub fn seal(&self, segment: u32, counts: Counts) {
        let slot = &self.slots[segment as usize];
        slot.tombstones.fetch_add(counts.tombstones, Ordering::SeqCst);
        slot.units.store(counts.units, Ordering::SeqCst);
        slot.end.store(counts.end, Ordering::SeqCst);
        slot.values.store(counts.values, Ordering::SeqCst);
        slot.life.store(Life::Sealed as u8, Ordering::SeqCst);
        let core = slot.core.load(Ordering::SeqCst) as usize;
        self.marks[core].last_sealed.store(segment, Ordering::SeqCst);
        self.marks[core].unsealed.fetch_sub(1, Ordering::Relaxed);
        self.sealed.fetch_add(1, Ordering::Relaxed);
        self.note_if_empty(segment);
    }

    /// What recovery found in a segment of an earlier run. Every core says so before it releases
    /// any of its values; `first` is given by one core only.
    pub fn recount(&self, segment: u32, values: u32, tombstones: u32, first: bool) {
        let slot = &self.slots[segment as usize];
        slot.values.store(values, Ordering::SeqCst);
        if first {
            slot.tombstones.fetch_add(tombstones, Ordering::SeqCst);
            self.note_if_empty(segment);
        }
    }

    /// Completes what [`Segments::recount`] said; by one core only.
    pub fn measure(&self, segment: u32, units: u32, end: u32) {
        let slot = &self.slots[segment as usize];
        slot.units.store(units, Ordering::SeqCst);
        slot.end.store(end, Ordering::SeqCst);
    }

    /// Whether it is the last sealed segment of its core in this run. It has to stay, because
    /// the next one says in its header that it follows this one, and recovery looks for that.
    pub fn is_last_sealed(&self, segment: u32) -> bool {
        self.marks.iter().any(|mark| mark.last_sealed.load(Ordering::SeqCst) == segment)
    }

    fn note_if_empty(&self, segment: u32) {
        let slot = &self.slots[segment as usize];
        let dead = (slot.dead.load(Ordering::SeqCst) >> 32) as u32;
        if dead != slot.values.load(Ordering::SeqCst) {
            return;
        }
        let (from, to) = (Life::Sealed as u8, Life::Empty as u8);
        if slot.life.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            slot.finds.fetch_add(1, Ordering::SeqCst);
            self.lists().empty.push(segment);
            self.empty.fetch_add(1, Ordering::Relaxed);
            self.coming.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Hands out a segment without live records that somebody should free, and the find.
    pub fn take_empty(&self) -> Option<(u32, u32)> {
        if self.empty.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let segment = self.lists().empty.pop()?;
        self.empty.fetch_sub(1, Ordering::Relaxed);
        Some((segment, self.slots[segment as usize].finds.load(Ordering::SeqCst)))
    }

    /// Whether segments without live records wait to be taken up or freed.
    pub fn has_empty(&self) -> bool {
        self.coming.load(Ordering::Relaxed) > 0
    }

    /// Whether a find of [`Segments::take_empty`] is still to be freed: defrag may have taken the
    /// segment, and finds it empty once more afterwards.
    pub fn is_empty_find(&self, segment: u32, find: u32) -> bool {
        let current = self.slots[segment as usize].finds.load(Ordering::SeqCst) == find;
        current && self.life(segment) == Life::Empty
    }

    /// Takes an empty segment out of everybody's reach before its FREE header is written.
    pub fn begin_free(&self, segment: u32) -> bool {
        self.change_life(segment, Life::Empty, Life::Freeing)
    }

    fn change_life(&self, segment: u32, from: Life, to: Life) -> bool {
        let life = &self.slots[segment as usize].life;
        life.compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// What emptying a segment would be worth; None when that is not to be done.
    pub fn worth(&self, segment: u32) -> Option<Worth> {
        let slot = &self.slots[segment as usize];
        let life = Life::from_bits(slot.life.load(Ordering::Relaxed));
        if !matches!(life, Life::Sealed | Life::Empty) || slot.skipped.load(Ordering::Relaxed) {
            return None;
        }
        let dead = slot.dead_units() as u32;
        let live = slot.units.load(Ordering::Relaxed).saturating_sub(dead);
        let idle = slot.idle.load(Ordering::Relaxed);
        let hiding = slot.tombstones.load(Ordering::Relaxed).saturating_sub(idle);
        if life == Life::Empty && hiding == 0 {
            return None;
        }
        let end = slot.end.load(Ordering::Relaxed);
        // A tail that was never filled counts only when two such segments fit into one.
        let tail = if end < SEGMENT_UNITS / 2 { SEGMENT_UNITS - end } else { 0 };
        let gain = dead + tail + idle * TOMBSTONE_UNITS;
        Some(Worth { cost: live + hiding * CARRIED_UNITS, gain })
    }

    /// Makes a segment the victim of a job. False when it is not to be had any more.
    pub fn start_job(&self, segment: u32) -> bool {
        if self.is_last_sealed(segment) {
            return false;
        }
        let empty = self.change_life(segment, Life::Empty, Life::Victim);
        if empty {
            self.coming.fetch_sub(1, Ordering::Relaxed);
        }
        let taken = empty || self.change_life(segment, Life::Sealed, Life::Victim);
        if taken {
            let cores = if self.is_shared(segment) { u32::from(self.info.cores) } else { 1 };
            // In a large table the answer is not worth the walk: tombstones are few bytes.
            let carry = self.has_tombstones(segment)
                && (self.slots.len() > IDLE_WALK_MAX || !self.tombstones_are_idle(segment));
            self.jobs.start(segment, cores, carry);
        }
        taken
    }

    /// One core has moved what it could. `complete`: nothing of its own is left behind.
    pub(super) fn finish_job(&self, job: &Job, complete: bool) {
        let Some(complete) = self.jobs.finish(job, complete) else { return };
        let slot = &self.slots[job.segment as usize];
        slot.skipped.store(true, Ordering::SeqCst);
        if complete {
            slot.tombstones.store(0, Ordering::SeqCst);
            slot.idle.store(0, Ordering::SeqCst);
        }
        slot.life.store(Life::Sealed as u8, Ordering::SeqCst);
        self.note_if_empty(job.segment);
        self.jobs.clear(job);
    }

    /// Whether a segment may hold keys of a core.
    pub fn concerns(&self, segment: u32, core: u16) -> bool {
        let filled_by = self.slots[segment as usize].core.load(Ordering::Relaxed);
        self.is_shared(segment) || filled_by == u32::from(core)
    }

    /// Earlier runs may have had another number of cores.
    fn is_shared(&self, segment: u32) -> bool {
        self.epoch(segment).run() != self.info.run
    }

    /// Values and tombstones of a sealed segment.
    pub fn entries(&self, segment: u32) -> u32 {
        let slot = &self.slots[segment as usize];
        let values = slot.values.load(Ordering::Relaxed);
        values.saturating_add(slot.tombstones.load(Ordering::Relaxed))
    }

    /// What every core has appended by now.
    pub fn fence(&self) -> Fence {
        self.marks.iter().map(|mark| Lsn(mark.appended.load(Ordering::SeqCst))).collect()
    }

    /// Whether all that the fence names is durable; cores that are behind are asked to hurry.
    pub fn passed(&self, fence: &Fence) -> bool {
        let mut passed = true;
        for (mark, lsn) in self.marks.iter().zip(fence) {
            if mark.durable.load(Ordering::Acquire) < lsn.0 {
                mark.wanted.fetch_max(lsn.0, Ordering::Relaxed);
                passed = false;
            }
        }
        passed
    }

    pub fn set_appended(&self, core: u16, lsn: Lsn) {
        self.marks[usize::from(core)].appended.store(lsn.0, Ordering::Release);
    }

    pub fn set_durable(&self, core: u16, lsn: Lsn) {
        self.marks[usize::from(core)].durable.store(lsn.0, Ordering::Release);
    }

    /// Up to where other cores wait for this core's log.
    pub fn wanted(&self, core: u16) -> Lsn {
        Lsn(self.marks[usize::from(core)].wanted.load(Ordering::Relaxed))
    }

    pub fn has_tombstones(&self, segment: u32) -> bool {
        let slot = &self.slots[segment as usize];
        slot.tombstones.load(Ordering::SeqCst) > slot.idle.load(Ordering::SeqCst)
    }

    /// Whether a segment's tombstones can be forgotten: no older segment holds a dead version
    /// that one of them may be hiding. Within a run only the same core had the same keys.
    pub fn tombstones_are_idle(&self, segment: u32) -> bool {
        let slot = &self.slots[segment as usize];
        !self.slots.iter().any(|other| {
            let live = Life::from_bits(other.life.load(Ordering::SeqCst));
            let allocated = !matches!(live, Life::Reserved | Life::Free);
            allocated && other.dead.load(Ordering::SeqCst) != 0 && other.is_older(slot)
        })
    }

    /// The segment's header says FREE, durably: it may be used again.
    pub fn freed(&self, segment: u32) {
        let slot = &self.slots[segment as usize];
        slot.dead.store(0, Ordering::SeqCst);
        if slot.life.swap(Life::Free as u8, Ordering::SeqCst) == Life::Freeing as u8 {
            self.coming.fetch_sub(1, Ordering::Relaxed);
        }
        let member = usize::from(self.member_place(segment).member);
        self.lists().free[member].push(segment);
        self.free.fetch_add(1, Ordering::Relaxed);
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    /// The header with which a segment is given back.
    pub fn free_header(&self, segment: u32) -> Header {
        let slot = &self.slots[segment as usize];
        let place = self.member_place(segment);
        Header {
            set: self.info.set,
            device: place.member,
            segment: place.segment,
            state: State::Free,
            epoch: self.epoch(segment),
            core: slot.core.load(Ordering::Relaxed) as u16,
            base: Lsn(slot.base.load(Ordering::Relaxed)),
            previous: Lsn(0),
            durable: Lsn(0),
        }
    }

    /// An LSN above all that any core can use before it has heard of it: the horizon of a flush
    /// of a database.
    pub fn new_horizon(&self) -> Lsn {
        Lsn(self.ceiling.fetch_add(HORIZON_MARGIN, Ordering::Relaxed))
    }

    /// The horizon of a physical database that is durable in the superblocks.
    pub fn horizon(&self, db: u8) -> Lsn {
        Lsn(self.horizons[usize::from(db)].load(Ordering::Acquire))
    }

    pub fn set_horizon(&self, db: u8, lsn: Lsn) {
        self.horizons[usize::from(db)].fetch_max(lsn.0, Ordering::Release);
    }

    /// One core has rebuilt its index.
    pub fn set_recovered(&self, core: u16) {
        self.marks[usize::from(core)].recovered.store(true, Ordering::SeqCst);
    }

    /// All cores have, so that the counts are complete.
    pub fn is_recovered(&self) -> bool {
        self.marks.iter().all(|mark| mark.recovered.load(Ordering::SeqCst))
    }
}

impl Slot {
    fn dead_units(&self) -> u64 {
        self.dead.load(Ordering::Relaxed) & u64::from(u32::MAX)
    }

    fn is_older(&self, other: &Slot) -> bool {
        let run = |slot: &Slot| Epoch(slot.epoch.load(Ordering::Relaxed)).run();
        let (mine, theirs) = (run(self), run(other));
        let core = |slot: &Slot| slot.core.load(Ordering::Relaxed);
        let base = |slot: &Slot| slot.base.load(Ordering::Relaxed);
        mine < theirs || (mine == theirs && core(self) == core(other) && base(self) < base(other))
    }
}

/// What defrag needs to finish one segment whatever happens: every core may have to open a
/// segment for the records that it moves, and one more is under way.
fn delete_reserve(cores: u16) -> u32 {
    u32::from(cores) + 1
}

/// What puts leave: room for the tombstones that empty a full device.
fn put_reserve(segments: u32, cores: u16) -> u32 {
    delete_reserve(cores) + 1 + segments / 512
}

/// Segments up to which a job looks whether tombstones can be dropped.
const IDLE_WALK_MAX: usize = 16_384;
/// A tombstone that is written again: record and footer entry.
const CARRIED_UNITS: u32 = TOMBSTONE_UNITS + 1;

const _: () = assert!(SEGMENT_SIZE_BYTES == SEGMENT_UNITS as u64 * RECORD_UNIT_BYTES);
