// SPDX-License-Identifier: MIT OR Apache-2.0
//! The top of every report: a conclusion in words, and when, where and with what it was measured.

use std::collections::BTreeMap;

use bpfassay_protocol::job::{DIRECTORY, Program, SCRIPT, SUMMARY, Workload};

use super::{
    plain,
    result_summary::{CellState, not_compared, standing, state_of},
    study,
    table::target_list,
    tool_bill,
};
use crate::labels;
use bpfassay_results::{Attach, CellResult, Provenance, Results};
use bpfassay_study::{Clock, Target};

/// The largest number of lines about what is under test; a study with more configurations has
/// tables.
const MOST_CONFIGURATIONS: usize = 12;
/// The largest number of listed workloads, and of listed kernels.
const MOST_LISTED: usize = 8;
/// The longest command of a workload, in characters.
const LONGEST_COMMAND: usize = 160;

/// The lines above the tables.
pub(super) struct Head {
    /// The conclusions: the first line is about all results, then one line follows for each thing
    /// under test.
    pub(super) conclusion: Vec<String>,
    /// Facts about the measurement, each with a name.
    pub(super) facts: Vec<(&'static str, String)>,
}

impl Head {
    /// Formats `facts` as lines: `workload: …`.
    pub(super) fn facts(&self) -> impl Iterator<Item = String> {
        self.facts.iter().map(|(name, fact)| format!("{name}: {fact}"))
    }
}

pub(super) fn head(results: &Results) -> Head {
    let mut conclusion = vec![format!("{}: {}", results.plan.title(), standing(results).words)];
    // Other workloads have no figures to summarise.
    if study::has_figures(results) {
        let mut tested: Vec<(String, Vec<&CellResult>)> = Vec::new();
        for cell in results.cells.iter().filter(|cell| !cell.is_baseline()) {
            let name = cell.under_test();
            match tested.iter_mut().find(|(known, _)| *known == name) {
                Some((_, cells)) => cells.push(cell),
                None => tested.push((name, vec![cell])),
            }
        }
        let more = tested.len().saturating_sub(MOST_CONFIGURATIONS);
        tested.truncate(MOST_CONFIGURATIONS);
        conclusion.extend(tested.iter().map(|(name, cells)| format!("{name}: {}", of_configuration(results, cells))));
        if more > 0 {
            conclusion.push(format!("{more} more are in the tables"));
        }
    }
    Head { conclusion, facts: facts(results) }
}

/// Describes a configuration: `attaches on 7 of 8 targets, refused as expected on 1; exact; write
/// +0.1 to +0.2%, read +0.4 to +2.9%`.
fn of_configuration(results: &Results, cells: &[&CellResult]) -> String {
    let mut parts = vec![attaches(cells)];
    parts.extend(accuracy(cells));
    parts.extend(not_compared(cells.iter().copied()));
    parts.extend(overheads(results, cells));
    parts.extend(tool_bill::in_words(results, cells));
    parts.join("; ")
}

/// The outcome of attaching on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AttachState {
    Everywhere,
    /// The tool attaches with some workloads and is refused with others.
    InPart,
    RefusedAsExpected,
    Refused,
    /// No run of any workload got far enough to tell.
    NotKnown,
}

impl AttachState {
    const fn words(self) -> &'static str {
        match self {
            Self::Everywhere => "attaches on",
            Self::InPart => "attaches with some workloads only on",
            Self::RefusedAsExpected => "refused as expected on",
            Self::Refused => "REFUSED on",
            Self::NotKnown => "not known on",
        }
    }

    /// Determines the state from the `cells` of one target. If a cell failed, another one of the
    /// same target can still show the state.
    fn of<'a>(cells: impl Iterator<Item = &'a CellResult>) -> Self {
        let (mut attached, mut refused, mut as_expected, mut unsteady) = (false, false, false, false);
        for cell in cells {
            match &cell.attach {
                Attach::Attached { .. } => {
                    attached |= cell.not_seen_to_load().or(cell.left_to_a_loader()).is_none();
                }
                Attach::Refused { expected: true, .. } => as_expected = true,
                Attach::Refused { .. } => refused = true,
                Attach::Unsteady { .. } => unsteady = true,
                Attach::Baseline | Attach::Unknown { .. } => {}
            }
        }
        match (attached, refused || unsteady, as_expected) {
            _ if unsteady => Self::Refused,
            (true, false, false) => Self::Everywhere,
            (true, ..) => Self::InPart,
            (false, true, _) => Self::Refused,
            (false, false, true) => Self::RefusedAsExpected,
            (false, false, false) => Self::NotKnown,
        }
    }
}

