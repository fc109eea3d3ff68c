// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct cost of a probe configuration.

use bpfassay_stats::Summary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Figure, MissesPerCall, Role};

/// Why there is no direct cost where nothing was counted.
pub const NO_COUNTS: &str = "no plugin of QEMU counted instructions: it needs the instruction clock, and a workload with reads or writes by IOR";

/// Instructions on a probe's path, per call of the workload: counted one by one, and not a
/// difference of totals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Direct {
    /// All of them, over the runs.
    pub per_call: Summary,
    /// Instructions of the guest beyond those of the baseline's run in the same round that are not
    /// on the path, over the runs: where the probe disturbs other code, what its tool does
    /// meanwhile, and what varies by itself. `per_call` and this are the whole difference.
    pub elsewhere: Summary,
    /// Instructions of user space of the tool's processes per call, over the runs: what reads its
    /// buffers or its maps while the workload runs. They are part of `elsewhere`. `None` in results
    /// from before they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<Figure<Summary>>,
    /// Instructions of the kernel at addresses that no function has, and that are not on the path;
    /// the mean over the runs.
    pub unresolved: f64,
    /// Calls per run.
    pub calls: u64,
    /// The same priced by a model of caches and branches; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced: Option<Priced>,
    /// The functions on the path, the largest first; their sum is the mean of `per_call`.
    pub functions: Vec<DirectFunction>,
}

/// A function on a probe's path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectFunction {
    /// The function, `NAME [MODULE]`; of a BPF program its name; `generated code` for trampolines,
    /// which have no names.
    pub function: String,
    /// What it does.
    pub role: Role,
    /// Its instructions per call of the workload, the mean over the runs.
    pub per_call: f64,
    /// The findings of a model of caches and branches about them; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<MissesPerCall>,
}

/// A direct cost by the model of the study ([`bpfassay_study::Model`]): what it found on the
/// probe's path, beside the instructions, and what all of it costs by the model's prices. The unit
/// is that of the prices, instructions: no cycles of any processor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Priced {
    /// Instructions on the path and the prices of what was found there, per call, over the runs.
    pub per_call: Summary,
    /// The cost on the path, per call, the mean over the runs.
    pub misses: MissesPerCall,
    /// The parts of both, the mean over the runs, for the roles that the path has.
    pub roles: Vec<PricedRole>,
    /// The same of the rest of the guest, beyond the baseline's run in the same round, over the
    /// runs: what the probe displaces from caches and where it misleads prediction, and what varies
    /// by itself.
    pub elsewhere: Summary,
    /// What was found there, per call, the mean over the runs; less than nothing where the baseline
    /// had more.
    pub elsewhere_misses: MissesPerCall,
}

/// The part of a role in a priced direct cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PricedRole {
    /// The role.
    pub role: Role,
    /// Its instructions per call.
    pub instructions: f64,
    /// What was found of them, per call.
    pub misses: MissesPerCall,
    /// Its instructions and the prices of what was found, per call.
    pub per_call: f64,
}

impl Direct {
    /// The part of `role`.
    #[must_use]
    pub fn of(&self, role: Role) -> f64 {
        // A sum of nothing is -0, which is shown as it is.
        self.functions
            .iter()
            .filter(|function| function.role == role)
            .fold(0.0, |sum, function| sum + function.per_call)
    }
}
