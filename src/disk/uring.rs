//! Regular files and block devices with direct I/O over the core's io_uring.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{opcode, types};

use super::{Counts, Disk, Done, Errno, Geometry, Io, Op};
use crate::mem::{Region, Slots};
use crate::ring::{Class, Completion, Ring, user_data};

/// Requests of one core in flight on all devices.
const IN_FLIGHT_MAX: usize = 4096;

/// An opened device, shared by all cores.
#[derive(Debug)]
pub struct Device {
    file: File,
    pub geometry: Geometry,
}

impl Device {
    /// Opens a regular file or block device for direct I/O and learns its geometry. A device that
    /// another process has open is refused with `ResourceBusy`.
    pub fn open(path: &Path) -> io::Result<Device> {
        let kind = path.metadata()?.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            return Err(io::Error::other("it is neither a regular file nor a block device"));
        }
        // O_NONBLOCK keeps io_uring from handing reads of a tmpfs file to worker threads.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT | libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)?;
        let size_bytes = match kind.is_block_device() {
            true => block_device_size(&file)?,
            false => file.metadata()?.len(),
        };
        let sector_size = sector_size(&file, kind.is_block_device())?;
        let volatile_cache = !kind.is_block_device() || has_write_cache(path);
        let name = path.display().to_string();
        lock(&file)?;
        Ok(Device { file, geometry: Geometry { name, size_bytes, sector_size, volatile_cache } })
    }
}

/// Refuses a device that another server has open: two writers would destroy each other's data.
fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::Error(error) => error,
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "it is in use by another process")
        }
    })
}

fn block_device_size(file: &File) -> io::Result<u64> {
    // BLKGETSIZE64 of <linux/fs.h>.
    const BLKGETSIZE64: libc::c_ulong = 0x8008_1272;
    let mut size = 0u64;
    // SAFETY: the request writes one u64 to the address given.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &mut size) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(size) }
}

/// 512 or 4096: what direct I/O on this file must be a multiple of.
fn sector_size(file: &File, is_block: bool) -> io::Result<u32> {
    if is_block {
        const BLKSSZGET: libc::c_ulong = 0x1268;
        let mut size: libc::c_int = 0;
        // SAFETY: the request writes one int to the address given.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET, &mut size) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        return Ok(size as u32);
    }
    // File systems differ in what they report; a trial read at an odd sector tells for certain.
    let page = Region::new(4096, u16::MAX)?;
    let iov = page.as_iovec();
    // SAFETY: the buffer is a live mapping of at least 512 bytes.
    let read = unsafe { libc::pread(file.as_raw_fd(), iov.iov_base, 512, 512) };
    Ok(if read >= 0 { 512 } else { 4096 })
}

/// Whether the kernel says that the device's write cache is volatile; unknown counts as yes.
fn has_write_cache(path: &Path) -> bool {
    let Ok(real) = path.canonicalize() else { return true };
    let Some(name) = real.file_name().and_then(|name| name.to_str()) else { return true };
    let class = Path::new("/sys/class/block").join(name);
    let holders = [class.join("queue/write_cache"), class.join("../queue/write_cache")];
    let found = holders.iter().find_map(|file| std::fs::read_to_string(file).ok());
    found.is_none_or(|text| text.trim() != "write through")
}

/// One core's access to the devices.
#[derive(Debug)]
pub struct UringDisk {
    ring: Rc<Ring>,
    devices: Arc<Vec<Device>>,
    geometry: Vec<Geometry>,
    requests: Slots<Request>,
    /// Buffers are registered with the kernel under their region's index.
    fixed: bool,
    completions: Vec<Completion>,
    counts: Counts,
}

#[derive(Debug)]
struct Request {
    io: Io,
    /// Bytes done so far; the kernel may stop short.
    progress: u32,
}

