// SPDX-License-Identifier: MIT OR Apache-2.0
//! Change points of a series: from which kernel on is it slower?
//!
//! 1. **Noise** (`noise`): each point has the variance that its replicates show, and a declared
//!    layout term, because replicates of one kernel do not show the effect of another build's
//!    addresses. If neighbours differ by more than both explain, the median of these differences
//!    widens both.
//! 2. **Candidates** (`partition`): optimal partitioning with known variances (Jackson et al., "An
//!    algorithm for optimal partitioning of data on an interval", IEEE Signal Processing Letters
//!    12(2), 2005), at a penalty of 3 ln n for each change, in units of that noise. It also finds
//!    temporary changes, such as a regression that a later kernel repaired.
//! 3. **Tests**: the two levels at each candidate are compared like two results
//!    ([`crate::gate_decision`]: a change beyond the margin, by Student's t). The p-value is
//!    multiplied by the number of ways to choose two neighbouring stretches, so that it holds
//!    however the candidates were found (Boole's inequality). The factor is at most 2 n², since
//!    these tests overlap: the smallest p-value was below α / (2 n²) in at most α of 5,000 series
//!    of 12, 31 and 60 points, independent or not, for α from 0.002 to 0.1. A quarter of α is spent
//!    on a single change of the whole series, which has n − 1 possible places. The weakest
//!    candidate is removed until all hold.
//! 4. **Families**: over many series, Holm's procedure keeps the rate ([`Search::family`]).
//!
//! Neighbouring kernels share most of their source, so their noise is correlated. The variance of a
//! level of n points is that of a first-order autoregressive process (Anderson, "The statistical
//! analysis of time series", 1971, section 8.2), with a declared correlation.
//!
//! The noise is assumed to be about normal. A single deviating kernel is found if its own
//! replicates are certain enough.
//!
//! Simulations show false alarms in at most α of series without change, at an autocorrelation of
//! 0.35, whether replicates show the noise, a quarter of it, or none. A step of 5 % after three
//! points at a noise of 0.2 % is found in over 19 of 20 series.

mod noise;
mod partition;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::{
    noise::{Noise, Observed, mean, observed},
    partition::{best_cut, partition},
};
use crate::{
    Adjustment, Effect, Estimate, Spread, StatsError, gate_decision::ChangeEvidence, interval::check_level,
    random::Generator, sample_summary::sorted_quantile,
};

/// One point of a series: an estimate and its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Point {
    /// Logarithm of the ratio.
    pub log_ratio: f64,
    /// Variance (squared standard error) of the estimate by its replicates; 0 if all observations
    /// are equal.
    pub variance: f64,
    /// Degrees of freedom of the variance. 0 without a variance: then only the other points show
    /// the variation.
    pub degrees_of_freedom: f64,
    /// Declared variance that replicates do not show: the layout term.
    pub layout: f64,
}

/// The parameters of a search for changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// Probability of at least one false alarm in a series without change, or in a family of
    /// series.
    pub alpha: f64,
    /// Changes of level up to this ratio, either way, are negligible; 1: no change is negligible.
    pub margin: f64,
    /// Declared correlation of the noise of neighbouring points, at least 0 and below 1.
    pub autocorrelation: f64,
    /// Seed of the intervals of places; equal seeds give equal answers.
    pub seed: u64,
    /// The smallest number of points in a stretch, at least 1. It is at least 2 if replicates do
    /// not show the noise of every point.
    pub shortest: usize,
    /// Level of intervals.
    pub level: f64,
}

impl Search {
    /// Returns the defaults: error rate 0.01, every change of level, an autocorrelation of 0.35
    /// (that of the stored series of kernels), stretches of at least one point, 95 % intervals.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { alpha: 0.01, margin: 1.0, autocorrelation: 0.35, seed, shortest: 1, level: 0.95 }
    }
}

