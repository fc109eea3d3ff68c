// SPDX-License-Identifier: MIT OR Apache-2.0
//! Joins the messages of several agents that do the same job into one stream, in lock-step: one
//! message of each agent at a time. Pure.

use std::collections::VecDeque;

use bpfassay_protocol::{
    message::{GuestFacts, GuestMessage, RunFigures, RunOutcome},
    tracer_messages::Refusal,
};
use bpfassay_results::{NodeFacts, NodeRun};
use bpfassay_runner::boot::{
    joint_report::{JointReport, RunTogether},
    sum,
};

/// Highest number of waiting messages of one node. An agent is at most one run ahead, because it
/// cannot measure a run alone.
const MOST_AHEAD: usize = 1 << 10;

/// The result of joining messages.
#[derive(Debug, PartialEq)]
pub(super) enum Joined {
    /// A message as a single agent would have sent it.
    Message(GuestMessage),
    /// A report of all nodes.
    Together(JointReport),
}

/// Messages of a node that are not joined yet.
#[derive(Debug)]
struct NodeStream {
    node: String,
    messages: VecDeque<GuestMessage>,
    /// Whether the agent has reported that everything is done.
    is_done: bool,
}

impl NodeStream {
    /// Returns the ended but not yet joined run of this node, with its outcome.
    fn ended(&self) -> Option<(&str, &RunOutcome)> {
        self.messages.iter().find_map(|message| match message {
            GuestMessage::RunEnded { run, outcome } => Some((run.as_str(), &**outcome)),
            _ => None,
        })
    }
}

/// Joins the messages of nodes.
#[derive(Debug)]
pub(super) struct Joiner {
    streams: Vec<NodeStream>,
    logs: VecDeque<GuestMessage>,
    /// Number of ranks of IOR on each node in the last run.
    ranks: Vec<u32>,
    /// Why the current run is not measured, if no node is at fault.
    problem: Option<String>,
}

impl Joiner {
    /// Joins the messages of nodes with these names.
    pub(super) fn new(nodes: &[String]) -> Self {
        let stream = |node: &String| NodeStream { node: node.clone(), messages: VecDeque::new(), is_done: false };
        let streams = nodes.iter().map(stream).collect();
        Self { streams, logs: VecDeque::new(), ranks: vec![0; nodes.len()], problem: None }
    }

    /// Adds a message of the node at index `at`.
    ///
    /// # Errors
    /// The node has sent far more messages than the others, which is impossible in one job.
    pub(super) fn push(&mut self, at: usize, message: GuestMessage) -> Result<(), String> {
        let Some(stream) = self.streams.get_mut(at) else { return Ok(()) };
        stream.is_done |= message == GuestMessage::Done;
        match message {
            GuestMessage::Log { text } => {
                self.logs.push_back(GuestMessage::Log { text: format!("{}: {text}", stream.node) });
            }
            other if stream.messages.len() < MOST_AHEAD => stream.messages.push_back(other),
            _ => return Err(format!("node {} sends what no other node does", stream.node)),
        }
        Ok(())
    }

    /// Notes the number of ranks of IOR on each node, or why IOR did not run.
    pub(super) fn ran(&mut self, ranks: Vec<u32>, problem: Option<String>) {
        self.ranks = ranks;
        self.problem = problem;
    }

    /// Returns the failure that the node at index `at` reported, if any.
    pub(super) fn last_words(&self, at: usize) -> Option<String> {
        self.streams.get(at)?.messages.iter().find_map(|message| match message {
            GuestMessage::Failed { message } => Some(message.clone()),
            _ => None,
        })
    }

    /// Returns whether the node at index `at` has reported that everything is done. The exit status
    /// does not show it: an agent that fails exits in the same way. Its failure is not joined while
    /// the others wait for an IOR that will not start.
    pub(super) fn is_done(&self, at: usize) -> bool {
        self.streams.get(at).is_some_and(|stream| stream.is_done)
    }

    /// Returns a run that a node has ended without measuring it.
    fn unmeasured(&self) -> Option<&str> {
        self.streams.iter().find_map(|stream| match stream.ended() {
            Some((run, outcome)) if !matches!(outcome, RunOutcome::Measured(_)) => Some(run),
            _ => None,
        })
    }

