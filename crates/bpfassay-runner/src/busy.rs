// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this host is so busy that figures by the instruction clock can differ from those of others.
//!
//! Where QEMU's main loop has real-time priority they do not. Without it, they are the same on hosts that are idle (`ci/any-linux`, `quick` by an unprivileged user),
//! and a few were not at a load of 12 on two CPUs, in two of two runs (`crates/bpfassay-vm/src/cpu_pinning.rs` describes how).

#![allow(clippy::disallowed_methods, reason = "reads files of the kernel, in /proc or /sys")]

use std::fs;

use bpfassay_study::Clock;

/// A host with this many threads that want to run for each CPU is busy. What made the guests' programs just before leaves one.
const BUSY: f64 = 2.0;

/// Reports a busy host of so many CPUs, before figures by `clock` are taken there.
pub(crate) fn report(clock: Clock, cpus: u32) {
    if clock != Clock::Instructions {
        return;
    }
    let load = fs::read_to_string("/proc/loadavg").ok().and_then(|text| load(&text));
    if let Some(what) = load.and_then(|load| described(load, cpus, bpfassay_vm::may_be_real_time())) {
        tracing::warn!("{what}");
    }
}

/// The load of the last minute (`proc_loadavg(5)`).
fn load(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok()
}

fn described(load: f64, cpus: u32, may_be_real_time: bool) -> Option<String> {
    let is_busy = load >= BUSY * f64::from(cpus);
    (is_busy && !may_be_real_time).then(|| {
        format!(
            "this host is busy (load {load:.0}, CPUs {cpus}), and QEMU may have no real-time thread: a few figures can differ from those of other hosts; `bpfassay doctor` has the remedy"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_host_is_reported_where_qemu_has_no_real_time_thread() {
        assert_eq!(load("12.34 8.00 4.00 3/456 789\n"), Some(12.34));
        assert_eq!(load(""), None);
        let reported = described(12.34, 2, false).unwrap();
        assert!(reported.starts_with("this host is busy (load 12, CPUs 2)"), "{reported}");
        assert_eq!(described(12.34, 2, true), None);
        assert_eq!(described(3.99, 2, false), None);
        assert!(described(4.0, 2, false).is_some());
    }
}
