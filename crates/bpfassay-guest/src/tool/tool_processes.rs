// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory and processor time of a tool's processes, by cgroup.

use std::fs;

use crate::{cgroup::Cgroup, error::Result};

/// Returns the resident memory of all processes in `cgroup`, in bytes. It is read per process,
/// because the memory controller would make the workload slower.
pub(super) fn resident(cgroup: &Cgroup) -> Result<u64> {
    let statuses = cgroup.processes()?.into_iter().filter_map(|pid| {
        // A process that has exited in the meantime has no memory.
        fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()
    });
    Ok(statuses.filter_map(|status| rss(&status)).sum())
}

/// Returns the processor time of all processes that `cgroup` ever had, in microseconds.
pub(super) fn processor_us(cgroup: &Cgroup) -> Result<u64> {
    let text = cgroup.read("cpu.stat")?;
    usage(&text).ok_or_else(|| crate::error::Error::unexpected("cpu.stat", "a line `usage_usec N`", &text))
}

/// Returns `VmRSS` of `/proc/PID/status`, in bytes.
pub(crate) fn rss(status: &str) -> Option<u64> {
    let kib: u64 =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

pub(crate) fn usage(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_time_are_read_as_the_kernel_writes_them() {
        assert_eq!(rss("Name:\tx\nVmHWM:\t    9000 kB\nVmRSS:\t    8540 kB\nThreads:\t1\n"), Some(8540 * 1024));
        assert_eq!(rss("Name:\tkworker\n"), None);
        assert_eq!(usage("usage_usec 34221\nuser_usec 3\n"), Some(34_221));
        assert_eq!(usage("user_usec 3\n"), None);
    }
}
