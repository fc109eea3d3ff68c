// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix of targets and probe configurations.

use std::collections::{HashMap, HashSet};

use bpfassay_protocol::Arch;
use bpfassay_tool::finding::Kind;

use crate::{render::cases, trend::by_version};
use bpfassay_results::{Attach, CellResult, Demand, Results};

/// The largest number of targets whose columns fit into a window.
const MAX_COLUMNS: usize = 12;

/// Probe configurations × targets; with many targets, kernels × architectures and probe
/// configurations.
pub(super) struct Matrix {
    /// The name of the rows.
    pub(super) corner: &'static str,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<MatrixCell>)>,
}

impl Matrix {
    /// Returns the name of a column, for a cell that stands alone.
    pub(super) fn column(&self, index: usize) -> &str {
        self.columns.get(index).map_or("", String::as_str)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MatrixCell {
    pub(super) class: &'static str,
    pub(super) text: String,
}

/// Makes the matrix. If a configuration and target have several cells, because of workloads or file
/// systems, it shows the worst of them.
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

/// Makes the matrix by kernel. Consecutive kernels with the same outcome share a row.
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

/// The shown cell of each kernel, by what is under test.
type Worst<'a> = HashMap<(Arch, &'a str), HashMap<String, MatrixCell>>;

fn worst(results: &Results) -> Worst<'_> {
    let mut worst = Worst::new();
    let denied = denied(results);
    for cell in &results.cells {
        let of_kernel = worst.entry((cell.target.arch, cell.target.kernel.as_str())).or_default();
        let shown = shown(cell, denied.get(cell.cell.as_str()).map_or(&[], Vec::as_slice));
        // The last one of several equally bad cells is shown.
        match of_kernel.get(&cell.under_test()) {
            Some(known) if rank(known.class) > rank(shown.class) => {}
            _ => {
                of_kernel.insert(cell.under_test(), shown);
            }
        }
    }
    worst
}

/// Returns the findings that gates deny, for each cell that they cover.
fn denied(results: &Results) -> HashMap<&str, Vec<Kind>> {
    let mut denied: HashMap<&str, Vec<Kind>> = HashMap::new();
    for result in results.gates.iter().filter(|result| result.demand == Demand::Findings) {
        let gate = usize::try_from(result.gate).ok().and_then(|index| results.plan.study.gates.get(index));
        denied.entry(&result.cell).or_default().extend(gate.iter().flat_map(|gate| &gate.deny));
    }
    denied
}

fn at(worst: &Worst<'_>, arch: Arch, kernel: &str, name: &str) -> MatrixCell {
    let found = worst.get(&(arch, kernel)).and_then(|of_kernel| of_kernel.get(name));
    found.cloned().unwrap_or(MatrixCell { class: "none", text: "not in the plan".to_owned() })
}

fn rank(class: &str) -> u8 {
    match class {
        "bad" => 4,
        "open" => 3,
        "neutral" => 2,
        "none" => 0,
        _ => 1,
    }
}

fn shown(cell: &CellResult, denied: &[Kind]) -> MatrixCell {
    let plain = |class, text: &str| MatrixCell { class, text: text.to_owned() };
    match &cell.attach {
        _ if cell.runs.failed > 0 => plain("bad", "failed"),
        // An expected refusal is neither good nor bad: no measurement was expected.
        Attach::Refused { expected: true, .. } => plain("neutral", "refused, as expected"),
        Attach::Refused { .. } => plain("bad", "refused"),
        Attach::Unsteady { .. } => plain("bad", "unsteady"),
        Attach::Attached { in_spite_of: Some(_), .. } => plain("bad", "attached, unexpectedly"),
        Attach::Unknown { .. } => plain("open", "not run"),
        Attach::Baseline => plain("none", "baseline"),
        Attach::Attached { .. } if cell.tool.is_some() => of_tool(cell, denied),
        Attach::Attached { .. } => {
            let errors = || cell.accuracy.iter().filter_map(|accuracy| accuracy.byte_error.value());
            match () {
                () if errors().any(|errors| errors.min != 0 || errors.max != 0) => plain("open", "not exact"),
                () if errors().next().is_none() => plain("open", "no figures"),
                () => plain("good", "exact"),
            }
        }
    }
}

/// Shows a tool that runs: a denied finding is as bad as a failure, another finding is a warning.
fn of_tool(cell: &CellResult, denied: &[Kind]) -> MatrixCell {
    let (denied, allowed): (Vec<Kind>, Vec<Kind>) =
        cases::found(cell).map(|finding| finding.kind).partition(|kind| denied.contains(kind));
    let names = |kinds: &[Kind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    let lines = [("denied", &denied), ("found", &allowed)].into_iter().filter(|(_, kinds)| !kinds.is_empty());
    let text = lines.map(|(what, kinds)| format!("{what}: {}", names(kinds))).collect::<Vec<_>>().join("\n");
    match (denied.is_empty(), allowed.is_empty()) {
        (false, _) => MatrixCell { class: "bad", text },
        (true, false) => MatrixCell { class: "open", text },
        (true, true) => MatrixCell { class: "good", text: "runs".to_owned() },
    }
}
