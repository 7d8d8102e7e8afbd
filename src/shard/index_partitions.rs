//! The partitions of an index: small sorted arrays of slots, and the expiries beside them.

use std::mem;

use super::index_arena::{Arena, Moved, Run};
use super::index_pages::Pages;
use super::index_slot::{Expiry, Ordered, Slot, lower_bound};

/// Partitions to a page of their table: 16 KiB.
const PARTITIONS_PAGE: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Partition {
    /// Sorted by order.
    slots: Run,
    /// One for each slot that expires, in the order of the slots.
    expiries: Run,
}

/// A key on its way from one partition to another, or to a visitor.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub slot: Slot,
    /// Of no meaning when the slot does not expire.
    expiry: Expiry,
}

impl Key {
    pub fn expire_at_ms(&self) -> Option<u64> {
        self.slot.expires().then(|| self.expiry.at_ms())
    }
}

/// Numbered from 0, and added and removed at the end.
#[derive(Debug, Default)]
pub struct Partitions {
    table: Pages<Partition, PARTITIONS_PAGE>,
    slots: Arena<Slot>,
    expiries: Arena<Expiry>,
    expires: usize,
}

impl Partitions {
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Adds an empty partition.
    pub fn grow(&mut self) {
        self.table.grow();
    }

    /// Removes the last partition, which is empty.
    pub fn shrink(&mut self) {
        debug_assert_eq!(self.slots_len(self.len() as u32 - 1), 0);
        self.table.shrink();
    }

    /// Slots of all partitions that expire.
    pub fn expires(&self) -> usize {
        self.expires
    }

    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.slots.memory_bytes() + self.expiries.memory_bytes()
    }

    #[inline]
    fn get(&self, partition: u32) -> &Partition {
        self.table.get(partition as usize)
    }

    #[inline]
    pub fn slots(&self, partition: u32) -> &[Slot] {
        self.slots.items(self.get(partition).slots)
    }

    pub fn slots_mut(&mut self, partition: u32) -> &mut [Slot] {
        self.slots.items_mut(self.table.get(partition as usize).slots)
    }

    /// Number of slots, without a look at them.
    pub fn slots_len(&self, partition: u32) -> usize {
        self.get(partition).slots.len()
    }

    pub fn expiries(&self, partition: u32) -> &[Expiry] {
        self.expiries.items(self.get(partition).expiries)
    }

    /// Expiry in Unix milliseconds of a slot that has one.
    // Not inlined: the path of a key without expiry is shorter for it.
    #[inline(never)]
    pub fn expire_at_ms(&self, partition: u32, at: usize) -> u64 {
        let expiries = self.expiries(partition);
        expiries[expiry_place(self.slots(partition), at, expiries)].at_ms()
    }

    /// Inserts a slot without expiry before the one at `at`.
    pub fn insert(&mut self, partition: u32, at: usize, slot: Slot) {
        let mut run = self.get(partition).slots;
        let moved = self.slots.insert(&mut run, partition, at, slot);
        self.set_slots(partition, run, moved);
    }

    /// Removes the slot at `at`, which has no expiry.
    pub fn remove(&mut self, partition: u32, at: usize) -> Slot {
        let mut run = self.get(partition).slots;
        let slot = self.slots.items(run)[at];
        debug_assert!(!slot.expires());
        let moved = self.slots.remove(&mut run, partition, at);
        self.set_slots(partition, run, moved);
        slot
    }

    /// Sets, changes or removes the expiry of the slot at `at`. Returns what it was.
    pub fn set_expiry(&mut self, partition: u32, at: usize, at_ms: Option<u64>) -> Option<u64> {
        let Partition { slots, expiries: mut run } = *self.get(partition);
        let slots = self.slots.items_mut(slots);
        let had = slots[at].expires();
        if !had && at_ms.is_none() {
            return None;
        }
        let place = expiry_place(slots, at, self.expiries.items(run));
        let old = had.then(|| self.expiries.items(run)[place].at_ms());
        slots[at].set_expires(at_ms.is_some());
        let new = at_ms.map(|at_ms| Expiry::new(slots[at].order(), at_ms));
        let moved = match new {
            Some(new) if had => {
                self.expiries.items_mut(run)[place] = new;
                None
            }
            Some(new) => self.expiries.insert(&mut run, partition, place, new),
            None => self.expiries.remove(&mut run, partition, place),
        };
        self.expires = self.expires + usize::from(new.is_some()) - usize::from(had);
        self.set_expiries(partition, run, moved);
        old
    }

    fn set_slots(&mut self, partition: u32, run: Run, moved: Option<Moved>) {
        self.table.get_mut(partition as usize).slots = run;
        if let Some(moved) = moved {
            let owner = self.table.get_mut(moved.owner as usize);
            moved.apply(&mut owner.slots);
        }
    }

    fn set_expiries(&mut self, partition: u32, run: Run, moved: Option<Moved>) {
        self.table.get_mut(partition as usize).expiries = run;
        if let Some(moved) = moved {
            let owner = self.table.get_mut(moved.owner as usize);
            moved.apply(&mut owner.expiries);
        }
    }

    pub fn keys(&self, partition: u32) -> impl Iterator<Item = Key> {
        let mut expiries = self.expiries(partition).iter();
        self.slots(partition).iter().map(move |&slot| {
            let expiry = if slot.expires() { expiries.next() } else { None };
            Key { slot, expiry: expiry.copied().unwrap_or_default() }
        })
    }

    /// Adds the keys of a partition to `keys` and empties it.
    pub fn take(&mut self, partition: u32, keys: &mut Vec<Key>) {
        keys.extend(self.keys(partition));
        let old = mem::take(self.table.get_mut(partition as usize));
        self.expires -= old.expiries.len();
        let moved = self.slots.free(old.slots);
        self.set_slots(partition, Run::default(), moved);
        let moved = self.expiries.free(old.expiries);
        self.set_expiries(partition, Run::default(), moved);
    }

    /// Puts keys, in order, into an empty partition.
    pub fn fill<'a>(&mut self, partition: u32, keys: impl Iterator<Item = &'a Key> + Clone) {
        let expiring = keys.clone().filter(|key| key.slot.expires());
        let len = keys.clone().count();
        let slots = self.slots.write(partition, len, keys.map(|key| key.slot));
        let len = expiring.clone().count();
        self.expires += len;
        let expiries = self.expiries.write(partition, len, expiring.map(|key| key.expiry));
        *self.table.get_mut(partition as usize) = Partition { slots, expiries };
    }
}

/// Place of the expiry of the slot at `at`, or the place to insert it.
fn expiry_place(slots: &[Slot], at: usize, expiries: &[Expiry]) -> usize {
    let order = Expiry::new(slots[at].order(), 0).order();
    let before = slots[..at].iter().rev().take_while(|slot| slot.order() >= order);
    lower_bound(expiries, order) + before.filter(|slot| slot.expires()).count()
}
