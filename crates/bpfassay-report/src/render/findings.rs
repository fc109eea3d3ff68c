//! The table of pitfalls that the tracer found. What was found alike by many is told once.

use bpfassay_study::Target;

use super::{
    coverage::list,
    rows::{Remarks, Table},
};
use crate::{
    Results,
    results::{CellFinding, CellResult},
};

/// What was found, and where.
#[derive(Default)]
struct Alike<'a> {
    /// Everything that the cells below have in common: pitfall, subject, runs, remark, workload.
    told: [String; 5],
    /// Probe configurations of each target.
    places: Vec<(&'a Target, Vec<String>)>,
}

/// The table, where there is something to show.
pub(super) fn table(results: &Results) -> Option<Table> {
    let mut remarks = Remarks::default();
    let mut groups: Vec<Alike<'_>> = Vec::new();
    for cell in &results.cells {
        for found in &cell.findings {
            let told = told(results, cell, found, &mut remarks);
            let index = groups.iter().position(|group| group.told == told).unwrap_or_else(|| {
                groups.push(Alike { told, places: Vec::new() });
                groups.len() - 1
            });
            let places = &mut groups[index].places;
            let probe = cell.probe.to_string();
            match places.iter_mut().find(|(target, _)| *target == &cell.target) {
                Some((_, probes)) => probes.push(probe),
                None => places.push((&cell.target, vec![probe])),
            }
        }
    }
    let rows: Vec<Vec<String>> = groups.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return None;
    }
    Some(Table {
        title: vec!["pitfalls that the tracer found".to_owned()],
        columns: ["target", "probe", "pitfall", "concerns", "runs", "what was seen"].map(str::to_owned).into(),
        rows,
        warnings: Vec::new(),
        remarks: remarks.0,
        legend: vec![
            "runs: in how many of the runs that attached or were refused; numbers in the remarks are of the first of them."
                .to_owned(),
        ],
    })
}

fn told(results: &Results, cell: &CellResult, found: &CellFinding, remarks: &mut Remarks) -> [String; 5] {
    let finding = &found.finding;
    let done = cell.runs.measured.saturating_add(cell.runs.refused);
    [
        finding.pitfall.to_string(),
        finding.subject.clone(),
        format!("{} of {done}", found.runs.len()),
        remarks.mark(finding.detail.clone()),
        workload(results, cell),
    ]
}

/// A row for all targets with the same probe configurations.
fn rows(group: &Alike<'_>) -> Vec<Vec<String>> {
    let mut merged: Vec<(Vec<&Target>, &[String])> = Vec::new();
    for (target, probes) in &group.places {
        match merged.iter_mut().find(|(_, known)| *known == probes.as_slice()) {
            Some((targets, _)) => targets.push(target),
            None => merged.push((vec![target], probes)),
        }
    }
    let [pitfall, subject, runs, remark, workload] = &group.told;
    let row = |(targets, probes): (Vec<&Target>, &[String])| {
        let place = format!("{}{workload}", list(&targets));
        vec![place, probes.join(", "), pitfall.clone(), subject.clone(), runs.clone(), remark.clone()]
    };
    merged.into_iter().map(row).collect()
}

/// Where a cell belongs, with workload and file system where there are several.
pub(super) fn place(results: &Results, cell: &CellResult) -> String {
    format!("{}{}", cell.target, workload(results, cell))
}

/// Workload and file system, where there are several.
fn workload(results: &Results, cell: &CellResult) -> String {
    let mut text = String::new();
    for (name, is_one_of_many) in [
        (&cell.case, results.cells.iter().any(|other| other.case != cell.case)),
        (&cell.file_system, results.cells.iter().any(|other| other.file_system != cell.file_system)),
    ] {
        if is_one_of_many {
            text = format!("{text} {name}");
        }
    }
    text
}
