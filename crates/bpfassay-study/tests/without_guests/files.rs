// SPDX-License-Identifier: MIT OR Apache-2.0
//! Study files: which errors are found, where, and with which message.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod commands;

use bpfassay_protocol::{
    Arch,
    job::{FileSystem, Microbenchmark, NfsVersion, Scheduling},
    message::Phase,
};
use bpfassay_study::{
    Available, Clock, EngineChoice, Interface, IorSpec, Model, Narrowing, Study, StudyError, WarmUp, WarmUpRule,
    WorkloadKind, expand, load,
    workload::{FeaturesSpec, IoPathsSpec, MicrobenchSpec},
};

const GOOD: &str = r#"schema = 1
name = "small"
description = "A study for tests."
probes = ["none", "fexit"]

[[targets]]
arch = ["x86_64", "aarch64"]
kernels = ["6.1", "7.2"]

[[file_systems]]
type = "nfs"
version = "4.1"
localio = false

[[workloads]]
name = "w"
options = "-a POSIX -w -r -t 256k -b 4m"

[design]
replicates = 2
seed = 7
sampling_interval = "500ms"

[deadlines]
workload = "10min"
"#;

fn parse(text: &str) -> Result<Study, StudyError> {
    Study::parse("s.toml", text, &|name| {
        Ok((name == "two.ior").then(|| {
            "IOR START\napi=POSIX\ntransferSize=1m\nblockSize=4m\nRUN\ntransferSize=2m\nRUN\nIOR STOP\n".to_owned()
        }))
    })
}

