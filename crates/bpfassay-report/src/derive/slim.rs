// SPDX-License-Identifier: MIT OR Apache-2.0
//! Removes raw figures from records that only serve to derive the run's own figures: raw figures of
//! 200,000 runs would use tens of gigabytes.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bpfassay_protocol::{
    message::{Interval, MountFacts, PhaseActivity, Reading, RunFigures, WorkloadPhase},
    tracer_messages::Program,
};
use bpfassay_results::{Outcome, RunRecord, RunResult};
use bpfassay_study::{Cell, Plan};

use super::{activity::unusual_of, lookup::positions};

const EMPTY: Reading = Reading { monotonic_ns: 0, idle_ns: None, tracer: None, mountstats: None };

/// Removed parts of a record that may be needed again.
#[derive(Default)]
pub(super) struct TakenParts {
    cell: String,
    phases: Vec<WorkloadPhase>,
    programs: Vec<Program>,
}

/// Removes from `record` of `cell` the raw figures that no figure of a cell and no report uses. Raw
/// figures of tools and of kernel features stay.
pub(super) fn slim(plan: &Plan, cell: Option<&Cell>, record: &mut RunRecord) -> Option<TakenParts> {
    let cell = cell?;
    let Outcome::Measured(figures) = &mut record.outcome else { return None };
    figures.summary = String::new();
    let are_needed = cell.tool.is_some()
        || cell.workload.features
        || record.has_reference
        || plan.study.design.sampling_interval_ms.is_some();
    if are_needed {
        return None;
    }
    for node in &mut record.nodes {
        without_readings(&mut node.figures);
        node.figures.summary = String::new();
        node.figures.phases = Vec::new();
    }
    without_readings(figures);
    let mut phases = std::mem::take(&mut figures.phases);
    phases.retain(|phase| phase.activity.is_some());
    let programs = figures.tracer.as_mut().map(|tracer| std::mem::take(&mut tracer.programs)).unwrap_or_default();
    Some(TakenParts { cell: record.cell.clone(), phases, programs })
}

fn without_readings(figures: &mut RunFigures) {
    let emptied = |interval: &mut Interval| {
        interval.before.tracer = None;
        interval.after.tracer = None;
    };
    emptied(&mut figures.whole);
    figures.samples = Vec::new();
    figures.bystander = None;
    figures.namespace = Vec::new();
    let MountFacts { path, file_system, options, .. } = &mut figures.mount;
    [path, file_system, options].into_iter().for_each(|text| *text = String::new());
}

/// The removed parts of records, in the order of the records. Values that many records share are
/// stored once.
#[derive(Default)]
pub(super) struct RemovedParts {
    records: Vec<Option<RemovedPart>>,
    rpcs: HashSet<Arc<BTreeMap<String, u64>>>,
    names: HashSet<Arc<str>>,
    /// The lists of programs of each cell.
    programs: HashMap<String, Vec<Arc<[Program]>>>,
}

struct RemovedPart {
    phases: Box<[SlimPhase]>,
    programs: Option<Arc<[Program]>>,
}

/// A phase with the kernel's activity during it.
struct SlimPhase {
    name: Arc<str>,
    test: u32,
    repetition: u32,
    rpcs: Option<Arc<BTreeMap<String, u64>>>,
    /// The activity without RPCs.
    others: PhaseActivity,
}

impl RemovedParts {
    /// Stores what was removed from the next record.
    pub(super) fn keep(&mut self, taken: Option<TakenParts>) {
        let record = taken.map(|TakenParts { cell, phases, programs }| RemovedPart {
            phases: phases.into_iter().filter_map(|phase| self.phase(phase)).collect(),
            programs: (!programs.is_empty()).then(|| self.programs(cell, programs)),
        });
        self.records.push(record);
    }

