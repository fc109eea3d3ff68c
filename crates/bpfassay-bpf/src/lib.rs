// SPDX-License-Identifier: MIT OR Apache-2.0
//! The system call `bpf(2)`, for programs that do not link libbpf or that need the kernel's error.
//!
//! This crate has safe functions over commands of `bpf(2)`. Each sets the attributes that it needs
//! (include/uapi/linux/bpf.h). Types of programs, maps and attachments are the kernel's numbers.
//! Other crates handle object files, BTF, perf events and the interpretation of answers.
//!
//! Unless documented otherwise, errors are the kernel's, as [`std::io::Error`] with their number.

mod line_info;
mod link;
mod map;
mod object;
mod program;
mod syscall;

pub use crate::{
    line_info::{LineInfo, ProgramSource, btf_bytes, program_source},
    link::{LinkInfo, LinkTarget, iterator, link_create, link_info, raw_tracepoint},
    map::{BpfMap, MapEntry, MapSpec},
    object::{MapInfo, ObjectKind, by_id, ids, map_info},
    program::{
        FunctionInfo, LoadError, ProgramInfo, ProgramSpec, RunTime, enable_statistics, load, program_code,
        program_info, test_run, token,
    },
};