    /// Returns a run that a node has ended without measuring it, and the nodes that have not ended
    /// it. Those wait for an IOR that will not start.
    pub(super) fn left_alone(&self) -> Option<(String, Vec<usize>)> {
        let run = self.unmeasured()?;
        let others = self.streams.iter().enumerate().filter(|(_, stream)| stream.ended().is_none());
        let others: Vec<usize> = others.map(|(at, _)| at).collect();
        (!others.is_empty()).then(|| (run.to_owned(), others))
    }

    /// Joins one message of each node if every node has sent one.
    ///
    /// # Errors
    /// The messages do not belong together.
    pub(super) fn next(&mut self) -> Result<Option<Joined>, String> {
        loop {
            if let Some(log) = self.logs.pop_front() {
                return Ok(Some(Joined::Message(log)));
            }
            // A node that does not measure the run sends no more phases of it, so the others' are
            // dropped.
            if self.unmeasured().is_some() {
                let mut has_left_out = false;
                for stream in &mut self.streams {
                    has_left_out |=
                        stream.messages.pop_front_if(|message| matches!(message, GuestMessage::Phase { .. })).is_some();
                }
                if has_left_out {
                    continue;
                }
            }
            if self.streams.iter().any(|stream| stream.messages.is_empty()) {
                return Ok(None);
            }
            let heads: Vec<(String, GuestMessage)> = self
                .streams
                .iter_mut()
                .filter_map(|stream| Some((stream.node.clone(), stream.messages.pop_front()?)))
                .collect();
            return self.joined(heads).map(Some);
        }
    }

    /// Joins one message of each node.
    fn joined(&mut self, heads: Vec<(String, GuestMessage)>) -> Result<Joined, String> {
        let failures: Vec<String> = heads
            .iter()
            .filter_map(|(node, message)| match message {
                GuestMessage::Failed { message } => Some(format!("node {node}: {message}")),
                _ => None,
            })
            .collect();
        if !failures.is_empty() {
            return Ok(Joined::Message(GuestMessage::Failed { message: failures.join("; ") }));
        }
        let unsound = heads.iter().find_map(|(_, message)| match message {
            GuestMessage::Unsound { run, .. } => Some(run.clone()),
            _ => None,
        });
        if let Some(run) = unsound {
            let differences = heads.iter().flat_map(|(node, message)| {
                let of_node = match message {
                    GuestMessage::Unsound { differences, .. } => differences.as_slice(),
                    _ => &[],
                };
                of_node.iter().map(move |difference| format!("node {node}: {difference}"))
            });
            return Ok(Joined::Message(GuestMessage::Unsound { run, differences: differences.collect() }));
        }
        let Some((_, first)) = heads.first() else { return Err("there are no nodes".to_owned()) };
        match first {
            GuestMessage::Hello { .. } | GuestMessage::Phase { .. } | GuestMessage::Done => {
                match heads.iter().find(|(_, message)| message != first) {
                    None => Ok(Joined::Message(first.clone())),
                    Some((node, message)) => Err(differ(&heads, node, message)),
                }
            }
            GuestMessage::Ready(facts) => {
                let facts = (**facts).clone();
                ready(facts, heads)
            }
            GuestMessage::RunEnded { run, .. } => {
                let run = run.clone();
                self.run_ended(run, heads)
            }
            other => Err(format!("a node sends what is not expected of it: {}", kind(other))),
        }
    }

    fn run_ended(&mut self, run: String, heads: Vec<(String, GuestMessage)>) -> Result<Joined, String> {
        let mut outcomes = Vec::new();
        for (node, message) in heads {
            match message {
                GuestMessage::RunEnded { run: other, outcome } if other == run => outcomes.push((node, *outcome)),
                other => {
                    return Err(format!("node {node} does not end {run} when others do, but sends {}", kind(&other)));
                }
            }
        }
        let problem = self.problem.take();
        let ranks = self.ranks.clone();
        let (outcome, nodes) = outcome(outcomes, &ranks, problem);
        Ok(Joined::Together(JointReport::RunEnded(RunTogether { run, outcome, nodes })))
    }
}

