// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `here`.

use std::path::PathBuf;

use bpfassay_protocol::ProbeConfiguration;
use bpfassay_study::Denied;
use clap::Args;

use super::{MessageFormat, examples};

/// Requirements and effects of the command, for `--help`.
const NOTES: &str = "\
Needs root, a kernel with cgroup v2 (mounted anywhere, or nowhere), and the programs bpfassay-guest, bpfassay-tracer and bpfassay-ior in PATH. Time is \
measured under the wall clock. The file system takes the place of the study's: any that is mounted. Mounts nothing that other \
programs see and changes no setting; before each run the page cache is written out and dropped. Runs have a directory .bpfassay-here-… \
in the file system and a cgroup, which are removed at the end, also where this program or the agent is killed.

With --slurm, all nodes have the programs, IOR, the file system and the study at the same paths. Where a node, or its step of Slurm, ends before its time, what was \
measured until then is kept, all else is reported as not measured with the reason, and the exit code is 3.";

/// Arguments of `here`.
#[derive(Debug, Args)]
#[command(after_help = examples::HERE, after_long_help = format!("{NOTES}\n\n{}", examples::HERE))]
pub(crate) struct Here {
    /// A bundled study (here, quick, io-paths, …) or the path of a study file; this machine
    /// replaces its targets
    #[arg(default_value = "here")]
    pub(crate) study: String,

    /// The mount point of the file system under test, of any type
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: PathBuf,

    /// Only these probe configurations; the baseline always stays
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub(crate) probe: Vec<ProbeConfiguration>,

    /// Only this cell (and the baseline that it is compared with), by its id in results; can be
    /// repeated
    #[arg(long, value_name = "ID")]
    pub(crate) cell: Vec<String>,

    /// Also test this tool: a bundled one (vfsstat-libbpf, …) or the path of a tool file; can be
    /// repeated. Tools that guests get from packages must be installed on this machine
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Vec<String>,

    /// Findings that the tools must not have (prototype-differs, …), or `all`: exit with 5 if one
    /// has
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "tool")]
    pub(crate) deny: Vec<Denied>,

    /// Replicates instead of the study's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) replicates: Option<u32>,

    /// The program of a real IOR, to use instead of the embedded engine
    #[arg(long, value_name = "FILE")]
    pub(crate) ior: Option<PathBuf>,

    /// Measure on several nodes of a cluster together: an agent and a tracer on each, IOR across
    /// all. Inside a job of Slurm, on its nodes; otherwise in a job that this command makes
    #[arg(long, requires = "ior", conflicts_with = "tool")]
    pub(crate) slurm: bool,

    /// Make a job of Slurm with this many nodes (outside of a job)
    #[arg(long, value_name = "N", requires = "slurm", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: Option<u32>,

    /// Ranks of IOR on each node, instead of the study's own number of ranks
    #[arg(long, value_name = "N", requires = "slurm", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) ranks_per_node: u32,

    /// The partition of the cluster for a new job
    #[arg(long, value_name = "NAME", requires = "nodes")]
    pub(crate) partition: Option<String>,

    /// A further option of salloc for a new job, with its value: `--salloc=--time=30`; can be
    /// repeated
    #[arg(long, value_name = "OPTION", requires = "nodes", allow_hyphen_values = true)]
    pub(crate) salloc: Vec<String>,

    /// The command that starts IOR across the nodes, in words: that of its MPI library. If it is
    /// not srun, also give its option for the number of ranks on a node (mpiexec -ppn 2)
    #[arg(long, value_name = "COMMAND", requires = "slurm", default_value = "srun --mpi=pmi2")]
    pub(crate) launcher: String,

    /// Directory for the results [default: bpfassay-results/STUDY-TIME]
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// How to report progress, as with `run`
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) message_format: MessageFormat,
}
