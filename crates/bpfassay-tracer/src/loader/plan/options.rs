// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a loader, whichever library it uses.

use std::{collections::BTreeMap, path::PathBuf};

use bpfassay_protocol::program_set::ProgramSet;

/// What to count and how, beside the probe configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Only tasks in this cgroup (v2) are counted, not those below it; 0: any.
    pub(crate) cgroup: u64,
    /// Only this mount is counted; 0: any.
    pub(crate) mount: u64,
    /// Measure durations, where the probe sees both ends.
    pub(crate) latency: bool,
    /// Most keys of the counters' map (events of the ring buffer, times 64 bytes); `None`: the
    /// layout's own number.
    pub(crate) map_entries: Option<u32>,
    /// Calls that a kretprobe watches at once; `None`: the kernel's own number.
    pub(crate) maxactive: Option<u32>,
    /// The programs and libraries on whose functions uprobes are attached; none: the libc that the
    /// dynamic linker would use.
    pub(crate) uprobe: Vec<PathBuf>,
    /// Hook functions in the order that follows from this number; `None`: in the order of the
    /// object file.
    pub(crate) attach_order: Option<u64>,
    /// Kernel functions to hook in place of those that the programs name.
    pub(crate) functions: BTreeMap<String, String>,
    /// A file that keeps facts about functions from the symbol table and the type information,
    /// between tracers of one boot.
    pub(crate) symbol_cache: Option<PathBuf>,
}

impl Options {
    /// The function to hook where a program names `function`.
    pub(crate) fn function<'a>(&'a self, function: &'a str) -> &'a str {
        self.functions.get(function).map_or(function, String::as_str)
    }
}

/// The name in [`Loaded::maps`](super::loaded::Loaded::maps) of the map `map` of a program set:
/// each set is an object with maps of its own.
pub(crate) fn set_map_name(set: ProgramSet, map: &str) -> String {
    format!("{set}/{map}")
}
