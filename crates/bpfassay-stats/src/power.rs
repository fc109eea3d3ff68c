// SPDX-License-Identifier: MIT OR Apache-2.0
//! The power and the minimum detectable effect of an experiment.
//!
//! The power of the paired t test follows from the noncentral t distribution (Cohen, "Statistical
//! power analysis for the behavioral sciences", 2nd ed. 1988, chapter 2). R's `power.t.test(…,
//! strict = TRUE)` gives the same figures. The power is an expectation over the sample deviation:
//! its square divided by the expectation of the square follows χ² / ν. Simpson's rule integrates
//! this to about 10⁻⁹, which equals the noncentral t distribution function.
//!
//! The deviation of log ratios between pairs is usually estimated from few pairs, so results are
//! for planning.

use crate::{
    Spread, StatsError,
    interval::{check_level, normal_cdf, t_quantile},
};

/// A paired experiment and the requested certainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Design {
    /// Standard deviation of the log ratios of pairs.
    pub deviation: f64,
    /// Error rate, two-sided.
    pub alpha: f64,
}

impl Design {
    /// Returns the probability that `pairs` pairs show a difference if the true ratio is `ratio`.
    /// One pair shows none. If nothing varies, every ratio other than 1 is found.
    ///
    /// # Errors
    /// [`StatsError`]: a negative deviation, an error rate or ratio out of range.
    pub fn power(&self, pairs: usize, ratio: f64) -> Result<f64, StatsError> {
        self.check()?;
        self.power_of_log(pairs, log_of(ratio)?)
    }

    fn power_of_log(&self, pairs: usize, log_ratio: f64) -> Result<f64, StatsError> {
        if pairs < 2 {
            return Ok(0.0);
        }
        if self.deviation == 0.0 {
            return Ok(if log_ratio == 0.0 { 0.0 } else { 1.0 });
        }
        power_of_shift(self.alpha, pairs as f64 - 1.0, log_ratio.abs() * (pairs as f64).sqrt() / self.deviation)
    }

    fn check(&self) -> Result<(), StatsError> {
        if !(self.alpha > 0.0 && self.alpha < 0.5) {
            return Err(StatsError::Alpha { alpha: self.alpha });
        }
        if !self.deviation.is_finite() {
            return Err(StatsError::NotFinite { value: self.deviation });
        }
        if self.deviation < 0.0 {
            return Err(StatsError::Negative { value: self.deviation });
        }
        Ok(())
    }
}

/// The largest distinguished degrees of freedom: larger ones change no figure in the third digit.
const MOST_FREEDOM: f64 = 1000.0;

/// Rounds degrees of freedom down to three digits, so that many rows share them. Rounding down
/// makes the detectable effect larger.
#[must_use]
pub fn rounded_freedom(freedom: f64) -> f64 {
    let freedom = freedom.min(MOST_FREEDOM);
    let unit = 10_f64.powf(freedom.log10().floor() - 2.0);
    // A multiple of the unit stays unchanged.
    let rounded = (freedom / unit * (1.0 + 1e-12)).floor() * unit;
    if rounded.is_finite() { rounded } else { freedom }
}

