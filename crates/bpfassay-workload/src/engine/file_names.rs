// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of test files, and of the directories of ranks.

use std::{ffi::CString, io};

use super::{EngineError, io::Io};
use bpfassay_ior::Options;

/// The parameters of a test file's name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// The rank that requests the name.
    pub(crate) rank: u32,
    /// The rank that owns the file.
    pub(crate) task: u32,
    /// The repetition, if each repetition has its own file.
    pub(crate) repetition: Option<u32>,
}

/// Returns the name of the file that `owner.task` uses. Makes the file's directory (`-u`) if it
/// does not exist.
pub(crate) fn test_file(io: &mut impl Io, options: &Options, owner: Owner) -> Result<CString, EngineError> {
    let error = |what: String| EngineError::Test { rank: owner.rank, what };
    let count = options.test_file.matches('@').count() + 1;
    let mut names = options.test_file.split(['@', '\n']).filter(|name| !name.is_empty());
    let which = if options.file_per_process { owner.task as usize % count } else { 0 };
    let root = names
        .nth(which)
        .ok_or_else(|| error(format!("`{}` has an empty file name: remove the superfluous @", options.test_file)))?;
    let mut name = root.to_owned();
    if options.file_per_process {
        if options.unique_dir {
            name = own_directory(io, root, owner)?;
        }
        name = format!("{name}.{:08}", owner.task);
    }
    if let Some(repetition) = owner.repetition {
        name = format!("{name}.{repetition}");
    }
    CString::new(name).map_err(|_| error("the name of the test file holds a zero byte".to_owned()))
}

/// Turns `/dir/file` into `/dir/RANK/file`. Checks and makes the directory in the same way as IOR.
fn own_directory(io: &mut impl Io, root: &str, owner: Owner) -> Result<String, EngineError> {
    // If no slash follows the first character, IOR uses that character as the directory.
    let cut = match root.rfind('/') {
        Some(at) => at + 1,
        None => root.chars().next().map_or(0, char::len_utf8),
    };
    let (parent, file) = root.split_at(cut);
    let directory = format!("{parent}{}", owner.task);
    let failed =
        |call, source: io::Error| EngineError::Call { rank: owner.rank, call, path: directory.clone(), source };
    let path = CString::new(directory.as_str()).map_err(|error| failed("mkdir", error.into()))?;
    if io.access(&path, libc::F_OK).is_err() {
        io.mkdir(&path, 0o700).map_err(|source| failed("mkdir", source))?;
    } else {
        for mode in [libc::R_OK, libc::W_OK, libc::X_OK] {
            io.access(&path, mode).map_err(|source| failed("access", source))?;
        }
    }
    Ok(format!("{directory}/{file}"))
}
