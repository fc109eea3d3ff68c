// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partition of a series into stretches that explains it best.

/// Penalty of a change, times ln n: a larger one gives fewer candidates. The tests decide
/// afterwards, so a few candidates too many do no harm.
const PENALTY: f64 = 3.0;

/// Returns the cuts of the best partition of `values`, whose noise has `variances`: the index of
/// the first point after each cut. The partition has the smallest sum of squared standardised
/// residuals and penalties of all partitions into stretches of at least `shortest` points.
pub(super) fn partition(values: &[f64], variances: &[f64], shortest: usize) -> Vec<usize> {
    let n = values.len();
    let sums = PrefixSums::new(values, variances);
    let penalty = PENALTY * (n.max(3) as f64).ln();
    // For the points before each index: the smallest cost, and the beginning of that partition's
    // last stretch.
    let mut best: Vec<(f64, usize)> = vec![(0.0, 0)];
    for end in 1..=n {
        let mut least = (f64::INFINITY, 0);
        for (start, &(before, _)) in best.iter().enumerate().take((end + 1).saturating_sub(shortest)) {
            let cost = before + sums.cost(start, end) + if start == 0 { 0.0 } else { penalty };
            if cost < least.0 {
                least = (cost, start);
            }
        }
        best.push(least);
    }
    let mut cuts = Vec::new();
    let mut end = n;
    while let Some(&(_, start)) = best.get(end).filter(|(_, start)| *start > 0) {
        cuts.push(start);
        end = start;
    }
    cuts.reverse();
    cuts
}

/// Sums over the points before each index, from which the cost of every stretch follows.
struct PrefixSums(Vec<[f64; 3]>);

impl PrefixSums {
    fn new(values: &[f64], variances: &[f64]) -> Self {
        // Values are relative to the first one, so that squares stay small.
        let center = values.first().copied().unwrap_or(0.0);
        let mut sum = [0.0; 3];
        let mut sums = vec![sum];
        for (value, variance) in values.iter().zip(variances) {
            let (value, weight) = (value - center, 1.0 / variance);
            for (slot, term) in sum.iter_mut().zip([weight, weight * value, weight * value * value]) {
                *slot += term;
            }
            sums.push(sum);
        }
        Self(sums)
    }

    /// Returns the sum of squared standardised residuals of the points from `start` to before
    /// `end`.
    fn cost(&self, start: usize, end: usize) -> f64 {
        let (Some(from), Some(to)) = (self.0.get(start), self.0.get(end)) else { return f64::INFINITY };
        let (weight, sum, squares) = (to[0] - from[0], to[1] - from[1], to[2] - from[2]);
        squares - sum * sum / weight
    }
}

/// Returns the cut at which two levels explain most of `values`, whose noise has `deviations`.
pub(super) fn best_cut(values: &[f64], deviations: &[f64]) -> usize {
    let weighted = || values.iter().zip(deviations).map(|(value, deviation)| (value, 1.0 / (deviation * deviation)));
    let total: f64 = weighted().map(|(_, weight)| weight).sum();
    let mean = weighted().map(|(value, weight)| weight * value).sum::<f64>() / total;
    let (mut inside, mut sum, mut best) = (0.0, 0.0, (1, f64::NEG_INFINITY));
    for (index, (value, weight)) in weighted().enumerate().take(values.len().saturating_sub(1)) {
        inside += weight;
        sum += weight * (value - mean);
        let explained = sum * sum / (inside * (total - inside));
        if explained > best.1 {
            best = (index + 1, explained);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Generator;

    /// An independent implementation computes the cost of every partition of ten points.
    #[test]
    fn no_partition_is_better() {
        let mut generator = Generator::new(85);
        for shortest in [1, 2, 3] {
            for _ in 0..20 {
                let value = |index: usize, noise: f64| 0.02 * noise + if (4..7).contains(&index) { 0.1 } else { 0.0 };
                let values: Vec<f64> = (0..10).map(|index| value(index, generator.normal())).collect();
                let variances: Vec<f64> = (0..10).map(|_| 1e-4 * (1.0 + 9.0 * generator.uniform())).collect();
                let of_stretch = |start: usize, end: usize| {
                    let weights: f64 = variances[start..end].iter().map(|variance| 1.0 / variance).sum();
                    let weighted = values[start..end].iter().zip(&variances[start..end]);
                    let mean = weighted.clone().map(|(value, variance)| value / variance).sum::<f64>() / weights;
                    weighted.map(|(value, variance)| (value - mean).powi(2) / variance).sum::<f64>()
                };
                let cost = |cuts: &[usize]| {
                    let ends = [&[0], cuts, &[10]].concat();
                    let stretches: f64 = ends.windows(2).map(|pair| of_stretch(pair[0], pair[1])).sum();
                    stretches + PENALTY * 10.0_f64.ln() * cuts.len() as f64
                };
                let is_long =
                    |cuts: &[usize]| [&[0], cuts, &[10]].concat().windows(2).all(|pair| pair[1] - pair[0] >= shortest);
                let all =
                    (0..1_u32 << 9).map(|set| (1..10).filter(|cut| set >> (cut - 1) & 1 == 1).collect::<Vec<usize>>());
                let least = all.filter(|cuts| is_long(cuts)).map(|cuts| cost(&cuts)).fold(f64::INFINITY, f64::min);
                let found = partition(&values, &variances, shortest);
                assert!(is_long(&found) && (cost(&found) / least - 1.0).abs() < 1e-9, "{found:?}");
            }
        }
    }
}
