// SPDX-License-Identifier: MIT OR Apache-2.0
//! A QEMU plugin that counts how often each block of a guest's code is executed, and the evaluation
//! of the counts. The plugin also holds QEMU's main loop back while a guest executes
//! (`main_loop.rs`), so that a busy host does not change figures.
//!
//! This crate has:
//!
//! - the plugin for each version of QEMU's interface ([`plugins`]),
//! - a reader of the plugin's output ([`Windows`]),
//! - the attribution of blocks to functions ([`Functions`]),
//! - the direct cost of a probe ([`direct`]),
//! - the source lines of programs that ran ([`Coverage`]).
//!
//! All but the plugin itself is pure. Other crates load the plugin (`bpfassay-vm`), begin and end
//! windows (`bpfassay-guest`), and compute figures over runs (`bpfassay-report`).

#![allow(clippy::duplicate_mod, reason = "the plugin is a library of its own, which has some of these files, too")]

mod coverage;
mod direct_windows;
mod executions;
mod flow;
mod format;
mod function_table;
#[cfg(test)]
mod marker;
#[cfg(test)]
#[allow(dead_code, unused_imports, reason = "the plugin's, here for its tests")]
mod model;
#[cfg(clippy)]
#[allow(dead_code, missing_docs, unreachable_pub, reason = "a library of its own (build.rs), here for the lints only")]
mod qemu;
mod role;
#[cfg(test)]
mod turn;
mod windows;

pub use self::{
    coverage::Coverage,
    direct_windows::{DirectPhase, direct},
    function_table::{Count, Executed, Functions, Profile},
    windows::{BlockExecutions, NotAWindow, Window, Windows},
};

/// The plugin for one version of QEMU's plugin interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin {
    /// The version of the interface.
    pub api: u32,
    /// The shared object.
    pub code: &'static [u8],
}

/// Returns the plugin for each version of the interface: version 2 for QEMU 9.0 and later, version
/// 1 for QEMU 7.2 to 8.2. The result is empty if the plugin could not be compiled with this
/// program.
#[must_use]
pub fn plugins() -> Vec<Plugin> {
    const ALL: [Plugin; 2] = [
        Plugin { api: 2, code: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-2.so")) },
        Plugin { api: 1, code: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-1.so")) },
    ];
    ALL.into_iter().filter(|plugin| !plugin.code.is_empty()).collect()
}
