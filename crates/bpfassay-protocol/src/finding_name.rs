// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pitfalls of tracing: properties of the kernel that make a tracer's figures wrong or fragile.
//! They are detected before or after a run.

use serde::{Deserialize, Serialize};

use crate::names;

names! {
    /// A fault of tracing without an error message.
    pub enum Pitfall: "pitfall" {
        /// The kernel has no function of that name.
        SymbolMissing = "symbol-missing",
        /// The compiler inlined the function, wholly or partly: such calls do not pass the probe.
        SymbolInlined = "symbol-inlined",
        /// The function exists only under another name (`.isra.0`, `.constprop.0`, `.part.0`).
        SymbolRenamed = "symbol-renamed",
        /// Several functions in `/proc/kallsyms` have this name.
        SymbolAmbiguous = "symbol-ambiguous",
        /// Not in `available_filter_functions`: ftrace, trampolines and fprobe cannot hook the
        /// function.
        NotTraceable = "not-traceable",
        /// The function is in the kernel's kprobe blacklist.
        Blacklisted = "blacklisted",
        /// The prototype in the kernel's BTF differs from the program's assumption.
        PrototypeDiffers = "prototype-differs",
        /// kprobe hits that ran no handler.
        MissedProbes = "missed-probes",
        /// Returns that a kretprobe missed because all its instances (`maxactive`) were in use.
        MaxactiveExhausted = "maxactive-exhausted",
        /// Programs that were skipped because one, or an operation on a map, ran on the CPU.
        RecursionMisses = "recursion-misses",
        /// Keys that did not fit into a map.
        MapInsertFailures = "map-insert-failures",
        /// Keys that an LRU map evicted with their counts.
        LruEvictions = "lru-evictions",
        /// Events that did not fit into the ring buffer.
        RingBufferDrops = "ring-buffer-drops",
        /// Another probe is attached to the same function. Both take a slower path through ftrace.
        FunctionShared = "function-shared",
        /// A kernel list could not be read, so its content is unknown.
        NotChecked = "not-checked",
    }
}

/// A pitfall that was found on this kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Finding {
    /// The kind of pitfall.
    pub pitfall: Pitfall,
    /// The kernel function, program or map.
    pub subject: String,
    /// The observation with its numbers, in one line.
    pub detail: String,
}
