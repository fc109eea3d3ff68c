// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relative error: bandwidth reported by IOR / bandwidth reported by the tool (1: exact).
//!
//! The tool's bandwidth has two forms, which are never mixed. The first one covers IOR's own
//! interval, from the open of the first file to the close of the last, by which IOR divides. The
//! second one is the mean of instantaneous bandwidths at a sampling interval, as in the CEEMS
//! study. Its bias is sampling interval / duration ([`mean_of_instantaneous`]).

use crate::StatsError;

/// Returns the ratio of `reported` by the workload to `traced` by the tool, both bandwidths in the
/// same unit.
///
/// The caller chooses the form of the tool's bandwidth: bytes over IOR's own interval, or the mean
/// of instantaneous bandwidths at a sampling interval ([`mean_of_instantaneous`]).
///
/// # Errors
/// [`StatsError`], if one of them or their ratio is not a positive finite number.
pub fn relative_error(reported: f64, traced: f64) -> Result<f64, StatsError> {
    for value in [reported, traced] {
        if !(value.is_finite() && value > 0.0) {
            return Err(StatsError::NotPositive { value });
        }
    }
    let ratio = reported / traced;
    if ratio.is_finite() && ratio > 0.0 { Ok(ratio) } else { Err(StatsError::Range) }
}

/// One reading of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterReading {
    /// Time of the reading, in nanoseconds.
    pub at_ns: u64,
    /// Bytes counted until that time.
    pub bytes: u64,
}

/// Returns the mean of instantaneous bandwidths, as in the CEEMS study, in bytes per second, and
/// the number of intervals. It averages the rates between successive readings over the intervals in
/// which the counter moved. `None` if there are none.
///
/// Bias: the first and the last such interval are only partly busy, so the mean is too low although
/// every byte is counted. A steady transfer of duration D, sampled every S, touches m sampling
/// intervals, over which its bytes are spread. The mean of rates is then bytes / (m · S) instead of
/// bytes / D, and the relative error is m · S / D.
///
/// If sampling and transfer are not synchronised, m is D / S + 1 on average. The relative error is
/// then 1 + S / D: too high by sampling interval / duration.
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

    /// Makes readings every `step` of a transfer of `bytes` at a steady rate from `start` to `end`.
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
        // The transfer is busy from 1 s to 9 s and read every 2 s. The first and the last of five
        // intervals are half busy: 4/5 of the true rate.
        let (mean, n) =
            mean_of_instantaneous(&steady(1_000_000_000, 9_000_000_000, 8 << 20, 2_000_000_000, 7)).unwrap();
        assert_eq!(n, 5);
        assert!((mean / f64::from(1 << 20) - 0.8).abs() < 1e-9);
        assert!((relative_error(f64::from(1 << 20), mean).unwrap() - 1.25).abs() < 1e-9);
    }

    /// A transfer of 10 s is sampled every 3 s, with all offsets of the samples in steps of 1 ms:
    /// the mean relative error is 1 + 3 / 10.
    #[test]
    fn the_bias_is_sampling_interval_over_duration() {
        let (duration, step) = (10_000_000_000, 3_000_000_000);
        let (mut sum, mut smallest, mut largest) = (0.0, f64::INFINITY, 0.0_f64);
        for phase in 0..3000 {
            let start = 6_000_000_000 + phase * 1_000_000;
            let readings = steady(start, start + duration, 10 << 20, step, 9);
            let (mean, _) = mean_of_instantaneous(&readings).unwrap();
            let error = relative_error(f64::from(1 << 20), mean).unwrap();
            sum += error;
            (smallest, largest) = (smallest.min(error), largest.max(error));
        }
        assert!((sum / 3000.0 - 1.3).abs() < 1e-3, "{}", sum / 3000.0);
        // Counters hold whole bytes.
        assert!((smallest - 1.2).abs() < 1e-6 && (largest - 1.5).abs() < 1e-6, "{smallest} {largest}");
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
