//! Bounds that several parts share, and the relations between them that the code relies on. A bound
//! of one part alone stands at the top of its file; docs/ARCHITECTURE.md lists them all.

/// Logical databases (`SELECT 0..15`), fixed.
pub const DATABASES: usize = 16;

/// Cores (reactors) of one process.
pub const CORES_MAX: usize = 128;

/// Size of a segment: the unit of allocation and reuse on a device, in bytes.
pub const SEGMENT_SIZE_BYTES: u64 = 8 << 20;

/// Records start at multiples of this many bytes; the index stores locations in this unit.
pub const RECORD_UNIT_BYTES: u64 = 16;

/// Bits of a location in the index: 40 bits of 16-byte units address 16 TiB.
pub const LOCATION_BITS: u32 = 40;

/// Segments of all devices together.
pub const SEGMENTS_MAX: u64 = (1 << LOCATION_BITS) * RECORD_UNIT_BYTES / SEGMENT_SIZE_BYTES;

/// Data devices of one set.
pub const DEVICES_MAX: usize = 64;

/// Smallest sector (logical block) of a device, in bytes.
pub const SECTOR_SIZE_MIN: usize = 512;

/// Largest sector (logical block) of a device that we can write, in bytes.
pub const SECTOR_SIZE_MAX: usize = 4096;

/// `proto-max-bulk-len`: the longest single argument, in bytes.
pub const BULK_LEN_MAX: usize = 512 << 20;

/// Arguments of one command.
pub const ARGS_MAX: usize = 1024 * 1024;

/// Arguments and bulk length that a client may send before it has authenticated.
pub const ARGS_MAX_UNAUTHENTICATED: usize = 10;
pub const BULK_LEN_MAX_UNAUTHENTICATED: usize = 16 * 1024;

/// Longest line of the protocol (inline command, length header), in bytes.
pub const LINE_LEN_MAX: usize = 64 * 1024;

const _: () = assert!(SEGMENT_SIZE_BYTES.is_power_of_two());
const _: () = assert!(SEGMENT_SIZE_BYTES.is_multiple_of(SECTOR_SIZE_MAX as u64));
const _: () = assert!(SEGMENTS_MAX == 1 << 21);
