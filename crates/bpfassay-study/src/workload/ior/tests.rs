// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::job::{SummarySource as SummaryFrom, WORK};

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

/// Summarizes what guests run for each workload of a bundled study. Everything else is the same for
/// all workloads of the bundled program.
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
            text: None,
            files: Vec::new(),
            tests: parse_args(options).unwrap().tests.into_iter().map(to_test).collect(),
            ranks: 1,
            engine: EngineChoice::Auto,
            interfaces: Vec::new(),
            neighbour: false,
            bystander: None,
        };
        let named = CaseNames { workload: "w", case: "w" };
        spec.metrics(&named, Clock::Wall).iter().map(|metric| metric.operation).collect::<Vec<_>>()
    };
    assert_eq!(only(&["-r"]), [Some(Operation::Read)]);
    assert_eq!(only(&["-W"]), []);
    assert_eq!(only(&["-w", "-R"]), [Some(Operation::Write), Some(Operation::Read)]);
    assert_eq!(only(&["-w", "-r"]), [Some(Operation::Write), Some(Operation::Read)]);
}

/// The plan lists unused options that name files, each once.
#[test]
fn options_that_name_files_are_left_out_in_so_many_words() {
    let left_out = |options: &str| {
        let study = format!("{STUDY}name = \"w\"\noptions = \"{options}\"\n");
        let study = crate::Study::parse("s.toml", &study, &|_| Ok(None)).unwrap();
        let plan = crate::expand(&study, &Default::default(), &crate::Available::default()).unwrap();
        plan.left_out.into_iter().map(|left| (left.what, left.reason)).collect::<Vec<_>>()
    };
    assert_eq!(left_out("-w -b 8m"), []);
    let reason = "the agent decides where files are: choose the file system in [[file_systems]]";
    let what = "options `-o /mnt/t`, `-O summaryFile=/tmp/s` of workload w";
    assert_eq!(
        left_out("-w -b 8m -o /mnt/t -O summaryFormat=JSON -O summaryFile=/tmp/s"),
        [(what.to_owned(), reason.to_owned())]
    );
    let script = "IOR START\nwriteFile=1\ntestFile=a\nRUN\ntestFile=b\nRUN\ntestFile=a\nRUN\nIOR STOP\n";
    assert_eq!(named_files(&parse_script("s.ior", script).unwrap()), ["-o a", "-o b"]);
}

/// The cases and workloads of a script with this text, or the error.
fn of_script(text: &str) -> Result<Vec<(String, Workload)>, String> {
    let study = format!("{STUDY}script = \"s.ior\"\n");
    let study = crate::Study::parse("s.toml", &study, &|_| Ok(Some(text.to_owned())));
    let study = study.map_err(|error| format!("{error:?}"))?;
    let on = OnTarget { arch: bpfassay_protocol::Arch::X86_64, external_ior: None, mounts: &[], nodes: 1 };
    Ok(study.workloads[0].cases(&on).into_iter().map(|(id, case)| (id, case.unwrap().workload)).collect())
}

const STUDY: &str = r#"
schema = 1
name = "s"
description = "For tests."
clock = "wall"
probes = ["none"]
[[targets]]
arch = "x86_64"
kernels = "6.1"
[[file_systems]]
type = "tmpfs"
[design]
replicates = 1
rounds = 1
seed = 1
[[workloads]]
"#;

#[test]
fn tests_that_share_files_are_one_run_with_the_script() {
    let text = "IOR START\napi=POSIX, blockSize=1m, transferSize=64k, writeFile=1, readFile=0, keepFile=1\nRUN\n\
                writeFile=0, readFile=1, keepFile=0, transferSize=256k\nRUN\nIOR STOP\n";
    let cases = of_script(text).unwrap();
    let [(id, workload)] = cases.as_slice() else { panic!("{cases:?}") };
    assert_eq!(id, "s");
    assert_eq!(workload.script, Some(Script { name: "s.ior".to_owned(), text: text.to_owned() }));
    assert!(workload.arguments.join(" ").starts_with("--ranks=1 -f {script} -o {directory}/data"));
    // A test that removes its files leaves nothing for the next test.
    let apart = of_script(&text.replace("writeFile=0, readFile=1, keepFile=0", "readFile=1")).unwrap();
    let ids: Vec<&str> = apart.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["s-t64KiB", "s-t256KiB"]);
    assert!(apart.iter().all(|(_, workload)| workload.script.is_none()));
}

#[test]
fn a_script_that_reads_what_nothing_wrote_is_refused() {
    let refused = |text: &str| of_script(&format!("IOR START\n{text}\nRUN\nIOR STOP\n")).unwrap_err();
    let nothing = refused("api=POSIX, writeFile=1, readFile=0\nRUN\nwriteFile=0, readFile=1");
    assert!(nothing.contains("test 2 reads what no test wrote"), "{nothing}");
    let other_names = refused("writeFile=1, readFile=0, keepFile=1\nRUN\nwriteFile=0, readFile=1, filePerProc=1");
    assert!(other_names.contains("test 2 reads what no test wrote"), "{other_names}");
    let more = refused("blockSize=1m, writeFile=1, keepFile=1\nRUN\nwriteFile=0, readFile=1, blockSize=2m");
    assert!(more.contains("test 2 reads 2097152 bytes of files in which earlier tests wrote 1048576"), "{more}");
    let named = refused("writeFile=1, keepFile=1, testFile=/x\nRUN\nwriteFile=0, readFile=1");
    assert!(named.contains("leave out testFile"), "{named}");
    let gone = refused("writeFile=1, keepFile=1\nRUN\nuseExistingTestFile=1, keepFile=0\nRUN\nwriteFile=0, readFile=1");
    assert!(gone.contains("test 3 reads what no test wrote"), "{gone}");
}
