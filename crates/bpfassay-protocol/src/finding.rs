// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pitfalls of tracing: properties of the kernel, noticed before or after a run, that make the tracer's figures wrong or fragile.

use serde::{Deserialize, Serialize};

use crate::names;

names! {
    /// A way in which tracing goes wrong without an error message.
    pub enum Pitfall: "pitfall" {
        /// The kernel has no function of that name.
        SymbolMissing = "symbol-missing",
        /// The compiler inlined the function's body, wholly or in part, into its callers: calls do not pass the probe.
        SymbolInlined = "symbol-inlined",
        /// The function exists under another name only (`.isra.0`, `.constprop.0`, `.part.0`).
        SymbolRenamed = "symbol-renamed",
        /// Several functions in `/proc/kallsyms` have this name.
        SymbolAmbiguous = "symbol-ambiguous",
        /// Not in `available_filter_functions`: ftrace, and with it trampolines and fprobe, cannot hook it.
        NotTraceable = "not-traceable",
        /// In the kernel's kprobe blacklist.
        Blacklisted = "blacklisted",
        /// The prototype in the kernel's BTF is not the one that the program assumes.
        PrototypeDiffers = "prototype-differs",
        /// kprobe hits that ran no handler.
        MissedProbes = "missed-probes",
        /// Returns that a kretprobe could not watch because all its instances (`maxactive`) were in use.
        MaxactiveExhausted = "maxactive-exhausted",
        /// Programs skipped because they were already running on that CPU.
        RecursionMisses = "recursion-misses",
        /// Keys that did not fit into a map.
        MapInsertFailures = "map-insert-failures",
        /// Keys that an LRU map evicted with their counts.
        LruEvictions = "lru-evictions",
        /// Events that did not fit into the ring buffer.
        RingBufferDrops = "ring-buffer-drops",
        /// Another probe is attached to the same function: both take a slower path through ftrace.
        FunctionShared = "function-shared",
        /// A list of the kernel that could not be read: its contents are not known.
        NotChecked = "not-checked",
    }
}

/// One pitfall found on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// What kind.
    pub pitfall: Pitfall,
    /// What it concerns: a kernel function, a program, or a map.
    pub subject: String,
    /// The observation, in one line, with its numbers.
    pub detail: String,
}
