// SPDX-License-Identifier: MIT OR Apache-2.0
//! Confidence intervals, and reasons why there is none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::StatsError;

/// A confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower bound.
    pub lower: f64,
    /// Upper bound.
    pub upper: f64,
    /// Nominal coverage (0.95).
    pub level: f64,
}

/// An interval, or the reason why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bounds {
    /// There is an interval.
    Interval(Interval),
    /// One observation does not show any spread.
    OneObservation,
    /// All observations are equal: the interval would be a point, which is exact only if nothing
    /// varies at all.
    NoSpread,
    /// There are as many parameters as observations: the fit is exact and does not show any spread.
    NoDegreesOfFreedom,
}

impl Bounds {
    /// Returns the interval, if there is one.
    #[must_use]
    pub const fn interval(&self) -> Option<Interval> {
        match self {
            Self::Interval(interval) => Some(*interval),
            Self::OneObservation | Self::NoSpread | Self::NoDegreesOfFreedom => None,
        }
    }

    /// Tells why there is no interval.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Interval(_) => None,
            Self::OneObservation => Some("one observation does not show any spread"),
            Self::NoSpread => Some("all observations are equal"),
            Self::NoDegreesOfFreedom => Some("as many parameters as observations"),
        }
    }
}

/// An estimate, of a ratio or of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The estimated value.
    pub value: f64,
    /// The confidence interval, or why there is none.
    pub bounds: Bounds,
    /// Number of independent observations.
    pub n: usize,
}

/// Refuses levels that are not strictly between 0 and 1.
///
/// # Errors
/// [`StatsError::Level`] for such a level, and for NaN.
pub(crate) fn check_level(level: f64) -> Result<(), StatsError> {
    if level > 0.0 && level < 1.0 { Ok(()) } else { Err(StatsError::Level { level }) }
}

/// The degrees of freedom above which expansions in their reciprocal, exact to nine digits, replace
/// statrs 0.19. Its quantile relies on differences of large logarithms of Γ: it returns 1.827
/// instead of 1.960 at 10⁷, and does not return at 10⁹.
const LARGE: f64 = 1e4;

/// Returns the two-sided `level` quantile of Student's t distribution: half the width of a t
/// interval in standard errors.
///
/// # Errors
/// - [`StatsError::Level`], if the level is not a probability
/// - [`StatsError::Range`], if the degrees of freedom are not positive, or the quantile is not
///   finite
pub(crate) fn t_quantile(level: f64, degrees_of_freedom: f64) -> Result<f64, StatsError> {
    check_level(level)?;
    if degrees_of_freedom > LARGE {
        // Abramowitz and Stegun, "Handbook of mathematical functions", 26.7.5.
        let z = normal_quantile(f64::midpoint(1.0, level));
        let correction = (z.powi(3) + z) / (4.0 * degrees_of_freedom)
            + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * degrees_of_freedom.powi(2));
        return if z.is_finite() { Ok(z + correction) } else { Err(StatsError::Range) };
    }
    let distribution = StudentsT::new(0.0, 1.0, degrees_of_freedom).map_err(|_| StatsError::Range)?;
    let quantile = distribution.inverse_cdf(f64::midpoint(1.0, level));
    if quantile.is_finite() { Ok(quantile) } else { Err(StatsError::Range) }
}

/// Returns P(T ≤ `t`) of Student's t distribution, accurate in the lower tail.
///
/// # Errors
/// [`StatsError::Range`], if the degrees of freedom are not positive, or the probability is not
/// finite.
pub(crate) fn t_cdf(t: f64, degrees_of_freedom: f64) -> Result<f64, StatsError> {
    if degrees_of_freedom > LARGE && t.is_finite() {
        // Wallace, "Bounds on normal approximations to Student's and the chi-square distributions",
        // Ann. Math. Statist. 30, 1959.
        let factor = (8.0 * degrees_of_freedom + 1.0) / (8.0 * degrees_of_freedom + 3.0);
        let z = factor * (degrees_of_freedom * (t * t / degrees_of_freedom).ln_1p()).sqrt();
        return Ok(normal_cdf(z.copysign(t)));
    }
    let distribution = StudentsT::new(0.0, 1.0, degrees_of_freedom).map_err(|_| StatsError::Range)?;
    match distribution.cdf(t) {
        _ if t == f64::NEG_INFINITY => Ok(0.0),
        _ if t == f64::INFINITY => Ok(1.0),
        p if p.is_finite() => Ok(p.clamp(0.0, 1.0)),
        _ => Err(StatsError::Range),
    }
}

/// Returns P(Z ≤ `z`) of the standard normal distribution.
pub(crate) fn normal_cdf(z: f64) -> f64 {
    0.5 * statrs::function::erf::erfc(-z / std::f64::consts::SQRT_2)
}

/// Returns the quantile of the standard normal distribution at `p`, strictly between 0 and 1.
pub(crate) fn normal_quantile(p: f64) -> f64 {
    -std::f64::consts::SQRT_2 * statrs::function::erf::erfc_inv(2.0 * p)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, critical values of Student's t,
    /// column 0.975.
    #[test]
    fn quantiles_are_those_of_the_published_table() {
        for (degrees, published) in
            [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (7.0, 2.365), (19.0, 2.093), (100.0, 1.984)]
        {
            assert!((t_quantile(0.95, degrees).unwrap() - published).abs() < 5e-4, "{degrees}");
        }
    }

    /// R 4.2.2: `qt(0.975, d)` and `pt(-3.5, d)`, on both sides of [`LARGE`].
    #[test]
    fn many_degrees_of_freedom_agree_with_r() {
        for (degrees, quantile, p) in [
            (1000.0, 1.962339080826408, 2.428871729839163e-04),
            (9999.0, 1.960201263621357, 2.336423474003959e-04),
            (10001.0, 1.960_201_216_164_64, 2.336421444868474e-04),
            (100000.0, 1.959987707534609, 2.327302696855498e-04),
            (10000000.0, 1.959964221767205, 2.326_300_908_034_244e-4),
            (1000000000.0, 1.959963986912325, 2.326_290_891_531_9e-4),
        ] {
            assert!((t_quantile(0.95, degrees).unwrap() / quantile - 1.0).abs() < 1e-9, "{degrees}");
            assert!((t_cdf(-3.5, degrees).unwrap() / p - 1.0).abs() < 1e-6, "{degrees}");
            assert!((t_cdf(3.5, degrees).unwrap() - (1.0 - p)).abs() < 1e-9, "{degrees}");
        }
    }

    #[test]
    fn levels_outside_the_unit_interval_are_refused() {
        for level in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(matches!(t_quantile(level, 3.0), Err(StatsError::Level { .. })));
        }
    }
}
