// SPDX-License-Identifier: MIT OR Apache-2.0
//! A made-up complete journal with every kind of outcome that a table shows.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod hostile;
pub(crate) mod made_up;
pub(crate) mod matrix;
pub(crate) mod measured;
pub(crate) mod paths;
pub(crate) mod pprof;
pub(crate) mod quick;
pub(crate) mod replicated;

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Arch, Operation, ProbeConfiguration,
    job::IorEngine,
    message::{GuestFacts, Interval, MountFacts, MountStats, Phase, Reading, RunFigures, WorkloadPhase},
    operation::Totals,
    probe::Probe,
    tracer_messages::{Attached, CounterRow, Device, Ended, Losses, Program, Refusal, Sample, Step},
};
use bpfassay_results::{
    BlockEnded, BlockStarted, BootVerdict, FailureKind, GuestReady, JOURNAL_VERSION, JournalContents, JournalEntry,
    JournalHeader, Outcome, Provenance, RunFailure, RunRecord,
    provenance::{Artefact, HostFacts, QemuFacts, TargetArtefacts},
};
use bpfassay_study::{Available, Block, Narrowing, Plan, PlannedRun, Study, Target, expand};

pub(crate) const CGROUP: u64 = 4711;
pub(crate) const DEVICE: Device = Device { major: 0, minor: 42 };
pub(crate) const MIB: u64 = 1 << 20;
/// Bytes that each phase of the workload moves.
pub(crate) const MOVED: u64 = 8 * MIB;

pub(crate) fn study(sampling: Option<&str>, rounds: u32, replicates: u32) -> Study {
    study_of("-a POSIX -w -r -t 256k -b 8m", sampling, rounds, replicates)
}

pub(crate) fn study_of(options: &str, sampling: Option<&str>, rounds: u32, replicates: u32) -> Study {
    let sampling = sampling.map(|interval| format!("sampling_interval = \"{interval}\"")).unwrap_or_default();
    let text = format!(
        r#"
schema = 1
name = "made-up"
description = "For tests."
clock = "wall"
probes = ["none", "kprobe", "fexit"]
[[targets]]
arch = ["x86_64", "aarch64"]
kernels = "6.1"
[[targets]]
arch = "riscv64"
kernels = "6.12"
[[file_systems]]
type = "nfs"
[[workloads]]
name = "w"
options = "{options}"
[design]
replicates = {replicates}
rounds = {rounds}
seed = 1
warm_up = 0
{sampling}
"#
    );
    Study::parse("made-up.toml", &text, &|_| Ok(None)).unwrap()
}

pub(crate) fn plan(study: &Study) -> Plan {
    expand(study, &Narrowing::default(), &Available::default()).unwrap()
}

pub(crate) fn header(plan: Plan) -> JournalHeader {
    let artefact = |name: &str, version: &str, digit: char| Artefact {
        name: name.to_owned(),
        version: version.to_owned(),
        sha256: Some(digit.to_string().repeat(64)),
    };
    let qemu = |arch: Arch| QemuFacts {
        program: artefact(&format!("qemu-system-{arch}"), "7.2.19", 'b'),
        path: format!("/usr/bin/qemu-system-{arch}"),
        accelerator: "tcg".to_owned(),
        accelerator_reason: "/dev/kvm does not exist".to_owned(),
        machine: if arch == Arch::X86_64 { "q35" } else { "virt" }.to_owned(),
        cpu: "max".to_owned(),
        plugin_api: None,
        package: None,
    };
    let targets = plan
        .targets()
        .into_iter()
        .map(|target| TargetArtefacts {
            target: target.clone(),
            kernel: artefact("vmlinuz", "6.1.147-1", 'c'),
            initramfs: vec![artefact("base", "0.1.0", 'd'), artefact("modules", "6.1.147-1", 'e')],
            payload: vec![artefact("bpfassay-tracer", "0.1.0", 'f')],
        })
        .collect();
    JournalHeader {
        journal: JOURNAL_VERSION,
        started_unix_ms: 1_790_000_000_000,
        plan,
        provenance: Provenance {
            bpfassay: artefact("bpfassay", "0.1.0", 'a'),
            host: HostFacts {
                machine: "x86_64".to_owned(),
                kernel_release: "6.1.0".to_owned(),
                cpu_model: "A CPU".to_owned(),
                cpus: 2,
                memory_kib: 8 << 20,
                jobs: 2,
            },
            qemu: Arch::ALL.iter().map(|&arch| (arch, qemu(arch))).collect(),
            targets,
            manifest: serde_json::json!({"provider": "debian"}),
        },
    }
}

