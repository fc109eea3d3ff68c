// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of runs in the file system under test. In a guest, no other program uses it. On a
//! running system local users may be able to rename what is beside theirs, so nothing there is
//! accessed by its path: the directory is made with a name that cannot be predicted, kept open, and
//! everything in it is accessed relative to its descriptor.

use std::{
    ffi::{CStr, CString},
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    os::{fd::AsRawFd, unix::fs::MetadataExt},
};

use bpfassay_protocol::message::MountFacts;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};

use crate::{
    error::{Error, Result},
    tree,
};

/// The prefix of the name of the directory on a running system.
const PREFIX: &str = ".bpfassay-here-";

/// The beginning of the name of a file that tests whether files can be used. Then comes that of the
/// machine: several nodes make such a file in one directory.
const TRIAL: &str = ".bpfassay-trial";

/// Mode of a run's own directory: workloads may change their user.
const RUN_MODE: u32 = 0o755;

/// The directory of runs.
#[derive(Debug)]
pub(crate) enum TestDir {
    /// The root of a guest's file system under test.
    Guest {
        /// Where it is mounted.
        path: String,
    },
    /// A directory of our own in a file system that others use too.
    Here(Kept),
}

/// A directory that is kept open, and the one that it was made in.
#[derive(Debug)]
pub(crate) struct Kept {
    mount: String,
    parent: File,
    name: CString,
    directory: File,
}

/// A run's own directory.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    /// The path that programs are given: its path in a guest; otherwise one through this process's
    /// open descriptor, which no renaming changes.
    pub path: String,
    /// Open for as long as that path is used.
    _held: Option<File>,
}

impl TestDir {
    /// A random name for one on a running system.
    pub(crate) fn draw_name() -> Result<CString> {
        tree::random_name(PREFIX).map_err(Error::system("draw a random name"))
    }

    /// Makes one on a running system, with this name in the root directory of `mount`.
    ///
    /// # Errors
    /// The directory cannot be made, or another one is found at its name afterwards.
    pub(crate) fn here(mount: &MountFacts, name: CString) -> Result<Self> {
        let parent = tree::open(&mount.path).map_err(Error::file("open", &mount.path))?;
        let device = parent.metadata().map_err(Error::file("look at", &mount.path))?.dev();
        // By the mount and not by the device: a subvolume of btrfs has a device of its own, which
        // mountinfo does not show.
        if mount_id(&parent)? != mount.id {
            return Err(Error::Order(format!(
                "{} is not the root of the file system that is mounted there: name a directory where a file system is mounted",
                mount.path
            )));
        }
        let path = format!("{}/{}", mount.path.trim_end_matches('/'), name.to_string_lossy());
        tree::make_at(&parent, &name, 0o700).map_err(Error::file("make directory", &path))?;
        let directory = tree::open_at(&parent, &name).map_err(Error::file("open", &path))?;
        let problem = ours(&directory, device).map_err(Error::file("look at", &path))?;
        if let Some(problem) = problem {
            return Err(Error::Order(format!("{path}, which was just made, {problem}: nothing is measured there")));
        }
        Ok(Self::Here(Kept { mount: mount.path.clone(), parent, name, directory }))
    }

    /// Its inode, where it is one of our own.
    pub(crate) fn inode(&self) -> Option<u64> {
        match self {
            Self::Guest { .. } => None,
            Self::Here(kept) => kept.directory.metadata().ok().map(|facts| facts.ino()),
        }
    }

    /// Where it is, for messages.
    fn place(&self) -> String {
        match self {
            Self::Guest { path } => path.clone(),
            Self::Here(kept) => format!("{}/{}", kept.mount.trim_end_matches('/'), kept.name.to_string_lossy()),
        }
    }

    /// It, open.
    fn open(&self) -> io::Result<File> {
        match self {
            // Kept open in a guest, it could not be unmounted, and whether a tool unmounts it is to
            // be noticed.
            Self::Guest { path } => tree::open(path),
            Self::Here(kept) => kept.directory.try_clone(),
        }
    }

    /// Removes everything in it.
    pub(crate) fn empty(&self) -> Result<()> {
        self.open().and_then(|directory| tree::empty(&directory)).map_err(Error::file("empty", self.place()))
    }

