// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of a Slurm allocation, and the commands by which srun starts a relay on each node and
//! IOR across all nodes. Pure, except for naming this program.

#![allow(clippy::disallowed_methods, reason = "reads random bytes from /dev/urandom")]

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use bpfassay_runner::slurm::{PATIENCE, is_without_controller};

use super::node_wire::WaitingStandIn;

/// Lets a step share processors with other steps, and from Slurm 22.05 on also memory.
const BESIDE: &str = "--overlap";

/// Slurm 22.05's srun prints this for some seconds after its controller was restarted, until the
/// controller knows its nodes again. It also prints this text if a step requests too much.
const RESTARTED: &str = "Memory required by task is not available";

/// How long the controller can take until it knows its nodes.
const RESTARTING: Duration = Duration::from_secs(60);

/// Returns how long to retry a step that could not be started, according to the output of srun;
/// `None` if it is an error.
pub(super) fn patience(printed: &str) -> Option<Duration> {
    if is_without_controller(printed) {
        return Some(PATIENCE);
    }
    printed.contains(RESTARTED).then_some(RESTARTING)
}

/// Several nodes, and how IOR runs across them.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Slurm's names of the nodes. The first node is this machine, where the first rank runs.
    pub nodes: Vec<String>,
    /// Number of ranks of IOR on each node.
    pub ranks_per_node: u32,
    /// The words of the command that starts an MPI program (`srun --mpi=pmi2`, `mpiexec -ppn 2`).
    pub launcher: Vec<String>,
}

/// Values that all steps of one command share.
#[derive(Debug, Clone)]
pub(super) struct SharedSteps {
    /// The path of this program, which is the same on all nodes.
    pub(super) program: PathBuf,
    /// Identifies this command's relays.
    pub(super) token: String,
    /// The program of the real IOR.
    pub(super) ior: PathBuf,
}

impl SharedSteps {
    /// Creates the values for this process and the real IOR `ior`.
    ///
    /// # Errors
    /// The system's error if this program cannot be found, or if there are no random numbers.
    pub(super) fn new(ior: &Path) -> io::Result<Self> {
        let mut random = [0; 8];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token = random.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { program: std::env::current_exe()?, token, ior: std::path::absolute(ior)? })
    }
}

impl Cluster {
    /// Number of ranks of IOR on all nodes.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).saturating_mul(self.ranks_per_node)
    }

    /// Returns the arguments of `srun` that start the relay of `node`.
    pub(super) fn relay(&self, steps: &SharedSteps, node: &str) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["--nodes=1", "--ntasks=1", "--cpu-bind=none"].map(OsString::from).into();
        words.push(format!("--nodelist={node}").into());
        words.push(BESIDE.into());
        words.push(steps.program.clone().into());
        words.extend(["node", "relay", "--token", &steps.token].map(OsString::from));
        words
    }

    /// Returns the command that runs IOR across all nodes, program first, with the arguments that
    /// the first node's agent gave to IOR.
    pub(super) fn ior(&self, steps: &SharedSteps, waiting: &WaitingStandIn) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.launcher.iter().map(OsString::from).collect();
        let ranks = self.ranks();
        if is_srun(&self.launcher) {
            words.push(BESIDE.into());
            let own = [
                format!("--nodes={}", self.nodes.len()),
                format!("--ntasks={ranks}"),
                format!("--ntasks-per-node={}", self.ranks_per_node),
                format!("--nodelist={}", self.nodes.join(",")),
                "--kill-on-bad-exit=1".to_owned(),
            ];
            words.extend(own.map(OsString::from));
        } else {
            words.extend(["-n".into(), ranks.to_string().into()]);
        }
        words.push(steps.program.clone().into());
        words.extend(["node", "rank", "--token", &steps.token, "--directory"].map(OsString::from));
        words.extend([waiting.directory.clone().into(), "--".into(), steps.ior.clone().into()]);
        words.extend(waiting.arguments.iter().map(OsString::from));
        words
    }

    /// Returns variables for a launcher that starts processes on the nodes by srun, as the
    /// launchers of MPICH and Open MPI do. They override the single node of this process's step,
    /// and let steps share nodes with the relays.
    pub(super) fn of_steps(&self) -> Vec<(&'static str, String)> {
        if is_srun(&self.launcher) {
            return Vec::new();
        }
        let (nodes, ranks) = (self.nodes.len().to_string(), self.ranks().to_string());
        vec![
            ("SLURM_OVERLAP", "1".to_owned()),
            ("SLURM_NNODES", nodes.clone()),
            ("SLURM_JOB_NUM_NODES", nodes),
            ("SLURM_NTASKS", ranks.clone()),
            ("SLURM_NPROCS", ranks),
            ("SLURM_TASKS_PER_NODE", format!("{}(x{})", self.ranks_per_node, self.nodes.len())),
        ]
    }

    /// Describes a node that ran the wrong number of ranks, if there is one.
    pub(super) fn wrong_ranks(&self, ranks: &[u32]) -> Option<String> {
        let wrong = self.nodes.iter().zip(ranks).find(|(_, ranks)| **ranks != self.ranks_per_node);
        wrong.map(|(node, ranks)| {
            format!(
                "{ranks} ranks of IOR ran on the node {node} in place of {}: make the launcher `{}` put as many on each node \
                 (`srun --mpi=pmi2`, `mpiexec -ppn {}`, `mpirun -npernode {}`)",
                self.ranks_per_node,
                self.launcher.join(" "),
                self.ranks_per_node,
                self.ranks_per_node
            )
        })
    }
}

