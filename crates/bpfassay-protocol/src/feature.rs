// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel features for eBPF tools, each tried, not derived from the kernel's version.

use serde::{Deserialize, Serialize};

use crate::names;

names! {
    /// A kind of feature.
    pub enum FeatureKind: "feature kind" {
        /// A program type that loads.
        ProgramType = "program-type",
        /// A map type that can be created.
        MapType = "map-type",
        /// A helper, in the program type named with it.
        Helper = "helper",
        /// A kernel function that programs may call.
        Kfunc = "kfunc",
        /// A way to attach.
        AttachType = "attach-type",
        /// A construct in programs: instructions, loops, callbacks, kinds of subprograms and map values.
        Construct = "construct",
        /// Type information of the kernel and of its modules.
        Btf = "btf",
        /// Anything else of the BPF system call: tokens, statistics, the JIT.
        System = "system",
    }
}

/// One feature and whether it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feature {
    /// Its kind.
    pub kind: FeatureKind,
    /// Its name: the kernel's own, in lower case, without the prefix of its kind (`ringbuf`, `kprobe/bpf_get_stack`). One
    /// word; with the kind unique.
    pub name: String,
    /// The outcome of trying it.
    pub support: Support,
}

impl Feature {
    /// The unique name: kind and name (`map-type ringbuf`).
    #[must_use]
    pub fn id(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// The outcome of trying a feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Support {
    /// It works.
    Works {
        /// A number or name of it, if it has one (`2` for the JIT's setting).
        value: Option<String>,
    },
    /// The kernel refuses it.
    Refused {
        /// The kernel's error number as a positive value, if it gave one.
        errno: Option<i32>,
        /// The kernel's own message, or a missing configuration option.
        message: String,
    },
    /// It could not be tried: not known, neither yes nor no.
    NotTried {
        /// Why.
        reason: String,
    },
}
