// SPDX-License-Identifier: MIT OR Apache-2.0
//! One stream of messages of those of several agents, which do the same job: in lock-step, a
//! message of each at a time. Pure.

use std::collections::VecDeque;

use bpfassay_protocol::{
    message::{GuestFacts, GuestMessage, RunFigures, RunOutcome},
    tracer::Refusal,
};
use bpfassay_results::{NodeFacts, NodeRun};

use crate::{
    sum,
    together::{RunTogether, Together},
};

/// Most messages of one node that wait for those of others: no agent is ahead by more than a run,
/// which it cannot measure alone.
const MOST_AHEAD: usize = 1 << 10;

/// What comes of the messages of all nodes.
#[derive(Debug, PartialEq)]
pub(super) enum Joined {
    /// As a single agent would have sent it.
    Message(GuestMessage),
    /// What all nodes have reported.
    Together(Together),
}

/// What a node has sent that was not joined yet.
#[derive(Debug)]
struct Stream {
    node: String,
    messages: VecDeque<GuestMessage>,
    /// Whether its agent has reported that all is done.
    is_done: bool,
}

impl Stream {
    /// The run that has ended on this node but was not joined yet, and what came of it. Phases that
    /// the node announced before are not waited for.
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
    streams: Vec<Stream>,
    logs: VecDeque<GuestMessage>,
    /// How many ranks of IOR ran on each node in the run that was done last.
    ranks: Vec<u32>,
    /// Why the run that is done is not measured, where the fault is of no node.
    problem: Option<String>,
}

impl Joiner {
    /// For nodes of these names.
    pub(super) fn new(nodes: &[String]) -> Self {
        let stream = |node: &String| Stream { node: node.clone(), messages: VecDeque::new(), is_done: false };
        let streams = nodes.iter().map(stream).collect();
        Self { streams, logs: VecDeque::new(), ranks: vec![0; nodes.len()], problem: None }
    }

    /// Takes a message of the node at `at`.
    ///
    /// # Errors
    /// The node has sent far more than the others, which is not possible in one job.
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

    /// IOR has run with so many ranks on each node; or it has not, for this reason.
    pub(super) fn ran(&mut self, ranks: Vec<u32>, problem: Option<String>) {
        self.ranks = ranks;
        self.problem = problem;
    }

    /// What the node at `at` reported that it failed at, where it has.
    pub(super) fn last_words(&self, at: usize) -> Option<String> {
        self.streams.get(at)?.messages.iter().find_map(|message| match message {
            GuestMessage::Failed { message } => Some(message.clone()),
            _ => None,
        })
    }

    /// Whether the node at `at` has reported that all is done. An agent that fails exits as one
    /// that has done all, and what it reports is joined with nothing while the others wait for an
    /// IOR that will not be started.
    pub(super) fn is_done(&self, at: usize) -> bool {
        self.streams.get(at).is_some_and(|stream| stream.is_done)
    }

    /// A run that a node has ended without measuring it.
    fn unmeasured(&self) -> Option<&str> {
        self.streams.iter().find_map(|stream| match stream.ended() {
            Some((run, outcome)) if !matches!(outcome, RunOutcome::Measured(_)) => Some(run),
            _ => None,
        })
    }

    /// A run that a node has ended without measuring it, and the nodes that have not ended it: they
    /// wait for an IOR that will not be started.
    pub(super) fn left_alone(&self) -> Option<(String, Vec<usize>)> {
        let run = self.unmeasured()?;
        let others = self.streams.iter().enumerate().filter(|(_, stream)| stream.ended().is_none());
        let others: Vec<usize> = others.map(|(at, _)| at).collect();
        (!others.is_empty()).then(|| (run.to_owned(), others))
    }

    /// The nodes and what comes of their messages, if each has sent one.
    ///
    /// # Errors
    /// What they sent does not belong together.
    pub(super) fn next(&mut self) -> Result<Option<Joined>, String> {
        loop {
            if let Some(log) = self.logs.pop_front() {
                return Ok(Some(Joined::Message(log)));
            }
            // A node that does not measure the run has no more phases of it; the others' are of no
            // interest then.
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

    /// One message of one of each node.
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
        Ok(Joined::Together(Together::RunEnded(RunTogether { run, outcome, nodes })))
    }
}

/// All nodes are ready; those of another kernel than the first one are refused.
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
    Ok(Joined::Together(Together::Ready { facts: Box::new(first), nodes }))
}

/// What came of a run on all nodes: measured only if all did, refused if any was.
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
    // What is known of IOR explains what agents report of what stands in its place.
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

/// The refusal of the first node of `refused` that was, with those of the others, if not the same;
/// `all` nodes there are.
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

/// What a message is, for messages about it.
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
