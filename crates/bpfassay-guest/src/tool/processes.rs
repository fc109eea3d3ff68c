// SPDX-License-Identifier: MIT OR Apache-2.0
//! Resources of a tool's processes: memory and processor time of its cgroup.

use std::fs;

use crate::{cgroup::Cgroup, error::Result};

/// Resident memory of all processes in `cgroup`, in bytes. Read from each, because the memory
/// controller, which counts it as a whole, would make the workload beside it slower.
pub(super) fn resident(cgroup: &Cgroup) -> Result<u64> {
    let statuses = cgroup.processes()?.into_iter().filter_map(|pid| {
        // One that has exited meanwhile has no memory.
        fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).ok()
    });
    Ok(statuses.filter_map(|status| rss(&status)).sum())
}

/// Processor time of all processes that `cgroup` ever had, in microseconds.
pub(super) fn processor_us(cgroup: &Cgroup) -> Result<u64> {
    let text = cgroup.read("cpu.stat")?;
    usage(&text).ok_or_else(|| crate::error::Error::unexpected("cpu.stat", "a line `usage_usec N`", &text))
}

/// `VmRSS` of `/proc/PID/status`, in bytes.
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
