// SPDX-License-Identifier: MIT OR Apache-2.0
//! Expansion: what a plan contains, what it leaves out, and what cannot be planned.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{IorEngine, Program},
    probe::{MapLayout, Probe},
};
use bpfassay_study::{Available, ExpandError, Interface, Narrowing, Plan, Study, Target, WarmUp, WarmUpRule, expand};
use proptest::prelude::*;

fn study(replicates: u32, rounds: u32, seed: u64, engine: &str) -> Study {
    let text = format!(
        r#"
schema = 1
name = "small"
description = ""
clock = "wall"
probes = ["none", "kprobe", "fexit"]
[[targets]]
arch = ["x86_64", "aarch64"]
kernels = ["6.1", "7.2"]
[[targets]]
arch = "riscv64"
kernels = "7.2"
[[file_systems]]
type = "nfs"
[[file_systems]]
type = "tmpfs"
size_mib = 64
[[workloads]]
script = "sizes.ior"
engine = "{engine}"
[design]
replicates = {replicates}
rounds = {rounds}
seed = {seed}
sampling_interval = "2s"
warm_up = 0
"#
    );
    let script = "IOR START\nblockSize=4m\ntransferSize=1m\nRUN\ntransferSize=256k\nRUN\napi=MPIIO\ntransferSize=2m\nRUN\nIOR STOP\n";
    Study::parse("s.toml", &text, &|_| Ok(Some(script.to_owned()))).unwrap()
}

fn fexit() -> ProbeConfiguration {
    ProbeConfiguration::with_defaults(Probe::Fexit)
}

fn plan(study: &Study, narrowing: &Narrowing) -> Result<Plan, ExpandError> {
    expand(study, narrowing, &Available::default())
}

#[test]
fn a_cell_is_kept_with_its_baseline_and_its_place_in_the_order() {
    let study = study(2, 2, 7, "auto");
    let whole = plan(&study, &Narrowing::default()).unwrap();
    let id = "x86_64_7.2_sizes-t1MiB_nfs4.2_fexit";
    let cells =
        |ids: &[&str]| Narrowing { cells: ids.iter().map(|&id| id.to_owned()).collect(), ..Narrowing::default() };
    let part = plan(&study, &cells(&[id])).unwrap();
    let ids = |plan: &Plan| plan.cells.iter().map(|cell| cell.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&part), ["x86_64_7.2_sizes-t1MiB_nfs4.2_none", id]);
    let runs = |plan: &Plan| plan.runs().map(|(_, run)| run.clone()).collect::<Vec<_>>();
    let kept: Vec<_> = runs(&whole).into_iter().filter(|run| part.cell(&run.cell).is_some()).collect();
    assert_eq!(runs(&part), kept);
    assert!(kept.iter().any(|run| run.control) && part.blocks.len() == 2);
    assert_ne!(part.digest, whole.digest);

    let baseline = plan(&study, &cells(&["riscv64_7.2_sizes-t1MiB_tmpfs-64MiB_none"])).unwrap();
    assert_eq!(baseline.cells.len(), 1);
    let error = plan(&study, &cells(&["x86_64_7.2_sizes-t1MiB_nfs4.2_fexti"])).unwrap_err().to_string();
    let message = "study `small` has no cell `x86_64_7.2_sizes-t1MiB_nfs4.2_fexti`, did you mean \
                `x86_64_7.2_sizes-t1MiB_nfs4.2_fexit`?: `bpfassay plan small` lists them";
    assert_eq!(error, message);
    // A cell that other arguments exclude is unknown, too.
    let narrowing = Narrowing { archs: vec![Arch::Aarch64], ..cells(&[id]) };
    assert!(matches!(plan(&study, &narrowing), Err(ExpandError::NoCell { .. })));
}

