// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which host CPUs the threads of a guest that counts instructions run.
//!
//! Such a guest must not notice how fast the host's threads run, and QEMU has one place where it does: a virtual CPU
//! that goes to sleep marks itself (`halted`, set by the instruction itself) before the instructions of its slice are added to the
//! clock (`icount_process_data`), and only afterwards takes the lock under which the main loop works. The main loop is woken at
//! every deadline of the guest's timers (`icount_notify_aio_contexts`). If it runs in that gap and finds the CPU asleep, it
//! advances the clock to the next timer from where it was before the slice (`icount_start_warp_timer`), and the slice is added on
//! top: the timer is late by as many instructions (QEMU 7.2: accel/tcg/tcg-accel-ops-rr.c, softmmu/icount.c).
//!
//! A guest that sleeps 100,000 times for 50 µs (x86_64 6.12, Linux 6.18 on the host, two cores under load) shows how often:
//! one boot in four differed without measures, four in twelve with all threads on one CPU, where the scheduler still takes the CPU away
//! from one thread for another at any point. None of 20 did where the main loop is moreover a thread of real-time priority,
//! which runs as soon as it is woken: that is, at the wake-up and never in the gap. Without the privilege for that, the other
//! threads get a nice value, which usually makes the scheduler do the same: none of 16 differed.

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

use std::{
    collections::BTreeMap,
    fs, io,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use rustix::{
    process::{Pid, setpriority_process},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

/// The nice value of the other threads where the main loop may not have real-time priority. Each step leaves it four fifths of its
/// share of the CPU beside other programs (sched(7)): 5 steps leave a third.
const STEP_BACK: i32 = 5;

/// How many guests use each CPU.
static TAKEN: Mutex<BTreeMap<usize, u32>> = Mutex::new(BTreeMap::new());

fn taken() -> MutexGuard<'static, BTreeMap<usize, u32>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A CPU that a guest has until this is dropped.
#[derive(Debug)]
pub(crate) struct CpuPinning {
    cpu: usize,
}

impl CpuPinning {
    /// The CPU with the fewest guests among those that this program may use; `None` where the system does not name them.
    pub(crate) fn take() -> Option<Self> {
        let allowed = sched_getaffinity(None).ok()?;
        Self::among((0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)))
    }

    fn among(cpus: impl Iterator<Item = usize>) -> Option<Self> {
        let mut taken = taken();
        let cpu = cpus.min_by_key(|cpu| taken.get(cpu).copied().unwrap_or(0))?;
        *taken.entry(cpu).or_default() += 1;
        Some(Self { cpu })
    }

    /// That CPU and no other.
    pub(crate) fn cpus(&self) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(self.cpu);
        set
    }

    /// Gives the other threads of QEMU's process a nice value where its first thread, the main loop, has no real-time priority
    /// ([`pin`] could not give it). To be called when its threads exist, that is when its monitor replies.
    pub(crate) fn favour_main_loop(&self, process: u32) {
        if is_real_time(process) {
            return;
        }
        let others = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let others = others.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        for thread in others.filter_map(Pid::from_raw).filter(|thread| thread.as_raw_pid().cast_unsigned() != process) {
            // A thread may have ended. A guest with unchanged priorities still measures; `verify` shows whether its figures differ.
            if let Err(error) = setpriority_process(Some(thread), STEP_BACK) {
                tracing::debug!(%error, ?thread, cpu = self.cpu, "a thread of QEMU keeps its nice value");
            }
        }
    }
}

/// Restricts the calling process to `cpus`, at real-time priority if it may have that; threads that it starts have none.
/// For the time between fork and exec: makes system calls only.
///
/// # Errors
/// Those of sched_setaffinity(2). That there is no real-time priority is no error.
pub(crate) fn pin(cpus: &CpuSet) -> io::Result<()> {
    sched_setaffinity(None, cpus)?;
    // A refusal (no CAP_SYS_NICE, no RLIMIT_RTPRIO) is what `favour_main_loop` is for.
    become_real_time();
    Ok(())
}

/// Whether QEMU's main loop may have the real-time priority by which a guest that counts instructions does not notice how busy the host is.
#[must_use]
pub fn may_be_real_time() -> bool {
    // In a thread of its own, which ends with the priority.
    thread::spawn(become_real_time).join().is_ok_and(|permitted| permitted)
}

/// Gives the calling thread the lowest real-time priority, and returns whether it may have that. Makes a system call only.
fn become_real_time() -> bool {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads one `sched_param`, which outlives the call. The system call itself, because musl's function always fails.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameters) == 0 }
}

/// Whether the first thread of this process has real-time priority.
fn is_real_time(process: u32) -> bool {
    // SAFETY: takes and returns numbers only.
    let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, process) };
    policy & !libc::c_long::from(libc::SCHED_RESET_ON_FORK) == libc::c_long::from(libc::SCHED_FIFO)
}

impl Drop for CpuPinning {
    fn drop(&mut self) {
        if let Some(guests) = taken().get_mut(&self.cpu) {
            *guests = guests.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_share_a_cpu_only_where_there_are_more_of_them() {
        // Numbers that no test with real guests uses.
        let take = || CpuPinning::among([901, 902].into_iter()).unwrap();
        let (first, second) = (take(), take());
        assert_eq!((first.cpu, second.cpu), (901, 902));
        let third = take();
        assert_eq!(third.cpu, 901);
        drop((first, third));
        assert_eq!(take().cpu, 901);
        assert!(CpuPinning::among(std::iter::empty()).is_none());
        assert!(second.cpus().is_set(902) && second.cpus().count() == 1);
    }

    #[test]
    fn real_time_threads_are_permitted_where_chrt_may_have_one() {
        let Ok(output) = std::process::Command::new("chrt").args(["--fifo", "1", "true"]).output() else {
            println!("skipped: no chrt");
            return;
        };
        assert_eq!(may_be_real_time(), output.status.success(), "{output:?}");
    }

    #[test]
    fn the_cpu_is_one_that_this_program_may_use() {
        let cpu_pinning = CpuPinning::take().unwrap();
        assert!(sched_getaffinity(None).unwrap().is_set(cpu_pinning.cpu));
    }
}
