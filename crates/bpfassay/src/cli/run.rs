// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `run`, and of `check`, which runs a fixed study.

use std::path::PathBuf;

use bpfassay_runner::StorePlace;
use bpfassay_study::{Denied, Model, Share};
use bpfassay_vm::AcceleratorWish;
use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};

use super::{
    EmulatorTrust, GUESTS, MessageFormat, Metrics, Overlays, Packages, QemuChoice, RESULTS, SelectionArgs, Targets,
    UNDER_TEST, examples,
};

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = examples::RUN, after_long_help = examples::with_bisect(examples::RUN))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    #[command(flatten)]
    pub(crate) execution: Execution,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// Continue an interrupted run
    #[arg(long, value_name = "DIR", help_heading = RESULTS, conflicts_with_all = ["output", "study", "arch", "kernel", "modules", "probe", "cell", "tool", "gate", "MeasureArgs"])]
    pub(crate) resume: Option<PathBuf>,

    /// Use the guests and the QEMU of these results
    ///
    /// Accepts a results directory or a results.json. Kernel packages and QEMU are those of the
    /// results instead of those of testbed.lock and of this host. What is not available is
    /// reported, and nothing replaces it.
    #[arg(long, value_name = "DIR", help_heading = GUESTS, conflicts_with_all = ["resume", "manifest", "bundle", "modules", "ior"])]
    pub(crate) like: Option<PathBuf>,

    /// With --resume: what to do again besides what was not completed
    #[arg(long, value_enum, value_name = "WHAT", default_value_t, requires = "resume", help_heading = RESULTS, hide_short_help = true)]
    pub(crate) again: AgainChoice,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Selects earlier results for a comparison.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = RESULTS)]
pub(crate) struct AgainstArgs {
    /// Compare with these results; exit with 5 if worse
    ///
    /// Results of the same study, of another kernel or day: a results directory or a results.json.
    #[arg(long, value_name = "DIR")]
    pub(crate) against: Option<PathBuf>,

    /// Exit codes for `git bisect run`: 0 if nothing is worse, 1 if something is, 125 if this
    /// kernel cannot be tested, 128 if anything else went wrong
    #[arg(long, requires = "against", hide_short_help = true)]
    pub(crate) bisect: bool,

    /// With --against: changes of overheads up to this are negligible [default: 0.1%, by the
    /// instruction clock 0.02%]
    #[arg(long, value_name = "SHARE", requires = "against", hide_short_help = true)]
    pub(crate) margin: Option<Share>,

    #[command(flatten)]
    pub(crate) of: Metrics,
}

/// Options for running a study.
#[derive(Debug, Args)]
pub(crate) struct Execution {
    #[command(flatten)]
    pub(crate) overlays: Overlays,

    #[command(flatten)]
    pub(crate) emulator: EmulatorTrust,

    /// Guests at once [default: as CPUs and memory allow]
    #[arg(long, short, value_name = "N", help_heading = GUESTS, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,

    /// Results [default: bpfassay-results/STUDY-TIME]
    #[arg(long, short, value_name = "DIR", help_heading = RESULTS)]
    pub(crate) output: Option<PathBuf>,

    /// Take boots from this store, and add to it
    ///
    /// The store is a directory, which several hosts can share, or an object store:
    /// s3://BUCKET/PREFIX or the URL of a server that accepts files by HTTP. A missing directory is
    /// created. A boot in the store, of the same kernel, programs, QEMU and study, is not measured
    /// again. The variable BPFASSAY_STORE replaces this option.
    #[arg(long, value_name = "DIR|URL", env = "BPFASSAY_STORE", hide_env = true, help_heading = RESULTS)]
    pub(crate) store: Option<StorePlace>,

    /// With --store: take nothing from the store, measure everything, and replace what the store
    /// has
    #[arg(long, requires = "store", help_heading = RESULTS, hide_short_help = true)]
    pub(crate) fresh: bool,

    /// With --store: also use it under the wall clock. Boots of a similar host are then taken from
    /// it, although their figures would differ here
    #[arg(long, requires = "store", help_heading = RESULTS, hide_short_help = true)]
    pub(crate) store_wall: bool,

    /// With --store: keep boots without times of the host's clock and without the host, so that the
    /// same boot of the same guests gives the same bytes wherever it was measured
    #[arg(long, requires = "store", conflicts_with = "store_wall", help_heading = RESULTS, hide_short_help = true)]
    pub(crate) store_reproducible: bool,

    /// How to execute guests
    #[arg(long, value_name = "WAY", value_parser = accelerator(), default_value = "auto", help_heading = GUESTS, hide_short_help = true)]
    pub(crate) accelerator: AcceleratorWish,

    #[command(flatten)]
    pub(crate) qemu: QemuChoice,

    /// How to report progress: a bar or lines on standard error and a table at the end, or a JSON
    /// object per event on standard output (`bpfassay generate schema events`)
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, help_heading = RESULTS, hide_short_help = true)]
    pub(crate) message_format: MessageFormat,

    /// At the end, print how long each stage took, and what ran in parallel
    #[arg(long, help_heading = RESULTS, hide_short_help = true)]
    pub(crate) timings: bool,
}

/// The parts that `run --resume` repeats after failures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AgainChoice {
    /// Runs that failed because the host failed: no QEMU, a full disk, a guest that was killed
    #[default]
    Host,
    /// Whole blocks with runs that failed for any reason, as if they had not been run
    Failed,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = examples::CHECK, after_long_help = examples::with_bisect(examples::CHECK))]
pub(crate) struct CheckArgs {
    /// The tools: bundled ones (vfsstat-libbpf, …) or paths of tool files
    #[arg(value_name = "TOOL", required = true)]
    pub(crate) tools: Vec<String>,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// Also find the smallest set of capabilities with which each tool starts
    #[arg(long, help_heading = UNDER_TEST)]
    pub(crate) capabilities: bool,

    /// Also run the tools N times on four CPUs, so that counts that race are lost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "capabilities", help_heading = UNDER_TEST)]
    pub(crate) races: Option<u32>,

    /// Fail if a tool has one of these findings, or `all`
    #[arg(long, value_name = "FINDING", value_delimiter = ',', help_heading = UNDER_TEST)]
    pub(crate) deny: Vec<Denied>,

    /// Fail if a figure is beyond this limit, such as verified_instructions=800000; as for `run`
    #[arg(long, value_name = "LIMITS", help_heading = UNDER_TEST, hide_short_help = true)]
    pub(crate) gate: Vec<String>,

    #[command(flatten)]
    pub(crate) execution: Execution,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Parses the name of a model.
pub(super) fn model() -> impl TypedValueParser<Value = Model> {
    PossibleValuesParser::new(Model::names())
        .try_map(|name| Model::named(&name).ok_or_else(|| format!("there is no model `{name}`")))
}

/// Parses the name of an [`AcceleratorWish`].
fn accelerator() -> impl TypedValueParser<Value = AcceleratorWish> {
    let names = [
        PossibleValue::new("auto").help("KVM where a guest boots under it, TCG elsewhere"),
        PossibleValue::new("tcg").help("QEMU's emulation, always"),
        PossibleValue::new("kvm").help("KVM or nothing"),
    ];
    PossibleValuesParser::new(names).map(|name| match name.as_str() {
        "tcg" => AcceleratorWish::Tcg,
        "kvm" => AcceleratorWish::Kvm,
        _ => AcceleratorWish::Auto,
    })
}
