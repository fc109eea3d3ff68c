//! The BCa bootstrap interval: bias-corrected and accelerated.
//!
//! Efron, "Better bootstrap confidence intervals", JASA 82(397), 1987; DiCiccio and Efron, "Bootstrap confidence
//! intervals", Statistical Science 11(3), 1996, sections 2 (interval, bias correction) and 6 (acceleration from the
//! jackknife). It follows skewed figures where Student's t does not, but is too narrow for few observations;
//! [`Bootstrap::expanded`] widens it by what a t interval is wider than a normal one (Hesterberg, "What teachers should
//! know about the bootstrap", The American Statistician 69(4), 2015, on "expanded percentile" intervals), which is the
//! default.
//!
//! Coverage of nominal 95 % intervals for a geometric mean as simulated here (20,000 samples of each, 1,000 resamples;
//! the ignored test `coverage_table` prints it). Shapes are those of the log ratios: normal, Student's t with three
//! degrees of freedom, normal with one in ten figures five times as wide, exponential:
//!
//! ```text
//! n    shape          t       BCa     BCa expanded
//! 5    Normal         0.953   0.838   0.914
//! 5    HeavyTailed    0.963   0.816   0.904
//! 5    Contaminated   0.963   0.817   0.904
//! 5    Skewed         0.879   0.795   0.866
//! 8    Normal         0.949   0.880   0.936
//! 8    HeavyTailed    0.962   0.853   0.917
//! 8    Contaminated   0.965   0.845   0.913
//! 8    Skewed         0.892   0.857   0.910
//! 20   Normal         0.949   0.923   0.944
//! 20   HeavyTailed    0.959   0.892   0.919
//! 20   Contaminated   0.965   0.865   0.894
//! 20   Skewed         0.916   0.911   0.931
//! 50   Normal         0.949   0.938   0.947
//! 50   HeavyTailed    0.955   0.909   0.919
//! 50   Contaminated   0.957   0.888   0.899
//! 50   Skewed         0.934   0.934   0.941
//! ```
//!
//! So t on the log scale is the interval to show, also for heavy tails, where BCa is too narrow by three points even
//! with 50 observations. BCa is the better one of the two for skewed log ratios (delays only ever add), from [`ENOUGH`]
//! observations on; below that it is not nominal for anything, and for statistics other than a mean there is nothing
//! else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Bounds, Estimate, Interval, StatsError,
    effect::finite_mean_and_deviation,
    interval::{check_level, normal_cdf, normal_quantile, t_quantile},
    random::Generator,
};

/// The number of observations from which on a BCa interval is worth showing beside a t interval.
pub const ENOUGH: usize = 20;

/// How a bootstrap interval is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Bootstrap {
    /// Number of resamples, at least [`Bootstrap::FEWEST`].
    pub resamples: usize,
    /// Seed: equal seeds give equal intervals.
    pub seed: u64,
    /// Whether to widen the interval for a small number of observations.
    pub expanded: bool,
}

impl Bootstrap {
    /// With fewer resamples the tails of a 95 % interval rest on a handful of them.
    pub const FEWEST: usize = 200;

