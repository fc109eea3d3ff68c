// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts: pass, regression, inconclusive.
//!
//! A gate is a limit on a ratio ("overhead at most 1.05"). Two one-sided tests decide, each at
//! error rate α. *Pass* needs the hypothesis "above the limit" refuted, and *regression* the
//! hypothesis "within the limit". If neither is refuted, the verdict is *inconclusive*: the data
//! allow both. The approach is the approach of non-inferiority trials (ICH E9, "Statistical
//! principles for clinical trials", 1998, section 3.3.2).
//!
//! **Inconclusive is not pass**: an experiment too small to find a regression would always pass.
//! Count passes by [`Verdict::Pass`] only. A study as a whole passes if every gate passes. The
//! claim "all pass" then needs no correction (Berger, "Multiparameter hypothesis testing and
//! acceptance sampling", Technometrics 24(4), 1982). The claim "some cell regresses" needs a
//! correction: [`verdicts`] adjusts both kinds of p-values, so that each cell's verdict holds, too.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Adjustment, Effect, Spread, StatsError, equivalence::Equivalence};

/// The verdict of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The limit is kept, at the requested error rate.
    Pass,
    /// Neither is shown: there are too few observations, or they are too close to the limit.
    Inconclusive,
    /// The limit is broken, at the requested error rate.
    Regression,
}

impl Verdict {
    /// Returns the worst of several verdicts: a regression, else an inconclusive one, else a pass;
    /// inconclusive if there are none.
    #[must_use]
    pub fn worst(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().max().unwrap_or(Self::Inconclusive)
    }
}

/// The evidence for and against a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateEvidence {
    /// The limit, a ratio.
    pub limit: f64,
    /// p-value of "above the limit"; small: pass. `None` for one observation.
    pub p_above: Option<f64>,
    /// p-value of "within the limit"; small: regression. `None` for one observation.
    pub p_within: Option<f64>,
}

impl GateEvidence {
    /// Tests `effect` against `limit`, the largest allowed ratio.
    ///
    /// # Errors
    /// [`StatsError::NotPositive`] for a limit that is not a ratio.
    pub fn new(effect: &Effect, limit: f64) -> Result<Self, StatsError> {
        if !(limit.is_finite() && limit > 0.0) {
            return Err(StatsError::NotPositive { value: limit });
        }
        let bound = limit.ln();
        let (mut p_above, p_within) = (effect.p_at_least(bound)?, effect.p_at_most(bound)?);
        // The limit itself is allowed, which only matters if the effect counts as known.
        if effect.spread == Spread::NoSpread && effect.log_ratio <= bound {
            p_above = Some(0.0);
        }
        Ok(Self { limit, p_above, p_within })
    }

    /// Tests `effect` against the band from 1 / `limit` to `limit`. A pass is an equivalence (two
    /// one-sided tests). A regression lies beyond either end (twice the smaller one-sided p-value,
    /// because there are two ends).
    ///
    /// # Errors
    /// [`StatsError::Margin`] for a limit that is not above 1.
    pub fn band(effect: &Effect, limit: f64) -> Result<Self, StatsError> {
        let p_above = Equivalence::test(effect, limit)?.p();
        let bound = limit.ln();
        let ends = effect.p_at_most(bound)?.zip(effect.p_at_least(-bound)?);
        Ok(Self { limit, p_above, p_within: ends.map(|(above, below)| (2.0 * above.min(below)).min(1.0)) })
    }

    /// Corrects the evidence for `looks` looks at which sampling could have stopped: it multiplies
    /// the p-values by their number (Boole's inequality).
    #[must_use]
    pub fn over_looks(self, looks: usize) -> Self {
        Self { p_above: times(self.p_above, looks), p_within: times(self.p_within, looks), ..self }
    }
}

