// SPDX-License-Identifier: MIT OR Apache-2.0
//! Change points of a series: from which kernel on is it slower?
//!
//! Method: circular binary segmentation (Olshen, Venkatraman, Lucito and Wigler, "Circular binary segmentation for the
//! analysis of array-based DNA copy number data", Biostatistics 5(4), 2004): of all stretches of the series, the one
//! that differs most from the rest of it is found, tested by permutation, and where it is significant the series is cut
//! at both its ends and each part treated in the same way. Unlike plain binary segmentation it sees what comes and goes again,
//! a regression that a later kernel repaired. Cuts that do not hold between the two final neighbours are undone, as
//! there by a criterion of its own. The permutation test needs no noise level and no distribution, as in E-divisive
//! (Matteson and James, JASA 109, 2014), which projects that watch their benchmarks use (Daly et al., "The use of
//! change point detection to identify software performance regressions in a continuous integration system", ICPE 2020);
//! here differences of the mean only count.
//!
//! Weights: 1 / (variance of the point + scatter between points), the scatter from the median squared difference of
//! neighbours, which few changes do not move; no point counts more than 100 times another.
//!
//! What a permutation cannot see: a change in the last kernel alone, which is as likely wherever it stands, and with
//! two of 20 points only chance orders of 1 in 10. A series shows a change some kernels later; comparing two results
//! shows it at once ([`crate::gate`]).
//!
//! Simulated (test `steps_are_found_and_noise_is_not`): false alarms in at most α of series without change; a step of three
//! standard deviations within 30 points is found in over nine of ten.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Effect, Estimate, Spread, StatsError,
    interval::{check_level, t_cdf},
    random::Generator,
    summary::sorted_quantile,
};

/// One point of a series: an estimate and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Logarithm of the ratio.
    pub log_ratio: f64,
    /// Variance (squared standard error) of it; 0 where all observations were equal.
    pub variance: f64,
}

/// How to look for changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Error rate of each test, and of false alarms in a series without change.
    pub alpha: f64,
    /// Number of permutations, at least 99; the smallest p-value is 1 / (permutations + 1).
    pub permutations: usize,
    /// Seed: equal seeds give equal answers.
    pub seed: u64,
    /// The fewest points between two changes, at least 2.
    pub shortest: usize,
    /// Level of intervals.
    pub level: f64,
}

impl Search {
    /// Error rate 0.01, 1,999 permutations, stretches of two points and more, 95 % intervals.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { alpha: 0.01, permutations: 1999, seed, shortest: 2, level: 0.95 }
    }
}

/// A change from one level to another. Indices are those of the series as given, with its missing points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangePoint {
    /// The last point measured at the old level.
    pub last_before: usize,
    /// The first point measured at the new level; what lies between the two was not measured.
    pub first_after: usize,
    /// Earliest place of `first_after` in the confidence interval for the place.
    pub earliest: usize,
    /// Latest place of `first_after` in it.
    pub latest: usize,
    /// Share of bootstrapped series in which the change is found at just this place.
    pub certainty: f64,
    /// p-value of the test that found it.
    pub p: f64,
    /// New level / old level, its interval given the place; `n` is the number of points at both levels.
    pub ratio: Estimate,
}

/// A stretch of the series without change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// Index of its first measured point.
    pub first: usize,
    /// Index of its last measured point.
    pub last: usize,
    /// Its level, a ratio; `n` is the number of points measured.
    pub level: Estimate,
}

/// The changes of a series and the stretches between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segmentation {
    /// Changes in their order.
    pub changes: Vec<ChangePoint>,
    /// Stretches in their order: one more than changes.
    pub stretches: Vec<Stretch>,
}

/// A measured point.
#[derive(Debug, Clone, Copy)]
struct Observed {
    index: usize,
    value: f64,
    weight: f64,
}

