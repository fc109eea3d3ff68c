// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest's progress and its deadlines. Pure: time is a parameter.

use std::time::Duration;

use bpfassay_protocol::message::{GuestMessage, Phase};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time limits of the phases, in seconds on the host. `None` means no limit.
///
/// A phase begins with the agent's message about it. [`Phase::Boot`] begins with QEMU's start.
/// Every run has its own phases, each of which occurs once ([`crate::MessageOrder`]).
/// [`Self::workload`] is therefore for one run. A guest that reports run after run for ever exceeds
/// only [`Self::whole_boot`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Deadlines", deny_unknown_fields)]
pub struct GuestDeadlines {
    /// Time from power-on to the agent's first message.
    pub boot: Option<u64>,
    /// Modules, NFS server, mount.
    pub set_up: Option<u64>,
    /// Loading and attaching the tracer.
    pub attach: Option<u64>,
    /// The workload of one run.
    pub workload: Option<u64>,
    /// Last readings, detaching, removing files.
    pub tear_down: Option<u64>,
    /// An interactive shell.
    pub shell: Option<u64>,
    /// Time from the agent's last message, or the order to power off, to QEMU's exit.
    pub power_off: Option<u64>,
    /// Time from QEMU's start to its exit, no matter what the guest does and how slowly its owner
    /// takes events. Interactive guests have no limit. For other guests, the default is
    /// [`Self::LONGEST_BOOT`].
    pub whole_boot: Option<u64>,
}

impl Default for GuestDeadlines {
    /// The defaults are more than enough under TCG on a loaded two-core host. A hang costs a
    /// minute, not an hour.
    fn default() -> Self {
        Self {
            boot: Some(60),
            set_up: Some(60),
            attach: Some(60),
            workload: Some(600),
            tear_down: Some(60),
            shell: None,
            power_off: Some(20),
            whole_boot: Some(Self::LONGEST_BOOT),
        }
    }
}

impl GuestDeadlines {
    /// Limit of a boot for which the owner sets none, in seconds: a day.
    pub const LONGEST_BOOT: u64 = 24 * 60 * 60;

    /// Returns the time limit of `phase`.
    #[must_use]
    pub fn of(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Boot => self.boot,
            Phase::SetUp => self.set_up,
            Phase::Attach => self.attach,
            Phase::Workload => self.workload,
            Phase::TearDown => self.tear_down,
            Phase::Shell => self.shell,
        }
        .map(Duration::from_secs)
    }

    /// Returns the same deadlines, each `factor` times as long.
    #[must_use]
    pub fn scaled(&self, factor: u32) -> Self {
        let scale = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(u64::from(factor)));
        Self {
            boot: scale(self.boot),
            set_up: scale(self.set_up),
            attach: scale(self.attach),
            workload: scale(self.workload),
            tear_down: scale(self.tear_down),
            shell: scale(self.shell),
            power_off: scale(self.power_off),
            whole_boot: scale(self.whole_boot),
        }
    }
}

/// The state of a guest.
#[derive(Debug)]
pub(crate) struct GuestProgress {
    deadlines: GuestDeadlines,
    /// The phase announced last.
    pub(crate) phase: Phase,
    /// The run that the phase belongs to, if any.
    pub(crate) run: Option<String>,
    /// Whether the agent has sent any message.
    pub(crate) spoke: bool,
    /// Whether the agent has reported that everything is done.
    pub(crate) done: bool,
    pub(crate) failed: Option<String>,
    /// The run after which the agent found the guest changed, and the differences.
    pub(crate) unsound: Option<(String, Vec<String>)>,
    /// Whether the guest is about to power off, by its own message or by the host's request.
    leaving: bool,
    /// When the current phase began, relative to QEMU's start.
    since: Duration,
}

impl GuestProgress {
    pub(crate) fn new(deadlines: GuestDeadlines) -> Self {
        Self {
            deadlines,
            phase: Phase::Boot,
            run: None,
            spoke: false,
            done: false,
            failed: None,
            unsound: None,
            leaving: false,
            since: Duration::ZERO,
        }
    }

