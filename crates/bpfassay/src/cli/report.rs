// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bpfassay report`.

use std::path::PathBuf;

use bpfassay_report::render::{FORMATS, ReportFormat};
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::examples;

/// Arguments of `report`.
#[derive(Debug, Args)]
#[command(after_help = examples::REPORT)]
pub(crate) struct ReportArgs {
    /// Results: a results directory or a results.json
    #[arg(value_name = "DIR")]
    pub(crate) results: PathBuf,

    /// Format of the report
    #[arg(long, value_parser = format(), default_value = FORMATS[0].name)]
    pub(crate) format: &'static ReportFormat,

    /// The figure for svg: its title in the page, or a unique part of it
    #[arg(long, value_name = "TITLE", required_if_eq("format", "svg"))]
    pub(crate) figure: Option<String>,

    /// Output file, `-` for standard output [default: report.html, with code-coverage.html beside
    /// it, and, for pprof, direct.pb.gz in the results directory; standard output for others.
    /// For github, annotations go to standard output and the summary to the file that
    /// GITHUB_STEP_SUMMARY names, if any]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Parses a format by its name.
fn format() -> impl TypedValueParser<Value = &'static ReportFormat> {
    let names = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    let of_name = |name: String| FORMATS.iter().find(|format| format.name == name);
    PossibleValuesParser::new(names).try_map(move |name| of_name(name).ok_or("no such format"))
}
