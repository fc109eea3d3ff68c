// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs as files for other builders.

use std::{fs, path::Path};

use super::{Built, asset::replace};
use crate::error::{Error, Result};

/// Writes programs as executable files `DIRECTORY/ARCH/NAME`, as a spec for [`crate::compose`]
/// names them. Creates missing directories and replaces existing programs.
///
/// # Errors
/// `PackagesError::Io` if a program cannot be read or written.
pub fn write_files(built: &[Built], directory: &Path) -> Result<()> {
    for Built { payload, .. } in built {
        let directory = directory.join(payload.arch.name());
        fs::create_dir_all(&directory).map_err(Error::io("create", &directory))?;
        for (name, object) in payload.programs() {
            let content = fs::read(&object.path).map_err(Error::io("read", &object.path))?;
            replace(&directory.join(name), &content, 0o755)?;
        }
    }
    Ok(())
}
