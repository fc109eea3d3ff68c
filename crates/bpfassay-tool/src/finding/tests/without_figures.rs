// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings without figures: how the tool started, what the kernel saw, and what could not be read.

use bpfassay_protocol::{
    checked_prototype::Checked,
    privileges::{Capability, CapabilitySearch, NeededCapability, Needs},
    tracer_messages::{Refusal, Step},
};

use super::*;

#[test]
fn refusals_are_classified_by_their_step() {
    let refusal = |step| {
        Start::Refused(Refusal {
            program: Some("on_read".to_owned()),
            errno: Some(22),
            verifier: Some("R1 invalid mem access 'scalar'".to_owned()),
            ..Refusal::new(step, "invalid argument".to_owned())
        })
    };
    let results =
        |start: Start| evaluate(&Evidence { start: Some(&start), ..Evidence::default() }, &ValueLimits::default());
    let load = results(refusal(Step::Load));
    assert_eq!(found(&load), [Kind::DoesNotLoad]);
    assert_eq!(
        evidence_of(&load, Kind::DoesNotLoad),
        "on_read: invalid argument (error 22)\nverifier: R1 invalid mem access 'scalar'"
    );
    assert_eq!(reason(&load, Kind::DoesNotAttach), "it did not load");
    assert_eq!(found(&results(refusal(Step::Attach))), [Kind::DoesNotAttach]);
    assert!(is_clear(&results(refusal(Step::Attach)), Kind::DoesNotLoad));
    let ready = results(Start::Ready);
    assert!(is_clear(&ready, Kind::DoesNotLoad) && is_clear(&ready, Kind::DoesNotAttach));
    let search = CapabilitySearch {
        user: 0,
        had: vec![Capability::Bpf],
        needs: Needs::Capabilities(vec![NeededCapability {
            capability: Capability::Perfmon,
            without: "ended with exit status 1 before it was ready".to_owned(),
        }]),
        starts: 9,
    };
    let denied = Refusal { capabilities: Some(Box::new(search)), ..Refusal::new(Step::Attach, "denied".to_owned()) };
    let not_ready = results(Start::NotReady(denied.clone()));
    let denied = results(Start::Refused(denied));
    let sentence = "it starts with CAP_PERFMON in addition, and with nothing less";
    assert_eq!(evidence_of(&denied, Kind::DoesNotAttach), format!("denied\n{sentence}"));
    assert_eq!(evidence_of(&not_ready, Kind::DoesNotStart), format!("it never became ready: denied\n{sentence}"));
    assert_eq!(certainty::certainty(&denied, Kind::DoesNotAttach), Some(Certainty::Proven));
    let silent = results(Start::NotReady(Refusal::new(Step::Load, "60 s passed".to_owned())));
    assert_eq!(found(&silent), [Kind::DoesNotStart]);
    assert_eq!(evidence_of(&silent, Kind::DoesNotStart), "it never became ready: 60 s passed");
    let asking = "ended with exit status 1 before it was ready; its last output: starting\ndial unix /run/systemd/private: connect: no such file or directory";
    let asking = results(Start::NotReady(Refusal::new(Step::Load, asking.to_owned())));
    assert_eq!(found(&asking), [Kind::DoesNotStart]);
    let line =
        "it asks for systemd, which is not there: `dial unix /run/systemd/private: connect: no such file or directory`";
    assert_eq!(evidence_of(&asking, Kind::DoesNotStart).lines().next(), Some(line));
    assert!(is_clear(&ready, Kind::DoesNotStart) && is_clear(&load, Kind::DoesNotStart));
    for kind in [Kind::DoesNotLoad, Kind::DoesNotAttach] {
        assert!(reason(&silent, kind).ends_with("nothing shows which step failed: 60 s passed"));
    }
}

#[test]
fn prototypes_are_passed_on() {
    let results = |checked: &[Checked]| {
        evaluate(&Evidence { prototypes: Some(checked), ..Evidence::default() }, &ValueLimits::default())
    };
    let of = |differs: &[String], unchecked: Option<&str>| Checked {
        program: "on_read".to_owned(),
        section: "fexit/vfs_read".to_owned(),
        differs: differs.to_vec(),
        unchecked: unchecked.map(str::to_owned),
    };
    assert!(is_clear(&results(&[of(&[], None)]), Kind::PrototypeDiffers));
    let lines: Vec<_> = (0..20).map(|n| format!("argument {n}")).collect();
    let evidence = evidence_of(&results(&[of(&lines, None)]), Kind::PrototypeDiffers);
    assert!(evidence.starts_with("on_read (fexit/vfs_read): argument 0\n"), "{evidence}");
    assert!(evidence.ends_with("argument 15\nand 4 more"), "{evidence}");
    // Unchecked programs can hide a difference, but a found difference counts.
    assert!(reason(&results(&[of(&[], Some("x"))]), Kind::PrototypeDiffers).contains("were not compared"));
    assert_eq!(found(&results(&[of(&lines, Some("x"))])), [Kind::PrototypeDiffers]);
}

