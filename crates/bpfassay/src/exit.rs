// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes: documented API. Scripts can rely on them; a code never changes its meaning.

use std::{
    fmt::{self, Display},
    io,
    process::ExitCode,
};

use bpfassay_packages::error::PackagesError;
use bpfassay_results::{JournalError, ResultsError};
use rustix::io::Errno;

use crate::output;

/// Everything was done, and every run ended as expected.
pub(crate) const SUCCESS: u8 = 0;
pub(crate) const INTERNAL: u8 = 1;
/// The command line, a study file or another input is wrong.
pub(crate) const USAGE: u8 = 2;
/// The host, the network, the cache or a guest image could not be made ready; nothing is known
/// about the tool. Also used if runs failed only because the host failed: `run --resume` repeats
/// them.
pub(crate) const INFRASTRUCTURE: u8 = 3;
/// At least one run did not end as expected; apart from that, the results are complete.
pub(crate) const UNEXPECTED: u8 = 4;
/// A limit that the study's gates set is broken.
pub(crate) const REGRESSION: u8 = 5;
/// A gate could not be decided: too few or too scattered figures, or none.
pub(crate) const INCONCLUSIVE: u8 = 6;
/// `verify` found other raw figures than the recorded ones, or `testbed payload verify` other
/// programs than the offered ones.
pub(crate) const NOT_REPRODUCED: u8 = 7;
/// `run --bisect`: something under test is worse; `git bisect run` marks the kernel as bad.
pub(crate) const BISECT_WORSE: u8 = 1;
/// `run --bisect`: this kernel cannot be tested; `git bisect run` continues with another one.
pub(crate) const BISECT_UNTESTABLE: u8 = 125;
/// `run --bisect`: the command line or the host is at fault; `git bisect run` stops.
pub(crate) const BISECT_ABORTED: u8 = 128;
/// The command was interrupted; figures so far are kept, and `run --resume` continues.
pub(crate) const INTERRUPTED: u8 = 130;

/// The list of exit codes for `--help`, in 80 columns: clap does not indent lines that it wraps.
pub(crate) const HELP: &str = "\
Exit codes:
    0  everything was done and every run ended as expected
    1  a fault of bpfassay itself
    2  the command line, a study file or another input is wrong
    3  the host, the network, the cache or a guest image could not be made
       ready, or the host failed while measuring (`run --resume DIR` does what
       it failed again)
    4  at least one run ended otherwise than expected (and no gate found a
       regression)
    5  a gate found a regression, or `compare` or `run --against` did
    6  no gate found a regression, but at least one is inconclusive, which is
       no pass
    7  verify: re-executed runs have other raw figures; testbed payload verify:
       programs are not what their sources give
  130  interrupted; what was measured is kept, `run --resume DIR` goes on";

/// The exit codes of commands that have `--bisect`, for `--help`.
pub(crate) const BISECT_HELP: &str = "\
With --bisect, as `git bisect run` reads them:
    0  nothing under test is shown to be worse than in the base
    1  something under test is worse
  125  this kernel cannot be tested: it is not built, its image is damaged, it
       does not boot, or nothing can be compared
  128  anything else (2 to 4 of the above): git bisect stops; 130 as above";

#[derive(Debug)]
pub(crate) struct CommandFailure {
    pub(crate) code: u8,
    pub(crate) report: miette::Report,
}

impl CommandFailure {
    /// Reports `error` with its causes under `code`. If the host lacks descriptors or memory, it is
    /// an infrastructure failure instead.
    pub(crate) fn new(code: u8, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        if let Some(file) = output::InvalidFile::of(&error) {
            return Self { code, report: miette::Report::new(file) };
        }
        match want_of_host(&error) {
            // A lack of resources is never the fault of the input.
            Some(help) => Self { code: INFRASTRUCTURE, report: miette::Report::new(Helped { error, help }) },
            None => Self { code, report: miette::Report::from_err(error) },
        }
    }

    /// Reports `error` with its causes under `code`, and `help` if there is one. If the host lacks
    /// descriptors or memory, that help is shown in place of `help`.
    fn helped(code: u8, help: Option<&'static str>, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        match (help, want_of_host(&error)) {
            (Some(help), None) => Self { code, report: miette::Report::new(Helped { error, help }) },
            _ => Self::new(code, error),
        }
    }

    /// Reports something that could not be made ready.
    pub(crate) fn infrastructure(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(INFRASTRUCTURE, error)
    }

    /// Whether the failure is about the kernel under test, and not about the command line.
    pub(crate) fn is_of_kernel(&self) -> bool {
        self.report.downcast_ref::<OfKernel>().is_some()
    }

    /// Reports a kernel that cannot be tested.
    fn of_kernel(error: bpfassay_testbed::Error) -> Self {
        Self { code: USAGE, report: miette::Report::new(OfKernel(error)) }
    }

    /// Reports wrong input.
    pub(crate) fn usage(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(USAGE, error)
    }
}

