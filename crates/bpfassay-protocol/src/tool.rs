//! Tools under test that are not the bundled tracer: what a guest is told of one, and what it tells about it.
//!
//! The guest starts, watches and stops a tool and keeps what it says, byte by byte and with the time of arrival. What the
//! words mean is for the host to find out.

use serde::{Deserialize, Serialize};

use crate::{names, tracer::Sample};

/// Most bytes of a tool's words that a guest keeps in one run; what comes later is counted and dropped.
pub const MAX_CAPTURED: usize = 1 << 20;

/// Most pieces of a tool's words that a guest keeps in one run.
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
    /// How many BPF programs it loads at least: it counts as ready when these are there, unless `ready` says otherwise.
    pub programs: u32,
    /// When else it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
    /// How it is stopped.
    #[serde(default, skip_serializing_if = "Stop::is_default")]
    pub stop: Stop,
    /// Where it is asked for its figures, if it serves them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// Whether its words are kept; else only the last of them are, for messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub captured: bool,
    /// How long it may take to become ready, in milliseconds of the guest's clock.
    #[serde(default = "default_patience_ms", skip_serializing_if = "is_default_patience")]
    pub patience_ms: u64,
}

/// Default of [`Tool::patience_ms`]: bpftrace compiles its program first, which takes minutes where a guest is emulated.
const fn default_patience_ms() -> u64 {
    300_000
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_default_patience(patience_ms: &u64) -> bool {
    *patience_ms == default_patience_ms()
}

impl Stop {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Tool {
    /// A tool that counts as ready when it has loaded `programs` programs; everything else by default.
    #[must_use]
    pub fn new(name: impl Into<String>, command: Vec<String>, programs: u32) -> Self {
        Self {
            name: name.into(),
            command,
            programs,
            ready: None,
            stop: Stop::default(),
            endpoint: None,
            captured: false,
            patience_ms: default_patience_ms(),
        }
    }
}

/// When a tool counts as ready that does not do so by its programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "when", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ready {
    /// It wrote a line, to standard output or standard error, in which this stands.
    Line {
        /// A part of the line, as it stands there.
        contains: String,
    },
    /// It accepts connections on this TCP port of the loopback interface.
    Port {
        /// The port.
        port: u16,
    },
}

/// How a tool is stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// The signal that it gets.
    pub signal: StopSignal,
    /// How long it may take to end, in milliseconds of the guest's clock, before it is killed with all its processes.
    pub grace_ms: u64,
}

impl Default for Stop {
    /// SIGINT, as Ctrl-C sends it, and 30 seconds.
    fn default() -> Self {
        Self { signal: StopSignal::Interrupt, grace_ms: 30_000 }
    }
}

names! {
    /// A signal that asks a tool to end.
    pub enum StopSignal: "signal" {
        /// SIGINT.
        Interrupt = "INT",
        /// SIGTERM.
        Terminate = "TERM",
        /// SIGQUIT.
        Quit = "QUIT",
        /// SIGHUP.
        HangUp = "HUP",
        /// SIGUSR1.
        User1 = "USR1",
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
    /// How often it is asked between barriers, in milliseconds; `None`: at barriers only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ms: Option<u64>,
}

/// What a guest saw of a tool in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolFigures {
    /// From its start until it was ready, in nanoseconds of `CLOCK_MONOTONIC`.
    pub ready_ns: u64,
    /// From the signal until its end, likewise; `None` where it was killed.
    pub stop_ns: Option<u64>,
    /// How it ended, as a predicate ("ended with exit status 0").
    pub ended: String,
    /// The programs that it had loaded when it was ready.
    pub programs: Vec<BpfObject>,
    /// The maps that it had made when it was ready.
    pub maps: Vec<BpfObject>,
    /// How many links it had made when it was ready; `None` where the kernel does not list them (before Linux 5.8).
    pub links: Option<u32>,
    /// What of these was there still when it had ended.
    pub left_behind: LeftBehind,
    /// Its processes' memory when it was ready and just before it was stopped: `VmRSS` of all in its cgroup, in bytes.
    pub resident_bytes: [u64; 2],
    /// Processor time of all its processes, in microseconds, at three instants (`usage_usec` of its cgroup).
    pub processor_us: ProcessorTime,
    /// Its words, in the order of arrival.
    pub words: Vec<Piece>,
    /// Bytes of its words that were dropped because there were too many.
    pub dropped_bytes: u64,
}

/// A program or map as the kernel holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BpfObject {
    /// The kernel's number for it.
    pub id: u32,
    /// Its name as the kernel keeps it, 15 bytes at most.
    pub name: String,
    /// `enum bpf_prog_type` or `enum bpf_map_type` of include/uapi/linux/bpf.h.
    pub kind: u32,
    /// Memory that the kernel accounts to it, in bytes (`memlock` of its `fdinfo`); `None` where the kernel does not tell.
    pub memory_bytes: Option<u64>,
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
    /// When it was ready.
    pub ready: u64,
    /// When the guest had then been idle for [`Self::idle_ns`].
    pub idle: u64,
    /// How long that was, in nanoseconds.
    pub idle_ns: u64,
    /// Just before it was stopped.
    pub stopped: u64,
}

/// Some of a tool's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Piece {
    /// When they arrived, in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// From where.
    pub source: Source,
    /// The words; what is not UTF-8 is replaced.
    pub text: String,
    /// What the bundled tracer had counted right after they arrived, where it counts in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<Box<Sample>>,
}

names! {
    /// Where a tool's words came from.
    pub enum Source: "source" {
        /// Standard output.
        Output = "stdout",
        /// Standard error.
        Error = "stderr",
        /// Its HTTP endpoint: the body of an answer.
        Endpoint = "endpoint",
        /// Its HTTP endpoint: why there was no answer.
        NoAnswer = "no-answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_needs_a_name_a_command_and_when_it_is_ready() {
        let text = r#"{"name":"x","command":["/x"],"programs":2}"#;
        let tool: Tool = serde_json::from_str(text).unwrap();
        assert_eq!(tool, Tool::new("x", vec!["/x".to_owned()], 2));
        assert_eq!((tool.stop.signal, tool.stop.grace_ms, tool.patience_ms), (StopSignal::Interrupt, 30_000, 300_000));
        // Results and digests of studies from before there was more to say stay as they are.
        assert_eq!(serde_json::to_string(&tool).unwrap(), text);
        assert!(serde_json::from_str::<Tool>(&text.replace("programs", "number")).is_err());
    }

    #[test]
    fn nothing_left_behind_is_nothing_of_any_kind() {
        assert!(LeftBehind { links: Some(0), ..LeftBehind::default() }.is_nothing());
        assert!(!LeftBehind { links: Some(1), ..LeftBehind::default() }.is_nothing());
        assert!(!LeftBehind { events: vec!["p_x".to_owned()], ..LeftBehind::default() }.is_nothing());
    }
}
