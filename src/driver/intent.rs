//! Who may touch a key now. An operation that has to wait (for a device read, for another core)
//! holds its keys meanwhile; later operations on the same keys queue behind it in order.
//!
//! All keys of one operation are requested at once, so two operations on one core stand in the
//! same order in every queue they share: no cycle, no deadlock. Operations over several cores
//! take their cores in ascending order for the same reason.

use std::collections::{HashMap, VecDeque};

use crate::mem::Ticket;

/// A key as far as intents tell keys apart. Two keys with one id only wait for each other
/// without need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

#[derive(Debug)]
struct Queue {
    /// Holders: any number of shared ones, or one exclusive one.
    holders: u32,
    mode: Mode,
    waiting: VecDeque<(Ticket, Mode)>,
}

/// The intents of one core. Empty most of the time; then a look costs one comparison.
#[derive(Debug, Default)]
pub struct Intents {
    queues: HashMap<KeyId, Queue>,
}

impl Intents {
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Whether an operation on `key` that does not wait must queue first.
    pub fn blocks(&self, key: KeyId, mode: Mode) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let Some(queue) = self.queues.get(&key) else { return false };
        mode == Mode::Exclusive || queue.mode == Mode::Exclusive || !queue.waiting.is_empty()
    }

    /// Requests `keys` (distinct) for `owner`. Returns how many it must wait for; 0 = it holds
    /// them all.
    pub fn acquire(&mut self, owner: Ticket, keys: &[KeyId], mode: Mode) -> usize {
        keys.iter().filter(|&&key| !self.acquire_one(owner, key, mode)).count()
    }

    fn acquire_one(&mut self, owner: Ticket, key: KeyId, mode: Mode) -> bool {
        let Some(queue) = self.queues.get_mut(&key) else {
            self.queues.insert(key, Queue { holders: 1, mode, waiting: VecDeque::new() });
            return true;
        };
        let shares = mode == Mode::Shared && queue.mode == Mode::Shared;
        if shares && queue.waiting.is_empty() {
            queue.holders += 1;
            return true;
        }
        queue.waiting.push_back((owner, mode));
        false
    }

    /// Gives up `keys`, all of them held. Each grant to a waiting owner is put into `granted`,
    /// once per key.
    pub fn release(&mut self, keys: &[KeyId], granted: &mut Vec<Ticket>) {
        for key in keys {
            let Some(queue) = self.queues.get_mut(key) else { continue };
            queue.holders -= 1;
            if queue.holders > 0 {
                continue;
            }
            if !queue.grant(granted) {
                self.queues.remove(key);
            }
        }
    }
}

impl Queue {
    /// Hands a free key to the next in line, or to the next run of shared ones.
    fn grant(&mut self, granted: &mut Vec<Ticket>) -> bool {
        let Some((owner, mode)) = self.waiting.pop_front() else { return false };
        granted.push(owner);
        self.holders = 1;
        self.mode = mode;
        while mode == Mode::Shared
            && let Some(&(owner, Mode::Shared)) = self.waiting.front()
        {
            self.waiting.pop_front();
            granted.push(owner);
            self.holders += 1;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Intents, KeyId, Mode};
    use crate::mem::Ticket;

    const A: KeyId = KeyId(1);
    const B: KeyId = KeyId(2);

    fn owner(n: u64) -> Ticket {
        Ticket::from_bits(n)
    }

    #[test]
    fn exclusive_holders_follow_each_other_in_order() {
        let mut intents = Intents::default();
        assert_eq!(intents.acquire(owner(1), &[A, B], Mode::Exclusive), 0);
        assert_eq!(intents.acquire(owner(2), &[B], Mode::Exclusive), 1);
        assert_eq!(intents.acquire(owner(3), &[A, B], Mode::Exclusive), 2);
        let mut granted = Vec::new();
        intents.release(&[A, B], &mut granted);
        assert_eq!(granted, [owner(3), owner(2)]);
        granted.clear();
        intents.release(&[B], &mut granted);
        assert_eq!(granted, [owner(3)]);
        intents.release(&[A, B], &mut granted);
        assert!(intents.is_empty());
    }

    #[test]
    fn readers_share_but_do_not_overtake_a_writer() {
        let mut intents = Intents::default();
        assert_eq!(intents.acquire(owner(1), &[A], Mode::Shared), 0);
        assert!(!intents.blocks(A, Mode::Shared));
        assert!(intents.blocks(A, Mode::Exclusive));
        assert_eq!(intents.acquire(owner(2), &[A], Mode::Shared), 0);
        assert_eq!(intents.acquire(owner(3), &[A], Mode::Exclusive), 1);
        assert!(intents.blocks(A, Mode::Shared), "a reader behind a waiting writer waits");
        assert_eq!(intents.acquire(owner(4), &[A], Mode::Shared), 1);
        assert_eq!(intents.acquire(owner(5), &[A], Mode::Shared), 1);
        let mut granted = Vec::new();
        intents.release(&[A], &mut granted);
        assert!(granted.is_empty());
        intents.release(&[A], &mut granted);
        assert_eq!(granted, [owner(3)]);
        granted.clear();
        intents.release(&[A], &mut granted);
        assert_eq!(granted, [owner(4), owner(5)]);
    }
}
