//! Memory for many short arrays that grow and shrink: no holes, no pauses.
//!
//! A run has a capacity, and a chunk holds runs of one capacity only, side by side. All chunks of
//! a capacity but the last one are full: when a run is given back, the last run of its capacity
//! moves into the hole, and the caller is told so that it can follow. Memory is thus lost in the
//! last chunk of each capacity and behind the last run of a chunk, and nowhere else.

use std::mem;

use super::index_pages::Pages;

/// Most items of a chunk. A run that needs more has a chunk of its own.
const CHUNK_LEN: usize = 1024;

/// So many chunks are smaller: about twenty capacities are in use, each with a last chunk that is
/// half empty, and a small arena feels it.
const SMALL_CHUNKS: usize = 512;
const SMALL_CHUNK_LEN: usize = CHUNK_LEN / 2;

/// One spare chunk is kept for so many in use; more go back to the allocator.
const SPARE_PART: usize = 32;

/// Chunks that the 32 bits of [`Run::first`] can name.
const CHUNKS_MAX: u32 = (1u64 << 32).div_euclid(CHUNK_LEN as u64) as u32;

/// Chunks to a page of their table.
const CHUNKS_PAGE: usize = 256;

const NO_CHUNK: u32 = u32::MAX;

/// An array in an [`Arena`]: at most 65,535 items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    /// Chunk and first item.
    first: u32,
    len: u16,
    /// Zero: no memory.
    capacity: u16,
}

impl Run {
    pub fn len(self) -> usize {
        self.len as usize
    }

    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    fn chunk(self) -> usize {
        self.first as usize / CHUNK_LEN
    }

    fn offset(self) -> usize {
        self.first as usize % CHUNK_LEN
    }
}

/// The run of `owner` has moved: see [`Moved::apply`].
#[derive(Debug)]
#[must_use]
pub struct Moved {
    pub owner: u32,
    first: u32,
}

impl Moved {
    /// `run` is that of the owner.
    pub fn apply(self, run: &mut Run) {
        run.first = self.first;
    }
}

#[derive(Debug)]
struct Chunk<T> {
    /// The runs, side by side. Grows by a run at a time within its allocation, so that memory is
    /// touched when it is needed, not before.
    items: Vec<T>,
    /// Owner of each run.
    owners: Vec<u32>,
    /// Of each run.
    capacity: u16,
    /// The full chunk of this capacity that comes before; `NO_CHUNK` at the first.
    before: u32,
}

impl<T> Default for Chunk<T> {
    fn default() -> Chunk<T> {
        Chunk { items: Vec::new(), owners: Vec::new(), capacity: 0, before: NO_CHUNK }
    }
}

#[derive(Debug)]
pub struct Arena<T> {
    chunks: Pages<Chunk<T>, CHUNKS_PAGE>,
    /// Numbers of chunks without memory.
    vacant: Vec<u32>,
    /// By capacity: the last chunk.
    last: Vec<u32>,
    /// Memory of chunks given back, for the next ones. Kept from the allocator: it would cut
    /// smaller pieces from them.
    spare: Vec<Vec<T>>,
    chunks_bytes: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Arena<T> {
        Arena {
            chunks: Pages::default(),
            vacant: Vec::new(),
            last: Vec::new(),
            spare: Vec::new(),
            chunks_bytes: 0,
        }
    }
}

/// Runs grow by so many items: short ones exactly, long ones by at most an eighth.
fn step(len: usize) -> usize {
    match len {
        0..=16 => 1,
        17..=32 => 2,
        _ => 4,
    }
}

impl<T: Copy + Default> Arena<T> {
    #[inline]
    pub fn items(&self, run: Run) -> &[T] {
        if run.is_empty() {
            return &[];
        }
        &self.chunks.get(run.chunk()).items[run.offset()..run.offset() + run.len()]
    }

    pub fn items_mut(&mut self, run: Run) -> &mut [T] {
        if run.is_empty() {
            return &mut [];
        }
        &mut self.chunks.get_mut(run.chunk()).items[run.offset()..run.offset() + run.len()]
    }

    /// Inserts before the item at `at`. `run` is up to date afterwards.
    pub fn insert(&mut self, run: &mut Run, owner: u32, at: usize, item: T) -> Option<Moved> {
        let moved = if run.len == run.capacity { self.refit(run, owner, 1) } else { None };
        let len = run.len();
        run.len += 1;
        let items = self.items_mut(*run);
        items.copy_within(at..len, at + 1);
        items[at] = item;
        moved
    }

