//! The superblock of a device: which set it belongs to, as which member, and what the whole set
//! has to remember. Two copies in the first segment, written in turn. docs/FORMAT.md has the
//! byte table.

use std::io;
use std::ops::Range;

use crate::disk::{Io, Op};
use crate::limits::{DATABASES, DEVICES_MAX, SECTOR_SIZE_MAX, SECTOR_SIZE_MIN};
use crate::mem::LogBuf;
use crate::shard::index::HashSeed;
use crate::shard::le::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::shard::record::Lsn;
use crate::shard::segment::SetId;
use crate::shard::tags::{TagKind, tag};

/// Bytes of a copy.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Where the copies are on a device.
pub const COPIES_AT: [u64; 2] = [0, 1 << 20];
/// Bytes at the start of a device that are zero before it is formatted.
pub const BLANK_BYTES: usize = (1 << 20) + 8192;
/// Version of the format of a set.
pub const VERSION: u16 = 1;

pub(super) const MAGIC: &[u8; 8] = b"LAVIKSET";
const DATABASES_AT: usize = 64;
const HORIZONS_AT: usize = DATABASES_AT + DATABASES;
const MEMBERS_AT: usize = HORIZONS_AT + 8 * DATABASES;
const MEMBER_BYTES: usize = 12;
const MEMBERS_END: usize = MEMBERS_AT + MEMBER_BYTES * DEVICES_MAX;
const CRC_AT: usize = SUPERBLOCK_BYTES - 4;

const _: () = assert!(MEMBERS_END <= CRC_AT);

/// One device of a set, as every member knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Random, made when the set was formatted.
    pub id: u64,
    pub segments: u32,
}

/// What the whole set agrees on.
#[derive(Clone, PartialEq, Eq)]
pub struct SetState {
    pub set: SetId,
    pub seed: HashSeed,
    /// Grows with every write of the superblocks.
    pub generation: u64,
    /// How often the set was opened; 0 when it was only formatted.
    pub run: u32,
    /// Sector that everything is aligned to, in bytes.
    pub sector_size: u32,
    /// Physical database of each logical one.
    pub databases: [u8; DATABASES],
    /// By physical database: records up to this LSN are dead.
    pub horizons: [Lsn; DATABASES],
    pub members: Vec<Member>,
}

/// One copy.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Which of the members this device is.
    pub device: u16,
    pub state: SetState,
}

/// Why bytes are not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// All zero.
    Blank,
    /// Something else.
    Foreign,
    /// A superblock whose checksum is wrong or that contradicts itself.
    Damaged,
    /// A superblock of a version that this program does not know.
    Version(u16),
}

impl Superblock {
    /// Writes the superblock over all of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        let state = &self.state;
        assert_eq!(out.len(), SUPERBLOCK_BYTES);
        out.fill(0);
        out[..8].copy_from_slice(MAGIC);
        put_u16(out, 8, VERSION);
        put_u16(out, 10, self.device);
        put_u16(out, 12, state.members.len() as u16);
        put_u16(out, 14, state.sector_size as u16);
        out[16..32].copy_from_slice(&state.set.0);
        out[32..48].copy_from_slice(&state.seed.0);
        put_u64(out, 48, state.generation);
        put_u32(out, 56, state.run);
        out[DATABASES_AT..HORIZONS_AT].copy_from_slice(&state.databases);
        for (db, horizon) in state.horizons.iter().enumerate() {
            put_u64(out, HORIZONS_AT + 8 * db, horizon.0);
        }
        for (i, member) in state.members.iter().enumerate() {
            put_u64(out, MEMBERS_AT + MEMBER_BYTES * i, member.id);
            put_u32(out, MEMBERS_AT + MEMBER_BYTES * i + 8, member.segments);
        }
        let crc = crc32c::crc32c(&out[..CRC_AT]);
        put_u32(out, CRC_AT, crc);
    }

    /// Whether bytes may be some of the sectors of a copy that was written over zeros, or none.
    pub fn is_torn(bytes: &[u8]) -> bool {
        let zero = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
        let first_sector = &bytes[..SECTOR_SIZE_MIN];
        zero(&bytes[MEMBERS_END..CRC_AT]) && (zero(first_sector) || first_sector.starts_with(MAGIC))
    }

    /// Reads a copy.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, Invalid> {
        let bytes = bytes.get(..SUPERBLOCK_BYTES).ok_or(Invalid::Foreign)?;
        if &bytes[..8] != MAGIC {
            let blank = bytes.iter().all(|&byte| byte == 0);
            return Err(if blank { Invalid::Blank } else { Invalid::Foreign });
        }
        if crc32c::crc32c(&bytes[..CRC_AT]) != get_u32(bytes, CRC_AT) {
            return Err(Invalid::Damaged);
        }
        if get_u16(bytes, 8) != VERSION {
            return Err(Invalid::Version(get_u16(bytes, 8)));
        }
        let count = usize::from(get_u16(bytes, 12));
        let device = get_u16(bytes, 10);
        let mut databases = [0; DATABASES];
        databases.copy_from_slice(&bytes[DATABASES_AT..HORIZONS_AT]);
        let sector_size = u32::from(get_u16(bytes, 14));
        let horizons = std::array::from_fn(|db| Lsn(get_u64(bytes, HORIZONS_AT + 8 * db)));
        let sane = count <= DEVICES_MAX
            && usize::from(device) < count
            && is_permutation(&databases)
            && sector_size.is_power_of_two()
            && (SECTOR_SIZE_MIN..=SECTOR_SIZE_MAX).contains(&(sector_size as usize))
            && horizons.iter().all(|&horizon| horizon <= Lsn::MAX);
        if !sane {
            return Err(Invalid::Damaged);
        }
        let (mut set, mut seed) = ([0; 16], [0; 16]);
        set.copy_from_slice(&bytes[16..32]);
        seed.copy_from_slice(&bytes[32..48]);
        let member = |i: usize| Member {
            id: get_u64(bytes, MEMBERS_AT + MEMBER_BYTES * i),
            segments: get_u32(bytes, MEMBERS_AT + MEMBER_BYTES * i + 8),
        };
        let state = SetState {
            set: SetId(set),
            seed: HashSeed(seed),
            generation: get_u64(bytes, 48),
            run: get_u32(bytes, 56),
            sector_size,
            databases,
            horizons,
            members: (0..count).map(member).collect(),
        };
        Ok(Superblock { device, state })
    }
}

