// SPDX-License-Identifier: MIT OR Apache-2.0
//! Variances of many cells with few observations each: all cells together show what is usual.
//!
//! The method is the moderated t of Smyth, "Linear models and empirical Bayes methods for assessing
//! differential expression in microarray experiments", Stat. Appl. Genet. Mol. Biol. 3(1), 2004. It
//! assumes that the variances of cells follow a scaled inverse χ² distribution. The moments of
//! their logarithms give the scale and the degrees of freedom (section 6.2). The variance of a cell
//! is then the mean of its own variance and the scale, weighted by degrees of freedom, which add
//! up.
//!
//! This module is more cautious than the paper, because it makes claims about single cells and not
//! about their average. The variance is never below the cell's own, so noisy cells keep theirs.
//! Nothing is pooled with fewer than [`FEWEST`] cells, or if the prior has fewer than three degrees
//! of freedom, which means that variances are grossly unequal.
//!
//! The test `coverage_is_nominal` simulates the coverage of nominal 95 % intervals, with 12 and 24
//! cells of 3 and 5 observations. Over all cells it is 0.94 to 0.96 for equal variances, variances
//! that vary by a factor of e (one standard deviation), and variances that differ 10,000-fold. For
//! the noisiest tenth of the cells it is at least 0.90. For equal variances, the median width is
//! 0.6 times (3 observations) and 0.8 times (5 observations) the width without pooling.

use statrs::function::gamma::digamma;

use crate::{Effect, Spread};

/// The smallest number of cells whose variances are pooled.
pub const FEWEST: usize = 12;

/// The smallest degrees of freedom of a usable prior.
const LEAST_FREEDOM: f64 = 3.0;

/// The distribution of variances over all cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// The usual variance.
    pub variance: f64,
    /// The degrees of freedom for which the usual variance counts; infinite if variances differ by
    /// chance only.
    pub degrees_of_freedom: f64,
    /// The largest possible degrees of freedom: the degrees of freedom of all cells together.
    most: f64,
}

impl Prior {
    /// Estimates the prior from the variances of single observations, each with its degrees of
    /// freedom. `None` if there are too few, or if they differ too much: each cell then keeps its
    /// own variance. A variance of 0 counts as one part in 100,000 of the median.
    #[must_use]
    pub fn of(cells: &[(f64, f64)]) -> Option<Self> {
        let usable = |&(variance, freedom): &(f64, f64)| variance.is_finite() && variance >= 0.0 && freedom >= 1.0;
        if cells.len() < FEWEST || !cells.iter().all(usable) {
            return None;
        }
        let mut sorted: Vec<f64> = cells.iter().map(|(variance, _)| *variance).collect();
        sorted.sort_by(f64::total_cmp);
        let least = sorted.get(sorted.len() / 2)? * 1e-5;
        if least <= 0.0 {
            return None;
        }
        let (n, most) = (cells.len() as f64, cells.iter().map(|(_, freedom)| freedom).sum());
        let logs: Vec<f64> = cells
            .iter()
            .map(|(variance, freedom)| variance.max(least).ln() - digamma(freedom / 2.0) + (freedom / 2.0).ln())
            .collect();
        let mean = logs.iter().sum::<f64>() / n;
        let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let by_chance = cells.iter().map(|(_, freedom)| trigamma(freedom / 2.0)).sum::<f64>() / n;
        let beyond = spread - by_chance;
        if beyond <= 0.0 {
            // All variances are equal up to chance: use their mean.
            let variance = cells.iter().map(|(variance, freedom)| variance * freedom).sum::<f64>() / most;
            return Some(Self { variance, degrees_of_freedom: f64::INFINITY, most });
        }
        let half = inverse_trigamma(beyond);
        let variance = (mean + digamma(half) - half.ln()).exp();
        let prior = Self { variance, degrees_of_freedom: 2.0 * half, most };
        (prior.degrees_of_freedom >= LEAST_FREEDOM && variance.is_finite()).then_some(prior)
    }

    /// Returns the moderated variance of a cell and its degrees of freedom.
    #[must_use]
    pub fn moderate(&self, variance: f64, degrees_of_freedom: f64) -> (f64, f64) {
        let share = degrees_of_freedom / (self.degrees_of_freedom + degrees_of_freedom);
        let moderated = (1.0 - share) * self.variance + share * variance;
        (moderated.max(variance), (self.degrees_of_freedom + degrees_of_freedom).min(self.most))
    }

