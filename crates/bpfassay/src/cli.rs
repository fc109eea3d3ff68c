// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of the commands, and their help.

mod cluster;
mod compare;
#[cfg(test)]
mod documented;
mod examples;
mod generate;
mod global;
mod here;
mod list;
mod lock;
mod measure;
mod node;
mod packages;
mod payload;
mod qemu;
mod report;
mod run;
mod testbed;
mod tool;

use std::path::PathBuf;

use bpfassay_protocol::{Arch, ProbeConfiguration};
use bpfassay_runner::{QemuSource, StorePlace};
use bpfassay_study::{Denied, Shard};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    cluster::{ClusterArgs, ClusterCommand, MergeArgs, Submit},
    compare::{Compare, CompareFormat, ComparisonFormat, FailOn, Metrics, TrendArgs},
    generate::{Generate, GenerateCommand, Schema, SchemaOf},
    global::Global,
    here::Here,
    list::{Bundled, List, ListCommand, ListKernelsArgs, ListedResults},
    lock::LockArgs,
    measure::MeasureArgs,
    node::{NodeArgs, NodeRole},
    packages::{Packages, mirror},
    payload::{PayloadArgs, PayloadCommand},
    qemu::{EmulatorTrust, QemuChoice, qemu_of_environment},
    report::ReportArgs,
    run::{AgainChoice, AgainstArgs, CheckArgs, Execution, RunArgs},
    testbed::{Bundle, CacheArguments, CacheCommand, Fetch, TestbedArgs, TestbedCommand},
    tool::{ToolArgs, ToolCommand},
};

/// The help of the command without a subcommand. Each subcommand's help has the common options.
const TEMPLATE: &str = "\
{about}

{usage-heading} {usage}

Commands:
{subcommands}

`bpfassay COMMAND -h` lists the options of a command, `--help` explains them.
`bpfassay run --help` explains exit codes. `bpfassay -V` prints the version.
";

/// Says whether eBPF tools load, count right, and what they cost: on any kernel
#[derive(Debug, Parser)]
#[command(name = "bpfassay", version, max_term_width = 100, help_template = TEMPLATE, disable_help_flag = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,

    #[command(flatten)]
    pub(crate) global: Global,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Boot guests, measure a study in them, and print the result
    Run(RunArgs),
    /// Load and attach tools on every kernel, and measure nothing
    Check(CheckArgs),
    /// Measure a study on this machine itself, on a mounted file system
    Here(Here),
    /// Show what a study would do, without starting anything
    Plan(PlanArgs),
    /// Show what changed between two results
    Compare(Compare),
    /// Show figures along a series of kernels or results
    Trend(TrendArgs),
    /// Write results as text, a page with plots, JUnit, CSV and more
    Report(ReportArgs),
    /// Measure a run again, and fail unless every raw figure is the same
    ///
    /// Figures are the same under the instruction clock. The option --files only checks that the
    /// results directory is intact.
    Verify(Verify),
    /// Boot a guest and give a shell in it
    ///
    /// The NFS mount, the tracer and the workload are at hand.
    Shell(ShellArgs),
    /// Check this host, and name the remedy for each fault
    ///
    /// Covers QEMU, accelerator, disk, memory, mirrors and toolchain.
    Doctor(Doctor),
    /// List studies, kernels, probes, tools or results
    List(List),
    /// Fetch, lock, pack, compose and check the parts of guests
    Testbed(TestbedArgs),
    /// Measure a study on a cluster of Slurm, and merge shards
    Cluster(ClusterArgs),
    /// Write a tool file from a look at a tool
    Tool(ToolArgs),
    /// Generate JSON schemas, completions for shells, and the manual
    Generate(Generate),
    /// Run one node of `here --slurm`; Slurm starts it
    #[command(hide = true)]
    Node(NodeArgs),
}

/// Selects targets of a study.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = SELECT)]
pub(crate) struct Targets {
    /// Only these architectures
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = arch)]
    pub(crate) arch: Vec<Arch>,

    /// Kernels: names, a build tree, an image, packages
    ///
    /// Names are those of `bpfassay list kernels`; the study need not have them. For a kernel that
    /// you built, give the directory of the build or the path of the image. For a kernel of a
    /// distribution, give its package files (image.deb,modules.deb or kernel-core.rpm,…), or a
    /// directory with them. Both replace the study's targets.
    #[arg(long, value_name = "KERNEL", value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,

    /// Installed modules (INSTALL_MOD_PATH) of the kernel that --kernel names by a build tree, an
    /// image or packages [default: those of the build tree, or of the packages]
    #[arg(long, value_name = "DIR", requires = "kernel", hide_short_help = true)]
    pub(crate) modules: Option<PathBuf>,
}

/// Heading of the options that select a part of a study.
const SELECT: &str = "Select";
/// Heading of the options about tools under test.
const UNDER_TEST: &str = "Tools under test";
/// Heading of the options that change the design of a study.
const MEASURE: &str = "Measure";
/// Heading of the options about guests.
const GUESTS: &str = "Guests";
/// Heading of the options about results.
const RESULTS: &str = "Results";

