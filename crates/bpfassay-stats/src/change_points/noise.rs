// SPDX-License-Identifier: MIT OR Apache-2.0
//! The noise of a series: the spread of replicates, the declared layout term, and further
//! differences between neighbours.

use super::Point;
use crate::{Spread, StatsError, sample_summary::sorted_quantile};

#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// Index of the point in the series as given.
    pub(super) index: usize,
    pub(super) value: f64,
    /// Variance by replicates, at least the usual variance around the point.
    replicates: f64,
    /// Degrees of freedom of that variance; 0 if it is not known.
    freedom: f64,
    layout: f64,
}

/// The smallest variance of a point, for a deviation of one part in a million: a smaller variance
/// would be lost in rounding.
const LEAST: f64 = 1e-12;

/// The number of neighbours whose median variance is the usual one.
const AROUND: usize = 5;

/// Returns the measured points.
///
/// # Errors
/// [`StatsError`]: no points, or figures that are not finite, negative, or out of range.
pub(super) fn observed(series: &[Option<Point>]) -> Result<Vec<Observed>, StatsError> {
    let mut points = Vec::with_capacity(series.len());
    for (index, point) in series.iter().enumerate() {
        let Some(Point { log_ratio, variance, degrees_of_freedom, layout }) = *point else { continue };
        for value in [log_ratio, variance, degrees_of_freedom, layout] {
            if !value.is_finite() {
                return Err(StatsError::NotFinite { value });
            }
        }
        if let Some(&value) = [variance, degrees_of_freedom, layout].iter().find(|value| **value < 0.0) {
            return Err(StatsError::Negative { value });
        }
        // No ratio is that large or small, and no square of the remaining values leaves the range.
        if log_ratio.abs() > 1e3 || variance.max(layout) > 1e6 {
            return Err(StatsError::Range);
        }
        points.push(Observed {
            index,
            value: log_ratio,
            replicates: variance,
            freedom: degrees_of_freedom.min(1e9),
            // Equal rounds do not show that nothing varies.
            layout: if degrees_of_freedom > 0.0 { layout.max(LEAST) } else { layout },
        });
    }
    if points.is_empty() {
        return Err(StatsError::Empty);
    }
    let usual: Vec<f64> = (0..points.len()).map(|index| usual(&points, index)).collect();
    for (point, usual) in points.iter_mut().zip(usual) {
        point.replicates = point.replicates.max(usual);
    }
    Ok(points)
}

/// Returns the median variance of the points around `index`: three rounds can agree by chance while
/// others differ widely. It is a median and no mean, so that a noisy stretch does not widen a quiet
/// neighbour.
fn usual(points: &[Observed], index: usize) -> f64 {
    let window = index.saturating_sub(AROUND / 2)..(index + AROUND / 2 + 1).min(points.len());
    let around = points.get(window).unwrap_or_default();
    let median_of = |of: fn(&Observed) -> f64| median(around.iter().map(of).collect()).unwrap_or(0.0);
    let (variance, freedom) = (median_of(|point| point.replicates), median_of(|point| point.freedom));
    if freedom < 1.0 {
        return variance;
    }
    // The median of χ² / ν (Wilson and Hilferty, "The distribution of chi-square", PNAS 17(12),
    // 1931).
    variance / (1.0 - 2.0 / (9.0 * freedom)).powi(3)
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    sorted_quantile(&figures, 0.5)
}

