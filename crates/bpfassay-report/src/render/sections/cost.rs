// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of costs: what each probe configuration adds to each call, in instructions.

use bpfassay_study::Clock;

use crate::{
    labels::{self, NONE},
    render::table::{CellNames, Remarks, TextTable, target_list},
};
use bpfassay_results::{Basis, Cost, Results, Unit};

/// The costs in a table that the legend must explain.
#[derive(Default)]
pub(super) struct CostNotes {
    is_open: bool,
    is_pooled: bool,
}

impl CostNotes {
    /// Formats `cost` for a cell of the table.
    pub(super) fn shown(&mut self, cost: &Cost) -> String {
        self.is_open |= !labels::is_known(cost);
        self.is_pooled |= cost.pooled.is_some();
        labels::cost(cost)
    }

    /// Explains what is shown: the text for an open cost, and an interval's mark.
    pub(super) fn legend(&self) -> impl Iterator<Item = String> {
        let open = format!(
            "{}: the interval holds 0 and reaches further than {} instructions to either side; results.json has it. More rounds or boots narrow it.",
            labels::NOT_KNOWN,
            labels::OPEN_COST
        );
        let pooled = "~: the interval is made as those of overheads are, from shares of the baseline's instructions: it has the same in it.";
        self.is_open.then_some(open).into_iter().chain(self.is_pooled.then(|| pooled.to_owned()))
    }
}

/// Explains what `n` counts.
pub(super) const OF_ROUNDS: &str = "n counts rounds within one boot: the interval holds within this boot and does not cover the spread between boots; \
    limits need two boots or more.";

/// Creates the table, if the clock counts instructions and there is something to compare.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    if results.plan.study.clock != Clock::Instructions {
        return None;
    }
    let cell_names = CellNames::of(results);
    let mut remarks = Remarks::default();
    let (mut rows, mut elapsed) = (Vec::new(), Vec::new());
    let (mut of_rounds, mut notes) = (false, CostNotes::default());
    for cell in results.cells.iter().filter(|cell| cell.runs.measured > 0) {
        // The operations of bandwidths are calls, and other metrics have none.
        for (index, metric) in cell.metrics.iter().filter(|metric| metric.operation.is_some()).enumerate() {
            let is_baseline = cell.is_baseline();
            let figure = metric.cost_compared(is_baseline);
            let mut row = cell_names.row(cell, index == 0);
            row.push(metric.name.to_string());
            let Some(cost) = figure.value() else {
                let missing = remarks.missing(figure.reason().unwrap_or_default());
                row.extend(["-".to_owned(), missing, NONE.to_owned(), "-".to_owned()]);
                rows.push(row);
                continue;
            };
            if cost.basis == Basis::Elapsed && !elapsed.contains(&&cell.target) {
                elapsed.push(&cell.target);
            }
            of_rounds |= cost.unit == Unit::Rounds;
            let prefix = if is_baseline { "A/A " } else { "" };
            row.extend([
                cost.calls.to_string(),
                format!("{prefix}{}", notes.shown(cost)),
                if labels::is_known(cost) { labels::number(cost.per_mib.value) } else { labels::NOT_KNOWN.to_owned() },
                cost.per_call.n.to_string(),
            ]);
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut legend = vec![
        "instructions per call: of the whole guest between the barriers of a phase, beyond the baseline's of the same round, / calls \
         of the workload; counts instructions, not cycles: cache misses and traps are not priced."
            .to_owned(),
        "A/A: the same for the second baseline run, the noise floor.".to_owned(),
    ];
    legend.extend(notes.legend());
    if !elapsed.is_empty() {
        legend.push(format!(
            "{}: time in which the guest waits is in the figures, because the kernel does not report it.",
            target_list(&elapsed)
        ));
    }
    if of_rounds {
        legend.push(OF_ROUNDS.to_owned());
    }
    let columns = cell_names.columns(&["metric", "calls", "instructions per call [95 %]", "per MiB", "n"]);
    let title = format!("cost of each probe configuration, study {}, clock instructions", results.plan.title());
    Some(TextTable { rows, remarks: remarks.0, legend, ..TextTable::new(title, columns) })
}
