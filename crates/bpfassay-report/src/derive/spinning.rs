// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads whose processes spin while they wait: under the instruction clock, their figures of
//! the whole guest are meaningless.

use bpfassay_protocol::job::Program;
use bpfassay_study::{Cell, Clock, Plan};

/// Tells why `cell` has no overheads and no costs of the whole guest, and cannot be compared;
/// `None` if it can. MPI ranks wait for each other in a loop, whose instructions then determine the
/// time of a phase, whatever a tool adds to the calls. Giving each rank a virtual CPU changes
/// nothing, because waiting ranks still spin.
pub(crate) fn why_no_overhead(plan: &Plan, cell: &Cell) -> Option<String> {
    let Program::ExternalIor { ranks } = cell.workload.program else { return None };
    (plan.study.clock == Clock::Instructions && ranks > 1).then(|| {
        format!(
            "its {ranks} MPI ranks spin while they wait for each other, and the instruction clock counts that as time: measure it with one \
             rank, by the embedded engine, or under the wall clock"
        )
    })
}
