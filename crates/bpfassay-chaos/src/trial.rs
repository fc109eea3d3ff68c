// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trial: a study, a fault, and the allowed outcomes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    chaos_study::StudyShape,
    script::{Action, BootPoint, Moment, Rule},
    stranger::plant::Plant,
};

/// A fault with its parameters, and the allowed outcomes.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultTrial {
    /// The shape of the study.
    pub shape: StudyShape,
    /// Maximum number of guests at once.
    pub jobs: u32,
    /// Rules for the guests.
    pub rules: Vec<Rule>,
    /// Actions of the host that rules request by index ([`Action::Host`]).
    pub host: Vec<HostAction>,
    /// An action of the host, so many milliseconds after the start of the command.
    pub timed: Option<(u64, HostAction)>,
    /// The directory that is a small file system, and whether it is full from the start.
    pub small: Option<(WrittenDirectory, bool)>,
    /// Damage done after the command ended and before the study is resumed.
    pub damage: Option<Damage>,
    /// The allowed outcomes.
    pub expected: AllowedOutcomes,
    /// The choice of a trial with another course (see [`crate::fault::FaultKind::course`]).
    pub choice: u64,
    /// The drawn parameters as text.
    pub parameters: String,
}

/// The result of a trial.
#[derive(Debug, Clone, Default)]
pub struct TrialResult {
    /// How each command ended.
    pub ends: Vec<CommandEnd>,
    /// How many commands resumed a study.
    pub resumes: u32,
    /// A sentence for each violation.
    pub violations: Vec<String>,
    /// Output of the commands, if there were violations.
    pub printed: String,
    /// Why the trial was skipped.
    pub skipped: Option<String>,
    /// Peak memory of a command and its guests' output, in KiB.
    pub peak_kib: u64,
}

/// A directory that the command writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WrittenDirectory {
    /// The directory of results.
    Output,
    /// The directory of temporary files.
    Temporary,
    /// The cache.
    Cache,
}

/// An action of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostAction {
    /// The command gets this signal this many times, 50 ms apart.
    Signal(i32, u32),
    /// The command is stopped for so many milliseconds.
    Pause(u64),
    /// The small file system is filled up.
    Fill,
    /// The command can have at most so many open descriptors from now on.
    Descriptors(u64),
    /// QEMU's program is removed.
    NoQemu,
    /// The directory of console logs is moved away, and an empty file replaces it.
    NoLogs,
    /// A plant replaces this file or directory of the results directory.
    Plant(String, Plant),
}

/// Damage between two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// Flips a bit of an image (0: kernel, 1: initramfs) at this position, in thousandths.
    Image(usize, u64),
    /// Cuts so many bytes off the journal's end, as after a crash of the host.
    JournalCut(u64),
}

/// The allowed outcomes of a trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AllowedOutcomes {
    /// Runs that may or must fail.
    pub blamed: BTreeMap<String, Blame>,
    /// Runs that can fail as host failures or remain undone.
    pub by_host: BTreeSet<String>,
    /// Runs with false figures: their figures are not checked.
    pub lies: BTreeSet<String>,
    /// How the command can end if it is interrupted; if empty, it must run to its end.
    pub interrupted: Vec<CommandEnd>,
    /// Whether the command may be unable to record anything or to start.
    pub may_give_up: bool,
    /// Whether the faults continue in a resumed study, because they are the guests', not the
    /// host's.
    pub lasts: bool,
    /// How many guests may have to be waited for until a deadline.
    pub hangs: u32,
}

/// How a run that failed may be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    /// The failure kinds, as in `results.json`.
    pub kinds: Vec<&'static str>,
    /// Whether the run must fail.
    pub must: bool,
    /// Whether the guest continued after the failure, so that the run was part of the boot.
    pub in_guest: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandEnd {
    /// With an exit code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// It exceeded the time limit and was killed.
    Never,
}

impl FaultTrial {
    /// A trial without a fault in which everything is measured.
    #[must_use]
    pub fn quiet(shape: StudyShape) -> Self {
        Self {
            shape,
            jobs: 1,
            rules: Vec::new(),
            host: Vec::new(),
            timed: None,
            small: None,
            damage: None,
            expected: AllowedOutcomes::default(),
            choice: 0,
            parameters: String::new(),
        }
    }

    /// Adds an action of the host at a moment of a guest.
    pub fn host_at(&mut self, when: Moment, action: HostAction) {
        let index = self.host.len();
        self.host.push(action);
        self.rules.push(Rule { when, action: Action::Host(index) });
    }
}

impl Moment {
    /// Once, in a boot of `block`.
    #[must_use]
    pub fn once(block: &str, point: BootPoint) -> Self {
        Self { block: Some(block.to_owned()), points: vec![point], times: Some(1) }
    }

    /// Every time; in boots of `block`, if given.
    #[must_use]
    pub fn always(block: Option<&str>, points: Vec<BootPoint>) -> Self {
        Self { block: block.map(str::to_owned), points, times: None }
    }
}

impl AllowedOutcomes {
    /// Expects `run` to fail with one of `kinds`.
    pub fn blame(&mut self, run: &str, kinds: &[&'static str], must: bool) {
        self.blamed.insert(run.to_owned(), Blame { kinds: kinds.to_vec(), must, in_guest: false });
    }

    /// Expects `run` to fail with one of `kinds` in a guest that continues.
    pub fn fails_in_guest(&mut self, run: &str, kinds: &[&'static str]) {
        self.blamed.insert(run.to_owned(), Blame { kinds: kinds.to_vec(), must: true, in_guest: true });
    }
}
