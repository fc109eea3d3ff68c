//! Figures from several boots, each with several iterations: iterations of one boot are not independent of each other.
//!
//! Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013: the mean over all levels, its t interval
//! from the means of the highest level (boots − 1 degrees of freedom), unbiased estimates of each level's own variance
//! (T² from S²), and how many repetitions of a level are worth their cost (r = √(c₂ / c₁ · T₁² / T₂²)). Here on
//! logarithms, with two levels. Boots may have different numbers of iterations: each boot's mean counts alike, whatever
//! its number (for mixed numbers: Searle, Casella and McCulloch, "Variance components", 1992, the unweighted-means
//! analysis).
//!
//! Assumed: boots are independent and their means about normal. An interval from all iterations at once, as if they
//! were independent, is too narrow; the test `iterations_of_one_boot_are_not_independent` shows by how much.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Effect, StatsError, effect::finite_mean_and_deviation, interval::t_quantile};

/// What several boots with several iterations each say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hierarchy {
    /// Mean over boots of the means over iterations; its `n` is the number of boots.
    pub effect: Effect,
    /// Number of iterations of all boots together.
    pub iterations: usize,
    /// Variance of a single iteration around the mean of its boot; `None` where every boot has one iteration only.
    pub within_boots: Option<f64>,
    /// Variance of boots beyond what their iterations explain, 0 where the estimate is negative; `None` for one boot, or
    /// where the variance within boots is not known.
    pub between_boots: Option<f64>,
    /// Harmonic mean of the numbers of iterations per boot.
    pub iterations_per_boot: f64,
}

/// The level of repetition that the error of the mean comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Boots: more iterations would not help much.
    Boots,
    /// Iterations.
    Iterations,
    /// Neither varies.
    Neither,
}

/// How many repetitions of each level to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repetitions {
    /// Iterations in each boot; `None`: boots do not differ, so as many as one likes.
    pub iterations_per_boot: Option<usize>,
    /// Boots for the half width asked for, with that many iterations (or the present number); `None` beyond the most
    /// allowed.
    pub boots: Option<usize>,
}

impl Hierarchy {
    /// From log ratios (or logarithms of figures): for each boot those of its iterations.
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
        let effect = Effect::paired(&means)?;
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
        Ok(Self { effect, iterations, within_boots, between_boots, iterations_per_boot: 1.0 / mean_reciprocal })
    }

    /// Which level the variance of the mean comes from for the greater part; `None` where it cannot be told.
    #[must_use]
    pub fn dominant(&self) -> Option<Level> {
        let (between, within) = self.between_boots.zip(self.within_boots)?;
        let share = self.share_of_boots()?;
        Some(if between + within == 0.0 {
            Level::Neither
        } else if share > 0.5 {
            Level::Boots
        } else {
            Level::Iterations
        })
    }

    /// The share (0 to 1) of the variance of the mean that boots cause; 0 without variance; `None` where it cannot be told.
    #[must_use]
    pub fn share_of_boots(&self) -> Option<f64> {
        let (between, within) = self.between_boots.zip(self.within_boots)?;
        let total = between + within / self.iterations_per_boot;
        Some(if total > 0.0 { between / total } else { 0.0 })
    }

    /// The best use of time for an interval of `half_width` on the log scale (0.005: about ± 0.5 %), when a boot costs
    /// `boot_cost` before its first iteration and an iteration `iteration_cost`, in the same unit.
    ///
    /// The variances are estimates themselves, rough ones for few boots: a plan, not a promise.
    ///
    /// # Errors
    /// [`StatsError::NotPositive`] for costs and half width; [`StatsError::Level`]; [`StatsError::TooFew`] where the
    /// variances are not known (one boot, or one iteration in each).
    pub fn repetitions(
        &self,
        boot_cost: f64,
        iteration_cost: f64,
        half_width: f64,
        level: f64,
        most_boots: usize,
    ) -> Result<Repetitions, StatsError> {
        for value in [boot_cost, iteration_cost, half_width] {
            if !(value.is_finite() && value > 0.0) {
                return Err(StatsError::NotPositive { value });
            }
        }
        let Some((between, within)) = self.between_boots.zip(self.within_boots) else {
            let what = "the variance of boots and of iterations";
            return Err(StatsError::TooFew { what, n: self.iterations.min(self.effect.n), fewest: 2 });
        };
        let iterations_per_boot = if within == 0.0 {
            Some(1)
        } else if between == 0.0 {
            None
        } else {
            Some(((boot_cost / iteration_cost) * (within / between)).sqrt().ceil().max(1.0) as usize)
        };
        let per_boot = iterations_per_boot.map_or(self.iterations_per_boot, |count| count as f64);
        let deviation = (between + within / per_boot).sqrt();
        let boots = boots_for(deviation, half_width, level, most_boots)?;
        Ok(Repetitions { iterations_per_boot, boots })
    }
}

