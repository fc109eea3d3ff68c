// SPDX-License-Identifier: MIT OR Apache-2.0
//! The faults: one file per kind, with a table that has one line per fault.

mod agent_fault;
mod bundle_fault;
mod disk;
mod kernel_fault;
mod planted;
mod qemu_fault;
mod signal;
mod tree_fault;
mod twice;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bpfassay_study::Block;

use crate::{
    chaos_random::Random,
    chaos_study::{ChaosError, StudyShape, TrialClock, TrialStudy, is_tool_run},
    script::{Action, BootPoint, Moment, Rule, RunStep, Then},
    stranger::workshop::Workshop,
    trial::{AllowedOutcomes, CommandEnd, FaultTrial, HostAction, TrialResult},
};

/// One fault.
pub struct FaultKind {
    /// Name, in the form `kind/fault`.
    pub name: &'static str,
    /// Weight of the fault when a fault is drawn.
    pub weight: u64,
    /// Whether the fault needs a file system to be mounted.
    pub mounts: bool,
    /// The least number of boots in the study.
    pub replicates: u32,
    /// The clock of the guests, if only one is possible.
    pub clock: Option<TrialClock>,
    /// The course of the trial, unless the trial interrupts and resumes a study.
    pub course: Option<Course>,
    /// Draws the parameters.
    draw: fn(&mut Draw<'_>) -> FaultTrial,
}

/// The course of a trial, as a function of its drawn [`FaultTrial::choice`].
pub type Course = fn(&Workshop, u64) -> Result<TrialResult, ChaosError>;

impl fmt::Debug for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl FaultKind {
    const fn new(name: &'static str, draw: fn(&mut Draw<'_>) -> FaultTrial) -> Self {
        Self { name, weight: 4, mounts: false, replicates: 2, clock: None, course: None, draw }
    }

    /// A fault with a special course. `draw` draws a choice and describes it.
    const fn of_strangers(name: &'static str, course: Course, draw: fn(&mut Draw<'_>) -> FaultTrial) -> Self {
        Self { weight: STRANGERS, course: Some(course), ..Self::new(name, draw) }
    }

    const fn rare(self) -> Self {
        Self { weight: 1, ..self }
    }

    const fn wide(self) -> Self {
        Self { replicates: 4, ..self }
    }

    const fn by(self, clock: TrialClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    const fn mounts(self) -> Self {
        Self { mounts: true, ..self }
    }
}

/// The tables of all kinds.
const KINDS: &[&[FaultKind]] = &[
    agent_fault::FAULTS,
    kernel_fault::FAULTS,
    qemu_fault::FAULTS,
    signal::FAULTS,
    disk::FAULTS,
    tree_fault::FAULTS,
    bundle_fault::FAULTS,
    planted::FAULTS,
    twice::FAULTS,
];

/// The weight of a fault that has many places.
const STRANGERS: u64 = 12;

/// Every fault.
#[must_use]
pub fn all() -> Vec<&'static FaultKind> {
    KINDS.iter().copied().flatten().collect()
}

/// The fault that a seed draws, with all its parameters.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// The fault.
    pub fault: &'static FaultKind,
    /// The study that the fault is injected into.
    pub study: Arc<TrialStudy>,
    /// The drawn parameters and the allowed outcomes.
    pub trial: FaultTrial,
}