    /// Returns `effect` with the moderated variance; one observation is left unchanged.
    #[must_use]
    pub fn effect(&self, effect: Effect) -> Effect {
        let Some((variance, freedom)) = variance_of_observation(&effect) else { return effect };
        let (variance, degrees_of_freedom) = self.moderate(variance, freedom);
        let standard_error = (variance / effect.n as f64).sqrt();
        Effect { spread: Spread::Student { standard_error, degrees_of_freedom }, ..effect }
    }
}

/// Returns the variance of a single observation behind a mean, and its degrees of freedom; `None`
/// for one observation.
#[must_use]
pub fn variance_of_observation(effect: &Effect) -> Option<(f64, f64)> {
    match effect.spread {
        Spread::OneObservation => None,
        Spread::NoSpread => Some((0.0, effect.n as f64 - 1.0)),
        Spread::Student { standard_error, degrees_of_freedom } => {
            Some((standard_error.powi(2) * effect.n as f64, degrees_of_freedom))
        }
    }
}

/// Computes ψ′(x) for x > 0, by its recurrence and asymptotic expansion (Abramowitz and Stegun,
/// "Handbook of mathematical functions", 6.4.6 and 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 20.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let square = 1.0 / (x * x);
    let series = 1.0 / 6.0 - square * (1.0 / 30.0 - square * (1.0 / 42.0 - square / 30.0));
    sum + 1.0 / x + square / 2.0 + square / x * series
}