impl Search {
    /// Looks for changes in `series`, where `None` is a point that was not measured.
    ///
    /// # Errors
    /// [`StatsError`]: no measured point, a figure that is not finite, a negative variance, settings out of range.
    pub fn changes(&self, series: &[Option<Point>]) -> Result<Segmentation, StatsError> {
        check_level(self.level)?;
        check_level(self.alpha)?;
        if self.permutations < 99 {
            return Err(StatsError::Resamples { resamples: self.permutations, fewest: 99 });
        }
        if self.shortest < 2 {
            return Err(StatsError::TooFew { what: "a stretch", n: self.shortest, fewest: 2 });
        }
        let points = observed(series)?;
        let mut generator = Generator::new(self.seed);
        let mut cuts = Vec::new();
        self.search(&points, 0, &mut generator, &mut cuts);
        cuts.sort_by_key(|&(cut, _)| cut);
        self.undo(&points, &mut cuts)?;
        self.describe(&points, &cuts, &mut generator)
    }

    /// Adds the cuts of `points`, which begin at `offset`, with their p-values.
    fn search(&self, points: &[Observed], offset: usize, generator: &mut Generator, cuts: &mut Vec<(usize, f64)>) {
        let Some((from, to, found)) = self.best_stretch(points) else { return };
        let Some(p) = self.permutation_p(points, found, generator, |points| {
            self.best_stretch(points).map_or(0.0, |(_, _, other)| other)
        }) else {
            return;
        };
        let mut start = 0;
        for end in [from, to, points.len()] {
            if start < end {
                if end < points.len() {
                    cuts.push((offset + end, p));
                }
                self.search(points.get(start..end).unwrap_or_default(), offset + start, generator, cuts);
                start = end;
            }
        }
    }

    /// The stretch from..to that differs most from the other points, and by how much. Stretch and remains are 0 or at least
    /// `shortest` long.
    fn best_stretch(&self, points: &[Observed]) -> Option<(usize, usize, f64)> {
        let n = points.len();
        if n < 2 * self.shortest {
            return None;
        }
        let (mut weights, mut sums) = (Vec::with_capacity(n + 1), Vec::with_capacity(n + 1));
        let (mut weight, mut sum) = (0.0, 0.0);
        let total: f64 = points.iter().map(|point| point.weight).sum();
        let mean = points.iter().map(|point| point.weight * point.value).sum::<f64>() / total;
        weights.push(0.0);
        sums.push(0.0);
        for point in points {
            weight += point.weight;
            // Around the mean of all, so that the sum outside is the negative of that inside.
            sum += point.weight * (point.value - mean);
            weights.push(weight);
            sums.push(sum);
        }
        let mut best: Option<(usize, usize, f64)> = None;
        for (from, (weight_from, sum_from)) in weights.iter().zip(&sums).enumerate() {
            if from != 0 && from < self.shortest {
                continue;
            }
            for (to, (weight_to, sum_to)) in weights.iter().zip(&sums).enumerate().skip(from + self.shortest) {
                if (to != n && n - to < self.shortest) || (from == 0 && to == n) {
                    continue;
                }
                let (inside, sum) = (weight_to - weight_from, sum_to - sum_from);
                let explained = sum * sum * total / (inside * (total - inside));
                if best.is_none_or(|(_, _, other)| explained > other) {
                    best = Some((from, to, explained));
                }
            }
        }
        best
    }

    /// The p-value of `found` by permutation, where it is at most α; tests that clearly fail end early, as in Besag and
    /// Clifford, "Sequential Monte Carlo p-values", Biometrika 78(2), 1991.
    fn permutation_p(
        &self,
        points: &[Observed],
        found: f64,
        generator: &mut Generator,
        statistic: impl Fn(&[Observed]) -> f64,
    ) -> Option<f64> {
        let most = self.alpha * (self.permutations + 1) as f64;
        let mut order = points.to_vec();
        let mut as_good = 1_usize;
        // Sums in another order round differently: equal arrangements count as equal.
        let bar = found * (1.0 - 1e-9);
        for _ in 0..self.permutations {
            generator.shuffle(&mut order);
            as_good += usize::from(statistic(&order) >= bar);
            if as_good as f64 > most {
                return None;
            }
        }
        Some(as_good as f64 / (self.permutations + 1) as f64)
    }

    /// Undoes, the weakest first, cuts whose two neighbouring stretches do not differ by a t test with the residual
    /// variance of all stretches: a permutation of two short stretches alone could never be significant.
    fn undo(&self, points: &[Observed], cuts: &mut Vec<(usize, f64)>) -> Result<(), StatsError> {
        loop {
            let weakest = (0..cuts.len())
                .map(|which| {
                    let (before, after) = neighbours(points, cuts, which);
                    (which, difference(before, after))
                })
                .min_by(|(_, a), (_, b)| a.total_cmp(b));
            let Some((which, difference)) = weakest else { return Ok(()) };
            let (squares, freedom) = residuals(&stretches(points, cuts));
            if difference * freedom > 0.0
                && 2.0 * t_cdf(-(difference * freedom / squares).sqrt(), freedom)? <= self.alpha
            {
                return Ok(());
            }
            cuts.remove(which);
        }
    }

