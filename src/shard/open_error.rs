//! Why a set of devices cannot be opened, in words for the operator.

use std::io;

use crate::disk::Errno;
use crate::limits::{DEVICES_MAX, SEGMENT_SIZE_BYTES};
use crate::shard::superblock::BLANK_BYTES;

/// Segments of a device, the one with the superblocks included, at least.
pub const SEGMENTS_MIN: u64 = 10;
const SIZE_MIN_BYTES: u64 = SEGMENTS_MIN * SEGMENT_SIZE_BYTES;
/// Segments for records that every core needs at least.
pub const SEGMENTS_PER_CORE_MIN: u64 = 4;

/// Why a set cannot be opened. The text names the device and what to do.
#[derive(Debug)]
pub enum OpenError {
    NoDevices,
    TooManyDevices,
    TooManySegments,
    TooSmall { name: String, size_bytes: u64 },
    TooFewSegments { segments: u64, cores: u16 },
    Foreign { name: String },
    Damaged { name: String },
    Version { name: String, version: u16 },
    Sector { name: String, set: u32, device: u32 },
    Shrunk { name: String, has: u64, needs: u64 },
    Doubled { first: String, second: String },
    OtherSet { first: String, second: String },
    Stale { name: String, run: u32 },
    WornOut { runs: u32 },
    Missing { member: usize, members: usize, present: String, blank: Option<String> },
    BlankInSalvage { name: String },
    Lost { name: String, why: String },
    Overwritten { name: String, offset: u64 },
    Header { name: String, offset: u64, why: String },
    Device { name: String, what: &'static str, errno: Errno },
    Memory(io::Error),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoDevices => write!(f, "no data device is given"),
            Self::TooManyDevices => write!(f, "more than {DEVICES_MAX} data devices are given"),
            Self::TooManySegments => write!(f, "the data devices together exceed 16 TiB"),
            Self::TooSmall { name, size_bytes } => {
                write!(f, "{name} has {size_bytes} bytes; at least {SIZE_MIN_BYTES} are needed")
            }
            Self::TooFewSegments { segments, cores } => write!(
                f,
                "the data devices have {segments} segments of 8 MiB, too few for {cores} cores: \
                 use larger devices or at most {} threads",
                segments / SEGMENTS_PER_CORE_MIN
            ),
            Self::Foreign { name } => write!(
                f,
                "{name} is not empty and not a Lavik device; if its contents are not needed, \
                 clear its first {BLANK_BYTES} bytes"
            ),
            Self::Damaged { name } => write!(
                f,
                "both superblocks of {name} are damaged; nothing was changed; restore the \
                 device from a copy"
            ),
            Self::Version { name, version } => write!(
                f,
                "{name} has format version {version}, which this program does not know; use \
                 the program that wrote it"
            ),
            Self::Sector { name, set, device } => write!(
                f,
                "{name} has sectors of {device} bytes, but the set was formatted for {set}; \
                 use a device with sectors of at most {set} bytes"
            ),
            Self::Shrunk { name, has, needs } => write!(
                f,
                "{name} has {has} bytes, but had {needs} when it was formatted; give it its \
                 size back"
            ),
            Self::Doubled { first, second } => {
                write!(f, "{first} and {second} are the same member of the set; give it once")
            }
            Self::OtherSet { first, second } => {
                write!(f, "{first} and {second} belong to different sets; give one set only")
            }
            Self::Stale { name, run } => {
                write!(f, "{name} is older than the rest of its set, as run {run} left it")
            }
            Self::WornOut { runs } => write!(
                f,
                "the set has been opened {runs} times, more often than its format can count; \
                 copy the data to a new set"
            ),
            Self::Missing { member, members, present, blank } => {
                write_missing(f, *member, *members, present, blank.as_deref())
            }
            Self::BlankInSalvage { name } => {
                write!(f, "{name} is empty; nothing is added to a set that is being salvaged")
            }
            Self::Lost { name, why } => {
                write!(f, "{name} lost a segment header ({why}); is it given under two names?")
            }
            Self::Overwritten { name, offset } => write_overwritten(f, name, *offset),
            Self::Header { name, offset, why } => {
                write!(f, "{name}: the segment header at offset {offset} is damaged: {why}")
            }
            Self::Device { name, what, errno } => write!(f, "{name}: {what} failed: {errno}"),
            Self::Memory(error) => write!(f, "no memory for opening the data devices: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

fn write_missing(
    f: &mut std::fmt::Formatter<'_>,
    member: usize,
    members: usize,
    present: &str,
    blank: Option<&str>,
) -> std::fmt::Result {
    write!(
        f,
        "member {} of the {members} devices of the set is missing ({present} belongs to it); give \
         all of them",
        member + 1
    )?;
    match blank {
        Some(name) => write!(f, "; {name} is empty and cannot stand in for it"),
        None => Ok(()),
    }
}

fn write_overwritten(f: &mut std::fmt::Formatter<'_>, name: &str, offset: u64) -> std::fmt::Result {
    write!(
        f,
        "{name}: something else was written over the superblock at offset {offset}; if the device \
         is ours alone, --recover=salvage replaces it by the other one"
    )
}