#[test]
fn patterns_become_the_builds_that_they_stand_for() {
    let builds = |arch: Arch| -> Result<Vec<String>, ExpandError> {
        let all = ["6.1.170", "6.12.43", "6.12.57", "7.2.6"];
        // riscv64 has only one of them.
        Ok(all.iter().skip(if arch == Arch::Riscv64 { 3 } else { 0 }).map(|&name| name.to_owned()).collect())
    };
    let target = |arch, kernel: &str| Target { arch, kernel: kernel.to_owned() };
    let resolved = |targets: Vec<Target>| {
        let mut study = Study { targets, ..study(1, 1, 1, "auto") };
        study.resolve_patterns(builds).map(|()| study.targets.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let named = target(Arch::X86_64, "6.12.57");
    let found = resolved(vec![named, target(Arch::X86_64, "6.12.*"), target(Arch::Riscv64, "*")]);
    assert_eq!(found.unwrap(), ["x86_64 6.12.57", "x86_64 6.12.43", "riscv64 7.2.6"]);
    let error = resolved(vec![target(Arch::Riscv64, "6.12.*")]).unwrap_err().to_string();
    assert!(error.contains("riscv64 6.12.*"), "{error}");
    // Nobody resolved the pattern.
    let left = Study { targets: vec![target(Arch::X86_64, "*")], ..study(1, 1, 1, "auto") };
    assert!(matches!(plan(&left, &Narrowing::default()), Err(ExpandError::NoBuild { .. })));
}

#[test]
fn cells_and_blocks_cover_the_matrix() {
    let plan = plan(&study(2, 3, 1, "auto"), &Narrowing::default()).unwrap();
    // 5 targets, 2 of 3 tests (MPIIO needs a real IOR), 2 file systems, 3 probes.
    assert_eq!(plan.cells.len(), 5 * 2 * 2 * 3);
    assert_eq!(plan.blocks.len(), 5 * 2 * 2 * 2);
    assert!(plan.blocks.iter().all(|block| block.runs.len() == 3 * 4));
    assert_eq!(plan.cells[0].id, "x86_64_6.1_sizes-t1MiB_nfs4.2_none");
    assert!(plan.cell("riscv64_7.2_sizes-t256KiB_tmpfs-64MiB_fexit").is_some());
    assert_eq!(plan.blocks[0].id, "x86_64_6.1_sizes-t1MiB_nfs4.2_1");
    let replicates: Vec<u32> = plan.blocks.iter().map(|block| block.replicate).collect();
    assert!(replicates.is_sorted());
    let left: Vec<String> = plan.left_out.iter().map(|left| format!("{}: {}", left.what, left.reason)).collect();
    assert_eq!(
        left,
        [
            "workload sizes-t2MiB on x86_64, aarch64, riscv64: the embedded engine does not have MPIIO, and no IOR was given for \
          this architecture (--ior ARCH=DIR)"
        ]
    );
}

#[test]
fn a_boot_is_warmed_up_by_the_baseline_and_only_for_figures_of_time() {
    let mut study = study(1, 2, 1, "auto");
    study.design.warm_up = WarmUp::Runs(2);
    let twice = plan(&study, &Narrowing { probes: vec![fexit()], ..Narrowing::default() }).unwrap();
    for block in &twice.blocks {
        let (warm, measured): (Vec<_>, Vec<_>) = block.runs.iter().partition(|run| run.warm_up);
        assert_eq!(block.runs.iter().take(2).filter(|run| run.warm_up).count(), 2, "{}", block.id);
        assert_eq!((warm.len(), measured.len()), (2, 2 * 3));
        assert!(warm.iter().all(|run| run.spec.probe.is_baseline() && !run.control));
        assert_eq!(warm[1].spec.id, format!("{}_w2_none", block.id));
    }
    // The rule needs one run, which the guest repeats.
    study.design.warm_up = WarmUp::Rule(WarmUpRule::Steady);
    let steady = plan(&study, &Narrowing::default()).unwrap();
    for block in &steady.blocks {
        let rules: Vec<_> = block.runs.iter().map(|run| (run.warm_up, run.spec.until_steady)).collect();
        assert_eq!(rules[0], (true, Some(WarmUp::STEADY)));
        assert!(rules[1..].iter().all(|rule| *rule == (false, None)), "{rules:?}");
    }
    // One run per configuration, the baseline first, whatever the order in the study.
    study.design.warm_up = WarmUp::Rule(WarmUpRule::Probes);
    study.probes.reverse();
    let probes = plan(&study, &Narrowing::default()).unwrap();
    for block in &probes.blocks {
        let warm: Vec<_> = block.runs.iter().take_while(|run| run.warm_up).map(|run| run.spec.probe).collect();
        assert!(warm[0].is_baseline(), "{warm:?}");
        assert!(warm.iter().all(|probe| study.probes.contains(probe)) && warm.len() == study.probes.len(), "{warm:?}");
        assert_eq!(block.runs.iter().filter(|run| run.warm_up).count(), warm.len());
    }
    let mut paths = bpfassay_study::load("io-paths").unwrap();
    paths.design.warm_up = WarmUp::Runs(1);
    let plan = expand(&paths, &Narrowing::default(), &Available::default()).unwrap();
    assert!(plan.runs().all(|(_, run)| !run.warm_up));
    assert_eq!(bpfassay_study::load("quick").unwrap().design.warm_up, WarmUp::Runs(1));
}

#[test]
fn a_tool_runs_alone_and_once_beside_its_reference_where_there_is_one_for_the_architecture() {
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n\
                binary = { arch = 'x86_64', path = 'a' }\n[start]\ndeadline = '10min'\n[report]\njson-lines = {}\n\
                counting = 'interval'\nfigures = [{ value = 'n', operations = 'read', unit = 'calls' }]\n";
    let tool = bpfassay_tool::UnderTest::of(bpfassay_tool::ToolFile::parse("t.toml", text).unwrap());
    let mut study = bpfassay_study::load("quick").unwrap();
    study.test_tool(tool.clone()).unwrap();
    assert!(study.test_tool(tool.clone()).unwrap_err().contains("two tools are named `mine`"));
    let named = |name: &str| bpfassay_tool::ToolFile { name: name.to_owned(), ..tool.file.clone() };
    // A tool that reports nothing needs no reference tracer.
    let silent = bpfassay_tool::ToolFile { report: None, ..named("silent") };
    study.test_tool(bpfassay_tool::UnderTest::of(silent)).unwrap();
    let fexit = bpfassay_tool::UnderTest { file: named("fexit"), ..tool };
    assert!(study.test_tool(fexit).unwrap_err().contains("a probe configuration named `fexit`"));
    // The guest can report a late tool before the host gives up.
    assert!(study.deadlines.attach_ms > 600_000);

    let plan = plan(&study, &Narrowing::default()).unwrap();
    let left: Vec<_> = plan.left_out.iter().map(|left| left.what.as_str()).collect();
    assert!(left.contains(&"tool mine on aarch64") && left.contains(&"tool mine on riscv64"), "{left:?}");
    assert!(!left.contains(&"tool mine on x86_64"));
    for block in &plan.blocks {
        let runs: Vec<_> = block.runs.iter().filter(|run| run.spec.tool.is_some()).collect();
        if block.target.arch != Arch::X86_64 {
            assert!(runs.is_empty());
            continue;
        }
        let beside: Vec<_> = runs.iter().filter(|run| run.has_reference()).collect();
        assert_eq!(beside.len(), 1);
        assert_eq!(beside[0].spec.probe.to_string(), "fexit+threads");
        // The separate round keeps the run out of comparisons.
        assert_eq!(beside[0].round, study.design.rounds + 1);
        for tool in ["mine", "silent"] {
            let alone = runs.iter().filter(|run| !run.has_reference() && run.spec.tool.as_ref().unwrap().name == tool);
            assert_eq!(alone.count(), study.design.rounds as usize, "{tool}");
        }
        assert!(plan.cell(&beside[0].cell).is_some_and(|cell| cell.tool.as_deref() == Some("mine")));
    }
}

#[test]
fn requested_bytes_have_a_reference_of_their_own_of_the_same_kind() {
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nguest = { program = '/a' }\n[report]\njson-lines = {}\n\
                counting = 'interval'\nfigures = [{ value = 'n', operations = 'read', unit = 'bytes-requested' }]\n";
    let file = bpfassay_tool::ToolFile::parse("t.toml", text).unwrap();
    let every_tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vm-tests/every-tool.toml");
    let mut study = bpfassay_study::load(every_tool).unwrap();
    study.test_tool(bpfassay_tool::UnderTest::of(file)).unwrap();
    let plan = plan(&study, &Narrowing::default()).unwrap();
    for block in &plan.blocks {
        let probes: Vec<_> = block.runs.iter().filter(|run| run.has_reference()).map(|run| run.spec.probe).collect();
        // These kernels have no trampolines.
        let without = block.target.arch == Arch::Aarch64 && ["5.10", "6.1"].contains(&block.target.kernel.as_str());
        let expected = if without { [Probe::Kretprobe, Probe::Kprobe] } else { [Probe::Fexit, Probe::Fentry] };
        let by_thread =
            |probe| ProbeConfiguration { map: MapLayout::Threads, ..ProbeConfiguration::with_defaults(probe) };
        assert_eq!(probes, expected.map(by_thread), "{}", block.id);
    }
    assert!(plan.blocks.iter().any(|block| block.target.arch == Arch::Aarch64 && block.target.kernel == "6.1"));
}

#[test]
fn references_count_by_thread_and_no_other_runs_do() {
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nguest = { program = '/a' }\n[report]\njson-lines = {}\n\
                counting = 'interval'\nfigures = [{ value = 'n', operations = 'read', unit = 'bytes-requested' }, \
                { value = 'm', operations = 'fsync', unit = 'calls' }]\n";
    let tool = bpfassay_tool::UnderTest::of(bpfassay_tool::ToolFile::parse("t.toml", text).unwrap());
    let mut study = bpfassay_study::load("quick").unwrap();
    let without = plan(&study, &Narrowing::default()).unwrap();
    study.test_tool(tool).unwrap();
    let plan = plan(&study, &Narrowing::default()).unwrap();
    for (block, alone) in plan.blocks.iter().zip(&without.blocks) {
        let probes = |is_beside: bool| {
            let runs = block.runs.iter().filter(move |run| run.has_reference() == is_beside);
            runs.map(|run| run.spec.probe.to_string()).collect::<BTreeSet<_>>()
        };
        let kind = if probes(true).contains("fexit+threads") { ["fentry", "fexit"] } else { ["kprobe", "kretprobe"] };
        assert_eq!(probes(true), kind.map(|probe| format!("{probe}+threads")).into(), "{}", block.id);
        assert_eq!(probes(false), alone.runs.iter().map(|run| run.spec.probe.to_string()).collect());
    }
    // Known refusals concern the compared layouts, which do not include `threads`.
    let expected = plan.study.expectations.iter().flat_map(|expectation| &expectation.probes);
    assert!(expected.clone().count() > 20 && expected.into_iter().all(|probe| !probe.to_string().contains("threads")));
}

#[test]
fn sampling_sequentially_needs_boots_to_choose_from() {
    let study = study(1, 1, 1, "auto");
    let until = Some("0.5%".parse().unwrap());
    let found = plan(&study, &Narrowing { until, ..Narrowing::default() }).unwrap();
    assert_eq!((found.replicates(), found.until()), (20, until));
    assert!(found.left_out.iter().any(|left| left.reason.contains("0.5%")), "{:?}", found.left_out);
    let found = plan(&study, &Narrowing { until, replicates: Some(7), ..Narrowing::default() }).unwrap();
    assert_eq!(found.replicates(), 7);
    let error = plan(&study, &Narrowing { until, replicates: Some(2), ..Narrowing::default() }).unwrap_err();
    assert!(error.to_string().contains("--replicates 3"), "{error}");
}

#[test]
fn only_tracers_sample() {
    let plan = plan(&study(1, 1, 1, "auto"), &Narrowing::default()).unwrap();
    for (_, run) in plan.runs() {
        assert_eq!(run.spec.sampling_interval_ms, (!run.spec.probe.is_baseline()).then_some(2000));
    }
}

#[test]
fn what_the_testbed_does_not_have_is_left_out_and_named() {
    let study = study(1, 1, 1, "auto");
    let kept = study.targets[0].clone();
    let only =
        |targets: &[Target]| Available { targets: Some(targets.iter().cloned().collect()), ..Available::default() };
    let plan = expand(&study, &Narrowing::default(), &only(std::slice::from_ref(&kept))).unwrap();
    assert!(!plan.cells.is_empty() && plan.cells.iter().all(|cell| cell.target == kept));
    let left = plan.left_out.iter().find(|left| left.reason.contains("testbed")).unwrap();
    assert_eq!(left.what.matches(", ").count() + 1, study.targets.len() - 1, "{}", left.what);
    assert!(!left.what.contains(&kept.to_string()));
    let error = expand(&study, &Narrowing::default(), &only(&[])).unwrap_err().to_string();
    assert!(error.contains("the testbed has no guest for them"), "{error}");
}

#[test]
fn a_real_ior_is_used_where_it_was_given() {
    let external_ior = BTreeMap::from([
        (Arch::X86_64, BTreeSet::from([Interface::Posix, Interface::Mpiio])),
        (Arch::Aarch64, BTreeSet::from([Interface::Posix])),
    ]);
    let plan =
        expand(&study(1, 1, 1, "auto"), &Narrowing::default(), &Available { external_ior, ..Available::default() })
            .unwrap();
    let engines = |arch| -> BTreeSet<(Interface, IorEngine)> {
        let of_arch = plan.cells.iter().filter(|cell| cell.target.arch == arch);
        of_arch
            .map(|cell| {
                let engine = cell.workload.engine.unwrap();
                let is_external = matches!(cell.workload.program, Program::ExternalIor { .. });
                assert_eq!((engine == IorEngine::External, is_external), (!cell.workload.control, is_external));
                (cell.interface.unwrap(), engine)
            })
            .collect()
    };
    assert_eq!(
        engines(Arch::X86_64),
        BTreeSet::from([(Interface::Posix, IorEngine::External), (Interface::Mpiio, IorEngine::External)])
    );
    assert_eq!(engines(Arch::Aarch64), BTreeSet::from([(Interface::Posix, IorEngine::External)]));
    assert_eq!(engines(Arch::Riscv64), BTreeSet::from([(Interface::Posix, IorEngine::Embedded)]));
    let reasons: Vec<&str> = plan.left_out.iter().map(|left| left.what.as_str()).collect();
    assert_eq!(reasons, ["workload sizes-t2MiB on aarch64", "workload sizes-t2MiB on riscv64"]);
}

#[test]
fn nothing_left_is_reported_with_the_reason() {
    let error = plan(&study(1, 1, 1, "external"), &Narrowing::default()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ExpandError::NothingLeft { .. }));
    assert!(text.contains("no IOR was given for this architecture (--ior ARCH=DIR)"), "{text}");
}

#[test]
fn narrowing_keeps_what_is_named_and_the_baseline() {
    let narrowing = Narrowing {
        archs: vec![Arch::Aarch64],
        kernels: vec!["7.2".to_owned()],
        probes: vec![fexit()],
        replicates: Some(3),
        ..Narrowing::default()
    };
    let plan = plan(&study(1, 1, 1, "auto"), &narrowing).unwrap();
    let probes: BTreeSet<String> = plan.cells.iter().map(|cell| cell.probe.to_string()).collect();
    assert_eq!(probes, BTreeSet::from(["fexit".to_owned(), "none".to_owned()]));
    assert_eq!(plan.targets().iter().map(ToString::to_string).collect::<Vec<_>>(), ["aarch64 7.2"]);
    assert_eq!(plan.blocks.iter().map(|block| block.replicate).max(), Some(3));
    let left: Vec<String> = plan.left_out.iter().map(|left| format!("{}: {}", left.what, left.reason)).collect();
    assert_eq!(
        left[0],
        "targets x86_64 6.1, x86_64 7.2, aarch64 6.1, riscv64 7.2: narrowed to architecture aarch64 and kernel 7.2"
    );
    assert_eq!(left[1], "probe configurations kprobe: narrowed to probe configurations fexit");
    assert_eq!(left[2], "the study's number of replicates, 1: 3 requested");
}

#[test]
fn a_narrowing_that_leaves_nothing_names_what_there_is() {
    let study = study(1, 1, 1, "auto");
    let error = |narrowing| plan(&study, &narrowing).unwrap_err().to_string();
    assert_eq!(
        error(Narrowing { kernels: vec!["5.10".to_owned()], ..Narrowing::default() }),
        "study `small` has no kernel `5.10`; it has 6.1, 7.2"
    );
    assert_eq!(
        error(Narrowing { archs: vec![Arch::Riscv64], kernels: vec!["6.1".to_owned()], ..Narrowing::default() }),
        "study `small` has no target for architecture riscv64 and kernel 6.1; its targets are x86_64 6.1, x86_64 7.2, aarch64 6.1, \
         aarch64 7.2, riscv64 7.2"
    );
    assert_eq!(
        error(Narrowing { replicates: Some(0), ..Narrowing::default() }),
        "0 replicates: give a number from 1 to 10000"
    );
    let many = Narrowing { replicates: Some(10_000), ..Narrowing::default() };
    assert!(error(many).contains("more than 200000 runs"));
}

#[test]
fn bundled_studies_have_plans() {
    let quick = plan(&bpfassay_study::load("quick").unwrap(), &Narrowing::default()).unwrap();
    assert_eq!(quick.blocks.len(), 8);
    assert_eq!(quick.cells.len(), 24);
    assert!(quick.left_out.is_empty(), "{:?}", quick.left_out);

    let ceems = bpfassay_study::load("ceems-ior").unwrap();
    let embedded = plan(&ceems, &Narrowing::default()).unwrap();
    let sizes: BTreeSet<&str> = embedded.cells.iter().map(|cell| cell.case.as_str()).collect();
    assert_eq!(sizes.len(), 5, "{sizes:?}");
    assert_eq!(embedded.left_out.len(), 5);
    let real = BTreeSet::from([Interface::Posix, Interface::Mpiio]);
    let external_ior = Arch::ALL.iter().map(|&arch| (arch, real.clone())).collect();
    let whole = expand(&ceems, &Narrowing::default(), &Available { external_ior, ..Available::default() }).unwrap();
    assert_eq!(whole.cells.len(), 2 * embedded.cells.len());
    assert!(whole.left_out.is_empty());
    for (_, run) in whole.runs() {
        let options = &run.spec.workload.arguments;
        let repetitions = options.iter().position(|option| option == "-i").and_then(|at| options.get(at + 1));
        assert_eq!(repetitions.map(String::as_str), Some("8"));
    }
}

fn narrowings() -> impl Strategy<Value = Narrowing> {
    let archs = prop::sample::subsequence(vec![Arch::X86_64, Arch::Aarch64, Arch::Riscv64], 0..=3);
    let kernels = prop::sample::subsequence(vec!["6.1".to_owned(), "7.2".to_owned()], 0..=2);
    let of_study = [Probe::None, Probe::Kprobe, Probe::Fexit].map(ProbeConfiguration::with_defaults).to_vec();
    let probes = prop::sample::subsequence(of_study, 0..=3);
    (archs, kernels, probes, prop::option::of(1..4u32)).prop_map(|(archs, kernels, probes, replicates)| Narrowing {
        archs,
        kernels,
        probes,
        replicates,
        ..Narrowing::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn plans_are_sound(narrowing in narrowings(), replicates in 1..3u32, rounds in 1..4u32, seed in 0..1000u64) {
        let study = study(replicates, rounds, seed, "auto");
        let Ok(plan) = plan(&study, &narrowing) else {
            // Only riscv64 with 6.1 alone has no target.
            prop_assert_eq!((&narrowing.archs[..], &narrowing.kernels[..]), (&[Arch::Riscv64][..], &["6.1".to_owned()][..]));
            return Ok(());
        };
        // Expansion is deterministic.
        prop_assert_eq!(&plan, &self::plan(&study, &narrowing).unwrap());
        // Ids are unique and safe as file names, and every run has its cell.
        let cells: BTreeSet<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
        prop_assert_eq!(cells.len(), plan.cells.len());
        let runs: BTreeSet<&str> = plan.runs().map(|(_, run)| run.spec.id.as_str()).collect();
        prop_assert_eq!(runs.len(), plan.runs().count());
        for id in runs.iter().chain(&cells) {
            prop_assert!(id.len() < 200 && id.chars().all(|c| c.is_ascii_alphanumeric() || "._-+@~".contains(c)), "{}", id);
        }
        for (block, run) in plan.runs() {
            let cell = plan.cell(&run.cell).unwrap();
            prop_assert_eq!((&cell.target, &cell.case, &cell.file_system, cell.probe), (&block.target, &block.case, &block.file_system, run.spec.probe));
            prop_assert_eq!(&cell.workload, &run.spec.workload);
        }
        // Each round of each block has every probe configuration once, and the control.
        let probes = plan.cells.iter().map(|cell| cell.probe).collect::<BTreeSet<_>>();
        for block in &plan.blocks {
            for round in 1..=rounds {
                let of_round: Vec<_> = block.runs.iter().filter(|run| run.round == round).collect();
                let plain: Vec<_> = of_round.iter().filter(|run| !run.control).map(|run| run.spec.probe).collect();
                prop_assert_eq!(plain.len(), probes.len());
                prop_assert_eq!(plain.into_iter().collect::<BTreeSet<_>>(), probes.clone());
                prop_assert_eq!(of_round.iter().filter(|run| run.control && run.spec.probe.is_baseline()).count(), 1);
                prop_assert_eq!(of_round.len(), probes.len() + 1);
            }
        }
    }

    /// After narrowing, runs keep their order in the whole study.
    #[test]
    fn narrowing_keeps_the_order(narrowing in narrowings(), seed in 0..1000u64) {
        let study = study(2, 2, seed, "auto");
        let whole = plan(&study, &Narrowing::default()).unwrap();
        let Ok(part) = plan(&study, &Narrowing { replicates: None, ..narrowing }) else { return Ok(()) };
        let kept: BTreeSet<&str> = part.runs().map(|(_, run)| run.spec.id.as_str()).collect();
        let of_whole: Vec<&str> = whole.runs().map(|(_, run)| run.spec.id.as_str()).filter(|id| kept.contains(id)).collect();
        let of_part: Vec<&str> = part.runs().map(|(_, run)| run.spec.id.as_str()).collect();
        prop_assert_eq!(of_part, of_whole);
    }

    #[test]
    fn seeds_change_the_order_and_nothing_else(seed in 1..1000u64) {
        let sorted = |seed| {
            let mut ids: Vec<String> = plan(&study(1, 3, seed, "auto"), &Narrowing::default()).unwrap().runs().map(|(_, run)| run.spec.id.clone()).collect();
            let original = ids.clone();
            ids.sort_unstable();
            (original, ids)
        };
        let (order, ids) = sorted(0);
        let (other_order, other_ids) = sorted(seed);
        prop_assert_eq!(ids, other_ids);
        prop_assert_ne!(order, other_order);
    }
}

#[test]
fn a_plan_that_was_changed_is_not_the_one_that_its_digest_names() {
    let study = bpfassay_study::load("quick").unwrap();
    let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
    assert!(plan.is_intact());
    let mut changed = plan.clone();
    changed.study.design.seed ^= 1;
    assert!(!changed.is_intact());
    let mut changed = plan.clone();
    changed.blocks.swap(0, 1);
    assert!(!changed.is_intact());
    // Fewer boots are another plan with another digest.
    let fewer = plan.with_blocks(plan.blocks[..1].to_vec());
    assert!(fewer.is_intact() && fewer.digest != plan.digest && fewer.cells == plan.cells);
}
