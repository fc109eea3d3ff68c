// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of priced direct costs: the misses on each probe's path by the study's model of caches
//! and branches, with the instructions.

use crate::render::table::{CellNames, TextTable};
use bpfassay_results::{Figure, Results};

pub(super) fn table(results: &Results) -> Option<TextTable> {
    let model = results.plan.study.model.as_ref()?;
    let cell_names = CellNames::of(results);
    let mut rows = Vec::new();
    for cell in &results.cells {
        let priced = cell.metrics.iter().filter_map(|metric| match metric.direct.as_ref()? {
            Figure::Value(direct) => Some((metric, direct, direct.priced.as_ref()?)),
            Figure::NotMeasured(_) => None,
        });
        for (index, (metric, direct, priced)) in priced.enumerate() {
            let mut row = cell_names.row(cell, index == 0);
            row.push(metric.name.to_string());
            row.push(format!("{:.1}", direct.per_call.mean));
            row.extend(priced.misses.numbers().map(|number| format!("{number:.2}")));
            row.push(format!("{:.1}", priced.per_call.mean));
            row.push(format!("{:+.1}", priced.elsewhere.mean));
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return None;
    }
    let legend = vec![
        "direct: the direct cost in instructions. L1I, L1D, L2: lines on the probe's path that were not in these caches of the model; mispredicted: branches that \
         it predicted wrongly. priced: the instructions and these by the model's prices. Means over the runs; by role and function in results.json."
            .to_owned(),
        "elsewhere: the same of the rest of the guest, beyond the baseline's run of the same round; it varies by itself. A model is no processor: \
         priced figures are no time."
            .to_owned(),
        format!("model {}.", model.described()),
    ];
    let columns = cell_names.columns(&["metric", "direct", "L1I", "L1D", "L2", "mispredicted", "priced", "elsewhere"]);
    let title = format!("direct cost priced by the model {}, per call, study {}", model.name, results.plan.title());
    Some(TextTable { rows, legend, ..TextTable::new(title, columns) })
}
