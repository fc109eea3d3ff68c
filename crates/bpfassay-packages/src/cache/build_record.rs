// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records: small facts about known inputs, as JSON.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};

use super::{Cache, CacheAccess, create_parent};
use crate::{
    digest::Digest,
    error::{PackagesError, Result},
};

/// Limit on a record, in bytes.
const MAX_RECORD: u64 = 64 << 20;

impl Cache {
    fn record_path(&self, kind: &str, key: &Digest) -> PathBuf {
        self.root.join("records").join(kind).join(format!("{key}.json"))
    }

    /// Returns the fact recorded for `key`, if there is one. A record that cannot be parsed is
    /// reported, removed, and counts as absent.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if it cannot be read, or [`PackagesError::Damaged`] if a damaged one
    /// cannot be removed.
    pub fn recorded<T: DeserializeOwned>(&self, kind: &str, key: &Digest) -> Result<Option<T>> {
        let path = self.record_path(kind, key);
        let text = match bpfassay_input::read(&path, MAX_RECORD) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if self.may_not_read(&path, &error) => return Ok(None),
            Err(source) => return Err(PackagesError::Io { action: "read", path, source }),
        };
        match serde_json::from_slice(&text) {
            Ok(fact) => Ok(Some(fact)),
            Err(error) => {
                self.discard(&path, &error.to_string())?;
                Ok(None)
            }
        }
    }

    /// Records `fact` for `key`, and replaces an earlier record.
    ///
    /// # Errors
    /// [`PackagesError::DiskFull`] if there is no space, or [`PackagesError::Io`].
    pub fn record<T: Serialize>(&self, kind: &str, key: &Digest, fact: &T) -> Result<()> {
        self.write_small(&self.record_path(kind, key), fact)
    }

    /// Writes a small JSON file atomically. Writes nothing in a read-only cache.
    ///
    /// # Errors
    /// - [`PackagesError::DiskFull`]: there is no space.
    /// - [`PackagesError::Io`]: the file cannot be written or renamed, or JSON cannot represent
    ///   `value`.
    pub fn write_small<T: Serialize>(&self, path: &Path, value: &T) -> Result<()> {
        if self.access == CacheAccess::ReadOnly {
            tracing::debug!("not written, because the cache may only be read: {}", path.display());
            return Ok(());
        }
        let text = serde_json::to_vec(value).map_err(|error| PackagesError::io("write", path)(error.into()))?;
        create_parent(path)?;
        let session = self.session()?;
        let tmp = session.path();
        let needed = text.len() as u64;
        let mut file = tempfile::Builder::new()
            .prefix("small-")
            .tempfile_in(tmp)
            .map_err(|error| self.write_error("a record", needed, tmp, error))?;
        file.write_all(&text).map_err(|error| self.write_error("a record", needed, path, error))?;
        // Other users can read the cache, if its directories let them.
        let mode = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(mode).map_err(PackagesError::io("open up", path))?;
        file.persist(path).map_err(|error| self.write_error("a record", needed, path, error.error))?;
        Ok(())
    }
}
