// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a loader, whichever library it uses.

use std::{collections::BTreeMap, path::PathBuf};

use bpfassay_protocol::program_set::ProgramSet;

/// Options in addition to the probe configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TracerOptions {
    /// Count only tasks in this cgroup (v2), not those below it; 0 means any.
    pub(crate) cgroup: u64,
    /// Count only this mount; 0 means any.
    pub(crate) mount: u64,
    /// Measure durations, if the probe sees entry and return.
    pub(crate) latency: bool,
    /// The most keys of the counters' map (or events of the ring buffer, times 64 bytes). `None`
    /// means the layout's default.
    pub(crate) map_entries: Option<u32>,
    /// Number of calls that a kretprobe watches at once; `None` means the default.
    pub(crate) maxactive: Option<u32>,
    /// The programs and libraries on whose functions uprobes are attached. Empty means the libc
    /// that the dynamic linker would use.
    pub(crate) uprobe: Vec<PathBuf>,
    /// Hook functions in the order that follows from this number; `None` means the order of the
    /// object file.
    pub(crate) attach_order: Option<u64>,
    /// Kernel functions to hook in place of those that the programs name.
    pub(crate) functions: BTreeMap<String, String>,
    /// A file that keeps facts about functions from the symbol table and the type information,
    /// between tracers of one boot.
    pub(crate) symbol_cache: Option<PathBuf>,
}

impl TracerOptions {
    /// Returns the function to hook if a program names `function`.
    pub(crate) fn function<'a>(&'a self, function: &'a str) -> &'a str {
        self.functions.get(function).map_or(function, String::as_str)
    }
}

/// Returns the name in [`LoadedTracer::maps`](super::loaded::LoadedTracer::maps) of the map `map` of a
/// program set. Each set is an object with its own maps.
pub(crate) fn set_map_name(set: ProgramSet, map: &str) -> String {
    format!("{set}/{map}")
}
