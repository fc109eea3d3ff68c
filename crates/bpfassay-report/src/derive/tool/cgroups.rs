// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a tool may call a cgroup: its id, and its path below the root of the hierarchy, as far as that is known.

use bpfassay_protocol::{message::RunFigures, tool::ToolFigures};

/// The id of the root cgroup (`kernfs_create_root`, fs/kernfs/dir.c, 6.12): of a guest's agent and of kernel threads, such as those of nfsd.
pub(super) const ROOT: u64 = 1;

/// Most characters of a run's id in the name of its cgroup.
const MOST_OF_ID: usize = 120;

/// The cgroups of one run.
pub(super) struct Cgroups {
    /// Each with its path.
    known: [(u64, String); 3],
}

impl Cgroups {
    /// Those of the run `id`, named as the guest's agent does (`plain`, crates/bpfassay-guest/src/workload.rs): in a guest they are below the root.
    pub(super) fn of(id: &str, seen: &ToolFigures, figures: &RunFigures) -> Self {
        let is_kept = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
        let kept = |character| if is_kept(character) { character } else { '_' };
        let path: String = "/run-".chars().chain(id.chars().take(MOST_OF_ID).map(kept)).collect();
        let of_tool = format!("{path}-tool");
        Self { known: [(ROOT, "/".to_owned()), (figures.cgroup, path), (seen.cgroup, of_tool)] }
    }

    /// Its names, the id first.
    pub(super) fn names(&self, cgroup: u64) -> Vec<String> {
        let path = self.known.iter().find(|(known, _)| *known == cgroup).map(|(_, path)| path.clone());
        [cgroup.to_string()].into_iter().chain(path).collect()
    }
}
