// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a block on this system with one agent, and records its messages and end.

use std::{io, os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration};

use bpfassay_protocol::{
    frame::{Decoder, FrameError},
    message::{GuestMessage, Phase, RunOutcome},
    with_causes,
};
use bpfassay_results::{BootVerdict, FailureKind, RunFailure};
use bpfassay_runner::{
    BlockError,
    boot::{host_setup::deadlines, running_boot::RunningBoot},
    decisions::{
        attempt::{BootConclusion, FailedRun},
        failure,
    },
};
use rustix::process::{Pid, Signal};
use tokio::{
    io::AsyncReadExt,
    process::Child,
    time::{Instant, error::Elapsed, timeout_at},
};

use super::here_process::{Agent, arguments, ask_to_stop, clear, job, kill, start, unnamed};

/// How long an agent can take to end after its last message, or to remove what it made when it is
/// asked to stop. It is longer than the agent's own limits.
const ENDING: Duration = Duration::from_secs(30);

/// Why no more messages are read from an agent.
enum ReadEnd {
    /// The agent closed its output.
    Closed,
    /// The agent was asked to stop.
    Cancelled,
    /// The agent violated the protocol or was too slow.
    AgentFailed(FailureKind, String),
}

/// A block in progress, on this system or on the nodes of a cluster.
pub(crate) struct BlockHere<'a> {
    /// The only boot of the block: a running system is not booted again.
    pub(crate) boot: RunningBoot<'a>,
}

