//! The matrix of targets and probe configurations.

use bpfassay_protocol::Arch;

use crate::{
    Results,
    results::{Attach, CellResult},
    trend::by_version,
};

/// More targets than that are no longer columns that fit a window side by side.
const MAX_COLUMNS: usize = 12;

/// Probe configurations × targets, or, where targets are many, kernels × architectures and probe configurations.
pub(super) struct Matrix {
    /// What the rows are.
    pub(super) corner: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<MatrixCell>)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MatrixCell {
    pub(super) class: &'static str,
    pub(super) text: String,
}

/// Where cells of one configuration and target are several (workloads, file systems), the worst of them is shown.
pub(super) fn matrix(results: &Results) -> Option<Matrix> {
    if results.capabilities.is_some() {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for cell in results.cells.iter().filter(|cell| !cell.is_baseline()) {
        let name = cell.under_test();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return None;
    }
    let targets = results.plan.targets();
    if targets.len() > MAX_COLUMNS {
        return Some(by_kernel(results, &names));
    }
    let of_name = |name: String| {
        let cells = targets.iter().map(|target| worst(results, target.arch, &target.kernel, &name)).collect();
        (name, cells)
    };
    Some(Matrix {
        corner: "under test",
        columns: targets.iter().map(ToString::to_string).collect(),
        rows: names.into_iter().map(of_name).collect(),
    })
}

/// Kernels that follow each other and came out alike share a row.
fn by_kernel(results: &Results, names: &[String]) -> Matrix {
    let targets = results.plan.targets();
    let mut archs: Vec<Arch> = targets.iter().map(|target| target.arch).collect();
    archs.sort_unstable();
    archs.dedup();
    let mut kernels: Vec<&str> = targets.iter().map(|target| target.kernel.as_str()).collect();
    kernels.sort_by(|a, b| by_version(a, b));
    kernels.dedup();
    let columns: Vec<(Arch, &String)> =
        archs.iter().flat_map(|arch| names.iter().map(move |name| (*arch, name))).collect();
    let mut rows: Vec<(Vec<&str>, Vec<MatrixCell>)> = Vec::new();
    for kernel in kernels {
        let cells: Vec<_> = columns.iter().map(|(arch, name)| worst(results, *arch, kernel, name)).collect();
        match rows.last_mut() {
            Some((alike, known)) if *known == cells => alike.push(kernel),
            _ => rows.push((vec![kernel], cells)),
        }
    }
    let range = |kernels: &[&str]| match kernels {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first, .., last] => format!("{first} to {last} ({} kernels)", kernels.len()),
    };
    Matrix {
        corner: "kernels",
        columns: columns.iter().map(|(arch, name)| format!("{arch} {name}")).collect(),
        rows: rows.into_iter().map(|(kernels, cells)| (range(&kernels), cells)).collect(),
    }
}

fn worst(results: &Results, arch: Arch, kernel: &str, name: &str) -> MatrixCell {
    let is_it =
        |cell: &&CellResult| cell.target.arch == arch && cell.target.kernel == kernel && cell.under_test() == name;
    results
        .cells
        .iter()
        .filter(is_it)
        .map(shown)
        .max_by_key(|cell| rank(cell.class))
        .unwrap_or(MatrixCell { class: "none", text: "not in the plan".to_owned() })
}

fn rank(class: &str) -> u8 {
    match class {
        "bad" => 3,
        "open" => 2,
        "none" => 0,
        _ => 1,
    }
}

fn shown(cell: &CellResult) -> MatrixCell {
    let (class, text) = match &cell.attach {
        _ if cell.runs.failed > 0 => ("bad", "failed"),
        Attach::Refused { expected: true, .. } => ("good", "refused, as expected"),
        Attach::Refused { .. } => ("bad", "refused"),
        Attach::Unsteady { .. } => ("bad", "unsteady"),
        Attach::Attached { in_spite_of: Some(_), .. } => ("bad", "attached, unexpectedly"),
        Attach::Unknown { .. } => ("open", "not run"),
        Attach::Baseline => ("none", "baseline"),
        Attach::Attached { .. } => {
            let errors = || cell.accesses.iter().filter_map(|access| access.byte_error.value());
            match () {
                () if cell.tool.is_some() => ("good", "runs"),
                () if errors().any(|errors| errors.min != 0 || errors.max != 0) => ("open", "not exact"),
                () if errors().next().is_none() => ("open", "no figures"),
                () => ("good", "exact"),
            }
        }
    };
    MatrixCell { class, text: text.to_owned() }
}
