// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control channel between the agent and a workload that can be held between its phases.
//!
//! The environment variable [`ENVIRONMENT`] has the number of an inherited descriptor: one end of a
//! stream socket pair. At the beginning and end of every timed phase, the workload sends one
//! [`PhaseEvent`] as a line of JSON. It receives exactly one byte before it continues. While it
//! waits, none of its ranks does I/O, and the agent reads counters.
//!
//! Figures that take time to compute ([`PhaseEvent::Calls`]) follow the end of a phase as a
//! separate event, so no interval between readings contains that time. Both sides use `send` and
//! `recv`, never `read` and `write`. The latter would call `vfs_read` and `vfs_write`, and change
//! the task's I/O accounting between the readings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Operation, call_list::CallTimes, operation::Totals, program_set::ProgramEvent};

/// The environment variable with the number of the descriptor.
pub const ENVIRONMENT: &str = "BPFASSAY_CONTROL";

/// Longest line that the agent accepts, in bytes.
pub const MAX_LINE: usize = 64 << 10;

/// An event of a phase, or a meeting of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum PhaseEvent {
    /// All ranks have stopped before the first open of the phase.
    Begin(PhaseName),
    /// All ranks have passed the last close of the phase.
    End {
        /// The phase.
        #[serde(flatten)]
        phase: PhaseName,
        /// The results of the phase's system calls, summed over ranks.
        moved: BTreeMap<Operation, Totals>,
        /// The workload's count of the events of program sets, if it counts them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        events: BTreeMap<ProgramEvent, Totals>,
        /// The path of the phase's mount in the workload, if not the file system under test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mount: Option<String>,
    },
    /// The times of the calls in the phase that has just ended, if the workload measured them.
    Calls {
        /// The phase.
        #[serde(flatten)]
        phase: PhaseName,
        /// The times.
        calls: CallTimes,
    },
    /// All ranks of this node wait for those of all nodes, outside a phase or at a barrier in it.
    Meet,
}

/// Names one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseName {
    /// IOR's name (`write`, `read`, `writecheck`, `readcheck`), the name of an I/O path, the path
    /// of a mount, or `work`.
    pub phase: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
}
