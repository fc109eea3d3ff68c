// SPDX-License-Identifier: MIT OR Apache-2.0
//! Estimates the remaining time of a step.

use std::cell::Cell;

use super::{ProgressStep, ProgressUnit};

/// Shortest duration of a step before its remaining time is estimated, in seconds.
const MATURE: f64 = 3.0;

/// Shortest remaining time to report, in seconds. A shorter step ends before its estimate is right
/// within a factor of two.
const SHORTEST: f64 = 5.0;

/// Added to the nice value of threads that work for any guest but the first. At 19, the scheduler
/// gives them a weight of 15 against 1024 (`sched_prio_to_weight`, kernel/sched/core.c).
pub const YIELDING: i32 = 19;

thread_local! {
    static YIELDS: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the CPU priority of this thread, and of processes that it starts, from now on. Stages
/// that this thread begins later get no time estimates. The priority stays low, because raising it
/// needs a privilege.
pub fn yield_from_now() {
    if !YIELDS.replace(true) {
        // Affects only the calling thread (nice(2), "C library/kernel differences"). A failure
        // changes no results.
        let _ = rustix::process::nice(YIELDING);
    }
}

/// Returns whether the stages that this thread begins yield the CPU.
pub(super) fn yields() -> bool {
    YIELDS.get()
}

/// Estimates the remaining seconds of a step from the rate so far. Returns `None` while the rate is
/// too uncertain, and for packages, because they differ too much.
pub(super) fn seconds_left(step: ProgressStep, elapsed: f64, done: u64, of: u64) -> Option<f64> {
    let is_known = elapsed >= MATURE && done > 0 && done.saturating_mul(20) >= of && done <= of;
    let share = share_of_time(step, done as f64 / of as f64).filter(|_| is_known)?;
    Some(elapsed * (1.0 - share) / share).filter(|left| *left >= SHORTEST)
}

/// Share of cargo's units that were compiled, and share of the time that had passed, in a build of
/// the guest's programs for x86_64 on two idle CPUs. The last crates take the longest.
const COMPILED: &[(f64, f64)] = &[
    (0.0, 0.0),
    (0.12, 0.04),
    (0.31, 0.14),
    (0.51, 0.28),
    (0.54, 0.44),
    (0.80, 0.50),
    (0.86, 0.66),
    (0.92, 0.85),
    (1.0, 1.0),
];
/// The shares in a build of the tracer's eBPF programs.
const COMPILED_EBPF: &[(f64, f64)] = &[(0.0, 0.0), (0.31, 0.23), (0.42, 0.41), (0.84, 0.6), (0.91, 0.95), (1.0, 1.0)];

/// Returns the share of the time of `step` that has passed when the share `done` of its units is
/// done.
fn share_of_time(step: ProgressStep, done: f64) -> Option<f64> {
    let curve = match step.unit()? {
        ProgressUnit::Bytes => return Some(done),
        ProgressUnit::Packages => return None,
        ProgressUnit::Units if step == ProgressStep::CompileEbpf => COMPILED_EBPF,
        ProgressUnit::Units => COMPILED,
    };
    let (&from, &to) = curve.iter().zip(curve.get(1..)?).find(|(_, to)| done <= to.0)?;
    Some(from.1 + (to.1 - from.1) * (done - from.0) / (to.0 - from.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_estimated_once_there_is_a_rate() {
        let left = |elapsed, done, of| seconds_left(ProgressStep::Download, elapsed, done, of);
        assert_eq!(left(10.0, 25, 100), Some(30.0));
        assert_eq!(left(10.0, 90, 100), None, "as good as over");
        assert_eq!(left(1.0, 25, 100), None, "too early");
        assert_eq!(left(10.0, 4, 100), None, "too little");
        assert_eq!(left(10.0, 0, 0), None, "not counted");
        assert_eq!(seconds_left(ProgressStep::Unpack, 10.0, 25, 100), None, "packages differ");
    }

    #[test]
    fn the_time_left_to_compile_is_right_within_a_factor_of_two() {
        // Seconds and units of builds under other load, on another day than the curves.
        let programs = [(4.0, 13), (10.0, 24), (19.0, 47), (29.0, 57), (49.0, 76), (68.0, 96), (83.0, 103)];
        let ebpf = [(8.0, 21), (14.0, 28), (17.0, 39), (20.0, 56)];
        let checked = |step, all: f64, of, seen: &[(f64, u64)]| {
            for &(elapsed, done) in seen {
                let told = seconds_left(step, elapsed, done, of).unwrap();
                let really = all - elapsed;
                assert!((0.5..=2.0).contains(&(told / really)), "{told} s told after {elapsed} s, really {really} s");
            }
        };
        checked(ProgressStep::Compile, 103.0, 112, &programs);
        checked(ProgressStep::CompileEbpf, 34.0, 67, &ebpf);
    }
}