/// Draws the fault of `seed` among those whose name contains `only`; `None` if there is none.
///
/// # Errors
/// [`ChaosError`] if the plan of the trial's study cannot be created.
pub fn draw(seed: u64, only: &str) -> Result<Option<Drawn>, ChaosError> {
    let faults: Vec<_> = all().into_iter().filter(|fault| fault.name.contains(only)).collect();
    let mut random = Random::new(seed);
    let total = faults.iter().map(|fault| fault.weight).sum();
    let mut at = random.below(total);
    let fault = faults.iter().find(|fault| {
        let here = at < fault.weight;
        at = at.saturating_sub(fault.weight);
        here
    });
    let Some(&fault) = fault else { return Ok(None) };
    let drawn = if random.percent(80) { TrialClock::Instructions } else { TrialClock::Wall };
    let clock = fault.clock.unwrap_or(drawn);
    let (rounds, replicates) = if fault.replicates > 2 {
        (1, fault.replicates)
    } else if random.percent(25) {
        (3, 2)
    } else {
        (2, 2)
    };
    let study = study(StudyShape { clock, rounds, replicates })?;
    let jobs = if random.percent(50) { 2 } else { 1 };
    let mut draw = Draw { random: &mut random, study: &study };
    let mut trial = (fault.draw)(&mut draw);
    trial.jobs = jobs;
    if trial.expected.lasts && draw.random.percent(25) {
        signal::interrupt(&mut draw, &mut trial);
    }
    Ok(Some(Drawn { fault, trial, study }))
}

/// Returns the study of `shape`, which is read once.
///
/// # Errors
/// The errors of [`TrialStudy::new`]: the study cannot be parsed or expanded.
fn study(shape: StudyShape) -> Result<Arc<TrialStudy>, ChaosError> {
    static READ: Mutex<BTreeMap<StudyShape, Arc<TrialStudy>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(study) = read.get(&shape) {
        return Ok(Arc::clone(study));
    }
    let study = Arc::new(TrialStudy::new(shape)?);
    read.insert(shape, Arc::clone(&study));
    Ok(study)
}

/// The source of drawn parameters.
struct Draw<'a> {
    random: &'a mut Random,
    study: &'a TrialStudy,
}

/// A run with its position.
#[derive(Clone, Copy)]
struct RunPosition<'a> {
    block: &'a Block,
    index: usize,
}

impl<'a> RunPosition<'a> {
    fn id(self) -> &'a str {
        &self.block.runs[self.index].spec.id
    }

    fn is_tool(self) -> bool {
        is_tool_run(&self.block.runs[self.index].spec)
    }

    /// Returns the last tool run before this one in a boot without faults.
    fn tool_before(self) -> Option<RunPosition<'a>> {
        (0..self.index).rev().map(|index| RunPosition { index, ..self }).find(|position| position.is_tool())
    }

    fn next(self) -> Option<RunPosition<'a>> {
        (self.index + 1 < self.block.runs.len()).then_some(RunPosition { index: self.index + 1, ..self })
    }
}

impl<'a> Draw<'a> {
    fn trial(&self) -> FaultTrial {
        FaultTrial::quiet(self.study.shape)
    }

    /// A trial that does not interrupt a study. `tell` describes the choice.
    fn choice<C>(&mut self, choose: fn(&mut Random) -> C, tell: fn(&C) -> String) -> FaultTrial {
        let mut trial = self.trial();
        trial.choice = self.random.bits();
        trial.parameters = tell(&choose(&mut Random::new(trial.choice)));
        trial
    }