/// Formats `attaches on 7 of 8, refused as expected on 1`. The text claims that something attaches
/// nowhere only if the state is known on every target.
fn attaches(cells: &[&CellResult]) -> String {
    let mut targets: Vec<&Target> = cells.iter().map(|cell| &cell.target).collect();
    targets.dedup();
    let mut counts = BTreeMap::<AttachState, usize>::new();
    for target in &targets {
        let of_target = cells.iter().copied().filter(|cell| cell.target == **target);
        *counts.entry(AttachState::of(of_target)).or_default() += 1;
    }
    let is_there = |state| counts.contains_key(&state);
    let all = targets.len();
    let nowhere =
        [AttachState::Everywhere, AttachState::InPart, AttachState::NotKnown].into_iter().all(|s| !is_there(s));
    let counted = counts.iter().enumerate().map(|(index, (state, count))| match index {
        0 if !nowhere => format!("{} {count} of {all}", state.words()),
        _ => format!("{} {count}", state.words()),
    });
    nowhere.then(|| "attaches nowhere".to_owned()).into_iter().chain(counted).collect::<Vec<_>>().join(", ")
}

/// Formats the accuracy: `exact`, or `exact in 5 of 7 cells, not exact in 2, failed in 1`; `None`
/// if nothing was measured and nothing failed.
fn accuracy(cells: &[&CellResult]) -> Option<String> {
    let mut counts = BTreeMap::<CellState, usize>::new();
    for cell in cells.iter().filter(|cell| cell.runs.measured > 0 || !cell.failures.is_empty()) {
        *counts.entry(state_of(cell)).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    match counts.len() {
        0 => None,
        1 => counts.keys().next().map(|state| state.words().to_owned()),
        _ => {
            let words = counts.iter().enumerate().map(|(index, (state, count))| match index {
                0 => format!("{} in {count} of {all} cells", state.words()),
                _ => format!("{} in {count}", state.words()),
            });
            Some(words.collect::<Vec<_>>().join(", "))
        }
    }
}

/// Formats the overheads of each metric, from the smallest to the largest over all cells: `write
/// +0.1 to +0.2%, read +0.4 to +2.9%`.
fn overheads(results: &Results, cells: &[&CellResult]) -> Option<String> {
    let emulated = |target: &Target| results.provenance.iter().any(|of| of.is_emulated(target.arch));
    if results.plan.study.clock == Clock::Wall && cells.iter().any(|cell| emulated(&cell.target)) {
        return Some("no verdict on overhead, because guests were emulated".to_owned());
    }
    let mut metrics: Vec<(String, Range)> = Vec::new();
    for cell in cells {
        for (metric, _) in cell.whole() {
            let Some(overhead) = metric.overhead.value() else { continue };
            let ratio = overhead.estimate.value;
            let found = if overhead.estimate.bounds.interval().is_none() {
                OverheadFinding::WithoutInterval(ratio)
            } else if !metric.is_within_noise() {
                OverheadFinding::Overhead(ratio)
            } else if labels::leaves_open(overhead) {
                OverheadFinding::Open
            } else {
                OverheadFinding::Noise
            };
            let name = metric.name.to_string();
            match metrics.iter_mut().find(|(known, _)| *known == name) {
                Some((_, range)) => range.add(found),
                None => {
                    let mut range = Range::default();
                    range.add(found);
                    metrics.push((name, range));
                }
            }
        }
    }
    let words: Vec<String> = metrics.iter().map(|(name, range)| format!("{name} {range}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// The finding about one overhead.
enum OverheadFinding {
    Overhead(f64),
    /// Nothing shows the uncertainty: there is only one observation, or effectively one.
    WithoutInterval(f64),
    Noise,
    Open,
}

#[derive(Default)]
struct Range {
    ends: Option<(f64, f64)>,
    /// The range of the overheads without an interval. The next field is their number.
    bare: Option<(f64, f64)>,
    without_interval: usize,
    has_noise: bool,
    open: usize,
}

impl Range {
    fn add(&mut self, found: OverheadFinding) {
        match found {
            OverheadFinding::Overhead(ratio) => self.ends = Some(widened(self.ends, ratio)),
            OverheadFinding::WithoutInterval(ratio) => {
                self.bare = Some(widened(self.bare, ratio));
                self.without_interval += 1;
            }
            OverheadFinding::Noise => self.has_noise = true,
            OverheadFinding::Open => self.open += 1,
        }
    }
}

/// Widens `ends` so that they contain `ratio`.
fn widened(ends: Option<(f64, f64)>, ratio: f64) -> (f64, f64) {
    let (low, high) = ends.unwrap_or((ratio, ratio));
    (low.min(ratio), high.max(ratio))
}

/// Formats a range: `+0.1%`, `+0.1 to +0.2%`.
fn percents((low, high): (f64, f64)) -> String {
    let percent = |ratio| labels::percent(ratio, 1);
    match (percent(low), percent(high)) {
        (low, high) if low == high => high,
        (low, high) => format!("{} to {high}", low.trim_end_matches('%')),
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ends, self.bare) {
            (Some(ends), _) => f.write_str(&percents(ends))?,
            (None, _) if self.has_noise => f.write_str(labels::WITHIN_NOISE)?,
            (None, Some(bare)) => return write!(f, "{} without an interval", percents(bare)),
            (None, None) => return f.write_str(labels::NOT_KNOWN),
        }
        if self.ends.is_some() && self.has_noise {
            write!(f, " where not {}", labels::WITHIN_NOISE)?;
        }
        if let Some(bare) = self.bare {
            write!(f, " ({} without an interval in {})", percents(bare), self.without_interval)?;
        }
        match self.open {
            0 => Ok(()),
            open => write!(f, " ({} in {open})", labels::NOT_KNOWN),
        }
    }
}

/// The name of the fact that differs whenever the same study is measured again.
pub(super) const MEASURED: &str = "measured";

/// The name of the fact that lists the workloads.
pub(super) const WORKLOAD: &str = "workload";

/// Lists facts about the measurement, each with a name.
pub(super) fn facts(results: &Results) -> Vec<(&'static str, String)> {
    let mut facts = vec![(MEASURED, measured(results))];
    facts.extend([(WORKLOAD, workloads(results)), ("versions", versions(results))]);
    facts
}

/// Formats when the study was measured, in UTC, and on which machines.
fn measured(results: &Results) -> String {
    let mut hosts: Vec<String> = Vec::new();
    for Provenance { host, .. } in &results.provenance {
        let described = format!(
            "{}, {} CPUs, Linux {} ({})",
            if host.cpu_model.is_empty() { "a CPU of unknown model" } else { &host.cpu_model },
            host.cpus,
            host.kernel_release,
            host.machine
        );
        if host.cpus > 0 && !hosts.contains(&described) {
            hosts.push(described);
        }
    }
    let on =
        if hosts.is_empty() { "on a machine that is not recorded".to_owned() } else { format!("on {}", listed(hosts)) };
    format!("{}, {on}", when(results.started_unix_ms))
}

/// Formats a time: `2026-11-26 03:24 UTC`.
pub(super) fn when(unix_ms: u64) -> String {
    let stamp = i64::try_from(unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    match stamp.filter(|_| unix_ms > 0) {
        Some(stamp) => stamp.strftime("%Y-%m-%d %H:%M UTC").to_string(),
        None => "a time that is not recorded".to_owned(),
    }
}

/// Lists the workloads by their commands, and the file systems on which they ran.
pub(super) fn workloads(results: &Results) -> String {
    let (mut cases, mut file_systems): (Vec<(String, String)>, Vec<String>) = Default::default();
    for cell in results.plan.measured_cells() {
        if !cases.iter().any(|(case, _)| *case == cell.case) {
            cases.push((cell.case.clone(), command(&cell.workload)));
        }
    }
    for cell in &results.cells {
        if !file_systems.contains(&cell.file_system) {
            file_systems.push(cell.file_system.clone());
        }
    }
    let cases = listed(cases.into_iter().map(|(case, command)| format!("{case} ({command})")).collect());
    format!("{cases}, on {}", listed(file_systems))
}

/// Formats the command of a workload without the path to which it writes, which differs between
/// runs.
fn command(workload: &Workload) -> String {
    let program = match &workload.program {
        Program::Bundled if workload.engine.is_some() => "ior",
        Program::Bundled => "bundled workload",
        Program::ExternalIor { .. } => "ior",
        Program::Path { path } => path,
    };
    let is_of_the_run = |argument: &str| argument.contains(DIRECTORY) || argument.contains(SUMMARY);
    let mut ranks = match workload.program {
        Program::ExternalIor { ranks } => Some(ranks.to_string()),
        Program::Bundled | Program::Path { .. } => None,
    };
    let mut arguments: Vec<&str> = Vec::new();
    for argument in &workload.arguments {
        // The embedded engine has this option; a real IOR gets its ranks from the launcher.
        if let (Some(number), Some(_)) = (argument.strip_prefix("--ranks="), workload.engine) {
            ranks = Some(number.to_owned());
        } else if let (SCRIPT, Some(script)) = (argument.as_str(), &workload.script) {
            arguments.push(&script.name);
        } else if !is_of_the_run(argument) && argument != "summaryFormat=JSON" {
            arguments.push(argument);
        } else if arguments.last().is_some_and(|option| option.len() == 2 && option.starts_with('-')) {
            // The argument before this one is its option.
            arguments.pop();
        }
    }
    let mut whole = std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ");
    if let Some(ranks) = ranks {
        whole.push_str(&format!(", {ranks} {}", if ranks == "1" { "rank" } else { "ranks" }));
    }
    if let Some(bystander) = &workload.bystander {
        whole.push_str(&format!("; bystander {}", command(&bystander.workload)));
    }
    plain::excerpt(&whole, LONGEST_COMMAND)
}

/// Lists the versions of bpfassay, QEMU and the kernels' packages.
fn versions(results: &Results) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut add = |part: String| {
        if !part.is_empty() && !parts.contains(&part) {
            parts.push(part);
        }
    };
    let is_measured = |target: &Target| results.cells.iter().any(|cell| cell.target == *target);
    for made in &results.provenance {
        add(format!("bpfassay {}", made.bpfassay.version));
        let mut machines: Vec<(String, Vec<String>)> = Vec::new();
        for (arch, qemu) in
            made.qemu.iter().filter(|(arch, _)| results.cells.iter().any(|cell| cell.target.arch == **arch))
        {
            let how = format!("{} by {}", qemu.program.version, qemu.accelerator);
            match machines.iter_mut().find(|(known, _)| *known == how) {
                Some((_, archs)) => archs.push(arch.to_string()),
                None => machines.push((how, vec![arch.to_string()])),
            }
        }
        if !made.is_without_guests() {
            machines.iter().for_each(|(how, archs)| add(format!("QEMU {how} ({})", archs.join(", "))));
        }
        let kernels: Vec<String> = made
            .targets
            .iter()
            .filter(|of| is_measured(&of.target))
            .map(|of| format!("{} {}", target_list(&[&of.target]), of.kernel.version))
            .collect();
        if !kernels.is_empty() {
            add(format!("kernels {}", listed(kernels)));
        }
    }
    if parts.is_empty() { "not recorded".to_owned() } else { parts.join("; ") }
}

/// Lists the first items, and the number of further ones.
fn listed(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(MOST_LISTED);
    all.truncate(MOST_LISTED);
    if more > 0 {
        all.push(format!("{more} more"));
    }
    all.join(", ")
}
