// SPDX-License-Identifier: MIT OR Apache-2.0
//! An effect: a ratio on the log scale and its error. Tests, verdicts and intervals start from
//! effects.
//!
//! Effects come from paired blocks ([`Effect::paired`]), from two independent sets of runs
//! ([`Effect::independent`]), or from the means of boots ([`crate::hierarchical`]). The relative
//! overhead is such a ratio: bandwidth without the tool / bandwidth with it; above 1 means slower.
//!
//! The estimator is the ratio of geometric means over pairs, which is the exponential of the mean
//! of the pairs' log ratios. The interval is Student's t on the log scale, transformed back.
//!
//! The log scale treats twice as fast and half as fast alike (Fleming and Wallace, "How not to lie
//! with statistics: the correct way to summarize benchmark results", CACM 29(3), 1986). A paired t
//! interval of logarithms is the classical interval for a ratio under multiplicative errors (Bland
//! and Altman, "Transformations, means and confidence intervals", BMJ 312, 1996).
//!
//! The test `coverage_is_nominal_for_few_pairs` simulates the coverage of nominal 95 % intervals.
//! It is 0.95 for log-normal ratios, and 0.96 with heavy tails (Student's t with 3 degrees of
//! freedom), at 5, 8 and 20 pairs. It is **not** nominal for strongly skewed ratios (exponential:
//! delays only ever add), but 0.88 at 5, 0.89 at 8, and 0.92 at 20 pairs. No known interval is
//! nominal for so few pairs.
//!
//! Pairs are assumed to be independent of each other, and their log ratios about normal. The two
//! runs of a pair can depend on each other in any way; pairing exists for that case.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    StatsError,
    interval::{Bounds, Estimate, Interval, check_level, t_cdf, t_quantile},
    sample_summary::mean_and_deviation,
};

/// The natural logarithm of a ratio, and its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// Logarithm of the ratio (0: no difference; 0.01: about 1 % more).
    pub log_ratio: f64,
    /// The uncertainty of the logarithm.
    pub spread: Spread,
    /// Number of independent observations: of pairs, or of the smaller one of two sets.
    pub n: usize,
}

/// The known error of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Nothing is known: there is one observation.
    OneObservation,
    /// All observations were equal.
    NoSpread,
    /// The effect divided by its standard error follows Student's t distribution.
    Student {
        /// Standard error of the log ratio.
        standard_error: f64,
        /// Degrees of freedom, not necessarily an integer.
        degrees_of_freedom: f64,
    },
}

impl Effect {
    /// Makes an effect from the log ratios of pairs: their mean, with its standard error.
    ///
    /// # Errors
    /// [`StatsError::Empty`] without figures; [`StatsError::NotFinite`] for a figure that is not
    /// finite.
    pub fn paired(logs: &[f64]) -> Result<Self, StatsError> {
        let n = logs.len();
        let (log_ratio, deviation) = finite_mean_and_deviation(logs)?;
        let spread = match deviation {
            None => Spread::OneObservation,
            Some(0.0) => Spread::NoSpread,
            Some(deviation) => {
                Spread::Student { standard_error: deviation / (n as f64).sqrt(), degrees_of_freedom: n as f64 - 1.0 }
            }
        };
        Ok(Self { log_ratio, spread, n })
    }

    /// Computes an effect from two independent sets of logarithms, such as the logarithms of two
    /// results: mean of `baseline` − mean of `with`. The two sets can have different variances
    /// (Welch, "The generalization of 'Student's' problem when several different population
    /// variances are involved", Biometrika 34, 1947).
    ///
    /// # Errors
    /// [`StatsError::Empty`] without figures; [`StatsError::NotFinite`] for a figure that is not
    /// finite.
    pub fn independent(baseline: &[f64], with: &[f64]) -> Result<Self, StatsError> {
        let (mean_a, deviation_a) = finite_mean_and_deviation(baseline)?;
        let (mean_b, deviation_b) = finite_mean_and_deviation(with)?;
        let log_ratio = mean_a - mean_b;
        let n = baseline.len().min(with.len());
        let spread = match (deviation_a, deviation_b) {
            (Some(a), Some(b)) if a > 0.0 || b > 0.0 => {
                let (df_a, df_b) = (baseline.len() as f64 - 1.0, with.len() as f64 - 1.0);
                let (a, b) = (a.powi(2) / (df_a + 1.0), b.powi(2) / (df_b + 1.0));
                // Satterthwaite's degrees of freedom, computed from shares so that small variances
                // do not underflow.
                let share = a / (a + b);
                let degrees_of_freedom = 1.0 / (share.powi(2) / df_a + (1.0 - share).powi(2) / df_b);
                Spread::Student { standard_error: (a + b).sqrt(), degrees_of_freedom }
            }
            (Some(_), Some(_)) => Spread::NoSpread,
            _ => Spread::OneObservation,
        };
        if let Spread::Student { standard_error, degrees_of_freedom } = spread
            && !(standard_error > 0.0 && standard_error.is_finite() && degrees_of_freedom.is_finite())
        {
            return Err(StatsError::Range);
        }
        Ok(Self { log_ratio, spread, n })
    }

