//! The table of pitfalls that the tracer found. What was found alike by many is told once.

use std::collections::HashMap;

use bpfassay_study::Target;

use super::{
    coverage::list,
    rows::{Remarks, Table, differ},
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
    let mut known: HashMap<[String; 5], usize> = HashMap::new();
    let places = Places::of(results);
    for cell in &results.cells {
        for found in &cell.findings {
            let told = told(&places, cell, found, &mut remarks);
            let index = *known.entry(told).or_insert_with_key(|told| {
                groups.push(Alike { told: told.clone(), places: Vec::new() });
                groups.len() - 1
            });
            let places = &mut groups[index].places;
            let probe = cell.probe.to_string();
            // Cells of one target stand together.
            match places.iter_mut().rfind(|(target, _)| *target == &cell.target) {
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

fn told(of: &Places, cell: &CellResult, found: &CellFinding, remarks: &mut Remarks) -> [String; 5] {
    let finding = &found.finding;
    let done = cell.runs.measured.saturating_add(cell.runs.refused);
    [
        finding.pitfall.to_string(),
        finding.subject.clone(),
        format!("{} of {done}", found.runs.len()),
        remarks.mark(finding.detail.clone()),
        of.workload(cell),
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

/// Where cells belong, with workload and file system where there are several.
pub(super) struct Places {
    many_cases: bool,
    many_file_systems: bool,
}

impl Places {
    pub(super) fn of(results: &Results) -> Self {
        Self {
            many_cases: differ(results, |cell| &cell.case),
            many_file_systems: differ(results, |cell| &cell.file_system),
        }
    }

    /// Target, workload and file system.
    pub(super) fn place(&self, cell: &CellResult) -> String {
        format!("{}{}", cell.target, self.workload(cell))
    }

    /// Workload and file system, where there are several.
    fn workload(&self, cell: &CellResult) -> String {
        let mut text = String::new();
        for (name, is_one_of_many) in [(&cell.case, self.many_cases), (&cell.file_system, self.many_file_systems)] {
            if is_one_of_many {
                text = format!("{text} {name}");
            }
        }
        text
    }
}
