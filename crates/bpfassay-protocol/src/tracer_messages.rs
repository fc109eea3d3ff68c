// SPDX-License-Identifier: MIT OR Apache-2.0
//! JSON lines between the tracer and the program that started it.
//!
//! The tracer writes one [`TracerLine`] per line to standard output and reads commands from
//! standard input. `sample LABEL` requests a [`TracerLine::Sample`] with that label at once. At end
//! of file, the tracer detaches and exits with status 0.
//!
//! If there is `--keep-loaded`, nothing is attached at first. `attach` attaches the programs and
//! requests [`TracerLine::Ready`]. `detach` detaches them and requests [`TracerLine::Ended`]. Both
//! can be repeated. The programs stay loaded in between and count from zero each time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    Operation, ProbeConfiguration,
    checked_prototype::Prototypes,
    finding_name::Finding,
    kernel_feature::Feature,
    operation::{Totals, Variant},
    privileges::CapabilitySearch,
    program_set::EventRow,
};

/// Longest line that a reader of the tracer accepts, in bytes.
pub const MAX_LINE: usize = 2 << 20;

/// One line of the tracer's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TracerLine {
    /// All programs are loaded and attached, and counting has begun.
    Ready(Attached),
    /// A program could not be loaded or attached. The tracer exits with status 3 after this line.
    Refused(Refusal),
    /// A reading of the counters.
    Sample(Sample),
    /// The last line of a tracer that was requested to end or detach. It has detached.
    Ended(Ended),
    /// The features of this kernel (`--features`). No other line is written then.
    Features {
        /// Every feature that was tried, in display order.
        features: Vec<Feature>,
    },
}

/// A tracer that attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attached {
    /// The configuration.
    pub configuration: ProbeConfiguration,
    /// Time to open and load the programs, in nanoseconds of `CLOCK_MONOTONIC`; `None` if an
    /// earlier run had loaded them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_ns: Option<u64>,
    /// Time to attach the programs, in the same unit.
    pub attach_ns: u64,
    /// The programs as the kernel holds them.
    pub programs: Vec<Program>,
    /// Pitfalls found before counting began.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

impl Attached {
    /// `configuration` at the start: nothing is loaded or attached.
    #[must_use]
    pub const fn none(configuration: ProbeConfiguration) -> Self {
        Self { configuration, load_ns: None, attach_ns: 0, programs: Vec::new(), findings: Vec::new() }
    }
}

/// A tracer's report at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Ended {
    /// Pitfalls found while it counted and afterwards.
    pub findings: Vec<Finding>,
    /// Time to detach, in nanoseconds of `CLOCK_MONOTONIC`.
    pub detach_ns: u64,
    /// The kernel's statistics of each program, if they were enabled (`--bpf-stats`).
    pub statistics: Vec<ProgramStatistics>,
    /// Calls of all keys since attaching, read next to the statistics; `None` without statistics.
    #[serde(default)]
    pub events: Option<u64>,
}

/// Run count and run time of one program (`kernel.bpf_stats_enabled`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProgramStatistics {
    /// [`Program::name`]; for a program of another tool, the name in the kernel, up to 15 bytes.
    pub program: String,
    /// Number of executions (`run_cnt`).
    pub runs: u64,
    /// Nanoseconds of execution (`run_time_ns`), including parts of the two clock reads per run.
    pub run_time_ns: u64,
}

/// One loaded program, from `BPF_OBJ_GET_INFO_BY_FD`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Name in the object file.
    pub name: String,
    /// The kernel function that the program is attached to, with an offset if it is not the entry
    /// (`vfs_read+0x8`).
    pub attached_to: String,
    /// Size of the machine code in bytes; 0 if the JIT did not compile the program.
    pub jited_bytes: u32,
    /// BPF instructions after the verifier's rewriting.
    pub instructions: u32,
    /// Instructions that the verifier processed (5.16 and later), if the kernel reports it.
    pub verified_instructions: Option<u32>,
}

/// The reason why a tracer does not run on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The step that failed.
    pub step: Step,
    /// The program concerned, if any.
    pub program: Option<String>,
    /// The kernel's error number as a positive value, if the kernel refused.
    pub errno: Option<i32>,
    /// The kernel's or the library's own message, without a trailing newline.
    pub message: String,
    /// The line of the verifier's log with the reason, if there is one.
    pub verifier: Option<String>,
    /// Pitfalls found on this kernel that may be the cause.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// The data that the programs read, compared with the prototypes of this kernel's functions;
    /// `None` if they were not compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prototypes: Option<Box<Prototypes>>,
    /// For a tool under test, the run in which it was refused. If that is an earlier run of the
    /// same boot, the tool was not started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The capabilities with which a tool under test starts; `None` if they were not looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Box<CapabilitySearch>>,
}

impl Refusal {
    /// A failure of `step` without a program, an error number or a line of the verifier.
    #[must_use]
    pub const fn new(step: Step, message: String) -> Self {
        Self {
            step,
            program: None,
            errno: None,
            message,
            verifier: None,
            findings: Vec::new(),
            prototypes: None,
            run: None,
            capabilities: None,
        }
    }
}

