// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools under test that are not the bundled tracer: what a guest receives about one, and what it reports about it.
//!
//! The guest starts, watches and stops a tool and keeps what it prints, byte by byte and with the time of arrival. The host
//! interprets the output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{names, tracer::Sample};

/// Most bytes of a tool's output that a guest keeps in one run; later ones are counted and dropped.
pub const MAX_CAPTURED: usize = 1 << 20;

/// Most pieces of a tool's output that a guest keeps in one run.
pub const MAX_PIECES: usize = 20_000;

/// A tool as a guest is to run it: started before the workload, stopped after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Short name.
    pub name: String,
    /// Program, as a path in the guest, and its arguments.
    pub command: Vec<String>,
    /// Environment variables that it is started with, besides the usual ones or in their place.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// When it counts as ready.
    pub ready: Ready,
    /// How it is stopped.
    pub stop: Stop,
    /// Where its figures are requested, if it serves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Further endpoints: their figures are requested after those of the first, as one report with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_endpoints: Vec<Endpoint>,
    /// Whether its output is kept; otherwise only its tail is, for messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub captured: bool,
    /// How long to wait for its next output before and after the workload, in milliseconds of the guest's clock: a tool that reports at
    /// intervals has then reported earlier calls, and those of the workload. `None`: it is not waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_within_ms: Option<u64>,
    /// How long it may take to become ready, in milliseconds of the guest's clock.
    pub patience_ms: u64,
}

impl Tool {
    /// Default of [`Self::patience_ms`]: bpftrace compiles its program first, which takes minutes where a guest is emulated.
    pub const PATIENCE_MS: u64 = 300_000;

    /// A tool that counts as ready when it has loaded `programs` programs; everything else by default.
    #[must_use]
    pub fn new(name: impl Into<String>, command: Vec<String>, programs: u32) -> Self {
        Self {
            name: name.into(),
            command,
            environment: BTreeMap::new(),
            ready: Ready::Programs { count: programs, named: None },
            stop: Stop::default(),
            endpoint: None,
            more_endpoints: Vec::new(),
            captured: false,
            report_within_ms: None,
            patience_ms: Self::PATIENCE_MS,
        }
    }

    /// Whether its figures are requested.
    #[must_use]
    pub const fn reports(&self) -> bool {
        self.captured || self.endpoint.is_some()
    }
}

/// When a tool counts as ready. Regular expressions are in the syntax of the crate `regex-lite`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ready {
    /// It wrote a line with a match of this.
    Line {
        /// The regular expression.
        pattern: String,
        /// On this stream; `None`: on either.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<Stream>,
    },
    /// It accepts connections on this TCP port of the loopback interface.
    Port(u16),
    /// The kernel has so many BPF programs more than before, and for a while no further ones were loaded.
    Programs {
        /// At least so many.
        count: u32,
        /// Of those whose name (15 bytes at most) has a match of this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        named: Option<String>,
    },
    /// It was started: for tools that attach without a sign.
    Started,
}

names! {
    /// What a tool writes to.
    pub enum Stream: "stream" {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

/// How a tool is requested to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The signal that is sent first.
    pub signal: Signal,
    /// How long it may then take to end, in milliseconds of the guest's clock; after that it is killed with its cgroup.
    pub grace_ms: u64,
}

impl Default for Stop {
    /// SIGINT, as Ctrl-C sends it, and 5 seconds.
    fn default() -> Self {
        Self { signal: Signal::Int, grace_ms: 5000 }
    }
}

names! {
    /// A signal that requests a program to end.
    pub enum Signal: "signal" {
        /// `SIGINT`.
        Int = "INT",
        /// `SIGTERM`.
        Term = "TERM",
        /// `SIGHUP`.
        Hup = "HUP",
        /// `SIGQUIT`.
        Quit = "QUIT",
        /// `SIGUSR1`.
        Usr1 = "USR1",
        /// `SIGKILL`: for programs that handle no other.
        Kill = "KILL",
    }
}

/// Where a tool serves its figures by HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// TCP port on the loopback interface.
    pub port: u16,
    /// Path of the request.
    pub path: String,
    /// How often they are requested between barriers, in milliseconds; `None`: at barriers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
}

/// What a guest observed of a tool in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolFigures {
    /// Id of its cgroup (v2); 0 where it is not known.
    #[serde(default)]
    pub cgroup: u64,
    /// Path of the cgroup in which its own and the workload's were made, below the root of the hierarchy; empty: that root, as in guests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cgroups: String,
    /// The name (`comm`) of the agent, which what it starts has until that is executed; empty where
    /// it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// From its start until it was ready, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ready_ns: u64,
    /// From the signal until its end, in the same unit; `None` where it was killed.
    pub stop_ns: Option<u64>,
    /// How it ended, as a predicate ("ended with exit status 0").
    pub ended: String,
    /// The programs that it had loaded when it was ready.
    pub programs: Vec<BpfObject>,
    /// The maps that it had created when it was ready.
    pub maps: Vec<BpfObject>,
    /// How many links it had created when it was ready; `None` where the kernel does not list them (before Linux 5.8).
    pub links: Option<u32>,
    /// Which of these remained when it had ended.
    pub left_behind: LeftBehind,
    /// Its processes' memory when it was ready and just before it was stopped: `VmRSS` of all in its cgroup, in bytes.
    pub resident_bytes: [u64; 2],
    /// Processor time of all its processes, in microseconds, at three instants (`usage_usec` of its cgroup).
    pub processor_us: ProcessorTime,
    /// How often the kernel skipped one of its programs because it was already running on that CPU (`recursion_misses`), when
    /// it was stopped; `None` where the kernel does not report it (before Linux 5.12).
    #[serde(default)]
    pub recursion_misses: Option<u64>,
    /// How many hits of its kprobes ran no program, when it was stopped, by its links; `None` where it has no such link, or the
    /// kernel does not count them (before Linux 6.7).
    #[serde(default)]
    pub missed_probes: Option<u64>,
    /// Its output, in the order of arrival.
    pub output: Vec<OutputPiece>,
    /// Bytes of its output that were dropped because it exceeded [`MAX_CAPTURED`] or [`MAX_PIECES`].
    pub dropped_bytes: u64,
}

