// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix "works, breaks, differs", before it is text or Markdown.

mod feature_layout;

use std::collections::BTreeSet;

use bpfassay_protocol::kernel_feature::Support;
use bpfassay_study::{ExpectedFeature, Target};

pub(super) use self::feature_layout::text;
use super::{
    study,
    table::{Remarks, TextTable},
};
use bpfassay_results::{
    ConfigurationCell, FeatureCell, FeatureRow, FeatureVerdict, Figure, KernelFeatures, ProgramFacts, Results,
};

/// The longest value of a feature that the matrix shows, in characters.
const MAX_VALUE: usize = 5;
/// The longest message of a kernel in a remark.
const MAX_REASON: usize = 300;
/// The title of the block of features.
const FEATURES: &str = "features that differ between targets";

impl FeatureMatrixRow {
    /// Returns the lines below the label, for formats without numbered remarks.
    pub(super) fn below(&self) -> impl Iterator<Item = &String> {
        self.members.iter().chain(&self.remarks)
    }
}

/// The content of the matrix.
#[derive(Debug, Default)]
pub(super) struct FeatureMatrix {
    pub(super) title: String,
    pub(super) targets: Vec<Target>,
    /// Warnings to read with the matrix, if no other table has them.
    pub(super) warnings: Vec<String>,
    /// Outcomes against expectation, in full.
    pub(super) surprises: Vec<String>,
    pub(super) blocks: Vec<MatrixBlock>,
    /// Features with the same outcome on all targets.
    pub(super) folded: Vec<(String, Vec<String>)>,
    pub(super) legend: Vec<&'static str>,
}

/// Rows with a heading.
#[derive(Debug, Default)]
pub(super) struct MatrixBlock {
    pub(super) title: String,
    pub(super) rows: Vec<FeatureMatrixRow>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FeatureMatrixRow {
    pub(super) label: String,
    /// The features for which the label stands, if there are several.
    pub(super) members: Option<String>,
    /// One text per target.
    pub(super) cells: Vec<String>,
    pub(super) remarks: Vec<String>,
}

/// Creates the page, if the results have a matrix.
pub(super) fn page(results: &Results) -> Option<FeatureMatrix> {
    let matrix = results.kernel_features.as_ref()?;
    let surprises = surprises(matrix);
    let tried = matrix.features.len();
    let mut page = FeatureMatrix {
        title: format!(
            "study {}: what works, breaks and differs: {} probe configurations and {tried} features on {} targets, {}",
            results.plan.title(),
            matrix.configurations.len(),
            matrix.targets.len(),
            match surprises.len() {
                0 => "all as expected".to_owned(),
                1 => "1 outcome AGAINST EXPECTATION".to_owned(),
                many => format!("{many} outcomes AGAINST EXPECTATION"),
            }
        ),
        targets: matrix.targets.clone(),
        // Show the warnings if no other table does. Losses of single runs are in the verdicts and
        // in the table of pitfalls.
        warnings: if stands_alone(results) { study::warnings(results) } else { Vec::new() },
        surprises,
        legend: vec![
            "ok: works; for a probe configuration, that every one of a handful of reads and writes was counted to the byte.",
            "-: refused, as expected. NO!: refused against expectation. OK!: works against expectation. BAD: counts wrongly. \
             ?: not tried. ok? and -?: nothing was expected.",
        ],
        ..FeatureMatrix::default()
    };
    page.blocks.push(configurations(matrix));
    let (rows, folded) = features(matrix);
    page.blocks.push(MatrixBlock { title: FEATURES.to_owned(), rows });
    page.folded = folded;
    page.blocks.extend(facts(matrix));
    page.blocks.retain(|block| !block.rows.is_empty());
    Some(page)
}

/// Whether no earlier table has the warnings of the study.
fn stands_alone(results: &Results) -> bool {
    let has_paths = results.plan.study.workloads.iter().any(|workload| workload.bytes_per_path().is_some());
    !study::has_figures(results) && !has_paths
}

const fn symbol(verdict: FeatureVerdict) -> &'static str {
    match verdict {
        FeatureVerdict::Works => "ok",
        FeatureVerdict::Refused => "-",
        FeatureVerdict::UnexpectedSuccess => "OK!",
        FeatureVerdict::UnexpectedRefusal => "NO!",
        FeatureVerdict::Miscounts => "BAD",
        FeatureVerdict::NotEvaluatedSuccess => "ok?",
        FeatureVerdict::NotEvaluatedRefusal => "-?",
        FeatureVerdict::NotTried => "?",
    }
}

