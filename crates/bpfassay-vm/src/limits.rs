// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of QEMU, set between fork and exec, which keep its guest from using it against the
//! host.
//!
//! QEMU gets no new privileges, no core file, few descriptors, files of limited size, the root
//! directory as its working directory, and an environment without the caller's secrets. If root
//! started this program, QEMU also gets another user, which owns nothing, may have few processes,
//! and is in no group except that of /dev/kvm if QEMU uses it. `confine.rs` determines whether this
//! host permits these limits.
//!
//! Address space (`RLIMIT_AS`) is not limited. QEMU reserves far more than it uses: up to 1 GiB for
//! translated code, 64 MiB for each thread's heap, and the guest's memory with firmware. The amount
//! depends on version, accelerator and architecture. A failed reservation would end a guest in the
//! middle of a run.

use std::io;

use tokio::process::Command;

/// The first user id for QEMU. Each QEMU uses this plus its process id. Two that run at the same
/// time, of any bpfassay, are therefore different users. No users of a system or of containers are
/// in this range: distributions end below 65536, systemd's container ids below 0x7000_0000, and ids
/// from 0x8000_0000 on cause problems (systemd, UIDS-GIDS.md).
pub(crate) const FIRST_USER: u32 = 0x7b00_0000;
/// Process ids are below this (`PID_MAX_LIMIT` of Linux).
pub(crate) const PROCESS_IDS: u32 = 1 << 22;
/// Limit of QEMU's open descriptors. The numbers of inherited descriptors are below it.
const DESCRIPTORS: u64 = 1024;
/// Processes and threads that QEMU's separate user may have, in addition to one for each virtual
/// CPU.
const THREADS: u64 = 128;
/// Largest file that QEMU can write, in bytes. It fits all output of a guest in one boot, whose
/// runs send at most 8 MiB each.
pub(crate) const FILE_SIZE: u64 = 4 << 30;
/// Environment variables that QEMU inherits: it needs them to find libraries and to start.
const ENVIRONMENT: &[&str] = &["PATH", "LD_LIBRARY_PATH", "TZ"];

/// Limits that are set for one QEMU between fork and exec.
#[derive(Debug, Clone)]
pub(crate) struct QemuLimits {
    /// QEMU's supplementary groups. If absent, QEMU runs as the user that started this program.
    pub(crate) groups: Option<Vec<libc::gid_t>>,
    pub(crate) cpus: u32,
}

impl QemuLimits {
    /// Returns whether QEMU will be another user than this program.
    pub(crate) fn is_other_user(&self) -> bool {
        self.groups.is_some()
    }

    /// Reduces the command's environment to the part that QEMU inherits.
    pub(crate) fn environment(&self, command: &mut Command) {
        command.env_clear().envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    }

    /// Confines the calling process. Makes only system calls, because it runs between fork and
    /// exec. Afterwards there is no death signal any more, because a change of user clears it.
    ///
    /// # Errors
    /// The errors of the system calls that set limits, users and directory.
    pub(crate) fn confine(&self) -> io::Result<()> {
        // QEMU's user may have no access to the caller's directory.
        rustix::process::chdir(c"/")?;
        limit(libc::RLIMIT_CORE, 0)?;
        limit(libc::RLIMIT_NOFILE, DESCRIPTORS)?;
        limit(libc::RLIMIT_FSIZE, FILE_SIZE)?;
        if let Some(groups) = &self.groups {
            limit(libc::RLIMIT_NPROC, THREADS.saturating_add(u64::from(self.cpus)))?;
            let user = FIRST_USER + std::process::id() % PROCESS_IDS;
            // SAFETY: the kernel reads that many ids from a vector that outlives the call. The
            // other arguments are numbers. The C library's functions are not used, because they
            // would first stop threads that do not exist after a fork.
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
    // SAFETY: the kernel writes one `rlimit64` and reads another, which both outlive the calls.
    unsafe {
        result(libc::prlimit64(0, resource, std::ptr::null(), &raw mut now).into())?;
        let most = most.min(now.rlim_max);
        let new = libc::rlimit64 { rlim_cur: most, rlim_max: most };
        result(libc::prlimit64(0, resource, &raw const new, std::ptr::null_mut()).into())
    }
}