    /// Makes the directory `name`, without slashes, for a run.
    pub(crate) fn make_run(&self, name: &str) -> Result<RunDirectory> {
        let path = format!("{}/{name}", self.place());
        let make = || -> io::Result<RunDirectory> {
            let test_dir = self.open()?;
            let name = CString::new(name)?;
            tree::make_at(&test_dir, &name, RUN_MODE)?;
            match self {
                Self::Guest { .. } => Ok(RunDirectory { path: path.clone(), _held: None }),
                Self::Here(_) => {
                    let held = tree::open_at(&test_dir, &name)?;
                    let path = format!("/proc/{}/fd/{}", std::process::id(), held.as_raw_fd());
                    Ok(RunDirectory { path, _held: Some(held) })
                }
            }
        };
        make().map_err(Error::file("make directory", &path))
    }

    /// Removes the directory `name` of a run, where there is one.
    pub(crate) fn remove_run(&self, name: &str) -> Result<()> {
        let remove = || -> io::Result<()> {
            let test_dir = self.open()?;
            let name = CString::new(name)?;
            let run = match tree::open_at(&test_dir, &name) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                run => run?,
            };
            tree::empty(&run)?;
            tree::remove_at(&test_dir, &name)
        };
        remove().map_err(Error::file("remove", format!("{}/{name}", self.place())))
    }

    /// Writes, reads and removes a file in it.
    ///
    /// # Errors
    /// The operation that failed.
    pub(crate) fn try_file(&self) -> io::Result<()> {
        const TEXT: &[u8] = b"bpfassay";
        let test_dir = self.open()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let machine = rustix::system::uname();
        let name = [TRIAL.as_bytes(), b"-", machine.nodename().to_bytes()].concat();
        let mut file = File::from(openat(&test_dir, name.as_slice(), flags, Mode::from_raw_mode(0o600))?);
        let mut found = Vec::new();
        let outcome = file.write_all(TEXT).and_then(|()| file.rewind()).and_then(|()| file.read_to_end(&mut found));
        drop(file);
        unlinkat(&test_dir, name.as_slice(), AtFlags::empty())?;
        outcome?;
        if found == TEXT { Ok(()) } else { Err(io::Error::other("other data was read than was written")) }
    }

    /// Whether it is where it was made.
    ///
    /// # Errors
    /// It was replaced or moved: what a run does there by path then goes elsewhere. The error is a
    /// message.
    pub(crate) fn check(&self) -> Result<()> {
        let Self::Here(kept) = self else { return Ok(()) };
        let place = self.place();
        match tree::is_entry(&kept.parent, &kept.name, &kept.directory) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::Order(format!(
                "somebody moved the directory of runs away from {place}: measure where no other user may rename files, \
                 as in a directory of root's with the sticky bit"
            ))),
            Err(error) => Err(Error::file("look at", place)(error)),
        }
    }

    /// Removes what [`TestDir::here`] made; a guest's is gone with the guest.
    ///
    /// # Errors
    /// It cannot be emptied or removed, or another entry has its name now, which is left alone.
    pub(crate) fn leave(&self) -> Result<()> {
        let Self::Here(kept) = self else { return Ok(()) };
        self.empty()?;
        self.check()?;
        tree::remove_at(&kept.parent, &kept.name).map_err(Error::file("remove", self.place()))
    }
}

/// The id of the mount that `file` was opened on.
fn mount_id(file: &File) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let text = crate::system::read(&path)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| Error::unexpected(&path, "a line `mnt_id:`", &text))
}

/// Why `directory` is not the one that this process has just made on `device`; `None` where it is.
fn ours(directory: &File, device: u64) -> io::Result<Option<String>> {
    let facts = directory.metadata()?;
    let user = rustix::process::geteuid().as_raw();
    Ok(if facts.uid() != user {
        // An NFS server that maps root to another user gives that user power over what root makes.
        Some(format!(
            "belongs to user {} and not to {user}, who could change it under root's hands (a server that maps root to another user \
             does that: NFS exports without no_root_squash, Lustre with root_squash)",
            facts.uid()
        ))
    } else if facts.mode() & 0o777 != 0o700 {
        Some(format!("has mode {:o} and not 700", facts.mode() & 0o7777))
    } else if facts.dev() != device {
        Some("is on another file system".to_owned())
    } else if !tree::is_empty(directory)? {
        Some("is not empty".to_owned())
    } else {
        None
    })
}

