//! Estimators: from figures to estimates with intervals. Pure functions, one file each.
//!
//! Here: summaries, relative overhead, relative error. Each estimator says what it assumes, cites its source and is
//! tested against figures of another implementation.
//! Not here: what a figure means or where it comes from (bpfassay-report), any input or output.

pub mod difference;
pub mod interval;
pub mod overhead;
pub mod relative_error;
pub mod summary;

pub use interval::{Bounds, Interval};
pub use overhead::{Estimate, relative_overhead};
pub use relative_error::relative_error;
pub use summary::{Summary, summarise};

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
    /// A confidence level is not between 0 and 1.
    #[error("confidence level {level} is not between 0 and 1")]
    Level {
        /// The level.
        level: f64,
    },
    /// A result is too large or too small for a floating-point number.
    #[error("the estimate is out of the range of floating-point numbers")]
    Range,
}
