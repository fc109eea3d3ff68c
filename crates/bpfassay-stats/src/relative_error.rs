//! Relative error: bandwidth reported by IOR / bandwidth reported by the tool (1: exact).
//!
//! It comes in two forms, which are never mixed ([`Form`]): over IOR's own interval, from the open of the first file to
//! the close of the last, which is what IOR divides by; and as the mean of instantaneous bandwidths at a sampling
//! interval, as in the CEEMS study, which is biased by sampling interval / duration ([`SamplingBias`]).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Effect, Estimate, StatsError};

/// How the tool's bandwidth is made from its counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Bytes over IOR's own interval: without bias.
    OverInterval,
    /// Mean of instantaneous bandwidths ([`mean_of_instantaneous`]).
    MeanOfInstantaneous,
}

/// The ratio of `reported` by the workload to `traced` by the tool, both bandwidths in the same unit.
///
/// The tool's bandwidth is made in one of two ways, which the caller names: bytes over IOR's own interval, or the mean of
/// instantaneous bandwidths at a sampling interval ([`mean_of_instantaneous`]).
///
/// # Errors
/// [`StatsError`], when one of them is not a positive finite number or their ratio is none.
pub fn relative_error(reported: f64, traced: f64) -> Result<f64, StatsError> {
    for value in [reported, traced] {
        if !(value.is_finite() && value > 0.0) {
            return Err(StatsError::NotPositive { value });
        }
    }
    let ratio = reported / traced;
    if ratio.is_finite() && ratio > 0.0 { Ok(ratio) } else { Err(StatsError::Range) }
}

/// The relative error over several runs from pairs of (reported, traced), all of one form: the ratio of geometric means
/// with a t interval on the log scale (see [`crate::overhead`]).
///
/// # Errors
/// [`StatsError`], when there is no pair or a figure is not a positive finite number.
pub fn relative_error_over(pairs: &[(f64, f64)], level: f64) -> Result<Estimate, StatsError> {
    let logs = pairs
        .iter()
        .map(|&(reported, traced)| Ok(relative_error(reported, traced)?.ln()))
        .collect::<Result<Vec<_>, _>>()?;
    Effect::paired(&logs)?.estimate(level)
}

/// Bandwidth in bytes per second of `bytes` over the interval from `from_ns` to `to_ns`, in nanoseconds.
///
/// # Errors
/// [`StatsError::NotPositive`] for an interval that does not last.
pub fn bandwidth_over(bytes: u64, from_ns: u64, to_ns: u64) -> Result<f64, StatsError> {
    match to_ns.checked_sub(from_ns) {
        Some(elapsed) if elapsed > 0 => Ok(bytes as f64 * 1e9 / elapsed as f64),
        _ => Err(StatsError::NotPositive { value: to_ns as f64 - from_ns as f64 }),
    }
}

/// The relative error that the mean of instantaneous bandwidths has although every byte is counted.
///
/// A steady transfer of duration D, sampled every S, touches m sampling intervals, over which its bytes are spread: the
/// mean of rates is bytes / (m · S) instead of bytes / D, and the relative error m · S / D. Where sampling and transfer
/// are not synchronised, m is ⌊D / S⌋ + 1, or, with the probability of the remainder of D / S, one more: on average D /
/// S + 1. So the relative error is 1 + S / D on average: too high by sampling interval / duration.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplingBias {
    /// Relative error on average over all phases of sampling.
    pub expected: f64,
    /// Smallest, where the transfer begins with a sampling interval.
    pub smallest: f64,
    /// Largest.
    pub largest: f64,
}

impl SamplingBias {
    /// For a sampling interval and a duration in the same unit.
    ///
    /// # Errors
    /// [`StatsError::NotPositive`]; [`StatsError::Range`].
    pub fn new(sampling_interval: f64, duration: f64) -> Result<Self, StatsError> {
        let expected = 1.0 + relative_error(sampling_interval, duration)?;
        let intervals = (duration / sampling_interval).ceil();
        let share = sampling_interval / duration;
        let (smallest, largest) = (intervals * share, (intervals + 1.0) * share);
        if largest.is_finite() { Ok(Self { expected, smallest, largest }) } else { Err(StatsError::Range) }
    }
}

/// One reading of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// Bytes counted until then.
    pub bytes: u64,
}

