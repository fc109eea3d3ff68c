// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes and reads a file on the file system under test and on each additional mount, to compare
//! the tracer's counts per mount. No time is measured, so there is no metric.

use bpfassay_protocol::job::{DIRECTORY, MountOf, SUMMARY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, CaseNames, Metric, OnTarget, ReadTable, TypeKey, WorkloadBehaviour, WorkloadKind, bundled};
use crate::Clock;

/// The bytes must be a multiple of this.
const UNIT: u64 = 4096;

/// Default bytes on the first mount: two calls, of 16 KiB and 4 KiB.
const DEFAULT_SIZE: u64 = 20 << 10;

pub(super) const TYPES: &[TypeKey] = &[TypeKey {
    name: "mounts",
    read: |table| {
        table.section.only(&["type", "name", "size"]);
        let size = table.section.or("size", DEFAULT_SIZE, |field| {
            let size = field.number(UNIT..=1 << 24)?;
            if !size.is_multiple_of(UNIT) {
                return Err(field.error(format!("{size} is not a multiple of {UNIT}")));
            }
            if table.mounts.is_empty() {
                return Err(field.error("the study has no `[[mounts]]`"));
            }
            // The file on the last mount is the largest.
            let most = size.saturating_mul(table.mounts.len() as u64 + 1);
            let what = format!("a file of {most} bytes");
            table.must_fit(most, &what).map_err(|message| field.error(message))?;
            let sizes = table.mounts.iter().filter_map(|mount| match mount.of {
                MountOf::Tmpfs(size_mib) => Some((size_mib, &mount.path)),
                MountOf::Bind(_) => None,
            });
            match sizes.min().filter(|(size_mib, _)| most > u64::from(*size_mib) << 20) {
                None => Ok(size),
                Some((size_mib, path)) => {
                    Err(field.error(format!("{what} does not fit into the {size_mib} MiB of {path}")))
                }
            }
        });
        let kind = WorkloadKind::Mounts(MountsSpec { size: size? });
        Ok(ReadTable { kind, default_name: Some(table.type_name.to_owned()) })
    },
}];

/// The amount of data on each mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MountsSpec {
    /// Bytes on the file system under test. The n-th additional mount has n + 1 times as many.
    pub size: u64,
}

impl WorkloadBehaviour for MountsSpec {
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        if on.mounts.is_empty() {
            return vec![(name.to_owned(), Err("there are no mounts beside the file system under test".to_owned()))];
        }
        let arguments = ["mounts", DIRECTORY, &self.size.to_string(), SUMMARY].map(str::to_owned);
        let mounts = on.mounts.iter().map(|mount| mount.path.clone());
        vec![(name.to_owned(), Ok(bundled(arguments.into_iter().chain(mounts)).into()))]
    }

    fn metrics(&self, _: &CaseNames<'_>, _: Clock) -> Vec<Metric> {
        Vec::new()
    }

    fn counts_bytes(&self) -> bool {
        true
    }

    fn has_mounts_as_phases(&self) -> bool {
        true
    }
}
