// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel offers to eBPF tools: no time is measured, so that there is no metric.

use bpfassay_protocol::job::Workload;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Kind, Metric, OnTarget, Read, Type, WorkloadKind};
use crate::Clock;

pub(super) const TYPES: &[Type] = &[Type {
    name: "kernel-features",
    read: |table| {
        table.section.only(&["type", "name"]);
        Ok(Read { kind: WorkloadKind::KernelFeatures(FeaturesSpec {}), default_name: Some(table.type_name.to_owned()) })
    },
}];

/// A list of the kernel's features, and for each probe configuration a handful of reads and writes that it has to count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeaturesSpec {}

impl Kind for FeaturesSpec {
    fn cases(&self, name: &str, _: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        vec![(name.to_owned(), Ok(Workload::KernelFeatures.into()))]
    }

    fn metrics(&self, _: Clock) -> Vec<Metric> {
        Vec::new()
    }
}
