// SPDX-License-Identifier: MIT OR Apache-2.0
//! The observations of one run of a tool, from which its findings are evaluated.

use std::collections::BTreeSet;

use bpfassay_protocol::{prototype::Checked, tracer::Refusal};

use super::truth::Truth;
use crate::{Readings, Report, helper};

/// Everything that is known of one run of a tool. `None` always means: not measured.
#[derive(Debug, Clone, Copy, Default)]
pub struct Evidence<'a> {
    /// How its start went.
    pub start: Option<&'a Start>,
    /// Its programs, compared with the kernel's prototypes.
    pub prototypes: Option<&'a [Checked]>,
    /// Its report by its tool file.
    pub report: Option<&'a Report>,
    /// What it reported.
    pub readings: Option<&'a Readings>,
    /// The ground truth, with the instants that it is between.
    pub truth: Option<&'a Truth>,
    /// The places of those of its figures that [`super::requested`] names, in phases of the run.
    pub requested: Option<&'a BTreeSet<usize>>,
    /// The observations of the kernel and of the guest.
    pub kernel: Option<&'a KernelFacts>,
}

impl<'a> Evidence<'a> {
    /// What the tool reports by its tool file, and what it reported.
    ///
    /// # Errors
    /// Why there is nothing of it.
    pub(super) fn reported(&self) -> Result<(&'a Report, &'a Readings), &'static str> {
        match (self.report, self.readings, self.start) {
            (None, ..) => Err("it reports no figures"),
            (Some(report), Some(readings), _) => Ok((report, readings)),
            (Some(_), None, Some(Start::Refused(_) | Start::NotReady { .. })) => Err("it did not start"),
            (Some(_), None, _) => Err("what it reported could not be read"),
        }
    }
}

/// How the start of a tool went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// It became ready.
    Ready,
    /// It runs. By its tool file nothing shows that it is ready, or only that programs are loaded.
    Running {
        /// Whether the kernel has a program of it, or it counted something.
        loaded: bool,
        /// Whether the kernel has a link of it, or it counted something.
        attached: bool,
    },
    /// It, or the kernel, refused; the step distinguishes loading from attaching.
    Refused(Refusal),
    /// It ended or let its deadline pass before it was ready, and nothing shows whether it had
    /// loaded.
    NotReady {
        /// The observation: exit status, output tail.
        message: String,
    },
}

/// The observations of a tool by the kernel and by the guest. `None`: not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelFacts {
    /// Hits of kprobes that ran no handler, of kprobes that are attached by links.
    pub missed_probes: Option<u64>,
    /// How often programs were skipped because one was already running on that CPU.
    pub recursion_misses: Option<u64>,
    /// The types of the programs that it had loaded: `enum bpf_prog_type` of
    /// include/uapi/linux/bpf.h.
    pub programs: Vec<u32>,
    /// The names of its maps that evict: hashes of least recently used keys.
    pub evicting: Vec<String>,
    /// How many links it had created.
    pub links: Option<u32>,
    /// The kernel's version, major and minor.
    pub kernel: Option<(u32, u32)>,
    /// Names or ids of BPF programs, links and maps that were not there before it started and are
    /// there after it ended.
    pub left_behind: Option<Vec<String>>,
    /// What of the guest was not compared with that, as a sentence; `None`: all was.
    pub left_lacks: Option<String>,
    /// Most memory that it held, BPF maps included, in bytes: as far as it is known.
    pub memory_bytes: Option<u64>,
    /// Of what that is not known, as a sentence; `None`: of nothing.
    pub memory_lacks: Option<String>,
    /// CPU time that it used while nothing happened, in nanoseconds, and how long that lasted.
    pub idle_cpu: Option<(u64, u64)>,
    /// The time from its start until it was ready, in nanoseconds.
    pub attach_ns: Option<u64>,
    /// How it ended after the signal.
    pub detach: Option<Detach>,
}

/// How a tool ended after the signal to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detach {
    /// By itself, so many nanoseconds after the signal.
    After(u64),
    /// It was killed, as the time that its tool file allows had passed: a sentence for that.
    Killed(String),
}

/// The limits of what is accepted.
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
    /// 128 MiB, 1 % of a CPU, 10 s and 5 s: more than any tool of libbpf-tools takes on a machine
    /// of its own.
    fn default() -> Self {
        Self { memory_bytes: 128 << 20, idle_cpu_ppm: 10_000, attach_ns: 10_000_000_000, detach_ns: 5_000_000_000 }
    }
}

/// A refusal as evidence, one line each.
pub(super) fn lines_of(refusal: &Refusal) -> Vec<String> {
    let program = refusal.program.as_ref().map(|program| format!("{program}: ")).unwrap_or_default();
    let errno = refusal.errno.map(|errno| format!(" (error {errno})")).unwrap_or_default();
    let first = format!("{program}{}{errno}", refusal.message);
    std::iter::once(first)
        .chain(refusal.verifier.as_ref().map(|line| format!("verifier: {}", helper::named(line))))
        .collect()
}