/// Selects a study and a part of it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct SelectionArgs {
    /// A bundled study or a study file
    ///
    /// `bpfassay list studies` lists the bundled ones.
    #[arg(default_value = "quick")]
    pub(crate) study: String,

    #[command(flatten)]
    pub(crate) targets: Targets,

    /// Only these probe configurations, and the baseline
    #[arg(long, value_name = "PROBE", value_delimiter = ',', help_heading = SELECT)]
    pub(crate) probe: Vec<ProbeConfiguration>,

    /// Only this cell (and the baseline that it is compared with), by its id in results and
    /// messages; can be repeated
    #[arg(long, value_name = "ID", help_heading = SELECT, hide_short_help = true)]
    pub(crate) cell: Vec<String>,

    /// A bundled tool or a tool file; can be repeated
    ///
    /// `bpfassay list tools` lists bundled ones; `bpfassay tool init` writes a tool file.
    #[arg(long, value_name = "FILE", help_heading = UNDER_TEST)]
    pub(crate) tool: Vec<String>,

    /// Fail if a tool has one of these findings, or `all`
    ///
    /// Adds a gate to those of the study. docs/reference/findings.md has the names (events-dropped,
    /// …).
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "tool", help_heading = UNDER_TEST)]
    pub(crate) deny: Vec<Denied>,

    /// Fail if a figure is beyond this limit
    ///
    /// Adds a gate to those of the study, in the form of a study file: direct_cost=400, 'overhead =
    /// "5%", probes = ["fexit"]'; can be repeated.
    #[arg(long, value_name = "LIMITS", help_heading = UNDER_TEST)]
    pub(crate) gate: Vec<String>,

    #[command(flatten)]
    pub(crate) measure: MeasureArgs,

    /// Only part K of N of the boots, such as 1/4
    ///
    /// Different machines can measure the parts; `bpfassay cluster merge` merges them into one
    /// result.
    #[arg(long, value_name = "K/N", help_heading = SELECT)]
    pub(crate) shard: Option<Shard>,
}

/// Adds to the testbed's own guests, or replaces them.
#[derive(Debug, Args)]
#[command(next_help_heading = GUESTS)]
pub(crate) struct Overlays {
    /// A directory tree with a real IOR (bin/ior) and what it needs, for guests of this
    /// architecture
    #[arg(long, value_name = "ARCH=DIR", value_parser = arch_and_directory, hide_short_help = true)]
    pub(crate) ior: Vec<(Arch, PathBuf)>,

    /// Guests in one file (`bpfassay testbed bundle`)
    #[arg(long, value_name = "FILE", conflicts_with = "manifest")]
    pub(crate) bundle: Option<PathBuf>,

    /// A testbed manifest to use instead of the Debian provider
    #[arg(long, value_name = "FILE", env = "BPFASSAY_MANIFEST", hide_short_help = true)]
    pub(crate) manifest: Option<PathBuf>,

    /// Only the targets that the manifest or the bundle has; the others are reported as left out
    #[arg(long, env = "BPFASSAY_AVAILABLE", value_parser = clap::builder::FalseyValueParser::new(), hide_short_help = true)]
    pub(crate) available: bool,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
#[command(after_help = examples::PLAN)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,

    /// Print the exact QEMU command line of every block; with a value, that of this QEMU:
    /// `--qemu=lock`, `--qemu=host`, like `--qemu` of `run`
    #[arg(long, value_name = "lock|host", num_args = 0..=1, require_equals = true)]
    pub(crate) qemu: Option<Option<QemuSource>>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) overlays: Overlays,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = examples::DOCTOR)]
pub(crate) struct Doctor {
    /// Install missing packages of the host
    #[arg(long)]
    pub(crate) install: bool,

    #[command(flatten)]
    pub(crate) qemu: QemuChoice,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// The terminal under `shell`, for `--help`.
const OF_SHELL: &str = "\
The terminal is the guest's: what it prints reaches the terminal as it is, escape sequences included. Everywhere else bpfassay shows \
control characters of guests and tools by their numbers.";

/// Arguments of `shell`.
#[derive(Debug, Args)]
#[command(after_help = examples::SHELL, after_long_help = format!("{OF_SHELL}\n\n{}", examples::SHELL))]
pub(crate) struct ShellArgs {
    /// Architecture of the guest [default: x86_64, or that of the image]
    #[arg(long, value_name = "ARCH", value_parser = arch)]
    pub(crate) arch: Option<Arch>,

    /// The guest's kernel, by name in the catalogue, its build tree, the path of its image, or its
    /// packages [default: 6.12]
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<String>,

    /// The kernel's installed modules (INSTALL_MOD_PATH), if --kernel is a build tree or an image
    /// [default: those of the build tree]
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,

    /// The study whose guest to boot: a bundled one or a file [default: quick]
    #[arg(long, value_name = "STUDY", requires = "cell")]
    pub(crate) study: Option<String>,

    /// Boot the guest of this cell of the study, as `run` names it when it fails: its target, file
    /// system, kernel parameters
    #[arg(long, value_name = "ID", conflicts_with = "arch")]
    pub(crate) cell: Option<String>,

