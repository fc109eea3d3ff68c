// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of other tools under test: what each reported and what really happened, and the
//! findings.

use bpfassay_tool::finding::{Certainty, Compared, FindingStatus, Kind, NotCompared, Values};

use crate::render::{
    study,
    table::{CellNames, Remarks, TextTable},
};
use bpfassay_results::{Attach, CellResult, Results, ToolResult};

/// The largest number of rows of one tool on one target: a figure by process can have thousands.
const MAX_ROWS: usize = 24;

fn tools(results: &Results) -> impl Iterator<Item = (&CellResult, &str, &ToolResult)> {
    results.cells.iter().filter_map(|cell| Some((cell, cell.tool.as_deref()?, cell.tool_result.as_ref()?)))
}

/// Creates the table of what each tool reported and what really happened, if tools from tool files
/// were under test.
pub(super) fn figures(results: &Results) -> Option<TextTable> {
    let mut rows = Vec::new();
    let cell_names = CellNames::of(results);
    for (cell, tool, result) in tools(results) {
        let row = |one: &Compared| {
            vec![
                cell_names.place(cell),
                tool.to_owned(),
                one.figure.clone(),
                meaning(one),
                bpfassay_tool::readings::shown(one.reported),
                one.really.to_string(),
                difference(one),
            ]
        };
        // If not all figures are shown, those that differ come first.
        let mut figures: Vec<&Compared> = result.figures.iter().collect();
        if figures.len() > MAX_ROWS {
            figures.sort_by_key(|one| one.is_exact());
        }
        rows.extend(figures.iter().take(MAX_ROWS).map(|one| row(one)));
        if let Some(more) = figures.len().checked_sub(MAX_ROWS).filter(|more| *more > 0) {
            let exact = figures.iter().skip(MAX_ROWS).filter(|one| one.is_exact()).count();
            let text = format!("and {more} more, of which {exact} exact");
            rows.push(vec![
                cell_names.place(cell),
                tool.to_owned(),
                text,
                String::new(),
                String::new(),
                String::new(),
                String::new(),
            ]);
        }
    }
    let columns = ["target", "tool", "figure", "meaning", "reported", "really", "difference"];
    (!rows.is_empty()).then(|| TextTable {
        rows,
        legend: vec![
            "really: what the bundled tracer counted in the same run, between the tool's last report before the workload and \
             its last one after it; of send and receive, what the workload itself counted. moved: what calls moved of the bytes requested, in a run of \
             its own."
                .to_owned(),
        ],
        ..TextTable::new("what tools reported, and what really happened", columns)
    })
}

fn meaning(one: &Compared) -> String {
    let of = match &one.subject {
        None => String::new(),
        Some(subject) => format!(" of {} {subject}", one.whose.name()),
    };
    format!("{} of {}{of}", one.unit.name(), one.counted())
}

fn difference(one: &Compared) -> String {
    let reported = bpfassay_tool::readings::negative(one.reported).map_or_else(|| i128::from(one.reported), i128::from);
    let difference = match (reported - i128::from(one.really), one.is_exact()) {
        (0, _) => "exact".to_owned(),
        (_, true) => "exact but for rounding".to_owned(),
        (difference, false) => format!("{difference:+}"),
    };
    let moved = one.moved.map(|moved| format!("; moved: {moved}")).unwrap_or_default();
    let differs = one.differs.as_ref().map(|differs| format!("; another definition: {differs}")).unwrap_or_default();
    let alias = one.reported_as.as_ref().map(|name| format!("; reported as {name}")).unwrap_or_default();
    let values = one.values.as_ref().map(|values| {
        let Values { half_up_to, most_up_to, all_up_to } = values;
        format!("; values, not evaluated: half up to {half_up_to}, 99 % up to {most_up_to}, all up to {all_up_to}")
    });
    difference + &moved + &differs + &alias + &values.unwrap_or_default()
}

/// Creates the table of each tool's findings.
pub(super) fn findings(results: &Results) -> Option<TextTable> {
    let mut remarks = Remarks::default();
    let mut rows = Vec::new();
    let cell_names = CellNames::of(results);
    for (cell, tool, result) in tools(results) {
        let mut row = |finding: &str, certainty: &str, seen: String| {
            rows.push(vec![cell_names.place(cell), tool.to_owned(), finding.to_owned(), certainty.to_owned(), seen]);
        };
        let mut clear = 0;
        let mut open = Vec::new();
        for finding in &result.findings {
            match &finding.status {
                FindingStatus::Found { evidence, certainty } => {
                    let seen: Vec<String> = evidence.iter().map(|line| remarks.mark(line.clone())).collect();
                    row(finding.kind.name(), certainty.map_or("", Certainty::name), seen.join(" "));
                }
                FindingStatus::Clear => clear += 1,
                FindingStatus::NotEvaluated { reason } => open.push((finding.kind, reason)),
            }
        }
        if result.findings.is_empty() {
            row("not known", "", "no run of it came to its end".to_owned());
            continue;
        }
        row("clear", "", format!("{clear} of {} kinds", Kind::ALL.len()));
        if !result.not_compared.is_empty() {
            let named = |one: &NotCompared| format!("{} {}", one.figure, remarks.mark(one.reason.clone()));
            row("not compared", "", result.not_compared.iter().map(named).collect::<Vec<_>>().join(", "));
        }
        let is_check = study::loads_only(results, &cell.case);
        if is_check && matches!(cell.attach, Attach::Refused { .. }) {
            row("not evaluated", "", "the other kinds: it was refused".to_owned());
            continue;
        }
        let open = open.into_iter().filter(|(kind, _)| !(is_check && kind.judges_reports()));
        let mut names: Vec<String> =
            open.map(|(kind, reason)| format!("{kind} {}", remarks.mark(reason.clone()))).collect();
        if is_check {
            names.push("what it reports: `bpfassay run io-paths --tool` compares it".to_owned());
        }
        if !names.is_empty() {
            row("not evaluated", "", names.join(", "));
        }
    }
    (!rows.is_empty()).then(|| TextTable {
        rows,
        remarks: remarks.0,
        legend: vec![
            "clear: looked for and not there. docs/reference/findings.md#FINDING explains each finding: how to check it by hand, and how tools usually \
             repair it."
                .to_owned(),
            "certainty: proven, seen itself or an amount that is to the unit what the finding names and nothing else; bounded, an amount outside \
             the bounds of the truth, or a value above its limit; reported, the tool, its loader or the kernel states it; fitting, an amount that \
             fits within what the truth is uncertain by."
                .to_owned(),
        ],
        link: |cell| cell.parse::<Kind>().ok().map(|kind| format!("#{}", anchor(kind))),
        ..TextTable::new("what was found of tools", ["target", "tool", "finding", "certainty", "what was seen"])
    })
}

/// Returns the name by which a page links to the explanation of `kind`.
pub(in crate::render) fn anchor(kind: Kind) -> String {
    format!("finding-{}", kind.name())
}

/// Returns the kinds that were found in any tool.
pub(in crate::render) fn found(results: &Results) -> Vec<Kind> {
    let findings = || tools(results).flat_map(|(_, _, result)| &result.findings);
    let is_found = |kind: &Kind| findings().any(|finding| finding.kind == *kind && finding.status.is_found());
    Kind::ALL.iter().copied().filter(is_found).collect()
}
