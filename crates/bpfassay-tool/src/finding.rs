//! What is wrong with a tool: from its samples, ground truth, and what was seen of it in the kernel, to named findings.
//!
//! Every kind is evaluated every time: found with evidence, clear, or not evaluated with the reason. Nothing that could not be measured is
//! clear.

mod counts;
mod kernel;
mod truth;

use std::{fmt, str::FromStr};

use bpfassay_protocol::tracer::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    counts::{Compared, compared, moved},
    truth::{Share, Truth},
};
use crate::{Readings, Report};

/// Most lines of evidence for one finding; what there is beyond is counted.
const MAX_EVIDENCE: usize = 16;

/// What can be wrong with a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The kernel, or the tool's loader, refused one of its objects, maps or programs. Not evaluated where nobody saw it start.
    DoesNotLoad,
    /// It loaded and could not be attached, or never became ready. Not evaluated where it did not load.
    DoesNotAttach,
    /// A program of it reads an argument that the traced function does not have, or takes an argument for the return value, by
    /// the kernel's BTF. Not evaluated where there is no object to look at, or no BTF of the kernel.
    PrototypeDiffers,
    /// An operation happened that the tool reports no figure of, or of which its figure stayed at 0, or whose share is exactly what a
    /// figure over several operations lacks. Not evaluated without a figure that can be compared.
    OperationsNotSeen,
    /// A figure of bytes returned is exactly the bytes requested, which were others. Not evaluated where no call moved less than it was asked to,
    /// or the requested bytes are not known, or the tool reports no bytes returned.
    RequestedAsMoved,
    /// Figures by mount: one mount has what several moved, the others have nothing. Not evaluated where operations went to fewer
    /// than two mounts, or no figure is by mount.
    MountsMerged,
    /// Likewise by cgroup.
    CgroupsMerged,
    /// A figure that counts cumulatively became smaller. Not evaluated without two reports of such a figure.
    CountsGoBackwards,
    /// A figure that counts cumulatively had a cgroup, mount or process in an earlier report, and in a later one no more (a map that
    /// evicts). Not evaluated without two reports of such a figure.
    CountsVanish,
    /// Of every operation that a subject did, exactly one call is missing, or the bytes of one call of average size: what the first
    /// call of a new key does is lost. Not evaluated where no subject did more than one call of an operation.
    FirstTouchLost,
    /// The tool says itself that it lost events, or it counted less than happened and none of the other findings explains it.
    EventsDropped,
    /// It counted more than happened. Not evaluated for the whole system where the ground truth does not cover it.
    CountsTooHigh,
    /// The kernel skipped probes: kprobe misses, or programs that were already running on their CPU. Not evaluated where the
    /// kernel does not tell.
    MissedProbes,
    /// BPF programs, links or maps that were not there before are there after it ended, or the guest is otherwise not as before:
    /// a mount gone, a process left, the clock moved. Not evaluated where that was not listed.
    LeftBehind,
    /// It holds more memory than [`Limits::memory_bytes`], BPF maps included. Not evaluated where it was not measured.
    MemoryHeld,
    /// It used more than [`Limits::idle_cpu_ppm`] of a CPU while nothing happened. Likewise.
    IdleCpu,
    /// It took longer than [`Limits::attach_ns`] until it was ready. Likewise.
    SlowAttach,
    /// It took longer than [`Limits::detach_ns`] to end, or had to be killed. Likewise.
    SlowDetach,
    /// It printed what could not be read as its tool file says. Not evaluated where it reports no figures.
    Unreadable,
}

