//! Block devices behind one small trait: submit, ring the bell, poll, geometry.
//!
//! A buffer belongs to the device from `submit` until its [`Done`]; ownership moves with the
//! request, so nobody can touch it in between.

#[cfg(feature = "spdk")]
#[allow(unsafe_code)]
pub mod spdk;
#[allow(unsafe_code)]
pub mod uring;

use crate::mem::{DmaBuf, DmaSlice};

/// What a device is, as found when it was opened.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// The name the user gave (path or `spdk://...`), for messages.
    pub name: String,
    /// Usable size in bytes.
    pub size_bytes: u64,
    /// Offsets, lengths and buffer addresses are multiples of this many bytes (512 or 4096).
    pub sector_size: u32,
    /// A completed write may sit in a volatile cache until a flush.
    pub volatile_cache: bool,
}

/// One request.
#[derive(Debug)]
pub enum Op {
    /// Reads `len` bytes at `offset` into the start of `buf`.
    Read { offset: u64, len: u32, buf: DmaBuf },
    /// Writes all of `data` at `offset`.
    Write { offset: u64, data: DmaSlice },
    /// Makes every write that completed before this request durable.
    Flush,
}

/// A request to a device with the tag its completion will carry.
#[derive(Debug)]
pub struct Io {
    pub device: u16,
    pub tag: u64,
    pub op: Op,
}

/// The end of a request. A read that ends short of its length is an error (`EIO`).
#[derive(Debug)]
pub struct Done {
    pub device: u16,
    pub tag: u64,
    pub result: Result<(), Errno>,
    /// The buffer of a read.
    pub buf: Option<DmaBuf>,
}

/// An error number of the operating system or its nearest equivalent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// What one core has asked of its devices since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub write_bytes: u64,
    pub flushes: u64,
}

impl Counts {
    pub fn add(&mut self, op: &Op) {
        match op {
            Op::Read { len, .. } => {
                self.reads += 1;
                self.read_bytes += u64::from(*len);
            }
            Op::Write { data, .. } => {
                self.writes += 1;
                self.write_bytes += data.as_slice().len() as u64;
            }
            Op::Flush => self.flushes += 1,
        }
    }
}

/// What a device says of its own health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Bits of the NVMe log; 0: all is well.
    pub critical_warning: u8,
    pub available_spare_percent: u8,
    /// Of the endurance that the vendor promises; may exceed 100.
    pub used_percent: u8,
    pub temperature_celsius: i32,
    pub media_errors: u64,
    pub unsafe_shutdowns: u64,
}

/// Access of one core to all devices of the set.
pub trait Disk {
    /// Queues a request, or hands it back when the queue is full; try again after [`Disk::poll`].
    fn submit(&mut self, io: Io) -> Result<(), Io>;
    /// Moves finished requests to the end of `done`.
    fn poll(&mut self, done: &mut Vec<Done>);
    /// The devices in the order in which they were given.
    fn geometry(&self) -> &[Geometry];
    /// Requests submitted and not yet returned by `poll`.
    fn in_flight(&self) -> usize;
    /// Whether reads for clients should wait: what room is left belongs to the log.
    fn is_busy(&self) -> bool;
    /// Whether completions come by polling alone, so that the core must not park now.
    fn wants_polling(&self) -> bool {
        false
    }
    /// Requests submitted since the start.
    fn counts(&self) -> Counts;
}