/// A change from one level to another. Indices refer to the series as given, with its missing
/// points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangePoint {
    /// The last point measured at the old level.
    pub last_before: usize,
    /// The first point measured at the new level; points between the two were not measured.
    pub first_after: usize,
    /// Earliest `first_after` in the confidence interval for the place.
    pub earliest: usize,
    /// Latest `first_after` in the confidence interval for the place.
    pub latest: usize,
    /// Share of bootstrapped series in which the change is found at exactly this place.
    pub certainty: f64,
    /// p-value of the test that found the change, corrected for the places in its series, but not
    /// for other series.
    pub p: f64,
    /// New level / old level, with the interval for the given place; `n` is the number of points at
    /// both levels in the test that found the change.
    pub ratio: Estimate,
}

/// A stretch of the series without change.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Stretch {
    /// Index of the first measured point.
    pub first: usize,
    /// Index of the last measured point.
    pub last: usize,
    /// The level, a ratio; `n` is the number of measured points.
    pub level: Estimate,
}

/// The changes of a series and the stretches between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segmentation {
    /// Changes in order.
    pub changes: Vec<ChangePoint>,
    /// Stretches in order: one more than changes.
    pub stretches: Vec<Stretch>,
}

/// The share of α that is spent on a single change of the whole series.
const SHARE_OF_WHOLE: f64 = 0.25;

/// A measured series and its noise.
struct Measured {
    points: Vec<Observed>,
    noise: Noise,
    /// Places where the series can change.
    candidates: Vec<usize>,
    /// The number of tests for which the choice of two neighbouring stretches counts.
    tests: f64,
    /// The number of tests if the two stretches are the whole series.
    tests_of_whole: f64,
}

/// A place where a series changes.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Index of the first measured point after the change.
    at: usize,
    /// The smallest p-value of the tests of this place.
    p: f64,
    /// The difference of levels in that test.
    effect: Effect,
}

impl Search {
    /// Looks for changes in `series`, in which `None` is a point that was not measured.
    ///
    /// # Errors
    /// [`StatsError`]: no measured point, a figure that is not finite, a negative variance,
    /// settings out of range.
    pub fn changes(&self, series: &[Option<Point>]) -> Result<Segmentation, StatsError> {
        self.family(&[series]).pop().unwrap_or(Err(StatsError::Empty))
    }

    /// Looks for changes in several series, so that the probability of at least one false alarm in
    /// all of them is at most α (Holm). A series has a change if its smallest p-value is below α
    /// divided by the number of series whose p-values are not smaller. Its other changes must have
    /// p-values below α divided by the number of series.
    ///
    /// Each series has its own answer or error, see [`Self::changes`]; series with an error do not
    /// count in the family.
    pub fn family<S: AsRef<[Option<Point>]>>(&self, family: &[S]) -> Vec<Result<Segmentation, StatsError>> {
        let measured: Vec<_> = family.iter().map(|series| self.measured(series.as_ref())).collect();
        let smallest: Vec<Option<f64>> = measured
            .iter()
            .map(|measured| {
                let measured = measured.as_ref().ok().filter(|measured| measured.points.len() >= 2 * self.shortest)?;
                let cuts = self.hold(measured, self.alpha).ok()?;
                Some(cuts.into_iter().map(|cut| cut.p).fold(1.0, f64::min))
            })
            .collect();
        let share = self.alpha / smallest.iter().flatten().count().max(1) as f64;
        let adjusted = Adjustment::Holm.adjust_known(&smallest).unwrap_or_default();
        measured
            .into_iter()
            .zip(smallest.into_iter().zip(adjusted))
            .map(|(measured, (p, adjusted))| {
                let measured = measured?;
                let cuts = match p.zip(adjusted) {
                    Some((p, adjusted)) if adjusted <= self.alpha => self.hold(&measured, share.max(p))?,
                    _ => Vec::new(),
                };
                self.describe(&measured, &cuts)
            })
            .collect()
    }

