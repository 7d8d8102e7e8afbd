//! Simulated devices in memory: requests complete in random order or at their simulated time, a
//! power cut leaves any part of what was not durable, and requests go wrong as [`Faults`] says.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::disk::{Counts, Disk, Done, Errno, Geometry, Io, Op};
use crate::testing::faults::{Faults, Injected, Timing, WriteFault};

/// Errno of a simulated failure: EIO.
const EIO: Errno = Errno(5);

/// Pseudo-random numbers (xorshift64*, Vigna 2016): the same seed gives the same run.
#[derive(Clone, Debug)]
pub struct SimRandom(u64);

impl SimRandom {
    pub fn new(seed: u64) -> SimRandom {
        SimRandom(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.draw()) * n as u128) >> 64) as usize
    }

    /// True so many times in a million.
    pub fn chance(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million as usize
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.draw() as u8);
    }
}

/// Contents of a device: sectors that are not zero, by number.
#[derive(Clone, Debug, Default)]
pub struct Media {
    sectors: HashMap<u64, Rc<[u8]>>,
}

impl Media {
    /// The lines of 16 bytes that are not zero, as text: offset and contents in hexadecimal.
    pub fn to_text(&self) -> String {
        let mut numbers: Vec<u64> = self.sectors.keys().copied().collect();
        numbers.sort_unstable();
        let mut text = String::new();
        for number in numbers {
            let sector = &self.sectors[&number];
            for (i, line) in sector.chunks(16).enumerate() {
                if line.iter().any(|&byte| byte != 0) {
                    let offset = number * sector.len() as u64 + 16 * i as u64;
                    let bytes = line.iter().map(|byte| format!("{byte:02x}"));
                    text += &format!("{offset:x} {}\n", bytes.collect::<String>());
                }
            }
        }
        text
    }

    /// The opposite of [`Media::to_text`]; None when the text is not of that form.
    pub fn from_text(text: &str, sector_size: usize) -> Option<Media> {
        let mut sectors: HashMap<u64, Vec<u8>> = HashMap::new();
        for line in text.lines() {
            let (offset, bytes) = line.split_once(' ')?;
            let offset = u64::from_str_radix(offset, 16).ok()?;
            let (number, at) = (offset / sector_size as u64, offset as usize % sector_size);
            let sector = sectors.entry(number).or_insert_with(|| vec![0; sector_size]);
            for (i, byte) in sector.get_mut(at..at + 16)?.iter_mut().enumerate() {
                *byte = u8::from_str_radix(bytes.get(2 * i..2 * i + 2)?, 16).ok()?;
            }
        }
        let sectors = sectors.into_iter().map(|(number, bytes)| (number, bytes.into()));
        Some(Media { sectors: sectors.collect() })
    }

    fn write(&mut self, sector: u64, bytes: &[u8]) {
        self.sectors.insert(sector, bytes.into());
    }

    fn read(&self, sector: u64, out: &mut [u8]) {
        match self.sectors.get(&sector) {
            Some(bytes) => out.copy_from_slice(bytes),
            None => out.fill(0),
        }
    }
}

/// How much of what was not durable a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing.
    Nothing,
    /// All that was submitted.
    Everything,
    /// Some of the writes, each whole.
    Writes,
    /// Some of the sectors.
    Sectors,
}

/// A write that has completed into a volatile cache, sector by sector.
#[derive(Debug)]
struct Cached {
    number: u64,
    sector: u64,
    bytes: Rc<[u8]>,
}

#[derive(Debug)]
struct Device {
    geometry: Geometry,
    /// What a read returns.
    visible: Media,
    /// What survives a power cut.
    durable: Media,
    cached: Vec<Cached>,
}

#[derive(Debug)]
struct Pending {
    port: usize,
    /// Completed writes when a flush was submitted.
    completed: u64,
    /// Simulated time at which it ends, if time is simulated.
    due_ns: u64,
    io: Io,
}

#[derive(Debug)]
struct State {
    devices: Vec<Device>,
    pending: Vec<Pending>,
    random: SimRandom,
    completed: u64,
    ports: usize,
    /// Requests that may be in flight per port.
    depth: usize,
    fail_writes: bool,
    faults: Faults,
    injected: Injected,
    timing: Option<Timing>,
    events: u64,
    written_bytes: u64,
}

