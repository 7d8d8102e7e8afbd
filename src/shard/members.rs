//! Which devices make up a set: the superblocks that were found, put together or refused.

use crate::disk::Geometry;
use crate::limits::SEGMENT_SIZE_BYTES;
use crate::shard::open_error::OpenError;
use crate::shard::superblock::{COPIES_AT, Superblock, Superblocks};

/// What a device turned out to be: its newest superblock and which copy that is, or blank.
pub(super) type FoundCopy = Option<(Superblock, usize)>;

/// A complete set.
pub(super) struct Assembly {
    pub superblocks: Superblocks,
    /// Members that a power cut has left a generation behind.
    pub lagging: Vec<usize>,
    /// Devices that are to be added, by their position among those given.
    pub joining: Vec<u16>,
}

/// Generations that a format writes. Later ones of a device with run 0 say that it was added to a
/// set, which may have it as a member.
const FORMAT_GENERATIONS: u64 = COPIES_AT.len() as u64;

/// Whether nothing was ever stored: all devices are blank, or left over from a format that did
/// not finish. The set was not opened then, and all of it is here.
pub(super) fn is_unused(found: &[FoundCopy]) -> bool {
    let copies = || found.iter().flatten().map(|(copy, _)| copy);
    let Some(first) = copies().next() else { return true };
    copies().all(|copy| {
        let state = &copy.state;
        let unopened = state.run == 0 && state.generation <= FORMAT_GENERATIONS;
        unopened && state.set == first.state.set && state.members.len() <= found.len()
    })
}

/// Checks that the devices are one complete set, and blank ones besides, and puts them in its
/// order.
pub(super) fn assemble(
    geometry: &[Geometry],
    found: &[FoundCopy],
    salvage: bool,
    warnings: &mut Vec<String>,
) -> Result<Assembly, OpenError> {
    let name = |device: usize| geometry[device].name.clone();
    let newest = newest(geometry, found)?;
    let is_member = |copy: &FoundCopy| copy.as_ref().is_some_and(|(c, _)| !is_leftover(c, newest));
    let first = found.iter().position(is_member).ok_or(OpenError::NoDevices)?;
    let members = newest.state.members.len();
    let mut places: Vec<Option<(u16, usize)>> = vec![None; members];
    let mut joining = Vec::new();
    let mut lagging = Vec::new();
    for (device, copy) in found.iter().enumerate() {
        let Some((copy, which)) = copy.as_ref().filter(|(copy, _)| !is_leftover(copy, newest))
        else {
            joining.push(device as u16);
            continue;
        };
        check_member(copy, newest, &geometry[device])?;
        if !newest.state.members.starts_with(&copy.state.members) {
            return Err(OpenError::OtherSet { first: name(first), second: name(device) });
        }
        let member = usize::from(copy.device);
        if let Some((other, _)) = places[member] {
            let (first, second) = (name(usize::from(other)), name(device));
            return Err(OpenError::Doubled { first, second });
        }
        places[member] = Some((device as u16, *which));
        if copy.state.generation < newest.state.generation {
            lagging.push(member);
        }
    }
    let blank = joining.first().map(|&device| name(usize::from(device)));
    if let Some(member) = places.iter().position(Option::is_none) {
        return Err(OpenError::Missing { member, members, present: name(first), blank });
    }
    check_age(geometry, found, newest, salvage, warnings)?;
    check_joining(geometry, newest, &joining, salvage)?;
    let (disks, copies) = places.into_iter().flatten().unzip();
    let superblocks = Superblocks { state: newest.state.clone(), disks, newest: copies };
    Ok(Assembly { superblocks, lagging, joining })
}

/// The superblock that counts. One with run 0 only does where no other is: it may be left over
/// from an extension that did not finish.
fn newest<'a>(geometry: &[Geometry], found: &'a [FoundCopy]) -> Result<&'a Superblock, OpenError> {
    let copies = || found.iter().enumerate().filter_map(|(i, copy)| Some((i, &copy.as_ref()?.0)));
    let age = |copy: &Superblock| (copy.state.run != 0, copy.state.generation);
    let Some((first, copy)) = copies().next() else { return Err(OpenError::NoDevices) };
    if let Some((second, _)) = copies().find(|(_, other)| other.state.set != copy.state.set) {
        let name = |device: usize| geometry[device].name.clone();
        return Err(OpenError::OtherSet { first: name(first), second: name(second) });
    }
    copies().map(|(_, copy)| copy).max_by_key(|copy| age(copy)).ok_or(OpenError::NoDevices)
}

/// Whether a device was on its way into the set when the power went, and is not in it: the other
/// members do not know it.
fn is_leftover(copy: &Superblock, newest: &Superblock) -> bool {
    let id = copy.state.members[usize::from(copy.device)].id;
    copy.state.run == 0
        && newest.state.run != 0
        && newest.state.members.iter().all(|member| member.id != id)
}

fn check_member(
    copy: &Superblock,
    newest: &Superblock,
    geometry: &Geometry,
) -> Result<(), OpenError> {
    let name = geometry.name.clone();
    let member = copy.state.members[usize::from(copy.device)];
    let needs = u64::from(member.segments) * SEGMENT_SIZE_BYTES;
    if geometry.size_bytes < needs {
        return Err(OpenError::Shrunk { name, has: geometry.size_bytes, needs });
    }
    check_sector(newest, geometry)
}

fn check_sector(newest: &Superblock, geometry: &Geometry) -> Result<(), OpenError> {
    if geometry.sector_size > newest.state.sector_size {
        let (set, device) = (newest.state.sector_size, geometry.sector_size);
        return Err(OpenError::Sector { name: geometry.name.clone(), set, device });
    }
    Ok(())
}

/// A power cut leaves members one generation apart, for the next one is begun only when all have
/// this one durably, and every start makes two. More means an old copy of the device.
fn check_age(
    geometry: &[Geometry],
    found: &[FoundCopy],
    newest: &Superblock,
    salvage: bool,
    warnings: &mut Vec<String>,
) -> Result<(), OpenError> {
    let stale =
        |copy: &Superblock| newest.state.generation.saturating_sub(copy.state.generation) > 1;
    for (device, copy) in found.iter().enumerate() {
        let Some((copy, _)) = copy else { continue };
        if is_leftover(copy, newest) || !stale(copy) {
            continue;
        }
        let (name, run) = (geometry[device].name.clone(), copy.state.run);
        let error = OpenError::Stale { name, run };
        if !salvage {
            return Err(error);
        }
        warnings.push(error.to_string());
    }
    Ok(())
}

/// Salvage is for a set that is not whole: nothing is added to it then.
fn check_joining(
    geometry: &[Geometry],
    newest: &Superblock,
    joining: &[u16],
    salvage: bool,
) -> Result<(), OpenError> {
    for &device in joining {
        let geometry = &geometry[usize::from(device)];
        if salvage {
            return Err(OpenError::BlankInSalvage { name: geometry.name.clone() });
        }
        check_sector(newest, geometry)?;
    }
    Ok(())
}
