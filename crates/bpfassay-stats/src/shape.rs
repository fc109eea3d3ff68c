//! Notes on the shape of a set of figures: outliers, and two groups where one is expected.
//!
//! Nothing is dropped or corrected: a note says where to look. A writer that is sometimes caught by a flush gives two
//! groups, and then neither mean nor interval describes either.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{StatsError, bootstrap::sorted_quantile, effect::finite_mean_and_deviation, random::Generator};

/// The modified z-score beyond which a figure is noted: the recommendation of Iglewicz and Hoaglin.
pub const OUTLIER: f64 = 3.5;

/// A figure far from the others.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Outlier {
    /// Its place in the figures given.
    pub index: usize,
    /// The figure.
    pub value: f64,
    /// Modified z-score: distance from the median in robust standard deviations, with its sign.
    pub score: f64,
}

/// Figures whose modified z-score is beyond [`OUTLIER`]: 0.6745 · (x − median) / MAD, or, where more than half of the
/// figures are equal and MAD is 0, (x − median) / (1.253314 · mean absolute deviation). (Iglewicz and Hoaglin, "How to
/// detect and handle outliers", ASQC 1993; the second form as in IBM SPSS.) None of fewer than five figures, of which
/// none can be told from the others.
///
/// # Errors
/// [`StatsError::NotFinite`], [`StatsError::Empty`], [`StatsError::Range`].
pub fn outliers(figures: &[f64]) -> Result<Vec<Outlier>, StatsError> {
    finite_mean_and_deviation(figures)?;
    if figures.len() < 5 {
        return Ok(Vec::new());
    }
    let middle = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        sorted_quantile(&figures, 0.5).ok_or(StatsError::Empty)
    };
    let median = middle(figures.to_vec())?;
    let distances: Vec<f64> = figures.iter().map(|value| (value - median).abs()).collect();
    let mean_distance = distances.iter().sum::<f64>() / distances.len() as f64;
    let mad = middle(distances)?;
    let deviation = if mad > 0.0 { mad / 0.674_489_750_196_081_7 } else { 1.253_314 * mean_distance };
    if deviation == 0.0 {
        return Ok(Vec::new());
    }
    Ok(figures
        .iter()
        .enumerate()
        .map(|(index, &value)| Outlier { index, value, score: (value - median) / deviation })
        .filter(|outlier| outlier.score.abs() > OUTLIER)
        .collect())
}

/// The best division of figures into a lower and an upper group, and whether it means anything.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TwoGroups {
    /// Number of figures in the lower group; the others are in the upper one.
    pub lower: usize,
    /// Mean of the lower group.
    pub lower_mean: f64,
    /// Mean of the upper group.
    pub upper_mean: f64,
    /// Share (0 to 1) of the variance that the division explains.
    pub explained: f64,
    /// p-value of "one normal group"; small: two groups.
    pub p: f64,
}

/// The fewest figures that are divided: each group has at least a fifth of them, and two.
pub const FEWEST_TO_DIVIDE: usize = 8;

/// Divides figures in two so that the variance within the groups is least, and tests that against one normal group: the
/// likelihood-ratio test of Engelman and Hartigan, "Percentage points of a test for clusters", JASA 64(328), 1969, its
/// p-value by simulating `simulations` normal sets from `seed` (so at least 1 / (simulations + 1)). Groups of less than
/// a fifth are outliers rather than groups and are not considered, on either side of the comparison. `None` where
/// nothing varies.
///
/// # Errors
/// [`StatsError::TooFew`] below [`FEWEST_TO_DIVIDE`]; [`StatsError::NotFinite`]; [`StatsError::Resamples`] below 99;
/// [`StatsError::Range`].
pub fn two_groups(figures: &[f64], simulations: usize, seed: u64) -> Result<Option<TwoGroups>, StatsError> {
    let (_, deviation) = finite_mean_and_deviation(figures)?;
    let n = figures.len();
    if n < FEWEST_TO_DIVIDE {
        return Err(StatsError::TooFew { what: "two groups", n, fewest: FEWEST_TO_DIVIDE });
    }
    if simulations < 99 {
        return Err(StatsError::Resamples { resamples: simulations, fewest: 99 });
    }
    if deviation == Some(0.0) {
        return Ok(None);
    }
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some((lower, explained)) = best_division(&sorted) else { return Ok(None) };
    let mut generator = Generator::new(seed);
    let mut simulated = vec![0.0; n];
    let mut as_good = 0_usize;
    for _ in 0..simulations {
        simulated.fill_with(|| generator.normal());
        simulated.sort_by(f64::total_cmp);
        as_good += usize::from(best_division(&simulated).is_some_and(|(_, other)| other >= explained));
    }
    let (low, high) = sorted.split_at(lower);
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
    let p = (as_good + 1) as f64 / (simulations + 1) as f64;
    Ok(Some(TwoGroups { lower, lower_mean: mean(low), upper_mean: mean(high), explained, p }))
}

