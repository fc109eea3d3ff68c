// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of the commands, and their help.

mod compare;
#[cfg(test)]
mod documented;
mod global;
mod here;
mod lock;
mod merge;
mod node;
mod payload;
mod qemu;
mod report;
mod run;
mod slurm;
mod testbed;
mod tool;

use std::path::PathBuf;

use bpfassay_protocol::{Arch, ProbeConfiguration};
use bpfassay_runner::{QemuSource, StorePlace};
use bpfassay_study::{Clock, Denied, Design, Model, Shard, Share};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use self::{
    compare::{Compare, ComparisonFormat, FailOn, Format, Metrics, Trend},
    global::Global,
    here::Here,
    lock::Lock,
    merge::Merge,
    node::{Node, NodeRole},
    payload::{Payload, PayloadCommand},
    qemu::{EmulatorTrust, QemuChoice, qemu_of_environment},
    report::Report,
    run::{AgainChoice, Against, Check, Execution, Run},
    slurm::Slurm,
    testbed::{Testbed, TestbedCommand},
    tool::{Tool, ToolCommand},
};
use crate::exit;

/// Finds out whether eBPF tools load, count right, and what they cost: on any kernel, on x86_64, aarch64 and riscv64.
#[derive(Debug, Parser)]
#[command(name = "bpfassay", version, max_term_width = 100, after_long_help = exit::HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: Global,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a study: set up what it needs, boot, measure, print the table
    Run(Run),
    /// Run a study on this machine itself, without guests, on a file system that is mounted here
    Here(Here),
    /// Show what a study would do, without starting anything
    Plan(Plan),
    /// List kernels: known, cached, available for each architecture
    Kernels(Kernels),
    /// List the studies that come with bpfassay
    Studies(Lists),
    /// List the probes of the bundled tracer, of which probe configurations are made
    Probes(Lists),
    /// List the tools that come with bpfassay, which `run --tool` takes by name
    Tools(Lists),
    /// List results: study, how much of it was measured, fingerprint
    List(List),
    /// List what testbed.lock has, the exact package files that kernels, compilers and QEMU come from; or choose them anew
    Lock(Lock),
    /// Prepare everything that a study needs, so that it then runs offline
    Fetch(Fetch),
    /// Show what takes space in the cache, or remove what was not used for long
    Cache(CacheArguments),
    /// Check this host: QEMU, accelerator, disk, memory, mirrors, toolchain; each with the remedy
    Doctor(Doctor),
    /// Boot a guest and give a shell in it, with the NFS mount, the tracer and the workload at hand
    Shell(Shell),
    /// Load and attach tools on every kernel, and nothing else: the refusals, what the verifier made of each program
    Check(Check),
    /// Re-execute part of a run; fails unless every raw figure matches (instruction clock). With --files only check that the results directory is
    /// whole
    Verify(Verify),
    /// Make one results directory of those of shards (`run --shard`): the same plan, the same guests, every boot once
    Merge(Merge),
    /// Run a study on a cluster: a shard per element of an array job of Slurm, submitted again until all are measured, then merged
    Slurm(Slurm),
    /// What `here --slurm` has Slurm start on each node
    #[command(hide = true)]
    Node(Node),
    /// Write the guests of a run to one file, to measure it again where there is no network and no compiler (--bundle)
    Bundle(Bundle),
    /// Show what changed between two results: new, gone, broken, slower, counting wrongly
    Compare(Compare),
    /// Show figures along a series of kernels or results, and where they change level
    Trend(Trend),
    /// Write results as a page with plots, or for other programs: JUnit, OpenMetrics, CSV
    Report(Report),
    /// Print the JSON schema of a file that bpfassay writes
    Schema(Schema),
    /// Print completions for a shell: `bpfassay completions bash >~/.local/share/bash-completion/completions/bpfassay`
    Completions {
        /// Which shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual's pages, one per command, for man(1)
    Man {
        /// Directory for them, such as ~/.local/share/man/man1; made where it does not exist
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Build the guest's programs, pack them for other machines (--from), or verify that their sources give the same bytes
    Payload(Payload),
    /// Write a tool file from a look at a tool
    Tool(Tool),
    /// Make, check or pack testbeds by hand: for other builders, such as Nix, and for hosts without a network
    Testbed(Testbed),
}

/// Which targets of a study.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Targets {
    /// Only these architectures
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = arch)]
    pub(crate) arch: Vec<Arch>,

    /// Only these kernels, by their names in the catalogue (`bpfassay kernels`), also those that the study has not; or one that you built, in place of the study's targets: the tree that it was
    /// built in, or the path of its image; or one of a distribution by its package files: image.deb,modules.deb, kernel-core.rpm,…, or a directory
    /// with them
    #[arg(long, value_name = "KERNEL", value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,

    /// Its modules, installed (INSTALL_MOD_PATH), where --kernel is a build tree, an image or packages [default: those of the build tree, or of the packages]
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub(crate) modules: Option<PathBuf>,
}

