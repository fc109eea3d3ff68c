// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a guest in starting the ranks of a workload.

use bpfassay_protocol::{
    job::{Program, Workload},
    job_nodes::Node,
};

use super::rank;
use crate::{
    environment::Environment,
    error::{Error, Result},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// The guest starts the workload, and no other guest takes part.
    Alone,
    /// The guest starts the launcher, which starts the ranks of all nodes.
    Launches(Ranks),
    /// A process of the guest attends.
    Attends(Ranks),
}

/// The ranks on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ranks {
    pub node: Node,
    /// The expected number of ranks on the node.
    pub here: u32,
}

impl Part {
    /// Returns the part of this guest in `workload`.
    pub(crate) const fn of(workload: &Workload, environment: &Environment) -> Self {
        let (Program::ExternalIor { ranks }, Some(node)) = (&workload.program, environment.node) else {
            return Self::Alone;
        };
        // The host gives each node the same number.
        let here = Ranks { node, here: *ranks / node.count };
        if node.is_first() { Self::Launches(here) } else { Self::Attends(here) }
    }

    /// Checks that the expected number of ranks ran here, by the files that they left in
    /// `directory`.
    ///
    /// # Errors
    /// Another number of ranks ran, or `directory` cannot be read.
    pub(crate) fn check(self, directory: &str) -> Result<()> {
        let (Self::Launches(Ranks { node, here }) | Self::Attends(Ranks { node, here })) = self else { return Ok(()) };
        match rank::count(directory)? {
            ran if ran == here => Ok(()),
            ran => Err(Error::Order(format!(
                "{ran} ranks of IOR ran on {} in place of {here}: the launcher distributed them in another way",
                node.name()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(program: Program) -> Workload {
        Workload { program, ..Workload::default() }
    }

    #[test]
    fn the_first_node_launches_a_real_ior_and_the_others_attend() {
        let of = |program, number| {
            let node = (number > 0).then_some(Node { number, count: 4 });
            Part::of(&workload(program), &Environment::guest("/mnt/nfs", node))
        };
        let ranks = |number| Ranks { node: Node { number, count: 4 }, here: 3 };
        assert_eq!(of(Program::ExternalIor { ranks: 12 }, 0), Part::Alone);
        assert_eq!(of(Program::Bundled, 1), Part::Alone);
        assert_eq!(of(Program::ExternalIor { ranks: 12 }, 1), Part::Launches(ranks(1)));
        assert_eq!(of(Program::ExternalIor { ranks: 12 }, 4), Part::Attends(ranks(4)));
    }

    #[test]
    fn ranks_that_ran_elsewhere_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let check = |part: Part| part.check(directory.path().to_str().unwrap());
        let attends = Part::Attends(Ranks { node: Node { number: 2, count: 2 }, here: 1 });
        let problem = check(attends).unwrap_err().to_string();
        assert!(problem.contains("0 ranks of IOR ran on node 2 in place of 1"), "{problem}");
        std::fs::write(directory.path().join("117"), "").unwrap();
        check(attends).unwrap();
        std::fs::write(directory.path().join("118"), "").unwrap();
        assert!(check(attends).is_err());
        check(Part::Alone).unwrap();
    }
}
