// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts of the running kernel, each read in one place: type information, tracefs and debugfs,
//! symbols, the JIT compiler, preemption, the verifier's log, `bpf(2)`, perf events, mounts
//! and cgroups. Other modules decide what follows for a tracer.

pub(crate) mod bpf_objects;
pub(crate) mod btf;
pub(crate) mod jit;
pub(crate) mod kept_facts;
pub(crate) mod kernel_cgroups;
pub(crate) mod mountinfo;
pub(crate) mod perf;
pub(crate) mod preemption;
pub(crate) mod symbols;
pub(crate) mod tracefs;
pub(crate) mod unread;
pub(crate) mod verifier;
