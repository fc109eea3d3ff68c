// SPDX-License-Identifier: MIT OR Apache-2.0
//! An open directory. Entries are reached by name relative to its descriptor, and never through a
//! symbolic link: anybody could have created the entries of the directory.

#![allow(
    clippy::disallowed_methods,
    reason = "the room for results directories: descriptors, and files that are made anew"
)]

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::disk_space::{self, checked, named, of_one_name};

/// Permissions of new files, before the umask.
const FILE: Mode = Mode::from_raw_mode(0o666);

/// Flags for opening existing files: follow no link, and do not block on a pipe.
const EXISTING: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Flags for creating files: fail if the name exists, even as a symbolic link.
const NEW: OFlags = OFlags::CREATE.union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Flags for opening directories.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// An open results directory, or a directory inside one. Entries are reached through its
/// descriptor, so later changes to the path have no effect. Names with a slash are refused.
#[derive(Debug, Clone)]
pub struct OpenDirectory {
    path: PathBuf,
    descriptor: Arc<OwnedFd>,
}

impl OpenDirectory {
    /// Opens the directory at `path`, which the user named. Symbolic links in `path` are followed.
    ///
    /// # Errors
    /// The errors of open(2): `NotADirectory` if `path` is something else.
    pub fn open(path: &Path) -> io::Result<Self> {
        // The parent of a bare file name is the empty path.
        let place = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let descriptor = rustix::fs::open(place, DIRECTORY, Mode::empty())?;
        Ok(Self { path: path.to_owned(), descriptor: Arc::new(descriptor) })
    }

    /// Creates the directory at `path` and its parents if absent, and opens it.
    ///
    /// # Errors
    /// The errors of mkdir(2) and [`Self::open`].
    pub fn make(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// The path of the directory, for messages.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the subdirectory `name`.
    ///
    /// # Errors
    /// The errors of openat(2): `NotADirectory` for a symbolic link and for anything that is not a
    /// directory.
    pub fn directory(&self, name: &str) -> io::Result<Self> {
        let opened = rustix::fs::openat(&self.descriptor, one(name)?, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
        let descriptor = opened.map_err(|error| match error {
            Errno::LOOP | Errno::NOTDIR => io::Error::new(io::ErrorKind::NotADirectory, disk_space::NO_DIRECTORY),
            error => error.into(),
        })?;
        Ok(Self { path: self.path.join(name), descriptor: Arc::new(descriptor) })
    }

    /// Creates the subdirectory `name` if absent, and opens it.
    ///
    /// # Errors
    /// The errors of mkdirat(2) and [`Self::directory`].
    pub fn make_directory(&self, name: &str) -> io::Result<Self> {
        match rustix::fs::mkdirat(&self.descriptor, one(name)?, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => self.directory(name),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the file `name` for reading.
    ///
    /// # Errors
    /// The errors of openat(2), and an error for symbolic links, directories, pipes and devices.
    pub fn read(&self, name: &str) -> io::Result<File> {
        self.existing(name, OFlags::RDONLY)
    }

    /// Opens the file `name` for reading and appending.
    ///
    /// # Errors
    /// The errors of [`Self::read`], and an error if the file has another hard link.
    pub(crate) fn append(&self, name: &str) -> io::Result<File> {
        self.existing(name, OFlags::RDWR | OFlags::APPEND).and_then(of_one_name)
    }

    fn existing(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let opened = rustix::fs::openat(&self.descriptor, one(name)?, flags | EXISTING, Mode::empty());
        opened.map(File::from).map_err(|error| named(error.into())).and_then(checked)
    }

    /// Creates the file `name` for reading and appending, and replaces whatever has that name. A
    /// replaced symbolic link leaves its target unchanged.
    ///
    /// # Errors
    /// The errors of unlinkat(2) and openat(2): for a directory, and if a file of that name appears
    /// in the meantime.
    pub fn create(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        self.create_new(name)
    }

    /// Creates the file `name`, which must not exist, for reading and appending.
    ///
    /// # Errors
    /// The errors of openat(2): `AlreadyExists` for anything with that name, even a dangling
    /// symbolic link.
    pub fn create_new(&self, name: &str) -> io::Result<File> {
        Ok(rustix::fs::openat(&self.descriptor, one(name)?, NEW | OFlags::RDWR | OFlags::APPEND, FILE)?.into())
    }

    /// Replaces the file `name` by a file with `bytes`, completely or not at all.
    ///
    /// # Errors
    /// The errors of the system, and an error if `name` is not a regular file.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        match self.has_file(name) {
            Ok(false) => return Err(io::Error::other(disk_space::NO_FILE)),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(true) | Err(_) => {}
        }
        let new = format!(".{name}.new");
        let mut file = self.create(&new)?;
        let written = io::Write::write_all(&mut file, bytes).and_then(|()| self.rename(&new, name));
        // The first error is returned, and a partial file must not stay on a full disk.
        written.inspect_err(|_| drop(self.remove(&new)))
    }

    /// Whether anything has the name `name`, even a dangling symbolic link.
    ///
    /// # Errors
    /// The errors of fstatat(2).
    pub fn has(&self, name: &str) -> io::Result<bool> {
        match rustix::fs::statat(&self.descriptor, one(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether `name` is a regular file.
    ///
    /// # Errors
    /// The errors of fstatat(2): `NotFound` if nothing has that name.
    pub fn has_file(&self, name: &str) -> io::Result<bool> {
        let found = rustix::fs::statat(&self.descriptor, one(name)?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)
    }

    /// Whether the directory is empty.
    ///
    /// # Errors
    /// The errors of reading a directory.
    pub fn is_empty(&self) -> io::Result<bool> {
        for entry in rustix::fs::Dir::read_from(&self.descriptor)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes the file `name`, if it exists.
    ///
    /// # Errors
    /// The errors of unlinkat(2), also for a directory.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.descriptor, one(name)?, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames the file `from` to `to`, and replaces whatever has that name.
    ///
    /// # Errors
    /// The errors of renameat(2).
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.descriptor, one(from)?, &self.descriptor, one(to)?)?)
    }

    /// Flushes the directory entries to disk.
    ///
    /// # Errors
    /// The errors of fsync(2).
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.descriptor)?)
    }
}

