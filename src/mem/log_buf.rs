//! The buffer of a segment that is being filled: append only, and what was handed to the device
//! is never written again.

use std::io;
use std::ops::Range;
use std::rc::Rc;

use super::region::Region;

/// Memory of one segment. Bytes below the frozen mark are immutable until [`LogBuf::reset`].
#[derive(Debug)]
pub struct LogBuf {
    region: Rc<Region>,
    frozen: usize,
}

impl LogBuf {
    pub fn new(size_bytes: usize, index: u16) -> io::Result<LogBuf> {
        Ok(LogBuf { region: Rc::new(Region::new(size_bytes, index)?), frozen: 0 })
    }

    pub fn region(&self) -> &Rc<Region> {
        &self.region
    }

    pub fn len(&self) -> usize {
        self.region.len()
    }

    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The bytes of `range`, frozen or not.
    pub fn get(&self, range: Range<usize>) -> &[u8] {
        // SAFETY: bytes are written only through `&mut self`, which this borrow excludes; the
        // device only reads them.
        unsafe { self.region.slice(range.start, range.len()) }
    }

    /// The bytes of `range` for writing. Panics when the range reaches below the frozen mark:
    /// the device may be reading there.
    pub fn get_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start >= self.frozen, "write to a frozen part of a log buffer");
        // SAFETY: above the frozen mark there are no `DmaSlice`s, and `&mut self` excludes every
        // other view.
        unsafe { self.region.slice_mut(range.start, range.len()) }
    }

    /// Freezes everything below `range.end` and returns the range for the device to read.
    pub fn freeze(&mut self, range: Range<usize>) -> DmaSlice {
        assert!(range.start <= range.end && range.end <= self.len());
        self.frozen = self.frozen.max(range.end);
        DmaSlice { region: Rc::clone(&self.region), offset: range.start, len: range.len() }
    }

    /// Makes the buffer writable from its start again, or returns false when the device still
    /// holds a part of it.
    pub fn reset(&mut self) -> bool {
        if Rc::strong_count(&self.region) > 1 {
            return false;
        }
        self.frozen = 0;
        true
    }
}

/// A frozen range of a [`LogBuf`], readable by the device for as long as it lives.
#[derive(Debug)]
pub struct DmaSlice {
    region: Rc<Region>,
    offset: usize,
    len: usize,
}

impl DmaSlice {
    pub fn region_index(&self) -> u16 {
        self.region.index()
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `LogBuf::get_mut` refuses frozen bytes, and `reset` refuses to thaw while a
        // slice lives.
        unsafe { self.region.slice(self.offset, self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::LogBuf;

    #[test]
    fn frozen_bytes_stay_until_the_device_is_done() {
        let mut buf = LogBuf::new(8192, 1).unwrap();
        buf.get_mut(0..4).copy_from_slice(b"abcd");
        let slice = buf.freeze(0..4);
        buf.get_mut(4..8).copy_from_slice(b"efgh");
        assert_eq!(slice.as_slice(), b"abcd");
        assert!(!buf.reset());
        drop(slice);
        assert!(buf.reset());
        buf.get_mut(0..1)[0] = b'x';
        assert_eq!(buf.get(0..8), b"xbcdefgh");
    }

    #[test]
    #[should_panic(expected = "frozen part")]
    fn a_write_below_the_mark_is_refused() {
        let mut buf = LogBuf::new(4096, 1).unwrap();
        let _slice = buf.freeze(0..16);
        buf.get_mut(8..24);
    }
}
