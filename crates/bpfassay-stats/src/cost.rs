//! What an operation costs more under a probe: per call, and per byte moved.
//!
//! Extra instructions of a call that moves `bytes` bytes are modelled as per call + per byte · bytes: a line through
//! the figures of several transfer sizes by (weighted) least squares, with t intervals (Draper and Smith, "Applied
//! regression analysis", 3rd ed. 1998, chapters 1 and 9), and, where sizes were repeated, the test for lack of fit
//! against one mean for each size (section 2.1), for the line need not hold: a call of 1 MiB may be split into pages or
//! NFS requests, each of which costs once.
//!
//! Weights are 1 / variance up to a common factor. Extra instructions vary more where more is copied: give weights, or
//! intervals of the cost per call are wrong.
//!
//! Where only one transfer size was measured: [`crate::difference::mean_difference`].

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::function::beta::checked_beta_reg;

use crate::{
    Bounds, Estimate, Interval, StatsError,
    interval::{check_level, t_quantile},
};

/// Bytes in a MiB.
const MIB: f64 = 1_048_576.0;

/// Extra instructions of one operation at one transfer size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SizedCost {
    /// Bytes moved by an operation.
    pub bytes: u64,
    /// Extra instructions per operation.
    pub instructions: f64,
    /// Weight, positive: 1 for all, or 1 / variance.
    pub weight: f64,
}

/// The cost of a call and of a byte.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostModel {
    /// Extra instructions per call, whatever its size.
    pub per_call: Estimate,
    /// Extra instructions per MiB moved.
    pub per_mib: Estimate,
    /// Residual standard deviation, in instructions, of a figure of weight 1; `None` without degrees of freedom.
    pub residual_deviation: Option<f64>,
    /// p-value of "a line fits" against one mean for each size; small: it does not. `None` without repeated sizes or with
    /// fewer than three sizes.
    pub lack_of_fit_p: Option<f64>,
}