impl AsFd for OpenDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Checks that `name` names an entry of the directory itself.
fn one(name: &str) -> io::Result<&str> {
    match name {
        "" | "." | ".." => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        name if name.contains('/') => Err(io::Error::from(io::ErrorKind::InvalidInput)),
        name => Ok(name),
    }
}

/// A file in a directory that gets its name only when it is complete.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    directory: &'a OpenDirectory,
    name: &'a str,
    /// The temporary name, if the file system needs one.
    temporary: Option<String>,
}

impl<'a> Draft<'a> {
    /// Creates a file in `directory` that can get the name `name` later. The file has no name, so
    /// nothing stays if this process is killed. Some file systems, such as NFS, do not support
    /// that: the file then has a temporary name.
    ///
    /// # Errors
    /// The errors of openat(2).
    pub(crate) fn new(directory: &'a OpenDirectory, name: &'a str) -> io::Result<(Self, File)> {
        // open(2): EOPNOTSUPP if the file system does not know O_TMPFILE, EISDIR if the kernel does
        // not.
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::openat(&directory.descriptor, ".", unnamed, FILE) {
            Ok(file) => Ok((Self { directory, name: one(name)?, temporary: None }, file.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => Self::with_name(directory, name),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the file with a temporary name.
    fn with_name(directory: &'a OpenDirectory, name: &'a str) -> io::Result<(Self, File)> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let temporary = format!(".{}.{}-{}", one(name)?, process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            match rustix::fs::openat(&directory.descriptor, &temporary, NEW | OFlags::RDWR, FILE) {
                Ok(file) => return Ok((Self { directory, name, temporary: Some(temporary) }, file.into())),
                // Left by a killed process with the same id.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives `file` its final name.
    ///
    /// # Errors
    /// The errors of linkat(2) and renameat2(2), `AlreadyExists` included.
    pub(crate) fn name(mut self, file: &File) -> io::Result<()> {
        let (directory, name) = (&self.directory.descriptor, self.name);
        let Some(temporary) = self.temporary.take() else {
            // open(2) on O_TMPFILE: without privileges, an unnamed file is linked through /proc.
            let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
            let linked = match rustix::fs::linkat(CWD, descriptor, directory, name, AtFlags::SYMLINK_FOLLOW) {
                // /proc is not mounted.
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    rustix::fs::linkat(file, c"", directory, name, AtFlags::EMPTY_PATH)
                }
                linked => linked,
            };
            return Ok(linked?);
        };
        let linked = match rustix::fs::linkat(directory, &temporary, directory, name, AtFlags::empty()) {
            // The file system has no hard links.
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
                rustix::fs::renameat_with(directory, &temporary, directory, name, RenameFlags::NOREPLACE)
            }
            linked => linked,
        };
        // The temporary name is now a second link, or already gone.
        let removed = self.directory.remove(&temporary);
        linked?;
        removed
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The file is incomplete. Its error was reported.
            let _ = self.directory.remove(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::symlink};

    use bpfassay_study::{Available, Narrowing};

    use super::*;
    use crate::{JOURNAL_VERSION, Journal, JournalHeader, Provenance, journal::FILE_NAME};

    #[test]
    fn nothing_is_reached_through_a_link_and_no_pipe_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("victim"), "kept").unwrap();
        fs::create_dir_all(at("out/own")).unwrap();
        fs::create_dir(at("elsewhere")).unwrap();
        let directory = OpenDirectory::open(&at("out")).unwrap();
        let plant = |name: &str| {
            fs::remove_file(at("out").join(name)).ok();
            match name {
                "pipe" => rustix::fs::mkfifoat(CWD, at("out/pipe"), Mode::RUSR | Mode::WUSR).unwrap(),
                "link" => symlink(at("victim"), at("out/link")).unwrap(),
                _ => symlink(at("nothing"), at("out/dangling")).unwrap(),
            }
        };
        for name in ["pipe", "link", "dangling"] {
            plant(name);
            for error in [
                directory.read(name).unwrap_err(),
                directory.append(name).unwrap_err(),
                directory.replace(name, b"x").unwrap_err(),
            ] {
                assert!(disk_space::is_no_file(&error), "{name}: {error}");
            }
            assert_eq!(directory.create_new(name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            directory.create(name).unwrap().write_all(b"ours").unwrap();
            assert!(at("out").join(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        fs::hard_link(at("victim"), at("out/name")).unwrap();
        assert!(disk_space::has_other_name(&directory.append("name").unwrap_err()));
        assert!(directory.read("name").is_ok());
        directory.replace("name", b"ours").unwrap();
        assert!(directory.append("name").is_ok());
        assert_eq!(fs::read(at("victim")).unwrap(), b"kept");
        assert!(!at("nothing").exists());
        symlink(at("elsewhere"), at("out/logs")).unwrap();
        for refused in [directory.directory("logs"), directory.make_directory("logs"), directory.directory("link")] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotADirectory);
        }
        assert!(directory.make_directory("own").is_ok() && directory.make_directory("new").is_ok());
        for name in ["", "..", "own/x", "/etc/passwd"] {
            assert_eq!(directory.read(name).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }

    #[test]
    fn it_stays_the_same_directory_whatever_becomes_of_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let directory = OpenDirectory::make(&at("a/out")).unwrap();
        assert!(directory.is_empty().unwrap());
        fs::rename(at("a/out"), at("moved")).unwrap();
        symlink("/", at("a/out")).unwrap();
        directory.create("file").unwrap();
        directory.replace("report", b"one").unwrap();
        directory.replace("report", b"two").unwrap();
        assert!(directory.has("file").unwrap() && !directory.has("other").unwrap() && !directory.is_empty().unwrap());
        assert_eq!(fs::read(at("moved/report")).unwrap(), b"two");
        assert_eq!(fs::read_dir(at("moved")).unwrap().count(), 2);
    }

    #[test]
    fn a_draft_has_its_name_only_in_the_end_and_replaces_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OpenDirectory::open(folder.path()).unwrap();
        let entries = || fs::read_dir(folder.path()).unwrap().count();
        symlink("nothing", folder.path().join("link")).unwrap();
        for (draft, other) in [(Draft::new as fn(_, _) -> _, "one"), (Draft::with_name, "two")] {
            let before = entries();
            let (begun, mut file): (Draft<'_>, File) = draft(&directory, other).unwrap();
            file.write_all(b"half").unwrap();
            assert!(!directory.has(other).unwrap());
            begun.name(&file).unwrap();
            assert_eq!(fs::read(folder.path().join(other)).unwrap(), b"half");
            assert_eq!(entries(), before + 1);
            for taken in [other, "link"] {
                let (begun, file) = draft(&directory, taken).unwrap();
                assert_eq!(begun.name(&file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            }
            drop(draft(&directory, "three").unwrap());
            assert_eq!(entries(), before + 1);
        }
        // The file system under the temporary directory supports unnamed files, as every disk file
        // system of Linux does.
        let (_draft, _file) = Draft::new(&directory, "three").unwrap();
        assert_eq!(entries(), 3);
    }

    #[test]
    fn who_is_killed_while_a_journal_is_begun_leaves_a_directory_in_which_it_can_be_begun() {
        let folder = tempfile::tempdir().unwrap();
        let directory = OpenDirectory::open(folder.path()).unwrap();
        let (draft, mut file) = Draft::with_name(&directory, FILE_NAME).unwrap();
        file.write_all(b"{\"sum\":").unwrap();
        std::mem::forget(draft);
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let provenance = Provenance::default();
        let header = JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: 0, plan, provenance };
        drop(Journal::create_in(directory, &header).unwrap());
        drop(Journal::resume(folder.path()).unwrap());
    }
}