/// All devices of a machine. Cheap to clone; clones are the same machine.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Rc<RefCell<State>>,
}

/// One core's access to the devices.
#[derive(Debug)]
pub struct SimPort {
    state: Rc<RefCell<State>>,
    geometry: Vec<Geometry>,
    number: usize,
    counts: Counts,
}

impl SimPort {
    pub fn number(&self) -> usize {
        self.number
    }
}

impl SimDisk {
    /// Blank devices.
    pub fn new(geometry: &[Geometry], seed: u64) -> SimDisk {
        let media = vec![Media::default(); geometry.len()];
        SimDisk::with_media(geometry, media, seed)
    }

    /// Devices with contents, as after a power cut.
    pub fn with_media(geometry: &[Geometry], media: Vec<Media>, seed: u64) -> SimDisk {
        assert_eq!(geometry.len(), media.len());
        let device = |(geometry, media): (&Geometry, Media)| Device {
            geometry: geometry.clone(),
            visible: media.clone(),
            durable: media,
            cached: Vec::new(),
        };
        let state = State {
            devices: geometry.iter().zip(media).map(device).collect(),
            pending: Vec::new(),
            random: SimRandom::new(seed),
            completed: 0,
            ports: 0,
            depth: 32,
            fail_writes: false,
            faults: Faults::default(),
            injected: Injected::default(),
            timing: None,
            events: 0,
            written_bytes: 0,
        };
        SimDisk { state: Rc::new(RefCell::new(state)) }
    }

    pub fn port(&self) -> SimPort {
        let mut state = self.state.borrow_mut();
        state.ports += 1;
        let geometry = state.devices.iter().map(|device| device.geometry.clone()).collect();
        SimPort {
            state: Rc::clone(&self.state),
            geometry,
            number: state.ports - 1,
            counts: Counts::default(),
        }
    }

    /// Random bits of this machine.
    pub fn draw(&self) -> u64 {
        self.state.borrow_mut().random.draw()
    }

    /// Requests that a port may have in flight.
    pub fn set_depth(&self, depth: usize) {
        self.state.borrow_mut().depth = depth;
    }

    /// Writes and flushes fail from now on, without effect.
    pub fn fail_writes(&self) {
        self.state.borrow_mut().fail_writes = true;
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state.borrow_mut().faults = faults;
    }

    pub fn injected(&self) -> Injected {
        self.state.borrow().injected
    }

    /// With a timing, requests end at their time, all that are due at once; without, each poll
    /// ends one of them.
    pub fn set_timing(&self, timing: Option<Timing>) {
        self.state.borrow_mut().timing = timing;
    }

    /// When the next request of a port, or of all ports, ends.
    pub fn next_due_ns(&self, port: Option<usize>) -> Option<u64> {
        let state = self.state.borrow();
        let mine = state.pending.iter().filter(|p| port.is_none_or(|port| p.port == port));
        mine.map(|pending| pending.due_ns).min()
    }

    /// The machine loses power; it goes on with what that leaves.
    pub fn lose_power(&self, cut: Cut) {
        let mut random = SimRandom::new(self.draw());
        let media = self.power_cut(cut, &mut random);
        let mut state = self.state.borrow_mut();
        state.pending.clear();
        for (device, media) in state.devices.iter_mut().zip(media) {
            device.cached.clear();
            device.visible = media.clone();
            device.durable = media;
        }
    }

    /// The process ends: its requests under way happen or not, the devices live on.
    pub fn lose_process(&self) {
        let mut state = self.state.borrow_mut();
        let pending = std::mem::take(&mut state.pending);
        for pending in pending {
            let Op::Write { offset, data } = &pending.io.op else { continue };
            if state.random.draw() & 1 == 0 {
                state.land(pending.io.device, *offset, data.as_slice());
            }
        }
    }

    /// Grows with every write and flush submitted or completed.
    pub fn events(&self) -> u64 {
        self.state.borrow().events
    }

    /// Bytes of all writes so far.
    pub fn written_bytes(&self) -> u64 {
        self.state.borrow().written_bytes
    }

