// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stamps: what a file looked like from outside when its content was last hashed.

use std::{fs, os::unix::fs::MetadataExt};

use serde::{Deserialize, Serialize};

/// Size and times of a file. Every write changes one of them (`ctime` cannot be set back), so a file that still
/// matches its stamp need not be hashed again; damage below the file system is for [`super::Cache::check`] to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stamp {
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        Self {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}
