//! Which segments a recovery replays, in which order.

use std::collections::HashMap;

use crate::shard::segment::Header;

/// A segment with records, and its place in the log of the core that filled it.
#[derive(Debug)]
pub struct Planned {
    pub segment: u32,
    pub header: Header,
    /// All segments that one core filled in one run.
    pub chain: usize,
    /// The next segment of the chain.
    pub next: Option<usize>,
}

/// The segments to recover, in the order in which their records are replayed.
#[derive(Debug, Default)]
pub struct Plan {
    pub segments: Vec<Planned>,
    /// Number of chains.
    pub chains: usize,
}

impl Plan {
    pub fn new(mut data: Vec<(u32, Header)>) -> Plan {
        data.sort_by_key(|(_, header)| (header.epoch.run(), header.base, header.core));
        let mut plan = Plan::default();
        let mut chains = HashMap::new();
        for (at, (segment, header)) in data.into_iter().enumerate() {
            let name = (header.epoch.run(), header.core);
            let (chain, last) = *chains.entry(name).or_insert((plan.chains, None));
            plan.chains = plan.chains.max(chain + 1);
            if let Some(last) = last {
                let last: &mut Planned = &mut plan.segments[last];
                last.next = Some(at);
            }
            chains.insert(name, (chain, Some(at)));
            plan.segments.push(Planned { segment, header, chain, next: None });
        }
        plan
    }

    pub fn len(&self) -> usize {
        self.segments.len()
    }

    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}
