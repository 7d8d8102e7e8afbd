//! One piece of memory, page-aligned, that a device may read and write: an anonymous mapping, or
//! memory of SPDK's environment once that has started.

use std::io;
use std::ptr::NonNull;
use std::slice;

#[cfg(feature = "spdk")]
use super::environment;

/// Page-aligned, zeroed memory. It lives until the last buffer cut from it is gone.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    /// Position in the core's list of registered buffers.
    index: u16,
    source: Source,
}

/// Where the memory is from and has to go back to.
#[derive(Clone, Copy, Debug)]
enum Source {
    Mapping,
    #[cfg(feature = "spdk")]
    Environment,
}

impl Region {
    /// Takes `len` bytes (rounded up to whole pages). `index` is the place in the core's list of
    /// registered buffers.
    pub fn new(len: usize, index: u16) -> io::Result<Region> {
        let len = len.next_multiple_of(4096);
        #[cfg(feature = "spdk")]
        if let Some(found) = environment::allocate(len) {
            let source = Source::Environment;
            let start = found.ok_or_else(|| {
                io::Error::new(io::ErrorKind::OutOfMemory, "no hugepage memory is left")
            })?;
            return Ok(Region { start, len, index, source });
        }
        Ok(Region { start: map(len)?, len, index, source: Source::Mapping })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn index(&self) -> u16 {
        self.index
    }

    /// Address of the first byte, for the kernel.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The whole range as address and length, for registration with the kernel.
    pub fn as_iovec(&self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.len }
    }

    /// A shared view of a range that nobody writes while the view lives.
    ///
    /// # Safety
    /// No `&mut` to any byte of the range may exist or be made while the result lives.
    pub unsafe fn slice(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: in bounds of a live, initialised mapping; aliasing is the caller's promise.
        unsafe { slice::from_raw_parts(self.start.as_ptr().add(offset), len) }
    }

    /// An exclusive view of a range.
    ///
    /// # Safety
    /// No other reference to any byte of the range may exist while the result lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut(&self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        // SAFETY: in bounds of a live, initialised mapping; aliasing is the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().add(offset), len) }
    }
}

fn map(len: usize) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
    // existing memory; the result is checked before use.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?)
}

impl Drop for Region {
    fn drop(&mut self) {
        match self.source {
            // SAFETY: the mapping was made by `new` with this length and nothing refers to it any
            // more: every buffer holds a counted reference to its region.
            Source::Mapping => unsafe {
                libc::munmap(self.start.as_ptr().cast(), self.len);
            },
            #[cfg(feature = "spdk")]
            // SAFETY: the memory is from the environment, and nothing refers to it any more.
            Source::Environment => unsafe { environment::free(self.start) },
        }
    }
}
