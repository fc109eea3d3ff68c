//! An effect: a ratio on the log scale with what is known of its error. What tests, verdicts and intervals start from.
//!
//! Effects come from paired blocks ([`Effect::paired`]), from two independent sets of runs ([`Effect::independent`]),
//! or from several levels of repetition ([`crate::hierarchical`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Estimate, StatsError,
    interval::{Bounds, Interval, check_level, t_cdf, t_quantile},
    summary::mean_and_deviation,
};

/// The natural logarithm of a ratio, and its error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Effect {
    /// Logarithm of the ratio (0: no difference; 0.01: about 1 % more).
    pub log_ratio: f64,
    /// What is known of its error.
    pub spread: Spread,
    /// Number of independent observations: of pairs, or of the smaller one of two sets.
    pub n: usize,
}

/// What is known of the error of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Nothing: one observation.
    OneObservation,
    /// All observations were equal.
    NoSpread,
    /// The effect divided by its standard error follows Student's t distribution.
    Student {
        /// Standard error of the log ratio.
        standard_error: f64,
        /// Degrees of freedom, not necessarily whole.
        degrees_of_freedom: f64,
    },
}

impl Effect {
    /// From the log ratios of pairs: mean, with the standard error of a mean.
    ///
    /// # Errors
    /// [`StatsError`]: no figures, or one that is not finite.
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

