// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `here`.

use std::path::PathBuf;

use bpfassay_protocol::ProbeConfiguration;
use clap::Args;

use super::MessageFormat;

/// Arguments of `here`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Needs root, cgroup v2, and the programs bpfassay-guest, bpfassay-tracer and bpfassay-ior in PATH. Time is measured by the wall \
clock. Mounts nothing and changes no setting; before each run the page cache is written out and dropped, and the directory \
.bpfassay-here of the file system is emptied.")]
pub(crate) struct Here {
    /// A bundled study (quick, io-paths) or the path of a study file; this machine takes the place of its targets
    #[arg(default_value = "quick")]
    pub(crate) study: String,

    /// Where the file system under test is mounted: one such as the study names (NFS of that version, tmpfs)
    #[arg(long, value_name = "DIR")]
    pub(crate) mount: PathBuf,

    /// Only these probe configurations; the baseline always stays
    #[arg(long, value_name = "PROBE", value_delimiter = ',')]
    pub(crate) probe: Vec<ProbeConfiguration>,

    /// Only this cell (and the baseline that it is compared with), by its id in results; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) cell: Vec<String>,

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
