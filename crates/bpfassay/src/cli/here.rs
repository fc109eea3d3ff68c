// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `here`.

use std::path::PathBuf;

use bpfassay_protocol::ProbeConfiguration;
use bpfassay_study::Denied;
use clap::Args;

use super::MessageFormat;

/// Arguments of `here`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Needs root, a kernel with cgroup v2 (mounted anywhere, or nowhere), and the programs bpfassay-guest, bpfassay-tracer and bpfassay-ior in PATH. Time is \
measured by the wall clock. The file system takes the place of the study's: any that is mounted. Mounts nothing that other \
programs see and changes no setting; before each run the page cache is written out and dropped. Runs have a directory .bpfassay-here-… \
in the file system and a cgroup, which are removed at the end, also where this program or the agent is killed.")]
pub(crate) struct Here {
    /// A bundled study (here, quick, io-paths, …) or the path of a study file; this machine takes the place of its targets
    #[arg(default_value = "here")]
    pub(crate) study: String,

    /// Where the file system under test is mounted: of any type, and a mount point
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: PathBuf,

    /// Only these probe configurations; the baseline always stays
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub(crate) probe: Vec<ProbeConfiguration>,

    /// Only this cell (and the baseline that it is compared with), by its id in results; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) cell: Vec<String>,

    /// Test this tool as well: a bundled one (vfsstat, filetop, …) or the path of a tool file; may be given several times. What comes from packages in
    /// guests is what is installed on this machine
    #[arg(long, value_name = "TOOL")]
    pub(crate) tool: Vec<String>,

    /// Findings that the tools may not have (prototype-differs, …), or `all`: exit with 5 where one has
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "tool")]
    pub(crate) deny: Vec<Denied>,

    /// Replicates in place of the study's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) replicates: Option<u32>,

    /// The program of a real IOR, to use in place of the embedded engine
    #[arg(long, value_name = "FILE")]
    pub(crate) ior: Option<PathBuf>,

    /// Directory for the results [default: bpfassay-results/STUDY-TIME]
    #[arg(long, short, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,

    /// How to report what happens, as with `run`
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    pub(crate) message_format: MessageFormat,
}
