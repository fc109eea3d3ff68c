// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel between the agent and a workload that can be held between its phases.
//!
//! The agent puts the number of an inherited descriptor, one end of a stream socket pair, into the environment variable
//! [`ENVIRONMENT`]. At the beginning and at the end of every timed phase the workload sends one [`PhaseEvent`] as a line of
//! JSON and then receives exactly one byte before it continues: while it waits, no rank of it does any I/O, and the agent
//! reads counters. Figures that take time to compute ([`PhaseEvent::Calls`]) follow the end of the phase as an event of their own, so that no interval
//! between readings contains that time. Both sides use `send` and `recv`, never `read` and `write`: those would call `vfs_read` and `vfs_write`,
//! and change the kernel's I/O accounting of the task, between the readings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Operation, calls::CallTimes, operation::Totals, program_set::ProgramEvent};

/// Environment variable holding the number of the descriptor.
pub const ENVIRONMENT: &str = "BPFASSAY_CONTROL";

/// Longest line that the agent accepts, in bytes.
pub const MAX_LINE: usize = 64 << 10;

/// A phase of the workload begins or has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PhaseEvent {
    /// All ranks have stopped before the first open of the phase.
    Begin(PhaseName),
    /// All ranks have passed the last close of the phase.
    End {
        /// Which phase.
        #[serde(flatten)]
        phase: PhaseName,
        /// What the phase's system calls returned, summed over ranks.
        moved: BTreeMap<Operation, Totals>,
        /// The workload's own count of what program sets count, where it counts that.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        events: BTreeMap<ProgramEvent, Totals>,
        /// Where the mount is that it worked on, as the workload sees it, if that is not the file system under test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mount: Option<String>,
    },
    /// How long the calls of the phase took that has just ended, where the workload timed them.
    Calls {
        /// Which phase.
        #[serde(flatten)]
        phase: PhaseName,
        /// The times.
        calls: CallTimes,
    },
    /// All ranks of this node wait, outside a phase or at a barrier within one, until those of all nodes do.
    Meet,
}

/// Names one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseName {
    /// IOR's name (`write`, `read`, `writecheck`, `readcheck`), the name of an I/O path, the path of a mount, or `work`.
    pub phase: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
}
