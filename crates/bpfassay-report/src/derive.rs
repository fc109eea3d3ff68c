//! From a journal to results. Pure; what cannot be computed becomes a figure with the reason.

mod bytes;
mod capabilities;
pub(crate) mod cells;
mod command;
mod cost;
mod coverage;
mod events;
mod findings;
pub(crate) mod gates;
mod merit;
mod runs;
pub(crate) mod sampling;
mod tool;

pub(crate) use runs::readings;

use std::collections::BTreeMap;

use bpfassay_study::Plan;

use crate::{
    Contents, Entry, Figure, RESULTS_VERSION, Results, RunRecord,
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
    let plan = &contents.header.plan;
    let standing = contents.standing();
    let mut provenance = vec![contents.header.provenance.clone()];
    let mut notes = Vec::new();
    let mut runs = Vec::new();
    for entry in &contents.entries {
        match entry {
            Entry::Resumed { provenance: again, .. } => {
                if provenance.last() != Some(again) {
                    provenance.push(again.as_ref().clone());
                }
            }
            Entry::Run(record) => match plan.cell(&record.cell) {
                None => notes.push(format!("run {} belongs to no cell of the plan and was left aside", record.run)),
                // Superseded: the block was booted again.
                Some(_) if !standing.record(&record.run).is_some_and(|kept| std::ptr::eq(kept, record.as_ref())) => {}
                Some(cell) => {
                    let derived = runs::derive(&contents.header.plan, cell, record);
                    runs.push(RunResult { record: record.as_ref().clone(), derived });
                }
            },
            Entry::BlockStarted(_) | Entry::GuestReady(_) | Entry::BlockEnded(_) => {}
        }
    }
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
    let sampling = sampling::derive(plan, &runs);
    let needed = sampling::needed(plan, &sampling);
    let plan = &needed;
    let planned = plan.runs().count();
    let missing = plan.runs().filter(|(_, run)| standing.record(&run.order.id).is_none()).count();
    if missing > 0 {
        notes.push(format!("{missing} of {planned} planned runs were not done"));
    }
    if let Some(torn) = &contents.torn {
        notes.push(format!("line {} of the journal is torn and was set aside: the run in flight is lost", torn.line));
    }
    let mut cells = cells::derive(plan, &provenance, &runs);
    gates::negligible(plan, &mut cells);
    let gates = gates::derive(plan, &provenance, &runs, &cells);
    let boots = boots(&contents.entries);
    let capabilities = capabilities::derive(plan, &boots, &runs, &cells);
    Results {
        version: RESULTS_VERSION,
        started_unix_ms: contents.header.started_unix_ms,
        plan: contents.header.plan.clone(),
        provenance,
        boots,
        runs,
        cells,
        gates,
        sampling,
        capabilities,
        notes,
    }
}

fn boots(entries: &[Entry]) -> Vec<Boot> {
    let mut boots: Vec<Boot> = Vec::new();
    let mut places = BTreeMap::<(&str, u32), usize>::new();
    for entry in entries {
        match entry {
            Entry::BlockStarted(started) => {
                places.insert((&started.block, started.boot), boots.len());
                boots.push(Boot {
                    block: started.block.clone(),
                    boot: started.boot,
                    started_unix_ms: started.at_unix_ms,
                    qemu: started.qemu.clone(),
                    log: started.log.clone(),
                    ready_after_ms: Figure::missing("the guest never said that it is ready"),
                    facts: None,
                    trouble: None,
                    notes: Vec::new(),
                    confirming: started.confirming.clone(),
                    verdict: None,
                });
            }
            Entry::GuestReady(ready) => {
                let place = places.get(&(ready.block.as_str(), ready.boot));
                if let Some(boot) = place.and_then(|&at| boots.get_mut(at)) {
                    boot.ready_after_ms = Figure::Value(ready.ready_after_ms);
                    boot.facts = Some(ready.facts.clone());
                }
            }
            Entry::BlockEnded(ended) => {
                let place = places.get(&(ended.block.as_str(), ended.boot));
                if let Some(boot) = place.and_then(|&at| boots.get_mut(at)) {
                    boot.trouble.clone_from(&ended.trouble);
                    boot.notes.clone_from(&ended.notes);
                    boot.verdict = Some(ended.verdict.clone());
                }
            }
            Entry::Run(_) | Entry::Resumed { .. } => {}
        }
    }
    boots
}