    fn describe(
        &self,
        points: &[Observed],
        cuts: &[(usize, f64)],
        generator: &mut Generator,
    ) -> Result<Segmentation, StatsError> {
        let parts = stretches(points, cuts);
        let (squares, freedom) = residuals(&parts);
        let estimate = |log_ratio: f64, reciprocal_weights: f64, n: usize| {
            let spread = if n < 2 {
                Spread::OneObservation
            } else if squares == 0.0 {
                Spread::NoSpread
            } else {
                let standard_error = (squares / freedom * reciprocal_weights).sqrt();
                Spread::Student { standard_error, degrees_of_freedom: freedom }
            };
            Effect { log_ratio, spread, n }.estimate(self.level)
        };
        let mut stretches = Vec::with_capacity(parts.len());
        for part in &parts {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { return Err(StatsError::Empty) };
            let level = estimate(mean(part), 1.0 / weight(part), part.len())?;
            stretches.push(Stretch { first: first.index, last: last.index, level });
        }
        let mut changes = Vec::with_capacity(cuts.len());
        for (pair, &(_, p)) in parts.windows(2).zip(cuts) {
            let [before, after] = pair else { continue };
            let (Some(last_before), Some(first_after)) = (before.last(), after.first()) else { continue };
            let reciprocals = 1.0 / weight(before) + 1.0 / weight(after);
            let ratio = estimate(mean(after) - mean(before), reciprocals, before.len() + after.len())?;
            let (earliest, latest, certainty) = self.place(before, after, generator);
            let (last_before, first_after) = (last_before.index, first_after.index);
            changes.push(ChangePoint { last_before, first_after, earliest, latest, certainty, p, ratio });
        }
        Ok(Segmentation { changes, stretches })
    }

    /// The interval of the place of a change and the share at the place found: residuals of both stretches, brought to
    /// the same weight, are drawn anew and the best cut is found again (a residual bootstrap: Hušková and Kirch,
    /// "Bootstrapping confidence intervals for the change-point of time series", J. Time Ser. Anal. 29(6), 2008).
    fn place(&self, before: &[Observed], after: &[Observed], generator: &mut Generator) -> (usize, usize, f64) {
        const RESAMPLES: usize = 499;
        let mut simulated = [before, after].concat();
        let levels: Vec<f64> = before.iter().map(|_| mean(before)).chain(after.iter().map(|_| mean(after))).collect();
        // Residuals of a fitted mean are too small by √((n − 1) / n) in each stretch.
        let widen = |n: usize| (n as f64 / (n as f64 - 1.0)).sqrt();
        let residuals: Vec<f64> = simulated
            .iter()
            .zip(&levels)
            .enumerate()
            .map(|(place, (point, level))| {
                let size = if place < before.len() { before.len() } else { after.len() };
                (point.value - level) * point.weight.sqrt() * widen(size)
            })
            .collect();
        let mut drawn = residuals.clone();
        let mut places = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            generator.resample(&residuals, &mut drawn);
            for ((point, level), residual) in simulated.iter_mut().zip(&levels).zip(&drawn) {
                point.value = level + residual / point.weight.sqrt();
            }
            places.push(best_cut(&simulated));
        }
        places.sort_unstable();
        let certainty = places.iter().filter(|&&place| place == before.len()).count() as f64 / RESAMPLES as f64;
        let as_figures: Vec<f64> = places.iter().map(|&place| place as f64).collect();
        let tail = (1.0 - self.level) / 2.0;
        let index_at = |p: f64, round: fn(f64) -> f64| {
            let place = sorted_quantile(&as_figures, p).map_or(before.len(), |place| round(place) as usize);
            simulated.get(place).map_or(0, |point| point.index)
        };
        (index_at(tail, f64::floor), index_at(1.0 - tail, f64::ceil), certainty)
    }
}

