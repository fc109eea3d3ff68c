// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures of a scripted run.
//!
//! They are a pure function of the machine's seed, the run, and the runs before it in the same
//! boot. So a run has other figures in another boot or after other runs, as in a real guest.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation, ProbeConfiguration,
    job::{IorEngine, RunSpec},
    message::{GuestFacts, Interval, MountFacts, Reading, RunFigures, WorkloadPhase},
    operation::Totals,
    tracer_messages::{Attached, CounterRow, Device, Ended, Losses, Program, Sample},
};

use crate::chaos_random::mixed;

const CGROUP: u64 = 4711;
const DEVICE: Device = Device { major: 0, minor: 42 };
/// Bytes that each phase of the workload moves.
const MOVED: u64 = 1 << 20;
const CALLS: u64 = 4;
const MS: u64 = 1_000_000;

/// The state that determines the figures of a boot's next run.
#[derive(Debug, Clone)]
pub struct FigureState(u64);

impl FigureState {
    /// The state of a boot with `seed` before any run.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mixed(seed))
    }

    /// Notes that the run `id` ended.
    pub fn ran(&mut self, id: &str) {
        self.0 = self.after(id);
    }

    const fn after(&self, id: &str) -> u64 {
        let mut hash = self.0;
        let bytes = id.as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            hash = mixed(hash ^ bytes[index] as u64);
            index += 1;
        }
        hash
    }

    /// Returns the figures of `spec` as the next run.
    #[must_use]
    pub fn figures(&self, spec: &RunSpec) -> RunFigures {
        let drawn = self.after(&spec.id);
        let probe = spec.probe;
        // Between 100 and 101 ms, and 2 ms more with a probe: realistic overheads and scatter.
        let cost = if probe.is_baseline() { 0 } else { 2 * MS };
        let write_ns = 100 * MS + drawn % MS + cost;
        let read_ns = 50 * MS + (drawn >> 20) % MS + cost;
        let begin = 1_000 * MS + (drawn >> 40) % MS;
        let times = [begin, begin + write_ns, begin + write_ns + MS, begin + write_ns + MS + read_ns];
        let at = |time: u64, written: u64, read: u64| reading(probe, time, written, read);
        RunFigures {
            probe,
            engine: Some(IorEngine::Embedded),
            summary: summary(write_ns, read_ns),
            features: Vec::new(),
            cgroup: CGROUP,
            mount: mount(),
            phases: vec![
                phase("write", Operation::Write, at(times[0], 0, 0), at(times[1], MOVED, 0)),
                phase("read", Operation::Read, at(times[2], MOVED, 0), at(times[3], MOVED, MOVED)),
            ],
            whole: Interval { before: at(begin - MS, 0, 0), after: at(times[3] + MS, MOVED, MOVED) },
            tracer: (!probe.is_baseline()).then(|| attached(probe, drawn)),
            ended: (!probe.is_baseline()).then(Ended::default),
            tool_statistics: Vec::new(),
            tool: None,
            samples: Vec::new(),
            bystander: None,
            warm_up: None,
            namespace: Vec::new(),
        }
    }
}

/// The release of the guests' kernel.
pub const RELEASE: &str = "6.12.0-chaos";

/// Returns the facts that a guest with this kernel command line reports about itself.
#[must_use]
pub fn facts(kernel_command_line: &str) -> GuestFacts {
    GuestFacts {
        kernel_release: RELEASE.to_owned(),
        kernel_command_line: kernel_command_line.to_owned(),
        machine: "x86_64".to_owned(),
        cpus: 1,
        memory_kib: 300 << 10,
        page_size: 4096,
        btf: true,
        jit: Some(1),
        mount: mount(),
        ..GuestFacts::default()
    }
}

fn mount() -> MountFacts {
    MountFacts {
        id: 30,
        device: DEVICE,
        path: "/mnt/tmpfs".to_owned(),
        file_system: "tmpfs".to_owned(),
        options: "rw".to_owned(),
    }
}

fn attached(probe: ProbeConfiguration, drawn: u64) -> Attached {
    let program = |name: &str, function: &str| Program {
        name: name.to_owned(),
        attached_to: function.to_owned(),
        jited_bytes: 700,
        instructions: 120,
        verified_instructions: Some(400),
    };
    Attached {
        load_ns: Some(10 * MS + drawn % 1000),
        attach_ns: 5 * MS,
        programs: vec![program("on_read", "vfs_read"), program("on_write", "vfs_write")],
        ..Attached::none(probe)
    }
}

fn phase(name: &str, operation: Operation, before: Reading, after: Reading) -> WorkloadPhase {
    let moved = BTreeMap::from([(operation, Totals { calls: CALLS, bytes: MOVED, errors: 0 })]);
    WorkloadPhase {
        tasks: None,
        window: None,
        mount: None,
        name: name.to_owned(),
        test: 0,
        repetition: 0,
        moved,
        events: BTreeMap::new(),
        calls: None,
        activity: None,
        interval: Interval { before, after },
    }
}

fn reading(probe: ProbeConfiguration, monotonic_ns: u64, written: u64, read: u64) -> Reading {
    let row = |operation, bytes| CounterRow {
        cgroup: CGROUP,
        device: DEVICE,
        mount: 30,
        path: None,
        operation,
        variant: None,
        task: None,
        totals: Totals { calls: bytes / (MOVED / CALLS), bytes, errors: 0 },
        latency: Vec::new(),
    };
    let tracer = (!probe.is_baseline()).then(|| Sample {
        monotonic_ns,
        label: Some("barrier".to_owned()),
        rows: vec![row(Operation::Write, written), row(Operation::Read, read)],
        events: Vec::new(),
        losses: Losses { recursion_misses: Some(0), map_insert_failures: Some(0), ..Losses::default() },
    });
    Reading { monotonic_ns, idle_ns: Some(monotonic_ns / 10), tracer, mountstats: None }
}

/// IOR's summary of one write phase and one read phase, in the form of IOR 4.
fn summary(write_ns: u64, read_ns: u64) -> String {
    let result = |access: &str, ns: u64| {
        let seconds = ns as f64 / 1e9;
        serde_json::json!({
            "access": access, "bwMiB": 1.0 / seconds, "blockKiB": 1024.0, "xferKiB": 256.0, "iops": 4.0 / seconds,
            "latency": 0.001, "openTime": 0.001, "wrRdTime": seconds, "closeTime": 0.001, "totalTime": seconds,
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
            "Results": [result("write", write_ns), result("read", read_ns)],
        }],
        "summary": [
            {"operation": "write", "API": "POSIX", "TestID": 0, "xsizeMiB": 1.0},
            {"operation": "read", "API": "POSIX", "TestID": 0, "xsizeMiB": 1.0},
        ],
        "Finished": "Thu Jan  1 00:00:01 1970",
    })
    .to_string()
}
