// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bpfassay compare` and `bpfassay trend`.

use std::path::PathBuf;

use bpfassay_protocol::Operation;
use bpfassay_study::{Correction, Share};
use clap::{Args, ValueEnum};

use super::examples;

/// Arguments of `compare`.
#[derive(Debug, Args)]
#[command(after_help = examples::COMPARE, after_long_help = examples::with_codes(examples::COMPARE))]
pub(crate) struct Compare {
    /// Results to compare with: a results directory or a results.json
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,

    /// New results, of another kernel, tool version or day
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,

    /// Changes up to this are negligible [default: 0.1%, under the instruction clock 0.02%]
    #[arg(long, value_name = "SHARE")]
    pub(crate) margin: Option<Share>,

    /// Probability of each kind of error, over all cells; below 50%
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    pub(crate) error_rate: Share,

    /// How to keep the error rate over all cells
    #[arg(long, value_name = "METHOD", value_enum, default_value_t)]
    pub(crate) correction: CorrectionChoice,

    /// Compare kernel NEW of the new results with kernel BASE of the base [default: kernels of the
    /// same name, or the only one of each]
    #[arg(long, value_name = "BASE=NEW")]
    pub(crate) kernel: Vec<NamePair>,

    /// Compare only tool NEW of the new results with tool BASE of the base, which may be the same
    /// results
    #[arg(long, value_name = "BASE=NEW")]
    pub(crate) tool: Vec<NamePair>,

    /// Only these probe configurations and tools; `none` is the baseline
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub(crate) probe: Vec<String>,

    #[command(flatten)]
    pub(crate) of: Metrics,

    /// Format of the comparison
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: ComparisonFormat,

    /// Output file, `-` for standard output (the default)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Show what did not change, too
    #[arg(long)]
    pub(crate) all: bool,

    /// Exit with 5 on a regression of what is under test, with 6 if a figure of it is inconclusive
    /// [default: never]
    #[arg(long, value_name = "WHAT", value_enum, value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
}

/// Selects the metrics to compare.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Metrics {
    /// Compare only these metrics (write, read-call, …): their overheads, direct costs and byte
    /// errors, without pitfalls and findings
    #[arg(long, value_name = "METRIC", value_delimiter = ',', hide_short_help = true)]
    pub(crate) metric: Vec<String>,

    /// Compare only metrics of this operation (read, write, …): its bandwidth and the time of its
    /// calls
    #[arg(long, value_name = "ACCESS", value_delimiter = ',', hide_short_help = true)]
    pub(crate) access: Vec<Operation>,
}

/// Arguments of `trend`.
#[derive(Debug, Args)]
#[command(after_help = examples::TREND)]
pub(crate) struct TrendArgs {
    /// Results in order: results directories or results.json files; within each, kernels by version
    #[arg(value_name = "DIR", required = true)]
    pub(crate) directories: Vec<PathBuf>,

    /// Format of the trend
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: CompareFormat,
}

/// A kernel or tool of the base and one of the new results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamePair {
    /// Name in the base.
    pub(crate) base: String,
    /// Name in the new results.
    pub(crate) new: String,
}

impl From<NamePair> for (String, String) {
    fn from(pair: NamePair) -> Self {
        (pair.base, pair.new)
    }
}

impl std::str::FromStr for NamePair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((base, new)) if !base.is_empty() && !new.is_empty() => {
                Ok(Self { base: base.to_owned(), new: new.to_owned() })
            }
            _ => Err("give two names, such as 6.12=7.2 or old=new".to_owned()),
        }
    }
}

/// How to keep an error rate over many cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CorrectionChoice {
    /// The probability of at least one false claim over all cells (Holm)
    Holm,
    /// The average share of false claims among the claims (Benjamini-Hochberg)
    #[default]
    BenjaminiHochberg,
}

impl From<CorrectionChoice> for Correction {
    fn from(choice: CorrectionChoice) -> Self {
        match choice {
            CorrectionChoice::Holm => Self::Holm,
            CorrectionChoice::BenjaminiHochberg => Self::BenjaminiHochberg,
        }
    }
}

/// The format of output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompareFormat {
    /// A table for terminals
    #[default]
    Text,
    /// A table for pull requests and job summaries
    Markdown,
    /// Everything, for programs
    Json,
}

/// The format of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ComparisonFormat {
    /// A table for terminals
    #[default]
    Text,
    /// A table for pull requests and job summaries
    Markdown,
    /// One page with the table and plots that needs no other file
    Html,
    /// Test cases, for CI systems; undecided ones are skipped
    Junit,
    /// Everything, for programs
    Json,
}

/// A reason why `compare` fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// A tool is broken, slower, counts wrongly where it was exact, or has a new pitfall or
    /// finding; a slower baseline does not count
    Regression,
    /// Some figure shows neither a change nor the absence of one
    Inconclusive,
}
