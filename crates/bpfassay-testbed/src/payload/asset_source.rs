// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of the guest's programs as assets (`--from`).

use std::{io, path::Path};

use crate::{
    Error, Result,
    apt::{Apt, AssetSource},
};

impl AssetSource {
    /// The file `name` in this source, which has `limit` bytes at most; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Io`] for a directory that does not exist and a file that cannot be read; those of downloading.
    pub(super) fn read(&self, apt: &Apt<'_>, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Directory(directory) => read_in(directory, name, limit),
            Self::Url(url) => apt.read_url(&format!("{url}/{name}"), limit),
        }
    }

    /// The path or URL of the file `name` in this source, for messages.
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
