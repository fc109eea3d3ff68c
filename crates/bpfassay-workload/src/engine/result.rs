// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of one test.

use super::phase::Stonewall;

/// Times of one phase over all ranks, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figures {
    /// Time from the beginning of the first open to the end of the last close.
    pub(crate) total_s: f64,
    pub(crate) open_s: f64,
    pub(crate) transfer_s: f64,
    pub(crate) close_s: f64,
    /// The smallest mean time of a transfer over ranks; NaN without transfers.
    pub(crate) latency_s: f64,
}

/// One phase of one repetition.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PhaseResult {
    /// Bytes of all ranks.
    pub(crate) moved: u64,
    pub(crate) figures: Figures,
    pub(crate) stonewall: Option<Stonewall>,
}

#[derive(Debug, Default)]
pub(crate) struct TestResult {
    /// Points by repetition. A phase that the time limit left out is missing.
    pub(crate) writes: Vec<(u32, PhaseResult)>,
    pub(crate) reads: Vec<(u32, PhaseResult)>,
    /// Number of transfers with wrong data.
    pub(crate) errors: u64,
    /// Transfers of the first write, for the stonewalling status file.
    pub(crate) first_write_pairs: u64,
}

/// Smallest, largest and mean value, and population standard deviation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ResultSpread {
    pub(crate) max: f64,
    pub(crate) min: f64,
    pub(crate) mean: f64,
    pub(crate) deviation: f64,
}

impl TestResult {
    pub(crate) fn add(&mut self, is_write: bool, repetition: u32, point: PhaseResult) {
        let points = if is_write { &mut self.writes } else { &mut self.reads };
        points.push((repetition, point));
    }

    pub(crate) fn points(&self, is_write: bool) -> &[(u32, PhaseResult)] {
        if is_write { &self.writes } else { &self.reads }
    }
}

/// Returns bytes moved and total time of every repetition. Repetitions that the time limit left out
/// have 0 and 0, as in IOR.
pub(crate) fn rates(points: &[(u32, PhaseResult)], repetitions: u32) -> Vec<(f64, f64)> {
    (0..repetitions)
        .map(|repetition| {
            points
                .iter()
                .find(|(of, _)| *of == repetition)
                .map_or((0.0, 0.0), |(_, point)| (point.moved as f64, point.figures.total_s))
        })
        .collect()
}

/// Computes the spread of `amount / time`.
pub(crate) fn spread(rates: &[(f64, f64)]) -> ResultSpread {
    let values: Vec<f64> = rates.iter().map(|(amount, time)| amount / time).collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (mean - value).powi(2)).sum::<f64>() / count;
    ResultSpread {
        max: values.iter().copied().fold(f64::NAN, f64::max),
        min: values.iter().copied().fold(f64::NAN, f64::min),
        mean,
        deviation: variance.sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_that_of_the_population() {
        let ResultSpread { max, min, mean, deviation } = spread(&[(8.0, 2.0), (8.0, 1.0)]);
        assert_eq!((max, min, mean, deviation), (8.0, 4.0, 6.0, 2.0));
    }

    #[test]
    fn a_repetition_left_out_is_no_figure() {
        let ResultSpread { max, min, mean, deviation } = spread(&[(8.0, 2.0), (0.0, 0.0)]);
        assert_eq!((max, min), (4.0, 4.0));
        assert!(mean.is_nan() && deviation.is_nan());
    }
}