/// The smallest number from 2 to `most` with a t interval no wider than asked for.
fn boots_for(deviation: f64, half_width: f64, level: f64, most: usize) -> Result<Option<usize>, StatsError> {
    let narrow = |n: usize| -> Result<bool, StatsError> {
        Ok(t_quantile(level, n as f64 - 1.0)? * deviation <= half_width * (n as f64).sqrt())
    };
    let (mut low, mut high) = (2, most);
    if high < low || !narrow(high)? {
        return Ok(None);
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        if narrow(middle)? {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Ok(Some(low))
}

/// The ratio of two independent results, each of boots with iterations: from the logarithms of `baseline` and `with`,
/// by Welch's interval on the means of boots.
///
/// # Errors
/// As [`Hierarchy::new`].
pub fn ratio<B: AsRef<[f64]>>(baseline: &[B], with: &[B]) -> Result<Effect, StatsError> {
    let means = |boots: &[B]| {
        boots
            .iter()
            .map(|boot| finite_mean_and_deviation(boot.as_ref()).map(|(mean, _)| mean))
            .collect::<Result<Vec<_>, _>>()
    };
    Effect::independent(&means(baseline)?, &means(with)?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        Spread,
        random::Generator,
        simulation::{Shape, close, share},
    };

    /// Yields of dyestuff of six batches of five (Davies and Goldsmith, "Statistical methods in research and production",
    /// 1972, section 6.4; data set `Dyestuff` of R's lme4). Published there: variance of batches 1764.05, residual 2451.25.
    const DYESTUFF: [[f64; 5]; 6] = [
        [1545., 1440., 1440., 1520., 1580.],
        [1540., 1555., 1490., 1560., 1495.],
        [1595., 1550., 1605., 1510., 1560.],
        [1445., 1440., 1595., 1465., 1545.],
        [1595., 1630., 1515., 1635., 1625.],
        [1520., 1455., 1450., 1480., 1445.],
    ];

    /// Interval: R 4.2.2, `t.test(tapply(dy, batch, mean))$conf.int` = 1477.6733528086, 1577.3266471914.
    #[test]
    fn the_published_variance_components() {
        let found = Hierarchy::new(&DYESTUFF).unwrap();
        assert!(close(found.within_boots.unwrap(), 2451.25, 1e-9));
        assert!(close(found.between_boots.unwrap(), 1764.05, 1e-9));
        assert!(close(found.effect.log_ratio, 1527.5, 1e-12));
        assert!(close(
            found.effect.half_width(0.95).unwrap().unwrap(),
            (1_577.326_647_191_4 - 1_477.673_352_808_6) / 2.,
            1e-9
        ));
        assert_eq!((found.dominant(), found.iterations), (Some(Level::Boots), 30));
        // √(10 · 2451.25 / 1764.05) = 3.73; then t(n − 1) · √((1764.05 + 2451.25 / 4) / n) ≤ 30 first holds at n = 13.
        let best = found.repetitions(10.0, 1.0, 30.0, 0.95, 100).unwrap();
        assert_eq!(best, Repetitions { iterations_per_boot: Some(4), boots: Some(13) });
        assert_eq!(found.repetitions(10.0, 1.0, 30.0, 0.95, 12).unwrap().boots, None);
    }

    #[test]
    fn levels_that_do_not_vary() {
        let same = Hierarchy::new(&[[0.1, 0.1], [0.1, 0.1]]).unwrap();
        assert_eq!((same.effect.spread, same.dominant()), (Spread::NoSpread, Some(Level::Neither)));
        let boots = Hierarchy::new(&[[0.1, 0.1], [0.3, 0.3]]).unwrap();
        assert_eq!(boots.dominant(), Some(Level::Boots));
        assert_eq!(boots.repetitions(1.0, 1.0, 0.1, 0.95, 1000).unwrap().iterations_per_boot, Some(1));
        let iterations = Hierarchy::new(&[[0.1, 0.3], [0.3, 0.1]]).unwrap();
        assert_eq!((iterations.dominant(), iterations.between_boots), (Some(Level::Iterations), Some(0.0)));
        assert_eq!(iterations.repetitions(1.0, 1.0, 0.1, 0.95, 1000).unwrap().iterations_per_boot, None);
    }

    #[test]
    fn what_one_boot_or_one_iteration_cannot_tell() {
        let one = Hierarchy::new(&[[0.1, 0.2, 0.3]]).unwrap();
        assert_eq!((one.effect.spread, one.between_boots, one.dominant()), (Spread::OneObservation, None, None));
        assert!(close(one.within_boots.unwrap(), 0.01, 1e-9));
        assert!(matches!(one.repetitions(1.0, 1.0, 0.1, 0.95, 10), Err(StatsError::TooFew { .. })));
        let single = Hierarchy::new(&[[0.1], [0.2]]).unwrap();
        assert_eq!((single.within_boots, single.dominant()), (None, None));
        assert_eq!(Hierarchy::new::<Vec<f64>>(&[]), Err(StatsError::Empty));
        assert_eq!(Hierarchy::new(&[vec![0.1], vec![]]), Err(StatsError::Empty));
        assert!(Hierarchy::new(&[[0.1, f64::NAN]]).is_err());
    }

    fn boots(generator: &mut Generator, shape: Shape, sizes: &[usize]) -> Vec<Vec<f64>> {
        sizes
            .iter()
            .map(|&size| {
                let boot = 0.01 * generator.normal();
                shape.sample(generator, size, 0.01).into_iter().map(|value| value + boot).collect()
            })
            .collect()
    }

    /// 3,000 samples: the standard error of a share of 0.95 is 0.004.
    #[test]
    fn coverage_is_nominal_also_for_unequal_boots() {
        let mut generator = Generator::new(5);
        for (shape, sizes) in
            [(Shape::Normal, &[3; 5][..]), (Shape::Normal, &[2, 4, 6, 3, 8]), (Shape::Skewed, &[4; 8])]
        {
            let covered = share(3000, || {
                let effect = Hierarchy::new(&boots(&mut generator, shape, sizes)).unwrap().effect;
                effect.half_width(0.95).unwrap().unwrap() >= effect.log_ratio.abs()
            });
            assert!((0.935..=0.965).contains(&covered), "{shape:?} {sizes:?}: {covered}");
            let both = share(3000, || {
                let (a, b) = (boots(&mut generator, shape, sizes), boots(&mut generator, shape, sizes));
                let effect = ratio(&a, &b).unwrap();
                effect.half_width(0.95).unwrap().unwrap() >= effect.log_ratio.abs()
            });
            assert!((0.935..=0.97).contains(&both), "{shape:?} {sizes:?}: ratio {both}");
        }
    }

    #[test]
    fn iterations_of_one_boot_are_not_independent() {
        let mut generator = Generator::new(6);
        let covered = share(1000, || {
            let all = boots(&mut generator, Shape::Normal, &[10; 5]).concat();
            let effect = Effect::paired(&all).unwrap();
            effect.half_width(0.95).unwrap().unwrap() >= effect.log_ratio.abs()
        });
        assert!(covered < 0.75, "{covered}");
    }

    /// 2,000 samples of 8 boots with 4 iterations: both components without bias, to three standard errors.
    #[test]
    fn variance_components_are_unbiased() {
        let mut generator = Generator::new(7);
        let (mut between, mut within) = (0.0, 0.0);
        for _ in 0..2000 {
            let found = Hierarchy::new(&boots(&mut generator, Shape::Normal, &[2, 3, 4, 5, 6, 4, 4, 4])).unwrap();
            between += found.between_boots.unwrap() / 2000.0;
            within += found.within_boots.unwrap() / 2000.0;
        }
        assert!(close(within, 1e-4, 0.02) && close(between, 1e-4, 0.06), "{within} {between}");
    }

    proptest! {
        #[test]
        fn any_figures_are_taken_or_refused(figures: Vec<Vec<f64>>, boot: f64, iteration: f64, half: f64) {
            if let Ok(found) = Hierarchy::new(&figures) {
                prop_assert!(found.share_of_boots().is_none_or(|share| (0.0..=1.0).contains(&share)));
                if let Ok(best) = found.repetitions(boot, iteration, half, 0.95, 50) {
                    prop_assert!(best.boots.is_none_or(|boots| (2..=50).contains(&boots)));
                }
            }
        }
    }
}