/// Returns the mean; exactly the common value if all are equal.
pub(super) fn mean(points: &[Observed]) -> f64 {
    let first = points.first().map_or(0.0, |point| point.value);
    first + points.iter().map(|point| point.value - first).sum::<f64>() / points.len() as f64
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Noise {
    autocorrelation: f64,
    /// Whether replicates show the noise of every point.
    pub(super) is_known: bool,
    /// Variance of each point by its neighbours, if replicates do not show it.
    scatter: f64,
    /// Variance of neighbours' differences over what replicates and layout explain, at least 1.
    excess: f64,
    freedom_of_excess: f64,
}

impl Noise {
    pub(super) fn of(points: &[Observed], autocorrelation: f64) -> Self {
        let is_known = points.iter().all(|point| point.freedom > 0.0);
        let mut noise = Self { autocorrelation, is_known, scatter: 0.0, excess: 1.0, freedom_of_excess: 1.0 };
        // The median square of a normal figure is 0.4549 of its variance, and few changes do not
        // move it. Neighbours are correlated, so they differ by less than independent figures.
        let median_of = |scale: fn(f64, f64) -> f64| {
            let squares = points.windows(2).filter_map(|pair| match pair {
                [a, b] => {
                    let explained = [a, b].map(|point| point.replicates + point.layout);
                    let square = (b.value - a.value).powi(2) / (0.454_936 * (1.0 - autocorrelation));
                    Some(scale(square, explained[0] + explained[1]))
                }
                _ => None,
            });
            median(squares.collect()).unwrap_or(0.0)
        };
        if is_known {
            noise.excess = median_of(|square, explained| square / explained).max(1.0);
            // Simulations show that the median of overlapping differences is as certain as a
            // variance with about a quarter of the degrees of freedom.
            noise.freedom_of_excess = (0.26 * (points.len() as f64 - 1.0)).max(1.0);
        } else {
            noise.scatter = median_of(|square, _| square / 2.0);
        }
        noise
    }

    /// Returns the variance of each point for a partition.
    pub(super) fn of_points(&self, points: &[Observed]) -> Vec<f64> {
        let of = |point: &Observed| (self.excess * (point.replicates + point.layout)).max(self.scatter).max(LEAST);
        points.iter().map(of).collect()
    }

    /// Returns the variance of a mean of n points over that of independent ones: 1 + 2 Σ (1 − k /
    /// n) ρᵏ.
    fn inflation(&self, n: usize) -> f64 {
        let (n, rho) = (n as f64, self.autocorrelation);
        (1.0 + rho) / (1.0 - rho) - 2.0 * rho * (1.0 - rho.powf(n)) / (n * (1.0 - rho).powi(2))
    }

    /// Returns the errors of a sum or difference of the levels of `stretches`. The first one is by
    /// the residuals of all stretches, if there are some, and at least what replicates and layout
    /// explain. The second one is by replicates, if all points have some.
    pub(super) fn spreads(&self, stretches: &[&[Observed]]) -> Vec<Spread> {
        let (mut squares, mut freedom_of_squares, mut freedom, mut inflated) = (0.0, 0.0, 0.0, 0.0);
        let (mut by_replicates, mut by_layout, mut beyond) = (0.0, 0.0, 0.0);
        // Satterthwaite's: squares of the parts over their degrees of freedom.
        let mut uncertain = 0.0;
        for stretch in stretches {
            let (n, mean) = (stretch.len() as f64, mean(stretch));
            let inflation = self.inflation(stretch.len());
            squares += stretch.iter().map(|point| (point.value - mean).powi(2)).sum::<f64>();
            freedom_of_squares += n - inflation;
            freedom += n - 1.0;
            inflated += inflation / n;
            let sum = |of: fn(&Observed) -> f64| stretch.iter().map(of).sum::<f64>();
            let (replicates, layout) = (sum(|point| point.replicates), sum(|point| point.layout));
            by_replicates += replicates / n.powi(2);
            by_layout += inflation * layout / n.powi(2);
            beyond += (self.excess - 1.0) * inflation * (replicates + layout) / n.powi(2);
            if replicates > 0.0 {
                uncertain += (replicates / n.powi(2)).powi(2) / sum(|point| point.freedom).max(1.0);
            }
        }
        let explained = by_replicates + by_layout;
        let student = |variance: f64, degrees_of_freedom: f64| match variance > 0.0 {
            true => Spread::Student { standard_error: variance.sqrt(), degrees_of_freedom },
            false => Spread::NoSpread,
        };
        let mut spreads = Vec::with_capacity(2);
        if freedom >= 1.0 {
            spreads.push(student((squares / freedom_of_squares * inflated).max(explained), freedom));
        }
        if self.is_known {
            let variance = explained + beyond;
            let uncertain = uncertain + beyond.powi(2) / self.freedom_of_excess;
            // The declared variance counts as known.
            spreads.push(student(variance, (variance.powi(2) / uncertain).min(1e9)));
        }
        spreads
    }
}
