//! Opening a set of devices, once, by the control plane, before the cores start: superblocks are
//! read and checked, blank devices are formatted, the run is counted, segment headers are read.
//!
//! Nothing is written to a device that is neither blank nor a member of exactly this set.

use std::io;
use std::sync::Arc;

use crate::disk::{Disk, Done, Geometry, Io, Op};
use crate::limits::{DATABASES, DEVICES_MAX, SEGMENT_SIZE_BYTES, SEGMENTS_MAX};
use crate::mem::BufPool;
use crate::shard::format::{extend, format};
use crate::shard::index::HashSeed;
use crate::shard::members::{Assembly, FoundCopy, assemble, is_unused};
use crate::shard::open_error::{SEGMENTS_MIN, SEGMENTS_PER_CORE_MIN};
use crate::shard::plan::Plan;
use crate::shard::record::Lsn;
use crate::shard::segment::{Epoch, Header, RUN_MAX, SEGMENT_UNITS, State};
use crate::shard::superblock::{
    BLANK_BYTES, COPIES_AT, Invalid, MAGIC, SUPERBLOCK_BYTES, Superblock, Superblocks,
};
use crate::shard::table::{Device, Segments, SetInfo};

pub use crate::shard::open_error::OpenError;

/// Requests in flight while a set is opened.
pub(super) const DEPTH: usize = 64;

/// How to open a set.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    pub cores: u16,
    /// Go on where something is damaged, and report it: `--recover=salvage`.
    pub salvage: bool,
}

/// A set that is ready for recovery.
pub struct Opened {
    pub segments: Arc<Segments>,
    pub plan: Arc<Plan>,
    pub seed: HashSeed,
    /// Logical to physical database.
    pub databases: [u8; DATABASES],
    /// The devices were blank and have been formatted.
    pub formatted: bool,
    /// Names of devices that were blank and have been added to the set.
    pub joined: Vec<String>,
    /// What is not as it should be and was survived, one line each.
    pub warnings: Vec<String>,
    /// For the core that writes superblocks from now on.
    pub superblocks: Superblocks,
}

