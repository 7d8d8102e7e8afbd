//! The data devices: created if the settings say so, opened, and put together as a set.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::config::value::DataFile;
use crate::config::{Config, StorageBackend};
use crate::disk::uring::{BlockingDisk, Device};
use crate::disk::{Disk, Geometry};
use crate::mem::BufPool;
use crate::shard::open::{OpenOptions as SetOptions, Opened, open as open_set};
use crate::shard::superblock::BLANK_BYTES;

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

/// Opens all devices of the settings and the set that they form. `cpu` is one that we may use.
pub fn open(config: &Config, cores: usize, cpu: usize) -> Result<(Devices, Opened), String> {
    let options = SetOptions { cores: cores as u16, salvage: config.persistence.salvage };
    let (devices, opened) = match config.storage.backend {
        StorageBackend::Uring => open_files(config, options)?,
        #[cfg(feature = "spdk")]
        StorageBackend::Spdk => {
            let set = super::spdk::open(config, cores, cpu)?;
            let opened = assemble(&mut crate::disk::spdk::BlockingDisk::new(&set)?, options)?;
            (Devices::Spdk(set), opened)
        }
        #[cfg(not(feature = "spdk"))]
        StorageBackend::Spdk => {
            return Err(format!("--storage spdk: not in this build (CPU {cpu})"));
        }
    };
    opened.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    if opened.formatted {
        log::info!("the data devices were empty and have been formatted");
    }
    for name in &opened.joined {
        log::info!("{name} was empty and has joined the set of the other data devices");
    }
    Ok((devices, opened))
}

/// An attempt that fails leaves no file behind that was not there before.
fn open_files(config: &Config, options: SetOptions) -> Result<(Devices, Opened), String> {
    let paths: Vec<PathBuf> =
        config.storage.devices().into_iter().map(path_of).collect::<Result<_, _>>()?;
    refuse_repeated(&paths)?;
    let mut created = Vec::new();
    open_all(config, options, &paths, &mut created).inspect_err(|_| {
        // One that has got as far as a superblock may be a member that the set cannot do without.
        for path in created.iter().filter(|path| is_blank(path)) {
            let _ = std::fs::remove_file(path);
        }
    })
}

fn path_of(device: DataFile) -> Result<PathBuf, String> {
    match device {
        DataFile::Path(path) => Ok(path),
        other => Err(format!("--data-file {other} needs --storage spdk")),
    }
}

/// Whether a file has neither a superblock nor a part of one.
fn is_blank(path: &Path) -> bool {
    let mut start = vec![0; BLANK_BYTES];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut start, 0));
    read.is_ok() && start.iter().all(|&byte| byte == 0)
}

/// One file or device under two names would be locked against itself, or be two members.
fn refuse_repeated(paths: &[PathBuf]) -> Result<(), String> {
    let mut seen = HashMap::new();
    for path in paths {
        let Ok(metadata) = path.metadata() else { continue };
        let identity = match metadata.file_type().is_block_device() {
            true => (None, metadata.rdev()),
            false => (Some(metadata.dev()), metadata.ino()),
        };
        if let Some(other) = seen.insert(identity, path) {
            return Err(format!(
                "{} and {} are the same file; give it once",
                other.display(),
                path.display()
            ));
        }
    }
    Ok(())
}

fn open_all<'a>(
    config: &Config,
    options: SetOptions,
    paths: &'a [PathBuf],
    created: &mut Vec<&'a Path>,
) -> Result<(Devices, Opened), String> {
    let mut devices = Vec::new();
    for path in paths {
        if !path.exists() {
            create(path, config.storage.create_size_bytes())?;
            created.push(path);
        }
        warn_if_sparse(path);
        devices.push(open_patiently(path).map_err(|error| open_failed(path, &error))?);
    }
    let devices = Arc::new(devices);
    let disk = BlockingDisk::new(Arc::clone(&devices));
    let opened = assemble(&mut disk.map_err(|error| ring_failed(&error))?, options)?;
    Ok((Devices::Kernel(devices), opened))
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
    // Asked before anything is written.
    getrandom::fill(&mut [0; 32]).map_err(|error| format!("no random numbers: {error}"))?;
    let mut failed = None;
    let mut random = |bytes: &mut [u8]| failed = getrandom::fill(bytes).err().or(failed);
    let opened = open_set(disk, &pool, options, &mut random);
    match failed {
        Some(error) => Err(format!("no random numbers: {error}")),
        None => opened.map_err(|error| error.to_string()),
    }
}

/// A file that has no blocks for all of its bytes relies on its file system having them later.
fn warn_if_sparse(path: &Path) {
    let Ok(metadata) = path.metadata() else { return };
    let size_bytes = metadata.len();
    if metadata.is_file() && metadata.blocks() * 512 < size_bytes {
        let name = path.display();
        log::warn!(
            "{name} is sparse: when its file system is full, writes fail for good; \
             fallocate -l {size_bytes} {name} reserves its space"
        );
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
