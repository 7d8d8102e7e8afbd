//! How writers and defrag keep step, shared by all cores.
//!
//! While free segments are few, every unit that a client writes makes a debt of some units to be
//! moved. Writers wait while the debt is large. The rate grows as free segments go, so it settles
//! where one segment is emptied for each that is filled: no writer is stopped, all are slowed
//! down by what the movement costs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Units to be moved that may be owed before writers wait: 1 MiB.
const DEBT_MAX: i64 = 1 << 16;
/// Units moved ahead of writers that count.
const CREDIT_MAX: i64 = 1 << 14;
/// Rates are in sixteenths.
const RATE_ONE: f64 = 16.0;
const RATE_MAX: f64 = 64.0;
/// The rate when half of the free segments that defrag keeps are left.
const RATE_AT_HALF: f64 = 4.0;

#[derive(Debug, Default)]
pub struct Pace {
    /// Sixteenths of a unit to be moved for each unit written; 0: defrag is not needed.
    rate: AtomicU32,
    debt: AtomicI64,
    /// Units moved so far.
    moved: AtomicU64,
    /// Space is going to come: who finds none should wait.
    hopeful: AtomicBool,
    /// Writes of clients that found no space.
    refused: AtomicU64,
}

impl Pace {
    pub fn is_hopeful(&self) -> bool {
        self.hopeful.load(Ordering::Relaxed)
    }

    /// A client's write has found no space.
    pub fn note_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes of clients that found no space, so far and on all cores.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub fn is_on(&self) -> bool {
        self.rate.load(Ordering::Relaxed) != 0
    }

    /// Something has to be moved before writers may go on at full speed.
    pub fn is_behind(&self) -> bool {
        self.debt.load(Ordering::Relaxed) > 0
    }

    /// Units moved so far.
    pub fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }

    /// By the conductor. `shortage` is the share that is missing of the free segments that
    /// defrag keeps; None when it has nothing to do.
    pub fn set(&self, shortage: Option<f64>, hopeful: bool) {
        self.hopeful.store(hopeful, Ordering::Relaxed);
        let rate = shortage.map_or(0.0, |shortage| {
            let rate = RATE_AT_HALF * shortage / (1.0 - shortage).max(1e-6);
            rate.min(RATE_MAX) * RATE_ONE
        });
        self.rate.store(rate as u32, Ordering::Relaxed);
        if rate == 0.0 {
            self.debt.store(0, Ordering::Relaxed);
        }
    }

    /// A core has written so many units for clients. Returns how many more it may write now;
    /// None: as many as it likes.
    pub fn owe(&self, units: u64) -> Option<u64> {
        let rate = i64::from(self.rate.load(Ordering::Relaxed));
        if rate == 0 {
            return None;
        }
        let more = units as i64 * rate / RATE_ONE as i64;
        let debt = self.debt.fetch_add(more, Ordering::Relaxed) + more;
        Some(((DEBT_MAX - debt) * RATE_ONE as i64 / rate).max(0) as u64)
    }

    /// A core has moved so many units.
    pub fn pay(&self, units: u64) {
        self.moved.fetch_add(units, Ordering::Relaxed);
        let before = self.debt.fetch_sub(units as i64, Ordering::Relaxed);
        if before - (units as i64) < -CREDIT_MAX {
            self.debt.store(-CREDIT_MAX, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DEBT_MAX, Pace};

    #[test]
    fn writers_wait_for_the_debt_and_the_rate_grows_with_the_shortage() {
        let pace = Pace::default();
        assert_eq!(pace.owe(1 << 40), None, "nothing is asked of anybody");
        pace.set(Some(0.5), true);
        assert_eq!(pace.owe(0), Some(DEBT_MAX as u64 / 4));
        assert_eq!(pace.owe(DEBT_MAX as u64 / 4), Some(0));
        pace.pay(400);
        assert_eq!(pace.owe(0), Some(100));
        pace.set(Some(0.8), true);
        assert_eq!(pace.owe(0), Some(25));
        pace.set(Some(1.0), true);
        assert_eq!(pace.owe(0), Some(6), "the rate has a bound");
        pace.pay(1 << 40);
        pace.set(None, false);
        assert!(!pace.is_behind() && pace.owe(5).is_none());
    }
}
