// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools under test other than the bundled tracer: a guest's input and reports about them.
//!
//! The guest starts, watches and stops a tool. It keeps the tool's output byte by byte, with times
//! of arrival. The host interprets the output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    names,
    privileges::{CapabilitySearch, Privileges},
    tracer_messages::Sample,
};

/// Most bytes of a tool's output that a guest keeps in one run. Later ones are counted and dropped.
pub const MAX_CAPTURED: usize = 1 << 20;

/// Largest number of pieces of a tool's output that a guest keeps in one run.
pub const MAX_PIECES: usize = 20_000;

/// A tool for a guest to run. It is started before the workload and stopped after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// Short name of the tool.
    pub name: String,
    /// The program, as a path in the guest, and its arguments.
    pub command: Vec<String>,
    /// Environment variables, which add to the usual ones or replace them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// The user and the capabilities of the tool.
    #[serde(default, skip_serializing_if = "Privileges::are_all")]
    pub privileges: Privileges,
    /// The condition under which the tool counts as ready.
    pub ready: Ready,
    /// The way to stop the tool.
    pub stop: Stop,
    /// The endpoint that serves the tool's figures, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Further endpoints, requested after the first one. All figures are one report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_endpoints: Vec<Endpoint>,
    /// Whether the output is kept. Otherwise only its tail is kept, for messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub captured: bool,
    /// How long to wait for the next output before and after the workload, in milliseconds of the
    /// guest's clock. A tool that reports at intervals has then reported earlier calls and those of
    /// the workload. `None` means no waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_within_ms: Option<u64>,
    /// How long the tool can take to become ready, in milliseconds of the guest's clock.
    pub patience_ms: u64,
}

impl Tool {
    /// Default of [`Self::patience_ms`]. bpftrace first compiles its program, which takes minutes
    /// in an emulated guest.
    pub const PATIENCE_MS: u64 = 300_000;

    /// A tool with default settings that counts as ready when it has loaded `programs` programs.
    #[must_use]
    pub fn new(name: impl Into<String>, command: Vec<String>, programs: u32) -> Self {
        Self {
            name: name.into(),
            command,
            environment: BTreeMap::new(),
            privileges: Privileges::default(),
            ready: Ready::Programs { count: programs, named: None },
            stop: Stop::default(),
            endpoint: None,
            more_endpoints: Vec::new(),
            captured: false,
            report_within_ms: None,
            patience_ms: Self::PATIENCE_MS,
        }
    }

    /// Whether the tool's figures are requested.
    #[must_use]
    pub const fn reports(&self) -> bool {
        self.captured || self.endpoint.is_some()
    }
}

/// The condition under which a tool counts as ready. Regular expressions have the syntax of
/// `regex-lite`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ready {
    /// The tool wrote a line that matches.
    Line {
        /// The regular expression.
        pattern: String,
        /// The stream of the line; `None` is any stream.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<Stream>,
    },
    /// The tool accepts connections on this TCP port of the loopback interface.
    Port(u16),
    /// The kernel has more BPF programs than before, and no further ones were loaded for a while.
    Programs {
        /// Minimum number of additional programs.
        count: u32,
        /// Only programs whose name (up to 15 bytes) matches this regular expression count.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        named: Option<String>,
    },
    /// The tool was started. This is for tools that attach without a sign.
    Started,
}

names! {
    /// A stream that a tool writes to.
    pub enum Stream: "stream" {
        /// Standard output.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

/// The way to stop a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The signal that is sent first.
    pub signal: Signal,
    /// How long the tool can take to end after the signal, in milliseconds of the guest's clock.
    /// Then it is killed with its cgroup.
    pub grace_ms: u64,
}

impl Default for Stop {
    /// `SIGINT`, like Ctrl-C, and 5 seconds.
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
        /// `SIGKILL`, for programs that handle no other signal.
        Kill = "KILL",
    }
}

/// An HTTP endpoint that serves a tool's figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// TCP port on the loopback interface.
    pub port: u16,
    /// Path of the request.
    pub path: String,
    /// Interval of requests between barriers, in milliseconds; `None` is only at barriers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
}

/// A guest's observations of a tool in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolFigures {
    /// Id of the tool's cgroup (v2); 0 if it is unknown.
    #[serde(default)]
    pub cgroup: u64,
    /// Path, below the root of the hierarchy, of the cgroup that contains the cgroups of the tool
    /// and the workload. It is empty for the root itself, as in guests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cgroups: String,
    /// Name (`comm`) of the agent, which children have until they execute a program; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// Time from the start until the tool was ready, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ready_ns: u64,
    /// Time from the signal until the end, in the same unit; `None` if the tool was killed.
    pub stop_ns: Option<u64>,
    /// How the tool ended, as a predicate ("ended with exit status 0").
    pub ended: String,
    /// The programs that the tool had loaded before the workload, when it was idle.
    pub programs: Vec<BpfObject>,
    /// The maps that the tool had created before the workload.
    pub maps: Vec<BpfObject>,
    /// Number of links that the tool had created before the workload; `None` if the kernel does not
    /// list them (before Linux 5.8).
    pub links: Option<u32>,
    /// The objects that remained after the tool had ended.
    pub left_behind: LeftBehind,
    /// Memory of the tool's processes when it was ready and just before it was stopped: the sum of
    /// `VmRSS` in its cgroup, in bytes.
    pub resident_bytes: [u64; 2],
    /// CPU time of the tool's processes at three instants, in microseconds (cgroup `usage_usec`).
    pub processor_us: ProcessorTime,
    /// How often the kernel had skipped the tool's programs when it was stopped, because a program
    /// or an operation on a map ran on the CPU (`recursion_misses`). `None` if the kernel does not
    /// report it (before Linux 5.12).
    #[serde(default)]
    pub recursion_misses: Option<u64>,
    /// Hits of the tool's kprobes that had run no program when it was stopped, from its links.
    /// `None` if there is no such link, or the kernel does not count hits (before Linux 6.7).
    #[serde(default)]
    pub missed_probes: Option<u64>,
    /// How many keys maps of hash types had before the workload and after each phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map_keys: Vec<MapKeys>,
    /// Updates of shared maps that lose what other CPUs add, as the programs stood just before the
    /// tool was stopped; `None` if they were not looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub races: Option<Races>,
    /// The capabilities with which the tool starts; `None` if they were not looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<CapabilitySearch>,
    /// The tool's output, in the order of arrival.
    pub output: Vec<OutputPiece>,
    /// Bytes of output that were dropped because they exceeded [`MAX_CAPTURED`] or [`MAX_PIECES`].
    pub dropped_bytes: u64,
}