#[test]
fn what_the_kernel_saw() {
    let results = |facts: KernelFacts| {
        evaluate(&Evidence { kernel: Some(&facts), ..Evidence::default() }, &ValueLimits::default())
    };
    let good = results(KernelFacts {
        missed_probes: Some(0),
        recursion_misses: Some(0),
        programs: vec![2],
        evicting: Vec::new(),
        cpus: 1,
        seed: None,
        racy: Some(Vec::new()),
        racy_lacks: None,
        full_maps: Some(Vec::new()),
        keys_lacks: None,
        links: Some(1),
        kernel: None,
        left_behind: Some(Vec::new()),
        left_lacks: None,
        memory_bytes: Some(1 << 20),
        memory_lacks: None,
        idle_cpu: Some((10, 1000)),
        attach_ns: Some(1),
        detach: Some(Detach::After(1)),
    });
    let kinds = [
        Kind::RacyUpdate,
        Kind::MapFull,
        Kind::MissedProbes,
        Kind::LeftBehind,
        Kind::MemoryHeld,
        Kind::IdleCpu,
        Kind::SlowAttach,
        Kind::SlowDetach,
    ];
    assert!(kinds.iter().all(|&kind| is_clear(&good, kind)));
    let bad = results(KernelFacts {
        missed_probes: Some(3),
        recursion_misses: Some(2),
        programs: vec![2],
        evicting: Vec::new(),
        cpus: 1,
        seed: None,
        racy: Some(vec![Racy { program: "on_read".to_owned(), map: "counts".to_owned(), line: None }]),
        racy_lacks: None,
        full_maps: Some(vec![FullMap {
            name: "start".to_owned(),
            entries: 16,
            had_room: true,
            when: "after phase `write`".to_owned(),
        }]),
        keys_lacks: Some("x".to_owned()),
        links: Some(1),
        kernel: None,
        left_behind: Some(vec!["program on_read".to_owned()]),
        left_lacks: None,
        memory_bytes: Some(1 << 30),
        memory_lacks: None,
        idle_cpu: Some((11, 1000)),
        attach_ns: Some(u64::MAX),
        detach: Some(Detach::After(u64::MAX)),
    });
    assert_eq!(found(&bad), kinds);
    assert_eq!(
        evidence_of(&bad, Kind::MissedProbes),
        "kprobe hits that ran no handler: 3\nprogram runs that were skipped, because a program or an operation on a map was already running on the CPU: 2"
    );
    assert_eq!(evidence_of(&bad, Kind::MapFull), "map `start`: 16 of 16 entries in use after phase `write`");
    assert!(evidence_of(&bad, Kind::IdleCpu).contains("11000 millionths"));
    let how = "was killed: SIGINT had not ended it after 1 s";
    let killed = results(KernelFacts { detach: Some(Detach::Killed(how.to_owned())), ..KernelFacts::default() });
    assert_eq!(evidence_of(&killed, Kind::SlowDetach), how);
    let unknown = results(KernelFacts::default());
    assert!(kinds.iter().all(|&kind| matches!(status(&unknown, kind), FindingStatus::NotEvaluated { .. })));
}

/// A program that selects one of two prototypes when it is loaded is right on both kernels.
#[test]
fn a_branch_that_the_verifier_would_refuse_is_no_fault_of_a_loaded_program() {
    let checked = |section: &str, lines: &[&str]| {
        let differs = lines.iter().map(|&line| line.to_owned()).collect();
        vec![Checked { program: "on_accept".to_owned(), section: section.to_owned(), differs, unchecked: None }]
    };
    let results = |checked: &[Checked], start: &Start| {
        let evidence = Evidence { prototypes: Some(checked), start: Some(start), ..Evidence::default() };
        evaluate(&evidence, &ValueLimits::default())
    };
    let beyond = "reads argument 5 of 2: f(a, b)";
    let guarded = checked("fexit/inet_csk_accept", &[beyond]);
    assert!(reason(&results(&guarded, &Start::Ready), Kind::PrototypeDiffers).contains("does not execute it"));
    // The verifier checks neither registers nor how a value is used.
    let of_registers = checked("kprobe/inet_csk_accept", &[beyond]);
    assert_eq!(found(&results(&of_registers, &Start::Ready)), [Kind::PrototypeDiffers]);
    let narrow = "takes argument 1 of 2, a pointer, for a number of 32 bits: f(a, b)";
    let both = results(&checked("fexit/inet_csk_accept", &[beyond, narrow]), &Start::Ready);
    assert!(!evidence_of(&both, Kind::PrototypeDiffers).contains("argument 5"), "{both:?}");
    assert!(evidence_of(&both, Kind::PrototypeDiffers).contains("argument 1 of 2"));
    // The difference can be the reason for a refusal.
    let refused = Start::NotReady(Refusal::new(Step::Load, "ended".to_owned()));
    assert!(found(&results(&guarded, &refused)).contains(&Kind::PrototypeDiffers));
}

