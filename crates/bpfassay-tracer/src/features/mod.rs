// SPDX-License-Identifier: MIT OR Apache-2.0
//! What this kernel offers to eBPF tools, determined by trying each feature and not by its version.
//!
//! Here: trials. Each loads, creates or attaches one thing, by system calls of its own, and records
//! the kernel's answer. Not here: what is expected of which kernel, and any verdict.

pub(crate) mod attach;
mod btf;
mod constructs;
mod helpers;
mod insn;
mod kfuncs;
mod probe_env;
mod sys;
mod system;
mod token;
mod types;

use bpfassay_protocol::feature::Feature;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Tries everything, in the order of display. Takes about a second; as root, nothing that it
/// creates outlasts it.
pub(crate) fn try_all() -> Vec<Feature> {
    // libbpf's messages about its own trials add nothing to the outcome.
    libbpf_rs::set_print(None);
    // Before Linux 5.11 programs and maps count as locked memory. Where the limit cannot be raised,
    // trials fail and report that.
    let unlimited = Rlimit { current: None, maximum: None };
    let _ = setrlimit(Resource::Memlock, unlimited);
    let mut env = probe_env::ProbeEnv::new();
    types::try_all(&mut env);
    attach::try_all(&mut env);
    constructs::try_all(&mut env);
    helpers::try_all(&mut env);
    kfuncs::try_all(&mut env);
    system::try_all(&mut env);
    env.into_features()
}