impl BlockHere<'_> {
    /// Executes the block with one agent. Returns whether this system is fit for another block.
    ///
    /// # Errors
    /// [`BlockError`] if the journal cannot be written. Failing to start an agent is a record.
    pub(super) async fn execute(&mut self, agent: &Agent) -> Result<bool, BlockError> {
        let arguments = arguments(agent);
        let command = std::iter::once(&agent.program).map(|path| path.display().to_string());
        self.boot.started(command.chain(arguments.iter().cloned()).collect())?;
        let job = job(agent, self.boot.context.study, self.boot.block);
        let started = self.boot.make_log(&self.boot.log).and_then(|log| {
            let child = start(agent, &arguments, unnamed(&job)?, log.try_clone()?.into())?;
            Ok((child, log))
        });
        let (mut child, log) = match started {
            Ok(child) => child,
            Err(error) => {
                let message = format!("could not start {}: {error}", agent.program.display());
                self.over_here(Some(failure::of_host(message)), None)?;
                return Ok(true);
            }
        };

        let mut reported = AgentReport { phase: Phase::Boot, failed: None, unsound: None };
        let group = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let end = self.receive(agent, &mut child, &mut reported).await;
        if !matches!(end, Ok(ReadEnd::Closed)) {
            ask_to_stop(group);
        }
        let status = tokio::time::timeout(ENDING, child.wait()).await;
        kill(group);
        // An agent that exits by itself has cleaned up, or has reported what it could not remove.
        let has_exited = matches!(&status, Ok(Ok(status)) if status.code().is_some());
        if !has_exited && !clear(agent, log.into()).await.unwrap_or(false) {
            let log = self.boot.context.logs.path().with_file_name(&self.boot.log);
            tracing::error!("the agent was killed, and what it left could not all be removed: see {}", log.display());
        }
        // `handle_message` refuses the report for all runs but a tool run that has ended.
        if let (Ok(ReadEnd::Closed), Some((run, differences))) = (&end, reported.unsound.take()) {
            self.unsound(&run, differences)?;
            return Ok(false);
        }
        let end = end?;
        let failure = match (end, reported.failed) {
            (ReadEnd::Cancelled, _) => None,
            (ReadEnd::AgentFailed(kind, message), _) => Some((kind, message)),
            // No run had begun, so this machine is unfit or in use.
            (ReadEnd::Closed, Some(message)) if self.boot.seen.runs.is_empty() => Some((FailureKind::Host, message)),
            (ReadEnd::Closed, Some(message)) => Some((FailureKind::Agent, message)),
            (ReadEnd::Closed, None) if self.boot.is_done() => None,
            (ReadEnd::Closed, None) if is_at_file_size_limit(&status) => {
                let message = "the agent was ended because a file would have become larger than the \
                               limit of this process: raise it (ulimit -f)";
                Some((FailureKind::Host, message.to_owned()))
            }
            (ReadEnd::Closed, None) => {
                let how = match status {
                    Ok(Ok(status)) => status.to_string(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => format!("it closed its output and did not exit within {} s", ENDING.as_secs()),
                };
                Some((FailureKind::EarlyExit, format!("the agent ended before everything was done: {how}")))
            }
        };
        let log = Some(self.boot.log.clone());
        let failure = failure.map(|(kind, message)| RunFailure {
            kind,
            phase: Some(reported.phase),
            excerpt: vec![message],
            log,
            after: None,
        });
        self.over_here(failure, None)?;
        Ok(true)
    }

    /// Records the block after the agent has ended. This system cannot reboot, so earlier records
    /// stand.
    ///
    /// The exception is the run at index `spoilt`, which left the system changed. If there is a
    /// `failure`, the run in flight and all later runs fail with it.
    pub(super) fn over_here(
        &mut self,
        failure: Option<RunFailure>,
        spoilt: Option<(usize, RunFailure)>,
    ) -> Result<(), BlockError> {
        let now = self.boot.now();
        let ended = self.boot.seen.ended();
        let in_flight = self.boot.seen.in_flight();
        let owed = failure.iter().flat_map(|failure| (ended..self.boot.plan.runs.len()).map(move |at| (at, failure)));
        let to_record: Vec<_> = spoilt.iter().map(|(at, failure)| (*at, failure)).chain(owed).collect();
        let mut failed = Vec::new();
        for (at, failure) in to_record {
            let Some(run) = self.boot.plan.runs.get(at) else { continue };
            let seen = self.boot.seen.runs.get(at);
            failed.push(FailedRun {
                run: run.clone(),
                boot: self.boot.plan.boot,
                started_unix_ms: seen.map_or(now.unix_ms, |seen| seen.started_unix_ms),
                duration_ms: seen.map_or(0, |seen| seen.duration_ms(now.boot_ms)),
                failure: failure.clone(),
            });
        }
        let guilty = spoilt.as_ref().map(|(at, _)| *at).or(in_flight);
        let verdict = match (&failure, guilty.and_then(|at| self.boot.plan.runs.get(at))) {
            (None, _) if self.boot.is_done() => BootVerdict::Complete,
            (None, _) => BootVerdict::Interrupted,
            (Some(failure), _) if failure.kind == FailureKind::Host => BootVerdict::Host,
            (Some(_), Some(run)) => BootVerdict::Blamed { run: run.spec.id.clone() },
            (Some(_), None) => BootVerdict::Nobody,
        };
        let kept = self.boot.plan.ids().into_iter().take(ended).collect();
        self.boot.concluded_with(BootConclusion { verdict, failure, failed }, Vec::new(), kept)
    }

    /// Blames `run`, the last run that ended, for leaving this system changed. The runs that are
    /// left cannot be measured.
    pub(super) fn unsound(&mut self, run: &str, differences: Vec<String>) -> Result<(), BlockError> {
        let kind = FailureKind::Unsound;
        let log = Some(self.boot.log.clone());
        let first = format!("not run: after {run} this machine was not as it was before");
        let excerpt = std::iter::once(first).chain(differences.iter().cloned()).collect();
        let failure = RunFailure { kind, phase: None, excerpt, log: log.clone(), after: None };
        let last = self.boot.seen.last_tool(&self.boot.plan);
        let spoilt = last.map(|at| (at, RunFailure { kind, phase: None, excerpt: differences, log, after: None }));
        self.over_here(Some(failure), spoilt)
    }

    /// Receives the agent's messages until the agent closes its output or has to be stopped.
    async fn receive(
        &mut self,
        agent: &Agent,
        child: &mut Child,
        reported: &mut AgentReport,
    ) -> Result<ReadEnd, BlockError> {
        let Some(mut stdout) = child.stdout.take() else {
            return Ok(ReadEnd::AgentFailed(FailureKind::Host, "the agent was started without a pipe".to_owned()));
        };
        self.boot.since = std::time::Instant::now();
        let limits = deadlines(self.boot.context.study);
        let limit = |phase: Phase| limits.of(phase).map_or_else(far, |limit| Instant::now() + limit);
        let mut deadline = limit(reported.phase);
        let mut decoder = Decoder::default();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = tokio::select! {
                read = timeout_at(deadline, stdout.read(&mut buffer)) => read,
                () = self.boot.context.cancel.cancelled() => return Ok(ReadEnd::Cancelled),
            };
            let length = match read {
                Err(_) => {
                    return Ok(ReadEnd::AgentFailed(
                        FailureKind::PhaseTimeout,
                        format!("the phase {} took too long", reported.phase),
                    ));
                }
                Ok(Err(error)) => {
                    return Ok(ReadEnd::AgentFailed(FailureKind::Host, format!("cannot read from the agent: {error}")));
                }
                Ok(Ok(0)) if decoder.is_mid_frame() => {
                    return Ok(ReadEnd::AgentFailed(
                        FailureKind::ProtocolError,
                        "the agent ended within a message".to_owned(),
                    ));
                }
                Ok(Ok(0)) => return Ok(ReadEnd::Closed),
                Ok(Ok(length)) => length,
            };
            decoder.push(&buffer[..length]);
            loop {
                let mut message = match decoder.next::<GuestMessage>() {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    Err(error) => {
                        let kind = match error {
                            FrameError::Version { .. } => FailureKind::ProtocolVersion,
                            _ => FailureKind::ProtocolError,
                        };
                        return Ok(ReadEnd::AgentFailed(kind, with_causes(&error)));
                    }
                };
                match &mut message {
                    GuestMessage::RunEnded { run, outcome } => {
                        if let RunOutcome::Refused(refusal) = outcome.as_mut() {
                            let planned = self.boot.plan.runs.iter().find(|planned| planned.spec.id == *run);
                            // A refusal without a run comes from the reference tracer.
                            let is_of_tool = refusal.run.is_some();
                            let probe = planned.filter(|_| !is_of_tool).map(|planned| planned.spec.probe.probe);
                            agent.limits.explain(probe, refusal);
                        }
                    }
                    GuestMessage::Phase { phase, .. } => {
                        reported.phase = *phase;
                        deadline = limit(*phase);
                    }
                    GuestMessage::Unsound { run, differences } => {
                        reported.unsound = Some((run.clone(), differences.clone()));
                    }
                    GuestMessage::Failed { message } => reported.failed = Some(message.clone()),
                    _ => {}
                }
                if let Some(violation) = self.boot.handle_message(message)? {
                    return Ok(ReadEnd::AgentFailed(FailureKind::ProtocolError, violation));
                }
            }
        }
    }
}

/// Returns whether the limit on the size of files ended an agent.
fn is_at_file_size_limit(status: &Result<io::Result<ExitStatus>, Elapsed>) -> bool {
    matches!(status, Ok(Ok(status)) if status.signal() == Some(Signal::XFSZ.as_raw()))
}

/// The agent's reports about itself.
struct AgentReport {
    /// The phase announced last.
    phase: Phase,
    /// The agent's message about its failure.
    failed: Option<String>,
    /// The run that left this system changed, and the differences.
    unsound: Option<(String, Vec<String>)>,
}

/// A time that no run reaches.
pub(super) fn far() -> Instant {
    Instant::now() + Duration::from_secs(365 * 24 * 3600)
}
