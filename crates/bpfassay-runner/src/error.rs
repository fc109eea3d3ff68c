// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a study cannot be planned, set up or executed.

use std::path::PathBuf;

use bpfassay_packages::error::PackagesError;
use bpfassay_protocol::Arch;
use bpfassay_results::{JournalError, ResultsError};
use bpfassay_study::{ExpandError, Interface, StudyError, Target};
use bpfassay_testbed::error::catalogue_error::CatalogueError;
use bpfassay_tool::ToolError;
use bpfassay_vm::{CommandLineTooLong, VmError};

use crate::{
    blocks::block_store::BlockStoreError,
    boot::{host_setup::HostSetupError, run_context::RunnerError},
};

/// An error in a step from the study to its results. Failed guests and runs are not errors, but
/// records of the journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The study cannot be read.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// Published results without a journal cannot be read.
    #[error(transparent)]
    Published(ResultsError),
    /// The study does not expand to a plan.
    #[error(transparent)]
    Expand(#[from] ExpandError),
    /// A tool file cannot be read.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The study cannot test this tool.
    #[error("cannot test the tool {name}: {problem}")]
    ToolRefused {
        /// The tool.
        name: String,
        /// The reason, and what to do.
        problem: String,
    },
    /// Guests must be built again with a tool whose file is unknown.
    #[error("the guests must be made again, and the file of the tool {name} is not known here")]
    ToolUnknown {
        /// The tool.
        name: String,
    },
    /// The image that the user named is not a kernel for the study.
    #[error(transparent)]
    Kernel(Box<bpfassay_testbed::Error>),
    /// The directory of a real IOR cannot be read.
    #[error(transparent)]
    Ior(Box<bpfassay_testbed::Error>),
    /// A program that was named as IOR is another program.
    #[error("{} names none of IOR's interfaces ({}): it is no IOR", path.display(), interfaces())]
    NotIor {
        /// The program.
        path: PathBuf,
    },
    /// A real IOR needs several ranks, and there is no program to launch them.
    #[error(
        "the study runs {ranks} MPI ranks of a real IOR on {arch}, and {} has no `mpiexec`, neither beside `ior` nor at usr/bin/mpiexec",
        tree.display()
    )]
    NoLauncher {
        /// The directory tree with IOR.
        tree: PathBuf,
        /// The architecture of IOR.
        arch: Arch,
        /// The number of ranks.
        ranks: u32,
    },
    /// The user requested only targets of a testbed manifest, but named no manifest.
    #[error("only the targets of a testbed manifest are requested, and no manifest is given: name one with --manifest")]
    NoManifest,
    /// The testbed has no guest for a target of the plan.
    #[error("the testbed manifest has no guest for {0}")]
    NoGuest(Target),
    /// The guests with which a run began no longer exist, and cannot be built again.
    #[error("{what} that this run was begun with {} gone", if *is_kernel { "is" } else { "are" })]
    GuestsGone {
        /// The missing guests.
        what: &'static str,
        /// Whether the user's kernel image no longer exists; otherwise guests with tools under test
        /// no longer exist.
        is_kernel: bool,
        /// The fault of the files.
        #[source]
        source: Box<bpfassay_testbed::Error>,
    },
    /// A provider made no guests and reported no error.
    #[error("no guests were made: report it")]
    NoParts,
    /// Guests that were built again differ from the guests of the run.
    #[error("the guests of this run are gone, and those that can be made now are different")]
    OtherGuests,
    /// The user's catalogue cannot be used.
    #[error("cannot use the catalogue {}", path.display())]
    OwnCatalogue {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<bpfassay_testbed::Error>,
    },
    /// The testbed that results were measured with cannot be had.
    #[error("cannot measure with what {} were measured with: {problem}", path.display())]
    Unlike {
        /// The results.
        path: PathBuf,
        /// The missing or different part.
        problem: String,
    },
    /// The cache cannot be used.
    #[error("cannot use the cache {}", path.display())]
    Cache {
        /// The directory of the cache.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<PackagesError>,
    },
    /// The compiled-in catalogue of kernels is wrong: a fault of this library.
    #[error(transparent)]
    Catalogue(CatalogueError),
    /// A testbed cannot be built or read.
    #[error(transparent)]
    Testbed(#[from] bpfassay_testbed::Error),
    /// No QEMU was found for an architecture, or KVM was demanded and does not work.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The study has a model of caches and branches, but QEMU does not load its plugin.
    #[error("the model `{model}` needs a plugin in QEMU, and {} loads none: {reason}", program.display())]
    NoPlugin {
        /// The model's name.
        model: String,
        /// QEMU's program.
        program: PathBuf,
        /// Why not, in one line.
        reason: String,
    },
    /// The kernel command line of a guest is too long.
    #[error(transparent)]
    CommandLine(#[from] CommandLineTooLong),
    /// The host set-up lacks something that the plan needs: a fault of the caller.
    #[error(transparent)]
    HostSetup(#[from] HostSetupError),
    /// A value cannot be written as JSON: a fault of this library.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The journal cannot be begun, read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A store of blocks cannot be used.
    #[error(transparent)]
    BlockStore(#[from] BlockStoreError),
    /// The results cannot be written.
    #[error("the results cannot be written, but the journal is complete")]
    Results(#[source] ResultsError),
    /// The execution ended before everything was done.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// A block of a journal has an id that cannot name a log.
    #[error("the plan has a block `{0}`, which cannot name a log")]
    BlockId(String),
    /// A run by `bpfassay here` has no guests to put into a bundle.
    #[error("{} was measured by `bpfassay here`, without guests: there is nothing to put into a bundle", .0.display())]
    NothingToBundle(PathBuf),
    /// A run by `bpfassay here` cannot be continued with guests.
    #[error("cannot continue {}: it was begun by `bpfassay here`, without guests", .0.display())]
    WithoutGuests(PathBuf),
    /// Figures of the wall clock differ each time.
    #[error("the figures of a wall clock are different each time: there is nothing to verify")]
    WallClock,
    /// The run to verify was continued with other guests or another QEMU.
    #[error(
        "this run was continued with other guests or another QEMU: the journal does not record which figures came from which"
    )]
    Continued,
    /// No block of the run to verify is complete.
    #[error("no block of this run is complete: there is nothing to verify")]
    NothingComplete,
    /// The host failed while a run was verified.
    #[error("host failure in block {0}: the figures were not compared")]
    VerifyHost(String),
    /// A temporary directory cannot be created.
    #[error("cannot make a temporary directory")]
    Temporary(#[source] std::io::Error),
    /// Another build of this program began the run. Figures of two builds must not be mixed.
    #[error("this run was measured by another program: bpfassay {began}, and this is bpfassay {this}")]
    OtherProgram {
        /// Version and digest of the program that began the run.
        began: String,
        /// Version and digest of this program.
        this: String,
    },
}

impl From<PackagesError> for Error {
    fn from(error: PackagesError) -> Self {
        Self::Testbed(error.into())
    }
}

fn interfaces() -> String {
    Interface::ALL.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(", ")
}
