// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many comparisons at once: a matrix of cells finds something by chance unless its p-values are
//! adjusted.
//!
//! - Holm, "A simple sequentially rejective multiple test procedure", Scand. J. Statist. 6, 1979,
//!   for gates: the probability of at least one false claim in the whole family is at most α,
//!   however the tests depend on each other.
//! - Benjamini and Hochberg, "Controlling the false discovery rate", JRSS B 57(1), 1995, for
//!   surveys: at most the share α of the claims is false on average. The tests must be independent
//!   or positively dependent. Cells with a common baseline are positively dependent (Benjamini and
//!   Yekutieli, "The control of the false discovery rate in multiple testing under dependency",
//!   Ann. Statist. 29(4), 2001).
//!
//! A family is what is decided together: every measured cell of a study. Cells without a p-value do
//! not belong to it, because nothing is claimed about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::StatsError;

/// How p-values of a family are adjusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Adjustment {
    /// Family-wise error rate (Holm).
    #[default]
    Holm,
    /// False discovery rate (Benjamini-Hochberg).
    BenjaminiHochberg,
}

impl Adjustment {
    /// Returns adjusted p-values in the order of `p`. A hypothesis is rejected at error rate α if
    /// its adjusted p-value is below α.
    ///
    /// # Errors
    /// [`StatsError::Probability`], if an element of `p` is not between 0 and 1.
    fn adjust(self, p: &[f64]) -> Result<Vec<f64>, StatsError> {
        if let Some(&p) = p.iter().find(|p| !(0.0..=1.0).contains(*p)) {
            return Err(StatsError::Probability { p });
        }
        let m = p.len();
        let mut sorted: Vec<(usize, f64)> = p.iter().copied().enumerate().collect();
        sorted.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut adjusted = vec![1.0; m];
        let mut put = |index: usize, value: f64| {
            if let Some(slot) = adjusted.get_mut(index) {
                *slot = value;
            }
        };
        match self {
            Self::Holm => {
                let mut largest = 0.0_f64;
                for (rank, (index, p)) in sorted.into_iter().enumerate() {
                    largest = largest.max((m - rank) as f64 * p).min(1.0);
                    put(index, largest);
                }
            }
            Self::BenjaminiHochberg => {
                let mut smallest = 1.0_f64;
                for (rank, (index, p)) in sorted.into_iter().enumerate().rev() {
                    smallest = smallest.min(m as f64 / (rank + 1) as f64 * p);
                    put(index, smallest);
                }
            }
        }
        Ok(adjusted)
    }

    /// Adjusts the p-values of a family in which some members have none.
    ///
    /// # Errors
    /// [`StatsError::Probability`] for a p-value that is not between 0 and 1.
    pub fn adjust_known(self, p: &[Option<f64>]) -> Result<Vec<Option<f64>>, StatsError> {
        let known: Vec<f64> = p.iter().copied().flatten().collect();
        let mut adjusted = self.adjust(&known)?.into_iter();
        Ok(p.iter().map(|p| p.and_then(|_| adjusted.next())).collect())
    }
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

    /// R 4.2.2: `p.adjust(c(0.01, 0.02, 0.03, 0.005, 0.5, 0.04, 0.0001, 0.9), "holm")` and `"BH"`.
    #[test]
    fn adjusted_p_values_agree_with_r() {
        let p = [0.01, 0.02, 0.03, 0.005, 0.5, 0.04, 0.0001, 0.9];
        let holm = [0.06, 0.1, 0.12, 0.035, 1.0, 0.12, 0.0008, 1.0];
        let bh =
            [0.026_666_666_666_666_7, 0.04, 0.048, 0.02, 0.571_428_571_428_571_4, 0.053_333_333_333_333_3, 0.0008, 0.9];
        for (method, expected) in [(Adjustment::Holm, holm), (Adjustment::BenjaminiHochberg, bh)] {
            for (ours, r) in method.adjust(&p).unwrap().into_iter().zip(expected) {
                assert!(close(ours, r, 1e-12), "{method:?}: {ours} {r}");
            }
        }
    }

