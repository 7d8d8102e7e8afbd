//! Read buffers: blocks of a power of two cut from the core's registered region (buddy scheme).
//!
//! A [`DmaBuf`] returns itself when dropped. A request that the region cannot serve *now* is
//! answered with `None` (back-pressure); one larger than the region can ever serve is mapped on
//! its own, so that a large value can always be read.

use std::cell::{Cell, RefCell};
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::region::Region;

/// Smallest block: 4 KiB.
const BLOCK_MIN_BITS: u32 = 12;
const BLOCK_MIN_BYTES: usize = 1 << BLOCK_MIN_BITS;
/// Largest block: 16 MiB.
const BLOCK_MAX_BITS: u32 = 24;
const ORDERS: usize = (BLOCK_MAX_BITS - BLOCK_MIN_BITS + 1) as usize;

/// The pool of one core. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BufPool {
    inner: Rc<Inner>,
}

#[derive(Debug)]
struct Inner {
    region: Region,
    free: RefCell<Free>,
    order_max: usize,
    /// Handed out.
    used_bytes: Cell<usize>,
    /// From here on buffers are scarce.
    scarce_bytes: usize,
}

/// Free blocks, by the number of their first smallest block: a stack per order.
#[derive(Debug)]
struct Free {
    stacks: [Vec<u32>; ORDERS],
    /// Blocks have come back since all were merged.
    can_merge: bool,
}

impl Free {
    #[inline]
    fn take(&mut self, order: usize, order_max: usize) -> Option<u32> {
        self.stacks[order].pop().or_else(|| self.split_or_merge(order, order_max))
    }

    #[cold]
    fn split_or_merge(&mut self, order: usize, order_max: usize) -> Option<u32> {
        self.split(order, order_max).or_else(|| {
            self.merge(order_max);
            self.stacks[order].pop().or_else(|| self.split(order, order_max))
        })
    }

    /// Takes the front of a larger block.
    fn split(&mut self, order: usize, order_max: usize) -> Option<u32> {
        let found = (order + 1..=order_max).find(|&o| !self.stacks[o].is_empty())?;
        let block = self.stacks[found].pop()?;
        for smaller in order..found {
            self.stacks[smaller].push(block + (1 << smaller));
        }
        Some(block)
    }

    /// Merges all free buddies. Only when a block is wanted and none is whole: most buffers are
    /// of one size, and merging and splitting each would cost more than all else about them.
    #[cold]
    fn merge(&mut self, order_max: usize) {
        if !std::mem::take(&mut self.can_merge) {
            return;
        }
        for order in 0..order_max {
            let mut blocks = std::mem::take(&mut self.stacks[order]);
            blocks.sort_unstable();
            let mut rest = blocks.as_slice();
            while let [block, after @ ..] = rest {
                let is_lower = block & (1 << order) == 0;
                let merges = is_lower && after.first() == Some(&(block + (1 << order)));
                self.stacks[order + usize::from(merges)].push(*block);
                rest = if merges { &after[1..] } else { after };
            }
        }
    }
}

impl BufPool {
    /// A pool of `size_bytes` of memory.
    pub fn new(size_bytes: usize, index: u16) -> io::Result<BufPool> {
        let region = Region::new(size_bytes, index)?;
        let blocks = region.len() >> BLOCK_MIN_BITS;
        let order_max = (blocks.max(1).ilog2() as usize).min(ORDERS - 1);
        let mut free = Free { stacks: std::array::from_fn(|_| Vec::new()), can_merge: false };
        let mut block = 0;
        while block < blocks {
            let aligned = block.trailing_zeros() as usize;
            let order = ((blocks - block).ilog2() as usize).min(aligned).min(order_max);
            free.stacks[order].push(block as u32);
            block += 1 << order;
        }
        let scarce_bytes = region.len() / 4 * 3;
        let (free, used_bytes) = (RefCell::new(free), Cell::new(0));
        let inner = Inner { region, free, order_max, used_bytes, scarce_bytes };
        Ok(BufPool { inner: Rc::new(inner) })
    }

    /// A buffer of at least `len` bytes, or `None` when the pool has none free now.
    #[inline]
    pub fn get(&self, len: usize) -> Option<DmaBuf> {
        let order = order_of(len);
        if order > self.inner.order_max {
            return BufPool::alone(len);
        }
        let block = self.inner.free.borrow_mut().take(order, self.inner.order_max)?;
        let used_bytes = self.inner.used_bytes.get() + (BLOCK_MIN_BYTES << order);
        self.inner.used_bytes.set(used_bytes);
        let len = (BLOCK_MIN_BYTES << order) as u32;
        Some(DmaBuf { home: Rc::clone(&self.inner), block, len })
    }

