// SPDX-License-Identifier: MIT OR Apache-2.0
//! A user's directory tree (`--ior ARCH=DIR`) for the guest's root directory.
//!
//! Nothing outside the tree is read: symbolic links are copied, never followed. Reading refuses,
//! with its path, everything that would not work in the guest or would replace a file of this
//! project.

#![allow(
    clippy::disallowed_methods,
    reason = "lists a directory of this machine or of an untrusted tree, and follows no link"
)]

use std::{
    fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use bpfassay_protocol::{Arch, layout};
pub(crate) use bpfassay_tool::elf::machine;
use object::{LittleEndian, elf};

use super::{Archive, ArchiveError, FileContent, NewcNode};

/// How many symbolic links Linux follows in one path.
const MAX_LINKS: u32 = 40;

/// Directories that the guest fills while it runs. Links into them do not refer to the host.
const LIVE: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// Paths at which a real IOR is looked for first.
const USUAL_PLACES: [&str; 4] = ["usr/local/bin/ior", "usr/bin/ior", "bin/ior", "ior"];

/// Why a directory tree cannot be used in a guest.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The directory or something in it cannot be read.
    #[error("cannot read {} of the overlay: check that it exists and may be read", path.display())]
    Read {
        /// Path on the host.
        path: PathBuf,
        /// The error of reading it.
        #[source]
        source: io::Error,
    },
    /// A name that is not UTF-8.
    #[error("the overlay holds {}, whose name is not UTF-8: rename it", path.display())]
    Name {
        /// Path on the host.
        path: PathBuf,
    },
    /// A socket, pipe or device.
    #[error("the overlay holds {}, which is neither a file nor a directory nor a symbolic link: remove it", path.display())]
    Special {
        /// Path on the host.
        path: PathBuf,
    },
    /// A path that would replace a part of the guest.
    #[error("the overlay holds `/{path}`, a path that the guest uses itself: remove it")]
    Reserved {
        /// Path in the guest, without the leading slash.
        path: String,
    },
    /// A symbolic link to a place that does not exist in the guest.
    #[error(
        "the overlay's link `/{link}` points to `{target}`, outside the overlay: copy what it points to into the directory"
    )]
    Outside {
        /// Path of the link in the guest, without the leading slash.
        link: String,
        /// The target of the link.
        target: String,
    },
    /// The tree has no IOR to run.
    #[error("there is no `ior` in {}: expected an executable at usr/bin/ior, bin/ior, or once anywhere in the tree{}",
        directory.display(), several(found))]
    NoIor {
        /// Path on the host.
        directory: PathBuf,
        /// Files with the name `ior`, if there are several.
        found: Vec<String>,
    },
    /// The program is for another architecture.
    #[error("`/{path}` of the overlay is not a program for {arch}: pass a tree built for that architecture")]
    WrongArchitecture {
        /// Path in the guest, without the leading slash.
        path: String,
        /// The guest's architecture.
        arch: Arch,
    },
    /// The tree does not fit into an initramfs.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

fn several(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!("; found several: {}", found.join(", ")) }
}

/// A directory tree with a real IOR, ready for a guest.
#[derive(Debug, Clone)]
pub struct Overlay {
    /// The tree and the link [`layout::EXTERNAL_IOR`].
    pub archive: Archive,
    /// Absolute path of the program in the guest.
    pub ior: String,
    /// The program's file on this host. Links are followed as in the guest.
    pub program: PathBuf,
}

impl Overlay {
    /// Reads the tree at `directory` for a guest of architecture `arch`. Contents are read later,
    /// when the archive is written.
    ///
    /// # Errors
    /// [`OverlayError`] for everything that the guest could not use.
    pub fn read(arch: Arch, directory: &Path) -> Result<Self, OverlayError> {
        let mut archive = Archive::default();
        add_directory(&mut archive, directory, "")?;
        for (path, node) in archive.entries() {
            check_reserved(path, node)?;
            if let NewcNode::Symlink { target } = node {
                check_link(&archive, path, target)?;
            }
        }
        let ior = find_ior(&archive).map_err(|found| OverlayError::NoIor { directory: directory.to_owned(), found })?;
        let program = match host_file(&archive, &ior) {
            Some(program) if runs_on(program, arch)? => program.to_owned(),
            _ => return Err(OverlayError::WrongArchitecture { path: ior, arch }),
        };
        let ior = format!("/{ior}");
        archive.add(layout::EXTERNAL_IOR, NewcNode::Symlink { target: ior.clone() })?;
        Ok(Self { archive, ior, program })
    }
}

