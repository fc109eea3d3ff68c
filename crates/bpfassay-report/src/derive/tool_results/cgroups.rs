// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names that a tool can use for a cgroup: its id, and its path below the root of the
//! hierarchy, if that is known.

use bpfassay_protocol::{message::RunFigures, run_name, tool_job::ToolFigures};

/// The id of the root cgroup (`kernfs_create_root`, fs/kernfs/dir.c, 6.12). It contains a guest's
/// agent and kernel threads, such as nfsd threads.
pub(super) const ROOT: u64 = 1;

pub(super) struct SumsByCgroup {
    /// The id and the path of each cgroup.
    known: Vec<(u64, String)>,
}

impl SumsByCgroup {
    /// Returns the cgroups of the run `id`. In a guest, they are below the root cgroup. On a
    /// running system, they are below the cgroup that the agent created.
    pub(super) fn of(id: &str, seen: &ToolFigures, figures: &RunFigures) -> Self {
        let path = |name: String| format!("{}/{name}", seen.cgroups.trim_end_matches('/'));
        let workload = (figures.cgroup, path(run_name::of(id)));
        let tool = (seen.cgroup, path(run_name::of_tool(id)));
        let bystander =
            figures.bystander.as_ref().map(|bystander| (bystander.cgroup, path(run_name::of_bystander(id))));
        Self { known: [(ROOT, "/".to_owned()), workload, tool].into_iter().chain(bystander).collect() }
    }

    /// Returns the names of `cgroup`, the id first.
    pub(super) fn names(&self, cgroup: u64) -> Vec<String> {
        let path = self.known.iter().find(|(known, _)| *known == cgroup).map(|(_, path)| path.clone());
        [cgroup.to_string()].into_iter().chain(path).collect()
    }
}
