// SPDX-License-Identifier: MIT OR Apache-2.0
//! Incidents that a kernel reports about itself.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An incident that a kernel reported about itself on the console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelIncident {
    /// The kind of incident.
    pub kind: KernelIncidentKind,
    /// The line that reported it, without its time stamp.
    pub line: String,
    /// The kernel's time stamp of that line, in microseconds since boot, if it has one.
    pub time_us: Option<u64>,
    /// Following lines with details (registers that locate it, task, first frames), bounded in
    /// number. They are complete only in [`crate::GuestEnding::incidents`].
    pub details: Vec<String>,
}

/// Ticks of a kernel's clock per second (CONFIG_HZ), in descending order.
const TICKS: [u64; 4] = [1000, 300, 250, 100];

/// Seconds after which RCU reports a stall by default (CONFIG_RCU_CPU_STALL_TIMEOUT of Linux and of
/// Debian's kernels).
const STALL_SECONDS: u64 = 21;

/// Converts the `ticks` of an RCU stall to the smallest possible number of seconds. RCU reports a
/// stall after [`STALL_SECONDS`] at the earliest, which excludes faster clocks.
fn seconds_of_stall(ticks: u64) -> u64 {
    let possible = TICKS.into_iter().find(|per_second| ticks / per_second >= STALL_SECONDS);
    ticks / possible.unwrap_or(TICKS[0])
}

impl KernelIncident {
    /// Returns how long the incident had lasted at least, according to the report. Stalls, lockups
    /// and hung tasks are reported long after they began. Returns `None` if the report has no
    /// duration, or a duration longer than the uptime.
    #[must_use]
    pub fn lasted(&self) -> Option<Duration> {
        use KernelIncidentKind::{HungTask, RcuStall, SoftLockup};
        let lines = || std::iter::once(&self.line).chain(&self.details).map(String::as_str);
        let whole_seconds = match self.kind {
            // `BUG: soft lockup - CPU#0 stuck for 26s!`, `BUG: workqueue lockup - pool cpus=0 …
            // stuck for 33s!`
            SoftLockup => number_behind(&self.line, " stuck for ", "s!")?,
            // `INFO: task ior:77 blocked for more than 120 seconds.`
            HungTask => number_behind(&self.line, " for more than ", " seconds")?,
            // `(t=5250 jiffies g=…`, `(detected by 1, t=5252 jiffies, g=…`, and for expedited
            // stalls `{ 1-.... } 5254 jiffies s: 57`
            RcuStall => {
                let ticks = |line: &str| {
                    number_behind(line, "t=", " jiffies").or_else(|| number_behind(line, "} ", " jiffies"))
                };
                seconds_of_stall(lines().find_map(ticks)?)
            }
            _ => return None,
        };
        // The count is of whole seconds, so that up to one second is uncertain.
        let lasted = Duration::from_secs(whole_seconds.saturating_sub(1));
        let is_possible = self.time_us.is_none_or(|time| lasted <= Duration::from_micros(time));
        (is_possible && !lasted.is_zero()).then_some(lasted)
    }
}

/// Parses the number in `line` between `before` and `behind`.
fn number_behind(line: &str, before: &str, behind: &str) -> Option<u64> {
    line.match_indices(before).find_map(|(at, _)| line.get(at + before.len()..)?.split_once(behind)?.0.parse().ok())
}

impl fmt::Display for KernelIncident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.line)
    }
}

/// Kinds of incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KernelIncidentKind {
    /// `Kernel panic - not syncing`, or the firmware's counterpart.
    Panic,
    /// The kernel made an invalid access or executed an invalid instruction.
    Oops,
    /// The kernel detected an inconsistency: `kernel BUG at`, `BUG: …`.
    Bug,
    /// A CPU has not passed through a quiescent state in time.
    RcuStall,
    /// A CPU has not scheduled in time.
    SoftLockup,
    /// A CPU has not taken interrupts in time.
    HardLockup,
    /// A task has been blocked for minutes.
    HungTask,
    /// Memory ran out, and a process was killed for it.
    OutOfMemory,
    /// The initramfs could not be unpacked completely.
    Initramfs,
    /// The NFS server does not answer the NFS client.
    NfsStall,
    /// A warning with a place in the source (`WARN_ON`), a lock or sanitiser report.
    Warning,
}

