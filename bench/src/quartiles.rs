//! Median and quartiles: on a noisy machine a mean is the noise.

/// Quartiles of a sample, interpolated between neighbours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quartiles {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Quartiles {
    /// All NaN for an empty sample.
    pub fn of(sample: &[f64]) -> Quartiles {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quantile| interpolate(&sorted, quantile);
        Quartiles { low: at(0.25), median: at(0.5), high: at(0.75) }
    }
}

fn interpolate(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = last as f64 * quantile;
    let below = sorted[place.floor() as usize];
    let above = sorted[place.ceil() as usize];
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::Quartiles;

    #[test]
    fn odd_and_even_samples() {
        let odd = Quartiles::of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!(odd, Quartiles { low: 2.0, median: 3.0, high: 4.0 });
        let even = Quartiles::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(even, Quartiles { low: 1.75, median: 2.5, high: 3.25 });
    }

    #[test]
    fn one_outlier_does_not_move_the_median() {
        assert_eq!(Quartiles::of(&[1.0, 1.0, 1.0, 1.0, 900.0]).median, 1.0);
    }

    #[test]
    fn small_samples() {
        assert_eq!(Quartiles::of(&[7.0]), Quartiles { low: 7.0, median: 7.0, high: 7.0 });
        assert!(Quartiles::of(&[]).median.is_nan());
    }
}
