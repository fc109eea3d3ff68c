// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the mount under test in mountinfo before anything starts, and puts it in the place of the
//! study's file systems.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the mount")]

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use bpfassay_protocol::{job::FileSystem, mangle::unescape};
use bpfassay_study::{LeftOut, plan::file_system_id};

use crate::here_error::HereError;

/// The mounts of this process's mount namespace (proc(5)).
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The mount point, without symbolic links.
    pub(super) path: PathBuf,
    /// The file system type.
    file_system: String,
    /// The options of the superblock, comma-separated.
    options: String,
    /// Whether the mount or its superblock is read-only.
    is_read_only: bool,
}

/// Returns the mount at the directory `path`.
///
/// # Errors
/// [`HereError::Mount`] for a path that cannot be used or is mounted read-only,
/// [`HereError::NoMountPoint`] if nothing is mounted at `path`, [`HereError::NoMountInfo`] if
/// mountinfo cannot be read.
pub(super) fn at(path: &Path) -> Result<Mounted, HereError> {
    let refuse = |source| HereError::Mount { path: path.to_owned(), source };
    let real = fs::canonicalize(path).map_err(refuse)?;
    // Looking into the directory mounts it if it is mounted on demand.
    let facts = fs::metadata(real.join(".")).map_err(refuse)?;
    if !facts.is_dir() {
        return Err(refuse(io::ErrorKind::NotADirectory.into()));
    }
    let text = fs::read(MOUNTINFO).map_err(HereError::NoMountInfo)?;
    let mounts = mounts(&String::from_utf8_lossy(&text));
    match mounts.iter().rfind(|mount| mount.path == real) {
        Some(mount) if mount.is_read_only => Err(refuse(io::ErrorKind::ReadOnlyFilesystem.into())),
        Some(mount) => Ok(mount.clone()),
        None => {
            let above = above(&mounts, &real);
            let on = |mount: &Mounted| (mount.path.clone(), mount.file_system.clone());
            let (mount, file_system) = above.map(on).unwrap_or_else(|| (PathBuf::from("/"), "unknown".to_owned()));
            Err(HereError::NoMountPoint { path: real, mount, file_system })
        }
    }
}

/// Returns the mount that contains `path`, the topmost if there are several at one place.
fn above<'a>(mounts: &'a [Mounted], path: &Path) -> Option<&'a Mounted> {
    // `max_by_key` returns the last of several maxima.
    mounts.iter().filter(|mount| path.starts_with(&mount.path)).max_by_key(|mount| mount.path.as_os_str().len())
}

/// Reads the mounts of a mountinfo `text`. Its lines are `ID PARENT MAJOR:MINOR ROOT PATH OPTIONS
/// [TAG…] - TYPE SOURCE SUPER_OPTIONS`.
fn mounts(text: &str) -> Vec<Mounted> {
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(4);
        let path = PathBuf::from(unescape(fields.next()?));
        let of_mount = fields.next()?;
        fields.find(|field| *field == "-")?;
        let file_system = fields.next()?.to_owned();
        let options = fields.nth(1)?.to_owned();
        let is_read_only = [of_mount, &options].iter().any(|options| options.split(',').any(|option| option == "ro"));
        Some(Mounted { path, file_system, options, is_read_only })
    };
    text.lines().filter_map(mount).collect()
}

