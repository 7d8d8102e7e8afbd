//! Values in parts on their way into memory: for commands that want the bytes themselves, all of
//! them or a range. GET does not come here, see `stream`.
//!
//! A few parts are read at a time. The chain is pinned meanwhile, so that what is put together is
//! one value, whatever becomes of the key.

use std::ops::Range;

use crate::disk::Disk;
use crate::mem::{DmaBuf, Ticket};
use crate::net::Net;
use crate::shard::index::Entry;
use crate::shard::parts::{Chain, ChainId, PART_BYTES, part_range, parts_of};
use crate::shard::view::Fault;
use crate::shard::{ReadError, ReadSpan};

use super::Core;
use super::execute::{Bytes, DAMAGED, Value};
use super::fast::Purpose;
use super::task::{Loads, Task};

/// Bytes of values in parts that commands of one core hold in memory together. One command may
/// hold as much.
pub(crate) const LOADED_BYTES_MAX: usize = 1 << 30;
/// Parts that one command reads, or copies, at a time.
const PARTS_AT_A_TIME: usize = 4;

const TOO_MUCH: &str = "ERR the values of this command are larger than 1 GiB together";
const GONE: &str = "NOSPACE the value was replaced while it was read, and the devices are full";
const BUSY: &str = "ERR too many large values are being read, try again";

/// A value, or a range of it, that is being put together.
#[derive(Debug)]
pub(crate) struct Assembly {
    chain: Chain,
    start: usize,
    bytes: Vec<u8>,
    /// Parts still to be read, the next one last.
    todo: Vec<u32>,
    in_flight: u32,
}

impl Assembly {
    /// Of whole parts that cover `range`.
    fn new(chain: Chain, range: &Range<usize>) -> Assembly {
        let first = (range.start / PART_BYTES) as u32;
        let end = parts_of(range.end).max(first);
        let bytes = vec![0; range.len()];
        Assembly {
            chain,
            start: range.start,
            bytes,
            todo: (first..end).rev().collect(),
            in_flight: 0,
        }
    }

    fn put(&mut self, number: u32, part: &[u8]) {
        let range = part_range(self.chain.len as usize, number);
        let at = range.start - self.start;
        if let Some(out) =
            self.bytes.get_mut(at..at + range.len()).filter(|_| part.len() == range.len())
        {
            out.copy_from_slice(part);
        }
    }

    fn is_complete(&self) -> bool {
        self.todo.is_empty() && self.in_flight == 0
    }

    fn into_bytes(self) -> Bytes {
        match self.bytes.len() == self.chain.len as usize {
            true => Bytes::Loaded(self.bytes),
            false => Bytes::Range { start: self.start, bytes: self.bytes },
        }
    }
}

/// The whole parts that a fault asks for.
fn asked(chain: &Chain, fault: Fault) -> Range<usize> {
    let len = chain.len as usize;
    match fault {
        Fault::Range { start, end, .. } => {
            let start = start / PART_BYTES * PART_BYTES;
            start..end.next_multiple_of(PART_BYTES).min(len)
        }
        Fault::Key(_) | Fault::All => 0..len,
    }
}

impl<N: Net, D: Disk> Core<N, D> {
    /// Starts to read the next parts of the value at `place`, or copies them from log buffers.
    pub(super) fn parts_submit(
        &mut self,
        ticket: Ticket,
        loads: &mut Loads,
        place: usize,
        fault: Fault,
    ) {
        if !matches!(loads.values[place].bytes, Bytes::Assembling(_))
            && !self.assembly_start(loads, place, fault)
        {
            return;
        }
        for _ in 0..PARTS_AT_A_TIME {
            let Bytes::Assembling(assembly) = &mut loads.values[place].bytes else { return };
            let Some(number) = assembly.todo.pop() else { return };
            let Some(entry) = self.shard.part(&assembly.chain.id, number) else {
                loads.failed = Some(self.why_no_part(&assembly.chain.id).into());
                return;
            };
            let name = assembly.chain.id.part_name(number);
            if let Some(record) = self.shard.resident(&entry, &name) {
                assembly.put(number, record.value);
                finish(&mut loads.values[place]);
                continue;
            }
            let Some(buf) = self.read_buffer(&entry) else {
                assembly.todo.push(number);
                return;
            };
            assembly.in_flight += 1;
            loads.pending += 1;
            self.read(entry, buf, Purpose::Part { task: ticket, place: place as u32, number });
        }
    }

