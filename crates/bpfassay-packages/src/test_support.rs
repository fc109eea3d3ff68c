// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for tests of this crate and of others.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "the helpers of tests are not test functions themselves"
)]

pub mod package;
#[cfg(test)]
pub(crate) mod server;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Returns whether a test lacks `program` of Debian's `package`. ci/test installs the packages, and
/// sets a variable that makes a missing program an error.
///
/// # Panics
/// If the program is required and missing.
pub fn lacks(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok() {
        return false;
    }
    let required = std::env::var("BPFASSAY_TEST_PROGRAMS").is_ok_and(|value| value == "required");
    assert!(!required, "there is no {program}: install {package}");
    eprintln!("skipped: there is no {program}: install {package}");
    true
}

/// Changes one byte and restores the modification time, as a repair tool or a careless copy can.
pub fn damage(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let before = changed(path);
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
    // The clock of a file system can stand still for some milliseconds, which hides a change of
    // ctime.
    let file = fs::File::options().write(true).open(path).unwrap();
    while changed(path) == before {
        file.set_modified(modified).unwrap();
    }
}

fn changed(path: &Path) -> (i64, i64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.ctime(), metadata.ctime_nsec())
}

/// Lists the entries of `tmp` in the cache at `root`, without the marks of its users.
pub fn left_in_tmp(root: &Path) -> Vec<PathBuf> {
    let entries =
        |path: &Path| -> Vec<PathBuf> { fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let (sessions, mut left): (Vec<_>, Vec<_>) =
        entries(&root.join("tmp")).into_iter().partition(|path| path.join("owner").is_file());
    left.extend(sessions.iter().flat_map(|path| entries(path)).filter(|path| !path.ends_with("owner")));
    left
}

/// A file system of 4 MiB for tests of a full disk, if mounting is allowed.
pub struct Small(tempfile::TempDir);

impl Small {
    pub fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("bpfassay-test", directory.path(), "tmpfs", flags, Some(c"size=4m")) {
            Ok(()) => Some(Self(directory)),
            Err(error) => {
                eprintln!("skipped: a file system to fill cannot be mounted here ({error}); run this test as root");
                None
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}
