// SPDX-License-Identifier: MIT OR Apache-2.0
//! The study into which faults are injected, and its artificial guests.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use bpfassay_packages::digest::Digest;
use bpfassay_protocol::{job::RunSpec, message::RunFigures};
use bpfassay_study::{Available, Narrowing, Plan, PlannedRun, Study, expand};
use bpfassay_testbed::initramfs::{Archive, NewcNode};

use crate::{
    agent::lying_figures::{FigureState, RELEASE},
    fake_qemu::QemuError,
};

/// Seed of the study. The seed of a block's machine is this plus the replicate.
const SEED: u64 = 1000;

/// The clock of guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TrialClock {
    /// The instruction clock; the output of guests goes to files.
    Instructions,
    /// The wall clock; the output of guests goes to sockets.
    Wall,
}

/// The size and the clock of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StudyShape {
    /// The clock.
    pub clock: TrialClock,
    /// Number of rounds in each boot.
    pub rounds: u32,
    /// Number of boots.
    pub replicates: u32,
}

impl fmt::Display for StudyShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = match self.clock {
            TrialClock::Instructions => "instructions",
            TrialClock::Wall => "wall",
        };
        write!(f, "{clock} {}x{}", self.replicates, self.rounds)
    }
}

/// Why a trial cannot be created: an error of this program or of the host.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// The study cannot be parsed or expanded, or a result is not what it must be.
    #[error("the study of the test is wrong: {0}")]
    Study(String),
    /// A file could not be written.
    #[error("could not write the files of a test")]
    Io(#[from] io::Error),
    /// There is no QEMU to start.
    #[error(transparent)]
    Qemu(#[from] QemuError),
}

/// A study with its plan.
#[derive(Debug, Clone)]
pub struct TrialStudy {
    /// The size and clock.
    pub shape: StudyShape,
    /// The study file's text.
    pub text: String,
    /// The plan of the study.
    pub plan: Plan,
}

impl TrialStudy {
    /// Creates the study of `shape`.
    ///
    /// # Errors
    /// [`ChaosError::Study`] if the study cannot be parsed or expanded.
    pub fn new(shape: StudyShape) -> Result<Self, ChaosError> {
        let text = text(shape);
        let wrong = |error: &dyn fmt::Display| ChaosError::Study(error.to_string());
        let study = Study::parse("chaos.toml", &text, &|_| Ok(None)).map_err(|error| wrong(&error))?;
        let plan = expand(&study, &Narrowing::default(), &Available::default()).map_err(|error| wrong(&error))?;
        Ok(Self { shape, text, plan })
    }

    /// Returns the figures of the run `wanted` in a boot that does `runs`, if it is among them.
    #[must_use]
    pub fn figures<'a>(
        &self,
        replicate: u32,
        runs: impl IntoIterator<Item = &'a PlannedRun>,
        wanted: &str,
    ) -> Option<RunFigures> {
        let seed = match self.shape.clock {
            TrialClock::Instructions => SEED + u64::from(replicate),
            // Guests under the wall clock get no seed.
            TrialClock::Wall => 0,
        };
        let mut past = FigureState::new(seed);
        for run in runs {
            if run.spec.id == wanted {
                return Some(past.figures(&run.spec));
            }
            past.ran(&run.spec.id);
        }
        None
    }
}

/// Whether a run can be blamed: it has a probe or a tool.
#[must_use]
pub fn is_tool_run(spec: &RunSpec) -> bool {
    !spec.probe.is_baseline() || spec.tool.is_some()
}

/// Returns the study file. Its deadlines are time of the host, and bpfassay multiplies them by six
/// under the instruction clock. Even a loaded host must reach the agent's first message within the
/// first deadline, and the next phase within the second. A guest without CPU time for longer counts
/// as hanging.
fn text(shape: StudyShape) -> String {
    let (clock, boot, phase) = match shape.clock {
        TrialClock::Instructions => ("instructions", "2s", "2s"),
        TrialClock::Wall => ("wall", "10s", "10s"),
    };
    StudyText {
        arch: "x86_64",
        clock,
        probes: r#""none", "kprobe", "fexit""#,
        block_size: "1m",
        rounds: shape.rounds,
        replicates: shape.replicates,
        seed: SEED,
        more: "control = true\n[guest]\nmemory_mib = 384",
        boot,
        phase,
    }
    .to_string()
}

/// The study file. The fields are what differs between scripted and real guests.
pub(crate) struct StudyText {
    /// The architecture of the guests.
    pub(crate) arch: &'static str,
    pub(crate) clock: &'static str,
    /// The probe configurations, as elements of a list.
    pub(crate) probes: &'static str,
    pub(crate) block_size: &'static str,
    pub(crate) rounds: u32,
    pub(crate) replicates: u32,
    pub(crate) seed: u64,
    /// Further lines after the seed.
    pub(crate) more: &'static str,
    /// The boot deadline, with its unit.
    pub(crate) boot: &'static str,
    /// The deadline of every other phase, with its unit.
    pub(crate) phase: &'static str,
}

