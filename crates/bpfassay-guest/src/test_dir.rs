// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of runs in the file system under test. In a guest, no other program uses it. On a
//! running system, local users may be able to rename files next to their own, so nothing is
//! accessed by path. The directory gets a name that cannot be predicted, is kept open, and
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

/// Prefix of the directory's name on a running system.
const PREFIX: &str = ".bpfassay-here-";

/// Prefix of the name of a file that tests whether files can be used. The host name follows,
/// because several nodes make such a file in one directory.
const TRIAL: &str = ".bpfassay-trial";

/// Mode of the directory of one run. Workloads can change their user.
const RUN_MODE: u32 = 0o755;

/// The directory of runs.
#[derive(Debug)]
pub(crate) enum TestDir {
    /// The root of a guest's file system under test.
    Guest {
        /// Mount point.
        path: String,
    },
    /// A new directory in a file system that others use, too.
    Here(KeptDirectory),
}

/// A directory that is kept open, and the directory in which it was made.
#[derive(Debug)]
pub(crate) struct KeptDirectory {
    mount: String,
    parent: File,
    name: CString,
    directory: File,
}

/// The directory of one run.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    /// The path that programs are given. In a guest it is the real path. Otherwise it goes through
    /// this process's open descriptor, which no renaming changes.
    pub path: String,
    /// The descriptor is open for as long as the path is used.
    _held: Option<File>,
}

impl TestDir {
    /// Draws a random name for a directory on a running system.
    pub(crate) fn draw_name() -> Result<CString> {
        tree::random_name(PREFIX).map_err(Error::system("draw a random name"))
    }

    /// Creates a directory on a running system, with this name in the root directory of `mount`.
    ///
    /// # Errors
    /// The directory cannot be created, or another one is found under its name afterwards.
    pub(crate) fn here(mount: &MountFacts, name: CString) -> Result<Self> {
        let parent = tree::open(&mount.path).map_err(Error::file("open", &mount.path))?;
        let device = parent.metadata().map_err(Error::file("look at", &mount.path))?.dev();
        // The mounts are compared and not the devices: a subvolume of btrfs has its own device,
        // which mountinfo does not show.
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
        Ok(Self::Here(KeptDirectory { mount: mount.path.clone(), parent, name, directory }))
    }

    /// Returns the inode of a directory on a running system.
    pub(crate) fn inode(&self) -> Option<u64> {
        match self {
            Self::Guest { .. } => None,
            Self::Here(kept) => kept.directory.metadata().ok().map(|facts| facts.ino()),
        }
    }

    /// Returns the path, for messages.
    fn place(&self) -> String {
        match self {
            Self::Guest { path } => path.clone(),
            Self::Here(kept) => format!("{}/{}", kept.mount.trim_end_matches('/'), kept.name.to_string_lossy()),
        }
    }

    fn open(&self) -> io::Result<File> {
        match self {
            // An open directory in a guest could not be unmounted, and the agent must notice a tool
            // that unmounts it.
            Self::Guest { path } => tree::open(path),
            Self::Here(kept) => kept.directory.try_clone(),
        }
    }

    /// Removes everything in the directory.
    pub(crate) fn empty(&self) -> Result<()> {
        self.open().and_then(|directory| tree::empty(&directory)).map_err(Error::file("empty", self.place()))
    }

    /// Creates the directory `name` (no slashes) for a run.
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

    /// Removes the directory `name` of a run, if it exists.
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

    /// Writes, reads and removes a file in the directory.
    ///
    /// # Errors
    /// The error of the operation that failed.
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

    /// Checks that the directory is still where it was made.
    ///
    /// # Errors
    /// The directory was replaced or moved, so that accesses of a run by path go elsewhere. The
    /// error is a message.
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

    /// Removes what [`TestDir::here`] made. A guest's directory disappears with the guest.
    ///
    /// # Errors
    /// The directory cannot be emptied or removed. If its name now belongs to another entry, that
    /// entry is left alone.
    pub(crate) fn leave(&self) -> Result<()> {
        let Self::Here(kept) = self else { return Ok(()) };
        self.empty()?;
        self.check()?;
        tree::remove_at(&kept.parent, &kept.name).map_err(Error::file("remove", self.place()))
    }
}

/// Returns the id of the mount on which `file` was opened.
fn mount_id(file: &File) -> Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
    let text = crate::system::read(&path)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| Error::unexpected(&path, "a line `mnt_id:`", &text))
}

/// Returns why `directory` is not the one that this process has just made on `device`; `None` if it
/// is.
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

/// Opens the directory `path`, to which only this user can write, and makes it if it does not
/// exist.
///
/// # Errors
/// The directory cannot be created, is a link, or belongs to another user.
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
    // Earlier versions made the directory readable, and so lockable, for everybody.
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

    /// Returns the facts of a mount whose root is `path`.
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
        // The same name cannot be used twice: a second run would find files of the first.
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