/// The directory `path`, which only this user may write to; made where it does not exist.
///
/// # Errors
/// It cannot be made, is a link, or belongs to another user.
pub(crate) fn private(path: &str) -> Result<File> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    let name = CString::new(name).map_err(|error| Error::file("make directory", path)(io::Error::from(error)))?;
    let directory = private_at(parent, &name).map_err(Error::file("make and open the directory", path))?;
    let facts = directory.metadata().map_err(Error::file("look at", path))?;
    let user = rustix::process::geteuid().as_raw();
    if facts.uid() != user {
        return Err(Error::Order(format!(
            "{path} belongs to user {} and not to {user}: remove it, or have its owner do that",
            facts.uid()
        )));
    }
    // One of an earlier version was readable, and so lockable, for everybody.
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(0o700)).map_err(Error::file("close to others", path))?;
    Ok(directory)
}

fn private_at(parent: &str, name: &CStr) -> io::Result<File> {
    let parent = tree::open(parent)?;
    let facts = parent.metadata()?;
    if facts.mode() & 0o022 != 0 && facts.mode() & 0o1000 == 0 {
        return Err(io::Error::other("others may rename what is in its parent"));
    }
    match tree::make_at(&parent, name, 0o700) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    tree::open_at(&parent, name)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    /// Facts of a mount whose root is `path`.
    fn mounted(path: &std::path::Path) -> MountFacts {
        let id = mount_id(&tree::open(path).unwrap()).unwrap();
        MountFacts { path: path.display().to_string(), id, ..MountFacts::default() }
    }

    fn only_entry(directory: &std::path::Path) -> std::path::PathBuf {
        let [entry] = fs::read_dir(directory).unwrap().collect::<Vec<_>>().try_into().unwrap();
        entry.unwrap().path()
    }

    #[test]
    fn it_is_made_anew_used_through_its_descriptor_and_removed() {
        let mount = tempfile::tempdir().unwrap();
        let test_dir = TestDir::here(&mounted(mount.path()), TestDir::draw_name().unwrap()).unwrap();
        assert!(only_entry(mount.path()).display().to_string().contains("/.bpfassay-here-"));
        let run = test_dir.make_run("run-1").unwrap();
        fs::write(format!("{}/data", run.path), "x").unwrap();
        assert!(only_entry(mount.path()).join("run-1/data").exists());
        // The same run twice has no files of the first.
        assert!(test_dir.make_run("run-1").is_err());
        test_dir.empty().unwrap();
        test_dir.make_run("run-1").unwrap();
        test_dir.leave().unwrap();
        assert!(fs::read_dir(mount.path()).unwrap().next().is_none());
    }

    #[test]
    fn a_directory_in_its_place_is_noticed_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (mount, victim) = (directory.path().join("mount"), directory.path().join("victim"));
        fs::create_dir_all(victim.join("run-1")).unwrap();
        fs::create_dir(&mount).unwrap();
        fs::write(victim.join("run-1/precious"), "x").unwrap();
        let test_dir = TestDir::here(&mounted(&mount), TestDir::draw_name().unwrap()).unwrap();
        test_dir.check().unwrap();
        let made = only_entry(&mount);
        fs::rename(&made, mount.join("aside")).unwrap();
        symlink(&victim, &made).unwrap();
        let run = test_dir.make_run("run-1").unwrap();
        fs::write(format!("{}/precious", run.path), "other").unwrap();
        let error = test_dir.check().unwrap_err().to_string();
        assert!(error.contains("moved the directory of runs away from"), "{error}");
        assert!(test_dir.leave().is_err());
        assert_eq!(fs::read_to_string(victim.join("run-1/precious")).unwrap(), "x");
        // The files were in the directory, wherever it is now, and were removed.
        assert!(fs::read_dir(mount.join("aside")).unwrap().next().is_none());
    }

    #[test]
    fn a_directory_that_is_no_mount_s_root_is_refused() {
        let mount = tempfile::tempdir().unwrap();
        let mut facts = mounted(mount.path());
        facts.id += 1;
        assert!(
            TestDir::here(&facts, TestDir::draw_name().unwrap())
                .unwrap_err()
                .to_string()
                .contains("not the root of the file system")
        );
    }

    #[test]
    fn a_private_directory_is_no_link_and_closed_to_others() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        private(&at("own")).unwrap();
        assert_eq!(private(&at("own")).unwrap().metadata().unwrap().mode() & 0o777, 0o700);
        symlink("own", directory.path().join("link")).unwrap();
        assert!(private(&at("link")).is_err());
    }
}
