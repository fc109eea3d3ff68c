// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fixed number of operations without files.

use bpfassay_input::document::{Field, Reported};
use bpfassay_protocol::job::{Better, Microbenchmark, MicrobenchmarkSummary, SUMMARY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Case, CaseNames, Metric, MetricInput, OnTarget, ReadTable, TypeKey, WorkloadBehaviour, WorkloadKind, WorkloadTable,
    bundled,
};
use crate::Clock;

/// Default and largest number of operations.
const DEFAULT_OPERATIONS: u64 = 10_000;
const MAX_OPERATIONS: u64 = 1_000_000_000;

/// The unit of the rate of operations.
const UNIT: &str = "operations/s";

/// Study files name the microbenchmark with the key `type`.
pub(super) const TYPES: &[TypeKey] = &[
    TypeKey { name: Microbenchmark::Futex.name(), read },
    TypeKey { name: Microbenchmark::Tcp.name(), read },
    TypeKey { name: Microbenchmark::SharedMemory.name(), read },
];

fn read(table: &WorkloadTable<'_>) -> Result<ReadTable, Reported> {
    let section = table.section;
    let microbenchmark: Microbenchmark = section.need("type", Field::name)?;
    let operations = section.or("operations", DEFAULT_OPERATIONS, |operations| operations.number(1..=MAX_OPERATIONS));
    let size = match microbenchmark.sizes() {
        None => {
            section.only(&["type", "name", "operations"]);
            Ok(0)
        }
        Some((least, most, default)) => {
            section.only(&["type", "name", "operations", "size"]);
            section.or("size", default, |size| size.number(least..=most))
        }
    };
    let kind = WorkloadKind::Microbenchmark(MicrobenchSpec { microbenchmark, operations: operations?, size: size? });
    Ok(ReadTable { kind, default_name: Some(table.type_name.to_owned()) })
}

/// The operation, and how often it is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MicrobenchSpec {
    /// The operation.
    pub microbenchmark: Microbenchmark,
    /// Number of operations.
    pub operations: u64,
    /// Bytes per operation; 0 if the operation has no size.
    pub size: u32,
}

impl WorkloadBehaviour for MicrobenchSpec {
    fn cases(&self, name: &str, _: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        let Self { microbenchmark, operations, size } = *self;
        let numbers = [operations, size.into()].map(|number| number.to_string());
        let args = ["microbenchmark".to_owned(), microbenchmark.to_string()].into_iter().chain(numbers);
        vec![(name.to_owned(), Ok(bundled(args.chain([SUMMARY.to_owned()])).into()))]
    }

    fn metrics(&self, _: &CaseNames<'_>, _: Clock) -> Vec<Metric> {
        vec![Metric::work(UNIT, Better::Higher)]
    }

    fn operations(&self) -> Option<u64> {
        Some(self.operations)
    }

    /// Operations per second, from before the first to after the last, by the workload's own clock.
    fn measure(&self, _: Clock, outcome: &MetricInput<'_>) -> Vec<(Metric, Result<f64, String>)> {
        let rate = match serde_json::from_str::<MicrobenchmarkSummary>(outcome.summary) {
            Ok(MicrobenchmarkSummary { elapsed_ns: 0, .. }) => {
                Err("the workload took no time by its own clock".to_owned())
            }
            Ok(summary) => Ok(summary.operations as f64 / (summary.elapsed_ns as f64 / 1e9)),
            Err(error) => Err(format!("the workload's summary cannot be read: {error}")),
        };
        vec![(Metric::work(UNIT, Better::Higher), rate)]
    }
}
