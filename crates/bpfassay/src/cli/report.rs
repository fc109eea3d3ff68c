// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bpfassay report`.

use std::path::PathBuf;

use bpfassay_report::render::{FORMATS, Format};
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Results: a results directory or a results.json
    #[arg(value_name = "DIR")]
    pub(crate) results: PathBuf,

    /// How to write it
    #[arg(long, value_parser = format(), default_value = FORMATS[0].name)]
    pub(crate) format: &'static Format,

    /// Which figure, for svg: its title in the page, or a part of it that no other has
    #[arg(long, value_name = "TITLE", required_if_eq("format", "svg"))]
    pub(crate) figure: Option<String>,

    /// Where to write it, `-` for standard output [default: in the results directory report.html,
    /// and direct.pb.gz for pprof; standard output for other formats; of github the summary, to the
    /// file that GITHUB_STEP_SUMMARY names, if any: annotations go to standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// A format by its name.
fn format() -> impl TypedValueParser<Value = &'static Format> {
    let names = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    let of_name = |name: String| FORMATS.iter().find(|format| format.name == name);
    PossibleValuesParser::new(names).try_map(move |name| of_name(name).ok_or("no such format"))
}
