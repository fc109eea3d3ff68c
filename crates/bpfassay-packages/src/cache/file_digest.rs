// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes files.

use std::path::Path;

use crate::{
    digest::Digest,
    error::{PackagesError, Result},
};

impl Digest {
    /// Hashes a regular file.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if the file cannot be read.
    pub fn of_file(path: &Path) -> Result<Self> {
        bpfassay_input::open(path).and_then(Self::of_reader).map_err(PackagesError::io("read", path))
    }
}
