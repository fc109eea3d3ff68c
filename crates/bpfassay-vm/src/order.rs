// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order in which an agent can send its messages. Pure.
//!
//! - A boot: `Hello`, phase `set-up`, `Ready`, its runs one after the other, `Done`. A shell job
//!   has the phase `shell` in place of runs.
//! - A run: phases `attach`, `workload` and `tear-down`, each at most once and in this order, then
//!   `RunEnded`. A run that was measured had `workload` and `tear-down`. A run that fails or is
//!   refused skips phases. It skips all of them if its tool was refused in an earlier run, which
//!   the refusal names.
//! - `Log`, `Symbols` and `Source` can come at any time after `Hello`. `Barrier` can come in a run,
//!   and before its first phase.
//! - `Failed` ends every boot. `Unsound` ends a boot right after the run that it names. Nothing
//!   comes after the last message.
//!
//! Run ids are only compared with each other. The owner checks which runs a guest executes.

use std::{
    collections::{HashSet, hash_map::RandomState},
    hash::BuildHasher,
};

use bpfassay_protocol::message::{GuestMessage, Phase, RunOutcome};

/// Largest number of runs of one boot.
const MAX_RUNS: usize = 1 << 20;
/// Longest run id, in bytes.
const MAX_RUN_ID: usize = 1024;
/// Largest part of a run id that is shown, in bytes.
const MAX_SHOWN: usize = 120;

/// The purpose of a guest's boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootedFor {
    /// Runs.
    Runs,
    /// An interactive shell.
    Shell,
}

/// The error for a message out of order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("received {received}, expected {expected}")]
pub struct OutOfOrder {
    /// Description of the message.
    pub received: String,
    /// Description of the messages that are allowed instead.
    pub expected: String,
}

/// The state of the messages of one boot.
#[derive(Debug)]
pub struct MessageOrder {
    booted_for: BootedFor,
    stage: MessageStage,
    /// Hashes of the ids of the runs that have ended, because guests choose ids, which can be long.
    /// The hash has a random key, so that no guest can construct a collision.
    ended: HashSet<u64>,
    hasher: RandomState,
    /// The run that ended last, until a message about the next one.
    last_ended: Option<String>,
}

#[derive(Debug)]
enum MessageStage {
    /// No message has come yet.
    Silent,
    Greeted,
    SettingUp,
    /// Ready, and between runs.
    Between,
    /// In a run, with its latest phase.
    In {
        run: String,
        phase: Phase,
        worked: bool,
    },
    Shell,
    /// Ended, with the last message.
    Over(String),
}

impl MessageOrder {
    /// Creates the state at the beginning of a boot.
    #[must_use]
    pub fn new(booted_for: BootedFor) -> Self {
        Self {
            booted_for,
            stage: MessageStage::Silent,
            ended: HashSet::new(),
            hasher: RandomState::new(),
            last_ended: None,
        }
    }

    /// Processes the next message.
    ///
    /// # Errors
    /// [`OutOfOrder`] if the message is not allowed here. No later message of this agent counts.
    pub fn take(&mut self, message: &GuestMessage) -> Result<(), OutOfOrder> {
        if self.follow(message) {
            return Ok(());
        }
        Err(OutOfOrder { received: named(message), expected: self.expected() })
    }

    /// Changes to the state after `message` if it is allowed. Returns whether it is.
    fn follow(&mut self, message: &GuestMessage) -> bool {
        let next = match (&self.stage, message) {
            (MessageStage::Silent, GuestMessage::Hello { .. }) => MessageStage::Greeted,
            (MessageStage::Silent | MessageStage::Over(_), _) => return false,
            (_, GuestMessage::Log { .. } | GuestMessage::Symbols(_) | GuestMessage::Source(_)) => return true,
            (_, GuestMessage::Failed { .. }) => MessageStage::Over(named(message)),
            // The next run can begin with a barrier before its first phase. The owner checks
            // whether there are other nodes.
            (MessageStage::Between, GuestMessage::Barrier { run, .. }) => return self.may_begin(run),
            (MessageStage::In { run, .. }, GuestMessage::Barrier { run: of, .. }) => return run == of,
            (MessageStage::Greeted, GuestMessage::Phase { phase: Phase::SetUp, run: None }) => MessageStage::SettingUp,
            (MessageStage::SettingUp, GuestMessage::Ready(_)) => MessageStage::Between,
            (MessageStage::Between, GuestMessage::Phase { phase: Phase::Shell, run: None })
                if self.booted_for == BootedFor::Shell =>
            {
                MessageStage::Shell
            }
            (MessageStage::Shell, GuestMessage::Done) => MessageStage::Over(named(message)),
            (MessageStage::Between, GuestMessage::Done) if self.booted_for == BootedFor::Runs => {
                MessageStage::Over(named(message))
            }
            (MessageStage::Between, GuestMessage::Unsound { run, .. }) if self.last_ended.as_ref() == Some(run) => {
                MessageStage::Over(named(message))
            }
            (MessageStage::Between, GuestMessage::Phase { phase, run: Some(run) })
                if self.may_begin(run) && matches!(phase, Phase::Attach | Phase::Workload | Phase::TearDown) =>
            {
                self.last_ended = None;
                MessageStage::In { run: run.clone(), phase: *phase, worked: *phase == Phase::Workload }
            }
            (MessageStage::Between, GuestMessage::RunEnded { run, outcome })
                if self.may_begin(run) && self.may_end_at_once(outcome) =>
            {
                self.end(run);
                MessageStage::Between
            }
            (MessageStage::In { run, phase, worked }, GuestMessage::Phase { phase: next, run: Some(of) })
                if run == of =>
            {
                match (phase, next) {
                    (Phase::Attach, Phase::Workload) => {
                        MessageStage::In { run: run.clone(), phase: *next, worked: true }
                    }
                    (Phase::Attach | Phase::Workload, Phase::TearDown) => {
                        MessageStage::In { run: run.clone(), phase: *next, worked: *worked }
                    }
                    _ => return false,
                }
            }
            (MessageStage::In { run, phase, worked }, GuestMessage::RunEnded { run: of, outcome })
                if run == of && self.may_end(run, outcome, (*phase, *worked)) =>
            {
                self.end(of);
                MessageStage::Between
            }
            _ => return false,
        };
        self.stage = next;
        true
    }