    /// From two independent sets of logarithms, as in comparing two results: mean of `baseline` − mean of `with`, where
    /// the two may vary by different amounts (Welch, "The generalization of 'Student's' problem when several different
    /// population variances are involved", Biometrika 34, 1947).
    ///
    /// # Errors
    /// [`StatsError`]: no figures, or one that is not finite.
    pub fn independent(baseline: &[f64], with: &[f64]) -> Result<Self, StatsError> {
        let (mean_a, deviation_a) = finite_mean_and_deviation(baseline)?;
        let (mean_b, deviation_b) = finite_mean_and_deviation(with)?;
        let log_ratio = mean_a - mean_b;
        let n = baseline.len().min(with.len());
        let spread = match (deviation_a, deviation_b) {
            (Some(a), Some(b)) if a > 0.0 || b > 0.0 => {
                let (df_a, df_b) = (baseline.len() as f64 - 1.0, with.len() as f64 - 1.0);
                let (a, b) = (a.powi(2) / (df_a + 1.0), b.powi(2) / (df_b + 1.0));
                // Satterthwaite's degrees of freedom, from shares so that small variances do not underflow.
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

    /// Ratio and t interval on the log scale, both transformed back.
    ///
    /// # Errors
    /// [`StatsError::Level`]; [`StatsError::Range`] for ratios that no floating-point number holds.
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

    /// Half the width of the two-sided interval on the log scale: 0 without spread, `None` for one observation.
    ///
    /// # Errors
    /// [`StatsError::Level`]
    pub fn half_width(&self, level: f64) -> Result<Option<f64>, StatsError> {
        check_level(level)?;
        Ok(match self.spread {
            Spread::OneObservation => None,
            Spread::NoSpread => Some(0.0),
            Spread::Student { standard_error, degrees_of_freedom } => {
                Some(t_quantile(level, degrees_of_freedom)? * standard_error)
            }
        })
    }

    /// One-sided p-value of "the log ratio is at most `bound`" against "it is above". `None` for one observation;
    /// without spread 0 or 1, for then the effect is taken as known.
    ///
    /// # Errors
    /// [`StatsError::NotFinite`]
    pub fn p_at_most(&self, bound: f64) -> Result<Option<f64>, StatsError> {
        self.p_one_sided(bound, 1.0)
    }

    /// One-sided p-value of "the log ratio is at least `bound`" against "it is below"; see [`Self::p_at_most`].
    ///
    /// # Errors
    /// [`StatsError::NotFinite`]
    pub fn p_at_least(&self, bound: f64) -> Result<Option<f64>, StatsError> {
        self.p_one_sided(bound, -1.0)
    }

    /// Two-sided p-value of "the log ratio is `value`"; see [`Self::p_at_most`].
    ///
    /// # Errors
    /// [`StatsError::NotFinite`]
    pub fn p_equal(&self, value: f64) -> Result<Option<f64>, StatsError> {
        let (above, below) = (self.p_at_most(value)?, self.p_at_least(value)?);
        Ok(above.zip(below).map(|(above, below)| (2.0 * above.min(below)).min(1.0)))
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

/// Mean and deviation of finite figures; a deviation of exactly 0 where all are equal, whatever their sum rounds to.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::simulation::{close, logs};

    const A: [f64; 5] = [182.1, 177.4, 190.3, 185.0, 179.9];
    const B: [f64; 7] = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0];

    /// R 4.2.2: `w <- t.test(log(a), log(b)); exp(w$conf.int); w$parameter; w$p.value; exp(mean(log(a)) - mean(log(b)))`.
    #[test]
    fn independent_sets_agree_with_r() {
        let effect = Effect::independent(&logs(&A), &logs(&B)).unwrap();
        let estimate = effect.estimate(0.95).unwrap();
        let interval = estimate.bounds.interval().unwrap();
        let Spread::Student { degrees_of_freedom, .. } = effect.spread else { panic!("{effect:?}") };
        assert!(close(estimate.value, 1.051_204_341_657_43, 1e-12));
        assert!(close(interval.lower, 1.014_461_044_429_32, 1e-9));
        assert!(close(interval.upper, 1.089_278_463_660_52, 1e-9));
        assert!(close(degrees_of_freedom, 8.554_030_180_714_18, 1e-9));
        assert!(close(effect.p_equal(0.0).unwrap().unwrap(), 0.011_552_233_285_839_2, 1e-9));
    }

    /// R 4.2.2: `l <- log(a / b)`, then `t.test(l)$p.value`, and with `mu = log(1.05)`, `alternative = "greater"` and
    /// `"less"`.
    #[test]
    fn paired_p_values_agree_with_r() {
        let a: [f64; 8] = [182.1, 177.4, 190.3, 185.0, 179.9, 188.2, 184.4, 181.7];
        let b = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0, 175.1];
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
        let effect = Effect::paired(&ratios).unwrap();
        assert!(close(effect.p_equal(0.0).unwrap().unwrap(), 2.678_677_973_694_21e-5, 1e-9));
        assert!(close(effect.p_at_most(1.05_f64.ln()).unwrap().unwrap(), 0.237_202_754_905_201, 1e-9));
        assert!(close(effect.p_at_least(1.05_f64.ln()).unwrap().unwrap(), 0.762_797_245_094_799, 1e-9));
    }

    #[test]
    fn without_spread_the_effect_is_taken_as_known() {
        let effect = Effect::paired(&[0.1; 7]).unwrap();
        assert_eq!((effect.log_ratio, effect.spread), (0.1, Spread::NoSpread));
        assert_eq!(effect.p_at_most(0.05).unwrap(), Some(0.0));
        assert_eq!(effect.p_at_most(0.1).unwrap(), Some(1.0));
        assert_eq!(effect.p_equal(0.1).unwrap(), Some(1.0));
        assert_eq!(Effect::independent(&[1.0, 1.0], &[0.5, 0.5]).unwrap().spread, Spread::NoSpread);
    }

    #[test]
    fn one_observation_has_no_p_value() {
        assert_eq!(Effect::paired(&[0.1]).unwrap().p_equal(0.0).unwrap(), None);
        assert_eq!(Effect::independent(&[0.1, 0.2], &[0.3]).unwrap().half_width(0.9).unwrap(), None);
    }

    #[test]
    fn what_is_no_logarithm_is_refused() {
        assert_eq!(Effect::paired(&[]), Err(StatsError::Empty));
        assert!(matches!(Effect::paired(&[f64::NAN, 1.0]), Err(StatsError::NotFinite { .. })));
        assert_eq!(Effect::paired(&[1e308, -1e308, 1e308]), Err(StatsError::Range));
        assert!(Effect::paired(&[1.0, 2.0]).unwrap().p_at_most(f64::NAN).is_err());
        assert!(Effect::independent(&[1.0, 2.0], &[f64::INFINITY]).is_err());
    }

    proptest! {
        /// No input panics or yields a figure that is not finite.
        #[test]
        fn any_figures_are_taken_or_refused(a: Vec<f64>, b: Vec<f64>, level: f64, bound: f64) {
            for effect in [Effect::paired(&a), Effect::independent(&a, &b)].into_iter().flatten() {
                if let Ok(estimate) = effect.estimate(level) {
                    prop_assert!(estimate.value.is_finite());
                }
                if let Ok(Some(p)) = effect.p_equal(bound) {
                    prop_assert!((0.0..=1.0).contains(&p));
                }
            }
        }

        /// The two-sided p-value is below α exactly where the interval at 1 − α excludes the value.
        #[test]
        fn p_values_agree_with_intervals(figures in prop::collection::vec(-1.0..1.0f64, 2..12), value in -1.0..1.0f64) {
            let effect = Effect::paired(&figures).unwrap();
            let (p, half) = (effect.p_equal(value).unwrap().unwrap(), effect.half_width(0.95).unwrap().unwrap());
            prop_assume!((p - 0.05).abs() > 1e-9);
            prop_assert_eq!(p < 0.05, (value - effect.log_ratio).abs() > half);
        }

        /// Order does not matter, and swapping two sets changes the sign.
        #[test]
        fn order_does_not_matter(mut a in prop::collection::vec(-1.0..1.0f64, 2..12), b in prop::collection::vec(-1.0..1.0f64, 2..12)) {
            let before = Effect::independent(&a, &b).unwrap();
            a.reverse();
            let after = Effect::independent(&a, &b).unwrap();
            let swapped = Effect::independent(&b, &a).unwrap();
            prop_assert!((before.log_ratio - after.log_ratio).abs() < 1e-12);
            prop_assert!((before.log_ratio + swapped.log_ratio).abs() < 1e-12);
            let (x, y) = (before.half_width(0.9).unwrap().unwrap(), swapped.half_width(0.9).unwrap().unwrap());
            prop_assert!((x - y).abs() <= 1e-9 * x);
        }
    }
}
