//! Latencies in log-linear buckets: 128 per power of two, so a quantile is off by less than 1 %.

const SUB_BITS: u32 = 7;
const SUB_COUNT: usize = 1 << SUB_BITS;

/// Values from 2^42 ns (73 minutes) on share the last bucket.
const VALUE_BITS: u32 = 42;
const BUCKETS: usize = (VALUE_BITS - SUB_BITS + 1) as usize * SUB_COUNT;

/// Counts of values in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], count: 0, max_ns: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, value_ns: u64) {
        self.counts[bucket(value_ns)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(value_ns);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The smallest bucket bound that `quantile` (0..=1) of the values do not exceed; 0 if empty.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let rank = ((self.count as f64 * quantile).ceil() as u64).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_bound(index).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

fn bucket(value: u64) -> usize {
    let value = value.min((1 << VALUE_BITS) - 1);
    if value < SUB_COUNT as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    ((shift as usize + 1) << SUB_BITS) + (value >> shift) as usize - SUB_COUNT
}

fn upper_bound(index: usize) -> u64 {
    let octave = index >> SUB_BITS;
    if octave == 0 {
        return index as u64;
    }
    let shift = octave as u32 - 1;
    let sub = (index & (SUB_COUNT - 1)) + SUB_COUNT;
    ((sub as u64 + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::{BUCKETS, Histogram, bucket, upper_bound};

    #[test]
    fn buckets_are_contiguous_and_bounded() {
        assert_eq!(bucket(127), 127);
        assert_eq!(bucket(128), 128);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for index in 0..BUCKETS - 1 {
            assert_eq!(bucket(upper_bound(index)), index);
            assert_eq!(bucket(upper_bound(index) + 1), index + 1);
        }
    }

    #[test]
    fn quantiles_are_within_one_percent() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|us| histogram.record(us * 1000));
        for (quantile, exact) in [(0.5, 50_000_000.0), (0.99, 99_000_000.0), (0.999, 99_900_000.0)]
        {
            let found = histogram.quantile_ns(quantile) as f64;
            assert!((found / exact - 1.0).abs() < 0.01, "{quantile}: {found}");
        }
        assert_eq!(histogram.max_ns(), 100_000_000);
        assert_eq!(histogram.quantile_ns(1.0), 100_000_000);
    }

    #[test]
    fn merging_counts_both() {
        let (mut a, mut b) = (Histogram::default(), Histogram::default());
        a.record(10);
        (0..3).for_each(|_| b.record(20));
        a.merge(&b);
        assert_eq!((a.quantile_ns(0.25), a.quantile_ns(0.26), a.max_ns()), (10, 20, 20));
    }

    #[test]
    fn an_empty_histogram_answers_zero() {
        assert_eq!(Histogram::default().quantile_ns(0.99), 0);
    }
}
