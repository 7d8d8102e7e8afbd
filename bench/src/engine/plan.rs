//! What to send: the mix of commands, the order of keys, how much and how fast.

use crate::dataset::Dataset;
use crate::prng::Prng;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Get,
    Set,
}

/// In which order keys are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Uniform,
    /// Each operation's number is its key.
    Sequential,
}

/// The load of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// GETs per 100 operations; the rest are SETs.
    pub get_percent: u64,
    /// Requests that a connection sends at once; it sends the next ones when all are answered.
    pub pipeline: usize,
    pub order: Order,
    pub stop: Stop,
    /// Operations per second of all connections together; `None` sends as fast as it can.
    pub rate: Option<f64>,
}

#[derive(Clone, Debug)]
pub enum Stop {
    After(Duration),
    /// These operation numbers, each once.
    Operations(Range<u64>),
}

/// Operation numbers that the workers of one run share.
#[derive(Clone, Debug)]
pub struct Tickets {
    next: Arc<AtomicU64>,
    end: u64,
}

impl Tickets {
    pub fn of(stop: &Stop) -> Tickets {
        let range = match stop {
            Stop::After(_) => 0..u64::MAX / 2,
            Stop::Operations(range) => range.clone(),
        };
        Tickets { next: Arc::new(AtomicU64::new(range.start)), end: range.end }
    }

    /// Up to `count` numbers; empty when all are given out.
    pub fn take(&self, count: u64) -> Range<u64> {
        let start = self.next.fetch_add(count, Ordering::Relaxed).min(self.end);
        start..(start + count).min(self.end)
    }
}

/// Request prefixes up to the key, built once.
#[derive(Debug)]
pub struct Templates {
    dataset: Dataset,
    get: Vec<u8>,
    set: Vec<u8>,
    value_header: Vec<u8>,
}

impl Templates {
    pub fn new(dataset: Dataset) -> Templates {
        let key_bytes = dataset.key_bytes;
        Templates {
            get: format!("*2\r\n$3\r\nGET\r\n${key_bytes}\r\n").into(),
            set: format!("*3\r\n$3\r\nSET\r\n${key_bytes}\r\n").into(),
            value_header: format!("\r\n${}\r\n", dataset.value_bytes).into(),
            dataset,
        }
    }

    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// An upper bound of one request, in bytes.
    pub fn request_bytes_max(&self) -> usize {
        let parts = self.set.len() + self.dataset.key_bytes + self.value_header.len();
        parts + self.dataset.value_bytes + 2
    }

    pub fn append(&self, op: Op, id: u64, out: &mut Vec<u8>) {
        match op {
            Op::Get => {
                out.extend_from_slice(&self.get);
                self.dataset.append_key(id, out);
            }
            Op::Set => {
                out.extend_from_slice(&self.set);
                self.dataset.append_key(id, out);
                out.extend_from_slice(&self.value_header);
                self.dataset.append_value(id, out);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

impl Plan {
    /// The command and key of operation `number`.
    pub fn pick(&self, number: u64, keys: u64, prng: &mut Prng) -> (Op, u64) {
        let op = match self.get_percent {
            100 => Op::Get,
            0 => Op::Set,
            percent if prng.below(100) < percent => Op::Get,
            _ => Op::Set,
        };
        match self.order {
            Order::Uniform => (op, prng.below(keys)),
            Order::Sequential => (op, number % keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Op, Order, Plan, Stop, Templates, Tickets};
    use crate::dataset::Dataset;
    use crate::prng::Prng;

    fn plan(get_percent: u64, order: Order) -> Plan {
        Plan { get_percent, pipeline: 1, order, stop: Stop::Operations(0..10), rate: None }
    }

    #[test]
    fn tickets_end() {
        let tickets = Tickets::of(&Stop::Operations(3..10));
        assert_eq!(tickets.take(4), 3..7);
        assert_eq!(tickets.take(4), 7..10);
        assert!(tickets.take(4).is_empty());
    }

    #[test]
    fn requests_are_resp() {
        let templates = Templates::new(Dataset::new(10, 5, 0).unwrap());
        let mut out = Vec::new();
        templates.append(Op::Get, 7, &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$5\r\nkey:7\r\n");
        out.clear();
        templates.append(Op::Set, 7, &mut out);
        assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$5\r\nkey:7\r\n$0\r\n\r\n");
        assert_eq!(out.len(), templates.request_bytes_max());
    }

    #[test]
    fn picks_follow_mix_and_order() {
        let mut prng = Prng::new(1);
        let sequential = plan(0, Order::Sequential);
        assert_eq!(sequential.pick(12, 10, &mut prng), (Op::Set, 2));
        let mixed = plan(80, Order::Uniform);
        let gets = (0..10_000).filter(|&n| mixed.pick(n, 10, &mut prng).0 == Op::Get).count();
        assert!((7_800..8_200).contains(&gets), "{gets}");
    }
}