    fn may_begin(&self, run: &str) -> bool {
        self.booted_for == BootedFor::Runs
            && run.len() <= MAX_RUN_ID
            && self.ended.len() < MAX_RUNS
            && !self.has_ended(run)
    }

    /// Whether a run can end with `outcome` before its first phase: it failed, or its tool was
    /// refused in an earlier run.
    fn may_end_at_once(&self, outcome: &RunOutcome) -> bool {
        match outcome {
            RunOutcome::Failed { .. } => true,
            RunOutcome::Refused(refusal) => refusal.run.as_ref().is_some_and(|earlier| self.has_ended(earlier)),
            RunOutcome::Measured(_) => false,
        }
    }

    /// Whether `run` can end with `outcome` in `phase`. `worked` tells whether it had its workload.
    fn may_end(&self, run: &str, outcome: &RunOutcome, (phase, worked): (Phase, bool)) -> bool {
        match outcome {
            RunOutcome::Measured(_) => worked && phase == Phase::TearDown,
            RunOutcome::Refused(refusal) => {
                !worked && refusal.run.as_ref().is_none_or(|of| of == run || self.has_ended(of))
            }
            RunOutcome::Failed { .. } => true,
        }
    }

    fn has_ended(&self, run: &str) -> bool {
        self.ended.contains(&self.hasher.hash_one(run))
    }

    fn end(&mut self, run: &str) {
        self.ended.insert(self.hasher.hash_one(run));
        self.last_ended = Some(run.to_owned());
    }

    /// Describes the messages that are allowed next, except `Log` and `Failed`.
    fn expected(&self) -> String {
        let text = match &self.stage {
            MessageStage::Silent => "`hello` first and once",
            MessageStage::Greeted => "phase `set-up`",
            MessageStage::SettingUp => "`ready`",
            MessageStage::Between if self.booted_for == BootedFor::Shell => "phase `shell`",
            MessageStage::Between => "a phase or the end of a run that has not ended yet, or `done`",
            MessageStage::In { run, phase: Phase::Attach, .. } => {
                return format!("phase `workload`, `tear-down` or the end of run {}", shown(run));
            }
            MessageStage::In { run, phase: Phase::Workload, .. } => {
                return format!("phase `tear-down` or the end of run {}, not measured", shown(run));
            }
            MessageStage::In { run, worked, .. } => {
                let measured = if *worked { "" } else { ", not measured" };
                return format!("the end of run {}{measured}", shown(run));
            }
            MessageStage::Shell => "`done`, at the end of the shell",
            MessageStage::Over(last) => return format!("nothing after {last}"),
        };
        text.to_owned()
    }
}

/// Describes `message`.
fn named(message: &GuestMessage) -> String {
    match message {
        GuestMessage::Hello { .. } => "`hello`".to_owned(),
        GuestMessage::Phase { phase, run: None } => format!("phase `{phase}`"),
        GuestMessage::Phase { phase, run: Some(run) } => format!("phase `{phase}` of run {}", shown(run)),
        GuestMessage::Ready(_) => "`ready`".to_owned(),
        GuestMessage::RunEnded { run, outcome } => {
            let outcome = match **outcome {
                RunOutcome::Measured(_) => "measured",
                RunOutcome::Refused(_) => "refused",
                RunOutcome::Failed { .. } => "failed",
            };
            format!("the end of run {} ({outcome})", shown(run))
        }
        GuestMessage::Barrier { run, number } => format!("barrier {number} of run {}", shown(run)),
        GuestMessage::Unsound { run, .. } => format!("`unsound` after run {}", shown(run)),
        GuestMessage::Log { .. } => "`log`".to_owned(),
        GuestMessage::Symbols(_) => "`symbols`".to_owned(),
        GuestMessage::Source(_) => "`source`".to_owned(),
        GuestMessage::Failed { message } => format!("`failed` ({})", shown(message)),
        GuestMessage::Done => "`done`".to_owned(),
    }
}

/// Returns the beginning of a name that the guest chose, without control characters.
fn shown(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_SHOWN);
    let more = if end < text.len() { "…" } else { "" };
    format!("`{}{more}`", text[..end].escape_debug())
}

#[cfg(test)]
mod tests;
