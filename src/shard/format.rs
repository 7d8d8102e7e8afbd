//! Making devices members of a set: all of a new one, or more of one that is there.

use crate::disk::{Disk, Geometry, Io, Op};
use crate::limits::{DATABASES, SECTOR_SIZE_MAX, SEGMENT_SIZE_BYTES};
use crate::mem::{BufPool, LogBuf};
use crate::shard::index::HashSeed;
use crate::shard::open::{
    DEPTH, check, drive, flush_all, read_headers, set_info, write_generation, write_superblocks,
};
use crate::shard::open_error::OpenError;
use crate::shard::record::Lsn;
use crate::shard::segment::{Epoch, Header, SetId, State};
use crate::shard::superblock::{Member, SetState, Superblocks};

/// Writes a FREE header to every segment of every device, then the superblocks.
pub(super) fn format(
    disk: &mut impl Disk,
    pool: &BufPool,
    geometry: &[Geometry],
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<Superblocks, OpenError> {
    let mut bytes = [0; 32];
    random(&mut bytes);
    let (mut set, mut seed) = ([0; 16], [0; 16]);
    set.copy_from_slice(&bytes[..16]);
    seed.copy_from_slice(&bytes[16..]);
    let sector_size = geometry.iter().map(|device| device.sector_size).max();
    let state = SetState {
        set: SetId(set),
        seed: HashSeed(seed),
        generation: 0,
        run: 0,
        sector_size: sector_size.unwrap_or(SECTOR_SIZE_MAX as u32),
        databases: std::array::from_fn(|db| db as u8),
        horizons: [Lsn(0); DATABASES],
        members: Vec::new(),
    };
    let mut superblocks = Superblocks { state, disks: Vec::new(), newest: Vec::new() };
    let devices: Vec<u16> = (0..geometry.len() as u16).collect();
    add_members(disk, pool, geometry, &mut superblocks, &devices, random)?;
    write_superblocks(disk, geometry, &mut superblocks)?;
    Ok(superblocks)
}

/// Adds blank devices to a set whose members all have the present generation. Until the first
/// member that was there before names the new ones, the set is without them, and they are
/// formatted again at the next start: so theirs are the superblocks that are written first, with
/// run 0. From then on all members have to be there.
pub(super) fn extend(
    disk: &mut impl Disk,
    pool: &BufPool,
    geometry: &[Geometry],
    superblocks: &mut Superblocks,
    joining: &[u16],
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<(), OpenError> {
    let before = superblocks.members();
    let (run, generation) = (superblocks.state.run, superblocks.state.generation);
    add_members(disk, pool, geometry, superblocks, joining, random)?;
    let new = before.end..superblocks.members().end;
    superblocks.state.run = 0;
    superblocks.state.generation = generation - 1;
    write_generation(disk, geometry, superblocks, new.clone())?;
    write_generation(disk, geometry, superblocks, new)?;
    // All of them will have this one and the next.
    superblocks.state.run = run;
    superblocks.state.generation = generation;
    write_generation(disk, geometry, superblocks, before)
}

/// Gives devices their places at the end of the set and frees all of their segments. Then all
/// headers are read: no superblock is written while a member could not be opened anyway.
fn add_members(
    disk: &mut impl Disk,
    pool: &BufPool,
    geometry: &[Geometry],
    superblocks: &mut Superblocks,
    devices: &[u16],
    random: &mut dyn FnMut(&mut [u8]),
) -> Result<(), OpenError> {
    let first = superblocks.members().end;
    for &device in devices {
        let mut id = [0; 8];
        random(&mut id);
        let segments = geometry[usize::from(device)].size_bytes / SEGMENT_SIZE_BYTES;
        let member = Member { id: u64::from_le_bytes(id), segments: segments as u32 };
        superblocks.state.members.push(member);
        superblocks.disks.push(device);
        superblocks.newest.push(1);
    }
    for member in first..superblocks.members().end {
        write_free_headers(disk, geometry, superblocks, member)?;
    }
    let mut info = set_info(superblocks, geometry, 1, true);
    info.run += 1;
    let new: Vec<&str> = devices.iter().map(|&i| &*geometry[usize::from(i)].name).collect();
    match read_headers(disk, pool, &info, false, &mut Vec::new()) {
        // One device under two names, if its headers are those of another place.
        Err(OpenError::Header { name, why, .. }) if new.contains(&&*name) => {
            Err(OpenError::Lost { name, why })
        }
        outcome => outcome.map(|_| ()),
    }
}

fn write_free_headers(
    disk: &mut impl Disk,
    geometry: &[Geometry],
    superblocks: &Superblocks,
    member: usize,
) -> Result<(), OpenError> {
    let (state, device) = (&superblocks.state, superblocks.disks[member]);
    let sector_size = state.sector_size as usize;
    let mut headers = LogBuf::new(DEPTH * sector_size, u16::MAX).map_err(OpenError::Memory)?;
    let segments: Vec<u32> = (1..state.members[member].segments).collect();
    for batch in segments.chunks(DEPTH) {
        assert!(headers.reset(), "the batch before is complete");
        for (i, &segment) in batch.iter().enumerate() {
            let header = Header {
                set: state.set,
                device: member as u16,
                segment,
                state: State::Free,
                epoch: Epoch(0),
                core: 0,
                base: Lsn(0),
                previous: Lsn(0),
                durable: Lsn(0),
            };
            header.encode(headers.get_mut(i * sector_size..(i + 1) * sector_size));
        }
        let mut next = batch.iter().enumerate();
        let mut request = || {
            let (i, &segment) = next.next()?;
            let data = headers.freeze(i * sector_size..(i + 1) * sector_size);
            let offset = u64::from(segment) * SEGMENT_SIZE_BYTES;
            let op = Op::Write { offset, data };
            Some(Io { device, tag: u64::from(device), op })
        };
        drive(disk, &mut request, &mut |done| check(geometry, &done, "formatting"))?;
    }
    flush_all(disk, geometry)
}