    /// Removes the item at `at`. `run` is up to date afterwards.
    pub fn remove(&mut self, run: &mut Run, owner: u32, at: usize) -> Option<Moved> {
        self.items_mut(*run).copy_within(at + 1.., at);
        run.len -= 1;
        // One step stays free, lest a run at a boundary moves each time that it changes.
        if run.is_empty() || run.len() + 2 * step(run.len()) <= run.capacity as usize {
            return self.refit(run, owner, 0);
        }
        None
    }

    /// A new run of the first `len` items.
    pub fn write(&mut self, owner: u32, len: usize, items: impl Iterator<Item = T>) -> Run {
        let mut run = self.alloc(owner, len);
        run.len = len as u16;
        for (place, item) in self.items_mut(run).iter_mut().zip(items) {
            *place = item;
        }
        run
    }

    /// Gives the memory of `run` back; its content is gone.
    pub fn free(&mut self, run: Run) -> Option<Moved> {
        if run.capacity == 0 {
            return None;
        }
        let last_chunk = self.last[run.capacity as usize];
        let chunk = self.chunks.get_mut(last_chunk as usize);
        let owner = chunk.owners.pop()?;
        let offset = chunk.items.len() - run.capacity as usize;
        let last = Run { first: last_chunk * CHUNK_LEN as u32 + offset as u32, ..run };
        if last.first != run.first {
            self.copy(last, run, run.capacity as usize);
            let place = run.offset() / run.capacity as usize;
            self.chunks.get_mut(run.chunk()).owners[place] = owner;
        }
        self.chunks.get_mut(last_chunk as usize).items.truncate(offset);
        if offset == 0 {
            self.retire(last_chunk);
        }
        (last.first != run.first).then_some(Moved { owner, first: run.first })
    }

    /// Moves `run` into memory that fits its length and `more` items.
    fn refit(&mut self, run: &mut Run, owner: u32, more: usize) -> Option<Moved> {
        let old = *run;
        *run = self.alloc(owner, old.len() + more);
        run.len = old.len;
        self.copy(old, *run, old.len());
        self.free(old)
    }

    fn copy(&mut self, from: Run, to: Run, len: usize) {
        let (from_chunk, to_chunk) = (from.chunk(), to.chunk());
        if len == 0 {
            return;
        }
        let source = from.offset()..from.offset() + len;
        if from_chunk == to_chunk {
            self.chunks.get_mut(from_chunk).items.copy_within(source, to.offset());
            return;
        }
        // Taken out for a moment: two chunks cannot be borrowed at once.
        let items = mem::take(&mut self.chunks.get_mut(from_chunk).items);
        let target = to.offset()..to.offset() + len;
        self.chunks.get_mut(to_chunk).items[target].copy_from_slice(&items[source]);
        self.chunks.get_mut(from_chunk).items = items;
    }

    /// A run with room for `len` items. No room, no memory.
    fn alloc(&mut self, owner: u32, len: usize) -> Run {
        let capacity = len.next_multiple_of(step(len));
        assert!(capacity <= u16::MAX as usize, "{len} keys of one partition: hash is not random");
        if capacity == 0 {
            return Run::default();
        }
        let number = self.roomy_chunk(capacity);
        let chunk = self.chunks.get_mut(number as usize);
        let offset = chunk.items.len();
        chunk.items.resize(offset + capacity, T::default());
        chunk.owners.push(owner);
        let first = number * CHUNK_LEN as u32 + offset as u32;
        Run { first, len: 0, capacity: capacity as u16 }
    }

