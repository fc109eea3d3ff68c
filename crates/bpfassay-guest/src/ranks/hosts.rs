// SPDX-License-Identifier: MIT OR Apache-2.0
//! How launchers of MPI programs learn of the nodes: from environment variables, so that the
//! command line is the same for all launchers.

use std::fs;

use bpfassay_protocol::{job_nodes::Node, layout};

use super::{part::Ranks, remote};
use crate::error::{Error, Result};

/// File in which the names of hosts are looked up.
pub(crate) const HOSTS: &str = "/etc/hosts";

/// Returns the lines of [`HOSTS`] for all nodes of the job of `node`.
pub(crate) fn names(node: Node) -> String {
    let all = std::iter::once(Node::server(node.count)).chain(Node::all(node.count));
    all.map(|node| format!("{} {}\n", node.address(), node.host_name())).collect()
}

/// The program in place of rsh(1), as a command of two words.
pub(crate) const RSH: &str = "/init remote";

/// Returns the variables for launchers that start so many ranks on each node. The lists of hosts
/// are written to `directory`.
///
/// # Errors
/// A list cannot be written.
pub(crate) fn launcher_environment(ranks: Ranks, directory: &str) -> Result<Vec<(&'static str, String)>> {
    let written = |name: &str, line: fn(Node, u32) -> String| {
        let path = format!("{directory}/{name}");
        let text: String = Node::all(ranks.node.count).map(|node| line(node, ranks.here)).collect();
        fs::write(&path, text).map_err(Error::file("write", &path)).map(|()| path)
    };
    let hydra = written("hosts-of-hydra", |node, ranks| format!("{}:{ranks}\n", node.host_name()))?;
    let open_mpi = written("hosts-of-open-mpi", |node, ranks| format!("{} slots={ranks}\n", node.host_name()))?;
    Ok(vec![
        // Hydra is the launcher of MPICH and of MPIs derived from it.
        ("HYDRA_HOST_FILE", hydra),
        ("HYDRA_LAUNCHER", "rsh".to_owned()),
        ("HYDRA_LAUNCHER_EXEC", layout::AGENT.to_owned()),
        ("HYDRA_LAUNCHER_EXTRA_ARGS", remote::NAME.to_owned()),
        // Open MPI 4 and 5.
        ("OMPI_MCA_orte_default_hostfile", open_mpi.clone()),
        ("PRTE_MCA_prte_default_hostfile", open_mpi),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_for_rsh_is_the_agent() {
        assert_eq!(RSH, format!("{} {}", layout::AGENT, remote::NAME));
    }

    #[test]
    fn every_node_is_in_the_lists_with_its_ranks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().display().to_string();
        let ranks = Ranks { node: Node { number: 1, count: 2 }, here: 3 };
        let variables = launcher_environment(ranks, &path).unwrap();
        let text = |name: &str| {
            let (_, path) = variables.iter().find(|(known, _)| *known == name).unwrap();
            fs::read_to_string(path).unwrap()
        };
        assert_eq!(text("HYDRA_HOST_FILE"), "bpfassay-1:3\nbpfassay-2:3\n");
        assert_eq!(text("PRTE_MCA_prte_default_hostfile"), "bpfassay-1 slots=3\nbpfassay-2 slots=3\n");
        assert_eq!(names(ranks.node), "192.0.2.1 bpfassay-server\n192.0.2.2 bpfassay-1\n192.0.2.3 bpfassay-2\n");
    }
}
