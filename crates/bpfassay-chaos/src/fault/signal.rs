// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals to the command at any moment.

use super::{Draw, FaultKind, INTERRUPTED, at_moment};
use crate::trial::{CommandEnd, FaultTrial, HostAction};

const HUP: i32 = 1;
const INT: i32 = 2;
const KILL: i32 = 9;
const TERM: i32 = 15;

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::new("signal/interrupt", |draw| interrupted(draw, &[(INT, 1), (TERM, 1), (HUP, 1)])),
    FaultKind::new("signal/interrupt-twice", |draw| interrupted(draw, &[(INT, 2), (TERM, 3)])),
    FaultKind::new("signal/kill", |draw| interrupted(draw, &[(KILL, 1)])),
    FaultKind::new("signal/interrupt-at-a-time", |draw| timed(draw, &[(INT, 1), (TERM, 1), (INT, 2)])),
    FaultKind::new("signal/kill-at-a-time", |draw| timed(draw, &[(KILL, 1)])),
    FaultKind::new("signal/paused", |draw| {
        let mut trial = draw.trial();
        let for_ms = draw.random.between(50, 800);
        at_moment(draw, &mut trial, HostAction::Pause(for_ms));
        trial
    }),
    // The pause is longer than any phase of the study can take.
    FaultKind::new("signal/paused-for-long", |draw| {
        let mut trial = draw.trial();
        at_moment(draw, &mut trial, HostAction::Pause(14_000));
        trial.expected.hangs = 2;
        trial
    })
    .rare(),
];

/// Returns how a command that received `signal` can end.
fn ends(signal: i32) -> Vec<CommandEnd> {
    if signal == KILL { vec![CommandEnd::Signal(KILL)] } else { vec![INTERRUPTED] }
}

fn interrupted(draw: &mut Draw<'_>, signals: &[(i32, u32)]) -> FaultTrial {
    let mut trial = draw.trial();
    let (signal, times) = draw.random.pick(signals).copied().unwrap_or((INT, 1));
    at_moment(draw, &mut trial, HostAction::Signal(signal, times));
    trial.expected.interrupted = ends(signal);
    trial
}

/// Sends the signal at any time from the command's first instruction until after the last message.
/// The command does not handle signals yet when it starts.
fn timed(draw: &mut Draw<'_>, signals: &[(i32, u32)]) -> FaultTrial {
    let mut trial = draw.trial();
    let (signal, times) = draw.random.pick(signals).copied().unwrap_or((INT, 1));
    let after_ms = draw.random.below(1500);
    trial.parameters = format!("signal {signal} {times} times, {after_ms} ms after the start");
    trial.timed = Some((after_ms, HostAction::Signal(signal, times)));
    trial.expected.interrupted = ends(signal);
    trial.expected.interrupted.push(CommandEnd::Signal(signal));
    trial.expected.may_give_up = true;
    trial
}

/// Adds an interruption of the command to `trial`. The study is resumed with the guests unchanged.
pub(super) fn interrupt(draw: &mut Draw<'_>, trial: &mut FaultTrial) {
    let (signal, times) = draw.random.pick(&[(INT, 1), (TERM, 1), (KILL, 1)]).copied().unwrap_or((INT, 1));
    let parameters = std::mem::take(&mut trial.parameters);
    at_moment(draw, trial, HostAction::Signal(signal, times));
    // The interruption comes first: it would be too late where the guest dies.
    trial.rules.rotate_right(1);
    trial.parameters = format!("{parameters}; {}", trial.parameters);
    trial.expected.interrupted = ends(signal);
}