impl Overlay {
    /// Finds the `mpiexec` that launches several ranks in the guest: in IOR's directory, else the
    /// system's. Returns its path in the guest, or `None`.
    ///
    /// # Errors
    /// [`OverlayError::WrongArchitecture`] if it is not a program for `arch`.
    /// [`OverlayError::Read`] if it cannot be read.
    pub fn launcher(&self, arch: Arch) -> Result<Option<String>, OverlayError> {
        let ior = resolve(&self.archive, self.ior.trim_start_matches('/')).unwrap_or_default();
        let beside = ior.rsplit_once('/').map_or("mpiexec".to_owned(), |(directory, _)| format!("{directory}/mpiexec"));
        let found =
            [beside.as_str(), "usr/bin/mpiexec"].into_iter().find(|path| resolve(&self.archive, path).is_some());
        let Some(path) = found else { return Ok(None) };
        match host_file(&self.archive, path) {
            Some(program) if runs_on(program, arch)? => Ok(Some(format!("/{path}"))),
            _ => Err(OverlayError::WrongArchitecture { path: path.to_owned(), arch }),
        }
    }
}

/// Adds everything in `directory` to `archive`, with `prefix` before each path.
///
/// # Errors
/// [`OverlayError`] if an entry cannot be read, has a name that is not UTF-8, is of an unsupported
/// kind, or has a path that an archive cannot have.
pub(crate) fn add_directory(archive: &mut Archive, directory: &Path, prefix: &str) -> Result<(), OverlayError> {
    let read = |source| OverlayError::Read { path: directory.to_owned(), source };
    walk(archive, &directory.canonicalize().map_err(read)?, prefix)
}

fn walk(archive: &mut Archive, directory: &Path, prefix: &str) -> Result<(), OverlayError> {
    let read = |source| OverlayError::Read { path: directory.to_owned(), source };
    for entry in fs::read_dir(directory).map_err(read)? {
        let entry = entry.map_err(read)?;
        let host = entry.path();
        let read = |source| OverlayError::Read { path: host.clone(), source };
        let Ok(name) = entry.file_name().into_string() else { return Err(OverlayError::Name { path: host }) };
        let path = format!("{prefix}{name}");
        let metadata = entry.metadata().map_err(read)?;
        if metadata.is_dir() {
            archive.add(&path, NewcNode::Directory { shared: metadata.permissions().mode() & 0o1777 == 0o1777 })?;
            walk(archive, &host, &format!("{path}/"))?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(&host).map_err(read)?;
            let Ok(target) = target.into_os_string().into_string() else {
                return Err(OverlayError::Name { path: host });
            };
            archive.add(&path, NewcNode::Symlink { target })?;
        } else if metadata.is_file() {
            let executable = metadata.permissions().mode() & 0o111 != 0;
            archive.add(
                &path,
                NewcNode::File { executable, content: FileContent::Host { path: host, size: metadata.len() } },
            )?;
        } else {
            return Err(OverlayError::Special { path: host });
        }
    }
    Ok(())
}

/// Checks that `node` can be at `path` of a guest.
///
/// # Errors
/// [`OverlayError::Reserved`] if the path belongs to the agent, or if it is a mount point and
/// `node` is not a directory.
pub(crate) fn check_reserved(path: &str, node: &NewcNode) -> Result<(), OverlayError> {
    let top = path.split('/').next().unwrap_or(path);
    let owned = [layout::AGENT, layout::HOME].iter().any(|ours| ours.strip_prefix('/') == Some(top));
    let mount_point = layout::DIRECTORIES.iter().any(|ours| ours.strip_prefix('/') == Some(path));
    if owned || (mount_point && !matches!(node, NewcNode::Directory { .. })) {
        return Err(OverlayError::Reserved { path: path.to_owned() });
    }
    Ok(())
}

/// Checks a link. A relative link must not climb above the root of the tree. An absolute one must
/// not depend on the host's files.
fn check_link(archive: &Archive, link: &str, target: &str) -> Result<(), OverlayError> {
    let outside = || OverlayError::Outside { link: link.to_owned(), target: target.to_owned() };
    if target.starts_with('/') {
        let provided = LIVE.iter().any(|directory| Path::new(target).starts_with(directory));
        let in_tree = resolve(archive, link).is_some();
        return if in_tree || provided || !Path::new(target).exists() { Ok(()) } else { Err(outside()) };
    }
    let mut depth = link.matches('/').count();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => depth = depth.checked_sub(1).ok_or_else(outside)?,
            _ => depth += 1,
        }
    }
    Ok(())
}

