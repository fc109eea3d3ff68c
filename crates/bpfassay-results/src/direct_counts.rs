// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct cost of a probe configuration.

use bpfassay_stats::Summary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Figure, MissesPerCall, Role};

/// Reason for a missing direct cost if nothing was counted.
pub const NO_COUNTS: &str = "no plugin of QEMU counted instructions: it needs the instruction clock, and a workload with reads or writes by IOR";

/// Instructions on a probe's path, per call of the workload. They are counted one by one, unlike a
/// difference of totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// All instructions on the path, summed up over the runs.
    pub per_call: Summary,
    /// Extra instructions of the guest that are not on the path, compared with the baseline's run
    /// in the same round. They come from code that the probe disturbs, from the tool's own work,
    /// and from random variation. `per_call` plus this is the whole difference.
    pub elsewhere: Summary,
    /// User-space instructions of the tool's processes per call, such as reading buffers or maps
    /// while the workload runs. They are part of `elsewhere`. `None` in results made before this
    /// was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Figure<Summary>>,
    /// Mean kernel instructions over the runs at addresses outside any known function, except those
    /// on the path.
    pub unresolved: f64,
    /// Calls per run.
    pub calls: u64,
    /// The direct cost priced by a model of caches and branches; `None` without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced: Option<Priced>,
    /// The functions on the path, the largest first. Their sum is the mean of `per_call`.
    pub functions: Vec<DirectFunction>,
}

/// A function on a probe's path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectFunction {
    /// Function name as `NAME [MODULE]`, or the name of the BPF program. Trampolines have no names
    /// and are listed as `generated code`.
    pub function: String,
    /// Role of the function on the path.
    pub role: Role,
    /// Instructions per call of the workload, mean over the runs.
    pub per_call: f64,
    /// The function's misses in the model; `None` without a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<MissesPerCall>,
}

/// A direct cost by the model of the study ([`bpfassay_study::Model`]). It adds the misses that the
/// model found on the probe's path to the instructions, at the model's prices. The unit is the
/// instruction, as for the prices; it is not a cycle of any processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Priced {
    /// Instructions on the path plus priced misses, per call, summed up over the runs.
    pub per_call: Summary,
    /// Misses on the path per call, mean over the runs.
    pub misses: MissesPerCall,
    /// Instructions and misses of each role on the path, mean over the runs.
    pub roles: Vec<PricedRole>,
    /// Priced cost per call of the rest of the guest, beyond the baseline's run in the same round.
    /// It shows cache lines that the probe displaces, predictions that it disturbs, and random
    /// variation.
    pub elsewhere: Summary,
    /// Misses per call in the rest of the guest, mean over the runs. Negative if the baseline had
    /// more.
    pub elsewhere_misses: MissesPerCall,
}

/// The share of one role in a priced direct cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PricedRole {
    /// The role.
    pub role: Role,
    /// Instructions per call.
    pub instructions: f64,
    /// Misses per call.
    pub misses: MissesPerCall,
    /// Instructions plus priced misses, per call.
    pub per_call: f64,
}

impl Direct {
    /// Sums up the instructions per call of `role`.
    #[must_use]
    pub fn of(&self, role: Role) -> f64 {
        // `sum()` of nothing is -0, and would be printed as -0.
        self.functions
            .iter()
            .filter(|function| function.role == role)
            .fold(0.0, |sum, function| sum + function.per_call)
    }
}
