// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures from several boots with several iterations each: iterations of one boot are not
//! independent of each other.
//!
//! The method follows Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013.
//! The mean over all levels has the t interval of the means of the highest level, with boots − 1
//! degrees of freedom ([`crate::Effect::paired`] of the means of boots). Each level's own variance
//! has an unbiased estimate (T² from S²). This module has two levels and uses logarithms. Boots can
//! have different numbers of iterations; each boot's mean counts alike (for mixed numbers: Searle,
//! Casella and McCulloch, "Variance components", 1992, the unweighted-means analysis).
//!
//! Boots are assumed to be independent, and their means about normal. An interval from all
//! iterations, as if they were independent, is too narrow; the test
//! `iterations_of_one_boot_are_not_independent` shows by how much.

use crate::{StatsError, effect::finite_mean_and_deviation};

/// The variance of several boots with several iterations each, by level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hierarchy {
    /// Variance of a single iteration around the mean of its boot; `None` if every boot has only
    /// one iteration.
    pub within_boots: Option<f64>,
    /// Variance of boots beyond what their iterations explain, 0 if the estimate is negative;
    /// `None` for one boot, or if the variance within boots is not known.
    pub between_boots: Option<f64>,
}

impl Hierarchy {
    /// Computes the variances from log ratios (or logarithms of figures) of the iterations of each
    /// boot.
    ///
    /// # Errors
    /// [`StatsError`]: no boots, a boot without iterations, a figure that is not finite.
    pub fn new<B: AsRef<[f64]>>(boots: &[B]) -> Result<Self, StatsError> {
        let mut means = Vec::with_capacity(boots.len());
        let (mut squares, mut iterations, mut reciprocals) = (0.0, 0_usize, 0.0);
        for boot in boots {
            let boot = boot.as_ref();
            let (mean, deviation) = finite_mean_and_deviation(boot)?;
            let n = boot.len();
            squares += deviation.map_or(0.0, |deviation| deviation.powi(2) * (n - 1) as f64);
            means.push(mean);
            iterations += n;
            reciprocals += 1.0 / n as f64;
        }
        let (_, deviation_of_means) = finite_mean_and_deviation(&means)?;
        let mean_reciprocal = reciprocals / means.len() as f64;
        let freedom = iterations - means.len();
        let within_boots = (freedom > 0).then(|| squares / freedom as f64);
        let between_boots = deviation_of_means
            .zip(within_boots)
            .map(|(deviation, within)| (deviation.powi(2) - within * mean_reciprocal).max(0.0));
        if [within_boots, between_boots].into_iter().flatten().any(|variance| !variance.is_finite()) {
            return Err(StatsError::Range);
        }
        Ok(Self { within_boots, between_boots })
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        Effect,
        random::Generator,
        simulation::{Distribution, close, half_width, share},
    };

    fn mean(figures: &[f64]) -> f64 {
        figures.iter().sum::<f64>() / figures.len() as f64
    }

    fn effect<B: AsRef<[f64]>>(boots: &[B]) -> Effect {
        Effect::paired(&boots.iter().map(|boot| mean(boot.as_ref())).collect::<Vec<_>>()).unwrap()
    }

    /// Yields of dyestuff of six batches of five (Davies and Goldsmith, "Statistical methods in
    /// research and production", 1972, section 6.4; data set `Dyestuff` of R's lme4). The published
    /// variances are 1764.05 for batches, and 2451.25 for the residual.
    const DYESTUFF: [[f64; 5]; 6] = [
        [1545., 1440., 1440., 1520., 1580.],
        [1540., 1555., 1490., 1560., 1495.],
        [1595., 1550., 1605., 1510., 1560.],
        [1445., 1440., 1595., 1465., 1545.],
        [1595., 1630., 1515., 1635., 1625.],
        [1520., 1455., 1450., 1480., 1445.],
    ];

    /// Interval: R 4.2.2, `t.test(tapply(dy, batch, mean))$conf.int` = 1477.6733528086,
    /// 1577.3266471914.
    #[test]
    fn the_published_variance_components() {
        let found = Hierarchy::new(&DYESTUFF).unwrap();
        assert!(close(found.within_boots.unwrap(), 2451.25, 1e-9));
        assert!(close(found.between_boots.unwrap(), 1764.05, 1e-9));
        // The ratio of these figures would be out of range, so the interval is computed for a
        // hundredth of it.
        let mean = effect(&DYESTUFF.map(|batch| batch.map(|value| value / 100.0)));
        assert!(close(mean.log_ratio, 15.275, 1e-12));
        assert!(close(half_width(&mean, 0.95), (15.773_266_471_914 - 14.776_733_528_086) / 2., 1e-9));
    }