    /// A buffer larger than the pool can ever serve, in a mapping of its own.
    #[cold]
    fn alone(len: usize) -> Option<DmaBuf> {
        let len = u32::try_from(len).ok()?;
        let pool = BufPool::new(len as usize, u16::MAX).ok()?;
        let len = u32::try_from(pool.inner.region.len()).ok()?;
        Some(DmaBuf { home: pool.inner, block: 0, len })
    }

    pub fn region(&self) -> &Region {
        &self.inner.region
    }

    /// Bytes handed out now.
    pub fn used_bytes(&self) -> usize {
        self.inner.used_bytes.get()
    }

    /// Three quarters of the pool are handed out.
    pub fn is_scarce(&self) -> bool {
        self.inner.used_bytes.get() > self.inner.scarce_bytes
    }
}

/// The order of the smallest block that holds `len` bytes.
fn order_of(len: usize) -> usize {
    let blocks = len.div_ceil(BLOCK_MIN_BYTES).max(1);
    blocks.next_power_of_two().trailing_zeros() as usize
}

/// An owned buffer that a device may fill. Dereferences to its whole capacity.
#[derive(Debug)]
pub struct DmaBuf {
    home: Rc<Inner>,
    /// The first of its smallest blocks.
    block: u32,
    /// A power of two, unless the buffer is alone in its region.
    len: u32,
}

impl DmaBuf {
    /// Place in the core's list of registered buffers; `u16::MAX` when it is not registered.
    pub fn region_index(&self) -> u16 {
        self.home.region.index()
    }

    fn offset(&self) -> usize {
        (self.block as usize) << BLOCK_MIN_BITS
    }
}

impl Deref for DmaBuf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the pool hands a block to one owner at a time, and `&self` excludes `&mut`.
        unsafe { self.home.region.slice(self.offset(), self.len as usize) }
    }
}

impl DerefMut for DmaBuf {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the pool hands a block to one owner at a time, and `&mut self` is exclusive.
        unsafe { self.home.region.slice_mut(self.offset(), self.len as usize) }
    }
}

impl Drop for DmaBuf {
    #[inline]
    fn drop(&mut self) {
        let len = self.len as usize;
        let Some(used_bytes) = self.home.used_bytes.get().checked_sub(len) else { return };
        self.home.used_bytes.set(used_bytes);
        let mut free = self.home.free.borrow_mut();
        free.stacks[order_of(len)].push(self.block);
        free.can_merge = true;
    }
}

#[cfg(test)]
mod tests {
    use super::BufPool;

    #[test]
    fn blocks_are_disjoint_and_come_back() {
        let pool = BufPool::new(1 << 20, 0).unwrap();
        let mut held = Vec::new();
        while let Some(mut buf) = pool.get(4096) {
            buf[0] = held.len() as u8;
            buf[4095] = held.len() as u8;
            held.push(buf);
        }
        assert_eq!(held.len(), 256);
        assert_eq!(pool.used_bytes(), 1 << 20);
        for (i, buf) in held.iter().enumerate() {
            assert_eq!((buf[0], buf[4095]), (i as u8, i as u8));
        }
        drop(held);
        assert_eq!(pool.used_bytes(), 0);
        assert_eq!(pool.get(1 << 20).expect("all free blocks merge again").len(), 1 << 20);
    }

    #[test]
    fn mixed_sizes_never_overlap() {
        let pool = BufPool::new(3 << 20, 0).unwrap();
        let mut held: Vec<(usize, super::DmaBuf)> = Vec::new();
        let mut state = 7u64;
        for round in 0..20_000usize {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (state >> 33) as usize;
            if pick.is_multiple_of(3) && !held.is_empty() {
                let (mark, buf) = held.swap_remove(pick % held.len());
                assert!(buf.iter().all(|&b| b == mark as u8));
            } else if let Some(mut buf) = pool.get(1 + pick % 200_000) {
                buf.fill(round as u8);
                held.push((round, buf));
            }
        }
        drop(held);
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn a_value_larger_than_the_pool_is_mapped_alone() {
        let pool = BufPool::new(1 << 20, 0).unwrap();
        let buf = pool.get(40 << 20).unwrap();
        assert_eq!((buf.len(), buf.region_index()), (40 << 20, u16::MAX));
        assert_eq!(pool.used_bytes(), 0);
    }
}
