// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes what a run needs before it starts: downloads, disk space, and time on this machine.
//! The cache records how long earlier runs took.

use bpfassay_packages::{
    digest::Digest,
    error::human,
    stages::{StageKind, Stages},
};
use bpfassay_report::render::count;
use bpfassay_results::plain;
use bpfassay_runner::{PoolSummary, Store, StudySelection, missing_parts};
use bpfassay_study::Plan;
use bpfassay_testbed::missing::MissingParts;

use crate::progress::duration;

/// Kind of the cache's records of durations.
const RECORD: &str = "duration";

/// Describes what guests of `plan` need that the cache lacks, and how long the run takes here, in
/// lines. Uses no network.
pub(crate) fn lines(store: &Store, selection: &StudySelection, plan: &Plan) -> Vec<String> {
    let runs: usize = plan.measured_blocks().iter().map(|block| block.runs.len()).sum();
    let most = if plan.until().is_some() { "at most " } else { "" };
    let measuring = recorded(store, &key_of_runs(plan)).map(|of_run| of_run * runs as f64);
    let runs = count(runs, "run");
    let parts = match missing_parts(store, selection, plan) {
        Ok(missing) if missing.is_empty() => None,
        Ok(missing) => Some(in_words(&missing, built_in(store, &missing))),
        Err(error) => Some(format!("what is to be downloaded is not known: {}", plain::line(&error.to_string()))),
    };
    let time = match measuring {
        Some(seconds) => format!("{most}{runs}: about {}, as the last run of this study here", duration(seconds)),
        None => format!("{most}{runs}: the time is not known before a first run of this study here"),
    };
    parts.into_iter().chain([time]).collect()
}

/// Describes `missing`, which took `seconds` to build before, if that is known.
fn in_words(missing: &MissingParts, seconds: Option<f64>) -> String {
    let some = |number: usize, of: &str| (number > 0).then(|| count(number, of));
    let programs = some(missing.programs.len(), "architecture").map(|of| format!("the guest programs of {of}"));
    let parts = [
        some(missing.kernels.len(), "kernel"),
        missing.qemu.then(|| "QEMU".to_owned()),
        missing.toolchain.then(|| "the cross toolchain".to_owned()),
        programs,
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let sizes = match (missing.download, missing.disk) {
        (Some(0), Some(disk)) => format!("all packages are in the cache, takes about {} of disk space", human(disk)),
        (Some(download), Some(disk)) => {
            format!("downloads {} of packages, takes about {} of disk space", human(download), human(disk))
        }
        _ => "testbed.lock does not name all of their packages, so the size of the downloads is not known".to_owned(),
    };
    let time = seconds.map(|seconds| format!("; built in {} here before", duration(seconds)));
    format!("the cache lacks {}: {sizes}{}", parts.join(", "), time.unwrap_or_default())
}

/// Returns how many seconds it took to build what is `missing`, if all of that was built here
/// before.
fn built_in(store: &Store, missing: &MissingParts) -> Option<f64> {
    let programs = missing.programs.iter().map(|arch| (StageKind::Programs, arch.name()));
    let toolchain = missing.toolchain.then_some((StageKind::Toolchain, ""));
    let stages: Vec<_> = programs.chain(toolchain).collect();
    let seconds: Option<f64> = stages.iter().map(|(kind, of)| recorded(store, &key_of_stage(*kind, of))).sum();
    seconds.filter(|_| !stages.is_empty())
}

/// Records how long the stages of a run took, so that the next run can say it. Measuring is
/// recorded if no other stage ran in parallel, no block was reused, and the run was not
/// interrupted. A duration that cannot be written is left out.
pub(crate) fn remember(store: &Store, stages: &Stages, plan: &Plan, summary: &PoolSummary) {
    let runs = summary.measured + summary.refused + summary.failed;
    let is_whole = summary.reused == 0 && !summary.cancelled && summary.paused.is_none();
    let timings = stages.timings();
    for timing in &timings {
        let is_beside_builds = || timings.iter().any(|other| other.kind != timing.kind && timing.overlaps(other));
        let seconds = timing.took.as_secs_f64();
        match timing.kind {
            StageKind::Toolchain | StageKind::Programs => {
                record(store, &key_of_stage(timing.kind, &timing.subject), seconds);
            }
            StageKind::Measuring if runs > 0 && is_whole && !is_beside_builds() => {
                record(store, &key_of_runs(plan), seconds / runs as f64);
            }
            _ => {}
        }
    }
}

fn key_of_stage(kind: StageKind, subject: &str) -> Digest {
    Digest::of_parts(["stage", kind.name(), subject])
}

/// Names the runs of a study by its clock: another workload or clock takes another time.
fn key_of_runs(plan: &Plan) -> Digest {
    Digest::of_parts(["run", &plan.study.name, &plan.study.clock.to_string()])
}

fn recorded(store: &Store, key: &Digest) -> Option<f64> {
    store.cache.recorded::<f64>(RECORD, key).ok().flatten().filter(|seconds| seconds.is_finite() && *seconds > 0.0)
}

fn record(store: &Store, key: &Digest, seconds: f64) {
    if let Err(error) = store.cache.record(RECORD, key, &seconds) {
        tracing::debug!("the duration of this run is not recorded: {error}");
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::Arch;
    use bpfassay_runner::StoreOptions;
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    #[test]
    fn what_is_missing_is_said_in_one_line() {
        let missing = MissingParts {
            kernels: vec![(Arch::X86_64, "6.12".to_owned()), (Arch::Aarch64, "6.1".to_owned())],
            programs: vec![Arch::X86_64],
            toolchain: true,
            qemu: false,
            download: Some(1_400_000_000),
            disk: Some(5_800_000_000),
        };
        let expected = "the cache lacks 2 kernels, the cross toolchain, the guest programs of 1 architecture: downloads 1.4 GB of packages, \
                        takes about 5.8 GB of disk space";
        assert_eq!(in_words(&missing, None), expected);
        assert_eq!(in_words(&missing, Some(540.0)), format!("{expected}; built in 9 min here before"));
        let unknown = in_words(&MissingParts { download: None, ..missing }, None);
        assert!(unknown.ends_with("the size of the downloads is not known"), "{unknown}");
    }

    #[test]
    fn a_second_run_says_how_long_the_first_took() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(&StoreOptions { cache: Some(directory.path().into()), ..StoreOptions::default() }).unwrap();
        let study = bpfassay_study::load("quick").unwrap();
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let selection = StudySelection::of_study("quick");
        let last = |store| lines(store, &selection, &plan).pop().unwrap();
        assert_eq!(last(&store), "72 runs: the time is not known before a first run of this study here");
        record(&store, &key_of_runs(&plan), 10.0);
        assert_eq!(last(&store), "72 runs: about 12 min, as the last run of this study here");
        // Stages of another kind are not needed for the same.
        let missing = MissingParts { programs: vec![Arch::X86_64], toolchain: true, ..MissingParts::default() };
        record(&store, &key_of_stage(StageKind::Programs, "x86_64"), 100.0);
        assert_eq!(built_in(&store, &missing), None);
        record(&store, &key_of_stage(StageKind::Toolchain, ""), 50.0);
        assert_eq!(built_in(&store, &missing), Some(150.0));
        assert_eq!(built_in(&store, &MissingParts::default()), None);
    }
}
