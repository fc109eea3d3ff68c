// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes files and directories of the cache without following any symbolic link.

use std::{
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, RenameFlags, ResolveFlags},
    io::Errno,
};

/// Prefix of the names that directories get before they are removed.
const MOVED: &str = ".removed-";

/// Opens the directory `name` in `parent`. A symbolic link to a directory is refused.
///
/// # Errors
/// The errors of openat(2): `ENOTDIR` or `ELOOP` if `name` is a link or not a directory.
pub(super) fn open_directory(parent: BorrowedFd<'_>, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}

/// Removes the entry at `path` below `root`, with everything in it. A missing entry is not an
/// error.
///
/// # Errors
/// The system's errors, also for a path that leaves `root` by `..` or a symbolic link.
pub(super) fn remove_below(root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path leaves the cache")),
        }
    }
    let Some((last, parents)) = names.split_last() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this is the cache itself"));
    };
    let mut directory = root.try_clone_to_owned()?;
    for name in parents {
        directory = match open_directory(directory.as_fd(), *name) {
            Ok(next) => next,
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
    }
    let name = CString::new(last.as_bytes())?;
    Ok(remove_at(directory.as_fd(), &name)?)
}

/// Removes the entry `name` of `parent` with everything in it, however deep. A missing entry is not
/// an error. Mounted file systems stay with their content, because they do not belong to the cache.
///
/// # Errors
/// The errors of unlinkat(2), openat2(2) and renameat(2) for the entry or its content. A mount
/// point gives `EBUSY` or `EXDEV`.
pub(super) fn remove_at(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    if unlink(parent, name)? {
        return Ok(());
    }
    let Some(top) = open_same_mount(parent, name)? else { return Ok(()) };
    let mut moved = 0_u64;
    // Nested directories move up into `top`, so that deep ones need no more descriptors or stack.
    loop {
        let names = names(&top)?;
        if names.is_empty() {
            break;
        }
        for name in names {
            empty_into(top.as_fd(), &name, &mut moved)?;
        }
    }
    remove_directory(parent, name)
}

/// Removes the entry `name` of `top`. Non-empty directories in it become entries of `top`.
fn empty_into(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    if unlink(top, name)? {
        return Ok(());
    }
    let Some(directory) = open_same_mount(top, name)? else { return Ok(()) };
    for below in names(&directory)? {
        if unlink(directory.as_fd(), &below)? || remove_directory(directory.as_fd(), &below).is_ok() {
            continue;
        }
        loop {
            *moved += 1;
            match rustix::fs::renameat_with(&directory, &below, top, format!("{MOVED}{moved}"), RenameFlags::NOREPLACE)
            {
                Ok(()) | Err(Errno::NOENT) => break,
                // The name is taken: try the next one.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
    }
    remove_directory(top, name)
}

/// Removes the entry `name` of `parent`, unless it is a directory. Returns whether it no longer
/// exists.
fn unlink(parent: BorrowedFd<'_>, name: &CStr) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        // Linux returns EISDIR, POSIX EPERM.
        Err(Errno::ISDIR | Errno::PERM) => Ok(false),
        Err(error) => Err(error),
    }
}

fn remove_directory(parent: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens the directory `name` in `parent`, if it exists. Refuses symbolic links and mount points.
pub(super) fn open_same_mount(parent: BorrowedFd<'_>, name: &CStr) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        // The kernel is older than 5.6, or the container blocks the call. The device number still
        // reveals a mount of another file system.
        Err(Errno::NOSYS | Errno::PERM) => {
            let directory = open_directory(parent, name)?;
            match rustix::fs::fstat(&directory)?.st_dev == rustix::fs::fstat(parent)?.st_dev {
                true => Ok(Some(directory)),
                false => Err(Errno::XDEV),
            }
        }
        Err(error) => Err(error),
    }
}

/// Lists the names in `directory`, without `.` and `..`.
fn names(directory: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command};

    use super::*;

    fn root(path: &Path) -> OwnedFd {
        rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    /// There are more levels than a process can open files, and the paths are too long to open.
    #[test]
    fn directories_are_removed_however_deep_they_are() {
        let work = tempfile::tempdir().unwrap();
        let mut directory = root(work.path());
        for level in 0..3000 {
            for name in ["deep", "beside"] {
                rustix::fs::mkdirat(&directory, name, Mode::RWXU).unwrap();
            }
            if level % 100 == 0 {
                symlink("/etc", work.path().join("link")).ok();
                rustix::fs::mkdirat(&directory, format!("{MOVED}{level}"), Mode::RWXU).unwrap();
                rustix::fs::openat(&directory, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RWXU).unwrap();
            }
            directory = open_directory(directory.as_fd(), "deep").unwrap();
        }
        drop(directory);
        let top = root(work.path());
        for name in [c"deep", c"beside", c"link", c"file", c"absent"] {
            remove_at(top.as_fd(), name).unwrap();
        }
        let left: Vec<_> = fs::read_dir(work.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [format!("{MOVED}0").as_str()]);
        assert!(Path::new("/etc/passwd").exists());
    }

    /// The device number does not reveal a bind mount.
    #[test]
    fn what_is_mounted_below_is_not_emptied() {
        const VARIABLE: &str = "BPFASSAY_TEST_REMOVAL";
        if let Some(work) = std::env::var_os(VARIABLE) {
            let top = root(Path::new(&work));
            for name in [c"around", c"mounted"] {
                let error = remove_at(top.as_fd(), name).unwrap_err();
                assert!(matches!(error, Errno::XDEV | Errno::BUSY), "{error}");
            }
            return;
        }
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: only root can mount");
            return;
        }
        let work = tempfile::tempdir().unwrap();
        let at = |name: &str| work.path().join(name);
        fs::create_dir_all(at("precious")).unwrap();
        fs::write(at("precious/file"), "kept").unwrap();
        fs::create_dir_all(at("around/a/b")).unwrap();
        fs::create_dir(at("mounted")).unwrap();
        let script = "mount --bind precious around/a/b && mount --bind precious mounted && exec \"$0\" --exact --nocapture \"$1\"";
        let status = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c", script])
            .arg(std::env::current_exe().unwrap())
            .arg("cache::removal::tests::what_is_mounted_below_is_not_emptied")
            .current_dir(work.path())
            .env(VARIABLE, work.path())
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        assert_eq!(fs::read_to_string(at("precious/file")).unwrap(), "kept");
    }
}
