// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rank: it leaves a file behind and becomes IOR.

use std::{
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use crate::{
    error::{Error, Result},
    power_off,
};

/// First argument of the process of a rank.
pub(super) const NAME: &str = "rank";

/// Leaves a file in `directory`, and executes `program` with `arguments`. Returns only on failure.
pub(super) fn main(directory: &str, program: &str, arguments: &[String]) -> ExitCode {
    // The file is empty: writing would be a system call that probes count.
    let path = Path::new(directory).join(std::process::id().to_string());
    let error = match File::create_new(&path) {
        Ok(_) => Error::Spawn { program: program.to_owned(), source: Command::new(program).args(arguments).exec() },
        Err(source) => Error::file("make", path.display().to_string())(source),
    };
    power_off::say(&bpfassay_protocol::with_causes(&error));
    ExitCode::from(127)
}

/// Counts the ranks that have left a file in `directory`.
///
/// # Errors
/// `directory` cannot be listed.
pub(super) fn count(directory: &str) -> Result<u32> {
    let entries = fs::read_dir(directory).map_err(Error::file("list", directory))?;
    Ok(u32::try_from(entries.count()).unwrap_or(u32::MAX))
}
