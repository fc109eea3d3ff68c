// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opening files that others could have created: only regular files are read, and opening never
//! blocks on a pipe.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, path::Path};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

/// Text of the error for something that is not a regular file.
pub(crate) const NO_FILE: &str = "it is no regular file";

/// Text of the error for something that is not a directory.
pub(crate) const NO_DIRECTORY: &str = "it is a symbolic link or a file, and no directory";

/// Text of the error for a file with another hard link.
const OTHER_NAME: &str = "it has another name, too";

/// Returns `file` if it has only one link.
pub(crate) fn of_one_name(file: File) -> io::Result<File> {
    match file.metadata()?.nlink() {
        0 | 1 => Ok(file),
        _ => Err(io::Error::other(OTHER_NAME)),
    }
}

/// Whether `error` means that the file has another hard link.
pub(crate) fn has_other_name(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == OTHER_NAME)
}

/// Whether `error` means that the path exists but is not a regular file.
pub(crate) fn is_no_file(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == NO_FILE)
}

/// Returns `file` if it is a regular file.
pub(crate) fn checked(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(NO_FILE)),
    }
}

/// Maps the errors for a symbolic link and for a pipe without a reader to [`NO_FILE`].
pub(crate) fn named(error: io::Error) -> io::Error {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    match number {
        Some(Errno::LOOP | Errno::NXIO) => io::Error::other(NO_FILE),
        _ => error,
    }
}

/// Opens `path`, which the user named, for reading. A symbolic link to a regular file is accepted.
///
/// # Errors
/// The errors of open(2), and one for which [`is_no_file`] holds: for directories, pipes, sockets
/// and devices.
pub(crate) fn regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(named)
        .map(File::from)
        .and_then(checked)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use rustix::fs::{CWD, Mode};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink(at("file"), at("link")).unwrap();
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();

        assert!(regular(&at("file")).is_ok() && regular(&at("link")).is_ok());
        for name in ["pipe", "."] {
            assert!(is_no_file(&regular(&at(name)).unwrap_err()), "{name}");
        }
        assert!(is_no_file(&regular(Path::new("/dev/zero")).unwrap_err()));
    }
}
