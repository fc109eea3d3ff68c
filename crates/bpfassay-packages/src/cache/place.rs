// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which directories are caches: those with a tag and our marker.
//!
//! A cache is emptied, checked and repaired without questions, so no other directory may be
//! mistaken for one. A missing or empty directory is made a cache. Any other directory without the
//! marker is refused and left unchanged.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::DirBuilderExt,
        },
    },
    path::Path,
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags},
    io::Errno,
};

use super::CacheAccess;
use crate::error::{PackagesError, Result};

/// Tells backup programs that the directory can be created again: <https://bford.info/cachedir/>.
const TAG: &str = "CACHEDIR.TAG";
const SIGNATURE: &str = "Signature: 8a477f597d28d172789f06886806bc55";
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n# Made by bpfassay.\n";

/// Says that the directory is ours, and which layout it has.
pub const MARKER: &str = "bpfassay-cache";
const MARKER_TEXT: &str = "bpfassay cache 1\n";
const MARKER_START: &str = "bpfassay cache ";

/// The directories of a cache. All directories are created at once, so that no other user can
/// create one first.
const PARTS: [&str; 7] = ["objects", "trees", "records", "apt", "locks", "tmp", "logs"];
/// The number of these directories in the first version of the cache.
const FIRST_PARTS: usize = 6;

/// The state of a directory.
enum PlaceState {
    /// A cache.
    Cache,
    /// A cache made before markers existed.
    Unmarked,
    /// The directory is empty, or has only what a process wrote that died while making a cache.
    Empty,
}

/// Opens the cache in `root`. Creates a cache if the directory is missing or empty.
///
/// # Errors
/// [`PackagesError::NotACache`] if the directory has other contents. [`PackagesError::Io`].
pub(super) fn open(root: &Path) -> Result<(OwnedFd, CacheAccess)> {
    match fs::metadata(root) {
        Ok(metadata) if !metadata.is_dir() => return Err(refusal(root, "it is no directory")),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(true).mode(0o755).create(root).map_err(PackagesError::io("create", root))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(refusal(root, "a part of its path is no directory"));
        }
        Err(source) => return Err(PackagesError::Io { action: "read", path: root.to_owned(), source }),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(root, flags, Mode::empty()).map_err(|error| io_error("open", root, error))?;
    // Only a complete cache is accepted without the lock. A cache that another process is making
    // can look like anything: its parts exist, but its marker did not yet when it was read.
    if !matches!(state(root, directory.as_fd()), Ok(PlaceState::Cache)) {
        let _alone = alone(directory.as_fd());
        // Another process may have made the cache in the meantime.
        let found = state(root, directory.as_fd())?;
        belongs_to_us(root, directory.as_fd())?;
        match found {
            PlaceState::Cache => {}
            PlaceState::Empty => {
                write(root, directory.as_fd(), MARKER, MARKER_TEXT)?;
                write(root, directory.as_fd(), TAG, TAG_TEXT)?;
            }
            PlaceState::Unmarked => mark(root, directory.as_fd())?,
        }
    }
    belongs_to_us(root, directory.as_fd())?;
    let access = match rustix::fs::accessat(&directory, c".", rustix::fs::Access::WRITE_OK, AtFlags::EACCESS) {
        Err(Errno::ACCESS | Errno::ROFS) => CacheAccess::ReadOnly,
        _ => CacheAccess::Whole,
    };
    for part in PARTS {
        check_part(root, directory.as_fd(), part, access == CacheAccess::Whole)?;
    }
    Ok((directory, access))
}

/// Locks the directory itself, if the file system can: two processes can find it empty at once.
/// Gives up after 2 s if another process holds the lock.
fn alone(directory: BorrowedFd<'_>) -> Option<OwnedFd> {
    let copy = rustix::fs::openat(directory, c".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    for _ in 0..200 {
        match rustix::fs::flock(&copy, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => thread::sleep(Duration::from_millis(10)),
            _ => break,
        }
    }
    Some(copy)
}

