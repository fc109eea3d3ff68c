// SPDX-License-Identifier: MIT OR Apache-2.0
//! One boot while it lasts: handles the agent's messages, and records them.

use std::{collections::BTreeMap, fs::File, io, time::Instant};

use bpfassay_protocol::{
    job_nodes::Node,
    message::{GuestMessage, Phase, RunOutcome},
};
use bpfassay_results::{
    BlockEnded, BlockStarted, BootVerdict, GuestReady, JournalEntry, NodeFacts, NodeRun, Outcome, RunFailure, RunRecord,
};
use bpfassay_study::Block;

use crate::{
    boot::{
        counting::BootCounting,
        joint_report::{JointReport, RunTogether},
        run_context::{BlockError, LOGS, RunContext, unix_ms},
        tally::Tally,
    },
    decisions::{
        attempt::{BootConclusion, FailedRun},
        observed::{BootPlan, Now, ObservedBoot, shortened},
    },
    observer::Happening,
};

/// A boot in progress.
pub struct RunningBoot<'a> {
    /// The state that all blocks share.
    pub context: &'a RunContext<'a>,
    /// The block that the boot belongs to.
    pub block: &'a Block,
    /// The number and the runs of the boot.
    pub plan: BootPlan,
    /// The console log, relative to the results directory.
    pub log: String,
    /// The observations so far.
    pub seen: ObservedBoot,
    /// When the boot began.
    pub since: Instant,
    /// A failure of the guest after everything was done. It changes nothing.
    pub(crate) after_done: Option<RunFailure>,
    /// The counts of QEMU's plugin, if one is loaded.
    pub(crate) counting: Option<BootCounting>,
    /// The nodes that are ready, if several nodes measure together.
    pub(crate) node_facts: Vec<NodeFacts>,
    /// The records of each node for the run that ends next.
    pub(crate) nodes: Vec<NodeRun>,
    /// The agent's reasons why runs failed, by the runs' identifiers.
    failures: BTreeMap<String, RunFailure>,
    tally: &'a mut Tally,
}

impl<'a> RunningBoot<'a> {
    /// Creates the boot `plan` of `block`, which has not begun. The outcomes of its runs go to
    /// `tally`.
    pub fn new(context: &'a RunContext<'a>, block: &'a Block, plan: BootPlan, tally: &'a mut Tally) -> Self {
        let mut this = Self {
            context,
            block,
            plan,
            log: String::new(),
            seen: ObservedBoot::default(),
            since: Instant::now(),
            after_done: None,
            counting: None,
            node_facts: Vec::new(),
            nodes: Vec::new(),
            failures: BTreeMap::new(),
            tally,
        };
        this.log = format!("{LOGS}/{}.log", this.name());
        this
    }

    /// Returns the path of the console log of `node`. The first node, or a guest that is alone,
    /// uses the log of the boot.
    pub(crate) fn log_of(&self, node: Option<Node>) -> String {
        match node {
            Some(node) if node.is_server() => format!("{LOGS}/{}_server.log", self.name()),
            Some(node) if !node.is_first() => format!("{LOGS}/{}_node{}.log", self.name(), node.number),
            Some(_) | None => self.log.clone(),
        }
    }

    /// Creates the file `log`, a path relative to the results directory, replacing any old file.
    ///
    /// # Errors
    /// The system's error if the old file cannot be removed or the new one cannot be created.
    pub fn make_log(&self, log: &str) -> io::Result<File> {
        self.context.logs.create(log.rsplit('/').next().unwrap_or(log))
    }