/// Lists each outcome against expectation, one line each.
fn surprises(matrix: &KernelFeatures) -> Vec<String> {
    let mut lines = Vec::new();
    for row in &matrix.configurations {
        for (cell, target) in row.cells.iter().zip(&matrix.targets).filter(|(cell, _)| cell.verdict.is_surprise()) {
            let what = match cell.verdict {
                FeatureVerdict::Miscounts => "counts wrongly",
                FeatureVerdict::UnexpectedSuccess => "works",
                _ => "refused",
            };
            lines.push(format!(
                "{} on {target}: {what}: {}",
                row.probe,
                cell.reason.as_deref().unwrap_or("no reason reported")
            ));
        }
    }
    for row in &matrix.features {
        for (cell, target) in row.cells.iter().zip(&matrix.targets).filter(|(cell, _)| cell.verdict.is_surprise()) {
            let expected = match &cell.expected {
                ExpectedFeature::Works { reason, source } => format!("expected to work: {reason} ({source})"),
                ExpectedFeature::Refused { reason, source } => format!("expected to be refused: {reason} ({source})"),
                ExpectedFeature::Nothing { reason } => reason.clone(),
            };
            let found = support_text(&cell.support);
            lines.push(format!("{} {} on {target}: {found}; {expected}", row.kind, row.name));
        }
    }
    lines
}

/// Formats the outcome of a trial, in one line.
fn support_text(support: &Support) -> String {
    match support {
        Support::Works { value: None } => "works".to_owned(),
        Support::Works { value: Some(value) } => format!("works ({value})"),
        Support::Refused { errno, message } => {
            let name = errno.map(|number| format!("{} ", errno_name(number))).unwrap_or_default();
            format!("refused: {name}{}", shorten(message))
        }
        Support::NotTried { reason } => format!("not tried: {}", shorten(reason)),
    }
}

/// Returns the name of an error number, if eBPF uses it (include/uapi/asm-generic/errno*.h; 524 is
/// internal to the kernel, include/linux/errno.h).
pub(super) fn errno_name(number: i32) -> String {
    let name = match number {
        1 => "EPERM",
        2 => "ENOENT",
        3 => "ESRCH",
        7 => "E2BIG",
        9 => "EBADF",
        12 => "ENOMEM",
        13 => "EACCES",
        14 => "EFAULT",
        16 => "EBUSY",
        17 => "EEXIST",
        19 => "ENODEV",
        22 => "EINVAL",
        28 => "ENOSPC",
        38 => "ENOSYS",
        95 => "EOPNOTSUPP",
        524 => "ENOTSUPP",
        other => return format!("errno {other}"),
    };
    name.to_owned()
}

fn shorten(text: &str) -> String {
    match text.len() > MAX_REASON {
        true => format!("{}…", &text[..text.floor_char_boundary(MAX_REASON)]),
        false => text.to_owned(),
    }
}

fn configurations(matrix: &KernelFeatures) -> MatrixBlock {
    let rows = matrix.configurations.iter().map(|row| FeatureMatrixRow {
        label: row.probe.to_string(),
        cells: row.cells.iter().map(|cell| symbol(cell.verdict).to_owned()).collect(),
        remarks: remarks(matrix, &row.cells, |cell: &ConfigurationCell| {
            (!cell.verdict.is_surprise()).then(|| cell.reason.as_deref().map(shorten))?
        }),
        ..FeatureMatrixRow::default()
    });
    MatrixBlock { title: "probe configurations".to_owned(), rows: rows.collect() }
}