impl From<bpfassay_runner::Error> for CommandFailure {
    fn from(error: bpfassay_runner::Error) -> Self {
        use bpfassay_runner::Error;
        let usage = |help: &'static str| (USAGE, Some(help));
        let infrastructure = |help: &'static str| (INFRASTRUCTURE, Some(help));
        let (code, help) = match error {
            Error::Testbed(error) => return error.into(),
            Error::Journal(error) => return error.into(),
            Error::Published(error) => return error.into(),
            Error::Expand(error) => return error.into(),
            Error::BlockStore(error) => return error.into(),
            // These errors are shown with the lines of the file that they concern.
            Error::Study(error) => return Self::usage(error),
            Error::Kernel(error) if is_of_kernel(&error) => return Self::of_kernel(*error),
            Error::Tool(error) => return Self::usage(error),
            Error::Results(_) | Error::Vm(_) | Error::Runner(_) => (INFRASTRUCTURE, None),
            Error::HostSetup(_) | Error::Json(_) | Error::Catalogue(_) | Error::NoParts => (INTERNAL, None),
            Error::ToolRefused { .. } | Error::Kernel(_) | Error::Ior(_) => (USAGE, None),
            Error::CommandLine(_) => (USAGE, None),
            Error::ToolUnknown { .. } => {
                usage("begin again in another directory, with --tool, or leave out what makes other guests")
            }
            Error::NotIor { .. } => usage(
                "a script that starts IOR, such as libtool or a wrapper makes, is not enough: put the program itself in \
                     its place",
            ),
            Error::NoLauncher { .. } => usage(
                "put mpiexec and what it needs of the same MPI library into the tree, or leave --ior out: the embedded engine needs none",
            ),
            Error::NoPlugin { .. } => infrastructure(
                "install a QEMU from 7.2 on with TCG plugins, such as Debian's, or leave the model out: instructions are counted where they can be",
            ),
            Error::NoManifest => usage("name the manifest with --manifest, or leave --available out"),
            Error::NoGuest(_) => {
                usage("name a testbed manifest that holds it, or narrow the study with --arch, --kernel or --available")
            }
            Error::GuestsGone { is_kernel: true, .. } => {
                usage("begin again in another directory, with --kernel and the path of the image")
            }
            Error::GuestsGone { is_kernel: false, .. } => usage("begin again in another directory, with --tool"),
            Error::OtherGuests => infrastructure(
                "use the bpfassay and the kernel packages that made it; results.json lists them under provenance",
            ),
            Error::OwnCatalogue { .. } => usage(
                "give --catalogue a TOML file of the form of kernels/debian.toml, with names that this does not have",
            ),
            Error::Unlike { .. } => usage(
                "use the bpfassay and the QEMU of these results, or a bundle of their guests (--bundle in place of --like); `bpfassay report` shows \
                     what they were measured with",
            ),
            Error::Cache { .. } => infrastructure(
                "the cache must be a directory that can be made and written to: name another one with --cache",
            ),
            Error::BlockId(_) => usage("take the results directory that bpfassay wrote, as it wrote it"),
            Error::WithoutGuests(_) => usage(
                "begin again with `bpfassay here`, in another directory; `bpfassay report` shows what was measured",
            ),
            Error::NothingToBundle(_) => (USAGE, None),
            Error::WallClock => usage("run the study with --clock instructions"),
            Error::Continued => usage("verify a run that was done with one testbed"),
            Error::NothingComplete => usage("continue it first: bpfassay run --resume DIR"),
            Error::VerifyHost(_) => infrastructure("see the messages above; then verify again"),
            Error::Temporary(_) => infrastructure("free some space there"),
            Error::OtherProgram { .. } => {
                usage("continue it with the bpfassay that began it, or begin again in another directory")
            }
        };
        Self::helped(code, help, error)
    }
}

impl From<bpfassay_here::HereError> for CommandFailure {
    fn from(error: bpfassay_here::HereError) -> Self {
        use bpfassay_here::HereError;
        let usage = |help: &'static str| (USAGE, Some(help));
        let infrastructure = |help: &'static str| (INFRASTRUCTURE, Some(help));
        let (code, help) = match error {
            HereError::Runner(error) => return error.into(),
            HereError::Machine(_) => (USAGE, None),
            HereError::NoProgram(_) => infrastructure(
                "put it into PATH: the guests' programs of the cache or of the flake (packages payload-ARCH) will do",
            ),
            HereError::Program { .. } => infrastructure("put programs of this bpfassay, for this machine, into PATH"),
            HereError::NoMountPoint { .. } => usage(
                "name that mount point with --mount, or mount the file system that is to be measured (mount --bind DIR DIR makes a directory a mount point)",
            ),
            HereError::NoMountInfo(_) => infrastructure("mount proc at /proc"),
            HereError::Mount { .. } => usage("--mount names the directory where the file system under test is mounted"),
        };
        Self::helped(code, help, error)
    }
}

