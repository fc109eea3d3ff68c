// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of the guest's programs as assets (`--from`).

use std::{io, path::Path};

use crate::{
    apt::{Apt, AssetSource},
    error::{Error, Result},
};

impl AssetSource {
    /// Reads the file `name` in this source, of at most `limit` bytes. Returns `None` if there is
    /// no such file.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory does not exist or the file cannot be read, and the errors of
    /// downloading.
    pub(super) fn read(&self, apt: &Apt<'_>, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Directory(directory) => read_in(directory, name, limit),
            Self::Url(url) => apt.read_url(&format!("{url}/{name}"), limit),
        }
    }

    /// Returns the path or URL of the file `name` in this source, for messages.
    pub(super) fn of_file(&self, name: &str) -> String {
        format!("{self}/{name}")
    }
}

fn read_in(directory: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    match bpfassay_input::read_beneath(directory, Path::new(name), limit) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::io("find", directory)(error)),
        Err(error) => Err(Error::io("read", directory.join(name))(error)),
    }
}
