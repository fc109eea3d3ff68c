// SPDX-License-Identifier: MIT OR Apache-2.0
//! `run --against DIR`: compares the new results with earlier ones, and sets the exit code for `git
//! bisect run`.

use std::{collections::BTreeMap, path::PathBuf};

use bpfassay_protocol::{Arch, ProbeConfiguration, probe::Probe};
use bpfassay_report::{
    compare::{CellComparison, Comparison, Fate, Question, compare},
    render::{Style, comparison_text},
};
use bpfassay_results::{Attach, CellResult, Results, file};
use bpfassay_stats::gate_decision::Change;
use bpfassay_study::Plan;

use super::compare::filter;
use crate::{
    cli,
    exit::{
        BISECT_ABORTED, BISECT_UNTESTABLE, BISECT_WORSE, CommandFailure, CommandOutcome, INTERRUPTED, REGRESSION,
        SUCCESS, USAGE,
    },
};

/// The results to compare with, and how.
pub(super) struct Against {
    base: Results,
    question: Question,
    bisect: bool,
    /// The directory of the base, for messages.
    shown: PathBuf,
}

/// The outcome of a comparison.
pub(super) struct Judged {
    comparison: Comparison,
    judgement: Judgement,
    bisect: bool,
}

/// Whether the tools under test are worse on the measured kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Judgement {
    NoWorse,
    Worse,
    /// The kernel cannot be tested, with the reason.
    Untestable(String),
}

impl Against {
    /// Reads the results that `arguments` name, if they name any.
    ///
    /// # Errors
    /// A usage failure, if the results do not exist or are damaged, or if metrics are selected and
    /// nothing is compared.
    pub(super) fn read(arguments: &cli::AgainstArgs) -> Result<Option<Self>, CommandFailure> {
        let Some(directory) = &arguments.against else {
            if arguments.of.metric.is_empty() && arguments.of.access.is_empty() {
                return Ok(None);
            }
            let help = "name the results to compare with: --against DIR";
            let report = miette::miette!(help = help, "--metric and --access choose what is compared, and nothing is");
            return Err(CommandFailure { code: USAGE, report });
        };
        let question = Question {
            margin: arguments.margin,
            filter: filter(&[], &arguments.of),
            names: [directory.display().to_string(), "this run".to_owned()],
            ..Question::default()
        };
        Ok(Some(Self { base: file::read(directory)?, question, bisect: arguments.bisect, shown: directory.clone() }))
    }

    /// Checks before the measurement that the base belongs to the study of `plan`. If `probes` of
    /// the study were selected, only these and the tools are compared.
    ///
    /// # Errors
    /// A usage failure, if the base has another study or another clock.
    pub(super) fn check(mut self, plan: &Plan, probes: &[ProbeConfiguration]) -> Result<Self, CommandFailure> {
        if !probes.is_empty() {
            let tools = plan.study.tool_files.iter().map(|tool| tool.file.name.clone());
            self.question.filter.probes = probes.iter().map(ToString::to_string).chain(tools).collect();
        }
        let of = |study: &bpfassay_study::Study| format!("the study {} by the clock {}", study.name, study.clock);
        let [base, new] = [of(&self.base.plan.study), of(&plan.study)];
        // The clock of a host is only known later.
        if base == new || (plan.study.clock_of_host && self.base.plan.study.name == plan.study.name) {
            return Ok(self);
        }
        let directory = self.shown.display();
        let help = "compare with results of the same study: bpfassay list results shows what there is";
        let report = miette::miette!(help = help, "{directory} has {base}, and {new} is to be run");
        Err(CommandFailure { code: USAGE, report })
    }

    /// Compares `new` with the base.
    ///
    /// # Errors
    /// A usage failure, if the two cannot be compared.
    pub(super) fn judge(&self, new: &Results) -> Result<Judged, CommandFailure> {
        let comparison = compare(&self.base, new, &self.question).map_err(CommandFailure::usage)?;
        let judgement = judge(new, &comparison);
        Ok(Judged { comparison, judgement, bisect: self.bisect })
    }
}

impl Judged {
    /// Whether the exit code is for `git bisect run`.
    pub(super) const fn is_bisect(&self) -> bool {
        self.bisect
    }

    /// Returns the exit code. `code` is the exit code of the measurement itself. With `by_host`,
    /// the host failed, so a part was not measured.
    pub(super) const fn code(&self, code: u8, by_host: bool) -> u8 {
        match (&self.judgement, self.bisect) {
            (_, true) if by_host => BISECT_ABORTED,
            (Judgement::Worse, false) => REGRESSION,
            (Judgement::NoWorse | Judgement::Untestable(_), false) => code,
            (Judgement::Worse, true) => BISECT_WORSE,
            (Judgement::Untestable(_), true) => BISECT_UNTESTABLE,
            (Judgement::NoWorse, true) => SUCCESS,
        }
    }

