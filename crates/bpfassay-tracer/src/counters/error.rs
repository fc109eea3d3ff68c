// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of a reading.

use bpfassay_protocol::{Operation, program_set::ProgramEvent};

use crate::kernel::mountinfo::MountsError;

/// A failed reading of the counters.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error("cannot read the map `{map}`")]
    Map { map: String, source: std::io::Error },
    #[error("the map `{map}` holds bytes that no program of the tracer writes")]
    Content { map: String, source: DecodeError },
    #[error("cannot read the kernel's information on the program `{program}`")]
    Program { program: String, source: std::io::Error },
    #[error("cannot read the misses of kprobes from kprobe_profile: leave tracefs mounted while the tracer runs")]
    Profile(#[source] std::io::Error),
    #[error(transparent)]
    Mounts(MountsError),
    #[error("kprobe_profile does not list the kprobe on `{function}`: something else removed it")]
    Unlisted { function: String },
}

/// Bytes of a map or of the ring buffer that are not a counter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("a {what} of {length} bytes, where {expected} were expected")]
    Size { what: &'static str, length: usize, expected: usize },
    #[error("operation number {number}, where the largest is {}", Operation::COUNTED.len() - 1)]
    Operation { number: u32 },
    #[error("variant number {number} of {operation}, which has none of this number")]
    Variant { number: u32, operation: Operation },
    #[error("event number {number}, where the largest is {}", ProgramEvent::ALL.len() - 1)]
    Event { number: u32 },
}
