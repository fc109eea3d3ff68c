// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of starting a guest and of sending it a message.

use std::{io, path::PathBuf};

use bpfassay_protocol::{Arch, frame::FrameError};

use crate::qemu_version::QemuVersion;

/// The reason why a guest could not be started, or could not be sent a message.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// There is no QEMU for the architecture.
    #[error("no {program} on PATH: install it (Debian: apt-get install {packages})")]
    NoQemu {
        /// Architecture of the guest.
        arch: Arch,
        /// Name of the program.
        program: String,
        /// Debian packages that contain the program and its firmware.
        packages: &'static str,
    },
    /// The program given as QEMU is another program.
    #[error("{} does not print its version as QEMU does, but `{printed}`: give the path of a qemu-system program", .program.display())]
    NotQemu {
        /// Path of the program.
        program: PathBuf,
        /// The first line of its output, shortened.
        printed: String,
    },
    /// The program given as QEMU does not finish printing its version.
    #[error("{} did not print its version within {seconds} s: give the path of a qemu-system program", .program.display())]
    VersionSilent {
        /// Path of the program.
        program: PathBuf,
        /// Seconds waited.
        seconds: u64,
    },
    /// QEMU is too old.
    #[error("{} is QEMU {version}, older than the {minimum} needed: install a newer one", .program.display())]
    OldQemu {
        /// Path of the program.
        program: PathBuf,
        /// QEMU's version.
        version: QemuVersion,
        /// The oldest supported version.
        minimum: QemuVersion,
    },
    /// A program could not be started.
    #[error("could not start {}", .program.display())]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// A file of the guest is missing or not readable.
    #[error("could not read {what} {}", .path.display())]
    Input {
        /// `kernel` or `initramfs`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The machine has its initramfs in an open file, but the boot options have none.
    #[error("the initramfs is to be an open file, and there is none among the options of the boot")]
    NoInitramfs,
    /// The machine has a plugin, but the boot options have none.
    #[error("the machine is to load a plugin, and there is none among the options of the boot")]
    NoPlugin,
    /// The console log could not be created.
    #[error("could not create the console log {}", .path.display())]
    Log {
        /// Path of the log.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// The guest is under the instruction clock, so it can have no input.
    #[error("a guest under the instruction clock takes no input: use the clock `wall`")]
    OneWay,
    /// The operating system refused a socket or thread.
    #[error("could not get {what} for a guest")]
    System {
        /// The requested resource.
        what: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
    /// QEMU exited before its monitor answered, because it refused its arguments or the
    /// accelerator.
    #[error("qemu did not start the guest ({status}): {stderr}")]
    Refused {
        /// QEMU's exit status.
        status: String,
        /// QEMU's standard error.
        stderr: String,
    },
    /// QEMU runs, but its monitor does not answer.
    #[error("qemu's monitor did not answer within {seconds} s")]
    MonitorSilent {
        /// Seconds waited.
        seconds: u64,
    },
    /// The monitor sent an unexpected answer.
    #[error("qemu's monitor failed at {step}: {message}")]
    Monitor {
        /// The step that failed.
        step: &'static str,
        /// The error of QEMU or of the QMP library.
        message: String,
    },
    /// KVM was requested, but does not work.
    #[error("KVM was requested and does not work here: {reason}")]
    NoKvm {
        /// The reason.
        reason: String,
    },
    /// The guest has ended.
    #[error("the guest has ended")]
    Ended,
    /// The agent does not read messages as fast as they are sent.
    #[error("the agent has left {waiting} messages unread")]
    AgentBusy {
        /// Number of waiting messages.
        waiting: usize,
    },
    /// A message cannot be framed.
    #[error("could not frame a message to the agent")]
    Frame(#[source] FrameError),
    /// The terminal cannot be used for a console.
    #[error("could not {step} the terminal: run this in an interactive terminal")]
    Terminal {
        /// The step that failed.
        step: &'static str,
        /// The operating system's error.
        #[source]
        source: io::Error,
    },
}
