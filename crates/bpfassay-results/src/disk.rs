// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of results directories, which others may have filled: only regular files are read, nothing is written through a symbolic link,
//! and nothing waits for the other end of a pipe.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags},
    io::Errno,
};

/// What a file is that is not regular: the text of the error that [`regular`] and its kind give.
pub(crate) const NO_FILE: &str = "it is no regular file";

/// Whether `error` means that the path exists and is no regular file.
pub(crate) fn is_no_file(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == NO_FILE)
}

fn flags(flags: OFlags) -> i32 {
    // A flag word of the kernel; the cast keeps its bits.
    #[expect(clippy::cast_possible_wrap, reason = "flags are bits, not a number")]
    let bits = (flags | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits() as i32;
    bits
}

fn checked(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other(NO_FILE)),
    }
}

/// A pipe without a reader and a symbolic link are no regular files either.
fn named(error: io::Error) -> io::Error {
    let number = error.raw_os_error().map(Errno::from_raw_os_error);
    match number {
        Some(Errno::LOOP | Errno::NXIO) => io::Error::other(NO_FILE),
        _ => error,
    }
}

/// Opens `path` for reading. A symbolic link to a regular file will do.
///
/// # Errors
/// Those of opening; [`is_no_file`] for directories, pipes, sockets and devices.
pub(crate) fn regular(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(flags(OFlags::empty())).open(path).map_err(named).and_then(checked)
}

/// Opens `path` for reading and adding to it; makes it where it does not exist if `create`.
///
/// # Errors
/// Those of opening; [`is_no_file`] for whatever is no regular file, symbolic links included.
pub(crate) fn appendable(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(create).custom_flags(flags(OFlags::NOFOLLOW));
    options.open(path).map_err(named).and_then(checked)
}

/// A file for writing anywhere in it, that is given the name `path` only once it is complete.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    path: &'a Path,
    has_name: bool,
}

impl<'a> Draft<'a> {
    /// A file in the directory of `path`, which must not exist. It has no name, so that nothing of it stays where this process is
    /// killed; on a file system without such files (NFS, for one) it has the name from the beginning.
    ///
    /// # Errors
    /// Those of opening; `AlreadyExists` for anything that has the name, a symbolic link to nothing included.
    pub(crate) fn new(path: &'a Path) -> io::Result<(Self, File)> {
        let directory = path.parent().unwrap_or(Path::new("."));
        // open(2): EOPNOTSUPP where the file system, EISDIR where the kernel does not know O_TMPFILE.
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(directory, unnamed, Mode::from_raw_mode(0o666)) {
            Ok(file) => Ok((Self { path, has_name: false }, file.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let mut options = OpenOptions::new();
                options.read(true).write(true).create_new(true).custom_flags(flags(OFlags::NOFOLLOW));
                Ok((Self { path, has_name: true }, options.open(path)?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Gives `file` its name.
    ///
    /// # Errors
    /// Those of linkat(2), `AlreadyExists` included.
    pub(crate) fn name(&self, file: &File) -> io::Result<()> {
        if self.has_name {
            return Ok(());
        }
        // As open(2) has it for O_TMPFILE: without privileges a file without a name is linked by way of /proc.
        let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, descriptor, CWD, self.path, AtFlags::SYMLINK_FOLLOW)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nothing"), at("dangling")).unwrap();
        rustix::fs::mkfifoat(CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();

        assert!(regular(&at("file")).is_ok() && regular(&at("link")).is_ok());
        for name in ["pipe", "."] {
            assert!(is_no_file(&regular(&at(name)).unwrap_err()), "{name}");
        }
        assert!(is_no_file(&regular(Path::new("/dev/zero")).unwrap_err()));
        assert!(appendable(&at("file"), false).is_ok());
        for name in ["pipe", "link", "dangling"] {
            assert!(is_no_file(&appendable(&at(name), true).unwrap_err()), "{name}");
        }
        assert!(!at("nothing").exists());
        assert_eq!(appendable(&at("new"), false).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_draft_has_its_name_only_in_the_end_and_replaces_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        let (draft, mut file) = Draft::new(&path).unwrap();
        file.write_all(b"half").unwrap();
        // The file system under the temporary directory has files without names, as every one of a disk in Linux.
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        draft.name(&file).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"half");
        assert_eq!(draft.name(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        symlink("nothing", folder.path().join("link")).unwrap();
        let path = folder.path().join("link");
        let (draft, file) = Draft::new(&path).unwrap();
        assert_eq!(draft.name(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }
}
