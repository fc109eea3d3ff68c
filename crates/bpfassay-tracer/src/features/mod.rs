// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's features for eBPF tools, determined by trying each one, whatever the kernel's
//! version.
//!
//! Each trial loads, creates or attaches one thing by its own system calls, and records the
//! kernel's answer. The host has expectations of a kernel, and verdicts.

pub(crate) mod attach_trials;
mod constructs;
mod helpers;
mod insn;
mod kfuncs;
mod probe_env;
mod system_features;
mod token;
mod trial_calls;
mod type_builder;
mod types;

use bpfassay_protocol::kernel_feature::Feature;
use rustix::process::{Resource, Rlimit, setrlimit};

/// Tries everything, in the order of display. This takes about a second. Nothing that it creates
/// remains if it runs as root.
pub(crate) fn try_all() -> Vec<Feature> {
    // libbpf's messages about its own trials add nothing to the outcome.
    libbpf_rs::set_print(None);
    // Before Linux 5.11, programs and maps count as locked memory. If the limit cannot be raised,
    // trials fail and report that.
    let unlimited = Rlimit { current: None, maximum: None };
    let _ = setrlimit(Resource::Memlock, unlimited);
    let mut env = probe_env::ProbeEnv::new();
    types::try_all(&mut env);
    attach_trials::try_all(&mut env);
    constructs::try_all(&mut env);
    helpers::try_all(&mut env);
    kfuncs::try_all(&mut env);
    system_features::try_all(&mut env);
    env.into_features()
}
