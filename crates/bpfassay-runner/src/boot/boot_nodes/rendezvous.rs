// SPDX-License-Identifier: MIT OR Apache-2.0
//! The barriers at which nodes meet, from the view of the host. Pure.

use std::collections::HashSet;

/// The barriers that the nodes of a boot wait at.
#[derive(Debug)]
pub(super) struct Rendezvous {
    nodes: Vec<WaitingNode>,
}

#[derive(Debug, Default)]
struct WaitingNode {
    /// The barrier that the node waits at: the run, and the barrier's number in the run.
    waits: Option<(String, u32)>,
    /// The runs that the node has ended.
    ended: HashSet<String>,
    /// The run from which the node was released without the others.
    lost: Option<String>,
}

/// The answer to a waiting node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    /// The index of the node.
    pub(super) node: usize,
    /// Whether all nodes have arrived.
    pub(super) all_there: bool,
}

impl Rendezvous {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| WaitingNode::default()).collect() }
    }

    /// Notes that `node` waits at a barrier. Returns the answers to nodes.
    ///
    /// # Errors
    /// A violation of the protocol: a node waits twice, or all nodes wait at different barriers.
    pub(super) fn waits(&mut self, node: usize, run: &str, number: u32) -> Result<Vec<Answer>, String> {
        let Some(this) = self.nodes.get_mut(node) else { return Err(format!("there is no node {}", node + 1)) };
        if this.waits.is_some() || this.ended.contains(run) {
            return Err(format!(
                "node {} waits at barrier {number} of a run that it waits in already, or has ended",
                node + 1
            ));
        }
        this.waits = Some((run.to_owned(), number));
        self.answers()
    }

    /// Notes that `node` has ended `run`. Returns the answers to nodes.
    ///
    /// # Errors
    /// The errors of [`Self::waits`].
    pub(super) fn ended(&mut self, node: usize, run: &str) -> Result<Vec<Answer>, String> {
        let Some(this) = self.nodes.get_mut(node) else { return Err(format!("there is no node {}", node + 1)) };
        if this.waits.is_some() {
            return Err(format!("node {} ends a run in which it waits at a barrier", node + 1));
        }
        this.ended.insert(run.to_owned());
        self.answers()
    }

    /// Returns whether `node` failed in `run` because another node had ended it.
    pub(super) fn has_lost(&self, node: usize, run: &str) -> bool {
        self.nodes.get(node).is_some_and(|node| node.lost.as_deref() == Some(run))
    }

    fn answers(&mut self) -> Result<Vec<Answer>, String> {
        let first = self.nodes.first().and_then(|node| node.waits.clone());
        if first.is_some() && self.nodes.iter().all(|node| node.waits == first) {
            self.nodes.iter_mut().for_each(|node| node.waits = None);
            return Ok((0..self.nodes.len()).map(|node| Answer { node, all_there: true }).collect());
        }
        let mut answers = Vec::new();
        for at in 0..self.nodes.len() {
            let waits = self.nodes.get(at).and_then(|node| node.waits.clone());
            let Some((run, _)) = waits.filter(|(run, _)| self.nodes.iter().any(|node| node.ended.contains(run))) else {
                continue;
            };
            if let Some(node) = self.nodes.get_mut(at) {
                (node.lost, node.waits) = (Some(run), None);
                answers.push(Answer { node: at, all_there: false });
            }
        }
        match answers.is_empty() && self.nodes.iter().all(|node| node.waits.is_some()) {
            true => Err("the nodes wait at different barriers, and would wait for ever".to_owned()),
            false => Ok(answers),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lost(node: usize) -> Answer {
        Answer { node, all_there: false }
    }

    #[test]
    fn all_are_released_when_the_last_arrives() {
        let mut nodes = Rendezvous::new(3);
        assert_eq!(nodes.waits(2, "a", 1), Ok(vec![]));
        assert_eq!(nodes.waits(0, "a", 1), Ok(vec![]));
        let released = nodes.waits(1, "a", 1).unwrap();
        assert_eq!(released, [0, 1, 2].map(|node| Answer { node, all_there: true }));
        assert_eq!(nodes.waits(1, "a", 2), Ok(vec![]));
    }

    #[test]
    fn who_waits_for_one_that_has_ended_the_run_is_released_without_it() {
        let mut nodes = Rendezvous::new(3);
        nodes.waits(0, "a", 1).unwrap();
        assert_eq!(nodes.ended(1, "a"), Ok(vec![lost(0)]));
        // One node comes later. The node that ended the run is ahead.
        assert_eq!(nodes.waits(1, "b", 1), Ok(vec![]));
        assert_eq!(nodes.waits(2, "a", 1), Ok(vec![lost(2)]));
        assert!(nodes.has_lost(0, "a") && nodes.has_lost(2, "a") && !nodes.has_lost(1, "a"));
        nodes.ended(0, "a").unwrap();
        nodes.ended(2, "a").unwrap();
        nodes.waits(0, "b", 1).unwrap();
        assert_eq!(nodes.waits(2, "b", 1).unwrap().len(), 3);
    }

    #[test]
    fn one_that_ends_several_runs_at_once_keeps_nobody_waiting_for_the_first() {
        let mut nodes = Rendezvous::new(2);
        nodes.ended(0, "a").unwrap();
        nodes.ended(0, "b").unwrap();
        assert_eq!(nodes.waits(0, "c", 1), Ok(vec![]));
        assert_eq!(nodes.waits(1, "a", 1), Ok(vec![lost(1)]));
    }

    #[test]
    fn what_no_agent_does_is_an_error() {
        let mut nodes = Rendezvous::new(2);
        nodes.waits(0, "a", 1).unwrap();
        assert!(nodes.waits(0, "a", 2).is_err());
        assert!(nodes.ended(0, "a").is_err());
        assert!(nodes.waits(1, "a", 2).unwrap_err().contains("different barriers"));
        assert!(nodes.waits(7, "a", 1).is_err());
        let mut nodes = Rendezvous::new(2);
        nodes.ended(0, "a").unwrap();
        assert!(nodes.waits(0, "a", 1).is_err());
    }

    proptest! {
        /// Nodes reach the end of the last run in whatever order their messages arrive. They meet
        /// equally often in each run, or one ends a run early.
        #[test]
        fn no_node_waits_for_ever(order in proptest::collection::vec(0..3_usize, 0..400), early in proptest::collection::vec((0..3_usize, 0..4_u32, 0..4_u32), 0..4)) {
            const BARRIERS: u32 = 4;
            let mut nodes = Rendezvous::new(3);
            // The run of each node, its next barrier, and whether it waits.
            let mut at = [(0_u32, 1_u32, false); 3];
            let mut step = |node: usize, at: &mut [(u32, u32, bool); 3]| {
                let (run, barrier, waits) = at[node];
                if waits || run == 4 {
                    return;
                }
                let is_over = barrier > BARRIERS || early.contains(&(node, run, barrier - 1));
                let answers = match is_over {
                    true => {
                        at[node] = (run + 1, 1, false);
                        nodes.ended(node, &run.to_string()).unwrap()
                    }
                    false => {
                        at[node].2 = true;
                        nodes.waits(node, &run.to_string(), barrier).unwrap()
                    }
                };
                for Answer { node, all_there } in answers {
                    let (run, barrier, waited) = at[node];
                    assert!(waited);
                    // A lost run is ended at once.
                    at[node] = if all_there { (run, barrier + 1, false) } else { (run, BARRIERS + 1, false) };
                }
            };
            for node in order {
                step(node, &mut at);
            }
            for _ in 0..200 {
                (0..3).for_each(|node| step(node, &mut at));
            }
            prop_assert!(at.iter().all(|(run, _, _)| *run == 4), "{at:?}");
        }
    }
}