    fn measured(&self, series: &[Option<Point>]) -> Result<Measured, StatsError> {
        check_level(self.level)?;
        check_level(self.alpha)?;
        if self.shortest < 1 {
            return Err(StatsError::TooFew { what: "a stretch", n: self.shortest, fewest: 1 });
        }
        if !(self.margin.is_finite() && self.margin >= 1.0) {
            return Err(StatsError::Margin { margin: self.margin });
        }
        if !(0.0..1.0).contains(&self.autocorrelation) {
            return Err(StatsError::Probability { p: self.autocorrelation });
        }
        let points = observed(series)?;
        let noise = Noise::of(&points, self.autocorrelation);
        // A single deviating point is a level only if its replicates show so.
        let shortest = self.shortest.max(if noise.is_known { 1 } else { 2 });
        let values: Vec<f64> = points.iter().map(|point| point.value).collect();
        let candidates = partition(&values, &noise.of_points(&points), shortest);
        let n = points.len();
        let ways: f64 = (shortest..=n.saturating_sub(shortest))
            .map(|cut| (cut - shortest + 1) as f64 * (n - cut - shortest + 1) as f64)
            .sum();
        let tests = ways.min(2.0 * (n as f64).powi(2)) / (1.0 - SHARE_OF_WHOLE);
        let tests_of_whole = (n as f64 - 1.0) / SHARE_OF_WHOLE;
        Ok(Measured { points, noise, candidates, tests, tests_of_whole })
    }

    /// Returns the candidates that hold at `alpha`. The weakest change that does not hold is
    /// removed, and its neighbours are tested again. Candidates that held next to a removed one
    /// still hold, because the correction covers all these tests.
    fn hold(&self, measured: &Measured, alpha: f64) -> Result<Vec<Cut>, StatsError> {
        let unknown = Effect { log_ratio: 0.0, spread: Spread::OneObservation, n: 0 };
        let mut cuts: Vec<Cut> = measured.candidates.iter().map(|&at| Cut { at, p: 1.0, effect: unknown }).collect();
        let mut untested = 0..cuts.len();
        loop {
            for which in untested {
                let (before, after) = neighbours(&measured.points, &cuts, which);
                let (effect, p) = self.test(measured, before, after)?;
                if let Some(cut) = cuts.get_mut(which).filter(|cut| p < cut.p || cut.effect == unknown) {
                    (cut.p, cut.effect) = (p, effect);
                }
            }
            let weakest = cuts.iter().enumerate().max_by(|(_, a), (_, b)| a.p.total_cmp(&b.p));
            match weakest {
                Some((which, cut)) if cut.p > alpha => {
                    cuts.remove(which);
                    untested = which.saturating_sub(1)..(which + 1).min(cuts.len());
                }
                _ => return Ok(cuts),
            }
        }
    }

    /// Returns the difference of the levels of two neighbouring stretches and its p-value. There
    /// are two tests, at half the error rate each: one by the noise that replicates show, and one
    /// by the noise of the residuals. The more certain one counts.
    fn test(&self, measured: &Measured, before: &[Observed], after: &[Observed]) -> Result<(Effect, f64), StatsError> {
        let (log_ratio, n) = (mean(after) - mean(before), before.len() + after.len());
        let spreads = measured.noise.spreads(&[before, after]);
        let of_whole = n == measured.points.len();
        let tests = if of_whole { measured.tests_of_whole } else { measured.tests } * spreads.len() as f64;
        let mut best = (Effect { log_ratio, spread: Spread::OneObservation, n }, 1.0);
        for spread in spreads {
            let effect = Effect { log_ratio, spread, n };
            let p = ChangeEvidence::new(&effect, self.margin)?.p_change.map_or(1.0, |p| (p * tests).min(1.0));
            if best.0.spread == Spread::OneObservation || p < best.1 {
                best = (effect, p);
            }
        }
        Ok(best)
    }