    /// 10,000 resamples, expanded: the Monte Carlo error of a bound is then about 1 % of the interval's width.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { resamples: 10_000, seed, expanded: true }
    }

    /// The BCa interval of `statistic` over `figures`, in the statistic's unit.
    ///
    /// The statistic must not depend on the order of the figures, which are sorted first so that the interval does not
    /// either.
    ///
    /// # Errors
    /// [`StatsError`]: figures or values of the statistic that are not finite, too few resamples, a level outside (0, 1).
    pub fn interval(
        &self,
        figures: &[f64],
        level: f64,
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Result<BootstrapInterval, StatsError> {
        check_level(level)?;
        if self.resamples < Self::FEWEST {
            return Err(StatsError::Resamples { resamples: self.resamples, fewest: Self::FEWEST });
        }
        let (_, deviation) = finite_mean_and_deviation(figures)?;
        let mut figures = figures.to_vec();
        figures.sort_by(f64::total_cmp);
        let value = finite(statistic(&figures))?;
        let without = |bounds| BootstrapInterval { value, bounds, bias_correction: 0.0, acceleration: 0.0 };
        match deviation {
            None => return Ok(without(Bounds::OneObservation)),
            Some(0.0) => return Ok(without(Bounds::NoSpread)),
            Some(_) => {}
        }
        let mut generator = Generator::new(self.seed);
        let mut resample = figures.clone();
        let mut replicates = Vec::with_capacity(self.resamples);
        for _ in 0..self.resamples {
            generator.resample(&figures, &mut resample);
            replicates.push(finite(statistic(&resample))?);
        }
        replicates.sort_by(f64::total_cmp);
        // Ties with the estimate count half (as for discrete statistics), to rounding of the statistic.
        let range = replicates.last().zip(replicates.first()).map_or(0.0, |(last, first)| last - first);
        let slack = 1e-9 * range;
        let below = replicates.partition_point(|&replicate| replicate < value - slack);
        let not_above = replicates.partition_point(|&replicate| replicate <= value + slack);
        let share = (below + not_above) as f64 / (2.0 * self.resamples as f64);
        // A share of 0 or 1 has no quantile: half a resample is the smallest that can be told.
        let least = 0.5 / self.resamples as f64;
        let bias_correction = normal_quantile(share.clamp(least, 1.0 - least));
        let acceleration = acceleration(&figures, &statistic)?;
        let z = self.quantile(level, figures.len())?;
        let bound = |z: f64| {
            let shifted = bias_correction + z;
            let scale = 1.0 - acceleration * shifted;
            // Beyond its pole the correction would turn around; the extreme resample is then the bound.
            let p = if scale > 0.0 { normal_cdf(bias_correction + shifted / scale) } else { f64::from(z > 0.0) };
            sorted_quantile(&replicates, p).ok_or(StatsError::Empty)
        };
        let (lower, upper) = (finite(bound(-z)?)?, finite(bound(z)?)?);
        let bounds = Bounds::Interval(Interval { lower, upper, level });
        Ok(BootstrapInterval { value, bounds, bias_correction, acceleration })
    }

    /// The relative overhead from log ratios of pairs (see [`crate::overhead`]), with a BCa interval.
    ///
    /// # Errors
    /// As [`Self::interval`]; [`StatsError::Range`].
    pub fn ratio_of_logs(&self, logs: &[f64], level: f64) -> Result<Estimate, StatsError> {
        let mean = |figures: &[f64]| figures.iter().sum::<f64>() / figures.len() as f64;
        let found = self.interval(logs, level, mean)?;
        let (log_ratio, _) = finite_mean_and_deviation(logs)?;
        let bounds = match found.bounds {
            Bounds::Interval(Interval { lower, upper, level }) => {
                Bounds::Interval(Interval { lower: lower.exp(), upper: upper.exp(), level })
            }
            other => other,
        };
        let value = log_ratio.exp();
        let bounds_fit = bounds.interval().is_none_or(|interval| interval.upper.is_finite());
        if value.is_finite() && value > 0.0 && bounds_fit {
            Ok(Estimate { value, bounds, n: logs.len() })
        } else {
            Err(StatsError::Range)
        }
    }

    /// Half the width of the interval in standard errors, before corrections.
    fn quantile(&self, level: f64, n: usize) -> Result<f64, StatsError> {
        if !self.expanded {
            return Ok(normal_quantile(f64::midpoint(1.0, level)));
        }
        let n = n as f64;
        Ok((n / (n - 1.0)).sqrt() * t_quantile(level, n - 1.0)?)
    }
}

/// A bootstrap interval, and what it was corrected by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapInterval {
    /// The statistic of the figures themselves.
    pub value: f64,
    /// Its interval.
    pub bounds: Bounds,
    /// z₀, in standard normal units: how far the median of the resamples lies from the estimate.
    pub bias_correction: f64,
    /// a: how fast the standard error changes with the parameter.
    pub acceleration: f64,
}