/// Which study, and which part of it.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Selection {
    /// A bundled study (quick, ceems-ior) or the path of a study file
    #[arg(default_value = "quick")]
    pub(crate) study: String,

    /// Which targets.
    #[command(flatten)]
    pub(crate) targets: Targets,

    /// Only these probe configurations; the baseline always stays
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub(crate) probe: Vec<ProbeConfiguration>,

    /// Only this cell (and the baseline that it is compared with), by its id in results and messages; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) cell: Vec<String>,

    /// A tool to test beside the study's probe configurations: a bundled one (vfsstat, filetop, …) or the path of a tool file;
    /// may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) tool: Vec<String>,

    /// Findings that the tools may not have (events-dropped, …), or `all`: a gate, in addition to the study's own
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "tool")]
    pub(crate) deny: Vec<Denied>,

    /// A gate in addition to the study's own, as a study file has it: direct_cost=400, 'overhead = "5%", probes = ["fexit"]'; may be given several
    /// times
    #[arg(long, value_name = "LIMITS")]
    pub(crate) gate: Vec<String>,

    /// The clock to measure time with, in place of the study's own: wall or instructions
    #[arg(long, value_name = "CLOCK")]
    pub(crate) clock: Option<Clock>,

    /// Price the direct cost besides, by a model of caches and branch prediction, in place of the study's own: its figures are no time, and what is measured does not change
    #[arg(long, value_name = "MODEL", value_parser = run::model())]
    pub(crate) model: Option<Model>,

    /// Rounds of each boot, in place of the study's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(Design::MOST_ROUNDS)))]
    pub(crate) rounds: Option<u32>,

    /// Replicates in place of the study's own number; with --until, the most there may be
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) replicates: Option<u32>,

    /// Boot until the intervals of all overheads are this narrow (0.5%), with error rates kept [default most: the study's
    /// replicates, or 20]
    #[arg(long, value_name = "SHARE")]
    pub(crate) until: Option<Share>,

    /// Only this shard of the boots: K of N, such as 1/4, each of which another machine may measure; `bpfassay merge` makes one of all
    #[arg(long, value_name = "K/N")]
    pub(crate) shard: Option<Shard>,
}

/// What is overlaid on the testbed's own guests.
#[derive(Debug, Args)]
pub(crate) struct Overlays {
    /// A directory tree holding a real IOR (bin/ior) and what it needs, for guests of this architecture
    #[arg(long, value_name = "ARCH=DIR", value_parser = arch_and_directory)]
    pub(crate) ior: Vec<(Arch, PathBuf)>,

    /// Guests in one file (`bpfassay bundle`) to use in place of the Debian provider
    #[arg(long, value_name = "FILE", conflicts_with = "manifest")]
    pub(crate) bundle: Option<PathBuf>,

    /// A testbed manifest to use in place of the Debian provider
    #[arg(long, value_name = "FILE", env = "BPFASSAY_MANIFEST")]
    pub(crate) manifest: Option<PathBuf>,

    /// Only the targets that the manifest or the bundle has; the others are named as left out
    #[arg(long, env = "BPFASSAY_AVAILABLE", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) available: bool,
}

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Which study.
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Print the exact QEMU command line of every block; with a value, that of this QEMU: `--qemu=lock`, `--qemu=host`, as `--qemu` of `run`
    #[arg(long, value_name = "lock|host", num_args = 0..=1, require_equals = true)]
    pub(crate) qemu: Option<Option<QemuSource>>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// What is overlaid.
    #[command(flatten)]
    pub(crate) overlays: Overlays,
}

/// Arguments of `kernels`.
#[derive(Debug, Args)]
pub(crate) struct Kernels {
    /// Only these architectures
    #[arg(long, value_name = "ARCH", value_delimiter = ',', value_parser = arch)]
    pub(crate) arch: Vec<Arch>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `fetch`.
#[derive(Debug, Args)]
pub(crate) struct Fetch {
    /// Which study.
    #[command(flatten)]
    pub(crate) selection: Selection,

    /// Verify the hash of every file in the cache first; what is damaged is made again
    #[arg(long)]
    pub(crate) verify: bool,

    /// Write the testbed manifest to this file, for --manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) manifest_out: Option<PathBuf>,

    /// Which QEMU.
    #[command(flatten)]
    pub(crate) qemu: QemuChoice,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Install what is missing from the host's packages
    #[arg(long)]
    pub(crate) install: bool,

