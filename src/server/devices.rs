//! The data devices: created if the settings say so, opened, and put together as a set.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::config::value::DataFile;
use crate::config::{Config, StorageBackend};
use crate::disk::uring::{self, Device};
use crate::disk::{Disk, Geometry};
use crate::mem::BufPool;
use crate::shard::open::{OpenOptions as SetOptions, Opened, open as open_set};

/// Read buffers while the set is opened, in bytes.
const OPEN_BUFFER_BYTES: usize = 16 << 20;
/// How often a device in use is tried again, and so long apart: five seconds.
const BUSY_ATTEMPTS: u32 = 500;
const BUSY_RETRY: Duration = Duration::from_millis(10);

/// All devices of the set, shared by the cores; one backend drives them all.
#[derive(Clone, Debug)]
pub enum Devices {
    Kernel(Arc<Vec<Device>>),
    #[cfg(feature = "spdk")]
    Spdk(Arc<crate::disk::spdk::Set>),
}

impl Devices {
    /// What they are, in the order in which they were given.
    pub fn geometry(&self) -> Vec<Geometry> {
        match self {
            Devices::Kernel(devices) => devices.iter().map(|d| d.geometry.clone()).collect(),
            #[cfg(feature = "spdk")]
            Devices::Spdk(set) => set.namespaces().iter().map(|n| n.geometry.clone()).collect(),
        }
    }
}

/// Opens all devices of the settings and the set that they form.
pub fn open(config: &Config, cores: usize, cpu: usize) -> Result<(Devices, Opened), String> {
    let devices = match config.storage.backend {
        StorageBackend::Uring => Devices::Kernel(Arc::new(open_files(config)?)),
        #[cfg(feature = "spdk")]
        StorageBackend::Spdk => Devices::Spdk(super::spdk::open(config, cores, cpu)?),
        #[cfg(not(feature = "spdk"))]
        StorageBackend::Spdk => {
            return Err(format!("--storage spdk: not in this build (CPU {cpu})"));
        }
    };
    let salvage = config.persistence.salvage;
    let options = SetOptions { cores: cores as u16, salvage };
    let opened = match &devices {
        Devices::Kernel(devices) => {
            let disk = uring::BlockingDisk::new(Arc::clone(devices));
            assemble(&mut disk.map_err(|error| ring_failed(&error))?, options)?
        }
        #[cfg(feature = "spdk")]
        Devices::Spdk(set) => assemble(&mut crate::disk::spdk::BlockingDisk::new(set)?, options)?,
    };
    opened.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    if opened.formatted {
        log::info!("the data devices were empty and have been formatted");
    }
    Ok((devices, opened))
}

fn open_files(config: &Config) -> Result<Vec<Device>, String> {
    let mut devices = Vec::new();
    for device in config.storage.devices() {
        let DataFile::Path(path) = device else {
            return Err(format!("--data-file {device} needs --storage spdk"));
        };
        if !path.exists() {
            create(&path, config.storage.create_size_bytes())?;
        }
        let opened = open_patiently(&path).map_err(|error| open_failed(&path, &error))?;
        devices.push(opened);
    }
    Ok(devices)
}

/// The kernel keeps the files of a killed process open until its last io_uring request has ended,
/// so a device in use is waited for: such a request may be a write.
fn open_patiently(path: &Path) -> io::Result<Device> {
    for _ in 0..BUSY_ATTEMPTS {
        match Device::open(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(BUSY_RETRY),
            outcome => return outcome,
        }
    }
    Device::open(path)
}

fn assemble(disk: &mut impl Disk, options: SetOptions) -> Result<Opened, String> {
    let pool = BufPool::new(OPEN_BUFFER_BYTES, u16::MAX).map_err(|error| error.to_string())?;
    let mut failed = None;
    let mut random = |bytes: &mut [u8]| failed = getrandom::fill(bytes).err().or(failed);
    let opened = open_set(disk, &pool, options, &mut random);
    match failed {
        Some(error) => Err(format!("no random numbers: {error}")),
        None => opened.map_err(|error| error.to_string()),
    }
}

/// Creates and preallocates a missing data file. An attempt that fails leaves nothing behind.
fn create(path: &Path, size_bytes: Option<u64>) -> Result<(), String> {
    let name = path.display();
    let Some(size_bytes) = size_bytes else {
        return Err(format!(
            "{name} does not exist: create it (fallocate -l SIZE {name}) or give --data-file-size"
        ));
    };
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let file = file.map_err(|error| format!("cannot create {name}: {error}"))?;
    preallocate(&file, path, size_bytes).map_err(|error| {
        let _ = std::fs::remove_file(path);
        format!("cannot give {name} its {size_bytes} bytes: {error}")
    })?;
    log::info!("created {name} with {} MiB", size_bytes >> 20);
    Ok(())
}

fn preallocate(file: &File, path: &Path, size_bytes: u64) -> io::Result<()> {
    let flags = rustix::fs::FallocateFlags::empty();
    match rustix::fs::fallocate(file.as_fd(), flags, 0, size_bytes) {
        // A file system without preallocation still serves; space may run out later there.
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(size_bytes)?,
        result => result?,
    }
    file.sync_all()?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn open_failed(path: &Path, error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EINVAL) => " (the file system does not support direct I/O)",
        _ => "",
    };
    format!("cannot open {}: {error}{hint}", path.display())
}

/// The error for a kernel that does not let us have a ring.
pub fn ring_failed(error: &io::Error) -> String {
    let hint = match error.raw_os_error() {
        Some(libc::EPERM) => " (see kernel.io_uring_disabled and the container's seccomp profile)",
        Some(libc::ENOSYS | libc::EINVAL) => " (Linux 6.1 or newer is needed)",
        _ => "",
    };
    format!("cannot set up io_uring: {error}{hint}")
}
