// SPDX-License-Identifier: MIT OR Apache-2.0
//! Equivalence: the claim that an effect is negligible needs its own test, because a difference
//! that was not found may have been missed.
//!
//! Two one-sided tests (TOST): Schuirmann, "A comparison of the two one-sided tests procedure and
//! the power approach for assessing the equivalence of average bioavailability", J. Pharmacokinet.
//! Biopharm. 15(6), 1987. Equivalence at α means that the interval at level 1 − 2α lies between 1 /
//! margin and margin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Effect, StatsError};

/// The two tests against a margin.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Equivalence {
    /// The margin, as a ratio above 1: equivalent means between 1 / margin and margin.
    pub margin: f64,
    /// p-value of "the ratio is 1 / margin or less"; `None` for one observation.
    pub p_lower: Option<f64>,
    /// p-value of "the ratio is margin or more"; `None` for one observation.
    pub p_upper: Option<f64>,
}

impl Equivalence {
    /// Tests `effect` against `margin` (1.01: one per cent either way).
    ///
    /// # Errors
    /// [`StatsError::Margin`] unless the margin is finite and above 1.
    pub fn test(effect: &Effect, margin: f64) -> Result<Self, StatsError> {
        if !(margin.is_finite() && margin > 1.0) {
            return Err(StatsError::Margin { margin });
        }
        let bound = margin.ln();
        Ok(Self { margin, p_lower: effect.p_at_most(-bound)?, p_upper: effect.p_at_least(bound)? })
    }

    /// Returns the p-value of "not equivalent": the larger of the two. It needs no correction,
    /// because both hypotheses must be refuted.
    #[must_use]
    pub fn p(&self) -> Option<f64> {
        self.p_lower.zip(self.p_upper).map(|(lower, upper)| lower.max(upper))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        random::Generator,
        simulation::{close, share},
    };

    /// statsmodels 0.15.0: `statsmodels.stats.weightstats.ttost_paired(a, b, 1 / m, m,
    /// transform=numpy.log)` for m = 1.1 and 1.05.
    #[test]
    fn p_values_agree_with_statsmodels() {
        let a: [f64; 8] = [182.1, 177.4, 190.3, 185.0, 179.9, 188.2, 184.4, 181.7];
        let b = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0, 175.1];
        let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
        let effect = Effect::paired(&logs).unwrap();
        for (margin, lower, upper) in [
            (1.1, 1.204_792_579_523_789_4e-8, 5.633_990_308_070_657_4e-5),
            (1.05, 1.627_516_178_209_097e-7, 0.762_797_245_094_797_1),
        ] {
            let found = Equivalence::test(&effect, margin).unwrap();
            assert!(
                close(found.p_lower.unwrap(), lower, 1e-9) && close(found.p_upper.unwrap(), upper, 1e-9),
                "{found:?}"
            );
            assert_eq!(found.p(), Some(found.p_upper.unwrap()));
            assert_eq!(found.p().is_some_and(|p| p < 0.05), margin == 1.1);
        }
    }

    #[test]
    fn without_spread_the_ratio_decides() {
        let shown = |log: f64| {
            Equivalence::test(&Effect::paired(&[log; 3]).unwrap(), 1.01).unwrap().p().is_some_and(|p| p < 0.05)
        };
        assert!(shown(0.0) && shown(0.009) && !shown(0.01) && !shown(-0.02));
    }

    #[test]
    fn one_observation_shows_nothing() {
        let found = Equivalence::test(&Effect::paired(&[0.0]).unwrap(), 1.01).unwrap();
        assert_eq!(found.p(), None);
        assert!(!found.p().is_some_and(|p| p < 0.49));
    }

    #[test]
    fn margins_are_ratios_above_one() {
        let effect = Effect::paired(&[0.0, 0.1]).unwrap();
        for margin in [1.0, 0.99, 0.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(Equivalence::test(&effect, margin), Err(StatsError::Margin { .. })));
        }
    }

    /// A ratio at the margin is called equivalent in at most α of all samples. 4,000 samples have a
    /// standard error of 0.0035.
    #[test]
    fn the_error_rate_at_the_margin_is_kept() {
        let mut generator = Generator::new(9);
        let shown = share(4000, || {
            let logs: Vec<f64> = (0..6).map(|_| 1.01_f64.ln() + 0.003 * generator.normal()).collect();
            Equivalence::test(&Effect::paired(&logs).unwrap(), 1.01).unwrap().p().is_some_and(|p| p < 0.05)
        });
        assert!((0.037..=0.062).contains(&shown), "{shown}");
    }

    proptest! {
        /// The test equals the interval at 1 − 2α within the margin, gives the same for the inverse
        /// ratio, and is monotone in the margin.
        #[test]
        fn the_test_is_an_interval(logs in prop::collection::vec(-0.05..0.05f64, 3..10), margin in 1.001..1.1f64) {
            let effect = Effect::paired(&logs).unwrap();
            let found = Equivalence::test(&effect, margin).unwrap();
            let p = found.p().unwrap();
            prop_assume!((p - 0.05).abs() > 1e-9);
            let interval = effect.estimate(0.9).unwrap().bounds.interval().unwrap();
            prop_assert_eq!(found.p().is_some_and(|p| p < 0.05), interval.lower > 1.0 / margin && interval.upper < margin);
            let inverse: Vec<f64> = logs.iter().map(|log| -log).collect();
            let inverse = Equivalence::test(&Effect::paired(&inverse).unwrap(), margin).unwrap();
            prop_assert!((inverse.p().unwrap() - p).abs() < 1e-9);
            prop_assert!(Equivalence::test(&effect, margin * 1.01).unwrap().p().unwrap() <= p);
        }
    }
}