impl fmt::Display for StudyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arch, clock, probes, block_size, rounds, replicates, seed, more, boot, phase } = self;
        write!(
            f,
            r#"
schema = 1
name = "chaos"
description = "A study with faults."
clock = "{clock}"
probes = [{probes}]
[[targets]]
arch = "{arch}"
kernels = "6.12"
[[file_systems]]
type = "tmpfs"
size_mib = 32
[[workloads]]
name = "w"
options = "-a POSIX -w -r -t 256k -b {block_size}"
[design]
replicates = {replicates}
rounds = {rounds}
warm_up = 1
seed = {seed}
{more}
[deadlines]
boot = "{boot}"
set-up = "{phase}"
attach = "{phase}"
workload = "{phase}"
tear-down = "{phase}"
"#
        )
    }
}

/// The files of an artificial testbed.
#[derive(Debug, Clone)]
pub struct ArtificialTestbed {
    /// Path of the manifest.
    pub manifest: PathBuf,
    /// Paths of a kernel image and an initramfs, which are never booted.
    pub images: [PathBuf; 2],
}

impl ArtificialTestbed {
    /// Writes the testbed into `directory`.
    ///
    /// # Errors
    /// [`ChaosError::Io`] if a file of the testbed cannot be written.
    pub fn make(directory: &Path) -> Result<Self, ChaosError> {
        let images = ["kernel", "base.cpio"].map(|name| directory.join(name));
        let mut archive = Archive::default();
        let content = b"an agent that never runs".repeat(100).into();
        archive.add("/init", NewcNode::File { executable: true, content }).map_err(io::Error::other)?;
        let base = archive.to_bytes().map_err(io::Error::other)?;
        fs::write(&images[0], b"a kernel that never boots".repeat(100))?;
        fs::write(&images[1], base)?;
        let described = |path: &Path| -> io::Result<serde_json::Value> {
            let bytes = fs::read(path)?;
            Ok(serde_json::json!({
                "path": path, "size": bytes.len(), "sha256": Digest::of(&bytes).to_string(),
            }))
        };
        let manifest = serde_json::json!({
            "format": bpfassay_testbed::manifest::FORMAT,
            "provider": {"name": "local", "version": "0"},
            "toolchain": [],
            "targets": [{
                "arch": "x86_64",
                "name": "6.12",
                "kernel": {
                    "release": RELEASE, "version": null, "image": described(&images[0])?,
                    "config": null, "modules": null, "packages": [],
                },
                "initramfs": [{"role": "base", "archive": described(&images[1])?, "contents": []}],
            }],
        });
        let path = directory.join("manifest.json");
        fs::write(&path, manifest.to_string())?;
        Ok(Self { manifest: path, images })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bpfassay_testbed::manifest::{Check, Manifest};

    use super::*;

    const SHAPE: StudyShape = StudyShape { clock: TrialClock::Instructions, rounds: 2, replicates: 2 };

    #[test]
    fn the_study_has_the_runs_that_faults_need() {
        let study = TrialStudy::new(SHAPE).unwrap();
        assert_eq!(study.plan.blocks.len(), 2);
        for block in &study.plan.blocks {
            assert!(block.runs[0].warm_up);
            assert_eq!(block.runs.iter().filter(|run| is_tool_run(&run.spec)).count(), 4);
            assert_eq!(block.runs.len(), 9);
        }
    }

    #[test]
    fn figures_depend_on_earlier_runs_and_the_seed_only() {
        let study = TrialStudy::new(SHAPE).unwrap();
        let block = &study.plan.blocks[0];
        let last = &block.runs[8].spec.id;
        let whole = study.figures(1, &block.runs, last).unwrap();
        assert_eq!(study.figures(1, &block.runs, last).unwrap(), whole);
        let mut all: BTreeSet<String> = BTreeSet::from([format!("{whole:?}")]);
        for left_out in 0..8 {
            let rest = block.runs.iter().enumerate().filter(|(index, _)| *index != left_out).map(|(_, run)| run);
            all.insert(format!("{:?}", study.figures(1, rest, last).unwrap()));
        }
        all.insert(format!("{:?}", study.figures(2, &block.runs, last).unwrap()));
        assert_eq!(all.len(), 10, "each run before it, and the seed, make a difference");
        assert_eq!(study.figures(1, &block.runs, "no such run"), None);
    }

    #[test]
    fn the_testbed_can_be_read() {
        let directory = tempfile::tempdir().unwrap();
        let testbed = ArtificialTestbed::make(directory.path()).unwrap();
        let manifest = Manifest::load(&testbed.manifest, Check::Content).unwrap();
        assert_eq!(manifest.targets.len(), 1);
    }
}
