//! How much of a turn maintenance may take.

use crate::config::Settings;
use crate::shard::defrag::Budget;

/// What maintenance is owed grows to the share of so much time at most.
const WINDOW_NS: u64 = 10_000_000;
/// While writers wait for defrag it may take this part of the foreground's time slice.
const URGENT_PART: u64 = 4;

/// The share of a busy core that maintenance is owed: `--background-warrant-percent`.
#[derive(Debug, Default)]
pub(super) struct Warrant {
    owed_ns: u64,
    last_ns: u64,
}

impl Warrant {
    /// The budget of a turn. An idle core has its background slice every turn; a busy one gives
    /// what it owes.
    pub fn budget(&mut self, settings: &Settings, now_ns: u64, busy: bool) -> Budget {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns).min(WINDOW_NS);
        self.last_ns = now_ns;
        let percent = u64::from(settings.background_warrant_percent);
        let owed_ns = self.owed_ns + elapsed_ns * percent / 100;
        self.owed_ns = owed_ns.min(WINDOW_NS * percent / 100);
        let slice_ns = settings.background_budget_us.saturating_mul(1000);
        let background_ns = if busy { self.owed_ns.min(slice_ns) } else { slice_ns };
        let urgent_ns = settings.foreground_budget_us.saturating_mul(1000) / URGENT_PART;
        Budget { background_ns, urgent_ns: urgent_ns.max(background_ns) }
    }

    /// So much has been done.
    pub fn spend(&mut self, ns: u64) {
        self.owed_ns = self.owed_ns.saturating_sub(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::Warrant;
    use crate::config::Live;

    #[test]
    fn a_busy_core_owes_a_percent_and_an_idle_one_its_slice() {
        let settings = Live::default().snapshot();
        let mut warrant = Warrant::default();
        let mut given = 0;
        for turn in 1..=1000 {
            let budget = warrant.budget(&settings, turn * 100_000, true);
            assert_eq!(budget.urgent_ns, 250_000);
            given += budget.background_ns;
            warrant.spend(budget.background_ns);
        }
        assert_eq!(given, 1_000_000, "one percent of 100 ms");
        assert_eq!(warrant.budget(&settings, 100_000_001, false).background_ns, 10_000);
        let later = warrant.budget(&settings, 9_000_000_000, true);
        assert_eq!(later.background_ns, 10_000, "a slice at a time");
    }
}
