// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay compare`: compares two results.

use bpfassay_report::{
    compare::{Filter, Question, compare as compare_results},
    render::{Style, comparison_html, comparison_junit, comparison_markdown, comparison_text},
};
use bpfassay_results::{file, plain};

use crate::{
    cli::{self, ComparisonFormat, FailOn},
    exit::{CommandFailure, CommandOutcome, INCONCLUSIVE, INTERNAL, REGRESSION, SUCCESS},
};

pub(super) fn filter(probes: &[String], metrics: &cli::Metrics) -> Filter {
    Filter { probes: probes.to_vec(), metrics: metrics.metric.clone(), accesses: metrics.access.clone() }
}

/// Executes the command.
///
/// # Errors
/// - A usage failure, if one of the two results does not exist, is damaged, or cannot be compared
///   with the other
/// - An infrastructure failure, if results cannot be read or the report cannot be written
pub(crate) fn compare(arguments: &cli::Compare) -> CommandOutcome {
    let base = file::read(&arguments.base)?;
    let new = file::read(&arguments.new)?;
    let question = Question {
        margin: arguments.margin,
        error_rate: arguments.error_rate,
        correction: arguments.correction.into(),
        filter: filter(&arguments.probe, &arguments.of),
        names: [&arguments.base, &arguments.new].map(|directory| directory.display().to_string()),
        kernels: arguments.kernel.iter().cloned().map(Into::into).collect(),
        tools: arguments.tool.iter().cloned().map(Into::into).collect(),
    };
    let comparison = compare_results(&base, &new, &question).map_err(CommandFailure::usage)?;
    let text = match arguments.format {
        ComparisonFormat::Text => {
            let width = super::terminal_width().filter(|_| arguments.output.is_none());
            comparison_text(&comparison, Style { width }, arguments.all)
        }
        ComparisonFormat::Markdown => comparison_markdown(&comparison, arguments.all),
        ComparisonFormat::Html => {
            comparison_html(&comparison, arguments.all).map_err(|error| CommandFailure::new(INTERNAL, error))?
        }
        ComparisonFormat::Junit => comparison_junit(&comparison)?,
        ComparisonFormat::Json => {
            let text =
                serde_json::to_string_pretty(&comparison).map_err(|error| CommandFailure::new(INTERNAL, error))?;
            plain::json(&text).into_owned() + "\n"
        }
    };
    match arguments.output.as_deref().filter(|file| file.as_os_str() != "-") {
        Some(file) => super::write(file, text.as_bytes())?,
        None => super::print(&text)?,
    }
    let fails_on = |what: FailOn| arguments.fail_on.contains(&what);
    Ok(if fails_on(FailOn::Regression) && comparison.is_regression() {
        REGRESSION
    } else if fails_on(FailOn::Inconclusive) && comparison.is_inconclusive() {
        INCONCLUSIVE
    } else {
        SUCCESS
    })
}
