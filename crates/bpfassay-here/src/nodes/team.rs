// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command's side of the relays while a block is measured. Starts them, joins their messages,
//! and runs IOR when all nodes wait for it.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use bpfassay_protocol::job::Job;
use bpfassay_results::{FailureKind, plain};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{
    cluster::{Cluster, SharedSteps, patience},
    join::{Joined, Joiner},
    node_wire::{self, Begin, FromNode, MAX_LINE, ToNode, WaitingStandIn},
};

/// How long relays can take to end. It is longer than the time that a relay gives its agent.
const ENDING: Duration = Duration::from_secs(40);

/// How long a program can take to end after a signal.
const KILLING: Duration = Duration::from_secs(10);

/// How long other nodes can take to report their failures after the first failure.
const OTHERS: Duration = Duration::from_secs(5);

/// Highest number of bytes of the launcher's output in a message.
const TAIL: u64 = 2048;

/// Time between two requests to a controller of Slurm that does not answer.
pub(super) const AGAIN: Duration = Duration::from_secs(2);

/// The failure of a run on waiting nodes, if another node does not measure the run.
const NOT_MEASURED: &str = "not measured: another node does not measure this run";

/// The events so far.
#[derive(Debug)]
pub(super) enum Happened {
    /// A message that all nodes have reported.
    Joined(Joined),
    /// All agents have ended in order.
    Closed,
    /// Nothing more can be measured.
    Failed(FailureKind, String),
}

/// The relay of one node.
#[derive(Debug)]
struct NodeRelay {
    node: String,
    srun: Child,
    input: Option<ChildStdin>,
    /// The stand-in that waits for IOR.
    waiting: Option<WaitingStandIn>,
    programs: Option<BTreeMap<String, String>>,
    /// How the relay ended, if it has: in order, or because the node is gone or the agent failed.
    ended: Option<Result<(), (FailureKind, String)>>,
}

/// IOR, started across all nodes.
#[derive(Debug)]
struct Ior {
    child: Child,
    output: File,
    /// How IOR ended, and when.
    ended: Option<(io::Result<ExitStatus>, Instant)>,
}

/// A message of the relay at an index; `None` at the end of its output.
type RelayMessage = (usize, io::Result<Option<FromNode>>);

/// The relays of all nodes.
#[derive(Debug)]
pub(super) struct RelayTeam<'a> {
    cluster: &'a Cluster,
    steps: SharedSteps,
    members: Vec<NodeRelay>,
    joiner: Joiner,
    sent: mpsc::Receiver<RelayMessage>,
    ior: Option<Ior>,
    log: File,
    /// When the first node failed.
    failing_since: Option<Instant>,
    /// Since when the controller of Slurm has not answered, and when to ask it again.
    without_controller: Option<(Instant, Instant)>,
}

impl<'a> RelayTeam<'a> {
    /// Starts a relay on each node. The nodes' agents do `job` on the file system at `mount`. The
    /// output of the relays goes to `log`.
    ///
    /// # Errors
    /// The system's error if srun cannot be started.
    pub(super) async fn start(
        cluster: &'a Cluster,
        steps: SharedSteps,
        (mount, job): (&Path, &Job),
        log: File,
    ) -> io::Result<Self> {
        let (sender, sent) = mpsc::channel(64);
        let mut team = Self {
            cluster,
            steps,
            members: Vec::new(),
            joiner: Joiner::new(&cluster.nodes),
            sent,
            ior: None,
            log,
            failing_since: None,
            without_controller: None,
        };
        for (at, node) in cluster.nodes.iter().enumerate() {
            let started = team.begin(at, node, (mount, job), sender.clone()).await;
            if let Err(error) = started {
                team.stop().await;
                return Err(error);
            }
        }
        Ok(team)
    }