    fn block(&mut self) -> &'a Block {
        let blocks = &self.study.plan.blocks;
        &blocks[usize::try_from(self.random.below(blocks.len() as u64)).unwrap_or_default()]
    }

    /// Draws a run for which `is_eligible` is true, from any block.
    fn run(&mut self, is_eligible: impl Fn(RunPosition<'a>) -> bool) -> RunPosition<'a> {
        let block = self.block();
        let all: Vec<_> = (0..block.runs.len())
            .map(|index| RunPosition { block, index })
            .filter(|position| is_eligible(*position))
            .collect();
        self.random.pick(&all).copied().unwrap_or(RunPosition { block, index: 0 })
    }

    fn tool_run(&mut self) -> RunPosition<'a> {
        self.run(RunPosition::is_tool)
    }

    /// Draws the step of `position` at which the fault occurs.
    fn step(&mut self, position: RunPosition<'_>) -> RunStep {
        let steps = [RunStep::Workload, RunStep::TearDown, RunStep::End, RunStep::Attach];
        let count = if position.is_tool() { 4 } else { 3 };
        self.random.pick(&steps[..count]).copied().unwrap_or(RunStep::Workload)
    }

    /// Draws a moment of any boot.
    fn moment(&mut self) -> (&'a Block, BootPoint) {
        let block = self.block();
        let early =
            [BootPoint::Launch, BootPoint::Boot, BootPoint::Hello, BootPoint::SetUp, BootPoint::Ready, BootPoint::Done];
        if self.random.percent(25)
            && let Some(point) = self.random.pick(&early)
        {
            return (block, point.clone());
        }
        let position = self.run(|_| true);
        let point = if self.random.percent(20) {
            BootPoint::After(position.id().to_owned())
        } else {
            BootPoint::Run(position.id().to_owned(), self.step(position))
        };
        (position.block, point)
    }

    /// A guest that dies, hangs or breaks its stream by `action`, and the run to blame for it.
    fn broken_guest(&mut self, action: Action, kinds: &[&'static str], hangs: bool) -> FaultTrial {
        let ways: &[u64] = if hangs { &[0, 1, 2, 3, 4] } else { &[0, 1, 2, 3, 4, 5] };
        let mut trial = self.broken_in(ways, action, kinds);
        if hangs {
            // The boot that fails, and the confirming boot. Each can be repeated once.
            trial.expected.hangs = 4;
        }
        trial
    }

    /// Like [`Self::broken_guest`], but a run is in flight.
    fn broken_run(&mut self, action: Action, kinds: &[&'static str]) -> FaultTrial {
        self.broken_in(&[0, 1, 3], action, kinds)
    }

    fn broken_in(&mut self, ways: &[u64], action: Action, kinds: &[&'static str]) -> FaultTrial {
        let mut trial = self.trial();
        let expected = &mut trial.expected;
        let (when, parameters) = match self.random.pick(ways).copied().unwrap_or_default() {
            way @ 0..=2 => {
                let position = self.run(|position| position.is_tool() && (way == 0 || position.next().is_some()));
                let id = position.id();
                let (point, place) = match way {
                    // A run always does the action, independent of earlier runs.
                    0 => {
                        let step = self.step(position);
                        (BootPoint::Run(id.to_owned(), step), format!("in {id} at {step:?}"))
                    }
                    // Something that a run left behind does it, in the middle of the next run.
                    1 => (BootPoint::DuringNext(id.to_owned()), format!("in the run after {id}")),
                    // Something that a run left behind does it between two runs.
                    _ => (BootPoint::After(id.to_owned()), format!("after {id}")),
                };
                expected.blame(id, kinds, true);
                expected.lasts = true;
                (Moment::always(None, vec![point]), format!("always {place}"))
            }
            // It happens once, in a run. The only evidence is where it occurred.
            3 => {
                let position = self.run(|_| true);
                let step = self.step(position);
                // If no tool had run, the boot is tried once more.
                if let Some(blamed) = position.tool_before().or(position.is_tool().then_some(position)) {
                    expected.blame(blamed.id(), kinds, true);
                }
                let point = BootPoint::Run(position.id().to_owned(), step);
                (Moment::once(&position.block.id, point), format!("once in {} at {step:?}", position.id()))
            }
            // It happens once, before anything ran.
            4 => {
                let points = [BootPoint::Boot, BootPoint::Hello, BootPoint::SetUp, BootPoint::Ready];
                let point = self.random.pick(&points).cloned().unwrap_or(BootPoint::Boot);
                let block = self.block();
                // A guest that writes nothing is not booted again.
                let is_silent = matches!(&action, Action::Send(pieces, Then::Hangs) if pieces.is_empty());
                if is_silent && point == BootPoint::Boot {
                    block.runs.iter().for_each(|run| expected.blame(&run.spec.id, kinds, true));
                }
                let parameters = format!("once in {} at {point:?}", block.id);
                (Moment::once(&block.id, point), parameters)
            }
            // It happens every time, before anything ran.
            _ => {
                let block = self.block();
                block.runs.iter().for_each(|run| expected.blame(&run.spec.id, kinds, true));
                expected.lasts = true;
                let parameters = format!("always in {} when it is ready", block.id);
                (Moment::always(Some(&block.id), vec![BootPoint::Ready]), parameters)
            }
        };
        trial.parameters = parameters;
        trial.rules.push(Rule { when, action });
        trial
    }

    /// Every run of a probe configuration does `action`. After two failures, the rest is not tried.
    fn broken_tool(&mut self, action: Action, kinds: &[&'static str]) -> FaultTrial {
        let mut trial = self.trial();
        let position = self.tool_run();
        let cell = &position.block.runs[position.index].cell;
        let runs: Vec<&str> =
            position.block.runs.iter().filter(|run| run.cell == *cell).map(|run| run.spec.id.as_str()).collect();
        for (index, run) in runs.iter().enumerate() {
            trial.expected.blame(run, if index < 2 { kinds } else { &["not_tried"] }, true);
        }
        trial.expected.lasts = true;
        trial.parameters = format!("always in {}", runs.join(", "));
        let points = runs.iter().map(|&run| BootPoint::Run(run.to_owned(), RunStep::Workload)).collect();
        trial.rules.push(Rule { when: Moment::always(None, points), action });
        trial
    }

    /// A fault for which no run is blamed, at any moment.
    fn harmless(&mut self, action: Action) -> FaultTrial {
        let mut trial = self.trial();
        let (block, mut point) = self.moment();
        if point == BootPoint::Launch {
            // The player has not started yet.
            point = BootPoint::Boot;
        }
        trial.parameters = format!("once in {} at {point:?}", block.id);
        trial.rules.push(Rule { when: Moment::once(&block.id, point), action });
        trial
    }
}

/// How a command ends after a signal interrupted it.
const INTERRUPTED: CommandEnd = CommandEnd::Code(130);

/// All runs of the study.
fn all_runs(study: &TrialStudy) -> impl Iterator<Item = &str> {
    study.plan.runs().map(|(_, run)| run.spec.id.as_str())
}

/// Allows a host failure for each of `runs`.
fn host_of(expected: &mut AllowedOutcomes, runs: impl IntoIterator<Item = impl Into<String>>) {
    expected.by_host.extend(runs.into_iter().map(Into::into));
}

/// The host does `action` at a moment.
fn at_moment(draw: &mut Draw<'_>, trial: &mut FaultTrial, action: HostAction) {
    let (block, point) = draw.moment();
    trial.parameters = format!("{action:?} in {} at {point:?}", block.id);
    trial.host_at(Moment::once(&block.id, point), action);
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn a_seed_draws_the_same_fault_every_time() {
        for seed in 0..300 {
            let (a, b) = (draw(seed, "").unwrap().unwrap(), draw(seed, "").unwrap().unwrap());
            assert_eq!((a.fault.name, &a.trial), (b.fault.name, &b.trial), "{seed}");
        }
    }

    #[test]
    fn names_are_unique_and_every_fault_is_drawn() {
        let names: BTreeSet<_> = all().iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), all().len());
        let mut drawn = BTreeMap::<_, u32>::new();
        for seed in 0..3000 {
            *drawn.entry(draw(seed, "").unwrap().unwrap().fault.name).or_default() += 1;
        }
        let missing: Vec<_> = names.iter().filter(|name| !drawn.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn blamed_runs_are_of_the_study_and_acts_have_runs_to_act_in() {
        for seed in 0..1000 {
            let drawn = draw(seed, "").unwrap().unwrap();
            let runs: BTreeSet<_> = all_runs(&drawn.study).collect();
            let expected = &drawn.trial.expected;
            for run in expected.blamed.keys().chain(&expected.by_host).chain(&expected.lies) {
                assert!(runs.contains(run.as_str()), "{seed}: {run}");
            }
            for act in &drawn.trial.rules {
                assert!(!act.when.points.is_empty(), "{seed}");
            }
        }
    }

    #[test]
    fn only_faults_of_that_name_are_drawn() {
        assert!((0..20).all(|seed| draw(seed, "qemu/").unwrap().unwrap().fault.name.starts_with("qemu/")));
        assert!(draw(1, "no such fault").unwrap().is_none());
    }
}