fn state(root: &Path, directory: BorrowedFd<'_>) -> Result<PlaceState> {
    let tag = read(root, directory, TAG)?;
    let marker = read(root, directory, MARKER)?;
    let tagged = tag.as_ref().is_some_and(|text| text.starts_with(SIGNATURE));
    let begun = |text: &Option<String>, whole: &str| text.as_ref().is_none_or(|text| whole.starts_with(text.as_str()));
    match &marker {
        Some(text) if text == MARKER_TEXT && tagged => return Ok(PlaceState::Cache),
        Some(text) if text.starts_with(MARKER_START) && text.ends_with('\n') && text != MARKER_TEXT => {
            let version = text.trim_start_matches(MARKER_START).trim_end().escape_debug();
            return Err(refusal(
                root,
                format!("it is a cache of layout {version}, which this version does not support"),
            ));
        }
        _ => {}
    }
    let parts = || {
        PARTS[..FIRST_PARTS]
            .iter()
            .all(|part| kind(directory, part).is_ok_and(|kind| kind == Some(FileType::Directory)))
    };
    // A marker that a full disk cut off does not count.
    let marked = marker.as_ref().is_some_and(|text| !MARKER_TEXT.starts_with(text.as_str()));
    if tag.as_deref() == Some(TAG_TEXT) && !marked && parts() {
        return Ok(PlaceState::Unmarked);
    }
    let others = names(root, directory)?.into_iter().any(|name| name != TAG && name != MARKER);
    if !others && begun(&tag, TAG_TEXT) && begun(&marker, MARKER_TEXT) {
        return Ok(PlaceState::Empty);
    }
    Err(refusal(root, format!("it is not empty and has no {TAG} and no {MARKER} of bpfassay")))
}

/// Adds the marker to a cache made before markers existed. A read-only cache is used without it.
fn mark(root: &Path, directory: BorrowedFd<'_>) -> Result<()> {
    match write(root, directory, MARKER, MARKER_TEXT) {
        Err(PackagesError::Io { source, .. })
            if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

/// Refuses a directory in which other users could replace a part by a symbolic link.
fn belongs_to_us(root: &Path, directory: BorrowedFd<'_>) -> Result<()> {
    let stat = rustix::fs::fstat(directory).map_err(|error| io_error("read", root, error))?;
    if !is_ours(stat.st_uid) {
        return Err(refusal(root, format!("it belongs to user {}, who is neither you nor root", stat.st_uid)));
    }
    // With the sticky bit, as on a fresh tmpfs, only the owner can replace a part.
    if stat.st_mode & 0o1002 == 0o002 {
        return Err(refusal(root, "every user may exchange what is in it (`chmod o-w` closes it)"));
    }
    Ok(())
}

fn is_ours(owner: u32) -> bool {
    owner == 0 || owner == rustix::process::geteuid().as_raw()
}

/// Checks that a part is a real directory, so that what is removed in it is inside the cache.
fn check_part(root: &Path, directory: BorrowedFd<'_>, part: &str, make: bool) -> Result<()> {
    let path = root.join(part);
    match rustix::fs::statat(directory, part, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => {
            let problem = match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory if is_ours(stat.st_uid) => return Ok(()),
                FileType::Directory => format!("its `{part}` belongs to user {}", stat.st_uid),
                FileType::Symlink => format!("its `{part}` is a symbolic link"),
                _ => format!("its `{part}` is no directory"),
            };
            Err(refusal(root, problem))
        }
        Err(Errno::NOENT) if make => match rustix::fs::mkdirat(directory, part, Mode::from_raw_mode(0o755)) {
            // Another process may have created the cache first: check that cache.
            Ok(()) | Err(Errno::EXIST) => check_part(root, directory, part, false),
            Err(error) => Err(io_error("create", &path, error)),
        },
        // A missing part counts as empty.
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(io_error("read", &path, error)),
    }
}

fn kind(directory: BorrowedFd<'_>, name: &str) -> Result<Option<FileType>, Errno> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn names(root: &Path, directory: BorrowedFd<'_>) -> Result<Vec<OsString>> {
    let failed = |error| io_error("read", root, error);
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let name = OsString::from_vec(entry.map_err(failed)?.file_name().to_bytes().to_vec());
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Reads the start of a small file. Returns `None` if there is no regular file of that name.
fn read(root: &Path, directory: BorrowedFd<'_>, name: &str) -> Result<Option<String>> {
    if !kind(directory, name).is_ok_and(|kind| kind == Some(FileType::RegularFile)) {
        return Ok(None);
    }
    let path = root.join(name);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(directory, name, flags, Mode::empty()) {
        Ok(file) => fs::File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(io_error("read", &path, error)),
    };
    let mut bytes = Vec::new();
    file.take(256).read_to_end(&mut bytes).map_err(PackagesError::io("read", path))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

fn write(root: &Path, directory: BorrowedFd<'_>, name: &str, text: &str) -> Result<()> {
    let path = root.join(name);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644));
    let file = file.map_err(|error| io_error("write", &path, error))?;
    fs::File::from(file).write_all(text.as_bytes()).map_err(PackagesError::io("write", path))
}

fn io_error(action: &'static str, path: &Path, error: Errno) -> PackagesError {
    PackagesError::io(action, path)(error.into())
}

fn refusal(root: &Path, problem: impl Into<String>) -> PackagesError {
    PackagesError::NotACache { path: root.to_owned(), problem: problem.into() }
}
