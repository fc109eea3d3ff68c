//! What an experiment can find: power, minimal detectable effect, pairs required.
//!
//! Power of the paired t test by the noncentral t distribution (Cohen, "Statistical power analysis for the behavioral
//! sciences", 2nd ed. 1988, chapter 2; the figures of R's `power.t.test(…, strict = TRUE)`), and of the two one-sided
//! tests of equivalence (Phillips, "Power of the two one-sided tests procedure in bioequivalence", J. Pharmacokinet.
//! Biopharm. 18(2), 1990). Both are expectations over the sample deviation, whose square divided by its expectation is
//! χ² / ν; they are computed as such, by Simpson's rule, to about 10⁻⁹: the noncentral t distribution function and
//! Owen's Q are just that.
//!
//! The deviation of log ratios between pairs that goes in is usually an estimate from few pairs: results are for planning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    StatsError,
    interval::{check_level, normal_cdf, t_quantile},
};

/// A paired experiment and the certainty asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Design {
    /// Standard deviation of the log ratios of pairs.
    pub deviation: f64,
    /// Error rate: two-sided for a difference, of each of the two tests for equivalence.
    pub alpha: f64,
}

impl Design {
    /// The probability that `pairs` pairs show a difference when the true ratio is `ratio`. One pair shows none. Where
    /// nothing varies, every ratio other than 1 is found.
    ///
    /// # Errors
    /// [`StatsError`]: a deviation that is negative, an error rate or ratio out of range.
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
        let (freedom, shift) = (pairs as f64 - 1.0, log_ratio.abs() * (pairs as f64).sqrt() / self.deviation);
        let critical = t_quantile(1.0 - self.alpha, freedom)?;
        let found =
            |deviation: f64| normal_cdf(shift - critical * deviation) + normal_cdf(-shift - critical * deviation);
        Ok(over_deviations(freedom, f64::INFINITY, found).clamp(0.0, 1.0))
    }

    /// The smallest ratio above 1 that `pairs` pairs show with probability `power`; its inverse is the one below 1.
    /// `None` for one pair, and where no ratio that a number can hold is found that surely.
    ///
    /// # Errors
    /// As [`Self::power`]; [`StatsError::Level`] for the power.
    pub fn minimal_detectable_ratio(&self, pairs: usize, power: f64) -> Result<Option<f64>, StatsError> {
        self.check()?;
        match minimal_detectable(self.alpha, pairs, power)? {
            Some(_) if self.deviation == 0.0 => Ok(Some(1.0)),
            Some(deviations) => Ok(ratio_of(deviations, self.deviation)),
            None => Ok(None),
        }
    }

    /// The smallest number of pairs, up to `most`, that shows `ratio` with probability `power`; `None` where `most` are
    /// too few.
    ///
    /// # Errors
    /// As [`Self::power`]; [`StatsError::Level`] for the power.
    pub fn pairs_for_ratio(&self, ratio: f64, power: f64, most: usize) -> Result<Option<usize>, StatsError> {
        self.check()?;
        check_level(power)?;
        let log_ratio = log_of(ratio)?;
        smallest(most, |pairs| Ok(self.power_of_log(pairs, log_ratio)? >= power))
    }

    /// The probability that `pairs` pairs show equivalence within `margin` (a ratio above 1) when the true ratio is `ratio`.
    ///
    /// # Errors
    /// As [`Self::power`]; [`StatsError::Margin`].
    pub fn power_of_equivalence(&self, pairs: usize, ratio: f64, margin: f64) -> Result<f64, StatsError> {
        self.check()?;
        let log_ratio = log_of(ratio)?;
        if !(margin.is_finite() && margin > 1.0) {
            return Err(StatsError::Margin { margin });
        }
        let margin = margin.ln();
        if pairs < 2 {
            return Ok(0.0);
        }
        if self.deviation == 0.0 {
            return Ok(if log_ratio.abs() < margin { 1.0 } else { 0.0 });
        }
        let (freedom, scale) = (pairs as f64 - 1.0, (pairs as f64).sqrt() / self.deviation);
        // One-sided: the two-sided level whose upper tail is α.
        let critical = t_quantile(1.0 - 2.0 * self.alpha, freedom)?;
        let shown = |deviation: f64| {
            let half = critical * deviation;
            (normal_cdf((margin - log_ratio) * scale - half) - normal_cdf(half - (margin + log_ratio) * scale)).max(0.0)
        };
        // Larger deviations leave no room between the two tests.
        Ok(over_deviations(freedom, margin * scale / critical, shown).clamp(0.0, 1.0))
    }

    /// The smallest number of pairs, up to `most`, that shows equivalence within `margin` with probability `power` when
    /// there is no difference at all; `None` where `most` are too few.
    ///
    /// # Errors
    /// As [`Self::power_of_equivalence`]; [`StatsError::Level`] for the power.
    pub fn pairs_for_equivalence(&self, margin: f64, power: f64, most: usize) -> Result<Option<usize>, StatsError> {
        check_level(power)?;
        self.power_of_equivalence(2, 1.0, margin)?;
        smallest(most, |pairs| Ok(self.power_of_equivalence(pairs, 1.0, margin)? >= power))
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

/// The smallest log ratio that `pairs` pairs show with probability `power` at the error rate `alpha`, in standard deviations of the log
/// ratios of pairs, to ten digits: it does not depend on how large these are. `None` for one pair, and where there is none.
///
/// # Errors
/// As [`Design::power`]; [`StatsError::Level`] for the power.
pub fn minimal_detectable(alpha: f64, pairs: usize, power: f64) -> Result<Option<f64>, StatsError> {
    let design = Design { deviation: 1.0, alpha };
    design.check()?;
    check_level(power)?;
    if pairs < 2 {
        return Ok(None);
    }
    let (mut low, mut high) = (0.0, 1.0);
    while design.power_of_log(pairs, high)? < power {
        (low, high) = (high, 2.0 * high);
        if high == f64::INFINITY {
            return Ok(None);
        }
    }
    while high - low > 1e-10 * high {
        let middle = f64::midpoint(low, high);
        if design.power_of_log(pairs, middle)? < power {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(high))
}

/// The ratio whose logarithm is that many standard deviations of this size; `None` where no number can hold it.
#[must_use]
pub fn ratio_of(deviations: f64, deviation: f64) -> Option<f64> {
    Some((deviations * deviation).exp()).filter(|ratio| ratio.is_finite())
}

fn log_of(ratio: f64) -> Result<f64, StatsError> {
    if ratio.is_finite() && ratio > 0.0 { Ok(ratio.ln()) } else { Err(StatsError::NotPositive { value: ratio }) }
}

/// The smallest number from 2 to `most` that is `enough`, for a property that more never take away.
fn smallest(most: usize, enough: impl Fn(usize) -> Result<bool, StatsError>) -> Result<Option<usize>, StatsError> {
    let mut high = 2;
    while !enough(high)? {
        if high >= most {
            return Ok(None);
        }
        high = high.saturating_mul(2).min(most);
    }
    let mut low = 2;
    while low < high {
        let middle = usize::midpoint(low, high);
        if enough(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok((high <= most).then_some(high))
}

/// The expectation of `value` over u = √(χ²(ν) / ν), the sample deviation divided by the true one, up to `most`.
fn over_deviations(freedom: f64, most: f64, value: impl Fn(f64) -> f64) -> f64 {
    // 13 deviations of u, which are at most 1 / √(2ν), hold all but 10⁻³⁰.
    let reach = 13.0 / (2.0 * freedom).sqrt();
    let (from, to) = ((1.0 - reach).max(1e-300), 1.0 + reach);
    // Divided by its own integral rather than by Γ(ν / 2), of which many pairs leave too few digits.
    let density = |u: f64| ((freedom - 1.0) * u.ln() - freedom * (u * u - 1.0) / 2.0).exp();
    simpson(from, to.min(most), |u| density(u) * value(u)) / simpson(from, to, density)
}

/// The integral of `value`; 0 where the bounds are the wrong way round.
fn simpson(from: f64, to: f64, value: impl Fn(f64) -> f64) -> f64 {
    const STEPS: u32 = 1000;
    if to <= from {
        return 0.0;
    }
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
        simulation::{close, share},
    };

    const fn design(deviation: f64) -> Design {
        Design { deviation, alpha: 0.05 }
    }

    /// R 4.2.2: `power.t.test(n = 8, delta = 0.01, sd = 0.008, type = "paired", strict = TRUE)$power` and
    /// `power.t.test(n = 5, delta = 0.005, sd = 0.004, type = "paired", strict = TRUE)$power`.
    #[test]
    fn power_agrees_with_r() {
        assert!(close(design(0.008).power(8, 0.01_f64.exp()).unwrap(), 0.856_443_685_887_623, 1e-8));
        assert!(close(design(0.004).power(5, 0.005_f64.exp()).unwrap(), 0.562_171_824_717_762, 1e-8));
    }

    /// R 4.2.2: `power.t.test(power = 0.8, n = n, sd = 0.004, type = "paired", strict = TRUE, tol = 1e-12)$delta` for n
    /// = 5 and 20, and `power.t.test(power = 0.9, delta = 0.01, sd = 0.02, type = "paired", strict = TRUE)$n` =
    /// 43.9955.
    #[test]
    fn detectable_effects_and_pairs_required_agree_with_r() {
        let ratio = |pairs| design(0.004).minimal_detectable_ratio(pairs, 0.8).unwrap().unwrap();
        assert!(close(ratio(5).ln(), 0.006_727_987_863_805_5, 1e-7));
        assert!(close(ratio(20).ln(), 0.002_641_766_618_491_35, 1e-7));
        assert_eq!(design(0.02).pairs_for_ratio(0.01_f64.exp(), 0.9, 1000).unwrap(), Some(44));
        assert_eq!(design(0.02).pairs_for_ratio(0.01_f64.exp(), 0.9, 43).unwrap(), None);
    }

    /// R 4.2.2, Owen's Q by `integrate` (relative tolerance 1e-11): over u of `dchisq(nu * u^2, nu) * 2 * u * nu` times
    /// `pnorm((m - h - th) * sqrt(n) / sd) - pnorm((-m + h - th) * sqrt(n) / sd)`, `h = qt(0.95, nu) * sd * u / sqrt(n)`.
    #[test]
    fn power_of_equivalence_agrees_with_r() {
        for (pairs, deviation, log_ratio, margin, r) in [
            (8, 0.01, 0.0, 1.02, 0.999_151_722_944_523),
            (5, 0.004, 0.001, 1.005, 0.478_121_521_097_695),
            (20, 0.02, 0.005, 1.02, 0.938_576_884_716_505),
        ] {
            let ours = design(deviation).power_of_equivalence(pairs, f64::exp(log_ratio), margin).unwrap();
            assert!(close(ours, r, 1e-8), "{ours} {r}");
        }
    }

    #[test]
    fn two_pairs_under_a_strict_error_rate_are_integrated_well() {
        // R 4.2.2: `power.t.test(n = 2, delta = 20, sd = 1, type = "paired", sig.level = 0.01, strict = TRUE)$power`.
        let power = Design { deviation: 1.0, alpha: 0.01 }.power(2, 20_f64.exp()).unwrap();
        assert!(close(power, 0.343_152_628_719_555, 1e-7), "{power}");
    }

    #[test]
    fn limits() {
        assert_eq!(design(0.01).power(1, 2.0).unwrap(), 0.0);
        assert_eq!(design(0.01).minimal_detectable_ratio(1, 0.8).unwrap(), None);
        assert_eq!(design(0.0).minimal_detectable_ratio(2, 0.8).unwrap(), Some(1.0));
        assert_eq!((design(0.0).power(2, 1.0).unwrap(), design(0.0).power(2, 1.1).unwrap()), (0.0, 1.0));
        assert_eq!(design(0.0).power_of_equivalence(2, 1.0, 1.01).unwrap(), 1.0);
        // From 10⁶ pairs on, Student's t is the normal distribution: (1.959964 + 0.841621)² / 10⁻⁶ pairs.
        let many = design(1.0).pairs_for_ratio(0.001_f64.exp(), 0.8, usize::MAX).unwrap().unwrap();
        assert!(close(many as f64, 7_848_879.0, 1e-4), "{many}");
        assert_eq!(design(100.0).minimal_detectable_ratio(2, 0.99).unwrap(), None);
        assert!(close(design(0.01).power(6, 1.0).unwrap(), 0.05, 1e-8));
        for bad in [
            Design { deviation: -1.0, alpha: 0.05 },
            Design { deviation: f64::NAN, alpha: 0.05 },
            Design { deviation: 1.0, alpha: 0.6 },
        ] {
            assert!(bad.power(5, 1.1).is_err());
        }
        assert!(design(0.1).power(5, 0.0).is_err() && design(0.1).power_of_equivalence(5, 1.0, 0.9).is_err());
        assert!(design(0.1).minimal_detectable_ratio(5, 1.0).is_err());
    }

    /// 3,000 samples at the minimal detectable ratio: the standard error of a share of 0.8 is 0.007.
    #[test]
    fn the_minimal_detectable_ratio_is_detected_as_often_as_said() {
        let mut generator = Generator::new(41);
        let ratio = design(0.01).minimal_detectable_ratio(6, 0.8).unwrap().unwrap();
        let found = share(3000, || {
            let logs: Vec<f64> = (0..6).map(|_| ratio.ln() + 0.01 * generator.normal()).collect();
            Effect::paired(&logs).unwrap().p_equal(0.0).unwrap().unwrap() < 0.05
        });
        assert!((found - 0.8).abs() < 0.025, "{found}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// More pairs, larger effects and smaller deviations never lower the power; inverse ratios have the same.
        #[test]
        fn power_is_monotone(pairs in 2..200usize, log in 0.0..1.0f64, deviation in 0.01..1.0f64) {
            let power = design(deviation).power(pairs, log.exp()).unwrap();
            prop_assert!(design(deviation).power(pairs + 1, log.exp()).unwrap() >= power - 1e-7);
            prop_assert!(design(deviation).power(pairs, (log * 1.1).exp()).unwrap() >= power - 1e-7);
            prop_assert!(design(deviation * 0.9).power(pairs, log.exp()).unwrap() >= power - 1e-7);
            prop_assert!((design(deviation).power(pairs, (-log).exp()).unwrap() - power).abs() < 1e-9);
        }

        #[test]
        fn any_design_is_taken_or_refused(deviation: f64, alpha: f64, ratio: f64, margin: f64, pairs in 0..10_000usize) {
            let design = Design { deviation, alpha };
            for power in [design.power(pairs, ratio), design.power_of_equivalence(pairs, ratio, margin)].into_iter().flatten() {
                prop_assert!((0.0..=1.0).contains(&power));
            }
        }
    }
}
