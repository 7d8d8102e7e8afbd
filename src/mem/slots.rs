//! A fixed table of work in flight. No slot free means: stop taking new work.

/// Names one use of a slot. A ticket of an earlier use is recognised by its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    index: u32,
    generation: u32,
}

impl Ticket {
    /// The ticket as one integer, for a completion to carry.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub fn from_bits(bits: u64) -> Ticket {
        Ticket { index: bits as u32, generation: (bits >> 32) as u32 }
    }

    pub fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// At most `capacity` values of `T`, each reached by its ticket. Memory grows on first use up to
/// the capacity and never beyond.
#[derive(Debug)]
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    capacity: usize,
}

impl<T> Slots<T> {
    pub fn new(capacity: usize) -> Slots<T> {
        assert!(capacity < u32::MAX as usize);
        Slots { slots: Vec::new(), free: Vec::new(), capacity }
    }

    /// Stores `value`, or hands it back when the table is full.
    pub fn insert(&mut self, value: T) -> Result<Ticket, T> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Ok(Ticket { index, generation: slot.generation });
        }
        if self.slots.len() == self.capacity {
            return Err(value);
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Ok(Ticket { index, generation: 0 })
    }

    pub fn get(&self, ticket: Ticket) -> Option<&T> {
        let slot = self.slots.get(ticket.index())?;
        if slot.generation == ticket.generation { slot.value.as_ref() } else { None }
    }

    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut T> {
        let slot = self.slots.get_mut(ticket.index())?;
        if slot.generation == ticket.generation { slot.value.as_mut() } else { None }
    }

    /// Takes the value out; the ticket is worthless from now on.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        if self.slots.get(ticket.index())?.generation != ticket.generation {
            return None;
        }
        self.remove_at(ticket.index())
    }

    /// Takes the value at `index` out, whichever use of the slot that is.
    pub fn remove_at(&mut self, index: usize) -> Option<T> {
        let slot = self.slots.get_mut(index)?;
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index as u32);
        Some(value)
    }

    /// The value at `index`, whichever use of the slot that is.
    pub fn at_mut(&mut self, index: usize) -> Option<&mut T> {
        self.slots.get_mut(index)?.value.as_mut()
    }

    /// The ticket of the value at `index`, if there is one.
    pub fn ticket_at(&self, index: usize) -> Option<Ticket> {
        let slot = self.slots.get(index)?;
        slot.value.as_ref().map(|_| Ticket { index: index as u32, generation: slot.generation })
    }

    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.capacity
    }

    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let ticket = Ticket { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (ticket, value))
        })
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Ticket, &mut T)> {
        self.slots.iter_mut().enumerate().filter_map(|(index, slot)| {
            let ticket = Ticket { index: index as u32, generation: slot.generation };
            slot.value.as_mut().map(|value| (ticket, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Slots, Ticket};

    #[test]
    fn a_late_ticket_finds_nothing() {
        let mut slots = Slots::new(2);
        let a = slots.insert("a").unwrap();
        assert_eq!(slots.remove(a), Some("a"));
        let b = slots.insert("b").unwrap();
        assert_eq!(a.index(), b.index());
        assert_eq!(slots.get(a), None);
        assert_eq!(slots.remove(a), None);
        assert_eq!(slots.get(Ticket::from_bits(b.to_bits())), Some(&"b"));
    }

    #[test]
    fn full_hands_the_value_back() {
        let mut slots = Slots::new(1);
        slots.insert(1).unwrap();
        assert_eq!(slots.insert(2), Err(2));
        assert!(slots.is_full());
    }
}