/// Fits the line.
///
/// # Errors
/// [`StatsError::TooFew`] with fewer than two sizes; [`StatsError::NotPositive`] for weights; [`StatsError::NotFinite`];
/// [`StatsError::Level`]; [`StatsError::Range`].
pub fn fit(costs: &[SizedCost], level: f64) -> Result<CostModel, StatsError> {
    check_level(level)?;
    for cost in costs {
        if !cost.instructions.is_finite() {
            return Err(StatsError::NotFinite { value: cost.instructions });
        }
        if !(cost.weight.is_finite() && cost.weight > 0.0) {
            return Err(StatsError::NotPositive { value: cost.weight });
        }
    }
    let mut sizes: Vec<u64> = costs.iter().map(|cost| cost.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < 2 {
        return Err(StatsError::TooFew { what: "a cost per call and per byte", n: sizes.len(), fewest: 2 });
    }
    let n = costs.len();
    let sum = |term: &dyn Fn(&SizedCost) -> f64| costs.iter().map(|cost| cost.weight * term(cost)).sum::<f64>();
    let weight = sum(&|_| 1.0);
    let mean_size = sum(&|cost| cost.bytes as f64 / MIB) / weight;
    let mean_cost = sum(&|cost| cost.instructions) / weight;
    let centred = |cost: &SizedCost| cost.bytes as f64 / MIB - mean_size;
    let squares = sum(&|cost| centred(cost).powi(2));
    let slope = sum(&|cost| centred(cost) * (cost.instructions - mean_cost)) / squares;
    let intercept = mean_cost - slope * mean_size;
    let residual = sum(&|cost| (cost.instructions - mean_cost - slope * centred(cost)).powi(2));
    if ![slope, intercept, residual, weight].iter().all(|value| value.is_finite()) {
        return Err(StatsError::Range);
    }
    // Figures on a line leave residuals of rounding only.
    let largest = costs.iter().map(|cost| cost.instructions.abs()).fold(0.0, f64::max);
    let is_exact = residual <= weight * (largest * 1e-12).powi(2);
    let freedom = n - 2;
    let bounds = |value: f64, factor: f64| -> Result<Bounds, StatsError> {
        if freedom == 0 {
            Ok(Bounds::NoDegreesOfFreedom)
        } else if is_exact {
            Ok(Bounds::NoSpread)
        } else {
            let error = (residual / freedom as f64 * factor).sqrt();
            around(value, t_quantile(level, freedom as f64)? * error, level)
        }
    };
    let per_call = bounds(intercept, 1.0 / weight + mean_size.powi(2) / squares)?;
    let per_mib = bounds(slope, 1.0 / squares)?;
    Ok(CostModel {
        per_call: Estimate { value: intercept, bounds: per_call, n },
        per_mib: Estimate { value: slope, bounds: per_mib, n },
        residual_deviation: (freedom > 0).then(|| (residual / freedom as f64).sqrt()),
        lack_of_fit_p: if is_exact { None } else { lack_of_fit(costs, &sizes, residual) },
    })
}

/// The F test of the line against one mean for each size.
fn lack_of_fit(costs: &[SizedCost], sizes: &[u64], residual: f64) -> Option<f64> {
    let (groups, n) = (sizes.len(), costs.len());
    if groups < 3 || n == groups {
        return None;
    }
    let pure: f64 = sizes
        .iter()
        .map(|&bytes| {
            let of_size = || costs.iter().filter(|cost| cost.bytes == bytes);
            let weight: f64 = of_size().map(|cost| cost.weight).sum();
            let mean = of_size().map(|cost| cost.weight * cost.instructions).sum::<f64>() / weight;
            of_size().map(|cost| cost.weight * (cost.instructions - mean).powi(2)).sum::<f64>()
        })
        .sum();
    let (freedom, pure_freedom) = ((groups - 2) as f64, (n - groups) as f64);
    let lack = (residual - pure).max(0.0);
    // P(F > f) = I(pure / (pure + lack); pure freedom / 2, freedom / 2): no division by a pure error of 0.
    checked_beta_reg(pure_freedom / 2.0, freedom / 2.0, pure / (pure + lack)).ok()
}

fn around(value: f64, half: f64, level: f64) -> Result<Bounds, StatsError> {
    let (lower, upper) = (value - half, value + half);
    if lower.is_finite() && upper.is_finite() {
        Ok(Bounds::Interval(Interval { lower, upper, level }))
    } else {
        Err(StatsError::Range)
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

    const BYTES: [u64; 8] = [4096, 4096, 16384, 16384, 65536, 65536, 262_144, 262_144];
    const INSTRUCTIONS: [f64; 8] = [1210., 1190., 1350., 1362., 1935., 1990., 4300., 4390.];
    const DEVIATIONS: [f64; 8] = [10., 12., 20., 18., 100., 90., 400., 500.];

    fn costs(weight: impl Fn(usize) -> f64) -> Vec<SizedCost> {
        BYTES
            .into_iter()
            .zip(INSTRUCTIONS)
            .enumerate()
            .map(|(index, (bytes, instructions))| SizedCost { bytes, instructions, weight: weight(index) })
            .collect()
    }

    fn agrees(estimate: Estimate, value: f64, lower: f64, upper: f64) -> bool {
        let interval = estimate.bounds.interval().unwrap();
        close(estimate.value, value, 1e-9) && close(interval.lower, lower, 1e-8) && close(interval.upper, upper, 1e-8)
    }

    /// R 4.2.2: `m <- lm(y ~ size)`, `coef(m)`, `confint(m)`, `anova(m, lm(y ~ factor(size)))$"Pr(>F)"[2]`; then with
    /// `weights = 1 / deviation^2`.
    #[test]
    fn lines_agree_with_r() {
        let model = fit(&costs(|_| 1.0), 0.95).unwrap();
        assert!(agrees(model.per_call, 1_156.549_751_243_78, 1_120.641_331_613_28, 1_192.458_170_874_278));
        assert!(agrees(
            model.per_mib,
            1.217_055_662_633_52e-2 * MIB,
            1.190_529_445_693_55e-2 * MIB,
            0.012_435_818_795_735 * MIB
        ));
        assert!(close(model.lack_of_fit_p.unwrap(), 0.925_900_991_374_541, 1e-8));
        let model = fit(&costs(|index| DEVIATIONS[index].powi(-2)), 0.95).unwrap();
        assert!(agrees(model.per_call, 1.151_731_003_987_20e3, 1.139_305_080_343_85e3, 1.164_156_927_630_55e3));
        assert!(agrees(
            model.per_mib,
            1.238_358_309_925_08e-2 * MIB,
            1.137_392_218_555_38e-2 * MIB,
            1.339_324_401_294_77e-2 * MIB
        ));
    }

    #[test]
    fn figures_on_a_line_are_exact() {
        let line = |bytes: u64| SizedCost { bytes, instructions: 800.0 + 0.25 * bytes as f64, weight: 1.0 };
        let model = fit(&[line(4096), line(65536), line(1 << 20)], 0.95).unwrap();
        assert_eq!((model.per_call.bounds, model.per_mib.bounds), (Bounds::NoSpread, Bounds::NoSpread));
        assert!(close(model.per_call.value, 800.0, 1e-9) && close(model.per_mib.value, 0.25 * MIB, 1e-9));
        let two = fit(&[line(4096), line(65536)], 0.95).unwrap();
        assert_eq!((two.per_call.bounds, two.residual_deviation), (Bounds::NoDegreesOfFreedom, None));
    }

    #[test]
    fn a_line_that_does_not_fit_is_told() {
        let curved: Vec<SizedCost> = costs(|_| 1.0)
            .into_iter()
            .map(|cost| SizedCost {
                instructions: cost.instructions + 0.000_03 * (cost.bytes as f64).powf(1.6),
                ..cost
            })
            .collect();
        assert!(fit(&curved, 0.95).unwrap().lack_of_fit_p.unwrap() < 0.05);
        let steps: Vec<SizedCost> = [(1, 1.0), (1, 1.0), (2, 5.0), (2, 5.0), (3, 1.0), (3, 1.0)]
            .into_iter()
            .map(|(bytes, instructions)| SizedCost { bytes, instructions, weight: 1.0 })
            .collect();
        assert_eq!(fit(&steps, 0.95).unwrap().lack_of_fit_p, Some(0.0));
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let cost = |bytes, instructions, weight| SizedCost { bytes, instructions, weight };
        assert!(matches!(fit(&[], 0.95), Err(StatsError::TooFew { .. })));
        assert!(matches!(fit(&[cost(1, 1.0, 1.0), cost(1, 2.0, 1.0)], 0.95), Err(StatsError::TooFew { .. })));
        assert!(matches!(fit(&[cost(1, f64::NAN, 1.0)], 0.95), Err(StatsError::NotFinite { .. })));
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(fit(&[cost(1, 1.0, weight)], 0.95), Err(StatsError::NotPositive { .. })));
        }
        assert_eq!(fit(&[cost(1, f64::MAX, 1.0), cost(2, -f64::MAX, 1.0)], 0.95), Err(StatsError::Range));
        assert!(fit(&costs(|_| 1.0), 1.0).is_err());
    }

    /// 3,000 samples: standard error 0.004. Deviations grow with the size and weights follow them.
    #[test]
    fn intervals_cover_both_costs() {
        let mut generator = Generator::new(91);
        let mut slopes = 0;
        let calls = share(3000, || {
            let costs: Vec<SizedCost> = costs(|index| DEVIATIONS[index].powi(-2))
                .into_iter()
                .enumerate()
                .map(|(index, cost)| {
                    let noise = DEVIATIONS[index] * generator.normal();
                    SizedCost { instructions: 1000.0 + 0.01 * cost.bytes as f64 + noise, ..cost }
                })
                .collect();
            let model = fit(&costs, 0.95).unwrap();
            let covers = |estimate: Estimate, truth: f64| {
                estimate.bounds.interval().is_some_and(|interval| interval.lower <= truth && truth <= interval.upper)
            };
            slopes += usize::from(covers(model.per_mib, 0.01 * MIB));
            covers(model.per_call, 1000.0)
        });
        for coverage in [calls, slopes as f64 / 3000.0] {
            assert!((0.938..=0.962).contains(&coverage), "{coverage}");
        }
    }

    proptest! {
        /// Order does not matter; instructions in another unit, or weights times a factor, change nothing else.
        #[test]
        fn lines_follow_the_figures(figures in prop::collection::vec((1..1_000_000u64, -1e4..1e4f64, 0.1..10.0f64), 3..20), unit in 0.1..10.0f64) {
            let of = |unit: f64, factor: f64| -> Vec<SizedCost> {
                figures.iter().map(|&(bytes, instructions, weight)| SizedCost { bytes, instructions: unit * instructions, weight: factor * weight }).collect()
            };
            let Ok(model) = fit(&of(1.0, 1.0), 0.95) else { return Ok(()) };
            let mut other = of(unit, 3.0);
            other.reverse();
            let other = fit(&other, 0.95).unwrap();
            prop_assert!(close(other.per_call.value, unit * model.per_call.value, 1e-4) || model.per_call.value.abs() < 1e-2);
            if let (Some(a), Some(b)) = (model.per_mib.bounds.interval(), other.per_mib.bounds.interval()) {
                prop_assert!(close(b.upper - b.lower, unit * (a.upper - a.lower), 1e-6));
            }
        }

        #[test]
        fn any_figures_are_taken_or_refused(figures: Vec<(u64, f64, f64)>, level: f64) {
            let costs: Vec<SizedCost> =
                figures.iter().map(|&(bytes, instructions, weight)| SizedCost { bytes, instructions, weight }).collect();
            if let Ok(model) = fit(&costs, level) {
                prop_assert!(model.per_call.value.is_finite() && model.per_mib.value.is_finite());
                prop_assert!(model.lack_of_fit_p.is_none_or(|p| (0.0..=1.0).contains(&p)));
            }
        }
    }
}