impl Kind {
    /// Every kind, in the order of display.
    pub const ALL: &'static [Self] = &[
        Self::DoesNotLoad,
        Self::DoesNotAttach,
        Self::PrototypeDiffers,
        Self::OperationsNotSeen,
        Self::RequestedAsMoved,
        Self::MountsMerged,
        Self::CgroupsMerged,
        Self::CountsGoBackwards,
        Self::CountsVanish,
        Self::FirstTouchLost,
        Self::EventsDropped,
        Self::CountsTooHigh,
        Self::MissedProbes,
        Self::LeftBehind,
        Self::MemoryHeld,
        Self::IdleCpu,
        Self::SlowAttach,
        Self::SlowDetach,
        Self::Unreadable,
    ];

    /// The name used in files and output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DoesNotLoad => "does-not-load",
            Self::DoesNotAttach => "does-not-attach",
            Self::PrototypeDiffers => "prototype-differs",
            Self::OperationsNotSeen => "operations-not-seen",
            Self::RequestedAsMoved => "requested-as-moved",
            Self::MountsMerged => "mounts-merged",
            Self::CgroupsMerged => "cgroups-merged",
            Self::CountsGoBackwards => "counts-go-backwards",
            Self::CountsVanish => "counts-vanish",
            Self::FirstTouchLost => "first-touch-lost",
            Self::EventsDropped => "events-dropped",
            Self::CountsTooHigh => "counts-too-high",
            Self::MissedProbes => "missed-probes",
            Self::LeftBehind => "left-behind",
            Self::MemoryHeld => "memory-held",
            Self::IdleCpu => "idle-cpu",
            Self::SlowAttach => "slow-attach",
            Self::SlowDetach => "slow-detach",
            Self::Unreadable => "unreadable",
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.iter().map(|kind| kind.name());
        Self::ALL.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            let all = known().collect::<Vec<_>>().join(", ");
            format!(
                "unknown finding `{shown}`{}; known are {all}",
                bpfassay_input::document::suggestion(&shown, known())
            )
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What came of looking for one kind of fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum FindingStatus {
    /// It is there.
    Found {
        /// What shows it, with its numbers, one line each.
        evidence: Vec<String>,
    },
    /// It was looked for and is not there.
    Clear,
    /// It could not be looked for.
    #[serde(rename = "not-judged")]
    NotEvaluated {
        /// Why.
        reason: String,
    },
}

impl FindingStatus {
    fn not_evaluated(reason: impl Into<String>) -> Self {
        Self::NotEvaluated { reason: reason.into() }
    }

    /// Found where there is evidence, else clear.
    fn from_evidence(mut evidence: Vec<String>) -> Self {
        if evidence.is_empty() {
            return Self::Clear;
        }
        if evidence.len() > MAX_EVIDENCE {
            let more = evidence.len() - MAX_EVIDENCE;
            evidence.truncate(MAX_EVIDENCE);
            evidence.push(format!("and {more} more"));
        }
        Self::Found { evidence }
    }
}

/// One kind and whether it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FindingResult {
    /// The kind.
    pub kind: Kind,
    /// Whether it was found.
    #[serde(flatten)]
    pub status: FindingStatus,
}

/// Everything that is known of one run of a tool. `None` always means: not measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// How it came up.
    pub start: Option<&'a Start>,
    /// Mismatches of its programs with the kernel's prototypes, one line each.
    pub prototypes: Option<&'a [String]>,
    /// What it reports, by its tool file.
    pub report: Option<&'a Report>,
    /// What it reported.
    pub readings: Option<&'a Readings>,
    /// What really happened, and between which instants.
    pub truth: Option<&'a Truth>,
    /// What the kernel and the guest saw of it.
    pub kernel: Option<&'a KernelFacts>,
}

/// How a tool came up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// It became ready.
    Ready,
    /// It, or the kernel, said no; the step tells loading from attaching.
    Refused(Refusal),
    /// It ended or let its deadline pass before it was ready, and nothing tells whether it had loaded.
    NotReady {
        /// What was seen: exit status, last words.
        message: String,
    },
}

