// SPDX-License-Identifier: MIT OR Apache-2.0
//! Readings that no other task interrupts.
//!
//! While a process reads a map, the kernel keeps programs on perf events (kprobes, tracepoints,
//! fprobes) from running on that CPU. It calls `bpf_disable_instrumentation` around
//! `generic_map_lookup_batch` (kernel/bpf/hashtab.c and syscall.c, 5.10 to 7.2). A preemptible
//! kernel can run another task on that CPU meanwhile, whose calls are then not counted: reading
//! would change what is read. Ordinary tasks do not preempt a task with a real-time policy.

use std::{io, mem::zeroed, sync::OnceLock};

use crate::kernel::preemption;

/// The former policy of this thread.
#[derive(Debug)]
struct Before {
    policy: libc::c_int,
    parameters: libc::sched_param,
}

/// Keeps tasks with an ordinary policy from preempting this thread, for as long as this exists.
/// Sleeping still yields the CPU.
#[derive(Debug)]
pub(crate) struct NoPreempt(Option<Before>);

impl NoPreempt {
    /// Raises the priority on preemptible kernels; does nothing on others. If the policy cannot be
    /// changed (no `CAP_SYS_NICE`), readings happen without it: calls that programs miss in the
    /// meantime are counted as missed.
    pub(crate) fn begin() -> Self {
        static PREEMPTIBLE: OnceLock<bool> = OnceLock::new();
        let needed = *PREEMPTIBLE.get_or_init(preemption::is_preemptible);
        Self(needed.then(|| raise().ok()).flatten())
    }
}

impl Drop for NoPreempt {
    fn drop(&mut self) {
        if let Some(Before { policy, parameters }) = &self.0 {
            // SAFETY: the parameters outlive the call; 0 is this thread. Restoring the former
            // policy is always allowed.
            unsafe { libc::sched_setscheduler(0, *policy, parameters) };
        }
    }
}

fn raise() -> io::Result<Before> {
    // SAFETY: plain numbers, for which zeros are valid; both calls fill in or read one structure
    // that outlives them.
    unsafe {
        let mut parameters: libc::sched_param = zeroed();
        let policy = libc::sched_getscheduler(0);
        if policy < 0 || libc::sched_getparam(0, &mut parameters) < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut lowest: libc::sched_param = zeroed();
        lowest.sched_priority = 1;
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &lowest) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Before { policy, parameters })
    }
}
