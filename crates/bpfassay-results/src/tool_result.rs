// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of a tool under test in a cell: findings, compared figures, programs in the kernel.

use bpfassay_protocol::{privileges::CapabilitySearch, tool_job::BpfObject};
use bpfassay_tool::finding::{Compared, FindingResult, FindingStatus, Kind, NO_SIGN, NotCompared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The findings about a tool that a tool file describes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolResult {
    /// Every kind of fault: found in a run, looked for and not found, or not looked for and why.
    pub findings: Vec<FindingResult>,
    /// The tool's figures, each with what really happened. Both come from the last run with the
    /// bundled tracer as reference tracer. Requested bytes come from the last run whose reference
    /// tracer counts requested bytes.
    pub figures: Vec<Compared>,
    /// Figures in the tool file that no run could compare. Filled if the study compares tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<NotCompared>,
    /// The run behind `figures`: the one with returned bytes, or else the one with requested bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The tool's programs in the kernel, from the first measured run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loaded: Option<Loaded>,
    /// The capabilities with which the tool starts, if they were looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<CapabilitySearch>,
}

impl ToolResult {
    /// Tells why nothing shows that the tool loaded; `None` if something shows whether it did.
    #[must_use]
    pub fn not_seen_to_load(&self) -> Option<&str> {
        self.not_evaluated(Kind::DoesNotLoad)
    }

    /// Names the programs of a loaded tool that only a loader of their own can attach; `None` if
    /// there are none.
    #[must_use]
    pub fn left_to_a_loader(&self) -> Option<&str> {
        self.not_evaluated(Kind::DoesNotAttach).filter(|reason| *reason != NO_SIGN)
    }

    fn not_evaluated(&self, kind: Kind) -> Option<&str> {
        self.findings.iter().find_map(|finding| match &finding.status {
            FindingStatus::NotEvaluated { reason } if finding.kind == kind => Some(&**reason),
            _ => None,
        })
    }
}

/// A tool that was ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// Time from the tool's start until it was ready, in nanoseconds of the guest's clock.
    pub ready_ns: u64,
    /// Time for creating maps and loading programs, in the same unit. `None` unless the loader
    /// reports it; only the loader of bare objects does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ns: Option<u64>,
    /// Time from the signal until the tool had ended, in the same unit; `None` if it was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_ns: Option<u64>,
    /// Memory that the kernel accounts to all maps of the tool, in bytes; `None` if it does not
    /// report that of each map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_bytes: Option<u64>,
    /// Memory of the tool's processes (`VmRSS`) in bytes: the larger of the readings when the tool
    /// was ready and just before it was stopped; `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// CPU time of the tool's processes; `None` if it was not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processor: Option<ToolProcessor>,
    /// Number of events that the tool reported; `None` for a tool that reports sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// The maps whose keys were counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<MapFill>,
    /// The programs as the kernel held them when the tool was ready.
    pub programs: Vec<BpfObject>,
}

/// CPU time of a tool's processes, by the guest's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolProcessor {
    /// CPU time in microseconds while the guest was idle.
    pub idle_us: u64,
    /// How long the guest was idle, in nanoseconds.
    pub idle_ns: u64,
    /// CPU time in microseconds from then until just before the tool was stopped.
    pub working_us: u64,
}

/// How full a map of a tool was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapFill {
    /// The kernel's name of the map, up to 15 bytes.
    pub name: String,
    /// The largest number of keys that was counted.
    pub most_keys: u32,
    /// The largest number of keys that the map can have.
    pub max_entries: u32,
}

impl Loaded {
    /// Returns the programs in the order in which they were loaded.
    #[must_use]
    pub fn programs_by_id(&self) -> Vec<&BpfObject> {
        let mut programs: Vec<&BpfObject> = self.programs.iter().collect();
        programs.sort_by_key(|program| program.id);
        programs
    }
}
