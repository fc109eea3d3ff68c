// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why this machine cannot measure a study.

use std::path::PathBuf;

/// An error in the set-up of this machine. Failed agents and runs are not errors, but records of
/// the journal.
#[derive(Debug, thiserror::Error)]
pub enum HereError {
    /// A step fails that studies with guests have, too.
    #[error(transparent)]
    Runner(#[from] bpfassay_runner::Error),
    /// No study supports the architecture of this machine.
    #[error("studies cannot be executed on this machine")]
    Machine(#[from] bpfassay_protocol::UnknownName),
    /// A program is missing on this machine.
    #[error("there is no executable {0} in PATH")]
    NoProgram(&'static str),
    /// A program of this machine cannot be started.
    #[error("cannot start {}", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The named directory is not a mount point. The figures would include everything that others
    /// do on the mount around it.
    #[error(
        "{} is no mount point: it lies on the {file_system} that is mounted at {}",
        path.display(),
        mount.display()
    )]
    NoMountPoint {
        /// The directory, without symbolic links.
        path: PathBuf,
        /// The mount that contains the directory.
        mount: PathBuf,
        /// The file system type of that mount.
        file_system: String,
    },
    /// The mounts of this machine are unknown.
    #[error("cannot read /proc/self/mountinfo, which shows what is mounted on this machine")]
    NoMountInfo(#[source] std::io::Error),
    /// The file system under test is not mounted.
    #[error("cannot use {} as the mount of the file system under test", path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}