    /// What the devices hold after a power cut now.
    pub fn power_cut(&self, cut: Cut, random: &mut SimRandom) -> Vec<Media> {
        let state = self.state.borrow();
        let cached = state.devices.iter().map(|device| cut_cached(device, cut, random));
        let mut media: Vec<Media> = cached.collect();
        for pending in &state.pending {
            let Op::Write { offset, data } = &pending.io.op else { continue };
            let device = usize::from(pending.io.device);
            let size = state.devices[device].geometry.sector_size as usize;
            let whole = keep(cut, random);
            for (i, bytes) in data.as_slice().chunks(size).enumerate() {
                if keep_sector(cut, whole, random) {
                    media[device].write(offset / size as u64 + i as u64, bytes);
                }
            }
        }
        media
    }

    /// The contents now, caches included.
    pub fn media(&self) -> Vec<Media> {
        self.state.borrow().devices.iter().map(|device| device.visible.clone()).collect()
    }

    /// The same contents on devices with larger sectors.
    pub fn with_sector_size(&self, sector_size: u32) -> SimDisk {
        let state = self.state.borrow();
        let geometry = |device: &Device| Geometry { sector_size, ..device.geometry.clone() };
        let geometry: Vec<Geometry> = state.devices.iter().map(geometry).collect();
        let contents = |device: &Device| {
            let mut media = Media::default();
            let (old, new) = (device.geometry.sector_size as usize, sector_size as usize);
            for &sector in device.visible.sectors.keys() {
                let start = sector * old as u64 / new as u64 * new as u64;
                let mut bytes = vec![0; new];
                read(device, start, &mut bytes);
                media.write(start / new as u64, &bytes);
            }
            media
        };
        SimDisk::with_media(&geometry, state.devices.iter().map(contents).collect(), 1)
    }

    /// Bytes of a device as a read would return them.
    pub fn peek(&self, device: usize, offset: u64, len: usize) -> Vec<u8> {
        let state = self.state.borrow();
        let device = &state.devices[device];
        let size = u64::from(device.geometry.sector_size);
        let (start, end) = (offset / size * size, (offset + len as u64).next_multiple_of(size));
        let mut out = vec![0; (end - start) as usize];
        read(device, start, &mut out);
        out[(offset - start) as usize..][..len].to_vec()
    }

    /// Overwrites bytes inside one sector, behind the back of everybody.
    pub fn poke(&self, device: usize, offset: u64, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        let device = &mut state.devices[device];
        let size = u64::from(device.geometry.sector_size);
        let (sector, at) = (offset / size, (offset % size) as usize);
        let mut contents = vec![0; size as usize];
        device.visible.read(sector, &mut contents);
        contents[at..at + bytes.len()].copy_from_slice(bytes);
        device.visible.write(sector, &contents);
        device.durable.write(sector, &contents);
    }
}

fn keep(cut: Cut, random: &mut SimRandom) -> bool {
    match cut {
        Cut::Nothing => false,
        Cut::Everything => true,
        Cut::Writes | Cut::Sectors => random.draw() & 1 == 0,
    }
}

fn keep_sector(cut: Cut, whole: bool, random: &mut SimRandom) -> bool {
    if cut == Cut::Sectors { keep(cut, random) } else { whole }
}

fn cut_cached(device: &Device, cut: Cut, random: &mut SimRandom) -> Media {
    let mut media = device.durable.clone();
    let (mut number, mut whole) = (u64::MAX, false);
    for cached in &device.cached {
        if cached.number != number {
            (number, whole) = (cached.number, keep(cut, random));
        }
        if keep_sector(cut, whole, random) {
            media.write(cached.sector, &cached.bytes);
        }
    }
    media
}

fn read(device: &Device, offset: u64, out: &mut [u8]) {
    let size = device.geometry.sector_size as usize;
    for (i, chunk) in out.chunks_mut(size).enumerate() {
        device.visible.read(offset / size as u64 + i as u64, chunk);
    }
}

