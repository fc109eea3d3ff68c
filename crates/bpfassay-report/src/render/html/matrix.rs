// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix of targets and probe configurations.

use std::collections::{HashMap, HashSet};

use bpfassay_protocol::Arch;

use crate::trend::by_version;
use bpfassay_results::{Attach, CellResult, Results};

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
    if results.kernel_features.is_some() {
        return None;
    }
    let mut known = HashSet::new();
    let all = results.cells.iter().filter(|cell| !cell.is_baseline()).map(CellResult::under_test);
    let names: Vec<String> = all.filter(|name| known.insert(name.clone())).collect();
    if names.is_empty() {
        return None;
    }
    let targets = results.plan.targets();
    if targets.len() > MAX_COLUMNS {
        return Some(by_kernel(results, &names));
    }
    let worst = worst(results);
    let of_name = |name: String| {
        let cells = targets.iter().map(|target| at(&worst, target.arch, &target.kernel, &name)).collect();
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
    let worst = worst(results);
    let mut rows: Vec<(Vec<&str>, Vec<MatrixCell>)> = Vec::new();
    for kernel in kernels {
        let cells: Vec<_> = columns.iter().map(|(arch, name)| at(&worst, *arch, kernel, name)).collect();
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

/// What is shown of each kernel, by what is under test on it.
type Worst<'a> = HashMap<(Arch, &'a str), HashMap<String, MatrixCell>>;

fn worst(results: &Results) -> Worst<'_> {
    let mut worst = Worst::new();
    for cell in &results.cells {
        let of_kernel = worst.entry((cell.target.arch, cell.target.kernel.as_str())).or_default();
        let shown = shown(cell);
        // Of several that are as bad, the last.
        match of_kernel.get(&cell.under_test()) {
            Some(known) if rank(known.class) > rank(shown.class) => {}
            _ => {
                of_kernel.insert(cell.under_test(), shown);
            }
        }
    }
    worst
}

fn at(worst: &Worst<'_>, arch: Arch, kernel: &str, name: &str) -> MatrixCell {
    let found = worst.get(&(arch, kernel)).and_then(|of_kernel| of_kernel.get(name));
    found.cloned().unwrap_or(MatrixCell { class: "none", text: "not in the plan".to_owned() })
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
            let errors = || cell.accuracy.iter().filter_map(|accuracy| accuracy.byte_error.value());
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