/// A step of a tracer's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Parsing the object file and the kernel's BTF.
    Open,
    /// Creating maps and loading programs through the verifier.
    Load,
    /// Attaching the programs to their hooks.
    Attach,
}

/// One reading of all counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sample {
    /// Start of the reading in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// Label of the `sample` command that requested the reading; `None` for a periodic one.
    pub label: Option<String>,
    /// Counters since the tracer attached, one row per key, sorted by key.
    pub rows: Vec<CounterRow>,
    /// Counts of program sets, sorted by cgroup and event; empty for other probe configurations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventRow>,
    /// Events known to be lost since the tracer attached.
    pub losses: Losses,
}

/// The counters of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(not(feature = "schema"), derive(Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterRow {
    /// Id of the cgroup (v2) of the calling task.
    pub cgroup: u64,
    /// Device of the superblock, as `major:minor` in `/proc/self/mountinfo`; [`Device::UNKNOWN`] if
    /// the probe cannot read it.
    pub device: Device,
    /// Mount id, the first field of `/proc/self/mountinfo`; 0 if the probe cannot read it.
    pub mount: u64,
    /// Mount point, from mountinfo; `None` if unmounted, or in another mount namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// The kind of call; `None` if the operation has no variants, or the map layout or the probe
    /// does not distinguish them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<Variant>,
    /// The calling thread; `None` if the map layout does not have it, or had no room for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// The counts.
    #[serde(flatten)]
    pub totals: Totals,
    /// Calls by duration, if the probe sees both ends. Element `i` counts calls from 2^i up to
    /// 2^(i+1) nanoseconds. Element 0 includes calls of 0 ns. Trailing zeros are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<u64>,
}

impl CounterRow {
    /// Adds the counters of another key.
    pub fn add(&mut self, totals: Totals, latency: &[u64]) {
        self.totals += totals;
        if self.latency.len() < latency.len() {
            self.latency.resize(latency.len(), 0);
        }
        self.latency.iter_mut().zip(latency).for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
    }
}

/// A thread, as the kernel had it at the time of a call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Task {
    /// Id of the process (`tgid`).
    pub process: u32,
    /// Id of the thread, if it differs from the id of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// Name (`comm`), up to 15 bytes. Invalid UTF-8 is replaced.
    pub name: String,
}

impl Task {
    /// The thread `thread` of `process`, called `name`.
    #[must_use]
    pub fn new(process: u32, thread: u32, name: impl Into<String>) -> Self {
        Self { process, thread: (thread != process).then_some(thread), name: name.into() }
    }
}

/// A device number as `/proc/self/mountinfo` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Device {
    /// Unknown, as for an open that failed before there was a file. No device has this number:
    /// those of file systems without a device begin at 0:1 (`get_anon_bdev`, fs/super.c, 5.10 to
    /// 7.2).
    pub const UNKNOWN: Self = Self { major: 0, minor: 0 };

    /// Converts the kernel's internal `dev_t` (`s_dev`): 12 bits of major above 20 bits of minor
    /// (`MINORBITS` in include/linux/kdev_t.h).
    #[must_use]
    pub const fn from_kernel(dev: u32) -> Self {
        Self { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

/// Events known to be lost. `None` means not measured: the kernel or the configuration does not
/// report the number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Losses {
    /// kprobe hits that ran no handler (`nmissed` in `/sys/kernel/debug/tracing/kprobe_profile` or
    /// in the link's info).
    pub missed_probes: Option<u64>,
    /// Runs skipped while a program or an operation on a map ran (`recursion_misses`, since 5.12).
    pub recursion_misses: Option<u64>,
    /// Keys that did not fit into a map, so their events were not counted.
    pub map_insert_failures: Option<u64>,
    /// Keys that an LRU map evicted with their counts; `None` for layouts that never evict.
    #[serde(default)]
    pub lru_evictions: Option<u64>,
    /// Events that did not fit into the ring buffer; `None` for layouts without one.
    #[serde(default)]
    pub ring_buffer_drops: Option<u64>,
}

/// Sums the rows over threads, so that each key has one row without a thread.
#[must_use]
pub fn without_tasks(rows: Vec<CounterRow>) -> Vec<CounterRow> {
    let mut summed = BTreeMap::<_, CounterRow>::new();
    for row in rows {
        let key = (row.cgroup, row.device, row.mount, row.operation, row.variant);
        match summed.get_mut(&key) {
            Some(known) => known.add(row.totals, &row.latency),
            None => {
                summed.insert(key, CounterRow { task: None, ..row });
            }
        }
    }
    summed.into_values().collect()
}

/// Sums the rows that `keep` selects, per operation.
pub fn sum<'a>(
    rows: impl IntoIterator<Item = &'a CounterRow>,
    mut keep: impl FnMut(&CounterRow) -> bool,
) -> BTreeMap<Operation, Totals> {
    let mut sums = BTreeMap::<Operation, Totals>::new();
    for row in rows {
        if keep(row) {
            *sums.entry(row.operation).or_default() += row.totals;
        }
    }
    sums
}
