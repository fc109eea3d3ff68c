//! Lines of JSON between the tracer and whoever started it.
//!
//! The tracer writes one [`TracerLine`] per line to standard output and reads commands from standard input:
//! `sample LABEL` makes it write a [`TracerLine::Sample`] with that label at once; end of file makes it detach and
//! exit with status 0.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Operation, ProbeConfiguration, operation::Totals};

/// Longest line that a reader of the tracer accepts, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// One line of the tracer's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TracerLine {
    /// Every program is loaded and attached; counting has begun.
    Ready(Attached),
    /// It could not be loaded or attached; the tracer exits with status 3 after this line.
    Refused(Refusal),
    /// A reading of the counters.
    Sample(Sample),
}

/// A tracer that attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attached {
    /// What was asked for.
    pub configuration: ProbeConfiguration,
    /// Time to open and load the programs, in nanoseconds of `CLOCK_MONOTONIC`.
    pub load_ns: u64,
    /// Time to attach them, likewise.
    pub attach_ns: u64,
    /// The programs as the kernel holds them.
    pub programs: Vec<Program>,
}

/// One loaded program, from `BPF_OBJ_GET_INFO_BY_FD`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Its name in the object file.
    pub name: String,
    /// The kernel function it is attached to, with the offset where it is not the entry (`vfs_read+0x8`).
    pub attached_to: String,
    /// Bytes of machine code; 0 where the JIT did not compile it.
    pub jited_bytes: u32,
    /// BPF instructions after the verifier's rewriting.
    pub instructions: u32,
    /// Instructions that the verifier looked at (5.16 and later), if the kernel tells.
    pub verified_instructions: Option<u32>,
}

/// Why a tracer does not run on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The step that failed.
    pub step: Step,
    /// The program concerned, if one.
    pub program: Option<String>,
    /// The kernel's error number as a positive value, if it was the kernel that refused.
    pub errno: Option<i32>,
    /// The kernel's or the library's own words, without a trailing newline.
    pub message: String,
    /// The telling line of the verifier's log, where there is one.
    pub verifier: Option<String>,
}

/// A step of bringing a tracer up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Parsing the object file, kernel BTF included.
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
    /// When reading began, in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The label of the `sample` command that asked for it; none for periodic ones.
    pub label: Option<String>,
    /// Counters since the tracer attached, one row per key, sorted by key.
    pub rows: Vec<CounterRow>,
    /// Events known to be lost since the tracer attached.
    pub losses: Losses,
}

/// The counters of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CounterRow {
    /// Id of the cgroup (v2) of the calling task.
    pub cgroup: u64,
    /// Device of the superblock, as `major:minor` in `/proc/self/mountinfo`.
    pub device: Device,
    /// Mount id, the first field of `/proc/self/mountinfo`.
    pub mount: u64,
    /// The operation.
    pub operation: Operation,
    /// What was counted.
    #[serde(flatten)]
    pub totals: Totals,
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
    /// From the kernel's internal `dev_t` (`s_dev`): 12 bits of major above 20 bits of minor (`MINORBITS` in
    /// include/linux/kdev_t.h).
    #[must_use]
    pub const fn from_kernel(dev: u32) -> Self {
        Self { major: dev >> 20, minor: dev & 0xf_ffff }
    }
}

/// Events known to be lost. `None` means the kernel or the configuration does not tell: not measured, not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Losses {
    /// kprobe hits that ran no handler (`nmissed`, from `/sys/kernel/debug/tracing/kprobe_profile` or the link's info).
    pub missed_probes: Option<u64>,
    /// Programs skipped because they were already running on that CPU (`recursion_misses`, 5.12 and later).
    pub recursion_misses: Option<u64>,
    /// Keys that did not fit into the map: their events were not counted.
    pub map_insert_failures: Option<u64>,
}

/// Sums rows over keys: everything that `keep` selects, per operation.
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