/// Mean of instantaneous bandwidths, as in the CEEMS study, in bytes per second: the rate between each two successive
/// readings, averaged over those in which the counter moved; and how many those are. `None` where there are none.
///
/// Bias: the first and the last such interval are busy only in part, so the mean is too low, and the relative error made
/// with it too high, by about sampling interval / duration ([`SamplingBias`]).
#[must_use]
pub fn mean_of_instantaneous(readings: &[CounterReading]) -> Option<(f64, usize)> {
    let rates: Vec<f64> = readings
        .windows(2)
        .filter_map(|pair| {
            let [before, after] = pair else { return None };
            let nanoseconds = after.at_ns.checked_sub(before.at_ns).filter(|&elapsed| elapsed > 0)?;
            let bytes = after.bytes.checked_sub(before.bytes).filter(|&moved| moved > 0)?;
            Some(bytes as f64 * 1e9 / nanoseconds as f64)
        })
        .collect();
    (!rates.is_empty()).then(|| (rates.iter().sum::<f64>() / rates.len() as f64, rates.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A transfer of `bytes` at a steady rate from `start` to `end`, read every `step`.
    fn steady(start: u64, end: u64, bytes: u64, step: u64, readings: u64) -> Vec<CounterReading> {
        (0..readings)
            .map(|index| {
                let at_ns = index * step;
                let busy = at_ns.clamp(start, end) - start;
                CounterReading { at_ns, bytes: (u128::from(bytes) * u128::from(busy) / u128::from(end - start)) as u64 }
            })
            .collect()
    }

    #[test]
    fn a_transfer_that_fills_its_intervals_has_no_bias() {
        let (mean, n) =
            mean_of_instantaneous(&steady(2_000_000_000, 6_000_000_000, 4 << 20, 2_000_000_000, 6)).unwrap();
        assert_eq!(n, 2);
        assert!((mean - f64::from(1 << 20)).abs() < 1e-6);
    }

    #[test]
    fn intervals_that_are_busy_in_part_pull_the_mean_down() {
        // Busy from 1 s to 9 s, read every 2 s: five intervals, the first and the last half busy: 4/5 of the true rate.
        let (mean, n) =
            mean_of_instantaneous(&steady(1_000_000_000, 9_000_000_000, 8 << 20, 2_000_000_000, 7)).unwrap();
        assert_eq!(n, 5);
        assert!((mean / f64::from(1 << 20) - 0.8).abs() < 1e-9);
        assert!((relative_error(f64::from(1 << 20), mean).unwrap() - 1.25).abs() < 1e-9);
    }

    /// All phases of sampling of a transfer of 10 s every 3 s, in steps of 1 ms: the mean relative error is 1 + 3 / 10.
    #[test]
    fn the_bias_is_sampling_interval_over_duration() {
        let (duration, step) = (10_000_000_000, 3_000_000_000);
        let bias = SamplingBias::new(step as f64, duration as f64).unwrap();
        assert_eq!((bias.expected, bias.smallest, bias.largest), (1.3, 1.2, 1.5));
        let (mut sum, mut smallest, mut largest) = (0.0, f64::INFINITY, 0.0_f64);
        for phase in 0..3000 {
            let start = 6_000_000_000 + phase * 1_000_000;
            let readings = steady(start, start + duration, 10 << 20, step, 9);
            let (mean, _) = mean_of_instantaneous(&readings).unwrap();
            let error = relative_error(bandwidth_over(10 << 20, start, start + duration).unwrap(), mean).unwrap();
            sum += error;
            (smallest, largest) = (smallest.min(error), largest.max(error));
        }
        assert!((sum / 3000.0 - bias.expected).abs() < 1e-3, "{}", sum / 3000.0);
        // Counters hold whole bytes.
        assert!(
            (smallest - bias.smallest).abs() < 1e-6 && (largest - bias.largest).abs() < 1e-6,
            "{smallest} {largest}"
        );
        assert!(SamplingBias::new(0.0, 1.0).is_err() && SamplingBias::new(1.0, f64::NAN).is_err());
    }

    #[test]
    fn over_the_interval_a_steady_transfer_has_no_error() {
        assert_eq!(bandwidth_over(1 << 20, 5, 5), Err(StatsError::NotPositive { value: 0.0 }));
        assert!(bandwidth_over(1, 6, 5).is_err());
        assert_eq!(bandwidth_over(3 << 20, 0, 1_500_000_000).unwrap(), f64::from(2 << 20));
        let found = relative_error_over(&[(2.0, 2.0), (3.0, 3.0)], 0.95).unwrap();
        assert_eq!((found.value, found.bounds), (1.0, crate::Bounds::NoSpread));
        assert!(relative_error_over(&[(2.0, 0.0)], 0.95).is_err() && relative_error_over(&[], 0.95).is_err());
    }

    #[test]
    fn without_movement_there_is_no_mean() {
        assert_eq!(mean_of_instantaneous(&[]), None);
        assert_eq!(
            mean_of_instantaneous(&[CounterReading { at_ns: 1, bytes: 1 }, CounterReading { at_ns: 2, bytes: 1 }]),
            None
        );
    }

    #[test]
    fn no_ratio_without_two_bandwidths() {
        assert!(relative_error(1.0, 0.0).is_err());
        assert!(relative_error(f64::NAN, 1.0).is_err());
        assert_eq!(relative_error(f64::MAX, f64::MIN_POSITIVE), Err(StatsError::Range));
    }

    proptest! {
        #[test]
        fn any_readings_give_a_mean_of_positive_rates(readings: Vec<(u64, u64)>) {
            let readings: Vec<_> = readings.into_iter().map(|(at_ns, bytes)| CounterReading { at_ns, bytes }).collect();
            if let Some((mean, n)) = mean_of_instantaneous(&readings) {
                prop_assert!(mean > 0.0 && n > 0 && n < readings.len());
            }
        }
    }
}