/// Formats IOR's summary of one write and one read phase, in the form of IOR 4.
pub(crate) fn summary(write_mib_s: f64, read_mib_s: f64) -> String {
    let mib = (MOVED / MIB) as f64;
    let result = |access: &str, bandwidth: f64| {
        serde_json::json!({
            "access": access, "bwMiB": bandwidth, "blockKiB": 8192.0, "xferKiB": 256.0, "iops": 1.0, "latency": 0.001,
            "openTime": 0.001, "wrRdTime": mib / bandwidth, "closeTime": 0.001, "totalTime": mib / bandwidth,
        })
    };
    serde_json::json!({
        "Version": "4.1.0+dev",
        "Began": "Thu Jan  1 00:00:00 1970",
        "Command line": "ior",
        "Machine": "Linux",
        "tests": [{
            "TestID": 0,
            "StartTime": "Thu Jan  1 00:00:00 1970",
            "Parameters": {
                "testID": 0, "refnum": 0, "api": "POSIX", "platform": "linux", "testFileName": "data",
                "deadlineForStonewall": 0, "stonewallWearOut": 1, "maxTimeDuration": 0, "outlierThreshold": 0,
                "options": "", "dryRun": 0, "nodes": 1, "memoryPerTask": 0, "memoryPerNode": 0, "tasksPerNode": 1,
                "repetitions": 1, "multiFile": 0, "interTestDelay": 0, "fsync": 0, "segmentCount": 1,
                "transferSize": 262_144, "blockSize": MOVED,
            },
            "Options": {"api": "POSIX", "tasks": 1},
            "Results": [result("write", write_mib_s), result("read", read_mib_s)],
        }],
        "summary": [
            {"operation": "write", "API": "POSIX", "TestID": 0, "xsizeMiB": mib},
            {"operation": "read", "API": "POSIX", "TestID": 0, "xsizeMiB": mib},
        ],
        "Finished": "Thu Jan  1 00:00:01 1970",
    })
    .to_string()
}

/// Makes a reading at `at_ns` with the bytes written and read so far.
pub(crate) fn reading(probe: ProbeConfiguration, at_ns: u64, written: u64, read: u64) -> Reading {
    Reading {
        monotonic_ns: at_ns,
        idle_ns: None,
        tracer: (!probe.is_baseline()).then(|| sample(at_ns, Some("barrier"), written, read)),
        mountstats: Some(MountStats { normal_written: written, normal_read: read, ..MountStats::default() }),
    }
}

pub(crate) fn sample(at_ns: u64, label: Option<&str>, written: u64, read: u64) -> Sample {
    let row = |cgroup, device, operation, bytes| CounterRow {
        cgroup,
        device,
        mount: 30,
        path: None,
        operation,
        variant: None,
        task: None,
        totals: Totals { calls: bytes / (256 << 10), bytes, errors: 0 },
        latency: Vec::new(),
    };
    let elsewhere = Device { major: 0, minor: 5 };
    Sample {
        monotonic_ns: at_ns,
        label: label.map(str::to_owned),
        // Rows of other cgroups and mounts never belong to the workload.
        rows: vec![
            row(1, DEVICE, Operation::Write, 999),
            row(CGROUP, elsewhere, Operation::Read, 12_345),
            row(CGROUP, DEVICE, Operation::Write, written),
            row(CGROUP, DEVICE, Operation::Read, read),
        ],
        events: Vec::new(),
        losses: Losses {
            missed_probes: None,
            recursion_misses: Some(0),
            map_insert_failures: Some(0),
            ..Losses::default()
        },
    }
}

/// Creates figures of a run that moved everything exactly, at these bandwidths.
pub(crate) fn figures(probe: ProbeConfiguration, write_mib_s: f64, read_mib_s: f64) -> RunFigures {
    let moved = |operation| BTreeMap::from([(operation, Totals { calls: 32, bytes: MOVED, errors: 0 })]);
    let phase = |name: &str, operation, before, after| WorkloadPhase {
        tasks: None,
        window: None,
        mount: None,
        name: name.to_owned(),
        test: 0,
        repetition: 0,
        moved: moved(operation),
        events: BTreeMap::new(),
        calls: None,
        activity: None,
        interval: Interval { before, after },
    };
    let at = |ns, written, read| reading(probe, ns, written, read);
    let program = |name: &str, function: &str| Program {
        name: name.to_owned(),
        attached_to: function.to_owned(),
        jited_bytes: 700,
        instructions: 120,
        verified_instructions: Some(400),
    };
    let displaced = if probe.probe == Probe::Kprobe { "+0x8" } else { "" };
    RunFigures {
        probe,
        engine: Some(IorEngine::Embedded),
        summary: summary(write_mib_s, read_mib_s),
        features: Vec::new(),
        cgroup: CGROUP,
        mount: MountFacts {
            id: 30,
            device: DEVICE,
            path: "/mnt/nfs".to_owned(),
            file_system: "nfs4".to_owned(),
            options: "rw,vers=4.2".to_owned(),
        },
        phases: vec![
            phase("write", Operation::Write, at(1_000_000_000, 0, 0), at(2_000_000_000, MOVED, 0)),
            phase("read", Operation::Read, at(3_000_000_000, MOVED, 0), at(4_000_000_000, MOVED, MOVED)),
        ],
        whole: Interval { before: at(500_000_000, 0, 0), after: at(4_500_000_000, MOVED, MOVED) },
        tracer: (!probe.is_baseline()).then(|| Attached {
            configuration: probe,
            load_ns: Some(10_000_000),
            attach_ns: 5_000_000,
            programs: vec![
                program("on_read", &format!("vfs_read{displaced}")),
                program("on_write", &format!("vfs_write{displaced}")),
            ],
            findings: Vec::new(),
        }),
        ended: (!probe.is_baseline()).then(Ended::default),
        tool_statistics: Vec::new(),
        tool: None,
        samples: Vec::new(),
        bystander: None,
        warm_up: None,
        namespace: Vec::new(),
    }
}

