// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel features for eBPF tools. Each one is tried, not derived from the kernel's version.

use serde::{Deserialize, Serialize};

use crate::names;

names! {
    /// A kind of feature.
    pub enum FeatureKind: "feature kind" {
        /// A program type that loads.
        ProgramType = "program-type",
        /// A map type that can be created.
        MapType = "map-type",
        /// A helper. The feature's name includes the program type.
        Helper = "helper",
        /// A kernel function that programs can call.
        Kfunc = "kfunc",
        /// A way to attach.
        AttachType = "attach-type",
        /// A construct in programs: instructions, loops, callbacks, kinds of subprograms and map
        /// values.
        Construct = "construct",
        /// BTF of the kernel and its modules.
        Btf = "btf",
        /// Any other part of the `bpf` system call: tokens, statistics, the JIT.
        System = "system",
    }
}

/// One feature and whether it works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Feature {
    /// The kind of feature.
    pub kind: FeatureKind,
    /// The kernel's name of the feature as one word, in lower case and without a prefix for the
    /// kind (`ringbuf`, `kprobe/bpf_get_stack`). Kind and name together are unique.
    pub name: String,
    /// The outcome of trying it.
    pub support: Support,
}

impl Feature {
    /// Returns the unique name of kind and name (`map-type ringbuf`).
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
    /// The feature works.
    Works {
        /// A number or name with more detail, if there is one (`2` for the JIT's setting).
        value: Option<String>,
    },
    /// The kernel refuses the feature.
    Refused {
        /// The kernel's error number as a positive value, if it gave one.
        errno: Option<i32>,
        /// The kernel's message, or a missing configuration option.
        message: String,
    },
    /// The feature could not be tried, so it is unknown whether it works.
    NotTried {
        /// The reason.
        reason: String,
    },
}
