// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that others may have made: only regular ones are read, and nothing waits for the other end
//! of a pipe.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, path::Path};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

/// What a file is that is not regular: the text of the error that [`regular`] and its kind give.
pub(crate) const NO_FILE: &str = "it is no regular file";

/// The text of the error for something in the place of a directory.
pub(crate) const NO_DIRECTORY: &str = "it is a symbolic link or a file, and no directory";

/// What a file has that is also elsewhere.
const OTHER_NAME: &str = "it has another name, too";

/// `file`, if nothing else has it.
pub(crate) fn of_one_name(file: File) -> io::Result<File> {
    match file.metadata()?.nlink() {
        0 | 1 => Ok(file),
        _ => Err(io::Error::other(OTHER_NAME)),
    }
}

/// Whether `error` means that the file has another name.
pub(crate) fn has_other_name(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == OTHER_NAME)
}

/// Whether `error` means that the path exists and is no regular file.
pub(crate) fn is_no_file(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == NO_FILE)
}

/// `file`, if it is a regular one.
pub(crate) fn checked(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(NO_FILE)),
    }
}

/// A pipe without a reader and a symbolic link are no regular files either.
pub(crate) fn named(error: io::Error) -> io::Error {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    match number {
        Some(Errno::LOOP | Errno::NXIO) => io::Error::other(NO_FILE),
        _ => error,
    }
}

/// Opens `path`, which the user has named, for reading. A symbolic link to a regular file will do.
///
/// # Errors
/// Those of opening; [`is_no_file`] for directories, pipes, sockets and devices.
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
