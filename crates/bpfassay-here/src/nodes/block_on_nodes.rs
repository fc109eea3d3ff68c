// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a block on several nodes, and records the agents' joined messages and end.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    time::Instant,
};

use bpfassay_protocol::{
    job::{Job, Program, Task},
    message::{GuestMessage, Phase},
};
use bpfassay_results::{FailureKind, RunFailure};
use bpfassay_runner::{BlockError, boot::host_setup::deadlines, decisions::failure};
use tokio::time::timeout_at;

use super::{
    cluster::{Cluster, SharedSteps, patience},
    join::Joined,
    team::{AGAIN, Happened, RelayTeam},
};
use crate::{
    here_boot::{BlockHere, far},
    here_process::{Agent, job},
};

/// How a block ends.
enum BlockEnd {
    Closed,
    Cancelled,
    Failed(FailureKind, String),
    Unsound(String, Vec<String>),
}

/// Highest number of log lines that a failure has in addition to its message.
const LINES: usize = 4;

/// How many bytes at the end of a log are searched for those lines.
const LOOKED_AT: u64 = 16 << 10;

impl BlockHere<'_> {
    /// Executes the block with one agent on each node of `cluster`. Returns whether these nodes are
    /// fit for another block.
    ///
    /// # Errors
    /// [`BlockError`] if the journal cannot be written. Failing to start relays is a record.
    pub(crate) async fn execute_on(&mut self, agent: &Agent, cluster: &Cluster) -> Result<bool, BlockError> {
        let ior = agent.external_ior.clone().unwrap_or_default();
        let command = SharedSteps::new(&ior).ok().and_then(|steps| Some(cluster.relay(&steps, cluster.nodes.first()?)));
        let command = command.unwrap_or_default();
        let command = command.iter().map(|word| word.to_string_lossy().into_owned());
        self.boot.started(std::iter::once("srun".to_owned()).chain(command).collect())?;
        self.boot.since = Instant::now();
        let log = match self.boot.make_log(&self.boot.log) {
            Ok(log) => log,
            Err(error) => {
                let message = format!("could not make the log {}: {error}", self.boot.log);
                self.over_here(Some(failure::of_host(message)), None)?;
                return Ok(false);
            }
        };
        let job = of_node(job(agent, self.boot.context.study, self.boot.block));
        let mut phase = Phase::Boot;
        let (end, of_slurm) = loop {
            let begins_at = log.metadata().map_or(0, |log| log.len());
            let team = async {
                let steps = SharedSteps::new(&ior)?;
                RelayTeam::start(cluster, steps, (&agent.mount, &job), log.try_clone()?).await
            };
            let mut team = match team.await {
                Ok(team) => team,
                Err(error) => {
                    let message = format!("could not start the agents of the nodes by srun: {error}");
                    self.over_here(Some(failure::of_host(message)), None)?;
                    return Ok(false);
                }
            };
            let end = self.receive_of(&mut team, &mut phase).await?;
            team.stop().await;
            let of_slurm = of_slurm(&log, begins_at).unwrap_or_default();
            // A restarted controller is back within a minute, and nothing has been measured yet.
            let is_of_host = phase == Phase::Boot && matches!(end, BlockEnd::Failed(FailureKind::Host, _));
            let patience = of_slurm.iter().find_map(|line| patience(line)).filter(|_| is_of_host);
            if patience.is_none_or(|patience| self.boot.since.elapsed() >= patience) {
                break (end, of_slurm);
            }
            tracing::warn!("waiting for Slurm's controller, to start the agents of the nodes");
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = self.boot.context.cancel.cancelled() => break (BlockEnd::Cancelled, of_slurm),
            }
        };
        let (kind, message) = match end {
            BlockEnd::Closed if self.boot.is_done() => {
                self.over_here(None, None)?;
                return Ok(true);
            }
            BlockEnd::Cancelled => {
                self.over_here(None, None)?;
                return Ok(true);
            }
            // `handle_message` refuses the report for all runs but a tool run that has ended.
            BlockEnd::Unsound(run, differences) => {
                self.unsound(&run, differences)?;
                return Ok(false);
            }
            BlockEnd::Closed => (FailureKind::EarlyExit, "the agents ended before everything was done".to_owned()),
            // No run had begun, so a node is unfit or in use.
            BlockEnd::Failed(FailureKind::Agent, message) if self.boot.seen.runs.is_empty() => {
                (FailureKind::Host, message)
            }
            BlockEnd::Failed(kind, message) => (kind, message),
        };
        let mut excerpt = vec![message];
        excerpt.extend(of_slurm);
        let log = Some(self.boot.log.clone());
        self.over_here(Some(RunFailure { kind, phase: Some(phase), excerpt, log, after: None }), None)?;
        // Another block would fail in the same way if nodes are gone or unfit.
        Ok(!matches!(kind, FailureKind::Host | FailureKind::Agent))
    }

    /// Receives the joined messages until all agents have ended or have to be stopped.
    async fn receive_of(&mut self, team: &mut RelayTeam<'_>, phase: &mut Phase) -> Result<BlockEnd, BlockError> {
        let limits = deadlines(self.boot.context.study);
        let limit = |phase: Phase| limits.of(phase).map_or_else(far, |limit| tokio::time::Instant::now() + limit);
        let mut deadline = limit(*phase);
        loop {
            let happened = tokio::select! {
                happened = timeout_at(deadline, team.next()) => happened,
                () = self.boot.context.cancel.cancelled() => return Ok(BlockEnd::Cancelled),
            };
            let message = match happened {
                Err(_) => {
                    let message = format!("the phase {phase} took too long");
                    return Ok(BlockEnd::Failed(FailureKind::PhaseTimeout, message));
                }
                Ok(Happened::Closed) => return Ok(BlockEnd::Closed),
                Ok(Happened::Failed(kind, message)) => return Ok(BlockEnd::Failed(kind, message)),
                Ok(Happened::Joined(Joined::Message(GuestMessage::Failed { message }))) => {
                    return Ok(BlockEnd::Failed(FailureKind::Agent, message));
                }
                Ok(Happened::Joined(Joined::Message(message))) => message,
                Ok(Happened::Joined(Joined::Together(together))) => self.boot.message_of(together),
            };
            if let GuestMessage::Phase { phase: next, .. } = &message {
                *phase = *next;
                deadline = limit(*next);
            }
            let unsound = match &message {
                GuestMessage::Unsound { run, differences } => Some((run.clone(), differences.clone())),
                _ => None,
            };
            if let Some(violation) = self.boot.handle_message(message)? {
                return Ok(BlockEnd::Failed(FailureKind::ProtocolError, violation));
            }
            if let Some((run, differences)) = unsound {
                return Ok(BlockEnd::Unsound(run, differences));
            }
        }
    }
}

/// Adapts `job` to the agent of one node, which starts one stand-in instead of all ranks of IOR.
fn of_node(mut job: Job) -> Job {
    let Task::Runs { runs } = &mut job.task else { return job };
    for run in runs {
        if let Program::ExternalIor { ranks } = &mut run.workload.program {
            *ranks = 1;
        }
    }
    job
}

/// Returns the last lines of Slurm's programs in `log` after the offset `begins_at`.
fn of_slurm(mut log: &File, begins_at: u64) -> io::Result<Vec<String>> {
    let length = log.metadata()?.len();
    // Writers append, so moving the shared offset does not disturb them.
    log.seek(SeekFrom::Start(begins_at.max(length.saturating_sub(LOOKED_AT))))?;
    let mut text = Vec::new();
    log.take(LOOKED_AT).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let is_of_slurm = |line: &&str| ["srun: ", "slurmstepd: "].iter().any(|program| line.starts_with(program));
    let lines: Vec<&str> = text.lines().filter(is_of_slurm).collect();
    let from = lines.len().saturating_sub(LINES);
    Ok(lines
        .get(from..)
        .unwrap_or_default()
        .iter()
        .map(|line| bpfassay_results::plain::line(line).into_owned())
        .collect())
}
