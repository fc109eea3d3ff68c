// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads types with flattened members key by key. Serde's own implementation buffers an object with
//! a flattened member, which took a quarter of the time to read a journal. Guests use serde's, so
//! that their programs stay as they are.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::{
    Operation,
    call_list::CallTimes,
    message::{Interval, MountFacts, PhaseActivity, Reading, WorkloadPhase},
    operation::{Totals, Variant},
    program_set::ProgramEvent,
    tracer_messages::{CounterRow, Device, Task},
};

/// The keys of a [`WorkloadPhase`].
#[derive(Deserialize)]
struct PhaseKeys {
    name: String,
    test: u32,
    repetition: u32,
    moved: BTreeMap<Operation, Totals>,
    #[serde(default)]
    events: BTreeMap<ProgramEvent, Totals>,
    #[serde(default)]
    mount: Option<MountFacts>,
    #[serde(default)]
    tasks: Option<Vec<Task>>,
    #[serde(default)]
    window: Option<u64>,
    #[serde(default)]
    calls: Option<CallTimes>,
    #[serde(default)]
    activity: Option<PhaseActivity>,
    before: Reading,
    after: Reading,
}

impl<'de> Deserialize<'de> for WorkloadPhase {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let PhaseKeys { name, test, repetition, moved, events, mount, tasks, window, calls, activity, before, after } =
            PhaseKeys::deserialize(deserializer)?;
        let interval = Interval { before, after };
        Ok(Self { name, test, repetition, moved, events, mount, tasks, window, calls, activity, interval })
    }
}

/// The keys of a [`CounterRow`].
#[derive(Deserialize)]
struct RowKeys {
    cgroup: u64,
    device: Device,
    mount: u64,
    #[serde(default)]
    path: Option<String>,
    operation: Operation,
    #[serde(default)]
    variant: Option<Variant>,
    #[serde(default)]
    task: Option<Task>,
    calls: u64,
    bytes: u64,
    errors: u64,
    #[serde(default)]
    latency: Vec<u64>,
}

impl<'de> Deserialize<'de> for CounterRow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let RowKeys { cgroup, device, mount, path, operation, variant, task, calls, bytes, errors, latency } =
            RowKeys::deserialize(deserializer)?;
        let totals = Totals { calls, bytes, errors };
        Ok(Self { cgroup, device, mount, path, operation, variant, task, totals, latency })
    }
}