/// The superblocks of an open set.
pub struct Superblocks {
    pub state: SetState,
    /// By member: position among the devices of the disk.
    pub disks: Vec<u16>,
    /// By member: which copy was written last.
    pub newest: Vec<usize>,
}

impl Superblocks {
    /// Memory for one copy of every member.
    pub fn buffer(&self) -> io::Result<LogBuf> {
        LogBuf::new(self.disks.len() * SUPERBLOCK_BYTES, u16::MAX)
    }

    /// The writes of some members' older copies, with the present state as a new generation.
    pub fn next_writes(
        &mut self,
        members: impl IntoIterator<Item = usize>,
        buf: &mut LogBuf,
    ) -> Vec<Io> {
        self.state.generation += 1;
        members.into_iter().map(|member| self.write(member, buf)).collect()
    }

    /// All members, by number.
    pub fn members(&self) -> Range<usize> {
        0..self.disks.len()
    }

    fn write(&mut self, member: usize, buf: &mut LogBuf) -> Io {
        let range = member * SUPERBLOCK_BYTES..(member + 1) * SUPERBLOCK_BYTES;
        let copy = Superblock { device: member as u16, state: self.state.clone() };
        copy.encode(buf.get_mut(range.clone()));
        self.newest[member] = 1 - self.newest[member];
        let op = Op::Write { offset: COPIES_AT[self.newest[member]], data: buf.freeze(range) };
        let device = self.disks[member];
        Io { device, tag: tag(TagKind::Superblock, u64::from(device)), op }
    }
}

fn is_permutation(databases: &[u8; DATABASES]) -> bool {
    (0..DATABASES as u8).all(|db| databases.contains(&db))
}

#[cfg(test)]
mod tests {
    use super::{Invalid, Member, SUPERBLOCK_BYTES, SetState, Superblock};
    use crate::limits::DATABASES;
    use crate::shard::index::HashSeed;
    use crate::shard::record::Lsn;
    use crate::shard::segment::SetId;

    fn superblock() -> Superblock {
        let state = SetState {
            set: SetId([7; 16]),
            seed: HashSeed([9; 16]),
            generation: 3,
            run: 2,
            sector_size: 512,
            databases: std::array::from_fn(|db| (db as u8 + 1) % DATABASES as u8),
            horizons: [Lsn(5); DATABASES],
            members: vec![Member { id: 1, segments: 2 }, Member { id: 3, segments: 4 }],
        };
        Superblock { device: 1, state }
    }

    fn decoded(superblock: &Superblock) -> Result<Superblock, Invalid> {
        let mut bytes = [0xaa; SUPERBLOCK_BYTES];
        superblock.encode(&mut bytes);
        Superblock::decode(&bytes)
    }

    #[test]
    fn what_goes_in_comes_out() {
        assert!(decoded(&superblock()).is_ok_and(|copy| copy == superblock()));
    }

    #[test]
    fn impossible_numbers_are_damage() {
        let changes: [fn(&mut Superblock); 6] = [
            |copy| copy.device = 2,
            |copy| copy.state.members.clear(),
            |copy| copy.state.databases[0] = copy.state.databases[1],
            |copy| copy.state.sector_size = 0,
            |copy| copy.state.sector_size = 1000,
            |copy| copy.state.horizons[3] = Lsn(u64::MAX),
        ];
        for change in changes {
            let mut copy = superblock();
            change(&mut copy);
            assert_eq!(decoded(&copy).err(), Some(Invalid::Damaged));
        }
    }
}
