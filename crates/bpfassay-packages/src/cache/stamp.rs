// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stamps: size and times of a file when its content was last hashed.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt},
    path::Path,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use super::Cache;
use crate::{
    digest::Digest,
    error::{PackagesError, Result},
};

/// Kind of the cache record that maps a path to stamp and digest.
const RECORD: &str = "file";

/// How long a file must be unchanged before its stamp is trusted. File times have a coarse
/// resolution: a second write within one step does not show.
const SETTLED: Duration = Duration::from_secs(2);

impl Cache {
    /// Returns the digest of a file outside the cache, such as QEMU. Its content is hashed once,
    /// and again when its size or times change.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the file or the record cannot be read, and errors of writing the
    /// record.
    pub fn digest_of(&self, file: &Path) -> Result<Digest> {
        let key = Digest::of(file.as_os_str().as_bytes());
        let metadata = || fs::metadata(file).map_err(PackagesError::io("read", file));
        let before = metadata()?;
        let stamp = Stamp::of(&before);
        if let Some((known, digest)) = self.recorded::<(Stamp, Digest)>(RECORD, &key)?
            && known == stamp
        {
            return Ok(digest);
        }
        let digest = Digest::of_file(file)?;
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(before.ctime().try_into().unwrap_or(0));
        let has_settled = SystemTime::now().duration_since(changed).is_ok_and(|age| age >= SETTLED);
        if has_settled && Stamp::of(&metadata()?) == stamp {
            self.record(RECORD, &key, &(stamp, digest))?;
        }
        Ok(digest)
    }
}

/// Size and times of a file. Every write changes one of them (`ctime` cannot be set back): a file
/// that matches its stamp is not hashed again. [`super::Cache::check`] finds damage below the file
/// system.
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
