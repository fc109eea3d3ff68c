// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which run is to blame for a boot that failed. Pure.

use bpfassay_results::{BootVerdict, Involved, RunFailure};

use crate::decisions::observed::{BootPlan, ObservedBoot, is_tool_run};

/// How a boot ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BootEnd {
    /// The agent reported that everything is done, and every run had ended.
    Done,
    /// The boot was stopped from outside.
    Interrupted,
    /// The boot failed because of the host.
    Host {
        failure: RunFailure,
        /// The kind of host failure. Blocks that fail alike have the same kind.
        class: HostFailure,
    },
    /// The agent found the guest changed after a run that had ended.
    Unsound {
        /// Identifier of that run.
        run: String,
        /// The agent's report.
        failure: RunFailure,
        /// Time of the report, in milliseconds since the boot began.
        at_ms: u64,
    },
    /// The guest died, hung, or cannot be trusted any more.
    Broken {
        failure: RunFailure,
        /// Time of the failure, in milliseconds since the boot began.
        at_ms: u64,
        /// Latest time at which the fault began, in milliseconds since the boot began. A stall is
        /// reported long after it began.
        began_ms: u64,
    },
}

/// Kinds of host failure, as far as it matters whether several blocks fail alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFailure {
    /// The initramfs of the guest could not be written.
    Initramfs,
    /// QEMU could not be started, or gave no sign of life.
    Start,
    /// QEMU exited or was killed.
    Exit,
    /// The guest lacks something that a repetition does not add, such as a kernel module, or
    /// differs from the request. The boot is not repeated.
    Lacking,
}

/// Decides whether the boot failed during or after one of its runs, and which run is to blame:
///
/// - A tool run in flight is to blame if no other tool run came before it in this boot. Otherwise
///   either that run or the last tool run before it is, and a confirming boot decides.
/// - If a baseline run or nothing is in flight, the last tool run that ended before is to blame.
/// - Before the first tool run, no run is to blame.
/// - A confirming boot blames the run that it is about if that run has begun.
/// - A fault that began before the run in flight is not blamed on that run. The kernel reports
///   stalls, lockups and hung tasks late. The tool run in flight when the fault began is to blame,
///   or else the last one before. A tool can write such a report itself, so a confirming boot tries
///   the run in flight first.
pub(crate) fn verdict(plan: &BootPlan, seen: &ObservedBoot, end: &BootEnd) -> BootVerdict {
    let id = |at: usize| plan.runs.get(at).map(|run| run.spec.id.clone()).unwrap_or_default();
    let at_ms = match end {
        BootEnd::Done => return BootVerdict::Complete,
        BootEnd::Interrupted => return BootVerdict::Interrupted,
        BootEnd::Host { .. } => return BootVerdict::Host,
        // The report is believed about a tool run that has ended. Otherwise observations decide.
        BootEnd::Unsound { run, .. } if plan.confirming.is_none() && seen.has_ended_tool(plan, run) => {
            return BootVerdict::Blamed { run: run.clone() };
        }
        BootEnd::Unsound { at_ms, .. } | BootEnd::Broken { at_ms, .. } => *at_ms,
    };
    let then = match end {
        BootEnd::Broken { began_ms, .. } if *began_ms < at_ms => seen.at(*began_ms),
        _ => seen.clone(),
    };
    if let Some(confirmed) = &plan.confirming
        && plan.runs.iter().take(then.runs.len()).any(|run| run.spec.id == *confirmed)
    {
        return BootVerdict::Blamed { run: confirmed.clone() };
    }
    let tool_in_flight =
        |seen: &ObservedBoot| seen.in_flight().filter(|&at| plan.runs.get(at).is_some_and(is_tool_run));
    let in_flight = tool_in_flight(seen);
    // A tool run before the one in flight.
    let before = tool_in_flight(&then).filter(|&at| Some(at) != in_flight).or_else(|| then.last_tool(plan));
    let is_of_earlier = in_flight.is_some_and(|at| at >= then.runs.len());
    let involved = |at: usize| {
        let seen = seen.runs.get(at);
        Involved {
            run: id(at),
            started_unix_ms: seen.map_or(0, |seen| seen.started_unix_ms),
            duration_ms: seen.map_or(0, |seen| seen.duration_ms(at_ms)),
        }
    };
    match (in_flight, before) {
        (Some(_), None) if is_of_earlier => BootVerdict::Nobody,
        (Some(suspect), Some(before)) if plan.confirming.is_none() => {
            let ended = seen.runs.get(before).and_then(|seen| seen.ended_ms).unwrap_or(at_ms);
            BootVerdict::Suspected {
                suspect: involved(suspect),
                otherwise: involved(before),
                after_ms: at_ms.saturating_sub(ended),
            }
        }
        (Some(blamed), _) | (None, Some(blamed)) => BootVerdict::Blamed { run: id(blamed) },
        (None, None) => BootVerdict::Nobody,
    }
}