/// Returns whether the launcher is srun, whose options are known.
fn is_srun(launcher: &[String]) -> bool {
    launcher.first().is_some_and(|program| Path::new(program).file_name() == Some(OsStr::new("srun")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(launcher: &[&str]) -> String {
        let cluster = Cluster {
            nodes: ["n1", "n2", "n3"].map(str::to_owned).into(),
            ranks_per_node: 2,
            launcher: launcher.iter().map(|&word| word.to_owned()).collect(),
        };
        let steps = SharedSteps { program: "/opt/bpfassay".into(), token: "ab".to_owned(), ior: "/opt/ior".into() };
        let waiting = WaitingStandIn { arguments: vec!["-w".to_owned()], directory: "/scratch/a b".into(), ranks: 0 };
        let words = cluster.ior(&steps, &waiting);
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn ior_is_started_as_ranks_of_the_run_on_all_nodes() {
        let rank = "/opt/bpfassay|node|rank|--token|ab|--directory|/scratch/a b|--|/opt/ior|-w";
        let own = "--overlap|--nodes=3|--ntasks=6|--ntasks-per-node=2|--nodelist=n1,n2,n3|--kill-on-bad-exit=1";
        assert_eq!(words(&["/usr/bin/srun", "--mpi=pmi2"]), format!("/usr/bin/srun|--mpi=pmi2|{own}|{rank}"));
        assert_eq!(words(&["mpiexec", "-ppn", "2"]), format!("mpiexec|-ppn|2|-n|6|{rank}"));
    }

    /// The texts are those of Slurm 22.05.
    #[test]
    fn a_controller_that_is_restarted_is_waited_for() {
        let gone =
            "srun: error: Unable to confirm allocation for job 1: Unable to contact slurm controller (connect failure)";
        let back = "srun: error: Unable to create step for job 5: Memory required by task is not available";
        let error = "srun: error: Unable to create step for job 4: More processors requested than permitted";
        assert_eq!([gone, back, error].map(patience), [Some(PATIENCE), Some(RESTARTING), None]);
    }

    #[test]
    fn a_node_with_other_ranks_is_named() {
        let nodes = ["n1", "n2"].map(str::to_owned).into();
        let cluster = Cluster { nodes, ranks_per_node: 2, launcher: vec!["mpiexec".to_owned()] };
        assert_eq!(cluster.wrong_ranks(&[2, 2]), None);
        let problem = cluster.wrong_ranks(&[4, 0]).unwrap();
        assert!(problem.contains("4 ranks of IOR ran on the node n1 in place of 2"), "{problem}");
    }
}