/// The severity of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Recorded with the results. Measuring continues.
    Note,
    /// The run in which it occurred cannot be trusted. The guest can recover.
    SpoilsRun,
    /// The guest is dead or cannot be trusted any more.
    Fatal,
}

impl KernelIncidentKind {
    /// Returns the severity of this kind.
    #[must_use]
    pub const fn severity(self) -> Severity {
        match self {
            Self::Panic | Self::Oops | Self::Bug => Severity::Fatal,
            Self::RcuStall
            | Self::SoftLockup
            | Self::HardLockup
            | Self::HungTask
            | Self::OutOfMemory
            | Self::Initramfs
            | Self::NfsStall => Severity::SpoilsRun,
            Self::Warning => Severity::Note,
        }
    }
}

impl fmt::Display for KernelIncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Panic => "kernel panic",
            Self::Oops => "kernel oops",
            Self::Bug => "kernel bug",
            Self::RcuStall => "RCU stall",
            Self::SoftLockup => "soft lockup",
            Self::HardLockup => "hard lockup",
            Self::HungTask => "hung task",
            Self::OutOfMemory => "out of memory",
            Self::Initramfs => "damaged initramfs",
            Self::NfsStall => "NFS stall",
            Self::Warning => "kernel warning",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_say_how_long_it_had_lasted() {
        use KernelIncidentKind::{HardLockup, HungTask, Panic, RcuStall, SoftLockup};
        let lasted = |kind, line: &str, details: &[&str], time_us| {
            let details = details.iter().map(|&line| line.to_owned()).collect();
            KernelIncident { kind, line: line.to_owned(), time_us, details }.lasted().map(|lasted| lasted.as_secs())
        };
        let late = Some(900_000_000);
        for (kind, line, details, seconds) in [
            (SoftLockup, "watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [tool:77]", &[][..], Some(25)),
            (SoftLockup, "BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 33s!", &[], Some(32)),
            (HungTask, "INFO: task ior:77 blocked for more than 120 seconds.", &[], Some(119)),
            (HungTask, "INFO: task kworker/u4:1:77 blocked in I/O wait for more than 241 seconds.", &[], Some(240)),
            (
                RcuStall,
                "rcu: INFO: rcu_preempt self-detected stall on CPU",
                &["rcu: \t(t=21003 jiffies g=1 q=2 ncpus=2)"],
                Some(20),
            ),
            (
                RcuStall,
                "rcu: INFO: rcu_sched detected stalls on CPUs/tasks:",
                &["(detected by 1, t=5252 jiffies, g=1, q=2)"],
                Some(20),
            ),
            (
                RcuStall,
                "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-.... } 5254 jiffies s: 57 root: 0x2/.",
                &[],
                Some(20),
            ),
            // A kernel with 100 ticks per second, and a shorter time limit with at most 1000 ticks
            // per second.
            (RcuStall, "rcu: INFO: rcu_preempt self-detected stall on CPU", &["(t=2105 jiffies g=1 q=2)"], Some(20)),
            (RcuStall, "rcu: INFO: rcu_preempt self-detected stall on CPU", &["(t=2003 jiffies g=1 q=2)"], Some(1)),
            // The report has no duration, or an impossible one.
            (RcuStall, "rcu: INFO: rcu_preempt self-detected stall on CPU", &["CPU: 0 PID: 77"], None),
            (HardLockup, "watchdog: Watchdog detected hard LOCKUP on cpu 0", &[], None),
            (SoftLockup, "BUG: soft lockup - CPU#0 stuck for 99999999999999999999s!", &[], None),
            (SoftLockup, "BUG: soft lockup - CPU#0 stuck for 1s!", &[], None),
            (Panic, "Kernel panic - not syncing: stuck for 26s!", &[], None),
        ] {
            assert_eq!(lasted(kind, line, details, late), seconds, "{line}");
        }
        // An incident cannot precede the kernel's start, so the line was forged.
        let hung = "INFO: task ior:77 blocked for more than 120 seconds.";
        assert_eq!(lasted(HungTask, hung, &[], Some(2_000_000)), None);
        assert_eq!(lasted(HungTask, hung, &[], None), Some(119));
    }
}