/// A program or map in the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BpfObject {
    /// The kernel's id of the object.
    pub id: u32,
    /// The kernel's name of the object, up to 15 bytes.
    pub name: String,
    /// `enum bpf_prog_type` or `enum bpf_map_type` of include/uapi/linux/bpf.h.
    pub kind: u32,
    /// Memory that the kernel accounts to the object, in bytes (`memlock` in `fdinfo`); `None` if
    /// the kernel does not report it.
    pub memory_bytes: Option<u64>,
    /// Figures from the verifier and the JIT compiler, for a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ProgramCode>,
}

/// Updates of shared maps that are not atomic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Races {
    /// One update of each map in each program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<RacyUpdate>,
    /// Programs that could not be followed, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// An update of a shared map: a program loads a number, changes it and stores it, and loses what
/// another CPU stored in the meantime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RacyUpdate {
    /// The kernel's name of the program.
    pub program: String,
    /// The kernel's id of the map, as in [`ToolFigures::maps`].
    pub map: u32,
    /// File, number and text of the source line that stores, if the program has line records and
    /// the compiler merged no update of another map into the instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
}

/// How many keys a map of a hash type had in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct MapKeys {
    /// The kernel's id of the map.
    pub id: u32,
    /// The largest number of keys that the map can have.
    pub max_entries: u32,
    /// The counts, in the order of time. A count that is the same as the one before is left out.
    pub counts: Vec<KeyCount>,
}

/// The number of keys in a map at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct KeyCount {
    /// The time in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The number of keys.
    pub keys: u32,
}

/// Figures of a program from the verifier and the JIT compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ProgramCode {
    /// Instructions after the verifier's rewriting.
    pub instructions: u32,
    /// Instructions that the verifier processed, with repetitions; `None` if the kernel does not
    /// report it (before Linux 5.16).
    pub verified: Option<u32>,
    /// Size of the machine code in bytes; 0 if the kernel interprets the program.
    pub jited_bytes: u32,
    /// Statistics in the verifier's log; `None` if the loader does not ask for or report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<VerifierStatistics>,
}

/// Statistics at the end of the verifier's log of an accepted program (`BPF_LOG_STATS`,
/// `print_verification_stats` of kernel/bpf/verifier.c, 5.10 to 7.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct VerifierStatistics {
    /// Instructions that the verifier processed, with repetitions.
    pub instructions: u32,
    /// Total number of remembered states of registers and stack.
    pub total_states: u32,
    /// Peak number of remembered states.
    pub peak_states: u32,
    /// Verification time in microseconds of the kernel's clock.
    pub time_us: u64,
}

/// Objects that a tool left in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeftBehind {
    /// Names of programs.
    pub programs: Vec<String>,
    /// Names of maps.
    pub maps: Vec<String>,
    /// Number of links; `None` if the kernel does not list them.
    pub links: Option<u32>,
    /// Names of probe events in tracefs (`kprobe_events`, `uprobe_events`).
    pub events: Vec<String>,
}

impl LeftBehind {
    /// Whether nothing was left.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty() && self.events.is_empty() && self.links.unwrap_or(0) == 0
    }
}

/// CPU time since a tool's start, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProcessorTime {
    /// CPU time when the tool was ready and had finished its set-up.
    pub ready: u64,
    /// CPU time after the guest had then been idle for [`Self::idle_ns`].
    pub idle: u64,
    /// Duration of the idle time in nanoseconds.
    pub idle_ns: u64,
    /// CPU time just before the tool was stopped.
    pub stopped: u64,
}

/// A piece of a tool's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputPiece {
    /// Time of arrival in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The source of the output.
    pub source: Source,
    /// The index of the endpoint, from 0; 0 for printed output.
    #[serde(default, skip_serializing_if = "is_first")]
    pub endpoint: u32,
    /// The text. Invalid UTF-8 is replaced.
    pub text: String,
    /// Counts of the bundled tracer around the piece, if it counts in the same run and was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<Box<Reference>>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
const fn is_first(endpoint: &u32) -> bool {
    *endpoint == 0
}

/// Counts of the bundled tracer around a tool's report. A correct report lies between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reference {
    /// Counts before the tool made its report: before the report was requested, or waited for.
    pub before: Sample,
    /// Counts right after the report had arrived.
    pub after: Sample,
}

names! {
    /// The source of a tool's output.
    pub enum Source: "source" {
        /// Standard output.
        Output = "stdout",
        /// Standard error.
        Error = "stderr",
        /// The body of a response from the HTTP endpoint.
        Endpoint = "endpoint",
        /// The reason why the HTTP endpoint gave no response.
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