/// The measured points with their weights.
fn observed(series: &[Option<Point>]) -> Result<Vec<Observed>, StatsError> {
    let mut points = Vec::with_capacity(series.len());
    for (index, point) in series.iter().enumerate() {
        let Some(Point { log_ratio, variance }) = *point else { continue };
        for value in [log_ratio, variance] {
            if !value.is_finite() {
                return Err(StatsError::NotFinite { value });
            }
        }
        if variance < 0.0 {
            return Err(StatsError::Negative { value: variance });
        }
        // No ratio is that large or small, and no square of what is left leaves the range.
        if log_ratio.abs() > 1e3 || variance > 1e6 {
            return Err(StatsError::Range);
        }
        points.push(Observed { index, value: log_ratio, weight: variance });
    }
    if points.is_empty() {
        return Err(StatsError::Empty);
    }
    // The median square of a normal figure is 0.4549 of its variance.
    let mut scatters: Vec<f64> = points
        .windows(2)
        .filter_map(|pair| match pair {
            [a, b] => Some(((b.value - a.value).powi(2) / 0.454_936 - a.weight - b.weight) / 2.0),
            _ => None,
        })
        .collect();
    scatters.sort_by(f64::total_cmp);
    let scatter = sorted_quantile(&scatters, 0.5).map_or(0.0, |median| median.max(0.0));
    let largest = points.iter().map(|point| point.weight + scatter).fold(0.0, f64::max);
    for point in &mut points {
        // Relative to the largest variance, which is all that matters; without any, points count alike.
        point.weight = if largest > 0.0 { 1.0 / ((point.weight + scatter) / largest).max(0.01) } else { 1.0 };
    }
    Ok(points)
}

fn weight(points: &[Observed]) -> f64 {
    points.iter().map(|point| point.weight).sum()
}

/// Weighted mean; exactly the common value where all are equal.
fn mean(points: &[Observed]) -> f64 {
    let first = points.first().map_or(0.0, |point| point.value);
    first + points.iter().map(|point| point.weight * (point.value - first)).sum::<f64>() / weight(points)
}

/// The weighted sum of squares that two stretches' levels explain.
fn difference(a: &[Observed], b: &[Observed]) -> f64 {
    (mean(a) - mean(b)).powi(2) / (1.0 / weight(a) + 1.0 / weight(b))
}

/// The points between cuts.
fn stretches<'a>(points: &'a [Observed], cuts: &[(usize, f64)]) -> Vec<&'a [Observed]> {
    let ends = || cuts.iter().map(|&(cut, _)| cut).chain([points.len()]);
    [0].into_iter().chain(ends()).zip(ends()).filter_map(|(start, end)| points.get(start..end)).collect()
}

/// Weighted sum of squares around the means of all stretches, and its degrees of freedom: their ratio is the variance of
/// a point of weight 1.
fn residuals(stretches: &[&[Observed]]) -> (f64, f64) {
    let squares = |stretch: &&[Observed]| {
        let mean = mean(stretch);
        stretch.iter().map(|point| point.weight * (point.value - mean).powi(2)).sum::<f64>()
    };
    let points: usize = stretches.iter().map(|stretch| stretch.len()).sum();
    (stretches.iter().map(squares).sum(), (points - stretches.len()) as f64)
}

/// The stretches on both sides of a cut.
fn neighbours<'a>(points: &'a [Observed], cuts: &[(usize, f64)], which: usize) -> (&'a [Observed], &'a [Observed]) {
    let at = |which: usize| cuts.get(which).map_or(points.len(), |&(cut, _)| cut);
    let start = if which == 0 { 0 } else { at(which - 1) };
    (points.get(start..at(which)).unwrap_or_default(), points.get(at(which)..at(which + 1)).unwrap_or_default())
}

/// Where two levels explain most.
fn best_cut(points: &[Observed]) -> usize {
    let total = weight(points);
    let mean = mean(points);
    let (mut inside, mut sum, mut best) = (0.0, 0.0, (1, f64::NEG_INFINITY));
    for (index, point) in points.iter().enumerate().take(points.len().saturating_sub(1)) {
        inside += point.weight;
        sum += point.weight * (point.value - mean);
        let explained = sum * sum / (inside * (total - inside));
        if explained > best.1 {
            best = (index + 1, explained);
        }
    }
    best.0
}

#[cfg(test)]
mod tests;