    fn describe(&self, measured: &Measured, cuts: &[Cut]) -> Result<Segmentation, StatsError> {
        let mut generator = Generator::new(self.seed);
        let parts = stretches(&measured.points, cuts);
        let mut stretches = Vec::with_capacity(parts.len());
        for part in &parts {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { return Err(StatsError::Empty) };
            // If there are two spreads, the last one is by replicates.
            let spread = measured.noise.spreads(&[part]).pop().unwrap_or(Spread::OneObservation);
            let level = Effect { log_ratio: mean(part), spread, n: part.len() }.estimate(self.level)?;
            stretches.push(Stretch { first: first.index, last: last.index, level });
        }
        let mut changes = Vec::with_capacity(cuts.len());
        for (pair, cut) in parts.windows(2).zip(cuts) {
            let [before, after] = pair else { continue };
            let (Some(last_before), Some(first_after)) = (before.last(), after.first()) else { continue };
            let ratio = cut.effect.estimate(self.level)?;
            let (earliest, latest, certainty) = self.place(&measured.noise, before, after, &mut generator);
            let (last_before, first_after) = (last_before.index, first_after.index);
            changes.push(ChangePoint { last_before, first_after, earliest, latest, certainty, p: cut.p, ratio });
        }
        Ok(Segmentation { changes, stretches })
    }

    /// Returns the interval of a change's place, and the share at the place found. It scales the
    /// residuals of both stretches to the same variance, draws them again and finds the best cut
    /// again (a residual bootstrap: Hušková and Kirch, "Bootstrapping confidence intervals for the
    /// change-point of time series", J. Time Ser. Anal. 29(6), 2008).
    fn place(
        &self,
        noise: &Noise,
        before: &[Observed],
        after: &[Observed],
        generator: &mut Generator,
    ) -> (usize, usize, f64) {
        const RESAMPLES: usize = 499;
        let points = [before, after].concat();
        let deviations: Vec<f64> = noise.of_points(&points).into_iter().map(f64::sqrt).collect();
        let levels: Vec<f64> = before.iter().map(|_| mean(before)).chain(after.iter().map(|_| mean(after))).collect();
        // Residuals of a fitted mean are too small by √((n − 1) / n) in each stretch; the residual
        // of a single point shows nothing.
        let widen = |n: usize| (n as f64 / (n as f64 - 1.0).max(1.0)).sqrt();
        let residuals: Vec<f64> = points
            .iter()
            .zip(&levels)
            .zip(&deviations)
            .enumerate()
            .map(|(place, ((point, level), deviation))| {
                let size = if place < before.len() { before.len() } else { after.len() };
                (point.value - level) / deviation * widen(size)
            })
            .collect();
        let mut drawn = residuals.clone();
        let mut simulated: Vec<f64> = levels.clone();
        let mut places = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            generator.resample(&residuals, &mut drawn);
            for ((slot, level), (residual, deviation)) in
                simulated.iter_mut().zip(&levels).zip(drawn.iter().zip(&deviations))
            {
                *slot = level + residual * deviation;
            }
            places.push(best_cut(&simulated, &deviations));
        }
        places.sort_unstable();
        let certainty = places.iter().filter(|&&place| place == before.len()).count() as f64 / RESAMPLES as f64;
        let as_figures: Vec<f64> = places.iter().map(|&place| place as f64).collect();
        let tail = (1.0 - self.level) / 2.0;
        let index_at = |p: f64, round: fn(f64) -> f64| {
            let place = sorted_quantile(&as_figures, p).map_or(before.len(), |place| round(place) as usize);
            points.get(place).map_or(0, |point| point.index)
        };
        (index_at(tail, f64::floor), index_at(1.0 - tail, f64::ceil), certainty)
    }
}

/// Returns the points between cuts.
fn stretches<'a>(points: &'a [Observed], cuts: &[Cut]) -> Vec<&'a [Observed]> {
    let ends = || cuts.iter().map(|cut| cut.at).chain([points.len()]);
    [0].into_iter().chain(ends()).zip(ends()).filter_map(|(start, end)| points.get(start..end)).collect()
}

/// Returns the stretches on both sides of a cut.
fn neighbours<'a>(points: &'a [Observed], cuts: &[Cut], which: usize) -> (&'a [Observed], &'a [Observed]) {
    let at = |which: usize| cuts.get(which).map_or(points.len(), |cut| cut.at);
    let start = if which == 0 { 0 } else { at(which - 1) };
    (points.get(start..at(which)).unwrap_or_default(), points.get(at(which)..at(which + 1)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