/// The size of the lower group that explains most of the variance of sorted figures, and the share that it explains.
fn best_division(sorted: &[f64]) -> Option<(usize, f64)> {
    let n = sorted.len();
    let fewest = n.div_ceil(5).max(2);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let (middle, range) = (f64::midpoint(first, last), last - first);
    if !(range > 0.0 && range.is_finite()) {
        return None;
    }
    // Scaled to −0.5 … 0.5, so that no square leaves the range of floating-point numbers.
    let scaled = || sorted.iter().map(|value| (value - middle) / range);
    let mean = scaled().sum::<f64>() / n as f64;
    let total: f64 = scaled().map(|value| (value - mean).powi(2)).sum();
    let mut sum = 0.0;
    let mut best = None;
    for (index, value) in scaled().enumerate() {
        sum += value - mean;
        let lower = index + 1;
        if lower < fewest || n - lower < fewest {
            continue;
        }
        // Deviations from the mean sum to 0, so the upper group's sum is the negative of the lower one's.
        let explained = sum * sum * (1.0 / lower as f64 + 1.0 / (n - lower) as f64) / total;
        if best.is_none_or(|(_, other)| explained > other) {
            best = Some((lower, explained));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{Shape, close, share};

    /// SciPy 1.17.1: `(x - numpy.median(x)) / scipy.stats.median_abs_deviation(x, scale="normal")`.
    #[test]
    fn scores_agree_with_scipy() {
        let figures = [2.1, 2.6, 2.4, 2.5, 2.3, 2.1, 2.3, 2.6, 8.2, 8.3];
        let found = outliers(&figures).unwrap();
        assert_eq!(found.iter().map(|outlier| outlier.index).collect::<Vec<_>>(), [8, 9]);
        for (outlier, scipy) in found.iter().zip([25.855_440_424_183_07, 26.305_100_257_647_13]) {
            assert!(close(outlier.score, scipy, 1e-9), "{outlier:?}");
        }
    }

    #[test]
    fn mostly_equal_figures_have_outliers_too() {
        let found = outliers(&[5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 9.0]).unwrap();
        assert_eq!((found.len(), found[0].index), (1, 7));
        assert!(close(found[0].score, 4.0 / (1.253_314 * 0.5), 1e-9));
        assert_eq!(outliers(&[5.0; 9]).unwrap(), []);
        assert_eq!(outliers(&[1.0, 1.0, 1.0, 9.0]).unwrap(), []);
        assert!(outliers(&[]).is_err() && outliers(&[f64::NAN]).is_err());
    }

    #[test]
    fn two_groups_are_found_where_they_are() {
        // As riscv64 writes were: 79 against 198 MiB/s.
        let figures = [79.0, 198.0, 80.1, 197.2, 78.4, 201.0, 199.5, 79.6];
        let found = two_groups(&figures, 999, 1).unwrap().unwrap();
        assert_eq!(found.lower, 4);
        assert!(close(found.lower_mean, 79.275, 1e-9) && close(found.upper_mean, 198.925, 1e-9));
        assert!(found.p <= 0.002 && found.explained > 0.99, "{found:?}");
        assert_eq!(two_groups(&[1.0; 10], 999, 1).unwrap(), None);
        assert!(matches!(two_groups(&[1.0; 5], 999, 1), Err(StatsError::TooFew { .. })));
        assert!(matches!(two_groups(&[1.0; 10], 5, 1), Err(StatsError::Resamples { .. })));
        // One far away is an outlier, not a group.
        let one = [79.0, 79.4, 80.1, 79.2, 78.4, 80.0, 79.5, 198.0];
        assert!(two_groups(&one, 999, 1).unwrap().unwrap().p > 0.05);
        assert_eq!(outliers(&one).unwrap().len(), 1);
    }

    /// 1,000 sets of 12: standard error 0.007 at 0.05.
    #[test]
    fn one_group_is_rarely_called_two() {
        let mut generator = Generator::new(71);
        let mut found = |distance: f64, times: usize| {
            share(times, || {
                let mut figures = Shape::Normal.sample(&mut generator, 12, 1.0);
                figures.iter_mut().skip(6).for_each(|value| *value += distance);
                two_groups(&figures, 199, 3).unwrap().unwrap().p <= 0.05
            })
        };
        let alarms = found(0.0, 1000);
        assert!((0.025..=0.075).contains(&alarms), "{alarms}");
        let power = found(6.0, 200);
        assert!(power > 0.85, "{power}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_figures_are_taken_or_refused(figures in prop::collection::vec(prop::num::f64::ANY, 0..20)) {
            if let Ok(found) = outliers(&figures) {
                prop_assert!(found.len() <= figures.len() / 2);
            }
            if let Ok(Some(found)) = two_groups(&figures, 99, 1) {
                prop_assert!(found.lower_mean <= found.upper_mean && found.p > 0.0 && found.p <= 1.0);
            }
        }

        /// Neither order nor scale nor location matter.
        #[test]
        fn notes_follow_the_figures(mut figures in prop::collection::vec(-10.0..10.0f64, 8..20), scale in 0.1..10.0f64) {
            let before = two_groups(&figures, 99, 1).unwrap().unwrap();
            let count = outliers(&figures).unwrap().len();
            figures.reverse();
            figures.iter_mut().for_each(|value| *value = *value * scale + 100.0);
            let after = two_groups(&figures, 99, 1).unwrap().unwrap();
            prop_assert_eq!(after.lower, before.lower);
            prop_assert!((after.explained - before.explained).abs() < 1e-6);
            prop_assert_eq!(outliers(&figures).unwrap().len(), count);
        }
    }
}
