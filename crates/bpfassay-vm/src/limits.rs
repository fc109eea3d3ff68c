// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of QEMU, set between fork and exec, so that its guest cannot use it against the host.
//!
//! No new privileges, no core file, few descriptors, a limited size of files, the root directory as
//! its working directory, an environment without the caller's secrets, and where root started this
//! program a user of its own, which owns nothing, is in no group (except that of /dev/kvm, if it
//! uses that) and may have few processes. Whether this host permits all that: `confine.rs`.
//!
//! Address space (`RLIMIT_AS`) is not limited: QEMU reserves far more than it uses (up to 1 GiB for
//! translated code, 64 MiB for each thread's heap, memory of the guest by its own size with what
//! firmware adds), how much depends on version, accelerator and architecture, and a reservation
//! that fails ends a guest in the middle of a run.

use std::io;

use tokio::process::Command;

/// The first user id for QEMU: each uses this plus its process id, so that no two of them that run
/// at the same time, of whichever bpfassay, are the same user. No users of a system or of
/// containers are in this range: distributions end below 65536, systemd's container ids below
/// 0x7000_0000, and ids from 0x8000_0000 on cause problems (systemd, UIDS-GIDS.md).
pub(crate) const FIRST_USER: u32 = 0x7b00_0000;
/// Process ids are below this (`PID_MAX_LIMIT` of Linux).
pub(crate) const PROCESS_IDS: u32 = 1 << 22;
/// Descriptors that QEMU may have open: its own, and the inherited ones, whose numbers are below
/// this.
const DESCRIPTORS: u64 = 1024;
/// Processes and threads that a user of its own may have, besides one for each virtual CPU.
const THREADS: u64 = 128;
/// Largest size of a file that QEMU may write: all output of a guest in one boot, whose runs send 8
/// MiB each at most.
pub(crate) const FILE_SIZE: u64 = 4 << 30;
/// The environment variables that QEMU inherits: where it finds libraries and what it needs to
/// start.
const ENVIRONMENT: &[&str] = &["PATH", "LD_LIBRARY_PATH", "TZ"];

/// What is done to one QEMU between fork and exec.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// Its groups besides its own; `None`: it stays the user that started this program.
    pub(crate) groups: Option<Vec<libc::gid_t>>,
    pub(crate) cpus: u32,
}

impl Limits {
    /// Whether QEMU will be another user than this program.
    pub(crate) fn is_other_user(&self) -> bool {
        self.groups.is_some()
    }

    /// The part of the caller's environment that QEMU inherits.
    pub(crate) fn environment(&self, command: &mut Command) {
        command.env_clear().envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }

    /// Confines the calling process. For the time between fork and exec: makes system calls only.
    /// Afterwards there is no death signal any more: a change of user clears it.
    ///
    /// # Errors
    /// Those of the system calls that set limits, users and directory.
    pub(crate) fn confine(&self) -> io::Result<()> {
        // The user of QEMU may have no access to the caller's directory.
        rustix::process::chdir(c"/")?;
        limit(libc::RLIMIT_CORE, 0)?;
        limit(libc::RLIMIT_NOFILE, DESCRIPTORS)?;
        limit(libc::RLIMIT_FSIZE, FILE_SIZE)?;
        if let Some(groups) = &self.groups {
            limit(libc::RLIMIT_NPROC, THREADS.saturating_add(u64::from(self.cpus)))?;
            let user = FIRST_USER + std::process::id() % PROCESS_IDS;
            // SAFETY: the kernel reads that many ids from a vector that outlives the call; the
            // others are numbers. The system calls themselves, because the functions of the C
            // library would first stop threads that do not exist after a fork.
            unsafe {
                result(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()))?;
                result(libc::syscall(libc::SYS_setresgid, user, user, user))?;
                result(libc::syscall(libc::SYS_setresuid, user, user, user))?;
            }
        }
        // SAFETY: takes numbers only.
        result(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())
    }
}

fn result(returned: libc::c_long) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lowers a limit to `most`, permanently.
fn limit(resource: libc::__rlimit_resource_t, most: u64) -> io::Result<()> {
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one `rlimit64`, and reads one, which both outlive the calls.
    unsafe {
        result(libc::prlimit64(0, resource, std::ptr::null(), &raw mut now).into())?;
        let most = most.min(now.rlim_max);
        let new = libc::rlimit64 { rlim_cur: most, rlim_max: most };
        result(libc::prlimit64(0, resource, &raw const new, std::ptr::null_mut()).into())
    }
}
