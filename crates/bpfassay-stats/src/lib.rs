// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimators: from figures to estimates with intervals. Pure functions, one file each.
//!
//! - Effects of figures: [`effect`] (paired and independent log ratios: the relative overhead),
//!   [`hierarchical`] (boots with iterations), [`mod@relative_error`], [`difference`]
//! - Answers about effects: [`gate_decision`] (verdicts, changes), [`equivalence`], [`moderated`]
//!   and [`multiplicity`] (families), [`change_points`] (series)
//! - About the experiment: [`power`], [`sequential`], [`drift`]
//!
//! Each estimator documents its assumptions and cites its source. Tests compare it with published
//! figures or with another implementation, and simulations check its error rates. A missing
//! estimate is distinct from 0: one observation, no spread, no degrees of freedom ([`Bounds`]). The
//! crate has no input or output; bpfassay-report defines the meaning and the source of the figures.

#![forbid(unsafe_code)]

pub mod change_points;
pub mod difference;
pub mod drift;
pub mod effect;
pub mod equivalence;
pub mod gate_decision;
pub mod hierarchical;
pub mod interval;
pub mod moderated;
pub mod multiplicity;
pub mod power;
pub mod random;
pub mod relative_error;
pub mod sample_summary;
pub mod sequential;
#[cfg(test)]
mod simulation;

pub use effect::{Effect, Spread};
pub use gate_decision::Verdict;
pub use interval::{Bounds, Estimate, Interval};
pub use multiplicity::Adjustment;
pub use relative_error::relative_error;
pub use sample_summary::{Summary, summarise};

/// Why there is no estimate.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// There are no figures.
    #[error("no figures")]
    Empty,
    /// A figure that must be positive and finite is not.
    #[error("figure {value} is not a positive finite number")]
    NotPositive {
        /// The figure.
        value: f64,
    },
    /// A figure is not finite.
    #[error("figure {value} is not a finite number")]
    NotFinite {
        /// The figure.
        value: f64,
    },
    /// A figure that cannot be negative is.
    #[error("figure {value} is negative")]
    Negative {
        /// The figure.
        value: f64,
    },
    /// A confidence level is not between 0 and 1.
    #[error("confidence level {level} is not between 0 and 1")]
    Level {
        /// The level.
        level: f64,
    },
    /// Too few bootstrap resamples or permutations.
    #[error("{resamples} resamples are too few, at least {fewest} are needed")]
    Resamples {
        /// The requested number of resamples.
        resamples: usize,
        /// The smallest useful number.
        fewest: usize,
    },
    /// There are too few figures for the estimate.
    #[error("{n} figures are too few for {what}, at least {fewest} are needed")]
    TooFew {
        /// The requested estimate.
        what: &'static str,
        /// The number of figures.
        n: usize,
        /// The required number.
        fewest: usize,
    },
    /// A margin or limit, as a ratio, is out of range.
    #[error("margin {margin} is not a finite ratio of at least 1")]
    Margin {
        /// The margin.
        margin: f64,
    },
    /// An error rate is not between 0 and 0.5.
    #[error("error rate {alpha} is not between 0 and 0.5")]
    Alpha {
        /// The rate.
        alpha: f64,
    },
    /// A value that must be a probability is not a probability.
    #[error("{p} is not a probability between 0 and 1")]
    Probability {
        /// The value.
        p: f64,
    },
    /// A result is too large or too small for a floating-point number.
    #[error("the estimate is out of the range of floating-point numbers")]
    Range,
}