    /// Adds an independent error of known `variance`, such as a declared layout term, to the
    /// effect. The degrees of freedom follow Satterthwaite ("An approximate distribution of
    /// estimates of variance components", Biometrics Bulletin 2, 1946). One observation still shows
    /// nothing.
    #[must_use]
    pub fn with_known_variance(self, variance: f64) -> Self {
        let student = |own: f64, degrees_of_freedom: f64| Spread::Student {
            standard_error: (own + variance).sqrt(),
            degrees_of_freedom: (degrees_of_freedom * ((own + variance) / own).powi(2)).min(1e9),
        };
        let spread = match self.spread {
            Spread::Student { standard_error, degrees_of_freedom } => {
                student(standard_error.powi(2), degrees_of_freedom)
            }
            Spread::NoSpread if variance > 0.0 => student(0.0, 1.0),
            Spread::NoSpread | Spread::OneObservation => self.spread,
        };
        Self { spread, ..self }
    }

    /// Returns the ratio and its t interval, both transformed back from the log scale.
    ///
    /// # Errors
    /// [`StatsError::Level`]; [`StatsError::Range`] for ratios beyond floating-point numbers.
    pub fn estimate(&self, level: f64) -> Result<Estimate, StatsError> {
        check_level(level)?;
        let bounds = match self.spread {
            Spread::OneObservation => Bounds::OneObservation,
            Spread::NoSpread => Bounds::NoSpread,
            Spread::Student { standard_error, degrees_of_freedom } => {
                let half = t_quantile(level, degrees_of_freedom)? * standard_error;
                Bounds::Interval(Interval {
                    lower: (self.log_ratio - half).exp(),
                    upper: (self.log_ratio + half).exp(),
                    level,
                })
            }
        };
        let value = self.log_ratio.exp();
        let bounds_fit = bounds.interval().is_none_or(|interval| interval.upper.is_finite());
        if value.is_finite() && value > 0.0 && bounds_fit {
            Ok(Estimate { value, bounds, n: self.n })
        } else {
            Err(StatsError::Range)
        }
    }

    /// Returns the one-sided p-value of "the log ratio is at most `bound`" against "it is above".
    /// `None` for one observation; without spread 0 or 1, because the effect then counts as known.
    ///
    /// # Errors
    /// [`StatsError::NotFinite`] for a `bound` that is not finite.
    pub fn p_at_most(&self, bound: f64) -> Result<Option<f64>, StatsError> {
        self.p_one_sided(bound, 1.0)
    }

    /// Returns the one-sided p-value of "the log ratio is at least `bound`" against "it is below";
    /// see [`Self::p_at_most`].
    ///
    /// # Errors
    /// [`StatsError::NotFinite`] for a `bound` that is not finite.
    pub fn p_at_least(&self, bound: f64) -> Result<Option<f64>, StatsError> {
        self.p_one_sided(bound, -1.0)
    }

    fn p_one_sided(&self, bound: f64, direction: f64) -> Result<Option<f64>, StatsError> {
        let distance = (self.log_ratio - bound) * direction;
        if !distance.is_finite() {
            return Err(StatsError::NotFinite { value: bound });
        }
        Ok(match self.spread {
            Spread::OneObservation => None,
            Spread::NoSpread => Some(if distance > 0.0 { 0.0 } else { 1.0 }),
            Spread::Student { standard_error, degrees_of_freedom } => {
                Some(t_cdf(-distance / standard_error, degrees_of_freedom)?)
            }
        })
    }
}

/// Returns mean and deviation of finite figures. The deviation of equal figures is exactly 0,
/// whatever their sum rounds to.
///
/// # Errors
/// - [`StatsError::Empty`] without figures
/// - [`StatsError::NotFinite`], if a figure is not finite
/// - [`StatsError::Range`], if the mean or the deviation is not finite
pub(crate) fn finite_mean_and_deviation(figures: &[f64]) -> Result<(f64, Option<f64>), StatsError> {
    let Some(&first) = figures.first() else { return Err(StatsError::Empty) };
    if let Some(&value) = figures.iter().find(|value| !value.is_finite()) {
        return Err(StatsError::NotFinite { value });
    }
    if figures.iter().all(|&value| value == first) {
        return Ok((first, (figures.len() > 1).then_some(0.0)));
    }
    let (mean, deviation) = mean_and_deviation(figures);
    if mean.is_finite() && deviation.is_none_or(f64::is_finite) {
        Ok((mean, deviation))
    } else {
        Err(StatsError::Range)
    }
}

#[cfg(test)]
mod tests;