/// What the kernel and the guest saw of a tool. `None`: not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// kprobe hits that ran no handler.
    pub missed_probes: Option<u64>,
    /// Programs skipped because they were already running on that CPU.
    pub recursion_misses: Option<u64>,
    /// Names or ids of BPF programs, links and maps that were not there before it started and are there after it ended.
    pub left_behind: Option<Vec<String>>,
    /// Most memory that it held, BPF maps included, in bytes.
    pub memory_bytes: Option<u64>,
    /// CPU time that it used while nothing happened, in nanoseconds, and how long that lasted.
    pub idle_cpu: Option<(u64, u64)>,
    /// From its start until it was ready, in nanoseconds.
    pub attach_ns: Option<u64>,
    /// How it went from the signal on.
    pub detach: Option<Detach>,
}

/// How a tool ended when it was told to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detach {
    /// By itself, so many nanoseconds after the signal.
    After(u64),
    /// It was killed, as what its tool file gives it had passed: the words for that.
    Killed(String),
}

/// What is still all right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Share of one CPU while idle, in millionths.
    pub idle_cpu_ppm: u64,
    /// Time until ready, in nanoseconds.
    pub attach_ns: u64,
    /// Time to end, in nanoseconds.
    pub detach_ns: u64,
}

impl Default for Limits {
    /// 128 MiB, 1 % of a CPU, 10 s and 5 s: more than any tool of libbpf-tools takes on a machine of its own.
    fn default() -> Self {
        Self { memory_bytes: 128 << 20, idle_cpu_ppm: 10_000, attach_ns: 10_000_000_000, detach_ns: 5_000_000_000 }
    }
}

/// Evaluates every kind, in the order of [`Kind::ALL`].
#[must_use]
pub fn evaluate(evidence: &Evidence<'_>, limits: &Limits) -> Vec<FindingResult> {
    let counts = counts::evaluate(evidence);
    let status = |kind| match kind {
        Kind::DoesNotLoad => kernel::load(evidence.start),
        Kind::DoesNotAttach => kernel::attach(evidence.start),
        Kind::PrototypeDiffers => match evidence.prototypes {
            Some(lines) => FindingStatus::from_evidence(lines.to_vec()),
            None => FindingStatus::not_evaluated("its programs were not compared with the kernel's BTF"),
        },
        Kind::OperationsNotSeen => counts.operations.clone(),
        Kind::RequestedAsMoved => counts.requested.clone(),
        Kind::MountsMerged => counts.mounts.clone(),
        Kind::CgroupsMerged => counts.cgroups.clone(),
        Kind::CountsGoBackwards => counts.backwards.clone(),
        Kind::CountsVanish => counts.vanish.clone(),
        Kind::FirstTouchLost => counts.first_touch.clone(),
        Kind::EventsDropped => counts.dropped.clone(),
        Kind::CountsTooHigh => counts.too_high.clone(),
        Kind::MissedProbes => kernel::missed(evidence.kernel),
        Kind::LeftBehind => kernel::left_behind(evidence.kernel),
        Kind::MemoryHeld => kernel::memory(evidence.kernel, limits),
        Kind::IdleCpu => kernel::idle(evidence.kernel, limits),
        Kind::SlowAttach => {
            kernel::slow(evidence.kernel.and_then(|facts| facts.attach_ns), limits.attach_ns, "until it was ready")
        }
        Kind::SlowDetach => kernel::detach(evidence.kernel, limits),
        Kind::Unreadable => unreadable(evidence.readings),
    };
    Kind::ALL.iter().map(|&kind| FindingResult { kind, status: status(kind) }).collect()
}

fn unreadable(readings: Option<&Readings>) -> FindingStatus {
    let Some(readings) = readings else { return FindingStatus::not_evaluated("it reports no figures") };
    if readings.unread == 0 {
        return FindingStatus::Clear;
    }
    let first = readings.first_unread.as_deref().unwrap_or_default();
    FindingStatus::from_evidence(vec![format!("{} times; first: {first}", readings.unread)])
}

#[cfg(test)]
mod tests;
