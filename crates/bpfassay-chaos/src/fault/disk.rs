// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortages and losses of the host: space, descriptors, directories, bits.

use super::{Draw, FaultKind, INTERRUPTED, all_runs, at_moment, host_of};
use crate::trial::{CommandEnd, Damage, FaultTrial, HostAction, WrittenDirectory};

const INT: i32 = 2;
const KILL: i32 = 9;

pub(super) const FAULTS: &[FaultKind] = &[
    FaultKind::new("disk/output-fills-up", |draw| fills_up(draw, WrittenDirectory::Output)).mounts(),
    FaultKind::new("disk/output-full", |draw| full(draw, WrittenDirectory::Output)).mounts(),
    FaultKind::new("disk/temporary-fills-up", |draw| fills_up(draw, WrittenDirectory::Temporary)).mounts(),
    FaultKind::new("disk/temporary-full", |draw| full(draw, WrittenDirectory::Temporary)).mounts(),
    FaultKind::new("disk/cache-fills-up", |draw| fills_up(draw, WrittenDirectory::Cache)).mounts(),
    FaultKind::new("disk/cache-full", |draw| full(draw, WrittenDirectory::Cache)).mounts(),
    FaultKind::new("disk/descriptors", |draw| {
        let mut trial = draw.trial();
        host_of(&mut trial.expected, all_runs(draw.study));
        trial.expected.may_give_up = true;
        let most = draw.random.between(8, 40);
        at_moment(draw, &mut trial, HostAction::Descriptors(most));
        trial
    }),
    FaultKind::new("disk/no-logs", |draw| {
        let mut trial = draw.trial();
        host_of(&mut trial.expected, all_runs(draw.study));
        at_moment(draw, &mut trial, HostAction::NoLogs);
        trial
    }),
    FaultKind::new("disk/image-damaged", |draw| {
        let image = usize::from(draw.random.percent(50));
        let share = draw.random.below(1000);
        let mut trial = stopped(draw);
        trial.damage = Some(Damage::Image(image, share));
        trial.parameters = format!("{}; then a bit of image {image} flipped at {share}/1000", trial.parameters);
        trial
    }),
    FaultKind::new("disk/journal-cut", |draw| {
        let bytes = draw.random.between(1, 3000);
        let mut trial = stopped(draw);
        trial.damage = Some(Damage::JournalCut(bytes));
        trial.parameters = format!("{}; then {bytes} bytes of the journal gone", trial.parameters);
        trial
    }),
];

/// The command is interrupted at any moment.
fn stopped(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    let (signal, end) = if draw.random.percent(50) { (INT, INTERRUPTED) } else { (KILL, CommandEnd::Signal(KILL)) };
    at_moment(draw, &mut trial, HostAction::Signal(signal, 1));
    trial.expected.interrupted = vec![end];
    trial
}

/// A failed write stops the command or fails runs as host failures. No run is blamed.
fn short_of_space(draw: &mut Draw<'_>) -> FaultTrial {
    let mut trial = draw.trial();
    host_of(&mut trial.expected, all_runs(draw.study));
    trial.expected.may_give_up = true;
    trial
}

fn fills_up(draw: &mut Draw<'_>, directory: WrittenDirectory) -> FaultTrial {
    let mut trial = short_of_space(draw);
    trial.small = Some((directory, false));
    at_moment(draw, &mut trial, HostAction::Fill);
    trial
}

fn full(draw: &mut Draw<'_>, directory: WrittenDirectory) -> FaultTrial {
    let mut trial = short_of_space(draw);
    trial.small = Some((directory, true));
    trial.parameters = format!("{directory:?} from the start");
    trial
}
