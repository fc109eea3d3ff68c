// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observations of one run of a tool. Findings are evaluated from them.

use std::{collections::BTreeSet, fmt};

use bpfassay_protocol::{
    checked_prototype::Checked, loaded_object::UnattachedProgram, privileges::Needs, tracer_messages::Refusal,
};

use super::{
    certainty::{Certainty, EvidenceLine},
    truth::Truth,
};
use crate::{file::Report, helper, needed_capabilities, readings::Readings};

/// Everything known about one run of a tool. `None` means not measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// How the tool started.
    pub start: Option<&'a Start>,
    /// The tool's programs, compared with the kernel's prototypes.
    pub prototypes: Option<&'a [Checked]>,
    /// The report as the tool file declares it.
    pub report: Option<&'a Report>,
    /// The tool's report.
    pub readings: Option<&'a Readings>,
    /// The ground truth with its time range.
    pub truth: Option<&'a Truth>,
    /// Indices of figures that [`super::requested`] returns for phases of the run.
    pub requested: Option<&'a BTreeSet<usize>>,
    /// Facts from the kernel and the guest.
    pub kernel: Option<&'a KernelFacts>,
}

impl<'a> Evidence<'a> {
    /// Returns the tool file's report and the readings.
    ///
    /// # Errors
    /// The reason why they are missing.
    pub(super) fn reported(&self) -> Result<(&'a Report, &'a Readings), &'static str> {
        match (self.report, self.readings, self.start) {
            (None, ..) => Err("it reports no figures"),
            (Some(report), Some(readings), _) => Ok((report, readings)),
            (Some(_), None, Some(Start::Refused(_) | Start::NotReady(_))) => Err("it did not start"),
            (Some(_), None, _) => Err("what it reported could not be read"),
        }
    }
}

/// The outcome of the start of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The tool became ready.
    Ready,
    /// The tool runs, but its tool file names no sign of readiness, or only a sign of loading.
    Running {
        /// Whether the kernel has a program of the tool, or the tool counted something.
        loaded: bool,
        /// Whether the kernel has a link of the tool, or the tool counted something.
        attached: bool,
    },
    /// The bare object is loaded, but bpfassay could not attach all of it.
    Unattached {
        /// The programs that only a loader of their own can attach.
        programs: Vec<UnattachedProgram>,
    },
    /// The tool or the kernel refused. The step tells loading from attaching.
    Refused(Refusal),
    /// The tool ended or exceeded its deadline before it was ready. Nothing shows whether the tool
    /// had loaded: the refusal has the observation (exit status, output tail), and its step is not
    /// known.
    NotReady(Refusal),
}

/// Facts from the kernel and the guest about a tool. `None` means not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Missed hits of kprobes that were attached by links.
    pub missed_probes: Option<u64>,
    /// Number of skipped program executions because a program already ran on the CPU.
    pub recursion_misses: Option<u64>,
    /// Types of the loaded programs: `enum bpf_prog_type` in include/uapi/linux/bpf.h.
    pub programs: Vec<u32>,
    /// Names of the tool's maps that evict keys (LRU hashes).
    pub evicting: Vec<String>,
    /// Number of CPUs of the guest; 0 if unknown.
    pub cpus: u32,
    /// Seed of the run; `None` if another run with this seed can have other figures.
    pub seed: Option<u64>,
    /// Updates of maps of all CPUs that are not atomic, as far as programs could be followed.
    pub racy: Option<Vec<Racy>>,
    /// A sentence about programs that could not be followed; `None` if all were.
    pub racy_lacks: Option<String>,
    /// The tool's maps without a free entry, as far as keys were counted.
    pub full_maps: Option<Vec<FullMap>>,
    /// A sentence about maps whose keys were not counted; `None` if all were.
    pub keys_lacks: Option<String>,
    /// Number of links that the tool created.
    pub links: Option<u32>,
    /// Major and minor version of the kernel.
    pub kernel: Option<(u32, u32)>,
    /// Names or ids of BPF programs, links and maps that appeared since the tool's start, and
    /// remain after its end.
    pub left_behind: Option<Vec<String>>,
    /// A sentence about what was not checked for `left_behind`; `None` if all was.
    pub left_lacks: Option<String>,
    /// Largest memory use in bytes, including BPF maps, as far as known.
    pub memory_bytes: Option<u64>,
    /// A sentence about memory that is unknown; `None` if all is known.
    pub memory_lacks: Option<String>,
    /// CPU time used while idle, and the duration of idling, both in nanoseconds.
    pub idle_cpu: Option<(u64, u64)>,
    /// Time from the tool's start until it was ready, in nanoseconds.
    pub attach_ns: Option<u64>,
    /// How the tool ended after the signal.
    pub detach: Option<Detach>,
}

