// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives results from a journal. Pure; a figure that cannot be computed has the reason instead.

pub(crate) mod activity;
mod again;
mod boot_coverage;
mod budgets;
mod bystander;
mod bytes;
mod calls;
mod cells;
mod code_coverage;
mod context;
mod cost;
pub(crate) mod direct;
mod entries;
mod findings;
pub(crate) mod gates;
mod kernel_features;
pub(crate) mod levels;
pub(crate) mod lookup;
mod losses;
mod lost_events;
mod nodes;
mod packed;
pub(crate) mod pairs;
pub(crate) mod pooled;
mod priced;
mod runs;
pub(crate) mod sampling;
mod slim;
pub(crate) mod spinning;
mod streamed;
pub(crate) mod tool_results;

pub use again::overheads_again;
pub(crate) use runs::readings;
pub use streamed::{Streamed, StreamedError, derive_in};

use std::collections::{BTreeMap, HashSet};

use bpfassay_study::Plan;

use self::{
    context::DeriveContext,
    entries::{Ahead, TakenEntries, standing, take},
    lookup::{ByCell, by_cell, positions},
};
use bpfassay_results::{Boot, JournalContents, RESULTS_VERSION, Results, RunDerived, RunRecord, RunResult};

/// Derives what follows from one record of a run of `plan`; `None` if the record has no figures, or
/// no cell in the plan.
#[must_use]
pub fn of_run(plan: &Plan, record: &RunRecord) -> Option<RunDerived> {
    runs::derive(plan, plan.cell(&record.cell)?, record)
}

/// Puts the runs of each cell in the order of `plan`. The journal has them in the order in which
/// guests ended. That order is chance if several ran in parallel, and must not show in any figure.
fn in_order(plan: &Plan, of_cell: &mut ByCell<'_>) {
    let places = positions(plan);
    for runs in of_cell.values_mut() {
        runs.sort_by_cached_key(|run| places.get(run.record.run.as_str()));
    }
}

/// Counts the `boots` that were taken from stores of blocks, with a line for each store.
fn reused(boots: &[Boot]) -> Vec<String> {
    // Whether the machine that measured is known for every block of the store, and the number of
    // blocks.
    let mut stores: BTreeMap<&str, (bool, usize)> = BTreeMap::new();
    for reused in boots.iter().filter_map(|boot| boot.reused.as_ref()) {
        let (is_known, count) = stores.entry(&reused.store).or_insert((true, 0));
        *is_known &= !reused.host.machine.is_empty();
        *count += 1;
    }
    let all = boots.len();
    let line = |(store, (is_known, count))| {
        let when = match is_known {
            true => "`boots` has when and on which host",
            false => "the store does not have of all of them when and on which host",
        };
        format!("{count} of {all} boots were measured before, and are reused from the store {store}: {when}")
    };
    stores.into_iter().map(line).collect()
}

/// Derives the results from a journal, finished or not.
#[must_use]
pub fn derive(contents: &JournalContents) -> Results {
    derive_all(contents.clone())
}

/// Derives the results from contents that are not needed afterwards: the records move into the
/// results without a copy.
#[must_use]
pub fn derive_all(mut contents: JournalContents) -> Results {
    let ahead = Ahead::of(&contents.header.plan, &mut contents.entries);
    derive_ahead(contents, ahead, |_, _, _| ())
}

/// Says how many runs of `needed` were not done.
fn not_done(needed: &Plan, runs: &[RunResult]) -> Option<String> {
    let done: HashSet<&str> = runs.iter().map(|run| run.record.run.as_str()).collect();
    let planned = needed.runs().count();
    let missing = needed.runs().filter(|(_, run)| !done.contains(run.spec.id.as_str())).count();
    (missing > 0).then(|| format!("{missing} of {planned} planned runs were not done"))
}

/// Says of a shard which `part` of the plan it is.
fn of_shard(plan: &Plan, part: &Plan) -> Option<String> {
    let phrase = plan.shard?.phrase();
    Some(format!(
        "{phrase} of the study, with {} of its {} boots: the others are measured apart, and `bpfassay cluster merge` makes one of all; gates and \
         negligible overheads are decided then",
        part.blocks.len(),
        plan.blocks.len()
    ))
}

/// Derives the results from `contents`, and from `ahead`, which was derived from single entries.
/// `prepare` receives the plan, the runs, and the number of each run among all records of the
/// journal.
fn derive_ahead(
    contents: JournalContents,
    ahead: Ahead,
    prepare: impl FnOnce(&Plan, &mut [RunResult], Vec<usize>),
) -> Results {
    let (stands, of_standing) = standing(&contents);
    let TakenEntries { plan, provenance, boots, mut runs, numbers, counts, coverages, mut notes } =
        take(contents.header.plan, contents.header.provenance, contents.entries, ahead, &stands);
    drop(stands);
    prepare(&plan, &mut runs, numbers);
    notes.extend(of_standing);
    let counts = counts.of_guests_with(plan.study.guest.cpus);
    counts.of_runs(&plan, &mut runs);
    let mut of_cell = by_cell(&runs);
    in_order(&plan, &mut of_cell);
    // These results do not lack what other shards measure.
    let part = plan.part();
    let sampling = sampling::derive(&part, &of_cell);
    let needed = sampling::needed(&part, &sampling);
    let context = DeriveContext::new(&needed, &provenance, &of_cell, &counts, &coverages);
    notes.extend(not_done(&needed, &runs));
    notes.extend(reused(&boots));
    notes.extend(of_shard(&plan, &part));
    if let Some(torn) = &contents.torn {
        notes.push(format!("line {} of the journal is torn and was set aside: the run in flight is lost", torn.line));
    }
    let mut cells = cells::derive(&context);
    pooled::derive(&context, &mut cells);
    // The verdicts of all shards form one family.
    let is_whole = plan.shard.is_none();
    if is_whole {
        gates::negligible(&context, &mut cells);
    }
    let gates = if is_whole { gates::derive(&context, &cells) } else { Vec::new() };
    let kernel_features = kernel_features::derive(&context, &boots, &cells);
    drop(context);
    drop(needed);
    drop(part);
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
