// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time and memory of the steps of a measuring program.

#![allow(clippy::print_stdout, reason = "a program for measuring prints what it measured")]

use std::{fs, time::Instant};

/// Returns the peak memory of this process, in MiB.
pub(crate) fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}

/// Returns the CPU time of this process in seconds.
pub(crate) fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the result of `work`, and prints its duration and the size of the result.
pub(crate) fn timed<T>(what: &str, work: impl FnOnce() -> T, size: impl FnOnce(&T) -> u64) -> T {
    let (since, used) = (Instant::now(), processor_s());
    let done = work();
    println!(
        "{what:<24} {:>8.2} s, of processors {:>8.2} s, {:>6} MiB, peak {} MiB",
        since.elapsed().as_secs_f64(),
        processor_s() - used,
        size(&done) >> 20,
        peak_mib()
    );
    done
}
