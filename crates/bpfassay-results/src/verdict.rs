// SPDX-License-Identifier: MIT OR Apache-2.0
//! What follows from how a boot ended: whether its records count, and if not, who is to blame.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What follows from how a boot ended. Written last of a boot, after all records that follow from
/// it: a reader of the journal decides from these alone how a block goes on, so that a run that is
/// resumed decides as one that was not interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BootVerdict {
    /// Every run came to its end in a guest that stayed sound: the records of this boot count.
    Complete,
    /// It was stopped from outside: the block is booted again.
    Interrupted,
    /// The host is to blame, no run: the block is booted again, or waits to be resumed.
    Host,
    /// The run that is to blame: it failed, and the block is booted again without it.
    Blamed {
        /// [`bpfassay_protocol::job::RunSpec::id`].
        run: String,
    },
    /// Two runs may be to blame: a confirming boot of the first alone decides.
    Suspected {
        /// The run in flight.
        suspect: Involved,
        /// The last tool run before it, which is to blame if the suspect alone does no harm.
        otherwise: Involved,
        /// From the end of `otherwise` to the failure, in milliseconds of the host's clock.
        after_ms: u64,
    },
    /// No tool had run yet, so no run is to blame: the block is booted once more, or given up.
    Nobody,
}

/// A run that may be to blame, and when it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Involved {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// When it began, in milliseconds since 1970-01-01 UTC of the host.
    pub started_unix_ms: u64,
    /// How long it took until it ended or the guest failed, in milliseconds of the host's clock.
    pub duration_ms: u64,
}

impl fmt::Display for BootVerdict {
    /// What happens next: `RUN is to blame and failed`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => write!(f, "all runs came to their end"),
            Self::Interrupted => write!(f, "interrupted"),
            Self::Host => write!(f, "no run is to blame"),
            Self::Blamed { run } => write!(f, "{run} is to blame"),
            Self::Suspected { suspect, otherwise, .. } => {
                write!(f, "{} or, before it, {} is to blame", suspect.run, otherwise.run)
            }
            Self::Nobody => write!(f, "no tool had run, so no run is to blame"),
        }
    }
}