    /// Processes a message that arrived `now` after QEMU's start.
    pub(crate) fn handle_message(&mut self, message: &GuestMessage, now: Duration) {
        if !self.spoke {
            self.spoke = true;
            self.enter(Phase::SetUp, None, now);
        }
        match message {
            GuestMessage::Phase { phase, run } => self.enter(*phase, run.clone(), now),
            GuestMessage::RunEnded { .. } => self.enter(Phase::TearDown, None, now),
            GuestMessage::Done => {
                self.done = true;
                self.leave(now);
            }
            GuestMessage::Failed { message } => {
                self.failed = Some(message.clone());
                self.leave(now);
            }
            GuestMessage::Unsound { run, differences } => {
                self.unsound = Some((run.clone(), differences.clone()));
                self.leave(now);
            }
            GuestMessage::Hello { .. }
            | GuestMessage::Ready(_)
            | GuestMessage::Barrier { .. }
            | GuestMessage::Log { .. }
            | GuestMessage::Symbols(_)
            | GuestMessage::Source(_) => {}
        }
    }

    fn enter(&mut self, phase: Phase, run: Option<String>, now: Duration) {
        self.phase = phase;
        self.run = run;
        self.since = now;
    }

    /// Records that the guest was requested to power off, or announced it.
    pub(crate) fn leave(&mut self, now: Duration) {
        if !self.leaving {
            self.leaving = true;
            self.since = now;
        }
    }

    /// Restarts the time of the phase at `now`, because no alarm was served for some time, in which
    /// possibly nothing ran.
    pub(crate) fn restart(&mut self, now: Duration) {
        self.since = now;
    }

    /// Returns the whole time that is allowed for the guest's current activity.
    pub(crate) fn allowance(&self) -> Option<Duration> {
        if self.leaving { self.deadlines.power_off.map(Duration::from_secs) } else { self.deadlines.of(self.phase) }
    }

    /// Returns the seconds from QEMU's start after which the guest is ended in any case.
    pub(crate) fn whole_boot(&self) -> Option<u64> {
        self.deadlines.whole_boot
    }

    /// Returns the time by which the guest must have progressed, relative to QEMU's start.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.allowance().map(|allowed| self.since.saturating_add(allowed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn deadlines() -> GuestDeadlines {
        GuestDeadlines {
            boot: Some(10),
            set_up: Some(20),
            attach: Some(30),
            workload: Some(40),
            tear_down: Some(50),
            shell: None,
            power_off: Some(5),
            whole_boot: Some(100),
        }
    }

    fn phase(phase: Phase) -> GuestMessage {
        GuestMessage::Phase { phase, run: Some("r1".to_owned()) }
    }

    #[test]
    fn every_phase_has_its_own_time_from_its_own_beginning() {
        let mut progress = GuestProgress::new(deadlines());
        assert_eq!(progress.deadline(), Some(10 * SECOND));
        progress.handle_message(&GuestMessage::Hello { agent: "1".to_owned() }, 3 * SECOND);
        assert_eq!((progress.phase, progress.deadline()), (Phase::SetUp, Some(23 * SECOND)));
        progress.handle_message(&phase(Phase::Attach), 5 * SECOND);
        assert_eq!(progress.deadline(), Some(35 * SECOND));
        progress.handle_message(&phase(Phase::Workload), 6 * SECOND);
        assert_eq!(progress.deadline(), Some(46 * SECOND));
        progress.handle_message(&GuestMessage::Log { text: String::new() }, 30 * SECOND);
        assert_eq!(progress.deadline(), Some(46 * SECOND), "log messages are not progress");
        assert_eq!(progress.run.as_deref(), Some("r1"));
        progress.handle_message(&phase(Phase::Shell), 31 * SECOND);
        assert_eq!(progress.deadline(), None);
    }

    #[test]
    fn the_last_message_starts_the_time_to_power_off_once() {
        let mut progress = GuestProgress::new(deadlines());
        progress.handle_message(&GuestMessage::Done, 7 * SECOND);
        assert!(progress.done);
        progress.leave(9 * SECOND);
        assert_eq!(progress.deadline(), Some(12 * SECOND));
    }

    #[test]
    fn scaling_never_overflows() {
        let long = GuestDeadlines { workload: Some(u64::MAX), ..deadlines() }.scaled(3);
        assert_eq!((long.workload, long.shell, long.boot), (Some(u64::MAX), None, Some(30)));
        assert_eq!(long.whole_boot, Some(300));
        let mut progress = GuestProgress::new(long);
        progress.handle_message(&phase(Phase::Workload), SECOND);
        assert!(progress.deadline().is_some());
    }
}