    /// Why a part of a pinned chain is not there.
    pub(super) fn why_no_part(&self, id: &ChainId) -> &'static str {
        if self.shard.is_pinned(id) { DAMAGED } else { GONE }
    }

    /// Once a write of any core has been refused nothing is kept for readers alone: else slow ones
    /// could fill the devices. To look for room from time to time is not enough: what a refused
    /// value had taken is free again at once, and the next try fails as the first did.
    pub(super) fn make_room_of_readers(&mut self) {
        let refused = self.shard.refused_writes();
        if refused == self.refused_seen {
            return;
        }
        self.refused_seen = refused;
        let values = self.shard.forget_readers();
        if values > 0 {
            log::warn!("the devices are full: {values} replaced values are not kept for readers");
        }
    }

    /// Takes memory for a value and pins it. False when that is not possible now, or not at all.
    fn assembly_start(&mut self, loads: &mut Loads, place: usize, fault: Fault) -> bool {
        let Some(chain) = loads.values[place].chain else { return false };
        let range = asked(&chain, fault);
        if loads.large_bytes + range.len() > LOADED_BYTES_MAX {
            loads.failed = Some(TOO_MUCH.into());
            return false;
        }
        let first = loads.large_bytes == 0 && self.loaded_bytes > 0;
        if first && self.loaded_bytes + range.len() > LOADED_BYTES_MAX {
            if !loads.patient {
                loads.failed = Some(BUSY.into());
            }
            return false;
        }
        if !self.shard.pin(&loads.keys[place].hash, &chain) {
            loads.stale = true;
            return false;
        }
        loads.pins.push(chain.id);
        loads.large_bytes += range.len();
        self.loaded_bytes += range.len();
        loads.values[place].bytes = Bytes::Assembling(Box::new(Assembly::new(chain, &range)));
        true
    }

    /// Gives back what a task took for values in parts.
    pub(super) fn loads_release(&mut self, loads: &mut Loads) {
        self.loaded_bytes -= std::mem::take(&mut loads.large_bytes);
        for id in loads.pins.drain(..) {
            self.shard.unpin(&id);
        }
    }

    /// A part has been read for a task.
    pub(super) fn part_loaded(
        &mut self,
        (task, place, number): (Ticket, u32, u32),
        entry: &Entry,
        span: &ReadSpan,
        buf: DmaBuf,
    ) {
        let Some(mut owner) = self.task_take(task) else { return };
        let loads = match &mut *owner {
            Task::Command(waiter) => &mut waiter.loads,
            Task::Hold(hold) => &mut hold.loads,
            _ => return self.task_put(task, owner),
        };
        let value = &mut loads.values[place as usize];
        if let Bytes::Assembling(assembly) = &mut value.bytes {
            assembly.in_flight -= 1;
            let name = assembly.chain.id.part_name(number);
            match self.shard.decode(entry, span, &buf, &name) {
                Ok(record) => assembly.put(number, record.value),
                Err(ReadError::Stale) => assembly.todo.push(number),
                Err(ReadError::Corrupt | ReadError::OtherKey) => {
                    log::error!("{}", self.describe(span));
                    loads.failed = Some(DAMAGED.into());
                }
            }
            finish(value);
        }
        drop(buf);
        self.task_put(task, owner);
        self.task_step(task);
    }
}

/// A value whose last part has come is loaded.
fn finish(value: &mut Value) {
    value.bytes = match std::mem::take(&mut value.bytes) {
        Bytes::Assembling(assembly) if assembly.is_complete() => assembly.into_bytes(),
        bytes => bytes,
    };
}