impl From<bpfassay_report::render::FormatError> for CommandFailure {
    fn from(error: bpfassay_report::render::FormatError) -> Self {
        use bpfassay_report::render::FormatError;
        match error {
            FormatError::Figure(error) => Self::usage(error),
            FormatError::NoCoverage | FormatError::NoJunit => Self::usage(error),
            error => Self::new(INTERNAL, error),
        }
    }
}

impl From<bpfassay_runner::BlockStoreError> for CommandFailure {
    fn from(error: bpfassay_runner::BlockStoreError) -> Self {
        use bpfassay_runner::BlockStoreError;
        match error {
            BlockStoreError::Journal(error) => error.into(),
            BlockStoreError::NotAStore(_) | BlockStoreError::NoStore(_) | BlockStoreError::NoObjectStores(_) => {
                Self::usage(error)
            }
            error => Self::infrastructure(error),
        }
    }
}

impl From<bpfassay_runner::MergeError> for CommandFailure {
    fn from(error: bpfassay_runner::MergeError) -> Self {
        use bpfassay_runner::MergeError;
        match error {
            MergeError::Journal(error) => error.into(),
            MergeError::Conclude(error) => (*error).into(),
            MergeError::Write { .. } => Self::infrastructure(error),
            MergeError::Missing { .. } => {
                let help = "name the results directories of all shards, resume those that were interrupted, or merge what there is with \
                            --partial: `bpfassay run --resume OUT` then measures the rest";
                Self { code: USAGE, report: miette::Report::new(Helped { error, help }) }
            }
            error => Self::usage(error),
        }
    }
}

impl From<bpfassay_runner::SlurmError> for CommandFailure {
    fn from(error: bpfassay_runner::SlurmError) -> Self {
        use bpfassay_runner::SlurmError;
        match error {
            SlurmError::Wrong(_) | SlurmError::Other { .. } => Self::usage(error),
            SlurmError::Merge(error) => error.into(),
            SlurmError::NotMeasured { .. } => {
                let help = "the same command submits again what is missing";
                Self { code: INFRASTRUCTURE, report: miette::Report::new(Helped { error, help }) }
            }
            error => Self::infrastructure(error),
        }
    }
}

impl From<bpfassay_testbed::Error> for CommandFailure {
    fn from(error: bpfassay_testbed::Error) -> Self {
        use bpfassay_testbed::error::{Error, unusable_file::ManifestError};
        if is_of_kernel(&error) {
            return Self::of_kernel(error);
        }
        let error = match error {
            Error::Packages(error) => return error.into(),
            error => error,
        };
        let code = match &error {
            // The manifest itself is intact, but its files are not.
            Error::Manifest(ManifestError::File { .. }) => INFRASTRUCTURE,
            Error::Catalogue(_)
            | Error::LocalKernel { .. }
            | Error::Manifest(_)
            | Error::Bundle(_)
            | Error::TestbedSpec(_)
            | Error::Overlay(_)
            | Error::Tool { .. }
            | Error::ToolFile(_) => USAGE,
            _ => INFRASTRUCTURE,
        };
        Self::new(code, error)
    }
}

impl From<PackagesError> for CommandFailure {
    fn from(error: PackagesError) -> Self {
        let code = match &error {
            PackagesError::NotACache { .. } | PackagesError::Package(_) => USAGE,
            _ => INFRASTRUCTURE,
        };
        Self::new(code, error)
    }
}

impl From<bpfassay_study::ExpandError> for CommandFailure {
    fn from(error: bpfassay_study::ExpandError) -> Self {
        if matches!(error, bpfassay_study::ExpandError::NotInStudy { kind: "kernel", .. }) {
            let help = "`bpfassay list kernels` lists the kernels of the catalogue, which --kernel takes, too, by architecture";
            return Self { code: USAGE, report: miette::Report::new(Helped { error, help }) };
        }
        Self::usage(error)
    }
}

impl From<JournalError> for CommandFailure {
    fn from(error: JournalError) -> Self {
        let code = match &error {
            // The user named only the files that are read.
            JournalError::Io { action: "open" | "read", source, .. } if source.kind() == io::ErrorKind::NotFound => {
                USAGE
            }
            JournalError::Io { .. } => INFRASTRUCTURE,
            JournalError::Failed { .. } => INFRASTRUCTURE,
            JournalError::Json { .. } => INTERNAL,
            _ => USAGE,
        };
        Self::new(code, error)
    }
}