/// Follows `path` and all symbolic links inside the archive. Returns the final path, if it exists.
pub(crate) fn resolve(archive: &Archive, path: &str) -> Option<String> {
    let mut done = Vec::<String>::new();
    let mut rest: Vec<String> = path.rsplit('/').map(str::to_owned).collect();
    let mut links = 0;
    while let Some(part) = rest.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                done.pop();
                continue;
            }
            _ => done.push(part),
        }
        match archive.get(&done.join("/"))? {
            NewcNode::Symlink { target } => {
                links += 1;
                if links > MAX_LINKS {
                    return None;
                }
                done.pop();
                if target.starts_with('/') {
                    done.clear();
                }
                rest.extend(target.rsplit('/').map(str::to_owned));
            }
            NewcNode::Directory { .. } => {}
            NewcNode::File { .. } | NewcNode::CharacterDevice { .. } if !rest.is_empty() => return None,
            NewcNode::File { .. } | NewcNode::CharacterDevice { .. } => {}
        }
    }
    Some(done.join("/"))
}

/// Finds the tree's `ior`, following links. Returns all candidates if there is not exactly one.
fn find_ior(archive: &Archive) -> Result<String, Vec<String>> {
    let executable = |path: &str| {
        resolve(archive, path)
            .is_some_and(|real| matches!(archive.get(&real), Some(NewcNode::File { executable: true, .. })))
    };
    if let Some(path) = USUAL_PLACES.iter().find(|path| executable(path)) {
        return Ok((*path).to_owned());
    }
    let mut found: Vec<String> = archive
        .entries()
        .map(|(path, _)| path)
        .filter(|path| path.rsplit('/').next() == Some("ior") && executable(path))
        .map(str::to_owned)
        .collect();
    match (found.len(), found.pop()) {
        (1, Some(path)) => Ok(path),
        (_, last) => {
            found.extend(last);
            Err(found)
        }
    }
}

/// Returns the file on this host that `path` of the archive leads to.
fn host_file<'a>(archive: &'a Archive, path: &str) -> Option<&'a Path> {
    match archive.get(&resolve(archive, path)?)? {
        NewcNode::File { content: FileContent::Host { path, .. }, .. } => Some(path),
        _ => None,
    }
}

