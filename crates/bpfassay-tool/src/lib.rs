// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools under test that are not the bundled tracer: what is known of one, what it printed, and
//! what is wrong with it.
//!
//! Here: tool files ([`load`], [`ToolFile::parse`]; FORMAT.md beside the sources describes them)
//! and the ones compiled in ([`bundled`]); from the bytes that a guest captured to samples
//! ([`read`]); from samples and ground truth to findings ([`finding::evaluate`]); from a look at a
//! tool to the draft of a tool file ([`init::tool_file`]); and from a guest's pages of a bare
//! object's maps to what is read of them ([`capture::Dump::of_answer`]). Everything but [`load`]
//! and [`init`] is a function of what it is given: the guest only starts, watches and stops a tool.
//! Not here: getting a tool into a guest, running it, ground truth.
//!
//! Tool files, objects and whatever a tool prints are untrusted: sizes and counts are bounded and
//! nothing panics.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bpftrace_script;
pub mod bundled;
pub mod capture;
pub mod elf;
mod error;
pub mod file;
pub mod finding;
pub mod guest;
pub mod helper;
pub mod init;
mod pattern;
mod read;
pub mod readings;
mod service;
mod supply;
mod under_test;

pub use bpfassay_protocol::tool::{Ready, Signal, Stop, Stream};
pub use capture::Capture;
pub use error::ToolError;
pub use file::{
    Binary, Counting, Debian, DebianPackage, Form, Lost, MetricsPage, Nix, Object, Report, ReportedFigure, Script,
    Source, ToolFile, Unit, Whose,
};
pub use pattern::Pattern;
pub use read::{Loaded, arguments, load, program_source, suite};
pub use readings::{ReadError, Readings, Sample, Vanished, read};
pub use service::Service;
pub use supply::Supply;
pub use under_test::{MAX_OBJECT, UnderTest};

/// Version of the tool files that this crate reads (key `schema`).
pub const TOOL_SCHEMA: u32 = 1;