/// Returns the x with ψ′(x) = `y`, for y > 0, by bisection of log x: ψ′ is decreasing.
fn inverse_trigamma(y: f64) -> f64 {
    let (mut low, mut high) = (-35.0_f64, 35.0_f64);
    while high - low > 1e-14 * high.abs().max(1.0) {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if trigamma(middle.exp()) > y {
            low = middle;
        } else {
            high = middle;
        }
    }
    high.exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        random::Generator,
        simulation::{close, half_width},
    };

    /// Abramowitz and Stegun, 6.4: ψ′(1) = π² / 6, ψ′(1/2) = π² / 2.
    #[test]
    fn trigamma_is_that_of_the_handbook() {
        let square = std::f64::consts::PI.powi(2);
        assert!(close(trigamma(1.0), square / 6.0, 1e-13) && close(trigamma(0.5), square / 2.0, 1e-13));
        for x in [1e-3, 0.3, 4.0, 1e6] {
            assert!(close(inverse_trigamma(trigamma(x)), x, 1e-9), "{x}");
        }
    }

    /// An independent implementation of section 6.2 with SciPy 1.17.1 (`digamma`, `polygamma(1,
    /// …)`, `optimize.brentq`) gives these figures.
    #[test]
    fn hyperparameters_agree_with_scipy() {
        let variances = [1.2, 0.8, 3.1, 0.4, 2.2, 1.7, 0.9, 5.3, 0.25, 1.1, 0.6, 2.9];
        let found = Prior::of(&variances.map(|variance| (variance, 4.0))).unwrap();
        assert!(close(found.degrees_of_freedom, 14.058_620_973_313_367, 1e-9), "{found:?}");
        assert!(close(found.variance, 1.478_114_792_517_43, 1e-9), "{found:?}");
        let (variance, freedom) = found.moderate(0.25, 4.0);
        let expected = (14.058_620_973_313_367 * 1.478_114_792_517_43 + 4.0 * 0.25) / 18.058_620_973_313_367;
        assert!(close(variance, expected, 1e-9) && close(freedom, 18.058_620_973_313_367, 1e-9));
        // A cell that varies more keeps its own variance.
        assert_eq!(found.moderate(5.3, 4.0).0, 5.3);
    }

    #[test]
    fn equal_variances_are_pooled_and_different_or_few_ones_are_not() {
        let equal = Prior::of(&[(1.0, 4.0), (1.1, 4.0), (0.9, 2.0)].repeat(4)).unwrap();
        assert_eq!(equal.degrees_of_freedom, f64::INFINITY);
        assert!(close(equal.variance, (4.0 + 4.4 + 1.8) / 10.0, 1e-12), "{equal:?}");
        assert_eq!(equal.moderate(0.5, 4.0), (equal.variance, 40.0));
        assert_eq!(Prior::of(&[(1.0, 4.0), (1e4, 4.0)].repeat(8)), None);
        assert_eq!(Prior::of(&[(1.0, 4.0); FEWEST - 1]), None);
        assert_eq!(Prior::of(&[(0.0, 4.0); FEWEST]), None);
        assert_eq!(Prior::of(&[(f64::NAN, 4.0); FEWEST]), None);
    }

    /// Cells whose rounds are all equal have an interval; one observation has none.
    #[test]
    fn effects_have_the_moderated_variance() {
        let prior = Prior { variance: 4.0, degrees_of_freedom: 6.0, most: 100.0 };
        let effect = prior.effect(Effect::paired(&[0.1; 3]).unwrap());
        assert_eq!(effect.spread, Spread::Student { standard_error: 1.0, degrees_of_freedom: 8.0 });
        let one = Effect::paired(&[0.1]).unwrap();
        assert_eq!(prior.effect(one), one);
    }

    /// Returns the share of intervals that cover 0, of all cells and of the noisiest tenth, and the
    /// median width relative to the cells' own intervals.
    fn coverage(cells: usize, n: usize, mut deviation: impl FnMut(&mut Generator) -> f64) -> (f64, f64, f64) {
        let mut generator = Generator::new(61);
        let (mut covered, mut noisy, mut widths) = (0, 0, Vec::new());
        let (families, tenth) = (12_000 / cells, cells.div_ceil(10));
        for _ in 0..families {
            let mut family: Vec<(f64, Effect)> = (0..cells)
                .map(|_| {
                    let deviation = deviation(&mut generator);
                    let logs: Vec<f64> = (0..n).map(|_| 0.001 * deviation * generator.normal()).collect();
                    (deviation, Effect::paired(&logs).unwrap())
                })
                .collect();
            family.sort_by(|a, b| b.0.total_cmp(&a.0));
            let variances: Vec<_> = family.iter().filter_map(|(_, effect)| variance_of_observation(effect)).collect();
            let prior = Prior::of(&variances);
            for (rank, (_, effect)) in family.iter().enumerate() {
                let moderated = prior.map_or(*effect, |prior| prior.effect(*effect));
                let covers = half_width(&moderated, 0.95) >= effect.log_ratio.abs();
                covered += usize::from(covers);
                noisy += usize::from(covers && rank < tenth);
                widths.push(half_width(&moderated, 0.95) / half_width(effect, 0.95));
            }
        }
        widths.sort_by(f64::total_cmp);
        let share = |count: usize, of: usize| count as f64 / of as f64;
        (share(covered, families * cells), share(noisy, families * tenth), widths[widths.len() / 2])
    }

    /// 12,000 intervals each have a standard error of 0.002 for a share of 0.95, and of 0.006 for
    /// the noisiest tenth.
    #[test]
    fn coverage_is_nominal() {
        for cells in [12, 24] {
            for n in [3, 5] {
                let (all, _, width) = coverage(cells, n, |_| 1.0);
                assert!((0.93..=0.97).contains(&all), "equal, {cells} {n}: {all}");
                assert!(width < if n == 3 { 0.7 } else { 0.9 }, "equal, {cells} {n}: {width}");
                for sigma in [0.25, 0.5] {
                    let (all, noisy, _) = coverage(cells, n, |generator| (sigma * generator.normal()).exp());
                    assert!((0.93..=0.97).contains(&all) && noisy >= 0.88, "{sigma}, {cells} {n}: {all} {noisy}");
                }
                // Half of the cells vary a hundred times as much: each keeps about its own
                // interval.
                let (all, noisy, width) =
                    coverage(cells, n, |generator| if generator.uniform() < 0.5 { 1.0 } else { 100.0 });
                assert!((0.93..=0.97).contains(&all) && noisy >= 0.93, "gross, {cells} {n}: {all} {noisy}");
                assert!((0.95..=1.05).contains(&width), "gross, {cells} {n}: {width}");
            }
        }
    }
}
