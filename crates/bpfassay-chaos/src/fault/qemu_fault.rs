// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU is killed, stopped or missing. These are host failures, and no run is blamed.

use super::{Draw, FaultKind, all_runs, at_moment, host_of};
use crate::{
    script::{Action, BootPoint, Moment, Rule},
    trial::{FaultTrial, HostAction},
};

const HUP: i32 = 1;
const ILL: i32 = 4;
const ABRT: i32 = 6;
const KILL: i32 = 9;
const SEGV: i32 = 11;
const TERM: i32 = 15;

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::new("qemu/killed", |draw| killed_once(draw, &[KILL])),
    FaultKind::new("qemu/crashes", |draw| killed_once(draw, &[SEGV, ABRT, ILL])),
    FaultKind::new("qemu/ended", |draw| killed_once(draw, &[TERM, HUP])),
    FaultKind::new("qemu/killed-always", killed_always).rare(),
    FaultKind::new("qemu/killed-everywhere", |draw| everywhere(draw, Action::Kill(KILL), BootPoint::Ready))
        .rare()
        .wide(),
    FaultKind::new("qemu/does-not-start", |draw| {
        let mut trial = draw.trial();
        let block = draw.block();
        trial.parameters = format!("once in {}", block.id);
        trial.rules.push(Rule { when: Moment::once(&block.id, BootPoint::Launch), action: refusal(draw) });
        trial
    }),
    FaultKind::new("qemu/never-starts", |draw| {
        let action = refusal(draw);
        everywhere(draw, action, BootPoint::Launch)
    })
    .rare()
    .wide(),
    FaultKind::new("qemu/stopped-for-a-while", |draw| {
        let for_ms = draw.random.between(50, 800);
        draw.harmless(Action::Stop(Some(for_ms)))
    }),
    FaultKind::new("qemu/stopped", stopped).rare(),
    FaultKind::new("qemu/gone", |draw| {
        let mut trial = draw.trial();
        host_of(&mut trial.expected, all_runs(draw.study));
        at_moment(draw, &mut trial, HostAction::NoQemu);
        trial
    }),
];

/// Returns QEMU's message when it does not start.
fn refusal(draw: &mut Draw<'_>) -> Action {
    let messages = [
        "qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory",
        "qemu-system-x86_64: error while loading shared libraries: libglib-2.0.so.0: cannot open shared object file",
        "",
    ];
    let message = draw.random.pick(&messages).copied().unwrap_or_default().to_owned();
    Action::Refuse { status: u8::from(draw.random.percent(80)), message }
}

fn killed_once(draw: &mut Draw<'_>, signals: &[i32]) -> FaultTrial {
    let mut trial = draw.trial();
    let (block, mut point) = draw.moment();
    let signal = draw.random.pick(signals).copied().unwrap_or(KILL);
    if point == BootPoint::Launch && signal == HUP {
        point = BootPoint::Boot;
    }
    trial.parameters = format!("signal {signal}, once in {} at {point:?}", block.id);
    trial.rules.push(Rule { when: Moment::once(&block.id, point), action: Action::Kill(signal) });
    trial
}

/// One block never completes; the others do.
fn killed_always(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    let block = draw.block();
    host_of(&mut trial.expected, block.runs.iter().map(|run| run.spec.id.clone()));
    trial.parameters = format!("always in {}", block.id);
    trial
        .rules
        .push(Rule { when: Moment::always(Some(&block.id), vec![BootPoint::Ready]), action: Action::Kill(KILL) });
    trial
}

/// No block completes. After some failed blocks, no other is started.
fn everywhere(draw: &mut Draw<'_>, action: Action, point: BootPoint) -> FaultTrial {
    let mut trial = draw.trial();
    host_of(&mut trial.expected, all_runs(draw.study));
    trial.parameters = format!("always, everywhere, at {point:?}");
    trial.rules.push(Rule { when: Moment::always(None, vec![point]), action });
    trial
}

/// QEMU is stopped and never continued, once or always in one block. It hangs like a guest that
/// hangs, but the host knows the reason.
fn stopped(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    let (block, mut point) = draw.moment();
    if point == BootPoint::Launch {
        // The host does not wait for a guest before its monitor replies.
        point = BootPoint::Boot;
    }
    let again = draw.random.percent(30);
    let when = match again {
        true => Moment::always(Some(&block.id), vec![point]),
        false => Moment::once(&block.id, point),
    };
    if again {
        host_of(&mut trial.expected, block.runs.iter().map(|run| run.spec.id.clone()));
    }
    trial.expected.hangs = 4;
    trial.parameters = format!("{} in {}", if again { "always" } else { "once" }, block.id);
    trial.rules.push(Rule { when, action: Action::Stop(None) });
    trial
}
