// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a tool may call a cgroup: its id, and its path below the root of the hierarchy, as far as
//! that is known.

use bpfassay_protocol::{message::RunFigures, run_name, tool::ToolFigures};

/// The id of the root cgroup (`kernfs_create_root`, fs/kernfs/dir.c, 6.12): of a guest's agent and
/// of kernel threads, such as those of nfsd.
pub(super) const ROOT: u64 = 1;

/// The cgroups of one run.
pub(super) struct Cgroups {
    /// Each with its path.
    known: [(u64, String); 3],
}

impl Cgroups {
    /// Those of the run `id`: in a guest they are below the root, on a running system below the
    /// cgroup that the agent made.
    pub(super) fn of(id: &str, seen: &ToolFigures, figures: &RunFigures) -> Self {
        let path = |name: String| format!("{}/{name}", seen.cgroups.trim_end_matches('/'));
        let workload = (figures.cgroup, path(run_name::of(id)));
        Self { known: [(ROOT, "/".to_owned()), workload, (seen.cgroup, path(run_name::of_tool(id)))] }
    }

    /// Its names, the id first.
    pub(super) fn names(&self, cgroup: u64) -> Vec<String> {
        let path = self.known.iter().find(|(known, _)| *known == cgroup).map(|(_, path)| path.clone());
        [cgroup.to_string()].into_iter().chain(path).collect()
    }
}