impl State {
    fn complete(&mut self, pending: Pending) -> Done {
        let Pending { completed, io, .. } = pending;
        let Io { device, tag, op } = io;
        let mut done = Done { device, tag, result: Ok(()), buf: None };
        match op {
            Op::Read { offset, len, mut buf } => {
                read(&self.devices[usize::from(device)], offset, &mut buf[..len as usize]);
                done.result = self.disturb_read(&mut buf[..len as usize]);
                done.buf = Some(buf);
                return done;
            }
            _ if self.fail_writes => done.result = Err(EIO),
            Op::Write { offset, data } => done.result = self.write(device, offset, data.as_slice()),
            Op::Flush if self.random.chance(self.faults.flush_error) => {
                self.injected.write_errors += 1;
                done.result = Err(EIO);
            }
            Op::Flush => self.flush(device, completed),
        }
        self.events += 1;
        done
    }

    fn disturb_read(&mut self, bytes: &mut [u8]) -> Result<(), Errno> {
        if self.random.chance(self.faults.read_error) {
            self.injected.read_errors += 1;
            return Err(EIO);
        }
        if self.random.chance(self.faults.flipped_read) {
            self.injected.lies += 1;
            flip(bytes, &mut self.random);
        }
        Ok(())
    }

    fn write(&mut self, device: u16, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let fault = self.faults.of_write(&mut self.random);
        match fault {
            WriteFault::None => self.land(device, offset, bytes),
            WriteFault::Fails => {
                self.injected.write_errors += 1;
                self.land_partly(device, offset, bytes);
                return Err(EIO);
            }
            WriteFault::Flipped => {
                let mut bytes = bytes.to_vec();
                flip(&mut bytes, &mut self.random);
                self.land(device, offset, &bytes);
            }
            WriteFault::Lost => {}
            WriteFault::Misdirected => {
                let geometry = &self.devices[usize::from(device)].geometry;
                let size = u64::from(geometry.sector_size);
                let room = (geometry.size_bytes - bytes.len() as u64) / size;
                let elsewhere = self.random.below(room as usize + 1) as u64 * size;
                self.land(device, elsewhere, bytes);
            }
        }
        self.injected.lies += u32::from(fault != WriteFault::None);
        Ok(())
    }

    fn land_partly(&mut self, device: u16, offset: u64, bytes: &[u8]) {
        let size = self.devices[usize::from(device)].geometry.sector_size as usize;
        let some = self.random.below(3) as u64;
        for (i, sector) in bytes.chunks(size).enumerate() {
            if self.random.below(2) < some as usize {
                self.land(device, offset + (i * size) as u64, sector);
            }
        }
    }

    /// The bytes are what a read returns from now on.
    fn land(&mut self, device: u16, offset: u64, bytes: &[u8]) {
        self.completed += 1;
        self.written_bytes += bytes.len() as u64;
        let target = &mut self.devices[usize::from(device)];
        let size = target.geometry.sector_size as usize;
        for (i, bytes) in bytes.chunks(size).enumerate() {
            let sector = offset / size as u64 + i as u64;
            let bytes: Rc<[u8]> = bytes.into();
            target.visible.sectors.insert(sector, Rc::clone(&bytes));
            if target.geometry.volatile_cache {
                target.cached.push(Cached { number: self.completed, sector, bytes });
            } else {
                target.durable.sectors.insert(sector, bytes);
            }
        }
    }

    /// Writes that had completed when the flush was submitted are durable.
    fn flush(&mut self, device: u16, completed: u64) {
        let target = &mut self.devices[usize::from(device)];
        let durable = &mut target.durable;
        target.cached.retain(|cached| {
            let stays = cached.number > completed;
            if !stays {
                durable.sectors.insert(cached.sector, Rc::clone(&cached.bytes));
            }
            stays
        });
    }

    /// The requests of a port that end now, by place.
    fn ending(&mut self, port: usize) -> Vec<usize> {
        let mine = self.pending.iter().enumerate().filter(|(_, p)| p.port == port);
        let Some(timing) = &self.timing else {
            let mine: Vec<usize> = mine.map(|(i, _)| i).collect();
            let pick = (!mine.is_empty()).then(|| mine[self.random.below(mine.len())]);
            return pick.into_iter().collect();
        };
        let now_ns = timing.clock.mono_ns();
        mine.filter(|(_, p)| p.due_ns <= now_ns).map(|(i, _)| i).collect()
    }
}