    #[test]
    fn levels_that_do_not_vary() {
        let boots = Hierarchy::new(&[[0.1, 0.1], [0.3, 0.3]]).unwrap();
        assert_eq!(boots.within_boots, Some(0.0));
        assert!(close(boots.between_boots.unwrap(), 0.02, 1e-9));
        assert_eq!(Hierarchy::new(&[[0.1, 0.3], [0.3, 0.1]]).unwrap().between_boots, Some(0.0));
    }

    #[test]
    fn one_boot_or_one_iteration_has_no_variance_between_boots() {
        let one = Hierarchy::new(&[[0.1, 0.2, 0.3]]).unwrap();
        assert_eq!(one.between_boots, None);
        assert!(close(one.within_boots.unwrap(), 0.01, 1e-9));
        let single = Hierarchy::new(&[[0.1], [0.2]]).unwrap();
        assert_eq!((single.within_boots, single.between_boots), (None, None));
        assert_eq!(Hierarchy::new::<Vec<f64>>(&[]), Err(StatsError::Empty));
        assert_eq!(Hierarchy::new(&[vec![0.1], vec![]]), Err(StatsError::Empty));
        assert!(Hierarchy::new(&[[0.1, f64::NAN]]).is_err());
    }

    fn boots(generator: &mut Generator, shape: Distribution, sizes: &[usize]) -> Vec<Vec<f64>> {
        sizes
            .iter()
            .map(|&size| {
                let boot = 0.01 * generator.normal();
                shape.sample(generator, size, 0.01).into_iter().map(|value| value + boot).collect()
            })
            .collect()
    }

    /// 3,000 samples have a standard error of 0.004 for a share of 0.95.
    #[test]
    fn coverage_is_nominal_also_for_unequal_boots() {
        let mut generator = Generator::new(5);
        for (shape, sizes) in [
            (Distribution::Normal, &[3; 5][..]),
            (Distribution::Normal, &[2, 4, 6, 3, 8]),
            (Distribution::Skewed, &[4; 8]),
        ] {
            let covered = share(3000, || {
                let effect = effect(&boots(&mut generator, shape, sizes));
                half_width(&effect, 0.95) >= effect.log_ratio.abs()
            });
            assert!((0.935..=0.965).contains(&covered), "{shape:?} {sizes:?}: {covered}");
        }
    }

    #[test]
    fn iterations_of_one_boot_are_not_independent() {
        let mut generator = Generator::new(6);
        let covered = share(1000, || {
            let all = boots(&mut generator, Distribution::Normal, &[10; 5]).concat();
            let effect = Effect::paired(&all).unwrap();
            half_width(&effect, 0.95) >= effect.log_ratio.abs()
        });
        assert!(covered < 0.75, "{covered}");
    }

    /// Both components are unbiased to three standard errors, over 2,000 samples of 8 boots with 4
    /// iterations on average.
    #[test]
    fn variance_components_are_unbiased() {
        let mut generator = Generator::new(7);
        let (mut between, mut within) = (0.0, 0.0);
        for _ in 0..2000 {
            let found =
                Hierarchy::new(&boots(&mut generator, Distribution::Normal, &[2, 3, 4, 5, 6, 4, 4, 4])).unwrap();
            between += found.between_boots.unwrap() / 2000.0;
            within += found.within_boots.unwrap() / 2000.0;
        }
        assert!(close(within, 1e-4, 0.02) && close(between, 1e-4, 0.06), "{within} {between}");
    }

    proptest! {
        #[test]
        fn any_figures_are_taken_or_refused(figures in vec(vec(any::<f64>(), 0..9), 0..9)) {
            if let Ok(found) = Hierarchy::new(&figures) {
                let variances = [found.within_boots, found.between_boots];
                prop_assert!(variances.into_iter().flatten().all(|variance| variance.is_finite() && variance >= 0.0));
            }
        }
    }
}
