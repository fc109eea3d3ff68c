// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a cgroup (v2) from its id, and the id from its path.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::fs::DirEntryExt as _,
    },
    path::{Path, PathBuf},
};

/// `f_type` of a cgroup v2 file system (include/uapi/linux/magic.h).
const CGROUP2_SUPER_MAGIC: u64 = 0x6367_7270;

/// The most directories that are visited if the kernel does not open cgroups by their id.
const MAX_WALK: usize = 20_000;

/// A path that has no cgroup id.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CgroupIdError {
    #[error("cannot look up the cgroup {path:?}: name a directory below the cgroup v2 mount")]
    LookUp { path: PathBuf, source: io::Error },
    #[error("{path:?} is not in a cgroup v2 hierarchy (file system type {found:#x}): name a directory below its mount")]
    NotCgroup2 { path: PathBuf, found: u64 },
}

/// Returns the id of the cgroup (v2) at `path`, which is the inode number of its directory on every
/// 64-bit kernel.
///
/// # Errors
/// [`CgroupIdError`] if there is no such directory, or it belongs to another file system.
pub(crate) fn id(path: PathBuf) -> Result<u64, CgroupIdError> {
    let looked_up = rustix::fs::statfs(&path).and_then(|fs| Ok((fs.f_type as u64, rustix::fs::stat(&path)?.st_ino)));
    match looked_up {
        Ok((CGROUP2_SUPER_MAGIC, inode)) => Ok(inode),
        Ok((found, _)) => Err(CgroupIdError::NotCgroup2 { path, found }),
        Err(source) => Err(CgroupIdError::LookUp { path, source: source.into() }),
    }
}

/// Paths below the root of the cgroup v2 hierarchy. `/` is that root.
///
/// An id is looked up once: ids are never reused while the system runs, and a cgroup cannot be
/// renamed (Documentation/admin-guide/cgroup-v2.rst). A cgroup therefore keeps its name here after
/// it was removed. If it was removed before its first lookup, it never gets a name. The label of a
/// counter does not change while the tracer runs.
#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    root: Option<PathBuf>,
    known: HashMap<u64, Option<String>>,
}

impl Cgroups {
    /// Creates an instance for the hierarchy that is mounted at `root`. If there is none, no id has
    /// a path.
    pub(crate) fn new(root: Option<PathBuf>) -> Self {
        Self { root, known: HashMap::new() }
    }

    /// Returns the path of the cgroup `id`, if it could be found at its first lookup.
    pub(crate) fn path(&mut self, id: u64) -> Option<&str> {
        let root = self.root.as_deref();
        self.known.entry(id).or_insert_with(|| look_up(root?, id)).as_deref()
    }

    /// Creates an instance that only has these names.
    #[cfg(test)]
    pub(crate) fn of(known: impl IntoIterator<Item = (u64, &'static str)>) -> Self {
        Self { root: None, known: known.into_iter().map(|(id, path)| (id, Some(path.to_owned()))).collect() }
    }

    /// Returns the label of `id`: the path, or else the id itself.
    pub(crate) fn label(&mut self, id: u64) -> String {
        self.path(id).map_or_else(|| id.to_string(), str::to_owned)
    }
}

fn look_up(root: &Path, id: u64) -> Option<String> {
    let found = match open_by_id(root, id) {
        Ok(directory) => fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()?,
        // The cgroup no longer exists.
        Err(error) if error.raw_os_error() == Some(libc::ESTALE) => return None,
        // The call needs CAP_DAC_READ_SEARCH, and some sandboxes forbid it.
        Err(_) => walk(root, id)?,
    };
    let below = found.strip_prefix(root).ok()?;
    Some(format!("/{}", below.to_string_lossy()))
}

/// Opens the cgroup by its file handle, which is its id (`FILEID_KERNFS`, include/linux/exportfs.h,
/// 5.5 and later).
fn open_by_id(root: &Path, id: u64) -> io::Result<OwnedFd> {
    const FILEID_KERNFS: i32 = 0xfe;
    /// `struct file_handle` with eight bytes of handle.
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        id: [u8; 8],
    }
    let mount = File::open(root)?;
    let mut handle = Handle { bytes: 8, kind: FILEID_KERNFS, id: id.to_ne_bytes() };
    // SAFETY: the handle is laid out as the kernel expects it, is as long as its first field, and
    // outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            mount.as_raw_fd(),
            &raw mut handle,
            libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, which has no other owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Searches for the directory whose inode number is `id`. Both are equal on every 64-bit kernel.
fn walk(root: &Path, id: u64) -> Option<PathBuf> {
    let mut directories = vec![root.to_owned()];
    if rustix::fs::stat(root).is_ok_and(|found| found.st_ino == id) {
        return Some(root.to_owned());
    }
    let mut looked_at = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.ino() == id {
                return Some(entry.path());
            }
            looked_at += 1;
            if looked_at > MAX_WALK {
                return None;
            }
            directories.push(entry.path());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_outside_cgroup2_is_refused() {
        let error = id("/proc".into()).unwrap_err();
        assert!(matches!(error, CgroupIdError::NotCgroup2 { .. }), "{error}");
        let error = id("/nowhere/at/all".into()).unwrap_err();
        assert!(matches!(error, CgroupIdError::LookUp { .. }), "{error}");
    }

    #[test]
    fn a_walk_finds_a_directory_by_its_number() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b c");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir(root.path().join("z")).unwrap();
        let number = |path: &Path| rustix::fs::stat(path).unwrap().st_ino;
        assert_eq!(walk(root.path(), number(&deep)), Some(deep));
        assert_eq!(walk(root.path(), number(root.path())), Some(root.path().to_owned()));
        assert_eq!(walk(root.path(), u64::MAX), None);
    }

    #[test]
    fn the_result_of_a_lookup_does_not_change() {
        let root = tempfile::tempdir().unwrap();
        let mut cgroups = Cgroups::new(Some(root.path().to_owned()));
        cgroups.known.insert(7, Some("/job".to_owned()));
        cgroups.known.insert(8, None);
        assert_eq!(cgroups.path(7), Some("/job"), "removed since");
        assert_eq!(cgroups.path(8), None);
        assert_eq!(cgroups.path(u64::MAX), None);
        assert_eq!((cgroups.label(7), cgroups.label(8)), ("/job".to_owned(), "8".to_owned()));
        assert_eq!(cgroups.known.len(), 3, "the third is not looked up again");
        assert_eq!(Cgroups::new(None).path(1), None);
    }

    #[test]
    fn a_real_cgroup_is_found_where_there_is_one() {
        let Some(root) = fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .lines()
            .find_map(|line| line.contains(" - cgroup2 ").then(|| PathBuf::from(line.split(' ').nth(4).unwrap())))
        else {
            // This machine has no cgroup v2 hierarchy. The VM tests look cgroups up in guests.
            return;
        };
        let id = rustix::fs::stat(&root).unwrap().st_ino;
        assert_eq!(Cgroups::new(Some(root)).path(id), Some("/"));
    }
}
