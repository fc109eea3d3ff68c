// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools under test other than the bundled tracer: their description, their output, and their
//! faults.
//!
//! This crate:
//!
//! - reads tool files ([`load`], [`ToolFile::parse`]; FORMAT.md in the crate's directory describes
//!   them) and has the bundled ones ([`bundled`])
//! - parses captured bytes to samples ([`read`])
//! - evaluates samples and ground truth to findings ([`finding::evaluate`])
//! - drafts a tool file from a tool ([`init::tool_file`])
//! - parses pages of a bare object's maps ([`recorded_output::Dump::of_answer`])
//!
//! Everything except [`load`] and [`init`] is pure: the guest only starts, watches and stops a
//! tool. Other crates copy tools into guests, run them, and provide the ground truth.
//!
//! Tool files, objects and output are untrusted. Sizes and counts are bounded, and nothing panics.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod bpftrace_script;
pub mod bundled;
pub mod elf;
mod error;
pub mod file;
pub mod finding;
pub mod guest_request;
pub mod helper;
pub mod init;
pub mod needed_capabilities;
mod pattern;
mod read;
pub mod readings;
pub mod recorded_output;
mod service;
mod supply;
mod under_test;

pub use bpfassay_protocol::tool_job::{Ready, Signal, Stop, Stream};
pub use error::ToolError;
pub use file::{
    Binary, CountedUnit, Counting, Debian, DebianPackage, KernelNeeds, Lost, MetricsPage, Nix, Object, Report,
    ReportForm, ReportedFigure, Script, Source, ToolFile, Whose,
};
pub use pattern::ToolPattern;
pub use read::{LoadedFile, arguments, load, program_source, suite};
pub use readings::{Readings, ReadingsError, ReportedSample, Vanished, read};
pub use recorded_output::ToolCapture;
pub use service::MissingService;
pub use supply::Supply;
pub use under_test::{MAX_OBJECT, UnderTest};

/// Version of the tool file format (key `schema`).
pub const TOOL_SCHEMA: u32 = 1;