/// Returns the verdicts on a family of gates at error rate `alpha`, in the order of the gates. The
/// p-values of either kind are adjusted.
///
/// # Errors
/// [`StatsError::Alpha`] for an `alpha` that is not between 0 and 0.5.
pub fn verdicts(gates: &[GateEvidence], alpha: f64, adjustment: Adjustment) -> Result<Vec<Verdict>, StatsError> {
    check_alpha(alpha)?;
    let adjusted = |p: fn(&GateEvidence) -> Option<f64>| -> Result<Vec<Option<f64>>, StatsError> {
        adjustment.adjust_known(&gates.iter().map(p).collect::<Vec<_>>())
    };
    let (above, within) = (adjusted(|gate| gate.p_above)?, adjusted(|gate| gate.p_within)?);
    Ok(above.into_iter().zip(within).map(|(above, within)| decide(above, within, alpha)).collect())
}

/// Multiplies a p-value for one of several looks.
fn times(p: Option<f64>, looks: usize) -> Option<f64> {
    p.map(|p| (p * looks.max(1) as f64).min(1.0))
}

/// Checks that α is below one half, so that at most one of the two p-values is below α.
fn check_alpha(alpha: f64) -> Result<(), StatsError> {
    if alpha > 0.0 && alpha < 0.5 { Ok(()) } else { Err(StatsError::Alpha { alpha }) }
}

fn decide(p_above: Option<f64>, p_within: Option<f64>, alpha: f64) -> Verdict {
    match (p_above, p_within) {
        (_, Some(within)) if within < alpha => Verdict::Regression,
        (Some(above), _) if above < alpha => Verdict::Pass,
        _ => Verdict::Inconclusive,
    }
}

/// The outcome of one cell in a comparison of two results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The ratio is above the margin: slower.
    Increase,
    /// The ratio is below 1 / margin: faster, cheaper.
    Decrease,
    /// The ratio is between 1 / margin and margin.
    Equivalent,
    /// None of the others is shown.
    Inconclusive,
}

/// The evidence for a change between two results.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeEvidence {
    /// Changes up to this ratio, either way, are negligible; 1: no change is negligible.
    pub margin: f64,
    /// Two-sided p-value of "no change beyond the margin" (twice the smaller one-sided one). `None`
    /// for one observation.
    pub p_change: Option<f64>,
    /// p-value of "not equivalent"; `None` for one observation, and for a margin of 1, within which
    /// nothing can be shown to lie.
    pub p_different: Option<f64>,
    /// Whether the ratio is above 1.
    pub increases: bool,
}

impl ChangeEvidence {
    /// Corrects the evidence for `looks` looks, like [`GateEvidence::over_looks`].
    #[must_use]
    pub fn over_looks(self, looks: usize) -> Self {
        Self { p_change: times(self.p_change, looks), p_different: times(self.p_different, looks), ..self }
    }

    /// Tests `effect` (new / base) against `margin`, a ratio of at least 1.
    ///
    /// # Errors
    /// [`StatsError::Margin`] for a `margin` that is not finite or below 1.
    pub fn new(effect: &Effect, margin: f64) -> Result<Self, StatsError> {
        if !(margin.is_finite() && margin >= 1.0) {
            return Err(StatsError::Margin { margin });
        }
        let bound = margin.ln();
        let increases = effect.log_ratio > 0.0;
        let p = if increases { effect.p_at_most(bound)? } else { effect.p_at_least(-bound)? };
        let p_different = if margin > 1.0 { Equivalence::test(effect, margin)?.p() } else { None };
        Ok(Self { margin, p_change: p.map(|p| (2.0 * p).min(1.0)), p_different, increases })
    }
}

