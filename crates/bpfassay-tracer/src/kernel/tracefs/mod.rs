// SPDX-License-Identifier: MIT OR Apache-2.0
//! tracefs, and the lists of probes in debugfs.

pub(crate) mod profile;
pub(crate) mod tracefs_lists;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Possible mount points of tracefs. Both are the same file system: debugfs mounts it
/// automatically.
const MOUNTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Returns the path of `file` in tracefs; `None` if tracefs is not mounted or does not have the
/// file.
pub(crate) fn path(file: impl AsRef<Path>) -> Option<PathBuf> {
    MOUNTS.iter().map(|mount| Path::new(mount).join(&file)).find(|path| path.exists())
}

/// Returns the id of an event, which is written `SUBSYSTEM/NAME`.
///
/// # Errors
/// `NotFound` if tracefs is not mounted or has no such event, `InvalidData` if the file does not
/// contain a number, or the kernel's error.
pub(crate) fn event_id(event: &str) -> io::Result<u64> {
    let file = format!("events/{event}/id");
    let missing = || match path("events") {
        Some(_) => format!("tracefs has no {file}"),
        None => "tracefs is not mounted".to_owned(),
    };
    number(&path(&file).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, missing()))?)
}

/// Reads the whole number in the file at `path`.
///
/// # Errors
/// `InvalidData` if the file does not contain a number, or the kernel's error.
pub(crate) fn number(path: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let wrong = |_| io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no number", path.display()));
    text.trim().parse().map_err(wrong)
}
