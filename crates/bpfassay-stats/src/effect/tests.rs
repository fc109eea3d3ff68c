// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::{
    random::Generator,
    simulation::{Distribution, close, half_width, logs, p_equal, share},
};

const A: [f64; 5] = [182.1, 177.4, 190.3, 185.0, 179.9];
const B: [f64; 7] = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0];

/// R 4.2.2: `w <- t.test(log(a), log(b)); exp(w$conf.int); w$parameter; w$p.value; exp(mean(log(a))
/// - mean(log(b)))`.
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
    assert!(close(p_equal(&effect, 0.0).unwrap(), 0.011_552_233_285_839_2, 1e-9));
}

/// R 4.2.2: `l <- log(a / b)`, then `t.test(l)$p.value`, and with `mu = log(1.05)`, `alternative =
/// "greater"` and `"less"`.
#[test]
fn paired_p_values_agree_with_r() {
    let a: [f64; 8] = [182.1, 177.4, 190.3, 185.0, 179.9, 188.2, 184.4, 181.7];
    let b = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0, 175.1];
    let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| (a / b).ln()).collect();
    let effect = Effect::paired(&ratios).unwrap();
    assert!(close(p_equal(&effect, 0.0).unwrap(), 2.678_677_973_694_21e-5, 1e-9));
    assert!(close(effect.p_at_most(1.05_f64.ln()).unwrap().unwrap(), 0.237_202_754_905_201, 1e-9));
    assert!(close(effect.p_at_least(1.05_f64.ln()).unwrap().unwrap(), 0.762_797_245_094_799, 1e-9));
}

#[test]
fn without_spread_the_effect_is_taken_as_known() {
    let effect = Effect::paired(&[0.1; 7]).unwrap();
    assert_eq!((effect.log_ratio, effect.spread), (0.1, Spread::NoSpread));
    assert_eq!(effect.p_at_most(0.05).unwrap(), Some(0.0));
    assert_eq!(effect.p_at_most(0.1).unwrap(), Some(1.0));
    assert_eq!(p_equal(&effect, 0.1), Some(1.0));
    assert_eq!(Effect::independent(&[1.0, 1.0], &[0.5, 0.5]).unwrap().spread, Spread::NoSpread);
}

#[test]
fn one_observation_has_no_p_value() {
    assert_eq!(Effect::paired(&[0.1]).unwrap().p_at_most(0.0).unwrap(), None);
    assert_eq!(Effect::independent(&[0.1, 0.2], &[0.3]).unwrap().spread, Spread::OneObservation);
}

#[test]
fn what_is_no_logarithm_is_refused() {
    assert_eq!(Effect::paired(&[]), Err(StatsError::Empty));
    assert!(matches!(Effect::paired(&[f64::NAN, 1.0]), Err(StatsError::NotFinite { .. })));
    assert_eq!(Effect::paired(&[1e308, -1e308, 1e308]), Err(StatsError::Range));
    assert!(Effect::paired(&[1.0, 2.0]).unwrap().p_at_most(f64::NAN).is_err());
    assert!(Effect::independent(&[1.0, 2.0], &[f64::INFINITY]).is_err());
}

/// All rounds have the same error, so the rounds do not show it. Intervals that include its
/// variance cover the effect; others do not. 3,000 samples have a standard error of 0.004 for a
/// share of 0.95.
#[test]
fn a_known_variance_widens_the_interval() {
    let mut generator = Generator::new(7);
    let (mut plain, mut widened) = (0, 0);
    for _ in 0..3000 {
        let shared = 0.01 * generator.normal();
        let logs: Vec<f64> = (0..5).map(|_| shared + 0.01 * generator.normal()).collect();
        let effect = Effect::paired(&logs).unwrap();
        plain += usize::from(half_width(&effect, 0.95) >= effect.log_ratio.abs());
        widened += usize::from(half_width(&effect.with_known_variance(1e-4), 0.95) >= effect.log_ratio.abs());
    }
    assert!(plain < 2500 && (2790..=2910).contains(&widened), "{plain} {widened}");
    let one = Effect::paired(&[0.1]).unwrap();
    assert_eq!((one.with_known_variance(1.0), one.with_known_variance(0.0)), (one, one));
    let equal = Effect::paired(&[0.1; 3]).unwrap();
    assert_eq!(equal.with_known_variance(0.0), equal);
    assert!((half_width(&equal.with_known_variance(1e-4), 0.95) - 0.019_599_64).abs() < 1e-6);
}

proptest! {
    /// No input panics or yields a figure that is not finite.
    #[test]
    fn any_figures_are_taken_or_refused(a: Vec<f64>, b: Vec<f64>, level: f64, bound: f64) {
        for effect in [Effect::paired(&a), Effect::independent(&a, &b)].into_iter().flatten() {
            if let Ok(estimate) = effect.estimate(level) {
                prop_assert!(estimate.value.is_finite());
            }
            if let Ok(Some(p)) = effect.p_at_most(bound) {
                prop_assert!((0.0..=1.0).contains(&p));
            }
        }
    }

    /// The two-sided p-value is below α if and only if the interval at 1 − α excludes the value.
    #[test]
    fn p_values_agree_with_intervals(figures in prop::collection::vec(-1.0..1.0f64, 2..12), value in -1.0..1.0f64) {
        let effect = Effect::paired(&figures).unwrap();
        let (p, half) = (p_equal(&effect, value).unwrap(), half_width(&effect, 0.95));
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
        let (x, y) = (half_width(&before, 0.9), half_width(&swapped, 0.9));
        prop_assert!((x - y).abs() <= 1e-9 * x);
    }
}

