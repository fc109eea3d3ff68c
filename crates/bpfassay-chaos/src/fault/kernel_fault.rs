// SPDX-License-Identifier: MIT OR Apache-2.0
//! Damage that a tool does to its guest, as the host observes it: the kernel dies, the guest powers
//! off, or the agent finds the guest changed.

use bpfassay_protocol::message::{GuestMessage, RunOutcome};

use super::{Draw, FaultKind};
use crate::{
    script::{Action, BootPoint, Moment, Rule, RunStep, SentPiece, Then},
    trial::FaultTrial,
};

const PANIC: &[&str] = &["panic"];
const OOPS: &[&str] = &["oops"];
/// The kernel's message about a process that it killed because memory ran out.
const OOM_LINE: &str = "[    3.100000] Out of memory: Killed process 77 (tool) total-vm:900000kB, anon-rss:800000kB";

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::new("kernel/panic", |draw| dies(draw, &["Kernel panic - not syncing: sysrq triggered crash"], PANIC)),
    FaultKind::new("kernel/oops", |draw| {
        let lines =
            ["BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0002 [#1] PREEMPT SMP NOPTI"];
        dies(draw, &lines, OOPS)
    }),
    FaultKind::new("kernel/agent-killed", |draw| {
        dies(draw, &["Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000009"], PANIC)
    }),
    FaultKind::new("kernel/reboots", |draw| {
        draw.broken_guest(Action::Send(Vec::new(), Then::Resets), &["early_exit"], false)
    }),
    FaultKind::new("kernel/powers-off", |draw| {
        draw.broken_guest(Action::Send(Vec::new(), Then::PowersOff), &["early_exit"], false)
    }),
    FaultKind::new("kernel/forks", |draw| {
        // Processes are forked endlessly: nothing else makes progress.
        let stall = "rcu: INFO: rcu_preempt self-detected stall on CPU";
        let action = Action::Send(vec![console(&[stall])], Then::Hangs);
        draw.broken_guest(action, &["rcu_stall", "phase_timeout", "boot_timeout"], true)
    })
    .rare(),
    FaultKind::new("kernel/tool-panics", |draw| {
        let action = death(&["Kernel panic - not syncing: Fatal exception in interrupt"]);
        draw.broken_tool(action, PANIC)
    }),
    FaultKind::new("kernel/tool-reboots", |draw| {
        draw.broken_tool(Action::Send(Vec::new(), Then::Resets), &["early_exit"])
    }),
    FaultKind::new("kernel/unmounts", |draw| unsound(draw, "/mnt/tmpfs is not mounted any more")),
    FaultKind::new("kernel/leaves-programs", |draw| unsound(draw, "2 BPF programs more than before")),
    // A warning is only noted.
    FaultKind::new("kernel/warning", |draw| {
        draw.harmless(Action::Send(
            vec![console(&["WARNING: CPU: 0 PID: 77 at kernel/trace/bpf_trace.c:1"])],
            Then::GoesOn,
        ))
    }),
    FaultKind::new("kernel/hung-task", |draw| {
        spoilt(draw, "INFO: task nfsd:77 blocked for more than 120 seconds.", "hung_task")
    }),
    FaultKind::new("kernel/memory-eaten", |draw| spoilt(draw, OOM_LINE, "out_of_memory")),
    // In the boot that confirms it, the host can read the line late, when everything is done.
    FaultKind::new("kernel/memory-eaten-late", |draw| {
        let mut trial = draw.trial();
        let position = draw.run(|position| position.is_tool() && position.tool_before().is_some());
        trial.expected.blame(position.id(), &["out_of_memory"], true);
        trial.parameters = format!("once in {}, then at the end", position.id());
        let report =
            || Action::Send(vec![SentPiece::Pause(300), console(&[OOM_LINE]), SentPiece::Pause(300)], Then::GoesOn);
        let in_run = Moment::once(&position.block.id, BootPoint::Run(position.id().to_owned(), RunStep::Workload));
        trial.rules.push(Rule { when: in_run, action: report() });
        let at_end = Moment::always(Some(&position.block.id), vec![BootPoint::Done]);
        trial.rules.push(Rule { when: at_end, action: report() });
        trial
    }),
    FaultKind::new("kernel/file-system-full", |draw| {
        let mut trial = draw.trial();
        let position = draw.tool_run();
        trial.expected.fails_in_guest(position.id(), &["run"]);
        trial.expected.lasts = true;
        trial.parameters = format!("always in {}", position.id());
        let message = "ior: write: No space left on device (os error 28)".to_owned();
        let action = Action::Outcome(Box::new(RunOutcome::Failed { message }));
        let points = vec![BootPoint::Run(position.id().to_owned(), RunStep::End)];
        trial.rules.push(Rule { when: Moment::always(None, points), action });
        trial
    }),
];

fn console(lines: &[&str]) -> SentPiece {
    SentPiece::Console(lines.iter().map(|line| format!("[    2.{:06}] {line}", line.len())).collect())
}

/// The kernel prints `lines` and resets the machine.
fn death(lines: &[&str]) -> Action {
    let mut pieces = vec![console(lines)];
    pieces.push(console(&["CPU: 0 PID: 77 Comm: tool Not tainted 6.12.0-chaos #1", "Call Trace:", " <TASK>"]));
    Action::Send(pieces, Then::Resets)
}

fn dies(draw: &mut Draw<'_>, lines: &[&str], kinds: &[&'static str]) -> FaultTrial {
    draw.broken_guest(death(lines), kinds, false)
}

/// The agent finds the guest changed after a tool run, reports it, and powers off.
fn unsound(draw: &mut Draw<'_>, difference: &str) -> FaultTrial {
    let mut trial = draw.trial();
    let position = draw.tool_run();
    trial.expected.blame(position.id(), &["unsound"], true);
    trial.expected.lasts = true;
    trial.parameters = format!("always after {}", position.id());
    let message = GuestMessage::Unsound { run: position.id().to_owned(), differences: vec![difference.to_owned()] };
    let points = vec![BootPoint::After(position.id().to_owned())];
    let action = Action::Send(vec![SentPiece::Message(message)], Then::PowersOff);
    trial.rules.push(Rule { when: Moment::always(None, points), action });
    trial
}

/// The kernel reports an incident in the middle of a tool run and continues. The host can then
/// trust neither the run nor the guest.
fn spoilt(draw: &mut Draw<'_>, line: &str, kind: &'static str) -> FaultTrial {
    let mut trial = draw.trial();
    let position = draw.tool_run();
    trial.expected.blame(position.id(), &[kind], true);
    trial.expected.lasts = true;
    trial.parameters = format!("always in {}", position.id());
    let points = vec![BootPoint::Run(position.id().to_owned(), RunStep::Workload)];
    // The host can read the console before the agent's port, or after it. So the line is printed
    // neither near the start of the phase nor near its end.
    let action = Action::Send(vec![SentPiece::Pause(300), console(&[line]), SentPiece::Pause(300)], Then::GoesOn);
    trial.rules.push(Rule { when: Moment::always(None, points), action });
    trial
}
