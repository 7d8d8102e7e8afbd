//! Read buffers: blocks of a power of two cut from the core's registered region (buddy scheme).
//!
//! A [`DmaBuf`] returns itself when dropped. A request that the region cannot serve *now* is
//! answered with `None` (back-pressure); one larger than the region can ever serve is mapped on
//! its own, so that a large value can always be read.

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use super::region::Region;

/// Smallest block: 4 KiB.
const BLOCK_MIN_BITS: u32 = 12;
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
    region: Rc<Region>,
    free: RefCell<Free>,
    block_max_bits: u32,
}

/// Free blocks: a stack of offsets per order, and per smallest block whether a free block of
/// some order starts there (order + 1; 0 = none), so that a buddy is found without search.
#[derive(Debug)]
struct Free {
    stacks: [Vec<u32>; ORDERS],
    starts: Vec<u8>,
    /// Position of each free block in its stack, for removal in O(1).
    places: Vec<u32>,
    used_bytes: usize,
}

impl Free {
    fn push(&mut self, order: usize, block: u32) {
        self.starts[block as usize] = order as u8 + 1;
        self.places[block as usize] = self.stacks[order].len() as u32;
        self.stacks[order].push(block);
    }

    fn pop(&mut self, order: usize) -> Option<u32> {
        let block = self.stacks[order].pop()?;
        self.starts[block as usize] = 0;
        Some(block)
    }

    fn remove(&mut self, order: usize, block: u32) {
        let place = self.places[block as usize] as usize;
        self.stacks[order].swap_remove(place);
        if let Some(&moved) = self.stacks[order].get(place) {
            self.places[moved as usize] = place as u32;
        }
        self.starts[block as usize] = 0;
    }

    fn take(&mut self, order: usize, order_max: usize) -> Option<u32> {
        let found = (order..=order_max).find(|&o| !self.stacks[o].is_empty())?;
        let block = self.pop(found)?;
        for split in (order..found).rev() {
            self.push(split, block + (1 << split));
        }
        self.used_bytes += 1 << (order as u32 + BLOCK_MIN_BITS);
        Some(block)
    }

    fn give(&mut self, mut order: usize, mut block: u32, order_max: usize) {
        self.used_bytes -= 1 << (order as u32 + BLOCK_MIN_BITS);
        // The smallest blocks are merged lazily: most reads want one, and splitting and merging
        // on every read would cost more than the read's bookkeeping.
        while order > 0 && order < order_max {
            let buddy = block ^ (1 << order);
            if self.starts.get(buddy as usize) != Some(&(order as u8 + 1)) {
                break;
            }
            self.remove(order, buddy);
            block = block.min(buddy);
            order += 1;
        }
        self.push(order, block);
    }

    /// Merges all free buddies; called when a larger block is wanted and none is whole.
    fn compact(&mut self, order_max: usize) {
        for order in 0..order_max {
            let mut index = 0;
            while let Some(&block) = self.stacks[order].get(index) {
                let buddy = block ^ (1 << order);
                if self.starts.get(buddy as usize) == Some(&(order as u8 + 1)) {
                    self.remove(order, block);
                    self.remove(order, buddy);
                    // The last block has moved to `index`; look at it next.
                    self.push(order + 1, block.min(buddy));
                } else {
                    index += 1;
                }
            }
        }
    }
}

impl BufPool {
    /// A pool of `size_bytes` of memory.
    pub fn new(size_bytes: usize, index: u16) -> io::Result<BufPool> {
        let region = Rc::new(Region::new(size_bytes, index)?);
        let blocks = region.len() >> BLOCK_MIN_BITS;
        let block_max_bits = BLOCK_MAX_BITS.min(usize::BITS - 1 - region.len().leading_zeros());
        let mut free = Free {
            stacks: std::array::from_fn(|_| Vec::new()),
            starts: vec![0; blocks],
            places: vec![0; blocks],
            used_bytes: 0,
        };
        free.stacks[0].reserve(blocks);
        let mut block = 0;
        while block < blocks {
            let fit = (usize::BITS - 1 - (blocks - block).leading_zeros())
                .min(block.trailing_zeros())
                .min(block_max_bits - BLOCK_MIN_BITS);
            free.push(fit as usize, block as u32);
            block += 1 << fit;
        }
        let inner = Inner { region, free: RefCell::new(free), block_max_bits };
        Ok(BufPool { inner: Rc::new(inner) })
    }

    /// A buffer of at least `len` bytes, or `None` when the pool has none free now.
    pub fn get(&self, len: usize) -> Option<DmaBuf> {
        let bits = len.max(1).next_power_of_two().trailing_zeros().max(BLOCK_MIN_BITS);
        if bits > self.inner.block_max_bits {
            let region = Rc::new(Region::new(len, u16::MAX).ok()?);
            let len = region.len();
            return Some(DmaBuf { region, offset: 0, len, home: None });
        }
        let order = (bits - BLOCK_MIN_BITS) as usize;
        let order_max = (self.inner.block_max_bits - BLOCK_MIN_BITS) as usize;
        let mut free = self.inner.free.borrow_mut();
        let block = match free.take(order, order_max) {
            Some(block) => block,
            None if order == 0 => return None,
            None => {
                free.compact(order_max);
                free.take(order, order_max)?
            }
        };
        Some(DmaBuf {
            region: Rc::clone(&self.inner.region),
            offset: (block as usize) << BLOCK_MIN_BITS,
            len: 1 << bits,
            home: Some(Rc::clone(&self.inner)),
        })
    }

    pub fn region(&self) -> &Rc<Region> {
        &self.inner.region
    }

    /// Bytes handed out now.
    pub fn used_bytes(&self) -> usize {
        self.inner.free.borrow().used_bytes
    }
}

/// An owned buffer that a device may fill. Dereferences to its whole capacity.
#[derive(Debug)]
pub struct DmaBuf {
    region: Rc<Region>,
    offset: usize,
    len: usize,
    home: Option<Rc<Inner>>,
}

impl DmaBuf {
    /// Place in the core's list of registered buffers; `u16::MAX` when it is not registered.
    pub fn region_index(&self) -> u16 {
        self.region.index()
    }
}

impl Deref for DmaBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the pool hands a block to one owner at a time, and `&self` excludes `&mut`.
        unsafe { self.region.slice(self.offset, self.len) }
    }
}

impl DerefMut for DmaBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the pool hands a block to one owner at a time, and `&mut self` is exclusive.
        unsafe { self.region.slice_mut(self.offset, self.len) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            let order = self.len.trailing_zeros() - BLOCK_MIN_BITS;
            let block = (self.offset >> BLOCK_MIN_BITS) as u32;
            let order_max = (home.block_max_bits - BLOCK_MIN_BITS) as usize;
            home.free.borrow_mut().give(order as usize, block, order_max);
        }
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
