// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counts of QEMU's plugin during a boot. Turns windows into the direct cost of each phase of
//! each run, and into the source lines that ran.

use std::{collections::BTreeMap, io};

use bpfassay_plugin::{Coverage, DirectPhase, Functions, Window, Windows, direct};
use bpfassay_protocol::{message::RunFigures, source::ProgramSource, symbols::Symbols, with_causes};
use bpfassay_results::{BootCoverage, Figure, RunCount};
use bpfassay_study::PlannedRun;

/// Highest number of windows that wait for the end of their run. No study has so many phases in a
/// run, and memory stays bounded.
const MAX_WAITING: usize = 256;

/// The counts of a boot so far.
#[derive(Debug, Default)]
pub(crate) struct BootCounting {
    windows: Windows,
    /// Windows whose run has not ended yet, by number.
    waiting: BTreeMap<u64, Window>,
    functions: Functions,
    phases: Vec<DirectPhase>,
    coverage: Coverage,
    /// Why nothing more can be read.
    problem: Option<String>,
}

impl BootCounting {
    /// Adds what the plugin wrote.
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
                // Further windows are dropped, and their phases count as missing.
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

    /// Adds functions of the guest's kernel.
    pub(crate) fn symbols(&mut self, symbols: &Symbols) {
        self.functions.add(symbols);
        self.coverage.symbols(symbols);
    }

    /// Adds the source lines of a program.
    pub(crate) fn source(&mut self, source: ProgramSource) {
        self.coverage.source(source);
    }

    /// Assigns windows to the phases of a run that ended with these figures.
    pub(crate) fn measured(&mut self, run: &PlannedRun, figures: &RunFigures) {
        let is_baseline = run.spec.probe.is_baseline() && run.spec.tool.is_none();
        let mut counted = Ok(Vec::new());
        for phase in figures.all_phases() {
            let window = phase.window.and_then(|number| self.waiting.remove(&number));
            let window = match window {
                None => Err("the plugin counted nothing in this phase".to_owned()),
                Some(window) if window.uncounted > 0 => {
                    Err(format!("the plugin has no counter for {} blocks of the kernel", window.uncounted))
                }
                Some(window) => Ok(window),
            };
            let profile = match &window {
                Ok(window) => Figure::Value(self.functions.profile(window)),
                Err(reason) => Figure::missing(reason.as_str()),
            };
            self.phases.push(DirectPhase {
                run: run.spec.id.clone(),
                cell: run.cell.clone(),
                is_baseline,
                is_warm_up: run.warm_up,
                name: phase.name.clone(),
                test: phase.test,
                repetition: phase.repetition,
                calls: phase.moved.values().fold(0, |sum: u64, moved| sum.saturating_add(moved.calls)),
                profile,
            });
            counted = counted.and_then(|mut windows: Vec<Window>| {
                windows.push(window?);
                Ok(windows)
            });
        }
        if !is_baseline && !run.warm_up {
            self.coverage.run(&run.spec.id, counted.as_deref().map_err(Clone::clone));
        }
        // Drops the windows of repeats that were not reported. Later windows belong to runs to
        // come: the plugin's file can be read before messages of the same time.
        if let Some(last) = figures.all_phases().filter_map(|phase| phase.window).max() {
            self.waiting = self.waiting.split_off(&last.saturating_add(1));
        }
    }

    /// Returns the direct cost of each phase of each run, and the source lines that ran.
    pub(crate) fn finish(self) -> (Figure<Vec<RunCount>>, Figure<BootCoverage>) {
        match self.problem {
            Some(problem) => (Figure::missing(problem.as_str()), Figure::missing(problem)),
            None if !self.functions.is_known() => (
                Figure::missing("the guest did not report the functions of its kernel"),
                Figure::Value(self.coverage.finish()),
            ),
            None => (Figure::Value(direct(&self.phases)), Figure::Value(self.coverage.finish())),
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::message::{Interval, MountFacts, Reading, WorkloadPhase};
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    fn figures(run: &PlannedRun, window: u64) -> RunFigures {
        let reading = || Reading { monotonic_ns: 0, idle_ns: None, tracer: None, mountstats: None };
        let interval = || Interval { before: reading(), after: reading() };
        let phase = WorkloadPhase {
            name: "write".to_owned(),
            test: 0,
            repetition: 0,
            moved: BTreeMap::new(),
            events: BTreeMap::new(),
            mount: None,
            tasks: None,
            window: Some(window),
            calls: None,
            activity: None,
            interval: interval(),
        };
        RunFigures {
            probe: run.spec.probe,
            engine: None,
            summary: String::new(),
            features: Vec::new(),
            cgroup: 0,
            mount: MountFacts::default(),
            namespace: Vec::new(),
            phases: vec![phase],
            whole: interval(),
            tracer: None,
            ended: None,
            tool_statistics: Vec::new(),
            tool: None,
            samples: Vec::new(),
            bystander: None,
            warm_up: None,
        }
    }

    fn window(number: u64) -> Window {
        Window { number, user: Vec::new(), user_misses: None, uncounted: 0, blocks: Vec::new() }
    }

    #[test]
    fn what_was_counted_of_a_run_to_come_stays_where_the_host_reads_messages_late() {
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let [first, second, ..] = plan.blocks[0].runs.as_slice() else { panic!("a block has more runs") };
        // Window 1 belongs to a repeat that is not reported. All windows precede the run's end.
        let waiting = (1..=3).map(|number| (number, window(number))).collect();
        let mut counting = BootCounting { waiting, ..BootCounting::default() };
        counting.measured(first, &figures(first, 2));
        assert_eq!(counting.waiting.keys().copied().collect::<Vec<_>>(), [3]);
        counting.measured(second, &figures(second, 3));
        let counted: Vec<bool> = counting.phases.iter().map(|phase| phase.profile.value().is_some()).collect();
        assert_eq!((counted, counting.waiting.len()), (vec![true, true], 0));
    }
}