/// Returns the remarks on cells, each once, with the targets that they concern.
fn remarks<C>(matrix: &KernelFeatures, cells: &[C], of: impl Fn(&C) -> Option<String>) -> Vec<String> {
    let mut remarks: Vec<(String, Vec<&Target>)> = Vec::new();
    for (cell, target) in cells.iter().zip(&matrix.targets) {
        let Some(remark) = of(cell) else { continue };
        match remarks.iter_mut().find(|(known, _)| *known == remark) {
            Some((_, targets)) => targets.push(target),
            None => remarks.push((remark, vec![target])),
        }
    }
    remarks.into_iter().map(|(remark, targets)| format!("{}: {remark}", list(&targets))).collect()
}

/// Formats targets: `x86_64 5.10 6.1, aarch64 6.1`.
fn list(targets: &[&Target]) -> String {
    let mut text = String::new();
    let mut arch = None;
    for target in targets {
        if arch == Some(target.arch) {
            text.push_str(&format!(" {}", target.kernel));
        } else {
            let comma = if text.is_empty() { "" } else { ", " };
            text.push_str(&format!("{comma}{target}"));
        }
        arch = Some(target.arch);
    }
    text
}

/// Formats a cell of a feature.
fn shown(cell: &FeatureCell) -> String {
    match &cell.support {
        Support::Works { value: Some(value) } if value.chars().count() <= MAX_VALUE && !cell.verdict.is_surprise() => {
            value.clone()
        }
        _ => symbol(cell.verdict).to_owned(),
    }
}

/// Returns rows of the features that differ, with features that are alike in one row, and the
/// features that are the same on all targets.
fn features(matrix: &KernelFeatures) -> (Vec<FeatureMatrixRow>, Vec<(String, Vec<String>)>) {
    let mut groups: Vec<(Vec<String>, Vec<&FeatureRow>)> = Vec::new();
    let (mut works, mut refused) = (Vec::new(), Vec::new());
    for row in &matrix.features {
        let cells: Vec<String> = row.cells.iter().map(shown).collect();
        let same = cells.iter().collect::<BTreeSet<_>>().len() == 1;
        let name = format!("{} {}", row.kind, row.name);
        match row.cells.first().map(|cell| cell.verdict) {
            Some(FeatureVerdict::Works) if same => {
                let value = cells.first().filter(|value| *value != symbol(FeatureVerdict::Works));
                works.push(value.map_or_else(|| name.clone(), |value| format!("{name} = {value}")));
            }
            Some(FeatureVerdict::Refused) if same => refused.push(name),
            _ => match groups.iter_mut().find(|(known, rows)| *known == cells && rows[0].kind == row.kind) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((cells, vec![row])),
            },
        }
    }
    let rows = groups.into_iter().map(|(cells, rows)| group(matrix, cells, &rows)).collect();
    let folded = vec![
        (format!("work everywhere ({})", works.len()), works),
        (format!("refused everywhere, as expected ({})", refused.len()), refused),
    ];
    (rows, folded.into_iter().filter(|(_, names)| !names.is_empty()).collect())
}

/// Creates one row for features with the same outcome.
fn group(matrix: &KernelFeatures, cells: Vec<String>, rows: &[&FeatureRow]) -> FeatureMatrixRow {
    let first = rows[0];
    let (label, members) = match rows {
        [one] => (format!("{} {}", one.kind, one.name), None),
        many => {
            let names = many.iter().map(|row| row.name.as_str()).collect::<Vec<_>>().join(", ");
            (format!("{}: {} alike", first.kind, many.len()), Some(names))
        }
    };
    // The kernel's message for the first feature represents all of them.
    let remark = |cell: &FeatureCell| match (cell.verdict, &cell.expected) {
        (FeatureVerdict::Refused, ExpectedFeature::Refused { reason, .. }) => {
            Some(format!("{}; {reason}", support_text(&cell.support)))
        }
        (FeatureVerdict::NotTried | FeatureVerdict::NotEvaluatedRefusal, _) => Some(support_text(&cell.support)),
        _ => None,
    };
    FeatureMatrixRow { label, members, cells, remarks: remarks(matrix, &first.cells, remark) }
}