/// Returns the smallest log ratio, in standard errors, that a t test with these degrees of freedom
/// shows with probability `power` at the two-sided error rate `alpha`, to ten digits. It does not
/// depend on the standard errors, and is at least the half width of an interval at the level 1 −
/// `alpha` with the same standard error. `None` if there is no such ratio.
///
/// # Errors
/// [`StatsError`]: an error rate out of range, [`StatsError::Level`] for the power, degrees of
/// freedom that are not positive.
pub fn detectable_shift(alpha: f64, freedom: f64, power: f64) -> Result<Option<f64>, StatsError> {
    Design { deviation: 1.0, alpha }.check()?;
    check_level(power)?;
    let (mut low, mut high) = (0.0, 1.0);
    while power_of_shift(alpha, freedom, high)? < power {
        (low, high) = (high, 2.0 * high);
        if high == f64::INFINITY {
            return Ok(None);
        }
    }
    while high - low > 1e-10 * high {
        let middle = f64::midpoint(low, high);
        if power_of_shift(alpha, freedom, middle)? < power {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(high))
}

/// Returns the ratio whose logarithm is `shift` standard errors of `spread`; `None` if the spread
/// has no standard error, or the ratio does not fit a number.
#[must_use]
pub fn ratio_of(shift: f64, spread: &Spread) -> Option<f64> {
    match spread {
        Spread::OneObservation | Spread::NoSpread => None,
        Spread::Student { standard_error, .. } => {
            Some((shift * standard_error).exp()).filter(|ratio| ratio.is_finite())
        }
    }
}

/// Returns the probability that a t test with these degrees of freedom shows a difference of
/// `shift` standard errors.
fn power_of_shift(alpha: f64, freedom: f64, shift: f64) -> Result<f64, StatsError> {
    let critical = t_quantile(1.0 - alpha, freedom)?;
    let found = |deviation: f64| normal_cdf(shift - critical * deviation) + normal_cdf(-shift - critical * deviation);
    Ok(over_deviations(freedom, found).clamp(0.0, 1.0))
}

fn log_of(ratio: f64) -> Result<f64, StatsError> {
    if ratio.is_finite() && ratio > 0.0 { Ok(ratio.ln()) } else { Err(StatsError::NotPositive { value: ratio }) }
}

/// Returns the expectation of `value` over u = √(χ²(ν) / ν), the sample deviation divided by the
/// true one.
fn over_deviations(freedom: f64, value: impl Fn(f64) -> f64) -> f64 {
    // 13 deviations of u, which are at most 1 / √(2ν), contain all but 10⁻³⁰.
    let reach = 13.0 / (2.0 * freedom).sqrt();
    let (from, to) = ((1.0 - reach).max(1e-300), 1.0 + reach);
    // Dividing by the density's own integral is more precise than by Γ(ν / 2), which has too few
    // digits for many pairs.
    let density = |u: f64| ((freedom - 1.0) * u.ln() - freedom * (u * u - 1.0) / 2.0).exp();
    simpson(from, to, |u| density(u) * value(u)) / simpson(from, to, density)
}

fn simpson(from: f64, to: f64, value: impl Fn(f64) -> f64) -> f64 {
    const STEPS: u32 = 1000;
    let width = (to - from) / f64::from(STEPS);
    let term = |step: u32| {
        let weight = if step == 0 || step == STEPS { 1.0 } else { f64::from(2 + 2 * (step % 2)) };
        weight * value(from + width * f64::from(step))
    };
    (0..=STEPS).map(term).sum::<f64>() * width / 3.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Effect,
        random::Generator,
        simulation::{close, p_equal, share},
    };

    const fn design(deviation: f64) -> Design {
        Design { deviation, alpha: 0.05 }
    }

    /// Returns the smallest ratio that `pairs` pairs show with probability `power` at the error
    /// rate 0.05.
    fn detectable(deviation: f64, pairs: usize, power: f64) -> Option<f64> {
        let (n, degrees_of_freedom) = (pairs as f64, pairs as f64 - 1.0);
        let spread = Spread::Student { standard_error: deviation / n.sqrt(), degrees_of_freedom };
        let shift = detectable_shift(0.05, degrees_of_freedom, power).unwrap()?;
        ratio_of(shift, &spread)
    }

    #[test]
    fn what_is_detectable_is_never_less_than_the_half_width_of_the_interval() {
        for freedom in [1.0, 1.5, 2.0, 4.7, 30.0, 78.83, 1000.0] {
            let shift = detectable_shift(0.05, freedom, 0.8).unwrap().unwrap();
            let half = t_quantile(0.95, freedom).unwrap();
            assert!(shift > half && shift < 2.0 * half, "{freedom}: {shift}, {half}");
        }
        for spread in [Spread::OneObservation, Spread::NoSpread] {
            assert_eq!(ratio_of(3.0, &spread), None);
        }
    }

    #[test]
    fn degrees_of_freedom_are_rounded_down() {
        let rounded = [2.0, 2.379, 78.83, 11.0, 999.9, 1e9, f64::INFINITY].map(rounded_freedom);
        let wanted = [2.0, 2.37, 78.8, 11.0, 999.0, 1000.0, 1000.0];
        assert!(rounded.iter().zip(wanted).all(|(found, wanted)| close(*found, wanted, 1e-9)), "{rounded:?}");
    }

    /// R 4.2.2: `power.t.test(n = 8, delta = 0.01, sd = 0.008, type = "paired", strict =
    /// TRUE)$power` and `power.t.test(n = 5, delta = 0.005, sd = 0.004, type = "paired", strict =
    /// TRUE)$power`.
    #[test]
    fn power_agrees_with_r() {
        assert!(close(design(0.008).power(8, 0.01_f64.exp()).unwrap(), 0.856_443_685_887_623, 1e-8));
        assert!(close(design(0.004).power(5, 0.005_f64.exp()).unwrap(), 0.562_171_824_717_762, 1e-8));
    }

    /// R 4.2.2: `power.t.test(power = 0.8, n = n, sd = 0.004, type = "paired", strict = TRUE, tol =
    /// 1e-12)$delta` for n = 5 and 20.
    #[test]
    fn detectable_effects_agree_with_r() {
        assert!(close(detectable(0.004, 5, 0.8).unwrap().ln(), 0.006_727_987_863_805_5, 1e-7));
        assert!(close(detectable(0.004, 20, 0.8).unwrap().ln(), 0.002_641_766_618_491_35, 1e-7));
    }

    #[test]
    fn two_pairs_under_a_strict_error_rate_are_integrated_well() {
        // R 4.2.2: `power.t.test(n = 2, delta = 20, sd = 1, type = "paired", sig.level = 0.01,
        // strict = TRUE)$power`.
        let power = Design { deviation: 1.0, alpha: 0.01 }.power(2, 20_f64.exp()).unwrap();
        assert!(close(power, 0.343_152_628_719_555, 1e-7), "{power}");
    }

    #[test]
    fn limits() {
        assert_eq!(design(0.01).power(1, 2.0).unwrap(), 0.0);
        assert_eq!((design(0.0).power(2, 1.0).unwrap(), design(0.0).power(2, 1.1).unwrap()), (0.0, 1.0));
        assert_eq!(detectable(100.0, 2, 0.99), None);
        assert!(close(design(0.01).power(6, 1.0).unwrap(), 0.05, 1e-8));
        for bad in [
            Design { deviation: -1.0, alpha: 0.05 },
            Design { deviation: f64::NAN, alpha: 0.05 },
            Design { deviation: 1.0, alpha: 0.6 },
        ] {
            assert!(bad.power(5, 1.1).is_err());
        }
        assert!(design(0.1).power(5, 0.0).is_err() && detectable_shift(0.05, 4.0, 1.0).is_err());
        assert!(detectable_shift(0.05, 0.0, 0.8).is_err() && detectable_shift(0.6, 4.0, 0.8).is_err());
    }

    /// 3,000 samples at the minimum detectable ratio have a standard error of 0.007 for a share of
    /// 0.8.
    #[test]
    fn the_minimal_detectable_ratio_is_detected_as_often_as_documented() {
        let mut generator = Generator::new(41);
        let ratio = detectable(0.01, 6, 0.8).unwrap();
        let found = share(3000, || {
            let logs: Vec<f64> = (0..6).map(|_| ratio.ln() + 0.01 * generator.normal()).collect();
            p_equal(&Effect::paired(&logs).unwrap(), 0.0).unwrap() < 0.05
        });
        assert!((found - 0.8).abs() < 0.025, "{found}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// More pairs, larger effects and smaller deviations never lower the power; inverse ratios
        /// have the same power.
        #[test]
        fn power_is_monotone(pairs in 2..200usize, log in 0.0..1.0f64, deviation in 0.01..1.0f64) {
            let power = design(deviation).power(pairs, log.exp()).unwrap();
            prop_assert!(design(deviation).power(pairs + 1, log.exp()).unwrap() >= power - 1e-7);
            prop_assert!(design(deviation).power(pairs, (log * 1.1).exp()).unwrap() >= power - 1e-7);
            prop_assert!(design(deviation * 0.9).power(pairs, log.exp()).unwrap() >= power - 1e-7);
            prop_assert!((design(deviation).power(pairs, (-log).exp()).unwrap() - power).abs() < 1e-9);
        }

        #[test]
        fn any_design_is_taken_or_refused(deviation: f64, alpha: f64, ratio: f64, pairs in 0..10_000usize) {
            let design = Design { deviation, alpha };
            if let Ok(power) = design.power(pairs, ratio) {
                prop_assert!((0.0..=1.0).contains(&power));
            }
        }
    }
}
