// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plugin of QEMU that counts how often each block of a guest's code is executed, and what the
//! counts mean. It also holds QEMU's main loop back while a guest executes (`main_loop.rs`), so
//! that a busy host changes no figure.
//!
//! Here: the plugin for the versions of QEMU's interface ([`plugins`]), reading what it writes
//! ([`Windows`]), the functions that the blocks belong to ([`Functions`]), what of them a probe
//! costs directly ([`direct`]), and which source lines of programs they are of ([`Coverage`]). All
//! but the plugin itself is pure. Not here: loading it (`bpfassay-vm`), when windows begin and end
//! (`bpfassay-guest`), figures over runs (`bpfassay-report`).

#![allow(clippy::duplicate_mod, reason = "the plugin is a library of its own, which has some of these files, too")]

mod coverage;
mod direct;
mod executions;
mod flow;
mod format;
mod functions;
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
    direct::{Phase, direct},
    functions::{Count, Executed, Functions, Profile},
    windows::{Block, NotAWindow, Window, Windows},
};

/// The plugin, and the version of QEMU's plugin interface that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plugin {
    /// The version.
    pub api: u32,
    /// The shared object.
    pub code: &'static [u8],
}

/// The plugin for each version of the interface that some QEMU needs: that of QEMU 9.0 and later,
/// that of 7.2 to 8.2. Empty where it could not be compiled with this program.
#[must_use]
pub fn plugins() -> Vec<Plugin> {
    const ALL: [Plugin; 2] = [
        Plugin { api: 2, code: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-2.so")) },
        Plugin { api: 1, code: include_bytes!(concat!(env!("OUT_DIR"), "/plugin-1.so")) },
    ];
    ALL.into_iter().filter(|plugin| !plugin.code.is_empty()).collect()
}