    /// Formats the comparison, followed by the decision.
    pub(super) fn text(&self, style: Style, code: u8) -> String {
        let decided = match &self.judgement {
            Judgement::NoWorse => "nothing under test is shown to be worse than in the base".to_owned(),
            Judgement::Worse => "something under test is worse than in the base".to_owned(),
            Judgement::Untestable(reason) => format!("this kernel cannot be tested: {reason}"),
        };
        let bisect = if self.bisect { format!(" (for git bisect: exit code {code})") } else { String::new() };
        format!(
            "\n{}{}{bisect}\n",
            comparison_text(&self.comparison, style, false),
            bpfassay_results::plain::line(&decided)
        )
    }
}

/// Replaces the exit code of `outcome` by one for `git bisect run`: 0, 1 and 125 are about the
/// kernel, and all others about the command or the host.
pub(super) fn for_bisect(outcome: CommandOutcome) -> CommandOutcome {
    match outcome {
        Ok(code @ (SUCCESS | BISECT_WORSE | BISECT_UNTESTABLE | INTERRUPTED)) => Ok(code),
        Ok(_) => Ok(BISECT_ABORTED),
        Err(failure) if failure.is_of_kernel() => Err(CommandFailure { code: BISECT_UNTESTABLE, ..failure }),
        Err(failure) if failure.code == INTERRUPTED => Err(failure),
        Err(failure) => Err(CommandFailure { code: BISECT_ABORTED, ..failure }),
    }
}

/// A place whose cells are measured in the same boots: architecture, kernel, workload case, file
/// system.
type BootPlace<'a> = (Arch, &'a str, &'a str, &'a str);

/// Judges the kernel of `new`, which `comparison` compares with another. If not even the baseline
/// could be measured in a place, no tool is to blame, and the place does not count. A regression
/// elsewhere still counts.
fn judge(new: &Results, comparison: &Comparison) -> Judgement {
    let untestable = untestable(new);
    let is_testable = |cell: &&CellComparison| {
        let place = cell.kernels[1].as_deref().map(|kernel| (cell.arch, kernel, &*cell.case, &*cell.file_system));
        place.is_none_or(|place| !untestable.contains_key(&place))
    };
    let cells: Vec<&CellComparison> = comparison.cells.iter().filter(is_testable).collect();
    if cells.iter().any(|cell| cell.is_regression()) {
        return Judgement::Worse;
    }
    if let Some(reason) = untestable.into_values().next() {
        return Judgement::Untestable(reason);
    }
    let is_compared = |cell: &&CellComparison| {
        cell.under_test != Probe::None.name() && matches!(cell.fate, Fate::Compared | Fate::Mended { .. })
    };
    let compared: Vec<_> = cells.into_iter().filter(is_compared).collect();
    if compared.is_empty() {
        return Judgement::Untestable("nothing under test was measured in both results".to_owned());
    }
    let changes = || {
        let metrics = compared.iter().flat_map(|cell| &cell.metrics);
        metrics.flat_map(|metric| [metric.change_of_tool(), metric.direct_change()]).flatten()
    };
    if changes().next().is_some() && changes().all(|change| change == Change::Inconclusive) {
        return Judgement::Untestable(
            "no figure shows a change or the absence of one: run more rounds or replicates".to_owned(),
        );
    }
    Judgement::NoWorse
}

/// Returns the places of `results` in which nothing could be measured, whatever was under test,
/// each with the reason.
fn untestable(results: &Results) -> BTreeMap<BootPlace<'_>, String> {
    let mut places = BTreeMap::<BootPlace<'_>, Vec<&CellResult>>::new();
    for cell in &results.cells {
        let place = (cell.target.arch, &*cell.target.kernel, &*cell.case, &*cell.file_system);
        places.entry(place).or_default().push(cell);
    }
    let reason = |cells: Vec<&CellResult>| {
        let baseline = cells.iter().find(|cell| cell.is_baseline());
        // If there is no baseline, a refused tool shows that the kernel was ready.
        let says_something = |cell: &CellResult| {
            cell.runs.measured > 0 || (!cell.is_baseline() && matches!(cell.attach, Attach::Refused { .. }))
        };
        let is_testable = match baseline {
            Some(baseline) => says_something(baseline),
            None => cells.iter().any(|cell| says_something(cell)),
        };
        let of = baseline.or(cells.first()).filter(|_| !is_testable)?;
        let failure = of.failures.first().map(|failed| format!("{}: {}", failed.run, failed.failure));
        Some(failure.unwrap_or_else(|| format!("{} was not measured", of.cell)))
    };
    places.into_iter().filter_map(|(place, cells)| Some((place, reason(cells)?))).collect()
}

#[cfg(test)]
mod tests;