    /// Returns the stem of this boot's file names.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}_boot{}", self.block.id, self.plan.boot)
    }

    /// Returns the present instant.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { unix_ms: unix_ms(), boot_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX) }
    }

    /// Returns whether all runs have ended and the agent has reported this.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.seen.done && self.seen.is_whole(&self.plan)
    }

    /// Returns whether an incident that the kernel reports now can spoil a run or incriminate a
    /// tool.
    pub(crate) fn is_spoilt_by_incident(&self) -> bool {
        // The host can read the report late. A boot that shows whether a run does harm alone
        // therefore lasts until the guest has ended.
        (!self.is_done() || self.plan.confirming.is_some())
            && (self.seen.in_flight().is_some() || self.seen.last_tool(&self.plan).is_some())
    }

    /// Records that the boot begins with QEMU's command line `command`.
    ///
    /// # Errors
    /// [`BlockError`] if the journal cannot be written.
    pub fn started(&self, command: Vec<String>) -> Result<(), BlockError> {
        let started = BlockStarted {
            block: self.block.id.clone(),
            boot: self.plan.boot,
            attempt: self.plan.attempt,
            at_unix_ms: unix_ms(),
            qemu: command,
            log: Some(self.log.clone()),
            runs: self.plan.ids(),
            confirming: self.plan.confirming.clone(),
            reused: None,
        };
        self.context.append(&JournalEntry::BlockStarted(Box::new(started.clone())))?;
        self.context.report(&Happening::Booting(self.block, &started));
        Ok(())
    }

    /// Keeps the parts of each node, and returns the report as a single guest's message.
    pub fn message_of(&mut self, together: JointReport) -> GuestMessage {
        match together {
            JointReport::Ready { facts, nodes } => {
                self.node_facts = nodes;
                GuestMessage::Ready(facts)
            }
            JointReport::RunEnded(RunTogether { run, outcome, nodes }) => {
                self.nodes = nodes;
                GuestMessage::RunEnded { run, outcome: Box::new(outcome) }
            }
        }
    }

    /// Handles a message. Returns why the guest cannot be trusted any more, if so.
    ///
    /// # Errors
    /// [`BlockError`] if the journal cannot be written.
    pub fn handle_message(&mut self, message: GuestMessage) -> Result<Option<String>, BlockError> {
        let now = self.now();
        match message {
            GuestMessage::Ready(facts) => {
                self.seen.ready = true;
                let ready = GuestReady {
                    block: self.block.id.clone(),
                    boot: self.plan.boot,
                    ready_after_ms: now.boot_ms,
                    facts: *facts,
                    nodes: std::mem::take(&mut self.node_facts),
                };
                self.context.append(&JournalEntry::GuestReady(Box::new(ready.clone())))?;
                self.context.report(&Happening::Ready(self.block, &ready));
            }
            GuestMessage::Phase { phase: Phase::Boot | Phase::SetUp | Phase::Shell, .. }
            | GuestMessage::Phase { run: None, .. }
            | GuestMessage::Hello { .. } => {}
            GuestMessage::Phase { run: Some(run), phase } => {
                if let Err(wrong) = self.seen.message_about(&self.plan, &run, now) {
                    return Ok(Some(format!("protocol error: the guest begins the phase {phase} of {wrong}")));
                }
                self.context.report(&Happening::Phase(self.block, &run, phase));
            }
            GuestMessage::RunEnded { run, outcome } => match self.seen.ends(&self.plan, &run, now) {
                Ok(at) => self.ended(at, *outcome)?,
                Err(wrong) => return Ok(Some(format!("protocol error: the guest ends {wrong}"))),
            },
            // Barriers are handled at a lower level.
            GuestMessage::Barrier { .. } => {
                return Ok(Some("protocol error: the guest waits at a barrier that nobody meets".to_owned()));
            }
            GuestMessage::Symbols(symbols) => {
                if let Some(counting) = &mut self.counting {
                    counting.symbols(&symbols);
                }
            }
            GuestMessage::Source(source) => {
                if let Some(counting) = &mut self.counting {
                    counting.source(*source);
                }
            }
            GuestMessage::Log { text } => {
                tracing::info!(block = self.block.id, "{}", shortened(&text));
                self.context.report(&Happening::Log(self.block, &text));
            }
            GuestMessage::Done => match self.plan.runs.get(self.seen.ended()) {
                None => self.seen.done = true,
                Some(due) => {
                    let due = &due.spec.id;
                    return Ok(Some(format!(
                        "protocol error: the guest reports that everything is done, while {due} is due"
                    )));
                }
            },
            GuestMessage::Unsound { run, .. } => {
                if !self.seen.has_ended_tool(&self.plan, &run) {
                    let run = shortened(&run);
                    return Ok(Some(format!(
                        "protocol error: the guest reports that {run} changed it, which is no tool run that has ended"
                    )));
                }
            }
            // The guest's supervisor ends the guest after this.
            GuestMessage::Failed { .. } => {}
        }
        Ok(None)
    }

    /// Records the outcome of the run at index `at`, as the agent reported it.
    fn ended(&mut self, at: usize, outcome: RunOutcome) -> Result<(), BlockError> {
        let (Some(planned), Some(seen)) = (self.plan.runs.get(at), self.seen.runs.get(at)) else { return Ok(()) };
        if self.plan.confirming.is_some() {
            return Ok(());
        }
        if let (Some(counting), RunOutcome::Measured(figures)) = (&mut self.counting, &outcome) {
            counting.measured(planned, figures);
        }
        let mut outcome = Outcome::from(self.readable(outcome));
        if let Outcome::Failed(failure) = &mut outcome {
            failure.log = Some(self.log.clone());
            self.failures.insert(planned.spec.id.clone(), failure.clone());
        }
        let (started, duration) = (seen.started_unix_ms, seen.duration_ms(seen.began_ms));
        let nodes = std::mem::take(&mut self.nodes);
        let record = RunRecord::new(self.block, planned, self.plan.boot, started, duration, outcome);
        self.record(RunRecord { nodes, ..record })
    }

    /// Like [`Self::concluded_with`], without runs whose records count in an incomplete boot.
    ///
    /// # Errors
    /// [`BlockError`] if the journal cannot be written.
    pub(crate) fn concluded(&mut self, conclusion: BootConclusion, notes: Vec<String>) -> Result<(), BlockError> {
        self.concluded_with(conclusion, notes, Vec::new())
    }

    /// Records the conclusions of the finished boot, the verdict last. The records of the runs
    /// `kept` count even if the boot is incomplete.
    ///
    /// # Errors
    /// [`BlockError`] if the journal cannot be written.
    pub fn concluded_with(
        &mut self,
        conclusion: BootConclusion,
        notes: Vec<String>,
        kept: Vec<String>,
    ) -> Result<(), BlockError> {
        for failed in &conclusion.failed {
            let own = self.failures.get(&failed.run.spec.id);
            let failure = with_own(failed.failure.clone(), own);
            self.record(FailedRun { failure, ..failed.clone() }.record(self.block))?;
        }
        let mut settled = kept;
        if conclusion.verdict != BootVerdict::Complete {
            settled.extend(conclusion.settled());
        } else {
            settled.clear();
        }
        let (counts, code_coverage) = self.counting.take().map(BootCounting::finish).unzip();
        let ended = BlockEnded {
            block: self.block.id.clone(),
            boot: self.plan.boot,
            at_unix_ms: unix_ms(),
            failure: conclusion.failure.or_else(|| self.after_done.take()),
            notes,
            counts,
            code_coverage,
            verdict: conclusion.verdict,
            settled,
        };
        self.context.append(&JournalEntry::BlockEnded(Box::new(ended.clone())))?;
        self.context.report(&Happening::Ended(self.block, &ended));
        Ok(())
    }

    /// Returns the outcome of a run. It is a failure if a workload with its own output format did
    /// not print its figures.
    fn readable(&self, outcome: RunOutcome) -> RunOutcome {
        let RunOutcome::Measured(figures) = &outcome else { return outcome };
        let workload = self.context.study.workload(&self.block.case);
        match workload.and_then(|workload| workload.unreadable(&figures.summary)) {
            Some(message) => RunOutcome::Failed { message },
            None => outcome,
        }
    }

    fn record(&mut self, record: RunRecord) -> Result<(), BlockError> {
        record_run(self.context, self.tally, record)
    }
}

