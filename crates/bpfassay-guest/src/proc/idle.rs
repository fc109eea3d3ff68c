// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time in which CPUs were idle. Elapsed time minus this time is busy time.

use std::fs;

use crate::error::{Error, Result};

const PATH: &str = "/proc/timer_list";

/// Returns the idle time of all CPUs together since boot, in nanoseconds. `None` if the kernel does
/// not report it (without `NO_HZ_IDLE`, and kernels that keep this time elsewhere). `/proc/stat`
/// has this time only in hundredths of a second.
pub(crate) fn read() -> Result<Option<u64>> {
    match fs::read_to_string(PATH) {
        Ok(text) => Ok(total(&text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", PATH)(error)),
    }
}

/// Returns the sum over all CPUs of `idle_sleeptime` and `iowait_sleeptime` (`print_cpu` in
/// kernel/time/timer_list.c, Linux 6.12). `None` if the sum is 0: if the tick continues while a CPU
/// is idle, the kernel counts nothing.
pub(crate) fn total(text: &str) -> Option<u64> {
    let mut total = None;
    for line in text.lines() {
        let Some((name, value)) = line.trim_start().split_once(':') else { continue };
        if !matches!(name.trim_end(), ".idle_sleeptime" | ".iowait_sleeptime") {
            continue;
        }
        let value: u64 = value.trim().strip_suffix(" nsecs")?.parse().ok()?;
        total = Some(total.unwrap_or(0u64).checked_add(value)?);
    }
    total.filter(|&total| total > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_time_of_all_processors_is_summed() {
        let text = "cpu: 0\n  .idle_calls     : 7\n  .idle_sleeptime : 796137668094 nsecs\n  .iowait_sleeptime: 5 nsecs\ncpu: 1\n  .idle_sleeptime : 1 nsecs\n  .iowait_sleeptime: 0 nsecs\n";
        assert_eq!(total(text), Some(796_137_668_100));
    }

    #[test]
    fn what_the_kernel_does_not_report_is_not_zero() {
        assert_eq!(total(" #0: <0000>, hrtimer_wakeup, S:01\n"), None);
        assert_eq!(total("  .idle_sleeptime : many nsecs\n"), None);
        assert_eq!(total("  .idle_sleeptime : 0 nsecs\n  .iowait_sleeptime: 0 nsecs\n"), None);
    }
}