/// Returns the error for `GOOD` with `from` replaced by `to`.
fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    parse(&GOOD.replacen(from, to, 1)).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn the_tracers_further_options_are_arguments_that_the_agent_does_not_give() {
    let with = |arguments: &str| {
        parse(&GOOD.replacen("[design]", &format!("[tracer]\narguments = {arguments}\n\n[design]"), 1))
    };
    let study = with(r#"["--map-entries", "1", "--merge"]"#).unwrap();
    assert_eq!(study.tracer_arguments, ["--map-entries", "1", "--merge"]);
    for wrong in [r#"["--probe=fexit"]"#, r#"["--interval", "2s"]"#, r#"[""]"#, r#"["a\nb"]"#] {
        assert!(with(wrong).is_err(), "{wrong}");
    }
    assert!(with(r#"["--map"]"#).unwrap_err().to_string().contains("--map is given by the run"));
    // Studies without these options serialize as before.
    assert!(!serde_json::to_string(&parse(GOOD).unwrap()).unwrap().contains("tracer_arguments"));
}

fn ior(study: &Study) -> &IorSpec {
    let WorkloadKind::Ior(ior) = &study.workloads[0].kind else { panic!("{:?}", study.workloads[0]) };
    ior
}

#[test]
fn workloads_are_ior_unless_they_name_another_type() {
    let line = "options = \"-a POSIX -w -r -t 256k -b 4m\"";
    let with = |lines: &str| parse(&GOOD.replace(line, lines));
    let spelt = with(&format!("type = \"ior\"\n{line}")).unwrap();
    assert_eq!(spelt, parse(GOOD).unwrap());
    assert!(!ior(&spelt).neighbour);
    assert!(ior(&with(&format!("{line}\nneighbour = true")).unwrap()).neighbour);
    let paths = with("type = \"io-paths\"\nsize = 8192").unwrap();
    assert_eq!(paths.workloads[0].kind, WorkloadKind::IoPaths(IoPathsSpec { size: 8192 }));
    let default = with("type = \"io-paths\"").unwrap();
    assert_eq!(default.workloads[0].kind, WorkloadKind::IoPaths(IoPathsSpec { size: 262_144 }));
    let tcp = with("type = \"tcp\"\noperations = 5").unwrap();
    let expected =
        WorkloadKind::Microbenchmark(MicrobenchSpec { microbenchmark: Microbenchmark::Tcp, operations: 5, size: 1024 });
    assert_eq!(tcp.workloads[0].kind, expected);
    assert_eq!(
        with("type = \"kernel-features\"").unwrap().workloads[0].kind,
        WorkloadKind::KernelFeatures(FeaturesSpec {})
    );
}

#[test]
fn what_a_workload_cannot_be_is_refused() {
    let line = "options = \"-a POSIX -w -r -t 256k -b 4m\"";
    for (lines, said) in [
        (
            "type = \"fioo\"",
            "known are ior, fio, command, io-paths, kernel-features, load, mounts, futex, tcp, shared-memory",
        ),
        ("type = \"mounts\"\nsize = 4096", "the study has no `[[mounts]]`"),
        ("type = \"mounts\"\nsize = 5000", "5000 is not a multiple of 4096"),
        ("type = \"futex\"\nsize = 1", "unknown key `size`"),
        ("type = \"tcp\"\nsize = 0", "is not from 1"),
        ("type = \"shared-memory\"\noperation = 1", "operations"),
        ("type = \"tcp\"\noperations = 0", "is not from 1"),
        ("type = \"io-paths\"\nsize = 5000", "5000 is not a multiple of 4096"),
        ("type = \"io-paths\"\nsize = 0", "is not from 4096"),
        ("type = \"io-paths\"\nsize = 1073741824", "do not fit into a file system"),
        ("type = \"io-paths\"\nranks = 2", "unknown key `ranks`"),
        ("type = \"kernel-features\"\nsize = 4096", "unknown key `size`"),
        ("type = \"load\"\nsize = 4096", "unknown key `size`"),
        ("type = \"fio\"\nsize = 5000", "`size`, 5000, is not a multiple of `block`, 4096"),
        ("type = \"fio\"\nsize = 1073741824", "do not fit into a file system of"),
        ("type = \"fio\"\naccess = \"rnd\"", "known are sequential, random"),
        ("type = \"fio\"\nblok = 1", "did you mean `block`?"),
        ("type = \"fio\"\nsuite = \"../x\"", "use at most 100 lower-case letters"),
    ] {
        let message = refused(line, lines);
        assert!(message.contains(said), "{lines}: {message}");
    }
}

#[test]
fn a_bystander_is_one_test_on_a_tmpfs_by_the_embedded_engine() {
    let line = "options = \"-a POSIX -w -r -t 256k -b 4m\"";
    let with = |lines: &str| parse(&GOOD.replace(line, &format!("{line}\n{lines}")));
    let options = |study: &Study| ior(study).bystander.as_ref().map(|options| options.join(" "));
    for written in ["bystander = \"-w -r -t 4k -b 64k\"", "bystander = ['-w', '-r', '-t', '4k', '-b', '64k']"] {
        let study = with(written).unwrap();
        assert_eq!(options(&study).as_deref(), Some("-a POSIX -b 64k -t 4k -w -r"), "{written}");
        assert_eq!(ior(&study).engine, EngineChoice::Embedded);
        let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        assert!(plan.cells.iter().all(|cell| cell.workload.bystander.as_ref().is_some_and(|job| job.size_mib == 16)));
    }
    // Studies without a bystander serialize as before.
    let without = parse(GOOD).unwrap();
    assert_eq!((options(&without), ior(&without).engine), (None, EngineChoice::Auto));
    assert!(!serde_json::to_string(&without).unwrap().contains("bystander"));
    for (lines, said) in [
        ("bystander = true", "expected"),
        ("bystander = \"-w -t\"", "-t"),
        ("bystander = \"-w -t 4k -b 64k -o /tmp/x\"", "leave out `-o` and `-O`"),
        ("bystander = \"-w -t 4k -b 64k -O summaryFormat=JSON\"", "leave out `-o` and `-O`"),
        ("bystander = \"-f x.ior\"", "`-f` names a script"),
        ("bystander = \"-r -t 4k -b 64k\"", "reads what no test wrote"),
        ("bystander = \"-a MMAP -w -t 4k -b 64k\"", "use `-a POSIX`"),
        ("bystander = \"-w -t 1m -b 17m\"", "does not fit into the bystander's tmpfs of 16 MiB"),
        ("bystander = \"-w -t 4k -b 64k\"\nengine = \"external\"", "a bystander needs the embedded engine"),
    ] {
        let message = with(lines).unwrap_err().to_string();
        assert!(message.contains(said) && message.contains("s.toml:18:13"), "{lines}: {message}");
    }
    let of_others = refused(line, "type = \"io-paths\"\nbystander = \"-w\"");
    assert!(of_others.contains("unknown key `bystander`"), "{of_others}");
}

#[test]
fn a_study_is_read_whole() {
    let study = parse(GOOD).unwrap();
    let targets: Vec<String> = study.targets.iter().map(ToString::to_string).collect();
    assert_eq!(targets, ["x86_64 6.1", "x86_64 7.2", "aarch64 6.1", "aarch64 7.2"]);
    let FileSystem::Nfs(nfs) = &study.file_systems[0] else { panic!("{:?}", study.file_systems) };
    assert_eq!((nfs.version, nfs.localio, nfs.threads), (NfsVersion::V41, Some(false), 8));
    assert_eq!(
        (study.design.replicates, study.design.rounds, study.design.seed, study.design.control),
        (2, 1, 7, true)
    );
    assert_eq!(study.design.sampling_interval_ms, Some(500));
    assert_eq!(study.deadlines.of(Phase::Workload).map(|deadline| deadline.as_secs()), Some(600));
    assert_eq!(study.deadlines.of(Phase::Shell), None);
    let workload = ior(&study);
    assert_eq!((workload.engine, workload.ranks), (EngineChoice::Auto, 1));
    assert_eq!((workload.tests[0].interface, workload.tests[0].transfer_size), (Interface::Posix, 256 << 10));
    assert!(!workload.tests[0].options.iter().any(|option| option == "-o" || option == "-f"));
}

#[test]
fn options_are_a_text_or_a_list_of_arguments() {
    let line = "options = \"-a POSIX -w -r -t 256k -b 4m\"";
    let list = GOOD.replace(line, r#"options = ["-a", "POSIX", "-w", "-r", "-t", "256k", "-b", "4m"]"#);
    assert_eq!(parse(&list).unwrap(), parse(GOOD).unwrap());
    assert!(
        refused(line, "options = [\"-t\", 4]")
            .contains("`workloads[0].options[1]`: expected text, found a whole number")
    );
    assert!(refused(line, "options = 4").contains("`workloads[0].options`: expected text, found a whole number"));
}

#[test]
fn a_script_gives_its_tests_in_order() {
    let study = parse(&GOOD.replace("options = \"-a POSIX -w -r -t 256k -b 4m\"", "script = \"two.ior\"")).unwrap();
    let sizes: Vec<u64> = ior(&study).tests.iter().map(|test| test.transfer_size).collect();
    assert_eq!(sizes, [1 << 20, 2 << 20]);
}

#[test]
fn unknown_keys_are_refused_with_the_nearest_one_and_the_line() {
    assert_eq!(refused("seed = 7", "sede = 7"), "s.toml:21:1: unknown key `sede` in `design`: did you mean `seed`?");
    assert_eq!(
        refused("schema = 1", "schema = 1\nprobe = []"),
        "s.toml:2:1: unknown key `probe`: did you mean `probes`?"
    );
    assert_eq!(
        refused("workload = \"10min\"", "xyz = \"10min\""),
        "s.toml:25:1: unknown key `xyz` in `deadlines`: known are boot, set-up, attach, workload, tear-down"
    );
    assert!(refused("localio = false", "lokalio = false").contains("did you mean `localio`?"));
}

#[test]
fn every_value_is_checked_where_it_stands() {
    for (from, to, message) in [
        ("schema = 1", "schema = 2", "s.toml:1:10: `schema`: this program reads schema 1"),
        ("schema = 1", "", "s.toml:1:1: key `schema` is missing"),
        ("\"small\"", "\"Not Small\"", "s.toml:2:8: `name`: use at most 40 lower-case letters"),
        (
            "\"fexit\"]",
            "\"fexti\"]",
            "s.toml:4:19: `probes[1]`: unknown probe `fexti`; known are none, kprobe, kretprobe,",
        ),
        ("\"fexit\"]", "\"none\"]", "s.toml:4:19: `probes[1]`: this probe configuration is listed twice"),
        ("probes = [\"none\", \"fexit\"]", "probes = []", "s.toml:4:10: `probes`: the list is empty"),
        ("\"aarch64\"]", "\"arm64\"]", "unknown architecture `arm64`; known are x86_64, aarch64, riscv64"),
        ("\"7.2\"]", "\"7/2\"]", "`7/2` cannot be a kernel name"),
        ("\"7.2\"]", "\"6.1\"]", "this kernel is listed twice"),
        ("\"4.1\"", "\"4.0\"", "unknown NFS version `4.0`; known are 3, 4.1, 4.2"),
        ("localio = false", "localio = \"off\"", "expected true or false, found text"),
        (
            "type = \"nfs\"",
            "type = \"nfs\"\nsize_mib = 1024",
            "1024 MiB do not fit into the guest's memory of 1024 MiB",
        ),
        ("-t 256k", "-t 300k", "the block size (-b) must be a multiple of the transfer size (-t)"),
        ("-b 4m", "-b 4m -j", "IOR option"),
        ("-b 4m", "-b 400m", "its files of 400 MiB do not fit into a file system of 256 MiB"),
        ("-a POSIX", "-f two.ior", "use the key `script`"),
        ("name = \"w\"", "", "key `name` is missing: nothing else names the workload"),
        ("name = \"w\"", "script = \"two.ior\"", "give either `script` or `options`"),
        ("name = \"w\"", "name = \"w\"\nengine = \"real\"", "unknown value `real`; known are auto, embedded, external"),
        ("name = \"w\"", "name = \"w\"\nranks = 0", "0 is not from 1 to 1024"),
        ("replicates = 2", "replicates = 2.5", "expected a whole number, found a number with a fraction"),
        ("seed = 7", "seed = -1", "-1 is not from 0 to 9223372036854775807"),
        ("\"500ms\"", "500", "expected a time with its unit"),
        ("\"500ms\"", "\"5 parsecs\"", "`5 parsecs` is not a time such as 2s"),
        ("\"500ms\"", "\"1ms\"", "1ms is not from 10 ms"),
        ("seed = 7", "seed = 7\nseed = 8", "duplicate key"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(message), "{to}: {error}");
        assert!(error.starts_with("s.toml:"), "{error}");
    }
}

#[test]
fn a_control_needs_a_baseline() {
    let without = GOOD.replace("[\"none\", \"fexit\"]", "[\"fexit\"]");
    assert!(!parse(&without).unwrap().design.control);
    let asked = without.replace("seed = 7", "seed = 7\ncontrol = true");
    assert!(parse(&asked).unwrap_err().to_string().contains("add `none` to `probes`"));
}

#[test]
fn gates_are_read_strictly() {
    let with = |gate: &str| parse(&format!("{GOOD}\n[[gates]]\n{gate}\n"));
    let error = |gate: &str| with(gate).map(|_| ()).unwrap_err().to_string();
    let study = with("probes = \"fexit+percpu\"\nkernels = \"6.1\"\noverhead = \"2.5%\"\nbyte_error = 0").unwrap();
    let gate = &study.gates[0];
    assert_eq!((gate.probes.as_slice(), gate.byte_error), (&["fexit".to_owned()][..], Some(0)));
    assert_eq!(gate.overhead.map(|share| share.ppm()), Some(25_000));
    assert!(error("").contains("this gate has no limit"));
    assert!(error("overheat = \"5%\"").contains("did you mean `overhead`?"));
    assert!(error("overhead = \"1.05\"").contains("such as 5% or 0.5%"));
    assert!(error("relative_error = \"0%\"").contains("allow more than 0%"));
    assert!(error("byte_error = -1").contains("is not from 0"));
    let kinds = |text: &str| with(text).unwrap().gates[0].deny.len();
    assert_eq!((kinds("deny = \"idle-cpu\""), kinds("deny = [\"idle-cpu\", \"left-behind\"]")), (1, 2));
    assert!(kinds("deny = \"all\"") > 10);
    let message = error("deny = \"event-dropped\"");
    assert!(message.contains("did you mean") && message.contains("events-dropped"), "{message}");
    assert!(error("attach = true\nprobes = \"none\"").contains("none of the study's probe configurations"));
    assert!(error("attach = true\nworkloads = \"v\"").contains("no such workload: w"));
    let without_baseline = GOOD.replace("[\"none\", \"fexit\"]", "[\"fexit\"]");
    let gated = format!("{without_baseline}\n[[gates]]\noverhead = \"5%\"\n");
    assert!(parse(&gated).unwrap_err().to_string().contains("add `none` to `probes`"));
}

#[test]
fn the_clock_is_the_hosts_choice_unless_the_study_names_one() {
    let study = parse(GOOD).unwrap();
    assert_eq!((study.clock, study.clock_of_host), (Clock::Instructions, true));
    for (name, clock) in [("wall", Clock::Wall), ("instructions", Clock::Instructions)] {
        let study = parse(&GOOD.replacen("probes =", &format!("clock = \"{name}\"\nprobes ="), 1)).unwrap();
        assert_eq!((study.clock, study.clock_of_host), (clock, false));
    }
}

#[test]
fn a_model_needs_counted_instructions_and_is_refused_with_the_nearest_name() {
    let with = |keys: &str| parse(&GOOD.replacen("probes =", &format!("{keys}\nprobes ="), 1));
    assert_eq!(parse(GOOD).unwrap().model, None);
    for keys in ["model = \"cachegrind\"", "clock = \"instructions\"\nmodel = \"cachegrind\""] {
        let study = with(keys).unwrap();
        assert_eq!(study.model, Model::named("cachegrind"));
        assert_eq!((study.clock, study.clock_of_host), (Clock::Instructions, false));
        // The model is part of the study's digest.
        assert_ne!(study.digest(), Study { model: None, ..study.clone() }.digest());
    }
    let error = with("model = \"cachegrin\"").unwrap_err().to_string();
    assert!(error.contains("unknown value `cachegrin`; known are cachegrind; did you mean `cachegrind`"), "{error}");
    let error = with("clock = \"wall\"\nmodel = \"cachegrind\"").unwrap_err().to_string();
    assert!(error.contains("it needs `clock = \"instructions\"`"), "{error}");

    let model = Model::named("cachegrind").unwrap();
    let mut study = parse(GOOD).unwrap();
    study.use_model(model.clone()).unwrap();
    assert_eq!((study.clock, study.clock_of_host, study.model), (Clock::Instructions, false, Some(model.clone())));
    let mut wall = with("clock = \"wall\"").unwrap();
    let error = wall.use_model(model.clone()).unwrap_err().to_string();
    assert!(error.contains("counts no instructions, which the model `cachegrind` prices"), "{error}");
    assert!(load("load").unwrap().use_model(model).is_err(), "nothing but loading is done");
}

#[test]
fn scheduling_is_the_clocks_choice_unless_the_study_names_one_and_the_plan_has_it() {
    let with = |clock: &str, guest: &str| {
        let clocked = GOOD.replacen("probes =", &format!("clock = \"{clock}\"\nprobes ="), 1);
        parse(&format!("{clocked}\n[guest]\n{guest}\n"))
    };
    let cases = [
        ("instructions", "", Scheduling::Fixed),
        ("wall", "", Scheduling::Kernel),
        ("instructions", "scheduling = \"kernel\"", Scheduling::Kernel),
        ("wall", "scheduling = \"fixed\"", Scheduling::Fixed),
    ];
    for (clock, guest, scheduling) in cases {
        let study = with(clock, guest).unwrap();
        let plan = expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        assert_eq!(
            (study.scheduling(), plan.study.guest.scheduling),
            (scheduling, Some(scheduling)),
            "{clock} {guest}"
        );
    }
    let error = with("wall", "scheduling = \"fix\"").unwrap_err().to_string();
    assert!(error.contains("unknown value `fix`; known are kernel, fixed; did you mean `fixed`?"), "{error}");
}

#[test]
fn a_warm_up_is_a_number_of_runs_or_a_rule() {
    let with = |value: &str| parse(&GOOD.replacen("seed = 7", &format!("seed = 7\nwarm_up = {value}"), 1));
    let read = |value: &str| with(value).unwrap().design.warm_up;
    assert_eq!((read("3"), read("\"steady\"")), (WarmUp::Runs(3), WarmUp::Rule(WarmUpRule::Steady)));
    for (value, part) in [("\"stedy\"", "did you mean `steady`?"), ("-1", "is not from 0"), ("true", "a whole number")]
    {
        let error = with(value).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    // The default is one run if there is an interval that it could narrow.
    let rounds = |rounds: u32| {
        let lines = GOOD.lines().filter(|line| !line.starts_with("rounds") && !line.starts_with("replicates"));
        let text = lines.map(|line| format!("{line}\n")).collect::<String>();
        let text = text.replacen("seed = 7", &format!("seed = 7\nreplicates = 1\nrounds = {rounds}"), 1);
        parse(&text).unwrap().design.warm_up
    };
    assert_eq!([rounds(1), rounds(2)], [WarmUp::Runs(0), WarmUp::Runs(1)]);
    // The form in plans.
    let json = |value: &str| serde_json::to_value(read(value)).unwrap();
    assert_eq!((json("3"), json("\"steady\"")), (3.into(), "steady".into()));
    assert_eq!(read("\"probes\""), WarmUp::Rule(WarmUpRule::Probes));
    for value in ["3", "\"steady\"", "\"probes\""] {
        assert_eq!(serde_json::from_value::<WarmUp>(json(value)).unwrap(), read(value));
    }
}

#[test]
fn certainty_has_defaults_and_limits() {
    let certainty = parse(GOOD).unwrap().design.certainty;
    assert_eq!((certainty.error_rate.ppm(), certainty.insist), (50_000, false));
    let with = |line: &str| parse(&GOOD.replacen("seed = 7", &format!("seed = 7\n{line}"), 1));
    assert_eq!(with("error_rate = \"1%\"").unwrap().design.certainty.error_rate.ppm(), 10_000);
    for rate in ["0%", "50%"] {
        let error = with(&format!("error_rate = \"{rate}\"")).unwrap_err().to_string();
        assert!(error.contains("an error rate must be between"), "{error}");
    }
    assert!(with("correction = \"none\"").unwrap_err().to_string().contains("known are holm, benjamini-hochberg"));
}

#[test]
fn scripts_are_named_not_pathed() {
    for script in ["../two.ior", "two", ".ior", "a/b.ior"] {
        let error = refused("options = \"-a POSIX -w -r -t 256k -b 4m\"", &format!("script = \"{script}\""));
        assert!(error.contains("give the file name of a script"), "{error}");
    }
    let error = refused("options = \"-a POSIX -w -r -t 256k -b 4m\"", "script = \"three.ior\"");
    assert!(error.contains("no script `three.ior` beside the study or among the bundled ones"), "{error}");
}

#[test]
fn expectations_of_the_study_come_before_those_compiled_in() {
    let own = format!(
        "{GOOD}\n[[expected]]\narch = \"aarch64\"\nkernels = \"6.1\"\nprobe = \"fexit\"\nstep = \"load\"\nerrno = 22\nreason = \"r\"\nsource = \"s\"\n"
    );
    let study = parse(&own).unwrap();
    assert_eq!((study.expectations[0].errno, study.expectations[1].errno), (22, 524));
    let error = parse(&own.replace("probe = \"fexit\"\nstep", "probe = \"none\"\nstep")).unwrap_err().to_string();
    assert!(error.contains("the baseline attaches nothing"), "{error}");
    let compiled_in = parse(GOOD).unwrap().expectations;
    assert!(
        compiled_in.iter().any(|one| one.archs.contains(&Arch::Aarch64)
            && one.errno == 524
            && one.kernels.contains(&"6.1".to_owned()))
    );
}

#[test]
fn the_digest_follows_the_meaning_and_not_the_layout() {
    let study = parse(GOOD).unwrap();
    let commented = parse(&GOOD.replace("seed = 7", "seed   =  7 # lucky")).unwrap();
    assert_eq!(study.digest(), commented.digest());
    assert_ne!(study.digest(), parse(&GOOD.replace("seed = 7", "seed = 8")).unwrap().digest());
}

#[test]
fn studies_are_found_by_name_and_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, GOOD.replace("options = \"-a POSIX -w -r -t 256k -b 4m\"", "script = \"mine.ior\"")).unwrap();
    std::fs::write(folder.path().join("mine.ior"), "IOR START\nRUN\nIOR STOP\n").unwrap();
    assert_eq!(ior(&load(path.to_str().unwrap()).unwrap()).tests.len(), 1);

    let error = load("quik").unwrap_err().to_string();
    assert!(error.contains("did you mean `quick`?"), "{error}");
    assert!(matches!(load("./quick"), Err(StudyError::Read { .. })));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    let Err(StudyError::Read { source, .. }) = load(path.to_str().unwrap()) else { panic!("it was read") };
    assert_eq!(source.to_string(), "it has more than 1048576 bytes, which is the limit for such a file");
}

proptest::proptest! {
    /// A damaged study is accepted, or gives an error with a line of the file. It never panics.
    #[test]
    fn damage_is_an_error_with_a_place(at in 0..GOOD.len(), cut in 0..40usize, put in "[ -~\n]{0,12}") {
        let end = (at + cut).min(GOOD.len());
        let damaged = format!("{}{put}{}", &GOOD[..at], &GOOD[end..]);
        if let Err(error) = parse(&damaged) {
            let StudyError::Invalid(invalid) = &error else { panic!("{error}") };
            for complaint in &invalid.complaints {
                let (line, column) = invalid.place(complaint);
                assert!((1..=damaged.lines().count() + 1).contains(&line) && column >= 1, "{error}");
            }
            assert!(!invalid.complaints.is_empty());
        }
    }
}

/// A gate of the command line has the form of a table in the study file, and the same checks.
#[test]
fn gates_are_added_in_the_form_of_the_file() {
    let mut study = load("quick").unwrap();
    study.demand("overhead = \"5%\", probes = [\"fexit\"]").unwrap();
    study.demand("direct_cost = 400").unwrap();
    let [.., overhead, direct] = study.gates.as_slice() else { panic!("{:?}", study.gates) };
    assert_eq!(
        (overhead.overhead.map(|share| share.ppm()), overhead.probes.as_slice()),
        (Some(50_000), &["fexit".to_owned()][..])
    );
    assert_eq!((direct.direct_cost, direct.probes.len()), (Some(400), 0));
    let before = study.gates.clone();
    for (limits, part) in [
        ("overhed = \"5%\"", "did you mean `overhead`?"),
        ("probes = [\"fexit\"]", "this gate has no limit"),
        ("overhead = \"5%\", probes = [\"fexti\"]", "fexti"),
        ("overhead", "gate of the command line"),
        ("attach = true } other = { ", "gate of the command line"),
    ] {
        let error = study.demand(limits).unwrap_err().to_string();
        assert!(error.contains(part), "{limits}: {error}");
        assert_eq!(study.gates, before, "{limits}");
    }
}