/// Adds to `failure`, for which a run is blamed, the run's `own` earlier failure, if any. The
/// record of the blame replaces the earlier record.
fn with_own(mut failure: RunFailure, own: Option<&RunFailure>) -> RunFailure {
    let lines = own.iter().flat_map(|own| own.excerpt.iter().take(1));
    let lines = lines.map(|line| format!("before that, the run had failed by itself: {line}"));
    let first = failure.excerpt.len().min(1);
    drop(failure.excerpt.splice(first..first, lines));
    failure
}

/// Appends `record` to the journal.
///
/// # Errors
/// [`BlockError`] if the journal cannot be written.
pub(crate) fn record_run(context: &RunContext<'_>, tally: &mut Tally, record: RunRecord) -> Result<(), BlockError> {
    tally.take(&record);
    let entry = JournalEntry::Run(Box::new(record));
    context.append(&entry)?;
    if let JournalEntry::Run(record) = &entry {
        context.report(&Happening::RunEnded(record));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::failure;

    /// The blame used to hide the run's own failure.
    #[test]
    fn a_run_that_is_blamed_keeps_its_own_failure() {
        let blamed =
            RunFailure { excerpt: vec!["changed".to_owned(), "more".to_owned()], ..failure::of_host(String::new()) };
        let own = failure::of_host("ior ended with exit status 3".to_owned());
        let expected = ["changed", "before that, the run had failed by itself: ior ended with exit status 3", "more"];
        assert_eq!(with_own(blamed.clone(), Some(&own)).excerpt, expected);
        assert_eq!(with_own(blamed.clone(), None), blamed);
    }
}
