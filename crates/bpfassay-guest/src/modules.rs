// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inserts kernel modules.

use std::{ffi::c_int, fs::File, path::Path};

use rustix::{io::Errno, system::finit_module};

use crate::error::{Error, Result};

/// `MODULE_INIT_COMPRESSED_FILE` of include/uapi/linux/module.h (5.17 and later).
const COMPRESSED: c_int = 4;

/// Inserts the module in `path`. A module that has been inserted already is not an error.
pub(crate) fn insert(path: &str) -> Result<()> {
    let file = File::open(path).map_err(Error::file("open", path))?;
    match finit_module(&file, c"", flags(path)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(Error::file("insert module", path)(error)),
    }
}

/// Returns the flags of finit_module(2): the kernel decompresses compressed modules.
fn flags(path: &str) -> c_int {
    let compressed = Path::new(path).extension().is_some_and(|end| end == "xz" || end == "gz" || end == "zst");
    if compressed { COMPRESSED } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_modules_are_recognised_by_their_name() {
        assert_eq!(flags("/bpfassay/modules/nfsd.ko"), 0);
        assert_eq!(flags("/bpfassay/modules/nfsd.ko.xz"), COMPRESSED);
        assert_eq!(flags("/bpfassay/modules/nfsd.ko.zst"), COMPRESSED);
    }

    #[test]
    fn a_missing_module_is_named() {
        let error = insert("/nonexistent/nfsd.ko").unwrap_err();
        assert_eq!(error.to_string(), "cannot open /nonexistent/nfsd.ko");
    }
}
