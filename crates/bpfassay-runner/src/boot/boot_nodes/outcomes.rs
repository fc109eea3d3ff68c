// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins the outcomes of a run on all nodes. Pure.

use std::collections::VecDeque;

use bpfassay_protocol::{job_nodes::Node, message::RunOutcome};
use bpfassay_results::NodeRun;

use crate::boot::{joint_report::RunTogether, sum};

/// Outcomes that wait for the outcomes of other nodes.
#[derive(Debug)]
pub(super) struct Outcomes {
    of: Vec<VecDeque<NodeRunEnded>>,
    /// Number of ranks on each node.
    ranks: u32,
}

/// A run that ended on one node.
#[derive(Debug)]
pub(super) struct NodeRunEnded {
    pub(super) run: String,
    pub(super) outcome: RunOutcome,
    /// Whether the run failed because another node had ended it.
    pub(super) is_lost: bool,
}

impl Outcomes {
    pub(super) fn new(nodes: usize, ranks: u32) -> Self {
        Self { of: (0..nodes).map(|_| VecDeque::new()).collect(), ranks }
    }

    /// Adds the end of a run on `node`. Returns the joined run if all nodes have ended it now.
    ///
    /// # Errors
    /// A violation of the protocol: the nodes end different runs.
    pub(super) fn take(&mut self, node: usize, ended: NodeRunEnded) -> Result<Option<RunTogether>, String> {
        let Some(of_node) = self.of.get_mut(node) else { return Err(format!("there is no node {}", node + 1)) };
        of_node.push_back(ended);
        if self.of.iter().any(VecDeque::is_empty) {
            return Ok(None);
        }
        let all: Vec<NodeRunEnded> = self.of.iter_mut().filter_map(VecDeque::pop_front).collect();
        let run = all.first().map(|ended| ended.run.clone()).unwrap_or_default();
        if all.iter().any(|ended| ended.run != run) {
            return Err("the nodes end their runs in different orders".to_owned());
        }
        let (outcome, nodes) = together(all, self.ranks);
        Ok(Some(RunTogether { run, outcome, nodes }))
    }

    /// Returns whether the first node waits for the outcomes of others.
    pub(super) fn is_first_waiting(&self) -> bool {
        self.of.first().is_some_and(|first| !first.is_empty())
    }
}

