// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tries the kernel's features for eBPF tools. No time is measured, so there is no metric.

use bpfassay_protocol::job::{IorEngine, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, CaseNames, Metric, OnTarget, ReadTable, TypeKey, WorkloadBehaviour, WorkloadKind, ior};
use crate::Clock;

/// IOR options: 64 writes and 64 reads of 4 KiB by one rank, for each probe configuration to count.
const OPTIONS: [&str; 12] = ["-a", "POSIX", "-w", "-r", "-t", "4k", "-b", "256k", "-s", "1", "-i", "1"];

pub(super) const TYPES: &[TypeKey] = &[TypeKey {
    name: "kernel-features",
    read: |table| {
        table.section.only(&["type", "name"]);
        Ok(ReadTable {
            kind: WorkloadKind::KernelFeatures(FeaturesSpec {}),
            default_name: Some(table.type_name.to_owned()),
        })
    },
}];

/// Lists the kernel's features. Each probe configuration counts a few reads and writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeaturesSpec {}

impl WorkloadBehaviour for FeaturesSpec {
    fn cases(&self, name: &str, _: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        let ior = ior::run(IorEngine::Embedded, (1, 1), &OPTIONS.map(str::to_owned));
        vec![(name.to_owned(), Ok(Workload { features: true, ..ior }.into()))]
    }

    fn metrics(&self, _: &CaseNames<'_>, _: Clock) -> Vec<Metric> {
        Vec::new()
    }

    fn lists_features(&self) -> bool {
        true
    }

    fn counts_bytes(&self) -> bool {
        true
    }
}
