// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conclusion from how a boot ended: whether its records count, and otherwise who is to blame.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The conclusion from how a boot ended. It is the last entry of a boot, after all records. Readers
/// of the journal decide from verdicts alone how a block continues. A resumed execution therefore
/// decides like an uninterrupted one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BootVerdict {
    /// Every run ended, and the guest stayed sound: the boot's records count.
    Complete,
    /// The boot was stopped from outside. The block is booted again.
    Interrupted,
    /// The host is to blame, and no run is. The block is booted again, or waits for resumption.
    Host,
    /// This run failed and is to blame. The block is booted again without it.
    Blamed {
        /// [`bpfassay_protocol::job::RunSpec::id`].
        run: String,
    },
    /// One of two runs is to blame. A confirming boot of the suspect alone decides.
    Suspected {
        /// The run in flight.
        suspect: Involved,
        /// The last tool run before it, to blame if the suspect alone does no harm.
        otherwise: Involved,
        /// Time from the end of `otherwise` to the failure, in milliseconds of the host's clock.
        after_ms: u64,
    },
    /// No tool had run, so no run is to blame. The block is booted once more, or given up.
    Nobody,
}

/// A run that may be to blame, and when it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Involved {
    /// [`bpfassay_protocol::job::RunSpec::id`].
    pub run: String,
    /// Begin, in milliseconds since 1970-01-01 UTC by the host's clock.
    pub started_unix_ms: u64,
    /// Time until it ended or the guest failed, in milliseconds of the host's clock.
    pub duration_ms: u64,
}

impl fmt::Display for BootVerdict {
    /// Prints the conclusion, such as `RUN is to blame`.
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
