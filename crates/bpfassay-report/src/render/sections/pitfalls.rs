// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of pitfalls that the tracer found. Identical findings of several cells share a row.

use std::collections::HashMap;

use bpfassay_study::Target;

use crate::render::table::{CellNames, Remarks, TextTable, target_list};
use bpfassay_results::{CellFinding, CellResult, Results};

/// A finding and its places.
#[derive(Default)]
struct AlikeFinding<'a> {
    /// The common values of the cells below: pitfall, subject, runs, remark, workload.
    common: [String; 5],
    /// Probe configurations of each target.
    places: Vec<(&'a Target, Vec<String>)>,
}

/// Creates the table, if there is something to show.
pub(super) fn table(results: &Results) -> Option<TextTable> {
    let mut remarks = Remarks::default();
    let mut groups: Vec<AlikeFinding<'_>> = Vec::new();
    let mut known: HashMap<[String; 5], usize> = HashMap::new();
    let cell_names = CellNames::of(results);
    for cell in &results.cells {
        for found in &cell.findings {
            let common = common(&cell_names, cell, found, &mut remarks);
            let index = *known.entry(common).or_insert_with_key(|common| {
                groups.push(AlikeFinding { common: common.clone(), places: Vec::new() });
                groups.len() - 1
            });
            let places = &mut groups[index].places;
            let probe = cell.probe.to_string();
            // Cells of one target are consecutive.
            match places.iter_mut().rfind(|(target, _)| *target == &cell.target) {
                Some((_, probes)) => probes.push(probe),
                None => places.push((&cell.target, vec![probe])),
            }
        }
    }
    let rows: Vec<Vec<String>> = groups.iter().flat_map(rows).collect();
    let columns = ["target", "probe", "pitfall", "concerns", "runs", "what was seen"];
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            "runs: in how many of the runs that attached or were refused; numbers in the remarks are of the first of them."
                .to_owned(),
        ],
        ..TextTable::new("pitfalls that the tracer found", columns)
    })
}

fn common(cell_names: &CellNames, cell: &CellResult, found: &CellFinding, remarks: &mut Remarks) -> [String; 5] {
    let finding = &found.finding;
    let done = cell.runs.measured.saturating_add(cell.runs.refused);
    [
        finding.pitfall.to_string(),
        finding.subject.clone(),
        format!("{} of {done}", found.runs.len()),
        remarks.mark(finding.detail.clone()),
        cell_names.text(String::new(), &cell.case, &cell.file_system),
    ]
}

/// Creates a row for all targets with the same probe configurations.
fn rows(group: &AlikeFinding<'_>) -> Vec<Vec<String>> {
    let mut merged: Vec<(Vec<&Target>, &[String])> = Vec::new();
    for (target, probes) in &group.places {
        match merged.iter_mut().find(|(_, known)| *known == probes.as_slice()) {
            Some((targets, _)) => targets.push(target),
            None => merged.push((vec![target], probes)),
        }
    }
    let [pitfall, subject, runs, remark, workload] = &group.common;
    let row = |(targets, probes): (Vec<&Target>, &[String])| {
        let place = format!("{}{workload}", target_list(&targets));
        vec![place, probes.join(", "), pitfall.clone(), subject.clone(), runs.clone(), remark.clone()]
    };
    merged.into_iter().map(row).collect()
}
