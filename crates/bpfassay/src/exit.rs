//! Exit codes: documented API. Scripts may rely on them; a code never changes its meaning.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use bpfassay_report::JournalError;

/// Everything was done, and every run ended as expected.
pub(crate) const SUCCESS: u8 = 0;
/// A fault of bpfassay itself.
pub(crate) const INTERNAL: u8 = 1;
/// The command line, a study file or another input is wrong.
pub(crate) const USAGE: u8 = 2;
/// The host, the network, the cache or a guest image could not be made ready; nothing is known about the tool. Also where runs
/// failed by host trouble and nothing else went wrong: `run --resume` does them again.
pub(crate) const INFRASTRUCTURE: u8 = 3;
/// At least one run ended otherwise than expected; the results are complete but for these.
pub(crate) const UNEXPECTED: u8 = 4;
/// A limit that the study's gates set is broken.
pub(crate) const REGRESSION: u8 = 5;
/// A gate could be judged neither way: too few or too scattered figures, or none.
pub(crate) const INCONCLUSIVE: u8 = 6;
/// `verify` found other raw figures than those recorded.
pub(crate) const NOT_REPRODUCED: u8 = 7;
/// Interrupted; what was measured is kept and `run --resume` goes on.
pub(crate) const INTERRUPTED: u8 = 130;

/// The list for `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
    0  everything was done and every run ended as expected
    1  a fault of bpfassay itself
    2  the command line, a study file or another input is wrong
    3  the host, the network, the cache or a guest image could not be made ready, or the host failed while measuring
       (`run --resume DIR` does what it failed again)
    4  at least one run ended otherwise than expected (and no gate found a regression)
    5  a gate found a regression
    6  no gate found a regression, but at least one is inconclusive, which is no pass
    7  verify: carried out again, the raw figures are others
  130  interrupted; what was measured is kept, `run --resume DIR` goes on";

/// An error that knows its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) code: u8,
    /// What to tell.
    pub(crate) report: miette::Report,
}

impl Failure {
    /// `error` with its causes, under `code`; but where it comes from a host that has no descriptors or memory left, as such.
    pub(crate) fn new(code: u8, error: impl std::error::Error + Send + Sync + 'static) -> Self {
        let exhausted = exhausted(&error);
        let report = miette::Report::from_err(error);
        match exhausted {
            Some(what) => Self { code: INFRASTRUCTURE, report: report.wrap_err(what) },
            None => Self { code, report },
        }
    }

    /// Something that could not be made ready.
    pub(crate) fn infrastructure(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(INFRASTRUCTURE, error)
    }

    /// A wrong input.
    pub(crate) fn usage(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::new(USAGE, error)
    }
}

impl From<bpfassay_testbed::Error> for Failure {
    fn from(error: bpfassay_testbed::Error) -> Self {
        use bpfassay_testbed::{Error, manifest::ManifestError};
        let code = match &error {
            // The manifest is sound, its files are not.
            Error::Manifest(ManifestError::File { .. }) => INFRASTRUCTURE,
            Error::NotACache { .. }
            | Error::Catalogue(_)
            | Error::LocalKernel { .. }
            | Error::Manifest(_)
            | Error::Recipe(_)
            | Error::Overlay(_)
            | Error::Tool { .. }
            | Error::ToolFile(_) => USAGE,
            _ => INFRASTRUCTURE,
        };
        Self::new(code, error)
    }
}

impl From<bpfassay_study::ExpandError> for Failure {
    fn from(error: bpfassay_study::ExpandError) -> Self {
        Self::usage(error)
    }
}

impl From<JournalError> for Failure {
    fn from(error: JournalError) -> Self {
        let code = match &error {
            JournalError::Io { source, .. } if source.kind() != io::ErrorKind::NotFound => INFRASTRUCTURE,
            JournalError::Failed { .. } => INFRASTRUCTURE,
            JournalError::Json { .. } => INTERNAL,
            _ => USAGE,
        };
        Self::new(code, error)
    }
}

/// What the host has no more of, where that is a cause of `error`, and what to do. No input is wrong then, and no program.
fn exhausted(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    const OPEN_FILES: &str = "this process may open no more files: raise the limit (`ulimit -n`) and run it again";
    const ALL_FILES: &str = "this host can open no more files (fs.file-max): end other programs and run it again";
    const MEMORY: &str = "this host has no memory left: end other programs and run it again";
    let mut cause = Some(error);
    while let Some(found) = cause {
        let system = found.downcast_ref::<io::Error>().and_then(rustix::io::Errno::from_io_error);
        match system.or_else(|| found.downcast_ref::<rustix::io::Errno>().copied()) {
            Some(rustix::io::Errno::MFILE) => return Some(OPEN_FILES),
            Some(rustix::io::Errno::NFILE) => return Some(ALL_FILES),
            Some(rustix::io::Errno::NOMEM) => return Some(MEMORY),
            _ => cause = found.source(),
        }
    }
    None
}

/// `error` and its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// What a verb comes to.
pub(crate) type Outcome = Result<u8, Failure>;

/// As the process's exit code, after the report was printed.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            tell(&failure.report);
            ExitCode::from(failure.code)
        }
    }
}

fn tell(report: &miette::Report) {
    // Nobody can be told that standard error is gone; the exit code remains.
    let _ = writeln!(io::stderr(), "{report:?}");
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_host_that_has_nothing_left_is_no_wrong_input() {
        let failing = |errno: Errno| bpfassay_testbed::Error::Io {
            action: "read",
            path: "x".into(),
            source: io::Error::from(errno),
        };
        for (errno, code, words) in [
            (Errno::MFILE, INFRASTRUCTURE, "ulimit -n"),
            (Errno::NFILE, INFRASTRUCTURE, "no more files"),
            (Errno::NOMEM, INFRASTRUCTURE, "no memory left"),
            (Errno::NOENT, USAGE, "cannot read x"),
        ] {
            let failure = Failure::usage(failing(errno));
            assert_eq!(failure.code, code, "{errno}");
            assert!(failure.report.to_string().contains(words), "{}", failure.report);
            assert!(format!("{:?}", failure.report).contains("cannot read x"), "{:?}", failure.report);
        }
        assert_eq!(Failure::new(INTERNAL, Errno::MFILE).code, INFRASTRUCTURE);
    }

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
            INTERRUPTED,
        ] {
            assert!(HELP.lines().any(|line| line.trim_start().starts_with(&format!("{code}  "))), "{code}");
        }
    }
}
