// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a study cannot be planned, set up or executed.

use std::path::PathBuf;

use bpfassay_protocol::Arch;
use bpfassay_results::{JournalError, ResultsError};
use bpfassay_study::{ExpandError, Interface, StudyError, Target};
use bpfassay_testbed::catalogue::CatalogueError;
use bpfassay_tool::ToolError;
use bpfassay_vm::{CommandLineTooLong, VmError};

use crate::{BlockStoreError, HostSetupError, RunnerError};

/// An error of a step from the study to its results. Guests and runs that fail are no errors, but
/// records of the journal.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The study cannot be read.
    #[error(transparent)]
    Study(#[from] StudyError),
    /// Results that are published without their journal cannot be read.
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
        /// Why not, and what to do.
        problem: String,
    },
    /// Guests would have to be made again with a tool whose file is not known.
    #[error("the guests must be made again, and the file of the tool {name} is not known here")]
    ToolUnknown {
        /// The tool.
        name: String,
    },
    /// The image that was named is no kernel for the study.
    #[error(transparent)]
    Kernel(Box<bpfassay_testbed::Error>),
    /// The directory of a real IOR cannot be read.
    #[error(transparent)]
    Ior(Box<bpfassay_testbed::Error>),
    /// A program that is to be IOR is not.
    #[error("{} names none of IOR's interfaces ({}): it is no IOR", path.display(), interfaces())]
    NotIor {
        /// The program.
        path: PathBuf,
    },
    /// Several ranks of a real IOR, and nothing to launch them with.
    #[error(
        "the study runs {ranks} MPI ranks of a real IOR on {arch}, and {} has no `mpiexec`, neither beside `ior` nor at usr/bin/mpiexec",
        tree.display()
    )]
    NoLauncher {
        /// The directory tree with IOR.
        tree: PathBuf,
        /// Its architecture.
        arch: Arch,
        /// How many ranks.
        ranks: u32,
    },
    /// Only the targets of a testbed manifest are requested, but no manifest is given.
    #[error("only the targets of a testbed manifest are requested, and no manifest is given: name one with --manifest")]
    NoManifest,
    /// The testbed has no guest for a target of the plan.
    #[error("the testbed manifest has no guest for {0}")]
    NoGuest(Target),
    /// The guests that a run was begun with are gone, and cannot be made again.
    #[error("{what} that this run was begun with {} gone", if *is_kernel { "is" } else { "are" })]
    GuestsGone {
        /// What is gone.
        what: &'static str,
        /// Whether it is a kernel image of the user's; otherwise guests with tools under test.
        is_kernel: bool,
        /// What is wrong with the files.
        #[source]
        source: Box<bpfassay_testbed::Error>,
    },
    /// A provider made no guests and reported no error.
    #[error("no guests were made: report it")]
    NoParts,
    /// Guests that were made again are not those of the run.
    #[error("the guests of this run are gone, and those that can be made now are different")]
    OtherGuests,
    /// A catalogue of the user's cannot be used.
    #[error("cannot use the catalogue {}", path.display())]
    OwnCatalogue {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<bpfassay_testbed::Error>,
    },
    /// What results were measured with cannot be had.
    #[error("cannot measure with what {} were measured with: {problem}", path.display())]
    Unlike {
        /// The results.
        path: PathBuf,
        /// What is missing or different.
        problem: String,
    },
    /// The cache cannot be used.
    #[error("cannot use the cache {}", path.display())]
    Cache {
        /// Its directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: Box<bpfassay_testbed::Error>,
    },
    /// The catalogue of kernels that is compiled in is wrong: a fault of this library.
    #[error(transparent)]
    Catalogue(CatalogueError),
    /// A testbed cannot be made or read.
    #[error(transparent)]
    Testbed(#[from] bpfassay_testbed::Error),
    /// No QEMU was found for an architecture, or KVM was demanded and does not work.
    #[error(transparent)]
    Vm(#[from] VmError),
    /// The study has a model of caches and branches, and QEMU loads no plugin that could use it.
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
    /// The host set-up lacks something that the plan needs: a fault of whoever prepared it.
    #[error(transparent)]
    HostSetup(#[from] HostSetupError),
    /// A value of this library cannot be written as JSON: a fault of this library.
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
    /// The execution had to end before everything was done.
    #[error(transparent)]
    Runner(#[from] RunnerError),
    /// A block of a journal has an id that cannot name a log.
    #[error("the plan has a block `{0}`, which cannot name a log")]
    BlockId(String),
    /// A run on a machine itself has no guests, of which a bundle could be made.
    #[error("{} was measured by `bpfassay here`, without guests: there is nothing to put into a bundle", .0.display())]
    NothingToBundle(PathBuf),
    /// A run on a machine itself cannot be continued with guests.
    #[error("cannot continue {}: it was begun by `bpfassay here`, without guests", .0.display())]
    WithoutGuests(PathBuf),
    /// Figures of the wall clock are different each time.
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
    /// No temporary directory could be made.
    #[error("cannot make a temporary directory")]
    Temporary(#[source] std::io::Error),
    /// This machine has an architecture that no study has.
    #[error("studies cannot be executed on this machine")]
    Machine(#[from] bpfassay_protocol::UnknownName),
    /// A program is missing on this machine.
    #[error("there is no executable {0} in PATH")]
    NoProgram(&'static str),
    /// A program of this machine cannot be started.
    #[error("cannot start {}", path.display())]
    Program {
        /// The program.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Nothing is mounted at the directory that was named: what is measured there would be all that
    /// others do on the mount that it lies on.
    #[error(
        "{} is no mount point: it lies on the {file_system} that is mounted at {}",
        path.display(),
        mount.display()
    )]
    NoMountPoint {
        /// The directory, without symbolic links.
        path: PathBuf,
        /// The mount that it lies on.
        mount: PathBuf,
        /// Its type.
        file_system: String,
    },
    /// What is mounted on this machine is not known.
    #[error("cannot read /proc/self/mountinfo, which shows what is mounted on this machine")]
    NoMountInfo(#[source] std::io::Error),
    /// A run that another build of this program began: its figures and those of this one are not to
    /// be mixed.
    #[error("this run was measured by another program: bpfassay {began}, and this is bpfassay {this}")]
    OtherProgram {
        /// The version and the digest of the one that measured.
        began: String,
        /// Those of this one.
        this: String,
    },
    /// The file system under test is not mounted.
    #[error("cannot use {} as the mount of the file system under test", path.display())]
    Mount {
        /// The directory.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

fn interfaces() -> String {
    Interface::ALL.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(", ")
}