/// Removes the names of columns that cells of `page` have for narrow windows.
pub(crate) fn without_labels(page: &str) -> String {
    let mut parts = page.split(" data-label=\"");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('"').unwrap().1)
}

pub(crate) fn not_supported() -> Refusal {
    Refusal {
        program: Some("on_read".to_owned()),
        errno: Some(524),
        ..Refusal::new(Step::Attach, "cannot attach on_read to vfs_read: Unknown error 524".to_owned())
    }
}

pub(crate) fn panic_of_guest() -> RunFailure {
    RunFailure {
        kind: FailureKind::Panic,
        phase: Some(Phase::Workload),
        excerpt: vec!["Kernel panic - not syncing: Fatal exception in interrupt".to_owned()],
        log: Some("logs/riscv64_6.12_w_nfs4.2_1_boot1.log".to_owned()),
        after: None,
    }
}

/// Returns the outcome of `run`: x86_64 measures everything, aarch64 refuses fexit, riscv64 panics
/// under fexit.
pub(crate) fn outcome(block: &Block, run: &PlannedRun) -> Outcome {
    let probe = run.spec.probe;
    let round = f64::from(run.round) + 10.0 * f64::from(block.replicate);
    let cost = match probe.probe {
        Probe::None => 1.0,
        Probe::Kprobe => 1.10,
        Probe::Fexit => 1.05,
        other => panic!("the made-up study has no {other}"),
    };
    let wobble = 1.0 + 0.01 * (round % 3.0) * if run.control { 0.5 } else { cost - 0.9 };
    match (block.target.arch, probe.probe) {
        (Arch::Aarch64, Probe::Fexit) => Outcome::Refused(not_supported()),
        (Arch::Riscv64, Probe::Fexit) => Outcome::Failed(panic_of_guest()),
        _ => Outcome::Measured(Box::new(figures(probe, 160.0 / cost * wobble, 320.0 / cost * wobble))),
    }
}

pub(crate) fn record(block: &Block, run: &PlannedRun, outcome: Outcome) -> RunRecord {
    RunRecord::new(block, run, 1, 1_790_000_001_000, 2500, outcome)
}

pub(crate) fn guest_facts(target: &Target) -> GuestFacts {
    GuestFacts {
        kernel_release: format!("{}.0-amd64", target.kernel),
        machine: target.arch.to_string(),
        kernel_command_line: "console=ttyS0 panic=-1".to_owned(),
        cpus: 1,
        btf: true,
        jit: Some(1),
        mitigations: BTreeMap::from([("meltdown".to_owned(), "Mitigation: PTI".to_owned())]),
        ..GuestFacts::default()
    }
}

/// Creates the journal of `study` with every run done; `outcome` makes their outcomes.
pub(crate) fn contents(study: &Study, outcome: impl Fn(&Block, &PlannedRun) -> Outcome) -> JournalContents {
    contents_of(plan(study), outcome)
}

/// Creates the journal of `plan`, or of its shard, in the same way.
pub(crate) fn contents_of(plan: Plan, outcome: impl Fn(&Block, &PlannedRun) -> Outcome) -> JournalContents {
    let mut entries = Vec::new();
    for block in plan.measured_blocks() {
        let name = block.id.clone();
        entries.push(JournalEntry::BlockStarted(Box::new(BlockStarted {
            block: name.clone(),
            boot: 1,
            at_unix_ms: 1_790_000_000_500,
            qemu: vec![format!("qemu-system-{}", block.target.arch), "-nodefaults".to_owned()],
            attempt: 1,
            log: Some(format!("logs/{name}_boot1.log")),
            runs: block.runs.iter().map(|run| run.spec.id.clone()).collect(),
            confirming: None,
            reused: None,
        })));
        entries.push(JournalEntry::GuestReady(Box::new(GuestReady {
            block: name.clone(),
            boot: 1,
            ready_after_ms: 4200,
            facts: guest_facts(&block.target),
            nodes: Vec::new(),
        })));
        for run in &block.runs {
            entries.push(JournalEntry::Run(Box::new(record(block, run, outcome(block, run)))));
        }
        entries.push(JournalEntry::BlockEnded(Box::new(BlockEnded {
            counts: None,
            code_coverage: None,
            block: name,
            boot: 1,
            at_unix_ms: 1_790_000_020_000,
            failure: None,
            notes: Vec::new(),
            verdict: BootVerdict::Complete,
            settled: Vec::new(),
        })));
    }
    JournalContents { header: header(plan), entries, torn: None, digest: None }
}