/// The acceleration from the jackknife; 0 where leaving out an observation changes nothing.
fn acceleration(figures: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Result<f64, StatsError> {
    let mut left_out = Vec::with_capacity(figures.len());
    let mut values = Vec::with_capacity(figures.len());
    for index in 0..figures.len() {
        left_out.clear();
        left_out.extend(figures.iter().enumerate().filter(|&(other, _)| other != index).map(|(_, value)| value));
        values.push(finite(statistic(&left_out))?);
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let largest = values.iter().map(|value| (mean - value).abs()).fold(0.0, f64::max);
    if largest == 0.0 {
        return Ok(0.0);
    }
    // Divided by the largest, so that neither squares nor cubes leave the range of floating-point numbers.
    let (squares, cubes) = values.iter().fold((0.0, 0.0), |(squares, cubes), value| {
        let difference = (mean - value) / largest;
        (squares + difference * difference, cubes + difference.powi(3))
    });
    finite(cubes / (6.0 * f64::powf(squares, 1.5)))
}

fn finite(value: f64) -> Result<f64, StatsError> {
    if value.is_finite() { Ok(value) } else { Err(StatsError::NotFinite { value }) }
}

/// The quantile at `p` of sorted figures, interpolated linearly (Hyndman and Fan, 1996, type 7); `None` without figures.
pub(crate) fn sorted_quantile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p.clamp(0.0, 1.0) * last as f64;
    let index = (position.floor() as usize).min(last);
    let (&low, &high) = (sorted.get(index)?, sorted.get((index + 1).min(last))?);
    Some(low + (high - low) * (position - index as f64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        overhead::ratio_of_logs,
        simulation::{Shape, share},
    };

    fn mean(figures: &[f64]) -> f64 {
        figures.iter().sum::<f64>() / figures.len() as f64
    }

    /// Divisor n.
    fn variance(figures: &[f64]) -> f64 {
        let mean = mean(figures);
        figures.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / figures.len() as f64
    }

    /// Efron and Tibshirani, "An introduction to the bootstrap", 1993, table 14.1 (spatial test data, A), and table 14.2
    /// with section 14.3: estimate 171.5, z₀ = 0.146, a = 0.061, BCa 90 % interval (115.8, 259.6) from 2,000 resamples.
    const SPATIAL: [f64; 26] = [
        48., 36., 20., 29., 42., 42., 20., 42., 22., 41., 45., 14., 6., 0., 33., 28., 34., 4., 32., 24., 47., 41., 24.,
        26., 30., 41.,
    ];

    #[test]
    fn the_textbook_example() {
        let bootstrap = Bootstrap { resamples: 20_000, seed: 1, expanded: false };
        let found = bootstrap.interval(&SPATIAL, 0.9, variance).unwrap();
        let interval = found.bounds.interval().unwrap();
        assert!((found.value - 171.5).abs() < 0.05);
        assert!((found.acceleration - 0.061).abs() < 0.0006);
        // What is left is the Monte Carlo error of the 2,000 resamples in the book.
        assert!((found.bias_correction - 0.146).abs() < 0.05, "{found:?}");
        assert!((interval.lower - 115.8).abs() < 3.0 && (interval.upper - 259.6).abs() < 6.0, "{interval:?}");
    }

    /// SciPy 1.17.1, `SPATIAL` as above: `scipy.stats.bootstrap((numpy.array(SPATIAL),), numpy.var, confidence_level=0.9,
    /// n_resamples=1_000_000, method="BCa", rng=1, batch=50_000).confidence_interval`.
    #[test]
    fn the_interval_agrees_with_scipy() {
        let bootstrap = Bootstrap { resamples: 100_000, seed: 2, expanded: false };
        let interval = bootstrap.interval(&SPATIAL, 0.9, variance).unwrap().bounds.interval().unwrap();
        let (lower, upper) = (115.504_437_869_822_48, 261.025_147_928_994_1);
        assert!((interval.lower - lower).abs() < 1.0 && (interval.upper - upper).abs() < 1.5, "{interval:?}");
    }

    /// R 4.2.2, all 5⁵ resamples enumerated: `g <- as.matrix(expand.grid(rep(list(1:5), 5)))`,
    /// `th <- apply(g, 1, function(i) mean(x[i]))`, z₀ from `qnorm(mean(th < mean(x)) + mean(th == mean(x)) / 2)` and a from
    /// the jackknife, written out; quantiles at `pnorm(z0 + (z0 + z) / (1 - a * (z0 + z)))`, which are 0.0648 and 0.9954.
    #[test]
    fn five_observations_agree_with_the_exact_bootstrap() {
        let bootstrap = Bootstrap { resamples: 100_000, seed: 3, expanded: false };
        let found = bootstrap.interval(&[0.012, 0.018, 0.009, 0.055, 0.021], 0.95, mean).unwrap();
        let interval = found.bounds.interval().unwrap();
        assert!((found.bias_correction - 0.081_505_438).abs() < 0.015, "{found:?}");
        assert!((found.acceleration - 0.093_869_845).abs() < 1e-8);
        assert!((interval.lower - 0.0132).abs() < 2.1e-4 && (interval.upper - 0.0464).abs() < 1.1e-3, "{interval:?}");
    }

    #[test]
    fn nothing_to_resample() {
        let bootstrap = Bootstrap::new(0);
        assert_eq!(bootstrap.interval(&[], 0.95, mean), Err(StatsError::Empty));
        assert_eq!(bootstrap.ratio_of_logs(&[0.1], 0.95).unwrap().bounds, Bounds::OneObservation);
        assert_eq!(bootstrap.ratio_of_logs(&[0.1; 30], 0.95).unwrap().bounds, Bounds::NoSpread);
        assert!(bootstrap.interval(&[1.0, 2.0], 0.95, |_| f64::NAN).is_err());
        assert!(matches!(
            Bootstrap { resamples: 3, ..bootstrap }.interval(&[1.0, 2.0], 0.95, mean),
            Err(StatsError::Resamples { .. })
        ));
    }

    fn coverage(shape: Shape, n: usize, repetitions: usize, resamples: usize, expanded: bool) -> (f64, f64) {
        let mut generator = Generator::new(11);
        let (mut bca, mut seed) = (0, 0);
        let t = share(repetitions, || {
            seed += 1;
            let logs = shape.sample(&mut generator, n, 0.01);
            let covers = |estimate: Estimate| {
                estimate.bounds.interval().is_some_and(|found| found.lower <= 1.0 && 1.0 <= found.upper)
            };
            let bootstrap = Bootstrap { resamples, seed, expanded };
            bca += usize::from(covers(bootstrap.ratio_of_logs(&logs, 0.95).unwrap()));
            covers(ratio_of_logs(&logs, 0.95).unwrap())
        });
        (t, bca as f64 / repetitions as f64)
    }

    /// Prints the table in the documentation above.
    #[test]
    #[ignore = "three minutes in release"]
    fn coverage_table() {
        println!("n    shape          t       BCa     BCa expanded");
        for n in [5, 8, 20, 50] {
            for shape in Shape::ALL {
                let (t, plain) = coverage(shape, n, 20_000, 1000, false);
                let (_, expanded) = coverage(shape, n, 20_000, 1000, true);
                println!("{n:<4} {:<14} {t:.3}   {plain:.3}   {expanded:.3}", format!("{shape:?}"));
            }
        }
    }

    /// 1,200 samples with half as many resamples: what the table says, to three standard errors of 0.0063 and half a point.
    #[test]
    fn coverage_is_that_of_the_table() {
        for (shape, table) in [(Shape::Normal, 0.944), (Shape::HeavyTailed, 0.919), (Shape::Skewed, 0.931)] {
            let (_, bca) = coverage(shape, ENOUGH, 1200, 500, true);
            assert!((bca - table).abs() < 0.024, "{shape:?}: {bca}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// The same for the same seed, whatever the order; scaled with the figures; nested in the level.
        #[test]
        fn intervals_follow_the_figures(
            mut figures in prop::collection::vec(-1.0..1.0f64, 5..15),
            seed: u64,
            unit in prop::sample::select(vec![0.25, 2.0, 1024.0]),
        ) {
            let bootstrap = Bootstrap { resamples: 400, seed, expanded: true };
            let narrow = bootstrap.interval(&figures, 0.8, mean).unwrap().bounds.interval().unwrap();
            let wide = bootstrap.interval(&figures, 0.95, mean).unwrap().bounds.interval().unwrap();
            prop_assert!(wide.lower <= narrow.lower && narrow.upper <= wide.upper);
            figures.reverse();
            prop_assert_eq!(bootstrap.interval(&figures, 0.8, mean).unwrap().bounds.interval().unwrap(), narrow);
            let scaled: Vec<f64> = figures.iter().map(|value| value * unit).collect();
            let scaled = bootstrap.interval(&scaled, 0.8, mean).unwrap().bounds.interval().unwrap();
            // Powers of two scale without rounding.
            prop_assert_eq!((scaled.lower, scaled.upper), (narrow.lower * unit, narrow.upper * unit));
        }

        #[test]
        fn any_figures_are_taken_or_refused(figures: Vec<f64>, level: f64) {
            let bootstrap = Bootstrap { resamples: 200, seed: 0, expanded: true };
            if let Ok(estimate) = bootstrap.ratio_of_logs(&figures, level)
                && let Some(interval) = estimate.bounds.interval()
            {
                prop_assert!(interval.lower <= interval.upper && interval.upper.is_finite());
            }
        }
    }
}
