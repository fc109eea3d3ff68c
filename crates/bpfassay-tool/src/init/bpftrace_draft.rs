// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drafts for bpftrace scripts. Sums in maps become proposed figures.

use bpfassay_protocol::Operation;

use super::{
    draft::{DraftFigure, ToolDraft, listed, quoted},
    guess,
};
use crate::{
    bpftrace_script::{Clause, MapChange, What, changes, clauses, without_comments},
    file::{CountedUnit, Whose},
};

/// Labels with their required values.
type RequiredLabels = Vec<(String, String)>;

/// Drafts a tool file for the script `named`.
pub(super) fn draft(name: &str, named: &str, text: &str) -> ToolDraft {
    let code = without_comments(text);
    let clauses = clauses(&code);
    let mut figures: Vec<DraftFigure> = Vec::new();
    let mut others: Vec<String> = Vec::new();
    for clause in &clauses {
        for change in changes(clause.body) {
            if change.what == What::Other {
                others.push(change.map);
                continue;
            }
            for figure in figures_of(clause, &change) {
                add(&mut figures, figure);
            }
        }
    }
    let clears = ["clear(", "zero(", "delete("].iter().any(|call| code.contains(call));
    let prints = clauses.iter().any(|clause| {
        clause.probes.iter().any(|probe| probe.starts_with("interval:")) && clause.body.contains("print(")
    });
    let mut report = vec!["#bpftrace-json = {}".to_owned()];
    if !prints {
        report.push("# It prints its maps at its end only. Decide: add `interval:s:1 { print(@…); }` for each map that is reported.".to_owned());
    }
    if !others.is_empty() {
        others.sort();
        others.dedup();
        report.push(format!("# Not added up, so no figures: {}", listed(others.iter().map(String::as_str))));
    }
    report.push(match clears {
        true => "# It empties maps. Decide: \"cumulative\" if not those that are reported.\n#counting = \"interval\""
            .to_owned(),
        false => "#counting = \"cumulative\"".to_owned(),
    });
    ToolDraft {
        name: name.to_owned(),
        seen: format!("the bpftrace script {named}"),
        source: vec![format!(
            "script = {{ path = {}, interpreter = \"/usr/bin/bpftrace\", debian = {{ suite = \"trixie\", package = \"bpftrace\" }} }}",
            quoted(named)
        )],
        start: vec!["arguments = [\"-f\", \"json\", \"{script}\"]".to_owned()],
        report,
        figures,
    }
}

/// Adds `figure`, or its operations to an otherwise equal figure.
fn add(figures: &mut Vec<DraftFigure>, figure: DraftFigure) {
    let is_same =
        |known: &&mut DraftFigure| DraftFigure { operations: figure.operations.clone(), ..(**known).clone() } == figure;
    match figures.iter_mut().find(is_same) {
        Some(known) => {
            let new: Vec<Operation> =
                figure.operations.iter().filter(|of| !known.operations.contains(of)).copied().collect();
            known.operations.extend(new);
        }
        None => figures.push(figure),
    }
}

/// Figures that a map change can be.
fn figures_of(clause: &Clause<'_>, change: &MapChange) -> Vec<DraftFigure> {
    let is_exit = |probe: &&str| {
        ["kretprobe", "kretfunc", "fexit", "uretprobe"].iter().any(|kind| probe.starts_with(kind))
            || probe.contains(":sys_exit_")
    };
    let amount =
        if clause.probes.iter().all(is_exit) { CountedUnit::BytesReturned } else { CountedUnit::BytesRequested };
    let parts: &[(&str, CountedUnit)] = match change.what {
        What::Count => &[("", CountedUnit::Calls)],
        What::Sum => &[("", amount)],
        What::Histogram => &[(".count", CountedUnit::Calls)],
        What::Statistics => &[(".count", CountedUnit::Calls), (".total", amount)],
        What::Other => &[],
    };
    let MapKeys { labelled, by_probe, whose, label } = MapKeys::of(change);
    let named = |text: &str| guess::operation(&guess::words(text));
    let function = |probe: &str| probe.rsplit(':').next().unwrap_or(probe).to_owned();
    // One case per probe, or one for all probes together.
    let cases: Vec<(RequiredLabels, Vec<Operation>)> = match by_probe {
        Some((key, is_function)) => clause
            .probes
            .iter()
            .map(|probe| {
                let value = if is_function { function(probe) } else { (*probe).to_owned() };
                let labels = labelled.iter().cloned().chain([(key.clone(), value)]).collect();
                (labels, named(&function(probe)).into_iter().collect())
            })
            .collect(),
        None => {
            let of_key = labelled.iter().find_map(|(_, text)| named(text));
            let mut of_probes: Vec<Operation> =
                clause.probes.iter().filter_map(|probe| named(&function(probe))).collect();
            of_probes.sort();
            of_probes.dedup();
            vec![(labelled, of_key.map_or(of_probes, |operation| vec![operation]))]
        }
    };
    let pairs = cases.iter().flat_map(|case| parts.iter().map(move |part| (case, part)));
    let figure =
        |((labelled, operations), (part, unit)): (&(RequiredLabels, Vec<Operation>), &(&str, _))| DraftFigure {
            value: format!("{}{part}", change.map),
            labelled: labelled.clone(),
            operations: operations.clone(),
            unit: Some(*unit),
            scale: 1,
            whose,
            label: label.clone(),
        };
    pairs.map(figure).collect()
}

/// The meaning of the keys of a map.
struct MapKeys {
    /// Keys that are texts.
    labelled: RequiredLabels,
    /// The key that is the name of the probe, and whether it is the name of its function.
    by_probe: Option<(String, bool)>,
    whose: Whose,
    /// The key that names `whose`.
    label: Option<String>,
}

impl MapKeys {
    fn of(change: &MapChange) -> Self {
        let key = |index: usize| format!("key{}", index + 1);
        let mut keys = Self { labelled: RequiredLabels::new(), by_probe: None, whose: Whose::System, label: None };
        for (index, of) in change.keys.iter().enumerate() {
            let literal = of.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
            match (literal, of.as_str()) {
                (Some(text), _) => keys.labelled.push((key(index), text.to_owned())),
                (None, "probe" | "func") => keys.by_probe = Some((key(index), of == "func")),
                (None, of) if keys.label.is_none() => {
                    if let (found @ (Whose::Cgroup | Whose::Process), _) = guess::subject([of]) {
                        (keys.whose, keys.label) = (found, Some(key(index)));
                    }
                }
                _ => {}
            }
        }
        keys
    }
}