impl UringDisk {
    /// `regions` are registered as fixed buffers in the order of their indices; where the limit
    /// on locked memory forbids it, plain reads and writes are used.
    pub fn new(ring: Rc<Ring>, devices: Arc<Vec<Device>>, regions: &[&Region]) -> UringDisk {
        debug_assert!(regions.iter().enumerate().all(|(i, r)| usize::from(r.index()) == i));
        let iovecs: Vec<libc::iovec> = regions.iter().map(|region| region.as_iovec()).collect();
        // SAFETY: every region outlives the ring's use of it: buffers and log hold counted
        // references, and the ring is dropped with this core's thread.
        let fixed = unsafe { ring.uring().submitter().register_buffers(&iovecs) }.is_ok();
        let geometry = devices.iter().map(|device| device.geometry.clone()).collect();
        let requests = Slots::new(IN_FLIGHT_MAX);
        UringDisk {
            ring,
            devices,
            geometry,
            requests,
            fixed,
            completions: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Whether the buffers are registered with the kernel.
    pub fn is_registered(&self) -> bool {
        self.fixed
    }

    /// Queues what is left of the request at `index`.
    fn queue(&mut self, index: usize) {
        let Some(request) = self.requests.at_mut(index) else { return };
        let fd = types::Fd(fd(&self.devices, request.io.device));
        let done = request.progress;
        let entry = match &mut request.io.op {
            Op::Read { offset, len, buf } => {
                let at = *offset + u64::from(done);
                let len = *len - done;
                let region = buf.region_index();
                let start = buf[done as usize..].as_mut_ptr();
                if self.fixed && region != u16::MAX {
                    opcode::ReadFixed::new(fd, start, len, region).offset(at).build()
                } else {
                    opcode::Read::new(fd, start, len).offset(at).build()
                }
            }
            Op::Write { offset, data } => {
                let at = *offset + u64::from(done);
                let region = data.region_index();
                let rest = &data.as_slice()[done as usize..];
                let (start, len) = (rest.as_ptr(), rest.len() as u32);
                if self.fixed && region != u16::MAX {
                    opcode::WriteFixed::new(fd, start, len, region).offset(at).build()
                } else {
                    opcode::Write::new(fd, start, len).offset(at).build()
                }
            }
            Op::Flush => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        };
        // The table holds fewer than 2^16 requests, and each completes exactly once.
        let entry = entry.user_data(user_data(Class::Disk, 0, index as u64));
        // SAFETY: the request, and with it the buffer, stays in the table until its completion.
        unsafe { self.ring.push(entry) };
    }

    fn finish(&mut self, completion: Completion) -> Option<Done> {
        let index = completion.payload() as usize;
        let request = self.requests.at_mut(index)?;
        let want = match &request.io.op {
            Op::Read { len, .. } => *len,
            Op::Write { data, .. } => data.as_slice().len() as u32,
            Op::Flush => 0,
        };
        let result = match completion.result {
            error if error == -libc::EAGAIN || error == -libc::EINTR => {
                self.queue(index);
                return None;
            }
            error if error < 0 => Err(Errno(-error)),
            0 if want > request.progress => Err(Errno(libc::EIO)),
            bytes => {
                request.progress += bytes as u32;
                if request.progress < want {
                    self.queue(index);
                    return None;
                }
                Ok(())
            }
        };
        let Request { io: Io { device, tag, op }, .. } = self.requests.remove_at(index)?;
        let buf = match op {
            Op::Read { buf, .. } => Some(buf),
            Op::Write { .. } | Op::Flush => None,
        };
        Some(Done { device, tag, result, buf })
    }
}

fn fd(devices: &[Device], device: u16) -> RawFd {
    devices[usize::from(device)].file.as_raw_fd()
}

impl Disk for UringDisk {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.counts.add(&io.op);
        let request = Request { io, progress: 0 };
        let ticket = self.requests.insert(request).map_err(|request| request.io)?;
        self.queue(ticket.index());
        Ok(())
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take_disk(&mut completions);
        for completion in completions.drain(..) {
            done.extend(self.finish(completion));
        }
        self.completions = completions;
    }

    fn geometry(&self) -> &[Geometry] {
        &self.geometry
    }

    fn in_flight(&self) -> usize {
        self.requests.len()
    }

    fn is_busy(&self) -> bool {
        self.requests.len() >= IN_FLIGHT_MAX / 4 * 3
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}

/// Access for the control plane, which has no loop of its own: a poll submits what is queued and
/// waits a moment for completions.
#[derive(Debug)]
pub struct BlockingDisk {
    ring: Rc<Ring>,
    disk: UringDisk,
}

impl BlockingDisk {
    pub fn new(devices: Arc<Vec<Device>>) -> io::Result<BlockingDisk> {
        let ring = Rc::new(Ring::new()?);
        let disk = UringDisk::new(Rc::clone(&ring), devices, &[]);
        Ok(BlockingDisk { ring, disk })
    }
}

impl Disk for BlockingDisk {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.disk.submit(io)
    }

    fn poll(&mut self, done: &mut Vec<Done>) {
        let wait = (self.disk.in_flight() > 0).then_some(Duration::from_millis(10));
        self.ring.submit(wait);
        self.ring.reap();
        self.disk.poll(done);
    }

    fn geometry(&self) -> &[Geometry] {
        self.disk.geometry()
    }

    fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    fn is_busy(&self) -> bool {
        self.disk.is_busy()
    }

    fn counts(&self) -> Counts {
        self.disk.counts()
    }
}