/// Whether the program at `path` is a script or an ELF file for `arch`.
fn runs_on(path: &Path, arch: Arch) -> Result<bool, OverlayError> {
    let read = |source| OverlayError::Read { path: path.to_owned(), source };
    let mut start = Vec::new();
    let length = size_of::<elf::FileHeader64<LittleEndian>>() as u64;
    bpfassay_input::open_unlinked(path).map_err(read)?.take(length).read_to_end(&mut start).map_err(read)?;
    Ok(start.starts_with(b"#!") || machine(&start) == Some(arch))
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    /// Makes the first bytes of an ELF program, with the low byte of `e_machine`.
    fn program(machine: u8) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes.resize(64, 0);
        bytes[18] = machine;
        bytes
    }

    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        symlink("usr/bin", root.join("bin")).unwrap();
        put(&root.join("usr/bin/ior"), &program(62));
        fs::write(root.join("usr/lib/libmpi.so.40"), "x").unwrap();
        symlink("libmpi.so.40", root.join("usr/lib/libmpi.so")).unwrap();
        directory
    }

    fn put(path: &Path, bytes: &[u8]) {
        fs::write(path, bytes).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn refusal(directory: &tempfile::TempDir) -> OverlayError {
        Overlay::read(Arch::X86_64, directory.path()).unwrap_err()
    }

    #[test]
    fn a_tree_is_taken_whole_with_its_links() {
        let directory = tree();
        let overlay = Overlay::read(Arch::X86_64, directory.path()).unwrap();
        assert_eq!(overlay.ior, "/usr/bin/ior");
        assert_eq!(overlay.archive.get("bin"), Some(&NewcNode::Symlink { target: "usr/bin".into() }));
        assert_eq!(
            overlay.archive.get(layout::EXTERNAL_IOR),
            Some(&NewcNode::Symlink { target: "/usr/bin/ior".into() })
        );
        assert_eq!(overlay.program, directory.path().join("usr/bin/ior"));
        assert!(matches!(
            overlay.archive.get("usr/lib/libmpi.so.40"),
            Some(NewcNode::File { executable: false, content: FileContent::Host { size: 1, .. } })
        ));
        overlay.archive.to_bytes().unwrap();
    }

    #[test]
    fn links_that_climb_out_are_refused() {
        for target in ["../../../etc/passwd", "../lib/../../../x", "..//../.."] {
            let directory = tree();
            symlink(target, directory.path().join("usr/lib/x")).unwrap();
            assert!(matches!(refusal(&directory), OverlayError::Outside { .. }), "{target}");
        }
        let directory = tree();
        symlink("../lib/./libmpi.so", directory.path().join("usr/lib/x")).unwrap();
        Overlay::read(Arch::X86_64, directory.path()).unwrap();
    }

    #[test]
    fn absolute_links_mean_the_guest_and_must_not_need_the_host() {
        let directory = tree();
        symlink("/usr/lib/libmpi.so", directory.path().join("mpi")).unwrap();
        symlink("/proc/self/mounts", directory.path().join("mtab")).unwrap();
        Overlay::read(Arch::X86_64, directory.path()).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), directory.path().join("escape")).unwrap();
        match refusal(&directory) {
            OverlayError::Outside { link, target } => {
                assert_eq!((link.as_str(), Path::new(&target)), ("escape", elsewhere.path()));
            }
            error => panic!("{error}"),
        }
    }

    #[test]
    fn the_guests_own_places_stay_its_own() {
        for path in ["init", "bpfassay", "proc"] {
            let directory = tree();
            fs::write(directory.path().join(path), "").unwrap();
            assert!(matches!(refusal(&directory), OverlayError::Reserved { .. }), "{path}");
        }
        let directory = tree();
        symlink("tmp", directory.path().join("bpfassay")).unwrap();
        assert!(matches!(refusal(&directory), OverlayError::Reserved { .. }));
        let directory = tree();
        fs::create_dir(directory.path().join("proc")).unwrap();
        Overlay::read(Arch::X86_64, directory.path()).unwrap();
    }

    #[test]
    fn what_is_not_a_file_is_refused() {
        let directory = tree();
        let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        assert!(matches!(refusal(&directory), OverlayError::Special { .. }));
    }

    #[test]
    fn the_program_must_be_there_once_and_for_this_machine() {
        let directory = tree();
        assert!(matches!(
            Overlay::read(Arch::Riscv64, directory.path()),
            Err(OverlayError::WrongArchitecture { arch: Arch::Riscv64, .. })
        ));
        put(&directory.path().join("usr/bin/ior"), b"#!/bin/sh\n");
        Overlay::read(Arch::Riscv64, directory.path()).unwrap();
        fs::remove_file(directory.path().join("usr/bin/ior")).unwrap();
        assert!(matches!(refusal(&directory), OverlayError::NoIor { found, .. } if found.is_empty()));
        for place in ["opt/a", "opt/b"] {
            fs::create_dir_all(directory.path().join(place)).unwrap();
            put(&directory.path().join(place).join("ior"), &program(62));
        }
        let error = refusal(&directory);
        assert!(error.to_string().ends_with("found several: opt/a/ior, opt/b/ior"), "{error}");
        symlink("/opt/b/ior", directory.path().join("usr/bin/ior")).unwrap();
        let overlay = Overlay::read(Arch::X86_64, directory.path()).unwrap();
        assert_eq!(overlay.ior, "/usr/bin/ior");
        // An absolute link stays in the tree.
        assert_eq!(overlay.program, directory.path().join("opt/b/ior"));
    }

    #[test]
    fn several_ranks_are_launched_by_what_the_tree_has() {
        let launcher = |directory: &tempfile::TempDir| {
            Overlay::read(Arch::X86_64, directory.path()).unwrap().launcher(Arch::X86_64)
        };
        let directory = tree();
        assert_eq!(launcher(&directory).unwrap(), None);
        put(&directory.path().join("usr/bin/mpiexec"), &program(62));
        assert_eq!(launcher(&directory).unwrap().as_deref(), Some("/usr/bin/mpiexec"));
        put(&directory.path().join("usr/bin/mpiexec"), &program(183));
        assert!(
            matches!(launcher(&directory), Err(OverlayError::WrongArchitecture { path, .. }) if path == "usr/bin/mpiexec")
        );
        // mpiexec is looked for in the directory that the link to IOR leads to.
        fs::create_dir(directory.path().join("opt")).unwrap();
        fs::rename(directory.path().join("usr/bin/ior"), directory.path().join("opt/ior")).unwrap();
        symlink("/opt/ior", directory.path().join("usr/bin/ior")).unwrap();
        put(&directory.path().join("opt/mpiexec"), b"#!/bin/sh\n");
        assert_eq!(launcher(&directory).unwrap().as_deref(), Some("/opt/mpiexec"));
    }

    #[test]
    fn links_in_a_circle_lead_nowhere() {
        let directory = tree();
        fs::remove_file(directory.path().join("usr/bin/ior")).unwrap();
        symlink("ior", directory.path().join("usr/bin/ior")).unwrap();
        assert!(matches!(refusal(&directory), OverlayError::NoIor { .. }));
    }
}
