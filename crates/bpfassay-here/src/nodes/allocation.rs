// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether a command that measures on several nodes runs in a Slurm allocation, and
//! whether it is on the first node, where it has to be.

use std::{env, ffi::OsString, io, process::Command};

/// The variable in which slurmd gives programs the name of their node.
const NODE: &str = "SLURMD_NODENAME";

/// Highest number of nodes of one result. Each needs an srun process on the first node.
const MOST_NODES: usize = 512;

/// The place where this command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Outside of any Slurm job.
    Outside,
    /// In a Slurm job, but not on its first node.
    Elsewhere {
        /// The first node.
        first: String,
    },
    /// On the first node of a Slurm job.
    First {
        /// All nodes, in Slurm's order.
        nodes: Vec<String>,
    },
}

/// Why the nodes of a job are unknown.
#[derive(Debug, thiserror::Error)]
pub enum AllocationError {
    /// scontrol cannot be started.
    #[error(
        "cannot start scontrol, which lists the nodes of this job: `--slurm` is for machines of a cluster with Slurm"
    )]
    NoScontrol(#[source] io::Error),
    /// scontrol does not list the nodes.
    #[error("scontrol does not list the nodes of this job: {0}")]
    NoNodes(String),
}

impl Placement {
    /// Finds out where this command runs from the variables that Slurm sets in its jobs.
    ///
    /// # Errors
    /// [`AllocationError`]
    pub fn of_this_process() -> Result<Self, AllocationError> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let (Some(_), Some(list)) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_NODELIST")) else {
            return Ok(Self::Outside);
        };
        let output = Command::new("scontrol")
            .args(["show", "hostnames", &list])
            .output()
            .map_err(AllocationError::NoScontrol)?;
        if !output.status.success() {
            let message: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(200).collect();
            return Err(AllocationError::NoNodes(message));
        }
        let nodes = nodes(&String::from_utf8_lossy(&output.stdout)).map_err(AllocationError::NoNodes)?;
        Ok(Self::of(nodes, variable(NODE).as_deref()))
    }

    fn of(nodes: Vec<String>, own: Option<&str>) -> Self {
        match nodes.first() {
            None => Self::Outside,
            Some(first) if own == Some(first.as_str()) => Self::First { nodes },
            Some(first) => Self::Elsewhere { first: first.clone() },
        }
    }
}

/// The resources of a job that is made for one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocationRequest {
    /// Number of nodes.
    pub nodes: u32,
    /// Number of ranks of IOR on each node.
    pub ranks_per_node: u32,
    /// The partition of the cluster; `None` for the cluster's default.
    pub partition: Option<String>,
    /// Further options of salloc, with their values.
    pub options: Vec<String>,
}

impl AllocationRequest {
    /// Returns the command that makes the job and starts `command` in it, program first.
    #[must_use]
    pub fn salloc(&self, command: &[OsString]) -> Vec<OsString> {
        // A failed node is a result, which the other nodes report.
        let mut words: Vec<OsString> = ["salloc", "--no-kill"].map(OsString::from).into();
        words.push(format!("--nodes={}", self.nodes).into());
        words.push(format!("--ntasks-per-node={}", self.ranks_per_node).into());
        words.extend(self.partition.iter().map(|name| OsString::from(format!("--partition={name}"))));
        words.extend(self.options.iter().map(OsString::from));
        words.extend(command.iter().cloned());
        words
    }
}

/// Returns the command that starts `command` on `first`, the job's first node, program first.
#[must_use]
pub fn on_first_node(first: &str, command: &[OsString]) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["srun", "--nodes=1", "--ntasks=1", "--cpu-bind=none", "--overlap"].map(OsString::from).into();
    words.push(format!("--nodelist={first}").into());
    words.extend(command.iter().cloned());
    words
}

/// Reads the nodes in `text`, one per line, as scontrol prints them.
fn nodes(text: &str) -> Result<Vec<String>, String> {
    let nodes: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    // Names become words of command lines and elements of comma-separated lists.
    let is_name = |name: &String| {
        name.len() <= 255
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
    };
    match nodes.iter().find(|name| !is_name(name)) {
        Some(name) => Err(format!("`{}` is no name of a node", bpfassay_results::plain::excerpt(name, 80))),
        None if nodes.is_empty() => Err("it prints nothing".to_owned()),
        None if nodes.len() > MOST_NODES => {
            Err(format!("there are {}, and at most {MOST_NODES} can be measured together", nodes.len()))
        }
        None => Ok(nodes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_belongs_on_the_first_node() {
        let all = nodes("n1\nn2\n").unwrap();
        assert_eq!(Placement::of(all.clone(), Some("n1")), Placement::First { nodes: all.clone() });
        let elsewhere = Placement::Elsewhere { first: "n1".to_owned() };
        assert_eq!([Placement::of(all.clone(), Some("n2")), Placement::of(all, None)], [elsewhere.clone(), elsewhere]);
    }

    #[test]
    fn names_of_nodes_are_words() {
        assert_eq!(nodes("cn-01.rack_2\n").unwrap(), ["cn-01.rack_2"]);
        for wrong in ["", "\n", "-x\n", "a b\n", "a,b\n", "a\nb;c\n", "\u{1b}[2J\n"] {
            assert!(nodes(wrong).is_err(), "{wrong:?}");
        }
        assert!(nodes(&"n\n".repeat(MOST_NODES + 1)).unwrap_err().contains("at most"));
    }

    #[test]
    fn a_job_is_made_with_what_was_requested_and_survives_a_node() {
        let request = AllocationRequest {
            nodes: 4,
            ranks_per_node: 2,
            partition: Some("short".to_owned()),
            options: vec!["--time=30".to_owned()],
        };
        let words = request.salloc(&["bpfassay".into(), "here".into()]);
        let expected = [
            "salloc",
            "--no-kill",
            "--nodes=4",
            "--ntasks-per-node=2",
            "--partition=short",
            "--time=30",
            "bpfassay",
            "here",
        ];
        assert_eq!(words, expected.map(OsString::from));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            for node in nodes(&text).unwrap_or_default() {
                proptest::prop_assert!(!node.starts_with('-') && !node.contains([',', ' ', '/']));
            }
        }
    }
}