/// Joins the facts of ready nodes. All must have the kernel of the first node.
fn ready(first: GuestFacts, heads: Vec<(String, GuestMessage)>) -> Result<Joined, String> {
    let mut nodes = Vec::new();
    for (node, message) in heads {
        match message {
            GuestMessage::Ready(facts)
                if (&facts.kernel_release, &facts.machine) == (&first.kernel_release, &first.machine) =>
            {
                nodes.push(NodeFacts { node, facts: *facts });
            }
            GuestMessage::Ready(facts) => {
                return Err(format!(
                    "node {node} has the kernel {} ({}), and the first node {} ({}): results are of one kernel; name nodes that have the same",
                    facts.kernel_release, facts.machine, first.kernel_release, first.machine
                ));
            }
            other => return Err(format!("node {node} is not ready when others are, but sends {}", kind(&other))),
        }
    }
    Ok(Joined::Together(JointReport::Ready { facts: Box::new(first), nodes }))
}

/// Joins the outcomes of a run: measured if all nodes measured it, refused if any refused it.
fn outcome(outcomes: Vec<(String, RunOutcome)>, ranks: &[u32], problem: Option<String>) -> (RunOutcome, Vec<NodeRun>) {
    let mut failures = Vec::new();
    let mut refused: Vec<(String, Refusal)> = Vec::new();
    let mut measured = Vec::new();
    for (at, (node, outcome)) in outcomes.into_iter().enumerate() {
        match outcome {
            RunOutcome::Refused(refusal) => refused.push((node, refusal)),
            RunOutcome::Failed { message } => failures.push(format!("node {node}: {message}")),
            RunOutcome::Measured(figures) => {
                measured.push(NodeRun { node, ranks: ranks.get(at).copied().unwrap_or_default(), figures: *figures });
            }
        }
    }
    if let Some(refusal) = refusal(refused, ranks.len()) {
        return (RunOutcome::Refused(refusal), Vec::new());
    }
    // The problem with IOR explains the failures that agents report.
    if let Some(message) = problem {
        return (RunOutcome::Failed { message }, Vec::new());
    }
    if !failures.is_empty() {
        return (RunOutcome::Failed { message: failures.join("; ") }, Vec::new());
    }
    match sum::figures(&measured) {
        Ok(all) => {
            let no_summary = |run: NodeRun| {
                let figures = RunFigures { summary: String::new(), samples: Vec::new(), ..run.figures };
                NodeRun { figures, ..run }
            };
            (RunOutcome::Measured(Box::new(all)), measured.into_iter().map(no_summary).collect())
        }
        Err(message) => (RunOutcome::Failed { message }, Vec::new()),
    }
}

/// Joins refusals into the refusal of the first refusing node, whose message then lists all
/// different messages. `all` is the number of nodes.
fn refusal(refused: Vec<(String, Refusal)>, all: usize) -> Option<Refusal> {
    let mut messages: Vec<(&str, Vec<&str>)> = Vec::new();
    for (node, Refusal { message, .. }) in &refused {
        match messages.iter_mut().find(|(known, _)| known == message) {
            Some((_, nodes)) => nodes.push(node),
            None => messages.push((message, vec![node])),
        }
    }
    let on = |nodes: &[&str]| match nodes.len() == all {
        true => format!("on all {all} nodes"),
        false => format!("on {} of {all} nodes: {}", nodes.len(), nodes.join(", ")),
    };
    let texts: Vec<String> = messages.iter().map(|(message, nodes)| format!("{message} ({})", on(nodes))).collect();
    let message = texts.join("; ");
    refused.into_iter().next().map(|(_, refusal)| Refusal { message, ..refusal })
}

fn differ(heads: &[(String, GuestMessage)], node: &str, message: &GuestMessage) -> String {
    let first = heads.first().map_or("", |(_, first)| kind(first));
    format!("node {node} sends {} where the first one sends {first}", kind(message))
}

/// Names the kind of a message.
fn kind(message: &GuestMessage) -> &'static str {
    match message {
        GuestMessage::Hello { .. } => "a greeting",
        GuestMessage::Phase { .. } => "a phase",
        GuestMessage::Ready(_) => "that it is ready",
        GuestMessage::RunEnded { .. } => "the end of a run",
        GuestMessage::Barrier { .. } => "that it waits at a barrier",
        GuestMessage::Unsound { .. } => "that a run changed it",
        GuestMessage::Symbols(_) => "symbols",
        GuestMessage::Source(_) => "source lines",
        GuestMessage::Log { .. } => "a line for the log",
        GuestMessage::Failed { .. } => "that it failed",
        GuestMessage::Done => "that all is done",
    }
}

#[cfg(test)]
mod tests;