#[test]
fn missed_probes_are_clear_only_where_the_kernel_counts_those_of_every_program() {
    let status = |programs: &[u32], kernel, probes, programs_missed, links| {
        let facts = KernelFacts {
            missed_probes: probes,
            recursion_misses: programs_missed,
            programs: programs.to_vec(),
            links: Some(links),
            kernel: Some(kernel),
            ..KernelFacts::default()
        };
        let results = evaluate(&Evidence { kernel: Some(&facts), ..Evidence::default() }, &ValueLimits::default());
        is_clear(&results, Kind::MissedProbes)
            .then_some("clear")
            .map_or_else(|| reason(&results, Kind::MissedProbes).to_owned(), str::to_owned)
    };
    let (kprobe, tracepoint, perf_event, raw, fexit) = (2, 5, 7, 17, 26);
    let none = |status: String, part: &str| assert!(status.contains(part), "{status}");
    // libbpf on 6.1: the kernel counts neither misses of the kprobe nor of the program.
    none(status(&[kprobe], (6, 1), None, Some(0), 1), "before Linux 6.7");
    none(status(&[tracepoint], (6, 6), None, Some(0), 1), "before Linux 6.7");
    assert_eq!(status(&[tracepoint], (6, 7), None, Some(0), 0), "clear");
    // bpftrace on 6.12 attaches by perf events without links. Then one of two programs has a link.
    none(status(&[kprobe], (6, 12), None, Some(0), 0), "attached by links");
    none(status(&[kprobe, kprobe], (6, 12), Some(0), Some(0), 1), "attached by links");
    assert_eq!(status(&[kprobe, fexit], (6, 12), Some(0), Some(0), 2), "clear");
    assert_eq!(status(&[fexit], (6, 1), None, Some(0), 1), "clear");
    none(status(&[fexit], (5, 10), None, None, 1), "before Linux 5.12");
    assert_eq!(status(&[raw], (5, 10), None, None, 1), "clear");
    none(status(&[raw], (6, 1), None, None, 1), "raw tracepoints");
    // `interval` and `profile` of bpftrace.
    none(status(&[perf_event], (6, 12), None, Some(0), 1), "programs on perf events");
    none(status(&[fexit, perf_event], (7, 2), None, Some(0), 2), "programs on perf events");
    none(status(&[], (6, 12), None, Some(0), 0), "no BPF program");
}

/// Example: 40 readers wait under a kretprobe with the default number of instances.
#[test]
fn returns_that_are_missed_are_found_by_the_entries() {
    let truth = truth(vec![share("a", "m", Operation::Read, 2230, 400, 400)]);
    let mut entries = figure(&[Operation::Read], CountedUnit::Calls, Whose::Cgroup);
    entries.value = "@in".to_owned();
    let mut returns = entries.clone();
    returns.value = "@out".to_owned();
    let tool = report(vec![entries, returns]);
    let kernel = KernelFacts { programs: vec![2, 2], recursion_misses: Some(0), ..KernelFacts::default() };
    let results = |counted: [u64; 2], kernel: &KernelFacts| {
        let read = readings(&[(100, 0, Some("a"), counted[0]), (100, 1, Some("a"), counted[1])]);
        let evidence = Evidence {
            report: Some(&tool),
            readings: Some(&read),
            truth: Some(&truth),
            kernel: Some(kernel),
            ..Evidence::default()
        };
        evaluate(&evidence, &ValueLimits::default())
    };
    let missed = results([2230, 199], &kernel);
    assert_eq!(found(&missed), [Kind::CountsTooLow, Kind::MissedProbes]);
    let evidence = evidence_of(&missed, Kind::MissedProbes);
    assert!(evidence.ends_with("of cgroup a: 199, really 2230; `@in` has 2230"), "{evidence}");
    assert_eq!(found(&results([1000, 199], &kernel)), [Kind::CountsTooLow], "nothing is right");
    let without = KernelFacts { programs: vec![26], ..kernel.clone() };
    assert_eq!(found(&results([2230, 199], &without)), [Kind::CountsTooLow], "fexit has no such limit");
    assert_eq!(found(&results([2230, 2230], &kernel)), []);
}

#[test]
fn what_cannot_be_read_is_reported() {
    let readings = Readings { unread: 2, first_unread: Some("no sample: x".to_owned()), ..Readings::default() };
    let results =
        |readings| evaluate(&Evidence { readings: Some(readings), ..Evidence::default() }, &ValueLimits::default());
    assert_eq!(evidence_of(&results(&readings), Kind::Unreadable), "2 times; first: no sample: x");
    assert!(is_clear(&results(&Readings::default()), Kind::Unreadable));
}
