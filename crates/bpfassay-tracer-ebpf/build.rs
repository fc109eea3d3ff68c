// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//! Sets `bpf_target_arch`, the architecture whose registers the programs read, like aya-ebpf's
//! build script.

use std::env;

fn main() {
    const ARCH: &str = "AYA_BPF_TARGET_ARCH";
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={ARCH}");
    println!("cargo::rustc-check-cfg=cfg(bpf_target_arch, values(any()))");
    // Rust's target names include the extensions of RISC-V (`riscv64gc`). On a host, where the
    // programs are only checked, the host's architecture is used.
    let host = || env::var("HOST").ok()?.split('-').next().map(str::to_owned);
    if let Some(arch) = env::var(ARCH).ok().or_else(host) {
        println!("cargo::rustc-cfg=bpf_target_arch=\"{}\"", arch.trim_end_matches("gc"));
    }
}