const BASELINE: [f64; 8] = [182.1, 177.4, 190.3, 185.0, 179.9, 188.2, 184.4, 181.7];
const WITH: [f64; 8] = [171.9, 170.2, 176.8, 178.3, 168.4, 180.6, 172.0, 175.1];

/// Estimates the relative overhead from pairs of (baseline, with the tool).
fn overhead(pairs: &[(f64, f64)], level: f64) -> Estimate {
    let logs: Vec<f64> = pairs.iter().map(|(baseline, with)| baseline.ln() - with.ln()).collect();
    Effect::paired(&logs).unwrap().estimate(level).unwrap()
}

fn pairs(n: usize) -> Vec<(f64, f64)> {
    BASELINE.into_iter().zip(WITH).take(n).collect()
}

/// SciPy 1.17.1: `r = scipy.stats.ttest_rel(numpy.log(a[:n]), numpy.log(b[:n]))`, then
/// `numpy.exp(numpy.mean(numpy.log(a[:n]) - numpy.log(b[:n])))` and
/// `numpy.exp(r.confidence_interval(0.95))`.
#[test]
fn figures_agree_with_scipy() {
    for (n, value, lower, upper) in [
        (8, 1.054_355_712_175_596_6, 1.040_788_844_346_753, 1.068_099_426_541_262),
        (2, 1.050_785_483_520_236, 0.947_955_966_263_598, 1.164_769_431_990_499),
    ] {
        let estimate = overhead(&pairs(n), 0.95);
        let interval = estimate.bounds.interval().unwrap();
        assert_eq!(estimate.n, n);
        for (ours, scipy) in [(estimate.value, value), (interval.lower, lower), (interval.upper, upper)] {
            assert!((ours / scipy - 1.0).abs() < 1e-9, "n = {n}: {ours} against {scipy}");
        }
    }
}

#[test]
fn one_pair_has_no_interval() {
    let estimate = overhead(&pairs(1), 0.95);
    assert_eq!(estimate.bounds, Bounds::OneObservation);
    assert!((estimate.value - 182.1 / 171.9).abs() < 1e-12);
}

#[test]
fn equal_ratios_have_no_spread() {
    let estimate = overhead(&[(2.0, 1.0), (2.0, 1.0)], 0.95);
    assert_eq!((estimate.value, estimate.bounds), (2.0, Bounds::NoSpread));
}

/// 4,000 samples have a standard error of 0.0034.
#[test]
fn coverage_is_nominal_for_few_pairs() {
    for (shape, range) in [(Distribution::Normal, 0.938..0.962), (Distribution::HeavyTailed, 0.938..0.972)] {
        for n in [5, 8, 20] {
            let mut generator = Generator::new(n as u64);
            let covered = share(4000, || {
                let pairs: Vec<_> = shape
                    .sample(&mut generator, n, 0.02)
                    .iter()
                    .map(|log| (182.0 * (0.05 + log).exp(), 182.0))
                    .collect();
                let interval = overhead(&pairs, 0.95).bounds.interval().unwrap();
                interval.lower <= 0.05_f64.exp() && 0.05_f64.exp() <= interval.upper
            });
            assert!(range.contains(&covered), "{shape:?} n = {n}: {covered}");
        }
    }
}

proptest! {
    /// The order of pairs does not matter; equal pairs, however many, have no spread.
    #[test]
    fn the_order_of_pairs_does_not_matter(mut pairs in prop::collection::vec((1e-3..1e6f64, 1e-3..1e6f64), 2..20), times in 2..50usize) {
        let before = overhead(&pairs, 0.95);
        pairs.reverse();
        prop_assert!((overhead(&pairs, 0.95).value / before.value - 1.0).abs() < 1e-9);
        let equal = overhead(&vec![pairs[0]; times], 0.95);
        prop_assert_eq!(equal.bounds, Bounds::NoSpread);
    }

    /// Swapping the roles inverts estimate and bounds; the unit of bandwidth does not matter.
    #[test]
    fn the_estimate_is_a_ratio(pairs in prop::collection::vec((1e-3..1e6f64, 1e-3..1e6f64), 2..20), unit in 1e-3..1e3f64) {
        let estimate = overhead(&pairs, 0.95);
        let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
        let inverse = overhead(&swapped, 0.95);
        prop_assert!((estimate.value * inverse.value - 1.0).abs() < 1e-9);
        let scaled: Vec<_> = pairs.iter().map(|&(a, b)| (a * unit, b * unit)).collect();
        prop_assert!((overhead(&scaled, 0.95).value / estimate.value - 1.0).abs() < 1e-9);
        if let (Some(interval), Some(other)) = (estimate.bounds.interval(), inverse.bounds.interval()) {
            prop_assert!(interval.lower <= estimate.value && estimate.value <= interval.upper);
            prop_assert!((interval.lower * other.upper - 1.0).abs() < 1e-6);
        }
    }

    /// A higher level gives a wider interval.
    #[test]
    fn levels_are_nested(pairs in prop::collection::vec((1.0..1e3f64, 1.0..1e3f64), 2..20)) {
        let narrow = overhead(&pairs, 0.9).bounds.interval();
        let wide = overhead(&pairs, 0.99).bounds.interval();
        if let (Some(narrow), Some(wide)) = (narrow, wide) {
            prop_assert!(wide.lower < narrow.lower && narrow.upper < wide.upper);
        }
    }
}