/// Determines what changed over a family of cells at error rate `alpha`, in the order of the cells.
/// The p-values are adjusted.
///
/// # Errors
/// [`StatsError::Alpha`] for an `alpha` that is not between 0 and 0.5.
pub fn changes(cells: &[ChangeEvidence], alpha: f64, adjustment: Adjustment) -> Result<Vec<Change>, StatsError> {
    check_alpha(alpha)?;
    let changed = adjustment.adjust_known(&cells.iter().map(|cell| cell.p_change).collect::<Vec<_>>())?;
    let different = adjustment.adjust_known(&cells.iter().map(|cell| cell.p_different).collect::<Vec<_>>())?;
    let below = |p: Option<f64>| p.is_some_and(|p| p < alpha);
    Ok(cells
        .iter()
        .zip(changed.into_iter().zip(different))
        .map(|(cell, (changed, different))| match (below(changed), below(different)) {
            (true, _) if cell.increases => Change::Increase,
            (true, _) => Change::Decrease,
            (false, true) => Change::Equivalent,
            (false, false) => Change::Inconclusive,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{random::Generator, simulation::share};

    fn effect(logs: &[f64]) -> Effect {
        Effect::paired(logs).unwrap()
    }

    /// Returns the verdict on one gate alone.
    fn alone(evidence: GateEvidence, alpha: f64) -> Verdict {
        verdicts(&[evidence], alpha, Adjustment::Holm).unwrap()[0]
    }

    fn verdict(logs: &[f64], limit: f64) -> Verdict {
        alone(GateEvidence::new(&effect(logs), limit).unwrap(), 0.05)
    }

    #[test]
    fn clear_cases() {
        let logs = [0.048, 0.051, 0.05, 0.049, 0.052];
        assert_eq!(verdict(&logs, 1.10), Verdict::Pass);
        assert_eq!(verdict(&logs, 1.02), Verdict::Regression);
        assert_eq!(verdict(&logs, 1.0512), Verdict::Inconclusive);
    }

    #[test]
    fn too_little_is_inconclusive_and_no_pass() {
        assert_eq!(verdict(&[-1.0], 1.1), Verdict::Inconclusive);
        assert_eq!(verdict(&[-0.5, 0.4], 1.1), Verdict::Inconclusive);
        assert_eq!(Verdict::worst([]), Verdict::Inconclusive);
        assert_eq!(Verdict::worst([Verdict::Pass, Verdict::Inconclusive]), Verdict::Inconclusive);
        assert_eq!(Verdict::worst([Verdict::Pass, Verdict::Regression, Verdict::Inconclusive]), Verdict::Regression);
    }

    #[test]
    fn without_spread_the_limit_itself_is_kept() {
        assert_eq!(verdict(&[0.0; 4], 1.0), Verdict::Pass);
        assert_eq!(verdict(&[1e-9; 4], 1.0), Verdict::Regression);
        assert_eq!(verdict(&[-1e-9; 4], 1.0), Verdict::Pass);
    }

    #[test]
    fn a_band_has_two_ends() {
        let verdict = |logs: &[f64]| alone(GateEvidence::band(&effect(logs), 1.02).unwrap(), 0.05);
        let logs = [0.001, -0.002, 0.003, 0.0];
        assert_eq!(verdict(&logs), Verdict::Pass);
        assert_eq!(verdict(&logs.map(|log| log + 0.05)), Verdict::Regression);
        assert_eq!(verdict(&logs.map(|log| log - 0.05)), Verdict::Regression);
        assert_eq!(verdict(&logs.map(|log| log + 0.02)), Verdict::Inconclusive);
        assert_eq!(verdict(&[0.0; 3]), Verdict::Pass);
        assert_eq!(verdict(&[-0.03; 3]), Verdict::Regression);
        assert_eq!(verdict(&[0.0]), Verdict::Inconclusive);
        assert!(GateEvidence::band(&effect(&logs), 1.0).is_err());
    }

    #[test]
    fn what_is_no_limit_is_refused() {
        let some = effect(&[0.1, 0.2]);
        for limit in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(GateEvidence::new(&some, limit).is_err());
            assert!(ChangeEvidence::new(&some, limit).is_err());
        }
        for alpha in [0.0, 0.5, 1.0, f64::NAN] {
            assert!(matches!(verdicts(&[], alpha, Adjustment::Holm), Err(StatsError::Alpha { .. })));
        }
    }

    #[test]
    fn a_family_asks_for_more_than_a_single_gate() {
        let logs = [0.012, 0.028, 0.016, 0.02, 0.006];
        let marginal = GateEvidence::new(&effect(&logs), 1.007).unwrap();
        assert_eq!(alone(marginal, 0.05), Verdict::Regression);
        let others = GateEvidence::new(&effect(&[0.0, 0.01, -0.01]), 1.007).unwrap();
        let family = verdicts(&[marginal, others, others, others], 0.05, Adjustment::Holm).unwrap();
        assert_eq!(family, [Verdict::Inconclusive; 4]);
    }

    #[test]
    fn changes_are_distinguished_from_equivalence() {
        let found = |logs: &[f64], margin: f64| {
            changes(&[ChangeEvidence::new(&effect(logs), margin).unwrap()], 0.05, Adjustment::Holm).unwrap()[0]
        };
        let small = [0.004, 0.005, 0.006, 0.0045, 0.0055];
        assert_eq!(found(&small, 1.0), Change::Increase);
        assert_eq!(found(&small.map(|log| -log), 1.0), Change::Decrease);
        assert_eq!(found(&small, 1.01), Change::Equivalent);
        assert_eq!(found(&small, 1.003), Change::Increase);
        assert_eq!(found(&small, 1.005), Change::Inconclusive);
        assert_eq!(found(&[0.01], 1.0), Change::Inconclusive);
        assert_eq!(found(&[0.0; 3], 1.0), Change::Inconclusive);
        assert_eq!(found(&[0.0; 3], 1.001), Change::Equivalent);
    }

    /// Looks after 5, 8 and 12 pairs, and stops at the first one with a claim.
    #[test]
    fn error_rates_are_kept_over_several_looks() {
        let mut generator = Generator::new(33);
        let (mut plain, mut kept) = (0, 0);
        for _ in 0..2000 {
            let logs: Vec<f64> = (0..12).map(|_| 1.05_f64.ln() + 0.02 * generator.normal()).collect();
            let claims = |looks: usize| {
                [5, 8, 12].into_iter().any(|n| {
                    let evidence = GateEvidence::new(&effect(&logs[..n]), 1.05).unwrap().over_looks(looks);
                    alone(evidence, 0.05) == Verdict::Regression
                })
            };
            plain += u32::from(claims(1));
            kept += u32::from(claims(3));
        }
        assert!(plain > 2000 * 7 / 100 && kept <= 2000 * 5 / 100, "{plain} {kept}");
    }

    /// Either error happens at the limit in at most α of all samples. 4,000 samples have a standard
    /// error of 0.0035.
    #[test]
    fn error_rates_at_the_limit_are_kept() {
        let mut generator = Generator::new(31);
        let (mut passed, mut changed) = (0, 0);
        let regressed = share(4000, || {
            let logs: Vec<f64> = (0..5).map(|_| 1.05_f64.ln() + 0.02 * generator.normal()).collect();
            let shifted: Vec<f64> = logs.iter().map(|log| log - 1.05_f64.ln()).collect();
            let change = ChangeEvidence::new(&effect(&shifted), 1.0).unwrap();
            changed += usize::from(changes(&[change], 0.05, Adjustment::Holm).unwrap()[0] != Change::Inconclusive);
            let verdict = verdict(&logs, 1.05);
            passed += usize::from(verdict == Verdict::Pass);
            verdict == Verdict::Regression
        });
        for rate in [regressed, passed as f64 / 4000.0, changed as f64 / 4000.0] {
            assert!((0.037..=0.062).contains(&rate), "{rate}");
        }
    }

    proptest! {
        /// A higher limit never gives a worse verdict, and a stricter error rate never turns
        /// inconclusive into a claim.
        #[test]
        fn verdicts_are_monotone(logs in prop::collection::vec(-0.1..0.1f64, 1..8), limit in 0.9..1.1f64) {
            let tight = GateEvidence::new(&effect(&logs), limit).unwrap();
            let wide = GateEvidence::new(&effect(&logs), limit * 1.01).unwrap();
            prop_assert!(alone(wide, 0.05) <= alone(tight, 0.05));
            if alone(tight, 0.05) == Verdict::Inconclusive {
                prop_assert_eq!(alone(tight, 0.01), Verdict::Inconclusive);
            }
        }
    }
}