    fn phase(&mut self, phase: WorkloadPhase) -> Option<SlimPhase> {
        let mut others = phase.activity?;
        let rpcs = others.rpcs.take().map(|rpcs| shared(&mut self.rpcs, Arc::new(rpcs)));
        let name = shared(&mut self.names, phase.name.into());
        Some(SlimPhase { name, test: phase.test, repetition: phase.repetition, rpcs, others })
    }

    fn programs(&mut self, cell: String, programs: Vec<Program>) -> Arc<[Program]> {
        /// The number of latest lists to search for the same list.
        const LATEST: usize = 16;
        let lists = self.programs.entry(cell).or_default();
        match lists.iter().rev().take(LATEST).find(|list| ***list == *programs) {
            Some(same) => Arc::clone(same),
            None => {
                let list: Arc<[Program]> = programs.into();
                lists.push(Arc::clone(&list));
                list
            }
        }
    }

    /// Restores what `runs` need; `numbers` are the numbers of their records. If the kernel's
    /// activity was unusual in a boot, all runs of the boot get the activity. Each list of programs
    /// goes to the first run of a cell that had it.
    pub(super) fn give_back(self, plan: &Plan, runs: &mut [RunResult], numbers: &[usize]) {
        let of = |index: usize| self.records.get(*numbers.get(index)?)?.as_ref();
        let mut blocks = HashMap::<&str, Vec<usize>>::new();
        for (index, run) in runs.iter().enumerate() {
            blocks.entry(&run.record.block).or_default().push(index);
        }
        let blocks: Vec<Vec<usize>> = blocks.into_values().collect();
        for indices in blocks {
            set_phases(runs, &indices, &|index| Some(of(index)?.phases.iter().map(SlimPhase::whole).collect()));
            let of_block = indices.iter().filter_map(|&index| runs.get(index));
            if unusual_of(plan, of_block).is_empty() {
                set_phases(runs, &indices, &|index| of(index).map(|_| Vec::new()));
            }
        }
        let places = positions(plan);
        let mut order: Vec<usize> = (0..runs.len()).collect();
        order.sort_by_cached_key(|&index| runs.get(index).and_then(|run| places.get(run.record.run.as_str())));
        let mut seen = HashSet::new();
        for index in order {
            let (Some(run), Some(programs)) = (runs.get_mut(index), of(index).and_then(|kept| kept.programs.as_ref()))
            else {
                continue;
            };
            let is_counted = run.record.is_counted();
            if let Outcome::Measured(figures) = &mut run.record.outcome
                && let Some(tracer) = &mut figures.tracer
                && seen.insert((run.record.cell.clone(), Arc::as_ptr(programs).cast::<Program>(), is_counted))
            {
                tracer.programs = programs.to_vec();
            }
        }
    }
}

/// Sets the phases of each run at `indices` to those that `of` returns.
fn set_phases(runs: &mut [RunResult], indices: &[usize], of: &dyn Fn(usize) -> Option<Vec<WorkloadPhase>>) {
    for &index in indices {
        if let Some(run) = runs.get_mut(index)
            && let Outcome::Measured(figures) = &mut run.record.outcome
            && let Some(phases) = of(index)
        {
            figures.phases = phases;
        }
    }
}

impl SlimPhase {
    fn whole(&self) -> WorkloadPhase {
        let activity = PhaseActivity { rpcs: self.rpcs.as_deref().cloned(), ..self.others.clone() };
        WorkloadPhase {
            name: self.name.to_string(),
            test: self.test,
            repetition: self.repetition,
            activity: Some(activity),
            moved: BTreeMap::new(),
            events: BTreeMap::new(),
            mount: None,
            tasks: None,
            window: None,
            calls: None,
            interval: Interval { before: EMPTY, after: EMPTY },
        }
    }
}

/// Returns the stored value that equals `new`.
fn shared<T: ?Sized + Eq + std::hash::Hash>(all: &mut HashSet<Arc<T>>, new: Arc<T>) -> Arc<T> {
    if let Some(same) = all.get(&new) {
        return Arc::clone(same);
    }
    all.insert(Arc::clone(&new));
    new
}