    /// Benjamini and Hochberg, 1995, section 4.1: fifteen p-values of a thrombolysis trial. At 0.05
    /// their procedure rejects the four smallest; Hochberg's and Bonferroni's procedures reject the
    /// three smallest.
    #[test]
    fn the_published_example() {
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let rejected = |method: Adjustment| method.adjust(&p).unwrap().iter().filter(|&&p| p < 0.05).count();
        assert_eq!((rejected(Adjustment::Holm), rejected(Adjustment::BenjaminiHochberg)), (3, 4));
    }

    #[test]
    fn members_without_p_value_are_no_part_of_the_family() {
        let adjusted = Adjustment::Holm.adjust_known(&[Some(0.01), None, Some(0.03)]).unwrap();
        assert_eq!(adjusted, [Some(0.02), None, Some(0.03)]);
        assert_eq!(Adjustment::Holm.adjust(&[]).unwrap(), Vec::<f64>::new());
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        for p in [-0.1, 1.1, f64::NAN] {
            assert!(matches!(Adjustment::Holm.adjust(&[0.5, p]), Err(StatsError::Probability { .. })));
        }
    }

    /// Twelve cells share a baseline, and eight have no effect. The test counts family-wise errors
    /// of Holm and false discoveries of BH over 1,500 families, with a standard error of 0.006.
    #[test]
    fn error_rates_are_kept_over_cells_that_share_a_baseline() {
        let mut generator = Generator::new(21);
        let mut false_share = 0.0;
        const FAMILIES: usize = 1500;
        let family_wise = share(FAMILIES, || {
            let baseline: Vec<f64> = (0..8).map(|_| 0.01 * generator.normal()).collect();
            let truth = |cell: usize| if cell < 8 { 0.0 } else { 0.015 };
            let effects: Vec<Effect> = (0..12)
                .map(|cell| {
                    let logs: Vec<f64> =
                        baseline.iter().map(|base| base + truth(cell) + 0.01 * generator.normal()).collect();
                    Effect::paired(&logs).unwrap()
                })
                .collect();
            let p: Vec<f64> = effects.iter().map(|effect| p_equal(effect, 0.0).unwrap()).collect();
            let holm = Adjustment::Holm.adjust(&p).unwrap();
            let bh = Adjustment::BenjaminiHochberg.adjust(&p).unwrap();
            let selected: Vec<usize> = (0..12).filter(|&cell| bh[cell] < 0.05).collect();
            if !selected.is_empty() {
                let false_ones = selected.iter().filter(|&&cell| cell < 8).count();
                false_share += false_ones as f64 / selected.len() as f64 / FAMILIES as f64;
            }
            (0..8).any(|cell| holm[cell] < 0.05)
        });
        assert!(family_wise <= 0.062, "{family_wise}");
        assert!(false_share <= 0.062, "{false_share}");
    }

    proptest! {
        /// Adjusted p-values are no smaller than raw ones, keep their order, and follow
        /// permutations. The p-values of Holm are larger.
        #[test]
        fn adjusting_keeps_the_order(p in prop::collection::vec(0.0..=1.0f64, 1..30)) {
            let holm = Adjustment::Holm.adjust(&p).unwrap();
            let bh = Adjustment::BenjaminiHochberg.adjust(&p).unwrap();
            for (i, &raw) in p.iter().enumerate() {
                prop_assert!(raw <= bh[i] + 1e-15 && bh[i] <= holm[i] + 1e-15 && holm[i] <= 1.0);
                for (j, &other) in p.iter().enumerate() {
                    prop_assert!(raw > other || (holm[i] <= holm[j] && bh[i] <= bh[j]));
                }
            }
            let reversed: Vec<f64> = p.iter().rev().copied().collect();
            let mut back = Adjustment::Holm.adjust(&reversed).unwrap();
            back.reverse();
            prop_assert_eq!(back, holm);
        }
    }
}
