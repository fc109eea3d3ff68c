// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hierarchy of cgroup v2 on a running system. An existing mount is used, wherever it is:
//! hybrid systems have version 1 at /sys/fs/cgroup, and version 2 elsewhere. On systems with
//! version 1 alone, the agent mounts the hierarchy for its own process only. Such a mount is in no
//! mount table and ends with the process, however the process ends.

use std::{
    fs,
    os::fd::{AsRawFd as _, OwnedFd},
};

use bpfassay_protocol::mangle::unescape;
use rustix::{
    fs::{AtFlags, CWD},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use crate::{
    error::{Error, Result},
    system,
};

/// File system type in mountinfo and for fsopen(2).
const TYPE: &str = "cgroup2";

/// Mount point in guests and under systemd.
pub(crate) const USUAL: &str = "/sys/fs/cgroup";

/// `f_type` of cgroup v2 in statfs(2) (include/uapi/linux/magic.h).
const MAGIC: i128 = 0x6367_7270;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The hierarchy, open for as long as this lives.
#[derive(Debug)]
pub(crate) struct CgroupHierarchy {
    /// Directory of the root cgroup, as far as this process's cgroup namespace shows it.
    root: String,
    /// The mount that only this process has.
    own: Option<OwnedFd>,
}

impl CgroupHierarchy {
    /// Finds the hierarchy, or mounts it for this process.
    ///
    /// # Errors
    /// The hierarchy is mounted nowhere, and the kernel does not mount it: it has no cgroup v2, or
    /// is older than 5.2.
    pub(crate) fn open() -> Result<Self> {
        let found = mounted(&system::read(MOUNTINFO)?).into_iter().find(|path| is_cgroup2(path));
        match found {
            Some(root) => Ok(Self { root, own: None }),
            None => Self::mount(),
        }
    }

    /// Mounts the hierarchy for this process.
    fn mount() -> Result<Self> {
        let refused = |error: Errno| {
            Error::system("mount cgroup v2, which this system has mounted nowhere and whose cgroups tell runs apart")(
                error,
            )
        };
        let context = fsopen(TYPE, FsOpenFlags::FSOPEN_CLOEXEC).map_err(refused)?;
        fsconfig_create(&context).map_err(refused)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let own = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).map_err(refused)?;
        // Other programs reach the mount through this process's descriptor.
        let root = format!("/proc/{}/fd/{}", std::process::id(), own.as_raw_fd());
        Ok(Self { root, own: Some(own) })
    }

    /// A hierarchy whose root is `directory`.
    #[cfg(test)]
    pub(crate) fn at(directory: &std::path::Path) -> Self {
        Self { root: directory.display().to_string(), own: None }
    }

    /// Returns the directory of the cgroup at `path`, which begins at the root of the hierarchy.
    pub(crate) fn directory(&self, path: &str) -> String {
        format!("{}{}", self.root, path.trim_end_matches('/'))
    }

    /// Returns whether paths in the hierarchy become invalid when this process ends.
    pub(crate) const fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

/// Returns where cgroup v2 is mounted according to `text`, a mountinfo, with [`USUAL`] first.
/// Partial mounts do not count, nor do read-only mounts, as in containers.
fn mounted(text: &str) -> Vec<String> {
    let place = |line: &str| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (root, path, options) = (fields.get(3)?, fields.get(4)?, fields.get(5)?);
        let separator = fields.iter().position(|field| *field == "-")?;
        let is_whole = *root == "/" && options.split(',').all(|option| option != "ro");
        (is_whole && *fields.get(separator + 1)? == TYPE).then(|| unescape(path))
    };
    let mut places: Vec<String> = text.lines().filter_map(place).collect();
    places.sort_by_key(|path| path != USUAL);
    places
}

/// Returns whether a writable cgroup v2 is visible at `path`: another mount can cover it.
fn is_cgroup2(path: &str) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| i128::from(found.f_type) == MAGIC)
        && rustix::fs::accessat(CWD, path, rustix::fs::Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// Returns the cgroup (v2) of this process, as a path from the root of the hierarchy. The kernel
/// does not list it before the hierarchy has been mounted once.
///
/// # Errors
/// The process has no cgroup of version 2.
pub(crate) fn own_cgroup() -> Result<String> {
    const PATH: &str = "/proc/self/cgroup";
    let text = fs::read_to_string(PATH).map_err(Error::file("read", PATH))?;
    let own = of_version_2(&text).map(str::to_owned);
    own.ok_or_else(|| Error::unexpected(PATH, "a line `0::/…`, as where the kernel has cgroup v2", &text))
}

/// Returns the path of the cgroup (v2) in `/proc/self/cgroup`.
pub(crate) fn of_version_2(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::")).filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_read_from_the_line_of_version_2() {
        assert_eq!(of_version_2("0::/system.slice/x.service\n"), Some("/system.slice/x.service"));
        assert_eq!(of_version_2("1:name=systemd:/a\n0::/\n"), Some("/"));
        assert_eq!(of_version_2("1:cpu:/a\n"), None);
    }

    #[test]
    fn every_writable_mount_of_the_whole_hierarchy_counts_and_the_usual_place_first() {
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw shared:3 - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw,nsdelegate shared:2 - cgroup2 cgroup2 rw\n";
        assert_eq!(mounted(hybrid), ["/sys/fs/cgroup/unified"]);
        let several = "5 1 0:9 / /a\\040b rw - cgroup2 x rw\n6 1 0:9 / /sys/fs/cgroup rw - cgroup2 x rw\n";
        assert_eq!(mounted(several), ["/sys/fs/cgroup", "/a b"]);
        for other in [
            "6 1 0:9 /docker/x /sys/fs/cgroup rw - cgroup2 x rw\n",
            "6 1 0:9 / /sys/fs/cgroup ro,nosuid - cgroup2 x rw\n",
            "6 1 0:9 / /sys/fs/cgroup rw - cgroup cgroup2 rw\n",
            "6 1\n",
        ] {
            assert_eq!(mounted(other), [""; 0], "{other}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = (mounted(&text), of_version_2(&text));
        }
    }
}