/// Selects the file systems of `wanted`, a study's, that have the type of `mount`. If there is
/// none, `mount` itself is used. Also returns what is left out.
pub(super) fn file_systems(wanted: &[FileSystem], mount: &Mounted) -> (Vec<FileSystem>, Vec<LeftOut>) {
    let fits = |file_system: &FileSystem| match file_system {
        FileSystem::Nfs(nfs) => nfs.version.is_mounted(&mount.file_system, &mount.options),
        FileSystem::Tmpfs { .. } => mount.file_system == "tmpfs",
        FileSystem::Mounted { file_system } => *file_system == mount.file_system,
    };
    let (fitting, others): (Vec<FileSystem>, Vec<FileSystem>) = wanted.iter().cloned().partition(fits);
    let left_out = others.iter().map(|file_system| LeftOut {
        what: format!("file system {}", file_system_id(file_system)),
        reason: format!(
            "{} is {}, and a machine is measured as it is mounted",
            mount.path.display(),
            mount.file_system
        ),
    });
    let measured = match fitting.is_empty() {
        true => vec![FileSystem::Mounted { file_system: mount.file_system.clone() }],
        false => fitting,
    };
    (measured, left_out.collect())
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::job::{Nfs, NfsVersion};

    use super::*;

    const MACHINE: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
30 22 0:25 / /scratch rw,relatime shared:9 - lustre 10.0.0.1@tcp:/work rw,flock\n\
31 22 0:26 / /mnt/my\\040nfs rw,relatime - nfs4 server:/ rw,vers=4.1,rsize=1048576\n\
32 22 0:27 / /mnt/ro ro,nosuid - ext4 /dev/vdb rw\n\
33 30 0:28 / /scratch/over rw - tmpfs none rw\n\
34 33 0:29 / /scratch/over rw - fuse.sshfs host: rw\n";

    fn found(path: &str) -> Mounted {
        mounts(MACHINE).into_iter().rfind(|mount| mount.path == Path::new(path)).unwrap()
    }

    #[test]
    fn mounts_are_read_with_their_escapes_and_the_topmost_counts() {
        assert_eq!(mounts(MACHINE).len(), 6);
        assert_eq!(found("/mnt/my nfs").options, "rw,vers=4.1,rsize=1048576");
        assert_eq!(found("/scratch/over").file_system, "fuse.sshfs");
        assert!(found("/mnt/ro").is_read_only && !found("/scratch").is_read_only);
        let on = |path: &str| above(&mounts(MACHINE), Path::new(path)).unwrap().path.clone();
        assert_eq!(on("/scratch/user/data"), Path::new("/scratch"));
        assert_eq!(on("/scratches"), Path::new("/"));
        assert_eq!(above(&mounts(MACHINE), Path::new("/scratch/over/x")).unwrap().file_system, "fuse.sshfs");
    }

    #[test]
    fn the_mount_takes_the_place_of_what_it_is_not() {
        let nfs =
            |version| FileSystem::Nfs(Nfs { version, localio: None, threads: 8, size_mib: 256, scheduling: None });
        let study = [nfs(NfsVersion::V42), nfs(NfsVersion::V41), FileSystem::Tmpfs { size_mib: 256 }];
        let ids = |(measured, left_out): (Vec<FileSystem>, Vec<LeftOut>)| {
            let left_out: Vec<String> = left_out.into_iter().map(|left| left.what).collect();
            (measured.iter().map(file_system_id).collect::<Vec<_>>(), left_out.join(", "))
        };
        let (measured, left_out) = ids(file_systems(&study, &found("/mnt/my nfs")));
        assert_eq!((measured, left_out.as_str()), (vec!["nfs4.1".to_owned()], "file system nfs4.2, file system tmpfs"));
        let (measured, left_out) = ids(file_systems(&study, &found("/scratch")));
        assert_eq!(measured, ["lustre"]);
        assert_eq!(left_out, "file system nfs4.2, file system nfs4.1, file system tmpfs");
        // A FUSE server chooses its type.
        let odd = Mounted { file_system: "fuse.a/b c".to_owned(), ..found("/scratch") };
        assert_eq!(ids(file_systems(&study, &odd)).0, ["fuse.a-b-c"]);
    }

    #[test]
    fn a_directory_that_is_no_mount_point_is_refused_with_the_one_that_it_lies_on() {
        let directory = tempfile::tempdir().unwrap();
        match at(directory.path()) {
            Err(HereError::NoMountPoint { path, mount, .. }) => assert!(path.starts_with(mount), "{path:?}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(at(&directory.path().join("none")), Err(HereError::Mount { .. })));
        fs::write(directory.path().join("file"), "").unwrap();
        assert!(matches!(at(&directory.path().join("file")), Err(HereError::Mount { .. })));
        assert_eq!(at(Path::new("/")).unwrap().path, Path::new("/"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = above(&mounts(&text), Path::new("/a/b"));
        }
    }
}
