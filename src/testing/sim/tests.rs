//! The simulator over some seeds, and the simulator itself.

use super::simulate;

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 1..4 {
        let first = simulate(seed, 3000, None);
        assert_eq!(first, simulate(seed, 3000, None), "seed {seed}");
        assert_ne!(first.hash, simulate(seed + 100, 3000, None).hash);
    }
}

#[test]
fn some_seeds_find_nothing() {
    for seed in 1000..1040 {
        let report = simulate(seed, 3000, None);
        assert_eq!(report.fault, None, "seed {seed}");
    }
}
