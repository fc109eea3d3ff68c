// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads whose figures of the whole guest mean nothing by the instruction clock: their
//! processes spin while they wait.

use bpfassay_protocol::job::Program;
use bpfassay_study::{Cell, Clock, Plan};

/// Why `cell` has neither overheads nor costs of the whole guest, and can be compared with no
/// other; `None` where it may have them. MPI's ranks wait for each other in a loop, whose
/// instructions are then the time of a phase, whatever a tool adds to its calls. As many virtual
/// CPUs as ranks change nothing: what waits spins.
pub(crate) fn why_no_overhead(plan: &Plan, cell: &Cell) -> Option<String> {
    let Program::ExternalIor { ranks } = cell.workload.program else { return None };
    (plan.study.clock == Clock::Instructions && ranks > 1).then(|| {
        format!(
            "its {ranks} MPI ranks spin while they wait for each other, and the instruction clock counts that as time: measure it with one \
             rank, by the embedded engine, or by the wall clock"
        )
    })
}
