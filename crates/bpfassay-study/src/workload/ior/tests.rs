// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::job::{Summary as SummaryFrom, WORK};

use super::*;
use crate::{Clock, load};

fn options() -> Vec<String> {
    ["-w", "-t", "1m"].map(str::to_owned).into()
}

#[test]
fn the_embedded_engine_gets_ranks_options_and_places() {
    let workload = run(IorEngine::Embedded, (2, 1), &options());
    assert_eq!(workload.program, Program::Bundled);
    assert_eq!(
        workload.arguments.join(" "),
        "--ranks=2 -w -t 1m -o {directory}/data -O summaryFormat=JSON -O summaryFile={summary}"
    );
    assert_eq!((workload.control, workload.summary), (true, SummaryFrom::File));
    assert_eq!(workload.engine, Some(IorEngine::Embedded));
}

#[test]
fn the_real_ior_gets_the_same_options_and_cannot_be_held() {
    let workload = run(IorEngine::External, (4, 1), &options());
    assert_eq!(workload.program, Program::ExternalIor { ranks: 4 });
    assert_eq!(
        workload.arguments.join(" "),
        "-w -t 1m -o {directory}/data -O summaryFormat=JSON -O summaryFile={summary}"
    );
    assert!(!workload.control);
}

/// What a guest runs for each workload of a bundled study, in words: the rest is as for all of the program for workloads.
#[test]
fn every_kind_has_its_run_specification() {
    let workloads = |study: &str| {
        let study = load(study).unwrap();
        let on = OnTarget { arch: bpfassay_protocol::Arch::X86_64, external_ior: None, mounts: &[], nodes: 1 };
        let cases = study
            .workloads
            .iter()
            .flat_map(|workload| workload.cases(&on))
            .filter_map(|(id, case)| Some((id, case.ok()?.workload)));
        cases.collect::<Vec<_>>()
    };
    let (_, io_paths) = workloads("io-paths").remove(0);
    assert_eq!(io_paths.arguments.join(" "), "io-paths {directory} 262144 {summary}");
    assert!(io_paths.control && io_paths.engine.is_none());
    let (_, features) = workloads("kernel-features").remove(0);
    assert!(
        features.features
            && features.arguments.join(" ").starts_with("--ranks=1 -a POSIX -w -r -t 4k -b 256k -s 1 -i 1 -o")
    );
    assert_eq!(features.engine, Some(IorEngine::Embedded));
    let (_, futex) = workloads("program-count").into_iter().find(|(id, _)| id == "futex").unwrap();
    let words: Vec<&str> = futex.arguments.iter().map(String::as_str).collect();
    assert!(matches!(words[..], ["microbenchmark", "futex", _, "0", "{summary}"]), "{words:?}");
    assert!(futex.control);
}

#[test]
fn metrics_are_those_that_a_case_asks_for() {
    let names = |study: &str, case: &str| {
        let study = load(study).unwrap();
        let metrics = study.workload(case).unwrap().metrics(case, Clock::Wall);
        metrics.iter().map(|metric| metric.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("quick", "quick"), ["write", "read"]);
    assert_eq!(names("program-count", "futex"), [WORK]);
    assert!(names("io-paths", "io-paths").is_empty());
    let only = |options: &[&str]| {
        let spec = IorSpec {
            script: None,
            tests: vec![parse_args(options).unwrap()],
            ranks: 1,
            engine: EngineChoice::Auto,
            interfaces: Vec::new(),
            neighbour: false,
        };
        let named = Named { workload: "w", case: "w" };
        spec.metrics(&named, Clock::Wall).iter().map(|metric| metric.operation).collect::<Vec<_>>()
    };
    assert_eq!(only(&["-r"]), [Some(Operation::Read)]);
    assert_eq!(only(&["-W"]), []);
    assert_eq!(only(&["-w", "-R"]), [Some(Operation::Write), Some(Operation::Read)]);
    assert_eq!(only(&["-w", "-r"]), [Some(Operation::Write), Some(Operation::Read)]);
}
