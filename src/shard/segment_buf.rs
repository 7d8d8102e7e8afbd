//! A log buffer with the segment that is being filled in it.

use crate::mem::LogBuf;
use crate::shard::footer;
use crate::shard::record::{Lsn, UNIT};
use crate::shard::segment::{Epoch, SEGMENT_SIZE, Sector};
use crate::shard::table::{Counts, Tier};

/// What to append, for the decision whether there is room.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// Units of all records.
    pub units: u32,
    /// Bytes of all footer entries.
    pub footer_bytes: u32,
    pub tier: Tier,
}

impl Need {
    /// Both together.
    pub fn and(self, other: Need) -> Need {
        Need {
            units: self.units.saturating_add(other.units),
            footer_bytes: self.footer_bytes.saturating_add(other.footer_bytes),
            tier: self.tier.min(other.tier),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Holds nothing, or a sealed segment that is kept for reads.
    Idle,
    Open,
    /// Full; its records are being written.
    Draining,
    /// Its footer is being written.
    Closing,
    /// Its footer is written and waits for this flush round.
    Settling(u64),
}

/// A buffer with the segment that it holds.
#[derive(Debug)]
pub struct SegmentBuf {
    pub buf: LogBuf,
    pub phase: Phase,
    pub segment: u32,
    pub epoch: Epoch,
    pub seed: u32,
    pub base: Lsn,
    /// Last LSN of the segment that was filled before.
    pub previous: Lsn,
    /// Who took the segment: others may fill it only when they could have taken one as well.
    pub tier: Tier,
    /// End of the records and lower end of the footer entries, in bytes.
    pub end: usize,
    pub footer_at: usize,
    /// Bytes handed to the device.
    pub submitted: usize,
    pub values: u32,
    /// Of the values, as [`super::table::Segments::release`] counts them.
    pub units: u32,
    pub tombstones: u32,
    pub entries: u32,
    /// Last LSN that lies wholly below the last sector boundary at or below `end`.
    pub whole: Lsn,
}

impl SegmentBuf {
    pub fn new(buf: LogBuf) -> SegmentBuf {
        assert_eq!(buf.len(), SEGMENT_SIZE, "a log buffer holds a segment");
        SegmentBuf {
            buf,
            phase: Phase::Idle,
            segment: NO_SEGMENT,
            epoch: Epoch(0),
            seed: 0,
            base: Lsn(0),
            previous: Lsn(0),
            tier: Tier::Put,
            end: 0,
            footer_at: 0,
            submitted: 0,
            values: 0,
            units: 0,
            tombstones: 0,
            entries: 0,
            whole: Lsn(0),
        }
    }

    /// For the table of segments.
    pub fn counts(&self) -> Counts {
        Counts {
            values: self.values,
            units: self.units,
            tombstones: self.tombstones,
            end: (self.end / UNIT) as u32,
        }
    }

    pub fn has_room(&self, need: Need, sector: Sector) -> bool {
        let end = self.end + need.units as usize * UNIT;
        let spare = need.footer_bytes as usize + footer::ENTRY_BYTES;
        let Some(footer_at) = self.footer_at.checked_sub(spare) else { return false };
        sector.ceil(end) <= sector.floor(footer_at)
    }

    /// Tombstones may go into a segment for moved records as long as this leaves room for those.
    pub fn is_half_empty(&self) -> bool {
        self.footer_at.saturating_sub(self.end) > SEGMENT_SIZE / 2
    }
}

pub const NO_SEGMENT: u32 = u32::MAX;
