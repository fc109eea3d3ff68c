//! The table of overheads against the number of program sets: a row per configuration, a column per workload and access.

use bpfassay_protocol::program_set::ProgramSets;

use super::{
    rows::Table,
    words::{self, NONE},
};
use crate::{
    Results,
    results::{Access, CellResult},
};

/// The table, where program sets were attached.
pub(super) fn table(results: &Results) -> Option<Table> {
    let cells: Vec<&CellResult> = results.cells.iter().filter(|cell| cell.probe.sets != ProgramSets::NONE).collect();
    let mut columns: Vec<(&str, &str, Access)> = Vec::new();
    let mut places = Vec::new();
    for cell in &cells {
        for access in &cell.accesses {
            let column = (cell.case.as_str(), cell.file_system.as_str(), access.access);
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        let place = (&cell.target, cell.probe);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    // By target in the order of the plan, and by number of sets.
    let order: Vec<_> = results.plan.targets();
    places.sort_by_key(|(target, probe)| (order.iter().position(|known| known == target), probe.sets.count()));
    let rows = places.iter().map(|&(target, probe)| {
        let figures = columns.iter().map(|&(case, file_system, access)| {
            let of = |cell: &&&CellResult| {
                (&cell.target, cell.probe, cell.case.as_str(), cell.file_system.as_str())
                    == (target, probe, case, file_system)
            };
            let found = cells.iter().find(of).and_then(|cell| cell.accesses.iter().find(|one| one.access == access));
            found.and_then(|access| words::overhead(&access.overhead)).unwrap_or_else(|| NONE.to_owned())
        });
        [target.to_string(), probe.sets.count().to_string(), probe.sets.to_string()]
            .into_iter()
            .chain(figures)
            .collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let many = columns.iter().any(|(_, file_system, _)| *file_system != columns[0].1);
    let head = columns.iter().map(|(case, file_system, access)| match many {
        true => format!("{case} {access}, {file_system}"),
        false => format!("{case} {access}"),
    });
    (!rows.is_empty()).then(|| Table {
        title: vec!["overhead by number of program sets".to_owned()],
        columns: ["target", "sets", "which"].map(str::to_owned).into_iter().chain(head).collect(),
        rows,
        warnings: Vec::new(),
        remarks: Vec::new(),
        legend: Vec::new(),
    })
}
