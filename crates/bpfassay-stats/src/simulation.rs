// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for the tests of several estimators: simulated figures and counts.

use crate::{Effect, random::Generator};

/// Whether `a` and `b` agree to a relative `tolerance`.
pub(crate) fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * b.abs().max(f64::MIN_POSITIVE)
}

pub(crate) fn logs(figures: &[f64]) -> Vec<f64> {
    figures.iter().map(|value| value.ln()).collect()
}

/// Returns the two-sided p-value of "the log ratio is `value`"; `None` for one observation.
pub(crate) fn p_equal(effect: &Effect, value: f64) -> Option<f64> {
    let (above, below) = (effect.p_at_most(value).unwrap(), effect.p_at_least(value).unwrap());
    above.zip(below).map(|(above, below)| (2.0 * above.min(below)).min(1.0))
}

/// Returns half the width of the interval on the log scale.
pub(crate) fn half_width(effect: &Effect, level: f64) -> f64 {
    let interval = effect.estimate(level).unwrap().bounds.interval().unwrap();
    (interval.upper / interval.lower).ln() / 2.0
}

/// The distribution of the logarithms of simulated ratios, each with mean 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// Log-normal ratios.
    Normal,
    /// Student's t with three degrees of freedom: heavy tails, no fourth moment.
    HeavyTailed,
    /// One in ten observations is five standard deviations wide: a noisy neighbour.
    Contaminated,
    /// Exponential, shifted to mean 0: delays only ever add.
    Skewed,
}

impl Distribution {
    pub(crate) const ALL: [Self; 4] = [Self::Normal, Self::HeavyTailed, Self::Contaminated, Self::Skewed];

    pub(crate) fn deviation(self) -> f64 {
        match self {
            Self::Normal | Self::Skewed => 1.0,
            Self::HeavyTailed => 3.0_f64.sqrt(),
            Self::Contaminated => 3.4_f64.sqrt(),
        }
    }

    /// Draws one figure with a scale of about 1.
    pub(crate) fn draw(self, generator: &mut Generator) -> f64 {
        match self {
            Self::Normal => generator.normal(),
            Self::HeavyTailed => {
                let squares: f64 = (0..3).map(|_| generator.normal().powi(2)).sum();
                generator.normal() / (squares / 3.0).sqrt()
            }
            Self::Contaminated => {
                let scale = if generator.uniform() < 0.1 { 5.0 } else { 1.0 };
                scale * generator.normal()
            }
            Self::Skewed => -(1.0 - generator.uniform()).ln() - 1.0,
        }
    }

    pub(crate) fn sample(self, generator: &mut Generator, n: usize, scale: f64) -> Vec<f64> {
        (0..n).map(|_| scale * self.draw(generator)).collect()
    }
}

/// Returns the share of `repetitions` in which `covers` returns true.
pub(crate) fn share(repetitions: usize, mut covers: impl FnMut() -> bool) -> f64 {
    (0..repetitions).filter(|_| covers()).count() as f64 / repetitions as f64
}
