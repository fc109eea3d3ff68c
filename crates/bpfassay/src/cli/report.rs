//! What can be said to `bpfassay report`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Results: a results directory or a results.json
    #[arg(value_name = "DIR")]
    pub(crate) results: PathBuf,

    /// How to write it
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: ReportFormat,

    /// Which figure, for svg: its title in the page, or a part of it that no other has
    #[arg(long, value_name = "TITLE", required_if_eq("format", "svg"))]
    pub(crate) figure: Option<String>,

    /// Where to write it, `-` for standard output [default: report.html in the results directory; standard output for other formats]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// How to write a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// One page with tables and plots that needs nothing else
    #[default]
    Html,
    /// The tables of `run`, for terminals
    Text,
    /// The tables, for pull requests and job summaries
    Markdown,
    /// Test cases, for CI systems
    Junit,
    /// Gauges, for monitoring systems
    Openmetrics,
    /// A line per run and access
    Csv,
    /// One figure of the page (--figure), for light and dark
    Svg,
}
