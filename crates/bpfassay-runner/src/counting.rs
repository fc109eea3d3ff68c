// SPDX-License-Identifier: MIT OR Apache-2.0
//! What QEMU's plugin counts while a boot lasts: from its windows to what each phase of each run cost directly.

use std::{collections::BTreeMap, io};

use bpfassay_plugin::{Functions, Phase, Window, Windows, direct};
use bpfassay_protocol::{message::RunFigures, symbols::Symbols, with_causes};
use bpfassay_results::{Figure, RunCount};
use bpfassay_study::PlannedRun;

/// Most windows that wait for the end of their run: more than any study has phases in a run, and few enough to be kept.
const MAX_WAITING: usize = 256;

/// The counts of a boot so far.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    windows: Windows,
    /// Windows of the run in flight, by number.
    waiting: BTreeMap<u64, Window>,
    functions: Functions,
    phases: Vec<Phase>,
    /// Why nothing more can be read.
    problem: Option<String>,
}

impl Counting {
    /// Takes in what the plugin wrote.
    pub(crate) fn take(&mut self, bytes: io::Result<Vec<u8>>) {
        if self.problem.is_some() {
            return;
        }
        match bytes {
            Ok(bytes) => self.windows.push(&bytes),
            Err(error) => self.problem = Some(format!("could not read what the plugin counted: {error}")),
        }
        loop {
            match self.windows.next_window() {
                Ok(None) => return,
                // Those of a run with too many are missed at its end.
                Ok(Some(window)) if self.waiting.len() < MAX_WAITING => {
                    drop(self.waiting.insert(window.number, window))
                }
                Ok(Some(_)) => {}
                Err(error) => {
                    self.problem = Some(with_causes(&error));
                    return;
                }
            }
        }
    }

    /// Takes in functions of the guest's kernel.
    pub(crate) fn symbols(&mut self, symbols: &Symbols) {
        self.functions.add(symbols);
    }

    /// A run came to its end with these figures.
    pub(crate) fn measured(&mut self, run: &PlannedRun, figures: &RunFigures) {
        for phase in &figures.phases {
            let window = phase.window.and_then(|number| self.waiting.remove(&number));
            let profile = match window {
                None => Figure::missing("the plugin counted nothing in this phase"),
                Some(window) if window.uncounted > 0 => {
                    Figure::missing(format!("the plugin has no counter for {} blocks of the kernel", window.uncounted))
                }
                Some(window) => Figure::Value(self.functions.profile(&window)),
            };
            self.phases.push(Phase {
                run: run.spec.id.clone(),
                is_baseline: run.spec.probe.is_baseline() && run.spec.tool.is_none(),
                is_warm_up: run.warm_up,
                name: phase.name.clone(),
                test: phase.test,
                repetition: phase.repetition,
                calls: phase.moved.values().fold(0, |sum: u64, moved| sum.saturating_add(moved.calls)),
                profile,
            });
        }
        // Of repeats that were not reported.
        self.waiting.clear();
    }

    /// What each phase of each run cost directly.
    pub(crate) fn finish(self) -> Figure<Vec<RunCount>> {
        match self.problem {
            Some(problem) => Figure::missing(problem),
            None if !self.functions.is_known() => {
                Figure::missing("the guest did not report the functions of its kernel")
            }
            None => Figure::Value(direct(&self.phases)),
        }
    }
}
