// SPDX-License-Identifier: MIT OR Apache-2.0
//! Opens the files that QEMU loads, for QEMU to inherit.
//!
//! QEMU opens them again as /dev/fd/NUMBER, possibly as another user than this program. That user
//! need not be able to find them, but must be able to read them. A file that it may not read is
//! copied to memory.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    os::{
        fd::{OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::{bounded_output::file_in_memory, device::descriptor, error::VmError, limits::QemuLimits};

/// Permission of others to read.
const READABLE: u32 = 0o004;

/// Opens the file at `path`, the `what` of a guest, for a QEMU within `limits`.
///
/// # Errors
/// [`VmError::Input`] if the file cannot be opened, is not a regular file, or cannot be read.
pub(crate) fn open(what: &'static str, path: &Path, limits: &QemuLimits) -> Result<OwnedFd, VmError> {
    // Does not wait for the writer of a pipe.
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty());
    let opened = opened.map_err(io::Error::from).and_then(|file| readable(File::from(file), limits));
    opened.map_err(|source| VmError::Input { what, path: path.to_owned(), source })
}

/// Duplicates the open `file`, the `what` of a guest, for a QEMU within `limits`.
///
/// # Errors
/// [`VmError::Input`] if the file is not a regular file, or cannot be read.
pub(crate) fn inherit(what: &'static str, file: &File, limits: &QemuLimits) -> Result<OwnedFd, VmError> {
    let opened = file.try_clone().and_then(|file| readable(file, limits));
    opened.map_err(|source| VmError::Input { what, path: "in an open file".into(), source })
}

/// Returns the plugin and its output file for QEMU to inherit, and the output file for reading.
///
/// # Errors
/// [`VmError::System`] if a file in memory cannot be created or written.
pub(crate) fn plugin(plugin: &[u8]) -> Result<([(OwnedFd, RawFd); 2], File), VmError> {
    let made = || -> io::Result<_> {
        let (counts, theirs) = file_in_memory("counts")?;
        let (mut file, code) = file_in_memory("plugin")?;
        file.write_all(plugin)?;
        Ok(([(code, descriptor::PLUGIN), (theirs, descriptor::COUNTS)], counts))
    };
    made().map_err(|source| VmError::System { what: "a file in memory", source })
}

fn readable(mut file: File, limits: &QemuLimits) -> io::Result<OwnedFd> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    if !limits.is_other_user() || found.mode() & READABLE != 0 {
        return Ok(file.into());
    }
    let mut copy = File::from(rustix::fs::memfd_create("loaded", MemfdFlags::CLOEXEC)?);
    file.seek(SeekFrom::Start(0))?;
    io::copy(&mut file, &mut copy)?;
    Ok(copy.into())
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{confine::Confinement, machine::Accelerator};

    fn limits(own_user: bool) -> QemuLimits {
        Confinement { sandbox: true, own_user, lacking: Vec::new() }.limits(Accelerator::Tcg, 1).0
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RWXU).unwrap();
        let VmError::Input { what, source, .. } = open("kernel", &path, &limits(false)).unwrap_err() else {
            panic!("another error");
        };
        assert_eq!((what, source.to_string().as_str()), ("kernel", "it is no regular file"));
    }

    #[test]
    fn what_the_user_of_qemu_may_not_read_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kernel");
        fs::write(&path, "the kernel").unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        for (mode, own_user, same) in [(0o600, false, true), (0o600, true, false), (0o644, true, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let mut file = File::from(open("kernel", &path, &limits(own_user)).unwrap());
            let found = file.metadata().unwrap();
            assert_eq!(found.ino() == inode && found.nlink() == 1, same, "{mode:o} {own_user}");
            assert!(!own_user || found.mode() & READABLE != 0);
            let mut text = String::new();
            file.seek(SeekFrom::Start(0)).unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, "the kernel");
        }
    }
}
