// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves a known number of bytes on each path between a program and a file, to compare the tracer's
//! counts per path. No time is measured, so there is no metric.

use bpfassay_input::document::Reported;
use bpfassay_protocol::job::{DIRECTORY, SUMMARY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Case, CaseNames, Metric, OnTarget, ReadTable, TypeKey, WorkloadBehaviour, WorkloadKind, WorkloadTable, bundled,
};
use crate::Clock;

/// The bytes per path must be a multiple of this: a page, also suitable for `O_DIRECT`.
const UNIT: u64 = 4096;

/// Default bytes per path: 16 calls each.
const DEFAULT_SIZE: u64 = 256 << 10;

pub(super) const TYPES: &[TypeKey] = &[TypeKey {
    name: "io-paths",
    read: |table| {
        table.section.only(&["type", "name", "size"]);
        let kind = WorkloadKind::IoPaths(IoPathsSpec { size: size(table)? });
        Ok(ReadTable { kind, default_name: Some(table.type_name.to_owned()) })
    },
}];

fn size(table: &WorkloadTable<'_>) -> Result<u64, Reported> {
    table.section.or("size", DEFAULT_SIZE, |field| {
        let size = field.number(UNIT..=1 << 30)?;
        if !size.is_multiple_of(UNIT) {
            return Err(field.error(format!("{size} is not a multiple of {UNIT}")));
        }
        // Two files of that size exist at the same time.
        let what = format!("two files of {size} bytes");
        table.must_fit(size.saturating_mul(2), &what).map_err(|message| field.error(message))?;
        Ok(size)
    })
}

/// The amount of data on each path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IoPathsSpec {
    /// Bytes per path.
    pub size: u64,
}

impl WorkloadBehaviour for IoPathsSpec {
    fn cases(&self, name: &str, _: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        let arguments = ["io-paths", DIRECTORY, &self.size.to_string(), SUMMARY].map(str::to_owned);
        vec![(name.to_owned(), Ok(bundled(arguments).into()))]
    }

    fn metrics(&self, _: &CaseNames<'_>, _: Clock) -> Vec<Metric> {
        Vec::new()
    }

    fn bytes_per_path(&self) -> Option<u64> {
        Some(self.size)
    }
}
