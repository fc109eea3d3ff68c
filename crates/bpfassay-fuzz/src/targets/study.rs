// SPDX-License-Identifier: MIT OR Apache-2.0
//! Studies, and the output of programs that a study runs as workloads.

use std::sync::LazyLock;

use bpfassay_input::document;
use bpfassay_study::{Available, Clock, Denied, MetricInput, Narrowing, Share, Study, WorkloadSpec, expand, load};

const SCRIPT: &str = "IOR START\napi=POSIX\ntransferSize=1m\nblockSize=4m\nRUN\ntransferSize=2m\nRUN\nIOR STOP\n";

/// A study: a valid one must survive a round trip, and can be expanded unless it is large.
pub(super) fn study(text: &str) {
    let Ok(study) = Study::parse("s.toml", text, &|_| Ok(Some(SCRIPT.to_owned()))) else { return };
    let again = serde_json::to_vec(&study).ok().and_then(|text| serde_json::from_slice::<Study>(&text).ok());
    assert_eq!(again.as_ref(), Some(&study));
    // The limits are the limits of bundled studies. Other tests measure the time for larger
    // studies.
    let narrowing = Narrowing { replicates: Some(1), ..Narrowing::default() };
    if study.targets.len() * study.workloads.len() * study.file_systems.len() <= 32
        && study.design.rounds <= 8
        && study.design.warm_up.runs(study.probes.len()) <= 8
        && let Ok(plan) = expand(&study, &narrowing, &Available::default())
    {
        assert!(plan.runs().count() > 0);
    }
}

/// A document in any format: every complaint must have a valid place.
pub(super) fn document(text: &str) {
    let read = document::read("d.toml", text, |root| {
        root.only(&["schema"]);
        Ok(())
    });
    if let Err(invalid) = read {
        assert!(!invalid.complaints.is_empty());
        assert!(invalid.complaints.iter().all(|complaint| text.get(complaint.span.clone()).is_some()));
        assert!(invalid.to_string().starts_with("d.toml:"));
    }
}

/// Values of keys: denied findings, shares.
pub(super) fn values(text: &str) {
    for name in text.split(['\n', ',']).take(20) {
        let _ = name.parse::<Denied>();
        if let Ok(share) = name.parse::<Share>() {
            assert_eq!(share.to_string().parse::<Share>().ok(), Some(share));
        }
    }
}

/// Output of fio, SQLite, sysbench, pgbench and others, read at the bundled studies' places.
pub(super) fn command_output(text: &str) {
    static COMMANDS: LazyLock<Vec<WorkloadSpec>> = LazyLock::new(|| {
        let studies = ["workloads", "pgbench"].into_iter().filter_map(|name| load(name).ok());
        let workloads = studies.flat_map(|study| study.workloads);
        // Workloads with figures in their output, which cannot be read from an empty one.
        workloads.filter(|workload| workload.unreadable("").is_some()).collect()
    });
    assert!(COMMANDS.len() >= 4);
    let outcome = MetricInput { summary: text, elapsed_ns: None, busy_ns: None };
    for command in COMMANDS.iter() {
        // The first figure is the elapsed time, which is unknown here.
        for (_, value) in command.measure(Clock::Wall, &outcome).into_iter().skip(1) {
            assert!(value.is_ok_and(f64::is_finite) || command.unreadable(text).is_some());
        }
    }
}