    async fn begin(
        &mut self,
        at: usize,
        node: &str,
        (mount, job): (&Path, &Job),
        sender: mpsc::Sender<RelayMessage>,
    ) -> io::Result<()> {
        let mut srun = Command::new("srun")
            .args(self.cluster.relay(&self.steps, node))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(self.log.try_clone()?)
            .process_group(0)
            .spawn()?;
        let (Some(mut input), Some(output)) = (srun.stdin.take(), srun.stdout.take()) else {
            return Err(io::Error::other("srun was started without pipes"));
        };
        let begin = Begin { mount: mount.to_owned(), job: job.clone(), is_first: at == 0 };
        // If srun has ended already, its exit status shows why.
        let _ = input.write_all(&node_wire::line(&ToNode::Begin(Box::new(begin)))?).await;
        let member =
            NodeRelay { node: node.to_owned(), srun, input: Some(input), waiting: None, programs: None, ended: None };
        self.members.push(member);
        tokio::spawn(async move {
            let mut output = BufReader::new(output);
            loop {
                let next = node_wire::next(&mut output, MAX_LINE).await;
                let is_last = !matches!(next, Ok(Some(_)));
                if sender.send((at, next)).await.is_err() || is_last {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Waits until something happens.
    pub(super) async fn next(&mut self) -> Happened {
        loop {
            match self.joiner.next() {
                Ok(Some(joined)) => return Happened::Joined(joined),
                Ok(None) => {}
                Err(problem) => return Happened::Failed(FailureKind::ProtocolError, problem),
            }
            if self.members.iter().all(|member| matches!(member.ended, Some(Ok(())))) {
                return Happened::Closed;
            }
            let has_waited = self.failing_since.is_some_and(|since| since.elapsed() >= OTHERS);
            let all_ended = self.members.iter().all(|member| member.ended.is_some());
            if has_waited || all_ended {
                return self.failures();
            }
            self.leave_alone().await;
            if let Err(problem) = self.launch() {
                self.over(Some(problem)).await;
            }
            self.conclude_ior().await;
            let wake_at = self.wake_at();
            tokio::select! {
                sent = self.sent.recv() => match sent {
                    Some((at, sent)) => {
                        if let Err((kind, problem)) = self.take(at, sent).await {
                            return Happened::Failed(kind, problem);
                        }
                    }
                    None => return self.failures(),
                },
                status = ended(&mut self.ior) => {
                    if let Some(ior) = &mut self.ior {
                        ior.ended = Some((status, Instant::now()));
                    }
                }
                () = tokio::time::sleep_until(wake_at) => {}
            }
        }
    }

    /// Returns when to check again if nothing happens.
    fn wake_at(&self) -> Instant {
        let of_ior = self.ior.as_ref().and_then(|ior| ior.ended.as_ref()).map(|(_, at)| *at + OTHERS);
        let of_failure = self.failing_since.map(|since| since + OTHERS);
        let of_controller = self.without_controller.map(|(_, again)| again).filter(|_| self.ior.is_none());
        let far = Instant::now() + Duration::from_secs(24 * 3600);
        of_ior.into_iter().chain(of_failure).chain(of_controller).min().unwrap_or(far)
    }

    /// Handles what the relay at index `at` has sent.
    async fn take(&mut self, at: usize, sent: io::Result<Option<FromNode>>) -> Result<(), (FailureKind, String)> {
        let first = self.members.first().and_then(|first| first.programs.clone());
        let Some(member) = self.members.get_mut(at) else { return Ok(()) };
        match sent {
            Ok(Some(FromNode::Begun { programs })) => {
                if let Some(first) = first.filter(|first| *first != programs) {
                    let other = programs.iter().find(|(name, digest)| first.get(*name) != Some(digest));
                    let name = other.map_or("bpfassay", |(name, _)| name.as_str());
                    let node = &member.node;
                    let problem = format!(
                        "node {node}: its {name} is another program than that of another node, by SHA-256: take all of them from one place"
                    );
                    return Err((FailureKind::Agent, problem));
                }
                member.programs = Some(programs.clone());
                // All other nodes are compared with the first report.
                if let Some(first) = self.members.first_mut() {
                    first.programs.get_or_insert(programs);
                }
            }
            Ok(Some(FromNode::Message(message))) => {
                let pushed = self.joiner.push(at, *message);
                return pushed.map_err(|problem| (FailureKind::ProtocolError, problem));
            }
            Ok(Some(FromNode::Waiting(waiting))) => member.waiting = Some(waiting),
            Ok(Some(FromNode::Ended { problem: None })) if self.joiner.is_done(at) => member.ended = Some(Ok(())),
            Ok(Some(FromNode::Ended { problem })) => {
                let problem = problem.unwrap_or_else(|| "its agent ended before everything was done".to_owned());
                self.fails(at, FailureKind::Agent, problem);
            }
            Ok(None) if member.ended.is_some() => {}
            Ok(None) => {
                let status = match timeout(KILLING, member.srun.wait()).await {
                    Ok(Ok(status)) => status.to_string(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "srun is still there, without its output".to_owned(),
                };
                self.fails(
                    at,
                    FailureKind::Host,
                    format!("it is gone: its step of Slurm ended before its time ({status})"),
                );
            }
            Err(error) => self.fails(at, FailureKind::ProtocolError, format!("cannot be understood: {error}")),
        }
        Ok(())
    }

    /// Notes that the node at index `at` has failed.
    fn fails(&mut self, at: usize, kind: FailureKind, problem: String) {
        let last_words = self.joiner.last_words(at);
        if let Some(member) = self.members.get_mut(at) {
            member.ended = Some(Err((kind, last_words.unwrap_or(problem))));
            self.failing_since.get_or_insert(Instant::now());
        }
    }

    /// Collects the failures of all nodes.
    fn failures(&self) -> Happened {
        let mut kind = FailureKind::Agent;
        let mut problems = Vec::new();
        for member in &self.members {
            if let Some(Err((of_node, problem))) = &member.ended {
                if *of_node != FailureKind::Agent && kind == FailureKind::Agent {
                    kind = *of_node;
                }
                problems.push(format!("node {}: {problem}", member.node));
            }
        }
        if problems.is_empty() {
            problems.push("the nodes ended before everything was done".to_owned());
        }
        Happened::Failed(kind, problems.join("; "))
    }

    /// Ends stand-ins that wait for an IOR that will not start, because a node has ended the run.
    async fn leave_alone(&mut self) {
        let Some((run, alone)) = self.joiner.left_alone() else { return };
        if let Some(ior) = self.ior.take() {
            end(ior.child).await;
        }
        for at in alone {
            // The next run's stand-in can be known before the end of this run is.
            if let Some(member) = self.members.get_mut(at)
                && member.waiting.take_if(|waiting| waiting.is_of(&run)).is_some()
            {
                send_to(member, &ToNode::Over { problem: Some(NOT_MEASURED.to_owned()) }).await;
            }
        }
    }

    /// Starts IOR if all nodes wait for it in the same run.
    ///
    /// # Errors
    /// A message that says why IOR cannot be started.
    fn launch(&mut self) -> Result<(), String> {
        let is_too_early = self.without_controller.is_some_and(|(_, again)| Instant::now() < again);
        let is_over = self.failing_since.is_some() || self.joiner.left_alone().is_some();
        if self.ior.is_some() || is_over || is_too_early {
            return Ok(());
        }
        let waiting: Option<Vec<&WaitingStandIn>> = self.members.iter().map(|member| member.waiting.as_ref()).collect();
        let Some((first, others)) = waiting.as_deref().and_then(<[_]>::split_first) else { return Ok(()) };
        // One node can wait with its next run before the others have ended this one.
        if others.iter().any(|other| summary(other) != summary(first)) {
            return Ok(());
        }
        let words = self.cluster.ior(&self.steps, first);
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let failed = |error: io::Error| format!("cannot start `{}`: {error}", self.cluster.launcher.join(" "));
        let output = tempfile::tempfile().map_err(failed)?;
        let stream = || output.try_clone().map(Stdio::from).map_err(failed);
        let child = Command::new(program)
            .args(arguments)
            .envs(self.cluster.of_steps())
            .stdin(Stdio::null())
            .stdout(stream()?)
            .stderr(stream()?)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        self.ior = Some(Ior { child, output, ended: None });
        Ok(())
    }

    /// Ends the stand-ins of all nodes when IOR has ended and all its ranks are known.
    async fn conclude_ior(&mut self) {
        let Some(Ior { ended: Some((status, at)), .. }) = &self.ior else { return };
        let ranks = self.ranks();
        let problem = match status {
            Ok(status) if status.success() => match self.cluster.wrong_ranks(&ranks) {
                // The last ranks may not have been reported yet.
                Some(_) if at.elapsed() < OTHERS => return,
                wrong => wrong,
            },
            Ok(status) => Some(format!("IOR failed across the nodes: {status}")),
            Err(error) => Some(format!("IOR failed across the nodes: {error}")),
        };
        let has_run = ranks.iter().any(|ranks| *ranks > 0);
        let Some(mut ior) = self.ior.take() else { return };
        let printed = tail(&mut ior.output, &mut self.log);
        // A restarted controller is back within a minute, and nothing has been measured yet.
        if let (Some(_), false, Some(patience)) = (&problem, has_run, patience(&printed)) {
            let now = Instant::now();
            let (since, _) = *self.without_controller.get_or_insert_with(|| {
                tracing::warn!("waiting for Slurm's controller, to start IOR: {}", plain::line(&printed));
                (now, now)
            });
            if since.elapsed() < patience {
                self.without_controller = Some((since, now + AGAIN));
                return;
            }
        }
        self.without_controller = None;
        let problem = problem.map(|problem| match printed.is_empty() {
            true => problem,
            false => format!("{problem}; its last output: {printed}"),
        });
        self.over(problem).await;
    }

    fn ranks(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.waiting.as_ref().map_or(0, |waiting| waiting.ranks)).collect()
    }

    /// Tells all nodes that IOR has ended.
    async fn over(&mut self, problem: Option<String>) {
        self.joiner.ran(self.ranks(), problem.clone());
        for member in &mut self.members {
            member.waiting = None;
            send_to(member, &ToNode::Over { problem: problem.clone() }).await;
        }
    }

    /// Ends everything that was started. Agents remove what they created, unless their node is
    /// dead.
    pub(super) async fn stop(mut self) {
        if let Some(ior) = self.ior.take() {
            end(ior.child).await;
        }
        for member in &mut self.members {
            member.input = None;
        }
        // The output is read to its end, so that no relay blocks on this process.
        let drained = async { while self.sent.recv().await.is_some() {} };
        if timeout(ENDING, drained).await.is_err() {
            tracing::warn!("not all nodes have ended within {} s; their steps are ended", ENDING.as_secs());
        }
        for member in self.members {
            end(member.srun).await;
        }
    }
}

/// Returns the argument with the summary file, which differs for each run.
fn summary(waiting: &WaitingStandIn) -> Option<&String> {
    waiting.arguments.iter().find(|argument| argument.starts_with("summaryFile="))
}

/// Sends `order` to the relay of a node. The end of the relay's output shows whether the relay has
/// ended.
async fn send_to(member: &mut NodeRelay, order: &ToNode) {
    let Ok(line) = node_wire::line(order) else { return };
    if let Some(input) = &mut member.input
        && input.write_all(&line).await.is_err()
    {
        member.input = None;
    }
}

/// Waits for the end of IOR, or for ever if it does not run.
async fn ended(ior: &mut Option<Ior>) -> io::Result<ExitStatus> {
    match ior {
        Some(Ior { child, ended: None, .. }) => child.wait().await,
        _ => std::future::pending().await,
    }
}

/// Ends a program and everything that it started on this machine, by SIGTERM, then SIGKILL.
async fn end(mut child: Child) {
    let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if matches!(timeout(Duration::ZERO, child.wait()).await, Ok(Ok(_))) {
        return;
    }
    for signal in [Signal::TERM, Signal::KILL] {
        // The process group no longer exists if the program has ended in the meantime.
        let _ = group.map(|group| kill_process_group(group, signal));
        if matches!(timeout(KILLING, child.wait()).await, Ok(Ok(_))) {
            return;
        }
    }
    tracing::warn!("a program of Slurm does not end although it was killed");
}

/// Appends `output` to `log`, and returns its last lines as one line.
fn tail(output: &mut File, log: &mut File) -> String {
    let mut text = Vec::new();
    let read = output.seek(SeekFrom::Start(0)).and_then(|_| output.take(1 << 20).read_to_end(&mut text));
    if read.is_err() {
        return String::new();
    }
    // The log is for readers. Results do not depend on it.
    let _ = log.write_all(&text);
    let from = text.len().saturating_sub(usize::try_from(TAIL).unwrap_or(usize::MAX));
    let end = String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = end.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = lines.len().saturating_sub(4);
    lines.get(last..).unwrap_or_default().join(" | ")
}