/// Joins outcomes. The run is measured if all nodes measured it. Otherwise the outcome is the first
/// refusal, or else all failures. Failures caused by another node are left out if there are others.
fn together(all: Vec<NodeRunEnded>, ranks: u32) -> (RunOutcome, Vec<NodeRun>) {
    let mut nodes: Vec<NodeRun> = Vec::new();
    let (mut refused, mut failed, mut lost) = (None, Vec::new(), Vec::new());
    let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
    for (node, ended) in Node::all(count).map(Node::name).zip(all) {
        match ended.outcome {
            RunOutcome::Measured(figures) => {
                nodes.push(NodeRun { node, ranks, figures: *figures });
            }
            RunOutcome::Refused(mut refusal) => {
                refusal.message = format!("{node}: {}", refusal.message);
                refused.get_or_insert(RunOutcome::Refused(refusal));
            }
            RunOutcome::Failed { message } => {
                if ended.is_lost { &mut lost } else { &mut failed }.push(format!("{node}: {message}"));
            }
        }
    }
    // All nodes that waited for a lost node report the same.
    lost.truncate(1);
    let causes = if failed.is_empty() { lost } else { failed };
    let failure = (!causes.is_empty()).then(|| RunOutcome::Failed { message: causes.join("; ") });
    match (refused.or(failure), sum::figures(&nodes)) {
        (Some(outcome), _) => (outcome, Vec::new()),
        (None, Ok(figures)) => (RunOutcome::Measured(Box::new(figures)), nodes),
        (None, Err(message)) => (RunOutcome::Failed { message }, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::{
        ProbeConfiguration,
        message::{Interval, MountFacts, Reading, RunFigures},
        tracer_messages::{Refusal, Step},
    };

    use super::*;

    fn figures(cgroup: u64) -> RunFigures {
        let reading = || Reading { monotonic_ns: 0, idle_ns: None, tracer: None, mountstats: None };
        RunFigures {
            probe: ProbeConfiguration::BASELINE,
            engine: None,
            summary: String::new(),
            features: Vec::new(),
            cgroup,
            mount: MountFacts::default(),
            namespace: Vec::new(),
            phases: Vec::new(),
            whole: Interval { before: reading(), after: reading() },
            tracer: None,
            ended: None,
            tool_statistics: Vec::new(),
            tool: None,
            samples: Vec::new(),
            bystander: None,
            warm_up: None,
        }
    }

    fn ended(run: &str, outcome: RunOutcome, is_lost: bool) -> NodeRunEnded {
        NodeRunEnded { run: run.to_owned(), outcome, is_lost }
    }

    fn measured(run: &str, cgroup: u64) -> NodeRunEnded {
        ended(run, RunOutcome::Measured(Box::new(figures(cgroup))), false)
    }

    fn failed(run: &str, message: &str, is_lost: bool) -> NodeRunEnded {
        ended(run, RunOutcome::Failed { message: message.to_owned() }, is_lost)
    }

    #[test]
    fn a_run_is_measured_when_all_have_measured_it_and_each_is_kept_in_the_order_of_nodes() {
        let mut outcomes = Outcomes::new(3, 2);
        assert!(outcomes.take(2, measured("a", 13)).unwrap().is_none());
        assert!(outcomes.take(0, measured("a", 11)).unwrap().is_none());
        assert!(outcomes.is_first_waiting());
        let all = outcomes.take(1, measured("a", 12)).unwrap().unwrap();
        assert!(matches!(&all.outcome, RunOutcome::Measured(sum) if sum.cgroup == 11));
        assert_eq!(all.run, "a");
        let nodes: Vec<_> = all.nodes.iter().map(|node| (node.node.as_str(), node.figures.cgroup)).collect();
        assert_eq!(nodes, [("node 1", 11), ("node 2", 12), ("node 3", 13)]);
        assert!(!outcomes.is_first_waiting());
    }

    #[test]
    fn what_kept_a_run_from_being_measured_is_the_cause_and_not_what_followed_from_it() {
        let mut outcomes = Outcomes::new(3, 2);
        outcomes.take(0, failed("a", "another node has ended this run", true)).unwrap();
        outcomes.take(2, measured("a", 1)).unwrap();
        let all = outcomes.take(1, failed("a", "no space left", false)).unwrap().unwrap();
        assert_eq!(all.outcome, RunOutcome::Failed { message: "node 2: no space left".to_owned() });
        assert!(all.nodes.is_empty());
        outcomes.take(0, failed("b", "another node has ended this run", true)).unwrap();
        let refusal = Refusal::new(Step::Attach, "no such function".to_owned());
        outcomes.take(1, ended("b", RunOutcome::Refused(refusal), false)).unwrap();
        let all = outcomes.take(2, measured("b", 1)).unwrap().unwrap();
        assert!(matches!(&all.outcome, RunOutcome::Refused(refusal) if refusal.message == "node 2: no such function"));
        // A failure of one node can explain what the launcher on another node reports.
        outcomes.take(0, failed("c", "the launcher ended with exit status 1", false)).unwrap();
        outcomes.take(1, failed("c", "another node has ended this run", true)).unwrap();
        let all = outcomes.take(2, failed("c", "no such program", false)).unwrap().unwrap();
        let message = "node 1: the launcher ended with exit status 1; node 3: no such program".to_owned();
        assert_eq!(all.outcome, RunOutcome::Failed { message });
    }

    #[test]
    fn what_no_agent_does_is_an_error() {
        let mut outcomes = Outcomes::new(2, 2);
        outcomes.take(0, measured("a", 1)).unwrap();
        assert!(outcomes.take(1, measured("b", 1)).unwrap_err().contains("different orders"));
    }
}