/// Opens the set of all devices of `disk`, in whatever order they are given. `random` fills
/// buffers with secret random bytes.
pub fn open(
    disk: &mut impl Disk,
    pool: &BufPool,
    options: OpenOptions,
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<Opened, OpenError> {
    let geometry = disk.geometry().to_vec();
    check_sizes(&geometry, options.cores)?;
    // What a killed start has written is read below and relied upon.
    flush_all(disk, &geometry)?;
    let mut warnings = Vec::new();
    let mut found = Vec::new();
    for (device, geometry) in geometry.iter().enumerate() {
        found.push(read_superblock(disk, pool, device, geometry, options.salvage, &mut warnings)?);
    }
    let fresh = is_unused(&found);
    let mut joined = Vec::new();
    let mut superblocks = if fresh {
        format(disk, pool, &geometry, random)?
    } else {
        let assembly = assemble(&geometry, &found, options.salvage, &mut warnings)?;
        joined.extend(assembly.joining.iter().map(|&i| geometry[usize::from(i)].name.clone()));
        complete(disk, pool, &geometry, assembly, random)?
    };
    superblocks.state.run += 1;
    write_superblocks(disk, &geometry, &mut superblocks)?;
    let volatile_cache = geometry.iter().any(|device| device.volatile_cache);
    let mut info = set_info(&superblocks, &geometry, options.cores, volatile_cache);
    let headers = read_headers(disk, pool, &info, options.salvage, &mut warnings)?;
    info.start = start_lsn(&headers, &info);
    let data: Vec<(u32, Header)> =
        headers.iter().filter(|(_, header)| header.state == State::Data).copied().collect();
    let segments = Arc::new(Segments::new(info, &headers));
    Ok(Opened {
        segments,
        plan: Arc::new(Plan::new(data)),
        seed: superblocks.state.seed,
        databases: superblocks.state.databases,
        formatted: fresh,
        joined,
        warnings,
        superblocks,
    })
}

fn check_sizes(geometry: &[Geometry], cores: u16) -> Result<(), OpenError> {
    if geometry.is_empty() {
        return Err(OpenError::NoDevices);
    }
    if geometry.len() > DEVICES_MAX {
        return Err(OpenError::TooManyDevices);
    }
    let segments = |device: &Geometry| device.size_bytes / SEGMENT_SIZE_BYTES;
    if let Some(small) = geometry.iter().find(|device| segments(device) < SEGMENTS_MIN) {
        let (name, size_bytes) = (small.name.clone(), small.size_bytes);
        return Err(OpenError::TooSmall { name, size_bytes });
    }
    let total: u64 = geometry.iter().map(segments).sum();
    if total > SEGMENTS_MAX {
        return Err(OpenError::TooManySegments);
    }
    let usable = total - geometry.len() as u64;
    if usable < SEGMENTS_PER_CORE_MIN * u64::from(cores) {
        return Err(OpenError::TooFewSegments { segments: usable, cores });
    }
    Ok(())
}

fn read_superblock(
    disk: &mut impl Disk,
    pool: &BufPool,
    device: usize,
    geometry: &Geometry,
    salvage: bool,
    warnings: &mut Vec<String>,
) -> Result<FoundCopy, OpenError> {
    let name = || geometry.name.clone();
    let mut buf = pool.get(BLANK_BYTES).ok_or_else(|| OpenError::Memory(no_buffer()))?;
    let op = Op::Read { offset: 0, len: BLANK_BYTES as u32, buf };
    let mut requests = vec![Io { device: device as u16, tag: 0, op }];
    let mut read = None;
    drive(disk, &mut || requests.pop(), &mut |done| {
        check(std::slice::from_ref(geometry), &done, "reading the superblocks")?;
        read = done.buf;
        Ok(())
    })?;
    buf = read.ok_or_else(|| OpenError::Memory(no_buffer()))?;
    let copy = |at: u64| Superblock::decode(&buf[at as usize..at as usize + SUPERBLOCK_BYTES]);
    let copies = COPIES_AT.map(copy);
    let blank = buf[..BLANK_BYTES].iter().all(|&byte| byte == 0);
    match &copies {
        [Ok(a), Ok(b)] if a.state.generation >= b.state.generation => Ok(Some((a.clone(), 0))),
        [Ok(_), Ok(b)] => Ok(Some((b.clone(), 1))),
        [Err(_), Err(_)] if blank => Ok(None),
        [Err(Invalid::Version(version)), _] | [_, Err(Invalid::Version(version))] => {
            Err(OpenError::Version { name: name(), version: *version })
        }
        [Err(a), Err(b)] => {
            let torn = is_torn(&buf[..BLANK_BYTES]);
            let cut_short = torn && holds_nothing(disk, pool, device, geometry)?;
            if cut_short { Ok(None) } else { Err(refusal(name(), *a, *b)) }
        }
        [Ok(good), Err(_)] | [Err(_), Ok(good)] => {
            let which = usize::from(copies[0].is_err());
            let offset = COPIES_AT[1 - which];
            // Ours begins like one, whatever else happened to it.
            let lost = &buf[offset as usize..][..SUPERBLOCK_BYTES];
            if !salvage && !lost.starts_with(MAGIC) && !Superblock::is_torn(lost) {
                return Err(OpenError::Overwritten { name: name(), offset });
            }
            warnings.push(format!(
                "{}: the superblock at offset {offset} was damaged and is replaced",
                geometry.name
            ));
            Ok(Some((good.clone(), which)))
        }
    }
}

/// Whether the start of a device has nothing but what a power cut may leave of the first writes of
/// its superblocks.
fn is_torn(start: &[u8]) -> bool {
    let [first, second] = COPIES_AT.map(|at| at as usize..at as usize + SUPERBLOCK_BYTES);
    let between = &start[first.end..second.start];
    let behind = &start[second.end..];
    let zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let torn = |copy: &[u8]| Superblock::is_torn(copy);
    torn(&start[first]) && torn(&start[second]) && zero(between) && zero(behind)
}

/// Whether a device was being formatted when the power went: every segment of it has the header
/// that formatting writes, so no record was ever on it.
fn holds_nothing(
    disk: &mut impl Disk,
    pool: &BufPool,
    device: usize,
    geometry: &Geometry,
) -> Result<bool, OpenError> {
    let segments = (geometry.size_bytes / SEGMENT_SIZE_BYTES) as u32;
    let mut next = 1..segments;
    let (mut set, mut untouched) = (None, 0);
    let mut request = || {
        let buf = pool.get(geometry.sector_size as usize)?;
        let segment = next.next()?;
        let offset = u64::from(segment) * SEGMENT_SIZE_BYTES;
        let op = Op::Read { offset, len: geometry.sector_size, buf };
        Some(Io { device: device as u16, tag: u64::from(segment), op })
    };
    drive(disk, &mut request, &mut |done| {
        check(std::slice::from_ref(geometry), &done, "reading the segment headers")?;
        let Ok(header) = Header::decode(done.buf.as_deref().unwrap_or_default()) else {
            return Ok(());
        };
        let same = *set.get_or_insert(header.set) == header.set;
        let fresh = header.state == State::Free && header.epoch == Epoch(0);
        let here = u64::from(header.segment) == done.tag;
        untouched += u32::from(same && fresh && here);
        Ok(())
    })?;
    Ok(untouched == segments - 1)
}

fn refusal(name: String, a: Invalid, b: Invalid) -> OpenError {
    match (a, b) {
        (Invalid::Damaged, _) | (_, Invalid::Damaged) => OpenError::Damaged { name },
        _ => OpenError::Foreign { name },
    }
}

/// Brings a set to where nothing more stands between it and its next run.
fn complete(
    disk: &mut impl Disk,
    pool: &BufPool,
    geometry: &[Geometry],
    assembly: Assembly,
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<Superblocks, OpenError> {
    let mut superblocks = assembly.superblocks;
    if superblocks.state.run >= RUN_MAX {
        return Err(OpenError::WornOut { runs: superblocks.state.run });
    }
    // A second power cut must not leave them two generations behind.
    if !assembly.lagging.is_empty() {
        superblocks.state.generation -= 1;
        write_generation(disk, geometry, &mut superblocks, assembly.lagging)?;
    }
    if !assembly.joining.is_empty() {
        extend(disk, pool, geometry, &mut superblocks, &assembly.joining, random)?;
    }
    Ok(superblocks)
}

/// Writes both copies on every device, one after the other, each durably.
pub(super) fn write_superblocks(
    disk: &mut impl Disk,
    geometry: &[Geometry],
    superblocks: &mut Superblocks,
) -> Result<(), OpenError> {
    for _ in COPIES_AT {
        write_generation(disk, geometry, superblocks, superblocks.members())?;
    }
    Ok(())
}

/// Writes the next generation over the older copy of some members, durably.
pub(super) fn write_generation(
    disk: &mut impl Disk,
    geometry: &[Geometry],
    superblocks: &mut Superblocks,
    members: impl IntoIterator<Item = usize>,
) -> Result<(), OpenError> {
    let mut buf = superblocks.buffer().map_err(OpenError::Memory)?;
    let mut requests = superblocks.next_writes(members, &mut buf);
    drive(disk, &mut || requests.pop(), &mut |done| {
        check(geometry, &done, "writing the superblock")
    })?;
    flush_all(disk, geometry)
}

pub(super) fn set_info(
    superblocks: &Superblocks,
    geometry: &[Geometry],
    cores: u16,
    volatile_cache: bool,
) -> SetInfo {
    let state = &superblocks.state;
    let mut first = 0;
    let mut devices = Vec::new();
    for (member, &disk) in state.members.iter().zip(&superblocks.disks) {
        let (name, segments) = (geometry[usize::from(disk)].name.clone(), member.segments);
        devices.push(Device { name, disk, segments, first });
        first += member.segments;
    }
    SetInfo {
        set: state.set,
        run: state.run,
        sector_size: state.sector_size,
        volatile_cache,
        devices,
        cores,
        start: Lsn(0),
        horizons: state.horizons,
    }
}

/// Headers of all segments that have a good one, by number in the set.
pub(super) fn read_headers(
    disk: &mut impl Disk,
    pool: &BufPool,
    info: &SetInfo,
    salvage: bool,
    warnings: &mut Vec<String>,
) -> Result<Vec<(u32, Header)>, OpenError> {
    let mut headers = Vec::new();
    for (member, device) in info.devices.iter().enumerate() {
        let mut next = 1..device.segments;
        let mut failures = Vec::new();
        let before = headers.len();
        let mut request = || {
            let buf = pool.get(info.sector_size as usize)?;
            let segment = next.next()?;
            let offset = u64::from(segment) * SEGMENT_SIZE_BYTES;
            let op = Op::Read { offset, len: info.sector_size, buf };
            Some(Io { device: device.disk, tag: u64::from(segment), op })
        };
        drive(disk, &mut request, &mut |done| {
            let segment = done.tag as u32;
            match segment_header(info, member, segment, &done) {
                Ok(header) => headers.push((device.first + segment, header)),
                Err(why) if salvage => failures.push((segment, why)),
                Err(why) => return Err(header_error(device, segment, why)),
            }
            Ok(())
        })?;
        if headers.len() - before + failures.len() < device.segments as usize - 1 {
            return Err(OpenError::Memory(no_buffer()));
        }
        let lines = failures.into_iter().map(|(segment, why)| {
            format!("{}; its segment is left out", header_error(device, segment, why))
        });
        warnings.extend(lines);
    }
    Ok(headers)
}

fn header_error(device: &Device, segment: u32, why: String) -> OpenError {
    let offset = u64::from(segment) * SEGMENT_SIZE_BYTES;
    OpenError::Header { name: device.name.clone(), offset, why }
}

fn segment_header(
    info: &SetInfo,
    member: usize,
    segment: u32,
    done: &Done,
) -> Result<Header, String> {
    done.result.map_err(|errno| format!("reading it failed: {errno}"))?;
    let header = Header::decode(done.buf.as_deref().unwrap_or_default())?;
    if header.set != info.set {
        return Err("it belongs to another set".into());
    }
    if (usize::from(header.device), header.segment) != (member, segment) {
        return Err("it belongs to another place".into());
    }
    if header.epoch.run() >= info.run {
        return Err("it is from a run that has not been".into());
    }
    Ok(header)
}

/// Above every LSN that any segment can hold, also of records that nobody can read any more.
fn start_lsn(headers: &[(u32, Header)], info: &SetInfo) -> Lsn {
    let bases = headers.iter().map(|(_, header)| header.base.0 + u64::from(SEGMENT_UNITS));
    let horizons = info.horizons.iter().map(|lsn| lsn.0);
    Lsn(bases.chain(horizons).max().unwrap_or(0))
}

pub(super) fn flush_all(disk: &mut impl Disk, geometry: &[Geometry]) -> Result<(), OpenError> {
    let mut devices = 0..geometry.len() as u16;
    let mut request = || devices.next().map(|device| Io { device, tag: 0, op: Op::Flush });
    drive(disk, &mut request, &mut |done| check(geometry, &done, "a flush"))
}

pub(super) fn check(
    geometry: &[Geometry],
    done: &Done,
    what: &'static str,
) -> Result<(), OpenError> {
    done.result.map_err(|errno| {
        let named = geometry.get(usize::from(done.device)).or(geometry.first());
        let name = named.map_or_else(String::new, |device| device.name.clone());
        OpenError::Device { name, what, errno }
    })
}

fn no_buffer() -> io::Error {
    io::Error::from(io::ErrorKind::OutOfMemory)
}

/// Submits what `next` yields, a bounded number at a time, until it yields nothing and all is
/// complete. After an error nothing more is submitted.
pub(super) fn drive(
    disk: &mut impl Disk,
    next: &mut dyn FnMut() -> Option<Io>,
    finish: &mut dyn FnMut(Done) -> Result<(), OpenError>,
) -> Result<(), OpenError> {
    let mut result = Ok(());
    let mut refused = None;
    let mut in_flight = 0;
    let mut done = Vec::new();
    loop {
        while in_flight < DEPTH && result.is_ok() {
            let Some(io) = refused.take().or_else(&mut *next) else { break };
            match disk.submit(io) {
                Ok(()) => in_flight += 1,
                Err(io) => {
                    refused = Some(io);
                    break;
                }
            }
        }
        if in_flight == 0 && (refused.is_none() || result.is_err()) {
            return result;
        }
        disk.poll(&mut done);
        for done in done.drain(..) {
            in_flight -= 1;
            let finished = finish(done);
            result = result.and(finished);
        }
    }
}
