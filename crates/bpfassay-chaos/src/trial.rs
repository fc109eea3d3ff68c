// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trial: a study, its fault, and the allowed outcomes.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    script::{Action, Point, Rule, When},
    stranger::plant::Plant,
    study::Shape,
};

/// What is done to one study.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// The study.
    pub shape: Shape,
    /// Guests side by side.
    pub jobs: u32,
    /// What the guests do.
    pub rules: Vec<Rule>,
    /// What the host does when an act requests it ([`Action::Host`]).
    pub host: Vec<HostAction>,
    /// What the host does so many milliseconds after the command started.
    pub timed: Option<(u64, HostAction)>,
    /// Which directory is a small file system of its own, and whether it is full from the start.
    pub small: Option<(Directory, bool)>,
    /// What is damaged after the command ended and before it is resumed.
    pub damage: Option<Damage>,
    /// The allowed outcomes.
    pub expected: Expected,
    /// What is drawn of a trial that has a course of its own.
    pub choice: u64,
    /// The drawn parameters, for people.
    pub parameters: String,
}

/// The result of a trial.
#[derive(Debug, Clone, Default)]
pub struct TrialResult {
    /// How each command ended.
    pub ends: Vec<End>,
    /// How many of them resumed a study.
    pub resumes: u32,
    /// Violations, a sentence each.
    pub violations: Vec<String>,
    /// What the commands printed, where there were violations.
    pub printed: String,
    /// Why the trial could not be made.
    pub skipped: Option<String>,
    /// Most memory that a command took with its guests' output, in KiB.
    pub peak_kib: u64,
}

/// A directory that the command writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Directory {
    /// That of the results.
    Output,
    /// That of temporary files.
    Temporary,
    /// The cache.
    Cache,
}

/// An action of the host on the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostAction {
    /// It receives this signal so many times, 50 ms apart.
    Signal(i32, u32),
    /// It is stopped for so many milliseconds.
    Pause(u64),
    /// The small file system is filled up.
    Fill,
    /// Its limit of open descriptors from now on.
    Descriptors(u64),
    /// The program QEMU is removed.
    NoQemu,
    /// The directory of console logs is removed, and a file put in its place.
    NoLogs,
    /// Something is put in the place of this file or directory of the results directory.
    Plant(String, Plant),
}

/// What is damaged between two commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A bit of a guest's image (0: kernel, 1: initramfs), at this share of its length in
    /// thousandths.
    Image(usize, u64),
    /// The last so many bytes of the journal are lost, as after a crash of the host.
    JournalCut(u64),
}

/// The allowed outcomes of a trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Expected {
    /// Runs that may fail or must.
    pub blamed: BTreeMap<String, Blame>,
    /// Runs that may fail by the host, or remain undone.
    pub by_host: BTreeSet<String>,
    /// Runs with false figures: their figures are not checked.
    pub lies: BTreeSet<String>,
    /// The command may be interrupted, and then ends with that; otherwise it runs to its end.
    pub interrupted: Vec<End>,
    /// The command may be unable to record anything, or to start.
    pub may_give_up: bool,
    /// Whether the guests' faults continue when the study is resumed: the guests, not the host, are
    /// faulty.
    pub lasts: bool,
    /// Guests that may have to be waited for until a deadline.
    pub hangs: u32,
}

/// How a run that failed may be reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blame {
    /// The kinds, as in `results.json`.
    pub kinds: Vec<&'static str>,
    /// Whether it has to fail.
    pub must: bool,
    /// Whether the guest continued, so that the run was part of its boot.
    pub in_guest: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It had to be killed: it exceeded its time limit.
    Never,
}

impl Trial {
    /// No fault, and everything is measured.
    #[must_use]
    pub fn quiet(shape: Shape) -> Self {
        Self {
            shape,
            jobs: 1,
            rules: Vec::new(),
            host: Vec::new(),
            timed: None,
            small: None,
            damage: None,
            expected: Expected::default(),
            choice: 0,
            parameters: String::new(),
        }
    }

    /// Adds an action of the host at a moment of a guest.
    pub fn host_at(&mut self, when: When, action: HostAction) {
        let index = self.host.len();
        self.host.push(action);
        self.rules.push(Rule { when, action: Action::Host(index) });
    }
}

impl When {
    /// Once in a boot of `block`.
    #[must_use]
    pub fn once(block: &str, point: Point) -> Self {
        Self { block: Some(block.to_owned()), points: vec![point], times: Some(1) }
    }

    /// Every time.
    #[must_use]
    pub fn always(block: Option<&str>, points: Vec<Point>) -> Self {
        Self { block: block.map(str::to_owned), points, times: None }
    }
}

impl Expected {
    /// `run` fails with one of `kinds`.
    pub fn blame(&mut self, run: &str, kinds: &[&'static str], must: bool) {
        self.blamed.insert(run.to_owned(), Blame { kinds: kinds.to_vec(), must, in_guest: false });
    }

    /// `run` fails with one of `kinds` in a guest that continues.
    pub fn fails_in_guest(&mut self, run: &str, kinds: &[&'static str]) {
        self.blamed.insert(run.to_owned(), Blame { kinds: kinds.to_vec(), must: true, in_guest: true });
    }
}
