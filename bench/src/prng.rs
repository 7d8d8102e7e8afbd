//! Seeded random numbers: the same seed asks for the same keys in the same order.

/// SplitMix64: one multiply-xor chain per number, plenty for picking keys.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    pub fn new(seed: u64) -> Prng {
        Prng(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Uniform in `0..bound` by multiplication; the bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// A bijection of 64-bit numbers that spreads neighbours: two ids never share a result.
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Prng, mix};

    #[test]
    fn known_sequence_of_seed_zero() {
        let mut prng = Prng::new(0);
        assert_eq!(prng.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(prng.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn below_is_uniform_and_in_range() {
        let mut prng = Prng::new(7);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[prng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }

    #[test]
    fn same_seed_same_numbers() {
        let (mut a, mut b) = (Prng::new(42), Prng::new(42));
        assert!((0..100).all(|_| a.below(1000) == b.below(1000)));
    }

    #[test]
    fn mix_keeps_ids_apart() {
        let mixed: std::collections::HashSet<u64> = (0..10_000).map(mix).collect();
        assert_eq!(mixed.len(), 10_000);
    }
}