impl From<ResultsError> for CommandFailure {
    /// Converts errors of reading results.
    fn from(error: ResultsError) -> Self {
        let code = match &error {
            ResultsError::Io { action: "read", source, .. } if source.kind() == io::ErrorKind::NotFound => USAGE,
            ResultsError::Io { .. } => INFRASTRUCTURE,
            _ => USAGE,
        };
        Self::new(code, error)
    }
}

/// The exit code of a command, or why it failed.
pub(crate) type CommandOutcome = Result<u8, CommandFailure>;

/// Prints the report of a failure, and returns the process's exit code.
pub(crate) fn finish(outcome: CommandOutcome) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            output::print_report(&failure.report);
            ExitCode::from(failure.code)
        }
    }
}

/// Whether `error` is about a user's kernel that is not built or is damaged, as can happen in a
/// bisection.
const fn is_of_kernel(error: &bpfassay_testbed::Error) -> bool {
    use bpfassay_testbed::{Error, kernel_modules::ModulesError};
    matches!(
        error,
        Error::NotBuilt { .. }
            | Error::DamagedKernel { .. }
            | Error::UnusableImage { .. }
            | Error::Modules(
                ModulesError::NotBuilt { .. }
                    | ModulesError::MissingDependency { .. }
                    | ModulesError::ModInfo { .. }
                    | ModulesError::Decompress { .. }
            )
    )
}

/// An error about a kernel that cannot be tested.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct OfKernel(bpfassay_testbed::Error);

impl miette::Diagnostic for OfKernel {}

/// An error with advice.
#[derive(Debug)]
struct Helped<E> {
    error: E,
    help: &'static str,
}

impl<E: Display> Display for Helped<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<E: std::error::Error> std::error::Error for Helped<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<E: std::error::Error> miette::Diagnostic for Helped<E> {
    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(Box::new(self.help))
    }
}

/// Returns advice if `error`, or one of its causes, is a lack of descriptors, memory or space.
fn want_of_host(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.find_map(|error| {
        let (number, kind) = if let Some(error) = error.downcast_ref::<io::Error>() {
            (error.raw_os_error(), error.kind())
        } else if let Some(errno) = error.downcast_ref::<Errno>() {
            (Some(errno.raw_os_error()), errno.kind())
        } else {
            // serde_json's error does not expose the I/O error that caused it.
            (None, error.downcast_ref::<serde_json::Error>()?.io_error_kind()?)
        };
        match (number.map(Errno::from_raw_os_error), kind) {
            (Some(Errno::MFILE), _) => {
                Some("this process may have no more files open: raise the limit (ulimit -n), or lower --jobs")
            }
            (Some(Errno::NFILE), _) => {
                Some("this host has too many files open: end something else, or raise fs.file-max")
            }
            (_, io::ErrorKind::OutOfMemory) => Some("this host is out of memory: free some, or lower --jobs"),
            (_, io::ErrorKind::StorageFull) => Some("the file system is full: free some space there"),
            (_, io::ErrorKind::QuotaExceeded) => Some("the quota is used up: free some space there"),
            (_, io::ErrorKind::FileTooLarge) => {
                Some("a file may have no more bytes: raise the limit of this process (ulimit -f)")
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn help_lists_every_code() {
        for code in [
            SUCCESS,
            INTERNAL,
            USAGE,
            INFRASTRUCTURE,
            UNEXPECTED,
            REGRESSION,
            INCONCLUSIVE,
            NOT_REPRODUCED,
            BISECT_WORSE,
            BISECT_UNTESTABLE,
            BISECT_ABORTED,
            INTERRUPTED,
        ] {
            let mut lines = HELP.lines().chain(BISECT_HELP.lines());
            assert!(lines.any(|line| line.trim_start().starts_with(&format!("{code}  "))), "{code}");
        }
    }

    #[test]
    fn what_the_host_wants_is_no_fault_of_ours() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot do it")]
        struct Outer(#[source] io::Error);
        let code = |errno: Errno| {
            let error = || io::Error::from_raw_os_error(errno.raw_os_error());
            let failures = [
                CommandFailure::new(INTERNAL, error()),
                CommandFailure::usage(Outer(error())),
                CommandFailure::new(INTERNAL, errno),
            ];
            failures.map(|failure| (failure.code, failure.report.help().is_some()))
        };
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT, Errno::FBIG] {
            assert_eq!(code(errno), [(INFRASTRUCTURE, true); 3], "{errno}");
        }
        for errno in [Errno::NOENT, Errno::ACCESS, Errno::INVAL] {
            assert_eq!(code(errno), [(INTERNAL, false), (USAGE, false), (INTERNAL, false)], "{errno}");
        }
        struct Full;
        impl io::Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(Errno::NOSPC.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = serde_json::to_writer(Full, &1).unwrap_err();
        assert_eq!(CommandFailure::new(INTERNAL, error).code, INFRASTRUCTURE);
    }
}
