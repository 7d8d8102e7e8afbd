//! The header of a segment: the first sector of 8 MiB, written together with the first records.
//! docs/FORMAT.md has the byte table.

use crate::limits::SEGMENT_SIZE_BYTES;
use crate::mem::crc32c;
use crate::shard::le::{get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use crate::shard::record::{Lsn, UNIT};

/// Bytes of a segment as `usize`.
pub const SEGMENT_SIZE: usize = SEGMENT_SIZE_BYTES as usize;
/// Units of a segment.
pub const SEGMENT_UNITS: u32 = (SEGMENT_SIZE / UNIT) as u32;
/// Bytes of the header that mean something; the rest of its sector is zero.
pub const HEADER_BYTES: usize = 80;
/// Version of the segment format.
pub const VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"LAVIKSEG";
const CRC_AT: usize = HEADER_BYTES - 4;

/// Size of a sector, for rounding offsets on the hot path: a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sector {
    mask: usize,
}

impl Sector {
    pub fn new(size_bytes: usize) -> Sector {
        assert!(size_bytes.is_power_of_two());
        Sector { mask: size_bytes - 1 }
    }

    pub fn size(self) -> usize {
        self.mask + 1
    }

    /// Start of the sector that holds byte `at`.
    pub fn floor(self, at: usize) -> usize {
        at & !self.mask
    }

    /// First sector boundary not below `at`.
    pub fn ceil(self, at: usize) -> usize {
        (at + self.mask) & !self.mask
    }
}

/// Random name of a set of devices, made when it was formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetId(pub [u8; 16]);

/// Names one life of one segment; never used twice in a set. The run of the process is in the
/// upper 24 bits, so that two runs cannot meet even if the first one's writes were lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

const RUN_SHIFT: u32 = 40;
/// Runs that an epoch can count.
pub const RUN_MAX: u32 = (1 << (64 - RUN_SHIFT)) - 1;

impl Epoch {
    /// The epoch before the first of a run.
    pub fn start_of_run(run: u32) -> Epoch {
        Epoch(u64::from(run) << RUN_SHIFT)
    }

    pub fn run(self) -> u32 {
        (self.0 >> RUN_SHIFT) as u32
    }
}

/// Where the checksums of a segment's contents start: the set and the segment's present life.
pub fn seed(set_seed: u32, epoch: Epoch) -> u32 {
    crc32c(set_seed, &epoch.0.to_le_bytes())
}

/// The part of [`seed`] that is the same for all segments of a set.
pub fn set_seed(set: SetId) -> u32 {
    crc32c::crc32c(&set.0)
}

/// What a segment holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Free = 1,
    Data = 2,
}

/// A segment's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub set: SetId,
    /// Device of the set and segment of the device.
    pub device: u16,
    pub segment: u32,
    pub state: State,
    pub epoch: Epoch,
    /// Core that wrote it.
    pub core: u16,
    /// LSN of the first record; the others follow without a gap.
    pub base: Lsn,
    /// LSN of the last record of the segment that the same core filled before in the same run;
    /// 0 for the first.
    pub previous: Lsn,
    /// Up to here the core's log was durable when this segment was opened.
    pub durable: Lsn,
}

impl Header {
    /// Writes the header over all of `sector`.
    pub fn encode(&self, sector: &mut [u8]) {
        sector.fill(0);
        sector[..8].copy_from_slice(MAGIC);
        put_u16(sector, 8, VERSION);
        put_u16(sector, 10, self.state as u16);
        put_u16(sector, 12, self.device);
        put_u16(sector, 14, self.core);
        put_u32(sector, 16, self.segment);
        sector[20..36].copy_from_slice(&self.set.0);
        put_u64(sector, 36, self.epoch.0);
        put_u64(sector, 44, self.base.0);
        put_u64(sector, 52, self.previous.0);
        put_u64(sector, 60, self.durable.0);
        let crc = crc32c::crc32c(&sector[..CRC_AT]);
        put_u32(sector, CRC_AT, crc);
    }

    /// Reads a header; the reason why not is one for a message.
    pub fn decode(sector: &[u8]) -> Result<Header, &'static str> {
        let bytes = sector.get(..HEADER_BYTES).ok_or("it is short")?;
        if &bytes[..8] != MAGIC {
            return Err("it is not one");
        }
        if crc32c::crc32c(&bytes[..CRC_AT]) != get_u32(bytes, CRC_AT) {
            return Err("its checksum is wrong");
        }
        if get_u16(bytes, 8) != VERSION {
            return Err("its version is unknown");
        }
        let state = match get_u16(bytes, 10) {
            1 => State::Free,
            2 => State::Data,
            _ => return Err("its state is unknown"),
        };
        let mut set = SetId([0; 16]);
        set.0.copy_from_slice(&bytes[20..36]);
        let lsns = [44, 52, 60].map(|at| Lsn(get_u64(bytes, at)));
        if lsns.iter().any(|&lsn| lsn > Lsn::MAX) {
            return Err("its sequence numbers are too large");
        }
        let [base, previous, durable] = lsns;
        Ok(Header {
            set,
            device: get_u16(bytes, 12),
            segment: get_u32(bytes, 16),
            state,
            epoch: Epoch(get_u64(bytes, 36)),
            core: get_u16(bytes, 14),
            base,
            previous,
            durable,
        })
    }
}