    /// The last chunk of `capacity`, with room for one more run.
    fn roomy_chunk(&mut self, capacity: usize) -> u32 {
        if self.last.len() <= capacity {
            self.last.resize(capacity + 1, NO_CHUNK);
        }
        let before = self.last[capacity];
        if before != NO_CHUNK {
            let items = &self.chunks.get(before as usize).items;
            if items.len() + capacity <= items.capacity().min(CHUNK_LEN) {
                return before;
            }
        }
        let chunk = self.new_chunk(capacity, before);
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.chunks.grow();
            self.chunks.len() as u32 - 1
        });
        assert!(number < CHUNKS_MAX, "index of 2^32 slots is full");
        *self.chunks.get_mut(number as usize) = chunk;
        self.last[capacity] = number;
        number
    }

    fn new_chunk(&mut self, capacity: usize, before: u32) -> Chunk<T> {
        let spare = self.spare.pop_if(|items| items.capacity() >= capacity);
        let items = spare.unwrap_or_else(|| {
            let small = self.in_use() <= SMALL_CHUNKS;
            let len = if small { SMALL_CHUNK_LEN } else { CHUNK_LEN };
            let items = Vec::with_capacity(len.max(capacity));
            self.chunks_bytes += items.capacity() * size_of::<T>();
            items
        });
        let owners = Vec::with_capacity(items.capacity() / capacity);
        self.chunks_bytes += owners.capacity() * size_of::<u32>();
        Chunk { items, owners, capacity: capacity as u16, before }
    }

    fn retire(&mut self, number: u32) {
        let chunk = mem::take(self.chunks.get_mut(number as usize));
        self.last[chunk.capacity as usize] = chunk.before;
        self.vacant.push(number);
        self.chunks_bytes -= chunk.owners.capacity() * size_of::<u32>();
        if chunk.items.capacity() <= CHUNK_LEN && self.spare.len() <= self.in_use() / SPARE_PART {
            self.spare.push(chunk.items);
        } else {
            self.chunks_bytes -= chunk.items.capacity() * size_of::<T>();
        }
    }

    fn in_use(&self) -> usize {
        self.chunks.len() - self.vacant.len()
    }

    /// All memory that is held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let tables = (self.vacant.capacity() + self.last.capacity()) * size_of::<u32>();
        let spares = self.spare.capacity() * size_of::<Vec<T>>();
        self.chunks_bytes + self.chunks.memory_bytes() + tables + spares
    }
}

#[cfg(test)]
mod tests {
    use super::{Arena, CHUNK_LEN, Run};

    /// Runs by owner, with what they should hold.
    struct Owners {
        arena: Arena<u64>,
        runs: Vec<(Run, Vec<u64>)>,
    }

    impl Owners {
        fn new(count: usize) -> Owners {
            Owners { arena: Arena::default(), runs: vec![(Run::default(), Vec::new()); count] }
        }

        fn insert(&mut self, owner: usize, at: usize, item: u64) {
            let (run, items) = &mut self.runs[owner];
            items.insert(at, item);
            if let Some(moved) = self.arena.insert(run, owner as u32, at, item) {
                let other = moved.owner as usize;
                moved.apply(&mut self.runs[other].0);
            }
        }

        fn remove(&mut self, owner: usize, at: usize) {
            let (run, items) = &mut self.runs[owner];
            items.remove(at);
            if let Some(moved) = self.arena.remove(run, owner as u32, at) {
                let other = moved.owner as usize;
                moved.apply(&mut self.runs[other].0);
            }
        }

        fn check(&self) {
            for (run, items) in &self.runs {
                assert_eq!(self.arena.items(*run), items);
            }
        }
    }

    #[test]
    fn runs_keep_their_items_when_others_come_and_go() {
        let mut owners = Owners::new(300);
        let mut random = 1u64;
        for step in 0..200_000u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let owner = (random >> 33) as usize % 300;
            let len = owners.runs[owner].1.len();
            let at = (random >> 44) as usize % (len + 1);
            // Phases of growth and of decay.
            if random >> 61 < if step / 50_000 % 2 == 0 { 6 } else { 2 } {
                owners.insert(owner, at, step);
            } else if at < len {
                owners.remove(owner, at);
            }
            if step % 10_000 == 0 {
                owners.check();
            }
        }
        owners.check();
    }

    #[test]
    fn a_run_longer_than_a_chunk_is_held_too() {
        let mut owners = Owners::new(3);
        for n in 0..3 * CHUNK_LEN {
            owners.insert(n % 2, n / 4, n as u64);
        }
        owners.check();
        while !owners.runs[0].1.is_empty() {
            owners.remove(0, 0);
        }
        owners.check();
    }

    #[test]
    fn empty_runs_hold_no_memory() {
        let mut owners = Owners::new(100);
        for owner in 0..100 {
            for n in 0..100 {
                owners.insert(owner, n, n as u64);
            }
        }
        let full = owners.arena.memory_bytes();
        assert!(full >= 100 * 100 * size_of::<u64>());
        for owner in 0..100 {
            for _ in 0..100 {
                owners.remove(owner, 0);
            }
        }
        assert!(owners.runs.iter().all(|(run, _)| *run == Run::default()));
        assert!(owners.arena.memory_bytes() < full / 3, "{}", owners.arena.memory_bytes());
    }
}
