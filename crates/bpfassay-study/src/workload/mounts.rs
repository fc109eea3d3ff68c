// SPDX-License-Identifier: MIT OR Apache-2.0
//! A file on the file system under test and on each of the study's further mounts, written and read
//! again. What a tracer counts on each is compared. No time is measured, so there is no metric.

use bpfassay_protocol::job::{DIRECTORY, MountOf, SUMMARY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, Kind, Metric, Named, OnTarget, Read, Type, WorkloadKind, bundled};
use crate::Clock;

/// What the bytes must be a multiple of.
const UNIT: u64 = 4096;

/// Bytes on the first mount where a study gives none: two calls.
const DEFAULT_SIZE: u64 = 20 << 10;

pub(super) const TYPES: &[Type] = &[Type {
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
        Ok(Read { kind, default_name: Some(table.type_name.to_owned()) })
    },
}];

/// How much goes to each mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MountsSpec {
    /// Bytes on the file system under test; on each further mount once more of them than on the one
    /// before.
    pub size: u64,
}

impl Kind for MountsSpec {
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        if on.mounts.is_empty() {
            return vec![(name.to_owned(), Err("there are no mounts beside the file system under test".to_owned()))];
        }
        let arguments = ["mounts", DIRECTORY, &self.size.to_string(), SUMMARY].map(str::to_owned);
        let mounts = on.mounts.iter().map(|mount| mount.path.clone());
        vec![(name.to_owned(), Ok(bundled(arguments.into_iter().chain(mounts)).into()))]
    }

    fn metrics(&self, _: &Named<'_>, _: Clock) -> Vec<Metric> {
        Vec::new()
    }

    fn counts_bytes(&self) -> bool {
        true
    }

    fn has_mounts_as_phases(&self) -> bool {
        true
    }
}