    /// Which QEMU.
    #[command(flatten)]
    pub(crate) qemu: QemuChoice,
}

/// Arguments of `shell`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
The terminal is the guest's: what it prints reaches the terminal as it is, escape sequences included. Everywhere else bpfassay shows \
control characters of guests and tools by their numbers.")]
pub(crate) struct Shell {
    /// Architecture of the guest [default: x86_64, or that of the image]
    #[arg(long, value_name = "ARCH", value_parser = arch)]
    pub(crate) arch: Option<Arch>,

    /// Its kernel, by name in the catalogue, the tree that it was built in, the path of its image, or its packages [default: 6.12]
    #[arg(long, value_name = "KERNEL")]
    pub(crate) kernel: Option<String>,

    /// Its modules, installed (INSTALL_MOD_PATH), where --kernel is a build tree or an image [default: those of the build tree]
    #[arg(long, value_name = "DIR")]
    pub(crate) modules: Option<PathBuf>,

    /// The study whose guest it is to be: a bundled one or a file [default: quick]
    #[arg(long, value_name = "STUDY", requires = "cell")]
    pub(crate) study: Option<String>,

    /// The guest of this cell of the study, as `run` names it when it fails: its target, file system, kernel parameters
    #[arg(long, value_name = "ID", conflicts_with = "arch")]
    pub(crate) cell: Option<String>,

    /// A tool to have in the guest: a bundled one or the path of a tool file; may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) tool: Vec<String>,

    /// Virtual CPUs [default: the study's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cpus: Option<u32>,

    /// Memory in MiB [default: the study's, and what tools take]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) memory: Option<u32>,

    /// What is overlaid.
    #[command(flatten)]
    pub(crate) overlays: Overlays,

    /// Which QEMU.
    #[command(flatten)]
    pub(crate) qemu: QemuChoice,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The results directory of the run
    #[arg(value_name = "DIR", required_unless_present = "store")]
    pub(crate) directory: Option<PathBuf>,

    /// Re-execute boots of this store of blocks (`run --store`) in place of those of a run. One that does not reproduce, or is damaged, is named and put
    /// aside
    #[arg(long, value_name = "DIR|URL", conflicts_with_all = ["directory", "bundle", "files"])]
    pub(crate) store: Option<StorePlace>,

    /// Only this many of its boots, spread evenly over the plan; of a store, others in each call [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sample: Option<u32>,

    /// Guests side by side [default: as many as CPUs and memory allow]
    #[arg(long, short, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: Option<u32>,

    /// Whether its QEMU may be started.
    #[command(flatten)]
    pub(crate) emulator: EmulatorTrust,

    /// The run's guests in one file (`bpfassay bundle`), which need not be made again then
    #[arg(long, value_name = "FILE")]
    pub(crate) bundle: Option<PathBuf>,

    /// Start nothing; check that the directory is whole: the journal and results as they were written, every figure as the journal has it
    #[arg(long, conflicts_with_all = ["sample", "jobs", "bundle"])]
    pub(crate) files: bool,

    /// Which QEMU.
    #[command(flatten)]
    pub(crate) qemu: QemuChoice,
}

/// Arguments of `studies`, `probes` and `tools`.
#[derive(Debug, Args)]
pub(crate) struct Lists {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// Results directories, or directories of such [default: bpfassay-results]
    #[arg(value_name = "DIR")]
    pub(crate) directories: Vec<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `cache`.
#[derive(Debug, Args)]
pub(crate) struct CacheArguments {
    /// What to do in place of a list.
    #[command(subcommand)]
    pub(crate) command: Option<CacheCommand>,

    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What `cache` does.
#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Remove what was not used for long: it is downloaded or made again when it is needed
    Prune {
        /// Remove what was not used for so many days
        #[arg(long, value_name = "DAYS", default_value_t = 30)]
        unused: u32,
        /// Remove all Debian packages as well: what was unpacked of them stays
        #[arg(long)]
        packages: bool,
        /// Only print what would be removed
        #[arg(long)]
        dry_run: bool,
    },
}

/// Arguments of `bundle`.
#[derive(Debug, Args)]
pub(crate) struct Bundle {
    /// The results directory of the run
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// The file to write, which must not exist
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: PathBuf,

    /// Leave QEMU out, which is in it otherwise (93 MB) where the run was measured with the version that testbed.lock has
    #[arg(long)]
    pub(crate) without_qemu: bool,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Which file's schema
    #[arg(value_enum)]
    pub(crate) file: SchemaOf,
}

/// Files with a published schema.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum SchemaOf {
    /// results.json
    Results,
    /// The testbed manifest
    Manifest,
    /// A line of `run --message-format json`
    Events,
}

/// How what happens is reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    /// To people
    #[default]
    Human,
    /// To programs
    Json,
}

/// An architecture by its name, or by that of Debian and Go.
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

    #[test]
    fn run_without_arguments_means_quick() {
        let cli = Cli::try_parse_from(["bpfassay", "run"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not run") };
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
    }
}