/// An update of a map of all CPUs that is not atomic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Racy {
    /// The kernel's name of the program, up to 15 bytes.
    pub program: String,
    /// The kernel's name of the map, up to 15 bytes.
    pub map: String,
    /// File, number and text of the source line, if known.
    pub line: Option<String>,
}

impl fmt::Display for Racy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, map, line } = self;
        write!(f, "{program} updates map `{map}` of all CPUs, and not atomically")?;
        line.iter().try_for_each(|line| write!(f, ": {line}"))
    }
}

/// A map without a free entry, which refuses each further key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullMap {
    /// The kernel's name of the map, up to 15 bytes.
    pub name: String,
    /// The number of entries.
    pub entries: u32,
    /// Whether it had a free entry before.
    pub had_room: bool,
    /// When it was seen to be full: `after phase `write``.
    pub when: String,
}

impl fmt::Display for FullMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, entries, when, .. } = self;
        write!(f, "map `{name}`: {entries} of {entries} entries in use {when}")
    }
}

/// How a tool ended after the signal to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detach {
    /// The tool ended by itself, this many nanoseconds after the signal.
    After(u64),
    /// The tool was killed after the time that its tool file allows. The text is a sentence about
    /// that.
    Killed(String),
}

/// Limits for measured values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueLimits {
    /// Limit of memory in bytes.
    pub memory_bytes: u64,
    /// Limit of the CPU share while idle, in millionths of a CPU.
    pub idle_cpu_ppm: u64,
    /// Limit of the time until ready, in nanoseconds.
    pub attach_ns: u64,
    /// Limit of the time to end, in nanoseconds.
    pub detach_ns: u64,
}

impl Default for ValueLimits {
    /// 128 MiB, 1 % of a CPU, 10 s and 5 s. No tool of libbpf-tools exceeds these on a separate
    /// machine.
    fn default() -> Self {
        Self { memory_bytes: 128 << 20, idle_cpu_ppm: 10_000, attach_ns: 10_000_000_000, detach_ns: 5_000_000_000 }
    }
}

/// Prints a refusal as lines of evidence: what the tool or the kernel states, and with which
/// capabilities the tool was seen to start.
pub(super) fn lines_of(refusal: &Refusal) -> Vec<EvidenceLine> {
    let program = refusal.program.as_ref().map(|program| format!("{program}: ")).unwrap_or_default();
    let errno = refusal.errno.map(|errno| format!(" (error {errno})")).unwrap_or_default();
    let first = format!("{program}{}{errno}", refusal.message);
    let verifier = refusal.verifier.as_ref().map(|line| format!("verifier: {}", helper::named(line)));
    let stated = std::iter::once(first).chain(verifier).map(|text| Certainty::Reported.line(text));
    stated.chain(capabilities(refusal)).collect()
}

/// Says with which capabilities a refused tool was seen to start, if they were looked for.
pub(super) fn capabilities(refusal: &Refusal) -> Option<EvidenceLine> {
    let search = refusal.capabilities.as_ref()?;
    let certainty = match &search.needs {
        Needs::Capabilities(needed) if !needed.is_empty() => Certainty::Proven,
        Needs::Capabilities(_) | Needs::Unknown(_) => Certainty::Reported,
    };
    Some(certainty.line(needed_capabilities::starts_with(search)))
}