/// A program or map as the kernel holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BpfObject {
    /// The kernel's id of it.
    pub id: u32,
    /// Its name in the kernel, 15 bytes at most.
    pub name: String,
    /// `enum bpf_prog_type` or `enum bpf_map_type` of include/uapi/linux/bpf.h.
    pub kind: u32,
    /// Memory that the kernel accounts to it, in bytes (`memlock` of its `fdinfo`); `None` where the kernel does not report it.
    pub memory_bytes: Option<u64>,
    /// For a program: what the verifier and the compiler made of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ProgramCode>,
}

/// What the verifier and the compiler made of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProgramCode {
    /// Instructions after the verifier's rewriting.
    pub instructions: u32,
    /// Instructions that the verifier processed, each as often as it did; `None` where the kernel does not report it (before Linux 5.16).
    pub verified: Option<u32>,
    /// Bytes of machine code; 0 where the kernel interprets it.
    pub jited_bytes: u32,
    /// What the verifier's log has of it; `None` where its loader did not ask for that, or does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<VerifierStatistics>,
}

/// The statistics at the end of the verifier's log of a program that it accepted (`BPF_LOG_STATS`, `print_verification_stats` of
/// kernel/bpf/verifier.c, 5.10 to 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VerifierStatistics {
    /// Instructions that it processed, each as often as it did.
    pub instructions: u32,
    /// States of registers and stack that it remembered, in total.
    pub total_states: u32,
    /// The most states that it remembered at once.
    pub peak_states: u32,
    /// Microseconds of the kernel's clock that it took.
    pub time_us: u64,
}

/// What a tool left in the kernel when it had ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftBehind {
    /// Names of programs.
    pub programs: Vec<String>,
    /// Names of maps.
    pub maps: Vec<String>,
    /// Number of links; `None` where the kernel does not list them.
    pub links: Option<u32>,
    /// Names of probe events in tracefs (`kprobe_events`, `uprobe_events`).
    pub events: Vec<String>,
}

impl LeftBehind {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.events.is_empty() && self.links.unwrap_or(0) == 0
    }
}

/// Processor time since a tool's start, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessorTime {
    /// When it was ready, and had finished its set-up.
    pub ready: u64,
    /// When the guest had then been idle for [`Self::idle_ns`].
    pub idle: u64,
    /// How long that was, in nanoseconds.
    pub idle_ns: u64,
    /// Just before it was stopped.
    pub stopped: u64,
}

/// A piece of a tool's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputPiece {
    /// When they arrived, in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// Where it came from.
    pub source: Source,
    /// Which of its endpoints, from 0 on; 0 for what it printed.
    #[serde(default, skip_serializing_if = "is_first")]
    pub endpoint: u32,
    /// Its text; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// What the bundled tracer had counted before and after, where it counts in the same run and was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Box<Reference>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
const fn is_first(endpoint: &u32) -> bool {
    *endpoint == 0
}

/// What the bundled tracer had counted around a report of a tool, between which a correct report must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reference {
    /// Before the tool made its report: before it was requested, or waited for.
    pub before: Sample,
    /// Right after the report had arrived.
    pub after: Sample,
}

names! {
    /// Where a tool's output came from.
    pub enum Source: "source" {
        /// Standard output.
        Output = "stdout",
        /// Standard error.
        Error = "stderr",
        /// Its HTTP endpoint: the body of a response.
        Endpoint = "endpoint",
        /// Its HTTP endpoint: why there was no response.
        NoAnswer = "no-answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_read_as_it_was_written() {
        let tool = Tool {
            ready: Ready::Line { pattern: "^x".to_owned(), stream: Some(Stream::Stderr) },
            ..Tool::new("x", vec!["/x".to_owned()], 2)
        };
        let text = serde_json::to_string(&tool).unwrap();
        assert_eq!(serde_json::from_str::<Tool>(&text).unwrap(), tool);
        assert!(serde_json::from_str::<Tool>(&text.replace("patience_ms", "patience")).is_err());
    }

    #[test]
    fn nothing_is_left_where_nothing_of_any_kind_is_left() {
        assert!(LeftBehind { links: Some(0), ..LeftBehind::default() }.is_nothing());
        assert!(!LeftBehind { links: Some(1), ..LeftBehind::default() }.is_nothing());
        assert!(!LeftBehind { events: vec!["p_x".to_owned()], ..LeftBehind::default() }.is_nothing());
    }
}
