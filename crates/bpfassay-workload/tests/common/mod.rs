// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shared code of the tests against a real IOR and against its recorded expectations.

pub(crate) mod cases;
pub(crate) mod expectation;
pub(crate) mod skeleton;
pub(crate) mod strace;
pub(crate) mod trace;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use bpfassay_ior::Options;

/// The engine under test.
pub(crate) const ENGINE: &str = env!("CARGO_BIN_EXE_bpfassay-ior");

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Creates a directory on the disk of the build, which usually allows `O_DIRECT`, unlike some /tmp.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// One run to compare: a number of ranks, and a command line or a script.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) ranks: u32,
    pub(crate) job: Job,
}

#[derive(Debug, Clone)]
pub(crate) enum Job {
    Args(Box<Options>),
    /// The text of a script, without the name of its test file.
    Script(String),
}

/// The files of one run. Test files have their own directory, so that every call on them counts.
pub(crate) struct Places {
    pub(crate) root: tempfile::TempDir,
}

impl Places {
    pub(crate) fn new() -> Self {
        let root = scratch();
        for name in ["data", "calls"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        Self { root }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(crate) fn calls(&self) -> PathBuf {
        self.root.path().join("calls")
    }

    pub(crate) fn summary(&self) -> PathBuf {
        self.root.path().join("summary.json")
    }

    /// Returns the arguments of the case, with the test file in [`Self::data`] and the summary as
    /// JSON in [`Self::summary`].
    pub(crate) fn args(&self, case: &Case) -> Vec<String> {
        let test_file = self.data().join("t").display().to_string();
        let summary = format!("summaryFormat=JSON,summaryFile={}", self.summary().display());
        let mut args = match &case.job {
            Job::Args(options) => Options { test_file, ..(**options).clone() }.to_args(),
            Job::Script(text) => {
                let path = self.root.path().join("script.ior");
                fs::write(&path, text).unwrap();
                ["-f", path.to_str().unwrap(), "-o", &test_file].map(str::to_owned).into()
            }
        };
        args.extend(["-O".to_owned(), summary]);
        args
    }
}

/// Everything that is compared about one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Observed {
    pub(crate) succeeded: bool,
    /// Calls on test files of every rank, in compact form (see [`trace::compact`]).
    pub(crate) ranks: Vec<Vec<String>>,
    /// Remaining files: name, size, checksum of the contents.
    pub(crate) files: Vec<String>,
    /// Keys and types of the JSON summary (see [`skeleton::of`]).
    pub(crate) skeleton: String,
}

/// Runs the engine on the case. The engine records its calls.
pub(crate) fn run_engine(case: &Case, places: &Places) -> (Observed, Output) {
    let output = Command::new(ENGINE)
        .args(["--ranks", &case.ranks.to_string(), "--record"])
        .arg(places.calls())
        .args(places.args(case))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let ranks = (0..case.ranks)
        .map(|rank| {
            let text = fs::read_to_string(places.calls().join(format!("rank.{rank}"))).unwrap_or_default();
            trace::compact(text.lines().map(|line| trace::relative(line, &places.data())))
        })
        .collect();
    (observed(places, ranks, output.status.success()), output)
}

pub(crate) fn observed(places: &Places, ranks: Vec<Vec<String>>, succeeded: bool) -> Observed {
    let skeleton = fs::read(places.summary()).map_or_else(|_| "none".to_owned(), |text| skeleton::of(&text));
    Observed { succeeded, ranks, files: left_files(&places.data()), skeleton }
}

fn left_files(data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![data.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let bytes = fs::read(&path).unwrap();
                let name = path.strip_prefix(data).unwrap().display();
                found.push(format!("{name} {} {:016x}", bytes.len(), checksum(&bytes)));
            }
        }
    }
    found.sort();
    found
}

/// FNV-1a over 8-byte words. It suffices to distinguish contents.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

impl Case {
    /// Returns whether the contents of the files depend on the time.
    pub(crate) fn has_timestamps(&self) -> bool {
        match &self.job {
            Job::Args(options) => options.signature == 0,
            Job::Script(text) => !text.to_ascii_lowercase().contains("settimestampsignature"),
        }
    }

    /// Returns whether files are opened with `O_DIRECT`, which not every file system allows.
    pub(crate) fn is_direct(&self) -> bool {
        match &self.job {
            Job::Args(options) => options.posix.direct,
            Job::Script(text) => text.to_ascii_lowercase().contains("direct"),
        }
    }

    /// Returns the arguments or the script, for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.job {
            Job::Args(options) => options.to_args().join(" "),
            Job::Script(text) => text.clone(),
        }
    }
}

impl Observed {
    /// Removes the checksums of files whose contents depend on the time.
    pub(crate) fn comparable(mut self, case: &Case) -> Self {
        if case.has_timestamps() {
            for file in &mut self.files {
                if let Some((name_and_size, _)) = file.rsplit_once(' ') {
                    *file = format!("{name_and_size} -");
                }
            }
        }
        self
    }

    /// Describes the first difference.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        if self.succeeded != other.succeeded {
            return Some(format!("success {} against {}", self.succeeded, other.succeeded));
        }
        for (rank, (ours, theirs)) in self.ranks.iter().zip(&other.ranks).enumerate() {
            let same = ours.iter().zip(theirs).take_while(|(ours, theirs)| ours == theirs).count();
            if same < ours.len().max(theirs.len()) {
                let (ours, theirs) = (ours.get(same), theirs.get(same));
                return Some(format!("rank {rank}, line {same}: {ours:?} against {theirs:?}"));
            }
        }
        if self.files != other.files {
            return Some(format!("files left {:?} against {:?}", self.files, other.files));
        }
        (self != other).then(|| format!("JSON\n  {}\n against\n  {}", self.skeleton, other.skeleton))
    }
}

/// Returns whether files in the scratch directory can be opened with `O_DIRECT`.
pub(crate) fn allows_direct() -> bool {
    use std::os::unix::fs::OpenOptionsExt as _;
    let root = scratch();
    fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(root.path().join("t"))
        .is_ok()
}
