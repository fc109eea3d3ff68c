// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares direct costs: what changed, and in which functions.

use std::collections::BTreeMap;

use bpfassay_stats::gate_decision::Change;
use serde::{Deserialize, Serialize};

use crate::derive::direct::OF_SEEDS;
use bpfassay_results::{Direct, Figure, NO_COUNTS, Role};

/// Smaller differences are rounding, in instructions per call: half an instruction in each call.
const ROUNDING: f64 = 0.5;
/// The largest difference, as a share, between direct costs of one result that still allows the
/// claim that nothing changed (docs/explanation/direct-cost.md).
const ALIKE: f64 = 0.005;
/// Smaller differences of functions are not listed, in instructions per call.
const LISTED: f64 = 0.05;

/// The direct cost of a probe configuration in both results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectChange {
    /// Mean instructions per call over the runs of the base, and of the new results.
    pub per_call: [f64; 2],
    /// How far the runs of one result differ, in instructions per call: the larger of the two
    /// figures. If the seeds differ, at least 0.75 % of the direct cost.
    pub spread: f64,
    /// An increase or a decrease if the difference of the means exceeds the spread by more than
    /// half an instruction per call. Otherwise equivalent, or inconclusive if the runs of one
    /// result differ by more than 0.5 %.
    pub change: Change,
    /// Functions that differ by at least a twentieth of an instruction per call, by decreasing
    /// difference.
    pub functions: Vec<FunctionChange>,
}

/// A function on the path of a probe, in both results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionChange {
    /// See [`bpfassay_results::DirectFunction::function`].
    pub function: String,
    /// The function's role on the path.
    pub role: Role,
    /// Instructions per call in the base and in the new results; 0 if the function is not on the
    /// path.
    pub per_call: [f64; 2],
}

impl DirectChange {
    /// Returns new - base, in instructions per call.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.per_call[1] - self.per_call[0]
    }
}

impl FunctionChange {
    /// Returns new - base, in instructions per call.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.per_call[1] - self.per_call[0]
    }
}

/// Compares direct costs; `paired` tells that both results have the same seed. Returns `None` if
/// neither result has a direct cost.
pub(super) fn change(
    base: Option<&Figure<Direct>>,
    new: Option<&Figure<Direct>>,
    paired: bool,
) -> Option<Figure<DirectChange>> {
    base.or(new)?;
    let of = |figure: Option<&Figure<Direct>>, whose: &str| match figure {
        Some(Figure::NotMeasured(reason)) => format!("in {whose}: {reason}"),
        _ => format!("in {whose}: {NO_COUNTS}"),
    };
    Some(match (base.and_then(Figure::value), new.and_then(Figure::value)) {
        (Some(base), Some(new)) => Figure::Value(between(base, new, paired)),
        (None, _) => Figure::missing(of(base, "the base")),
        (_, None) => Figure::missing(of(new, "the new results")),
    })
}

fn between(base: &Direct, new: &Direct, paired: bool) -> DirectChange {
    let per_call = [base, new].map(|direct| direct.per_call.mean);
    let smaller = per_call[0].min(per_call[1]);
    let allowed = ALIKE * smaller;
    let range = [base, new].map(|direct| direct.per_call.max - direct.per_call.min);
    let of_runs = range[0].max(range[1]);
    let spread = if paired { of_runs } else { of_runs.max(OF_SEEDS * smaller) };
    let difference = per_call[1] - per_call[0];
    let change = match difference.abs() > spread + ROUNDING {
        true if difference > 0.0 => Change::Increase,
        true => Change::Decrease,
        false if of_runs <= allowed.max(ROUNDING) => Change::Equivalent,
        false => Change::Inconclusive,
    };
    DirectChange { per_call, spread, change, functions: functions(base, new) }
}

fn functions(base: &Direct, new: &Direct) -> Vec<FunctionChange> {
    let mut all = BTreeMap::<(Role, &str), [f64; 2]>::new();
    for (side, direct) in [base, new].into_iter().enumerate() {
        for function in &direct.functions {
            all.entry((function.role, &function.function)).or_default()[side] += function.per_call;
        }
    }
    let mut changes: Vec<FunctionChange> = all
        .into_iter()
        .map(|((role, function), per_call)| FunctionChange { function: function.to_owned(), role, per_call })
        .filter(|change| change.difference().abs() >= LISTED)
        .collect();
    changes.sort_by(|a, b| b.difference().abs().total_cmp(&a.difference().abs()));
    changes
}
