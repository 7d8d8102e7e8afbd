//! What a run gave.

use crate::histogram::Histogram;

/// Error texts that are kept as examples.
const EXAMPLES_MAX: usize = 5;

/// Sums of one run, of one worker or of all.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    pub operations: u64,
    pub gets: u64,
    pub sets: u64,
    /// Error replies, wrong values and replies of the wrong kind.
    pub errors: u64,
    /// Nulls where a value was expected.
    pub missing: u64,
    pub examples: Vec<String>,
    pub latency: Histogram,
    /// From the first send to the last reply, on the clock of [`crate::os::now_ns`].
    pub start_ns: u64,
    pub end_ns: u64,
}

impl Outcome {
    pub fn merge(&mut self, other: Outcome) {
        self.start_ns = match self.operations {
            0 => other.start_ns,
            _ => self.start_ns.min(other.start_ns),
        };
        self.end_ns = self.end_ns.max(other.end_ns);
        self.operations += other.operations;
        self.gets += other.gets;
        self.sets += other.sets;
        self.errors += other.errors;
        self.missing += other.missing;
        self.latency.merge(&other.latency);
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES_MAX);
    }

    pub fn fail(&mut self, example: impl FnOnce() -> String) {
        self.errors += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example());
        }
    }

    pub fn seconds(&self) -> f64 {
        (self.end_ns.saturating_sub(self.start_ns)) as f64 / 1e9
    }

    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds()
    }

    /// An error line if any reply was not the expected one.
    pub fn check(&self) -> Result<(), String> {
        if self.errors == 0 && self.missing == 0 {
            return Ok(());
        }
        Err(format!(
            "{} wrong replies and {} missing keys in {} operations; first: {}",
            self.errors,
            self.missing,
            self.operations,
            self.examples.first().map_or("a null reply to a GET", String::as_str)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{EXAMPLES_MAX, Outcome};

    #[test]
    fn merging_spans_both_and_adds() {
        let part = |operations, start_ns, end_ns| Outcome {
            operations,
            start_ns,
            end_ns,
            ..Outcome::default()
        };
        let mut all = Outcome::default();
        all.merge(part(10, 1_000_000_000, 2_000_000_000));
        all.merge(part(30, 500_000_000, 1_500_000_000));
        assert_eq!(all.operations, 40);
        assert_eq!(all.seconds(), 1.5);
        assert_eq!(all.per_second(), 40.0 / 1.5);
    }

    #[test]
    fn failures_are_counted_and_a_few_kept() {
        let mut outcome = Outcome::default();
        assert_eq!(outcome.check(), Ok(()));
        (0..9).for_each(|n| outcome.fail(|| format!("bad {n}")));
        assert_eq!((outcome.errors, outcome.examples.len()), (9, EXAMPLES_MAX));
        assert!(outcome.check().unwrap_err().contains("bad 0"));
        let missing = Outcome { missing: 1, ..Outcome::default() };
        assert!(missing.check().is_err());
    }
}
