// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and attaches tools, and does nothing else. Shows whether a tool starts, and how the
//! verifier and the JIT compiler treat its programs. The tool's reports are not compared. No time
//! is measured, so there is no metric.

use bpfassay_input::document::Field;
use bpfassay_protocol::job::{IorEngine, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, CaseNames, Metric, OnTarget, ReadTable, TypeKey, WorkloadBehaviour, WorkloadKind, ior};
use crate::Clock;

/// The smallest workload for a guest: one write of 4 KiB.
const OPTIONS: [&str; 7] = ["-a", "POSIX", "-w", "-t", "4k", "-b", "4k"];

pub(super) const TYPES: &[TypeKey] = &[TypeKey {
    name: "load",
    read: |table| {
        table.section.only(&["type", "name", "capabilities"]);
        let capabilities = table.section.or("capabilities", false, Field::boolean);
        let spec = LoadSpec { capabilities: capabilities? };
        Ok(ReadTable { kind: WorkloadKind::Load(spec), default_name: Some(table.type_name.to_owned()) })
    },
}];

/// Performs one write, because every run needs a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSpec {
    /// Whether guests look for the capabilities with which each tool starts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capabilities: bool,
}

impl WorkloadBehaviour for LoadSpec {
    fn cases(&self, name: &str, _: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        let write = ior::run(IorEngine::Embedded, (1, 1), &OPTIONS.map(str::to_owned));
        vec![(name.to_owned(), Ok(Workload { capabilities: self.capabilities, ..write }.into()))]
    }

    fn metrics(&self, _: &CaseNames<'_>, _: Clock) -> Vec<Metric> {
        Vec::new()
    }

    fn compares_tools(&self) -> bool {
        false
    }

    fn finds_capabilities(&self) -> bool {
        self.capabilities
    }
}
