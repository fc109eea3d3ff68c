// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of the guest's programs as assets (`--from`).

use std::{io, path::Path};

use bpfassay_packages::apt::{Apt, AssetSource};

use crate::error::{Error, Result};

/// Reads the file `name` in `place`, of at most `limit` bytes. Returns `None` if there is no such
/// file.
///
/// # Errors
/// [`PackagesError::Io`] if the directory does not exist or the file cannot be read, and the errors
/// of downloading.
///
/// [`PackagesError::Io`]: bpfassay_packages::error::PackagesError::Io
pub(super) fn read(apt: &Apt<'_>, place: &AssetSource, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    match place {
        AssetSource::Directory(directory) => read_in(directory, name, limit),
        AssetSource::Url(url) => Ok(apt.read_url(&format!("{url}/{name}"), limit)?),
    }
}

/// Returns the path or URL of the file `name` in `place`, for messages.
pub(super) fn shown(place: &AssetSource, name: &str) -> String {
    format!("{place}/{name}")
}

fn read_in(directory: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    match bpfassay_input::read_beneath(directory, Path::new(name), limit) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::io("find", directory)(error)),
        Err(error) => Err(Error::io("read", directory.join(name))(error)),
    }
}