fn flip(bytes: &mut [u8], random: &mut SimRandom) {
    let bit = random.below(bytes.len() * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}

fn check(io: &Io, geometry: &Geometry) {
    let size = u64::from(geometry.sector_size);
    let (offset, len) = match &io.op {
        Op::Read { offset, len, buf } => {
            assert!(*len as usize <= buf.len(), "a read longer than its buffer");
            (*offset, u64::from(*len))
        }
        Op::Write { offset, data } => (*offset, data.as_slice().len() as u64),
        Op::Flush => return,
    };
    assert!(offset % size == 0 && len % size == 0 && len > 0, "{io:?} is not aligned");
    assert!(offset + len <= geometry.size_bytes, "{io:?} is beyond the end");
}

impl Disk for SimPort {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        let mut state = self.state.borrow_mut();
        check(&io, &self.geometry[usize::from(io.device)]);
        let mine = state.pending.iter().filter(|pending| pending.port == self.number).count();
        if mine >= state.depth {
            return Err(io);
        }
        state.events += u64::from(!matches!(io.op, Op::Read { .. }));
        let completed = state.completed;
        self.counts.add(&io.op);
        let State { timing, random, .. } = &mut *state;
        let due_ns = timing.as_ref().map_or(0, |timing| timing.due_ns(random));
        state.pending.push(Pending { port: self.number, completed, due_ns, io });
        Ok(())
    }

    /// Ends one request of this port, drawn at random, or all that are due.
    fn poll(&mut self, done: &mut Vec<Done>) {
        let mut state = self.state.borrow_mut();
        // From the back, so that places stay right.
        let places = state.ending(self.number).into_iter().rev();
        let mut ending: Vec<Pending> = places.map(|place| state.pending.remove(place)).collect();
        ending.sort_by_key(|pending| pending.due_ns);
        done.extend(ending.into_iter().map(|pending| state.complete(pending)));
    }

    fn geometry(&self) -> &[Geometry] {
        &self.geometry
    }

    fn in_flight(&self) -> usize {
        let state = self.state.borrow();
        state.pending.iter().filter(|pending| pending.port == self.number).count()
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, SimDisk, SimRandom};
    use crate::disk::{Disk, Geometry, Io, Op};
    use crate::mem::LogBuf;

    fn disk(volatile_cache: bool) -> SimDisk {
        let geometry =
            Geometry { name: "sim".into(), size_bytes: 1 << 20, sector_size: 512, volatile_cache };
        SimDisk::new(&[geometry], 1)
    }

    /// Writes a sector of ones at `offset` and completes the write.
    fn write(disk: &mut super::SimPort, offset: u64) {
        let mut buf = LogBuf::new(4096, 0).unwrap();
        buf.get_mut(0..512).fill(1);
        let data = buf.freeze(0..512);
        disk.submit(Io { device: 0, tag: 7, op: Op::Write { offset, data } }).unwrap();
        let mut done = Vec::new();
        disk.poll(&mut done);
        assert_eq!((done.len(), done[0].tag), (1, 7));
    }

    fn after(disk: &SimDisk, cut: Cut, offset: u64) -> u8 {
        let media = disk.power_cut(cut, &mut SimRandom::new(1));
        let geometry = disk.port().geometry().to_vec();
        SimDisk::with_media(&geometry, media, 1).peek(0, offset, 1)[0]
    }

    #[test]
    fn a_volatile_cache_loses_what_was_not_flushed() {
        let disk = disk(true);
        let mut port = disk.port();
        write(&mut port, 512);
        assert_eq!(disk.peek(0, 512, 1), [1]);
        assert_eq!(after(&disk, Cut::Nothing, 512), 0);
        assert_eq!(after(&disk, Cut::Everything, 512), 1);
        port.submit(Io { device: 0, tag: 8, op: Op::Flush }).unwrap();
        port.poll(&mut Vec::new());
        assert_eq!(after(&disk, Cut::Nothing, 512), 1);
    }

    #[test]
    fn without_a_cache_a_completed_write_stays() {
        let disk = disk(false);
        write(&mut disk.port(), 1024);
        assert_eq!(after(&disk, Cut::Nothing, 1024), 1);
    }
}
