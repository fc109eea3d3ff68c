// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call `bpf(2)`, for programs that do not link libbpf and for those that need the kernel's own error.
//!
//! Here: safe functions over commands of `bpf(2)`, each with the attributes that it needs (include/uapi/linux/bpf.h). Types
//! of programs, maps and attachments are the kernel's numbers. Not here: object files, BTF, perf events, and what an answer
//! means.
//!
//! Every error is the kernel's, as an [`std::io::Error`] with its number, unless documented otherwise.

mod link;
mod map;
mod object;
mod program;
mod source;
mod syscall;

pub use crate::{
    link::{LinkInfo, LinkTarget, iterator, link_create, link_info, raw_tracepoint},
    map::{Entry, Map, MapSpec},
    object::{Kind, MapInfo, by_id, ids, map_info},
    program::{
        FunctionInfo, LoadError, ProgramInfo, ProgramSpec, RunTime, enable_statistics, load, program_code,
        program_info, test_run, token,
    },
    source::{LineInfo, ProgramSource, btf_bytes, program_source},
};
