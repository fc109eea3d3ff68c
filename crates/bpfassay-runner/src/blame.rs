// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which run is to blame for a boot that failed. Pure.

use bpfassay_results::{BootVerdict, Involved, RunFailure};

use crate::observed::{BootPlan, Observed, is_tool_run};

/// How a boot ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum BootEnd {
    /// The agent reported that everything is done, and every run had ended.
    Done,
    /// It was stopped from outside.
    Interrupted,
    /// The host failed it.
    Host {
        /// How.
        failure: RunFailure,
        /// What kind of host failure: blocks that fail alike have the same.
        class: HostFailure,
    },
    /// The agent found the guest changed after a run that had ended.
    Unsound {
        /// The run.
        run: String,
        /// What it reported.
        failure: RunFailure,
        /// When, in milliseconds since the boot began.
        at_ms: u64,
    },
    /// The guest died, hung, or cannot be trusted any more.
    Broken {
        /// How.
        failure: RunFailure,
        /// When, in milliseconds since the boot began.
        at_ms: u64,
        /// When it had begun at the latest, in the same way: a stall is reported long after that.
        began_ms: u64,
    },
}

/// Kinds of host failure, as far as it matters whether several blocks fail alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostFailure {
    /// What the guest boots from could not be written.
    Initramfs,
    /// QEMU could not be started, or gave no sign of life.
    Start,
    /// QEMU ended by itself or was killed.
    Exit,
    /// The guest lacks something that no repetition would bring, such as a kernel module, or is
    /// another than was asked for: not repeated.
    Lacking,
}

/// Whether the failure came under a run of the boot or after one, and which that is to blame, by
/// these rules:
///
/// - A tool run in flight is to blame if no other tool run went before it in this boot; else it or
///   the last one before, which a confirming boot decides.
/// - While a baseline run or nothing is in flight, as after the last run, the last tool run that
///   ended before is to blame.
/// - Before the first tool run none is.
/// - A confirming boot blames the run that it is about, once that has begun.
/// - What had begun before the run in flight, as the kernel reports of stalls, lockups and tasks
///   that hang, is not that run's: the tool run that was in flight when it began is to blame, or
///   the last one before. A tool can write such a report itself, so a confirming boot looks at the
///   run in flight before that.
pub(crate) fn verdict(plan: &BootPlan, seen: &Observed, end: &BootEnd) -> BootVerdict {
    let id = |at: usize| plan.runs.get(at).map(|run| run.spec.id.clone()).unwrap_or_default();
    let at_ms = match end {
        BootEnd::Done => return BootVerdict::Complete,
        BootEnd::Interrupted => return BootVerdict::Interrupted,
        BootEnd::Host { .. } => return BootVerdict::Host,
        // Only what may have changed the guest is believed to have; the rest goes by what was seen.
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
    let tool_in_flight = |seen: &Observed| seen.in_flight().filter(|&at| plan.runs.get(at).is_some_and(is_tool_run));
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
