//! From a journal to results. Pure; what cannot be computed becomes a figure with the reason.

mod bytes;
pub(crate) mod cells;
mod command;
pub(crate) mod context;
mod cost;
mod coverage;
mod events;
mod findings;
pub(crate) mod gates;
mod kernel_features;
mod merit;
mod runs;
pub(crate) mod sampling;
mod tool;

pub(crate) use runs::readings;

use std::collections::{HashMap, HashSet};

use bpfassay_study::Plan;

use self::context::{Context, by_cell};
use crate::{
    BlockStarted, Contents, Entry, Figure, Provenance, RESULTS_VERSION, Results, RunRecord,
    results::{Boot, RunDerived, RunResult},
};

/// Nominal coverage of intervals.
pub(crate) const LEVEL: f64 = 0.95;

/// What follows from one record of a run of `plan`; nothing where it has no figures, or no cell in the plan.
#[must_use]
pub fn of_run(plan: &Plan, record: &RunRecord) -> Option<RunDerived> {
    runs::derive(plan, plan.cell(&record.cell)?, record)
}

/// Everything that follows from what a journal holds, finished or not.
#[must_use]
pub fn derive(contents: &Contents) -> Results {
    derive_all(contents.clone())
}

/// The same of contents that nobody needs any more: the records become part of the results, and no second copy is made of them.
#[must_use]
pub fn derive_all(contents: Contents) -> Results {
    let (stands, of_standing) = standing(&contents);
    let Taken { plan, provenance, boots, runs, mut notes } =
        take(contents.header.plan, contents.header.provenance, contents.entries, &stands);
    notes.extend(of_standing);
    let of_cell = by_cell(&runs);
    let sampling = sampling::derive(&plan, &of_cell);
    let needed = sampling::needed(&plan, &sampling);
    let context = Context::new(&needed, &provenance, &of_cell);
    let done: HashSet<&str> = runs.iter().map(|run| run.record.run.as_str()).collect();
    let planned = needed.runs().count();
    let missing = needed.runs().filter(|(_, run)| !done.contains(run.spec.id.as_str())).count();
    drop(done);
    if missing > 0 {
        notes.push(format!("{missing} of {planned} planned runs were not done"));
    }
    if let Some(torn) = &contents.torn {
        notes.push(format!("line {} of the journal is torn and was set aside: the run in flight is lost", torn.line));
    }
    let mut cells = cells::derive(&context);
    gates::negligible(&context, &mut cells);
    let gates = gates::derive(&context, &cells);
    let kernel_features = kernel_features::derive(&context, &boots, &cells);
    drop(context);
    drop(needed);
    drop(of_cell);
    Results {
        version: RESULTS_VERSION,
        journal: contents.digest,
        started_unix_ms: contents.header.started_unix_ms,
        plan,
        provenance,
        boots,
        runs,
        cells,
        gates,
        sampling,
        kernel_features,
        notes,
    }
}

/// The places in the journal of the records that stand, and what is to be said of the others.
fn standing(contents: &Contents) -> (HashSet<usize>, Vec<String>) {
    let standing = contents.standing();
    let stands = |entry: &Entry| match entry {
        Entry::Run(record) => standing.record(&record.run).is_some_and(|kept| std::ptr::eq(kept, record.as_ref())),
        _ => false,
    };
    let places = contents.entries.iter().enumerate().filter(|(_, entry)| stands(entry)).map(|(at, _)| at).collect();
    let mut notes = Vec::new();
    for (block, count) in standing.superseded() {
        notes.push(format!(
            "block {block} was booted again whole, from its warm-up: {count} records of earlier boots do not count"
        ));
    }
    match standing.provisional() {
        0 => {}
        count => notes.push(format!(
            "{count} runs are of boots that were not brought to their end: their figures are provisional, and `run --resume` \
             measures their blocks again"
        )),
    }
    (places, notes)
}

/// What a journal holds, in the form of results.
struct Taken {
    plan: Plan,
    provenance: Vec<Provenance>,
    boots: Vec<Boot>,
    runs: Vec<RunResult>,
    notes: Vec<String>,
}

/// The entries as results, of records only those at the places `stands`.
fn take(plan: Plan, first: Provenance, entries: Vec<Entry>, stands: &HashSet<usize>) -> Taken {
    let cells = plan.cells_by_id();
    let mut provenance = vec![first];
    let mut boots = Boots::default();
    let mut notes = Vec::new();
    let mut runs = Vec::with_capacity(stands.len());
    for (index, entry) in entries.into_iter().enumerate() {
        match entry {
            Entry::Resumed { provenance: again, .. } => {
                if provenance.last() != Some(&again) {
                    provenance.push(*again);
                }
            }
            Entry::Run(record) => match cells.get(record.cell.as_str()) {
                None => notes.push(format!("run {} belongs to no cell of the plan and was left aside", record.run)),
                // Superseded: the block was booted again.
                Some(_) if !stands.contains(&index) => {}
                Some(cell) => {
                    let derived = runs::derive(&plan, cell, &record);
                    runs.push(RunResult { record: *record, derived });
                }
            },
            Entry::BlockStarted(started) => boots.start(started),
            Entry::GuestReady(ready) => {
                if let Some(boot) = boots.get(&ready.block, ready.boot) {
                    boot.ready_after_ms = Figure::Value(ready.ready_after_ms);
                    boot.facts = Some(ready.facts);
                }
            }
            Entry::BlockEnded(ended) => {
                if let Some(boot) = boots.get(&ended.block, ended.boot) {
                    boot.failure = ended.failure;
                    boot.notes = ended.notes;
                    boot.verdict = Some(ended.verdict);
                }
            }
        }
    }
    drop(cells);
    Taken { plan, provenance, boots: boots.all, runs, notes }
}

/// The guests that were started, in their order.
#[derive(Default)]
struct Boots {
    all: Vec<Boot>,
    places: HashMap<String, HashMap<u32, usize>>,
}

impl Boots {
    fn start(&mut self, started: BlockStarted) {
        self.places.entry(started.block.clone()).or_default().insert(started.boot, self.all.len());
        self.all.push(Boot {
            block: started.block,
            boot: started.boot,
            started_unix_ms: started.at_unix_ms,
            qemu: started.qemu,
            log: started.log,
            ready_after_ms: Figure::missing("the guest never said that it is ready"),
            facts: None,
            failure: None,
            notes: Vec::new(),
            confirming: started.confirming,
            verdict: None,
        });
    }

    fn get(&mut self, block: &str, boot: u32) -> Option<&mut Boot> {
        self.all.get_mut(*self.places.get(block)?.get(&boot)?)
    }
}