/// Creates the blocks of facts about the programs in the kernels.
fn facts(matrix: &KernelFeatures) -> Vec<MatrixBlock> {
    type FactOf = fn(&ProgramFacts) -> Option<String>;
    let milliseconds = |ns: u64| format!("{:.0}", ns as f64 / 1e6);
    let kinds: [(&str, FactOf); 4] = [
        ("machine code of the programs, bytes", |facts| Some(facts.jited_bytes.to_string())),
        ("instructions of the programs", |facts| Some(facts.instructions.to_string())),
        ("instructions that the verifier looked at (reported by 5.16 and later)", |facts| {
            facts.verified_instructions.map(|count| count.to_string())
        }),
        ("time to load and attach, ms of wall-clock time, functional only under emulation", |_| None),
    ];
    kinds
        .into_iter()
        .enumerate()
        .map(|(index, (title, of))| {
            let cell = |cell: &ConfigurationCell| match &cell.programs {
                Figure::NotMeasured(_) => String::new(),
                Figure::Value(facts) if index == 3 => facts
                    .load_ns
                    .map_or_else(|| "?".to_owned(), |load_ns| milliseconds(load_ns.saturating_add(facts.attach_ns))),
                Figure::Value(facts) => of(facts).unwrap_or_else(|| "?".to_owned()),
            };
            let rows = matrix
                .configurations
                .iter()
                .map(|row| FeatureMatrixRow {
                    label: row.probe.to_string(),
                    cells: row.cells.iter().map(cell).collect(),
                    ..FeatureMatrixRow::default()
                })
                .filter(|row| row.cells.iter().any(|cell| !cell.is_empty()))
                .collect();
            MatrixBlock { title: title.to_owned(), rows }
        })
        .collect()
}

/// Renders the page as tables: the first one has the title and the warnings.
pub(super) fn tables(page: &FeatureMatrix) -> Vec<TextTable> {
    let head = |block: &MatrixBlock| -> Vec<String> {
        [block.title.clone()].into_iter().chain(page.targets.iter().map(ToString::to_string)).collect()
    };
    // Many rows have the same remarks, which are longer than the rows.
    let row = |row: &FeatureMatrixRow, remarks: &mut Remarks| {
        let marks = row.remarks.iter().map(|remark| remarks.mark(remark.clone()));
        let label = [row.label.clone()].into_iter().chain(marks).collect::<Vec<_>>().join(" ");
        let label = [label].into_iter().chain(row.members.clone()).collect::<Vec<_>>().join("\n");
        [label].into_iter().chain(row.cells.iter().cloned()).collect()
    };
    let table = |block: &MatrixBlock| {
        let mut remarks = Remarks::default();
        let rows = block.rows.iter().map(|each| row(each, &mut remarks)).collect();
        TextTable { rows, remarks: remarks.0, ..TextTable::new(&block.title, head(block)) }
    };
    let mut tables: Vec<TextTable> = page.blocks.iter().map(table).collect();
    if let Some(first) = tables.first_mut() {
        first.title.insert(0, page.title.clone());
        first.warnings = page.warnings.iter().chain(&page.surprises).cloned().collect();
    }
    if let Some(first) = tables.first_mut() {
        first.legend.extend(page.legend.iter().map(|line| (*line).to_owned()));
    }
    // That table exists only if there are differences.
    let index = tables
        .iter()
        .position(|table| table.title.last().is_some_and(|title| title == FEATURES))
        .or(tables.len().checked_sub(1));
    if let Some(table) = index.and_then(|index| tables.get_mut(index)) {
        table.legend.extend(page.folded.iter().map(|(title, names)| format!("{title}: {}", names.join(", "))));
    }
    tables
}