    /// A tool to put into the guest: a bundled one or the path of a tool file; can be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) tool: Vec<String>,

    /// Virtual CPUs [default: the study's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cpus: Option<u32>,

    /// Memory in MiB [default: the study's, and what tools need]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) memory: Option<u32>,

    #[command(flatten)]
    pub(crate) overlays: Overlays,

    #[command(flatten)]
    pub(crate) qemu: QemuChoice,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
#[command(after_help = examples::VERIFY, after_long_help = examples::with_codes(examples::VERIFY))]
pub(crate) struct Verify {
    /// The results directory of the run
    #[arg(value_name = "DIR", required_unless_present = "store")]
    pub(crate) directory: Option<PathBuf>,

    /// Re-execute boots of this store of blocks (`run --store`) instead of those of a run. A block
    /// that does not reproduce, or is damaged, is named and put aside
    #[arg(long, value_name = "DIR|URL", conflicts_with_all = ["directory", "bundle", "files"])]
    pub(crate) store: Option<StorePlace>,

    /// Only this many boots, spread evenly over the plan; for a store, other boots in each call
    /// [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,

    /// Guests side by side [default: as many as CPUs and memory allow]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,

    #[command(flatten)]
    pub(crate) emulator: EmulatorTrust,

    /// The run's guests in one file (`bpfassay testbed bundle`), which then need not be built again
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,

    /// Start nothing; check that the directory is intact: the journal and results are as written,
    /// and every figure follows from the journal
    #[arg(long, conflicts_with_all = ["sample", "jobs", "bundle"])]
    pub(crate) files: bool,

    #[command(flatten)]
    pub(crate) qemu: QemuChoice,

    #[command(flatten)]
    pub(crate) packages: Packages,
}

/// The readers of messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    /// For people
    #[default]
    Human,
    /// For programs
    Json,
}

/// Parses an architecture by its name, or by that of Debian and Go.
fn arch(text: &str) -> Result<Arch, String> {
    let name = match text {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        other => other,
    };
    name.parse().map_err(|error: bpfassay_protocol::UnknownName| error.to_string())
}

fn arch_and_directory(text: &str) -> Result<(Arch, PathBuf), String> {
    let (of, directory) = text.split_once('=').ok_or("expected ARCH=DIR, for example aarch64=/opt/ior-aarch64")?;
    let arch = arch(of)?;
    if directory.is_empty() {
        return Err("expected a directory after `=`".to_owned());
    }
    Ok((arch, directory.into()))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn architectures_have_debians_names_too() {
        let names = ["x86_64", "amd64", "aarch64", "arm64", "riscv64"].map(|name| arch(name).unwrap().name());
        assert_eq!(names, ["x86_64", "x86_64", "aarch64", "aarch64", "riscv64"]);
        assert!(arch("i386").unwrap_err().contains("known are x86_64, aarch64, riscv64"));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The short help must fit its screen, whatever is added to it.
    #[test]
    fn short_help_fits_a_screen() {
        let mut all = Cli::command().term_width(80);
        all.build();
        assert!(all.render_long_help().to_string().lines().count() <= 40);
        let mut open = vec![all];
        while let Some(mut command) = open.pop() {
            let name = command.get_name().to_owned();
            let help = command.clone().term_width(80).render_help().to_string();
            let fits = |line: &str| line.chars().count() <= 80 || line.starts_with("Usage: ");
            assert!(help.lines().all(fits), "{name}: {help}");
            assert!(name != "run" || help.lines().count() <= 45, "{help}");
            open.extend(command.get_subcommands_mut().filter(|below| !below.is_hide_set()).map(|below| below.clone()));
        }
    }

    #[test]
    fn run_without_arguments_means_quick() {
        let cli = Cli::try_parse_from(["bpfassay", "run"]).unwrap();
        let CliCommand::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.selection.study, "quick");
    }

    #[test]
    fn overlays_name_an_architecture() {
        assert_eq!(arch_and_directory("riscv64=/x"), Ok((Arch::Riscv64, "/x".into())));
        assert!(arch_and_directory("/x").is_err());
        assert!(arch_and_directory("sparc=/x").unwrap_err().contains("known are"));
        assert!(arch_and_directory("x86_64=").is_err());
    }

    #[test]
    fn resume_goes_by_itself() {
        for again in ["host", "failed"] {
            assert!(Cli::try_parse_from(["bpfassay", "run", "--resume", "d", "--again", again]).is_ok());
            assert!(Cli::try_parse_from(["bpfassay", "run", "--again", again]).is_err(), "there is nothing to repeat");
        }
        assert!(Cli::try_parse_from(["bpfassay", "run", "--resume", "d", "--arch", "x86_64"]).is_err());
        let measure = ["--clock=wall", "--model=cachegrind", "--rounds=2", "--replicates=2", "--until=1%"];
        for option in measure {
            assert!(Cli::try_parse_from(["bpfassay", "run", option]).is_ok(), "{option}");
            assert!(Cli::try_parse_from(["bpfassay", "run", "--resume", "d", option]).is_err(), "{option}");
        }
    }
}
