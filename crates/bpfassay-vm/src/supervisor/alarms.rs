// SPDX-License-Identifier: MIT OR Apache-2.0
//! The instants at which a guest has to be checked or ended.

use tokio::time::Instant;

/// The action that is due at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alarm {
    Phase,
    WholeBoot,
    OutputTail,
    Quit,
    Kill,
}

/// Instants of alarms other than the ends of a phase and of the boot.
#[derive(Debug, Default)]
pub(super) struct Alarms {
    pub(super) output_tail: Option<Instant>,
    pub(super) quit: Option<Instant>,
    pub(super) kill: Option<Instant>,
}

impl Alarms {
    pub(super) fn next(&self, phase: Option<Instant>, whole_boot: Option<Instant>) -> Option<(Instant, Alarm)> {
        let alarms = [
            (phase, Alarm::Phase),
            (whole_boot, Alarm::WholeBoot),
            (self.output_tail, Alarm::OutputTail),
            (self.quit, Alarm::Quit),
            (self.kill, Alarm::Kill),
        ];
        alarms.into_iter().filter_map(|(at, alarm)| Some((at?, alarm))).min_by_key(|&(at, _)| at)
    }

    /// Makes the kill of QEMU due at `now`, and clears all other alarms.
    pub(super) fn end_now(&mut self, now: Instant) {
        *self = Self { kill: Some(now), ..Self::default() };
    }
}
