//! One block: booting its guest, hearing of its runs, and booting again for what is left when a guest dies under a run.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Instant, SystemTime},
};

use bpfassay_protocol::message::{GuestMessage, HostMessage, Phase, RunOutcome};
use bpfassay_report::{
    BlockEnded, BlockStarted, Entry, FailureKind, GuestReady, Journal, JournalError, Outcome, RunFailure, RunRecord,
};
use bpfassay_study::{Block, PlannedRun, Study};
use bpfassay_vm::{BootOptions, EndReason, Ending, Event, Guest, Severity, Trouble};
use tokio_util::sync::CancellationToken;

use crate::{Observer, Progress, Rig, RigError, Summary, failure, rig::deadlines};

/// Directory of console logs in a results directory.
pub const LOGS: &str = "logs";

/// Most notes kept of one boot.
const MAX_NOTES: usize = 50;

/// What every block is carried out with.
pub(crate) struct Context<'a> {
    pub(crate) study: &'a Study,
    pub(crate) directory: &'a Path,
    pub(crate) journal: &'a Mutex<Journal>,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) cancel: &'a CancellationToken,
}

/// Why carrying out cannot go on at all.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// Nothing can be recorded any more.
    #[error("the journal cannot be written, so nothing measured from here on would be kept")]
    Journal(#[from] JournalError),
    /// The rig lacks something.
    #[error("a guest cannot be put together")]
    Rig(#[from] RigError),
}

impl Context<'_> {
    pub(crate) fn append(&self, entry: &Entry) -> Result<(), JournalError> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).append(entry)
    }

    pub(crate) fn tell(&self, progress: &Progress<'_>) {
        self.observer.progress(progress);
    }
}

/// Carries out `block`, of which `boots` boots were made before, with guests of `rig`.
pub(crate) async fn carry_out(
    context: &Context<'_>,
    rig: &Rig,
    block: &Block,
    boots: u32,
) -> Result<Summary, BlockError> {
    let mut boot = Boot::new(context, block, boots);
    while !boot.left.is_empty() && !context.cancel.is_cancelled() {
        boot.boot += 1;
        boot.once(rig).await?;
    }
    Ok(boot.tally)
}

/// A block that is being carried out: what its agent says, and what that means for its runs.
pub(crate) struct Boot<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) block: &'a Block,
    pub(crate) boot: u32,
    pub(crate) left: Vec<PlannedRun>,
    pub(crate) tally: Summary,
}

/// What is known of the run in flight.
pub(crate) struct InFlight {
    id: String,
    since: Instant,
    since_unix_ms: u64,
    spoilt_by: Option<Trouble>,
}

impl InFlight {
    fn new(id: String) -> Self {
        Self { id, since: Instant::now(), since_unix_ms: unix_ms(), spoilt_by: None }
    }
}

impl<'a> Boot<'a> {
    pub(crate) fn new(context: &'a Context<'a>, block: &'a Block, boots: u32) -> Self {
        Self { context, block, boot: boots, left: block.runs.clone(), tally: Summary::default() }
    }

    /// What files of this boot are called.
    pub(crate) fn name(&self) -> String {
        format!("{}_boot{}", self.block.id, self.boot)
    }

    /// One boot. Afterwards at least one run less is left, unless everything was cancelled.
    async fn once(&mut self, rig: &Rig) -> Result<(), BlockError> {
        let Context { study, cancel, .. } = *self.context;
        let name = self.name();
        let log = format!("{LOGS}/{name}.log");
        let job = match rig.job(study, self.block, &self.left) {
            // One kernel that cannot serve the file system is no reason to stop the others.
            Err(error @ RigError::Modules { .. }) => return self.never_booted(&chain(&error)),
            job => job?,
        };
        let machine = rig.machine(study, self.block)?;
        let (qemu, _) = rig.qemu(self.block.target.arch)?;
        let command = std::iter::once(qemu.program.as_os_str())
            .chain(machine.arguments().iter().map(std::ffi::OsString::as_os_str))
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        self.started(command, &log)?;

        let initramfs = match rig.initramfs(&self.block.target, &job) {
            Ok(initramfs) => initramfs,
            Err(error @ RigError::Initramfs { .. }) => return self.never_booted(&chain(&error)),
            Err(error) => return Err(error.into()),
        };
        let mut options = BootOptions::new(self.context.directory.join(&log));
        options.deadlines = deadlines(study);
        options.initramfs = Some(Arc::new(initramfs));
        let since = Instant::now();
        let mut guest = match Guest::boot(qemu, &machine, options).await {
            Ok(guest) => guest,
            Err(error) => return self.never_booted(&chain(&error)),
        };

        let mut in_flight: Option<InFlight> = None;
        let mut notes = guest.unconfined().to_vec();
        let (ending, protest) = loop {
            let event = tokio::select! {
                event = guest.next_event() => event,
                () = cancel.cancelled() => break (guest.kill().await, None),
            };
            match event {
                Event::Message(message) => {
                    if matches!(
                        message,
                        GuestMessage::Done | GuestMessage::Failed { .. } | GuestMessage::Unsound { .. }
                    ) {
                        // The guest cannot see whether its last words arrived: it waits to be told. One that has gone
                        // already needs no telling, and one that takes no input (the instruction clock) waits in vain, in
                        // its own time, which passes at once.
                        let _ = guest.send(&HostMessage::PowerOff);
                    }
                    if let Some(protest) = self.hear(message, since, &log, &mut in_flight)? {
                        break (guest.kill().await, Some(protest));
                    }
                }
                Event::Trouble(trouble) => match trouble.kind.severity() {
                    Severity::Note => {
                        if notes.len() < MAX_NOTES {
                            notes.push(trouble.to_string());
                        }
                    }
                    // Fatal ones end the guest, and its ending tells of them.
                    Severity::SpoilsRun | Severity::Fatal => {
                        if let Some(run) = &mut in_flight {
                            run.spoilt_by.get_or_insert(trouble);
                        }
                    }
                },
                Event::Ended(ending) => break (*ending, None),
            }
        };
        self.ended(&ending, protest, &log, in_flight, notes)
    }

    /// The block begins with `command`; what its guest prints goes to `log`.
    pub(crate) fn started(&self, command: Vec<String>, log: &str) -> Result<(), BlockError> {
        let started = BlockStarted {
            block: self.block.id.clone(),
            boot: self.boot,
            at_unix_ms: unix_ms(),
            qemu: command,
            log: Some(log.to_owned()),
        };
        self.context.append(&Entry::BlockStarted(started.clone()))?;
        self.context.tell(&Progress::Booting(self.block, &started));
        Ok(())
    }

    /// Takes in a message; `Some` is why the guest cannot be trusted any more.
    pub(crate) fn hear(
        &mut self,
        message: GuestMessage,
        since: Instant,
        log: &str,
        in_flight: &mut Option<InFlight>,
    ) -> Result<Option<String>, BlockError> {
        match message {
            GuestMessage::Ready(facts) => {
                let ready = GuestReady {
                    block: self.block.id.clone(),
                    boot: self.boot,
                    ready_after_ms: millis(since),
                    facts: *facts,
                };
                self.context.append(&Entry::GuestReady(Box::new(ready.clone())))?;
                self.context.tell(&Progress::Ready(self.block, &ready));
            }
            GuestMessage::Phase { phase: Phase::Boot | Phase::SetUp | Phase::Shell, .. }
            | GuestMessage::Hello { .. } => {}
            GuestMessage::Phase { run: None, .. } => {}
            GuestMessage::Phase { run: Some(run), phase } => {
                if !self.left.iter().any(|planned| planned.order.id == run) {
                    return Ok(Some(format!("the guest speaks of a run that it was not to do: {}", shortened(&run))));
                }
                self.context.tell(&Progress::Phase(self.block, &run, phase));
                if in_flight.as_ref().is_none_or(|current| current.id != run) {
                    *in_flight = Some(InFlight::new(run));
                }
            }
            GuestMessage::RunEnded { run, outcome } => {
                let Some(index) = self.left.iter().position(|planned| planned.order.id == run) else {
                    return Ok(Some(format!("the guest ended a run that it was not to do: {}", shortened(&run))));
                };
                let planned = self.left.remove(index);
                let current =
                    in_flight.take().filter(|current| current.id == run).unwrap_or_else(|| InFlight::new(run));
                let mut outcome = Outcome::from(self.readable(*outcome));
                match (&mut outcome, &current.spoilt_by) {
                    (Outcome::Measured(_), Some(trouble)) => {
                        outcome = Outcome::Failed(failure::of_trouble(trouble, log))
                    }
                    (Outcome::Failed(failure), _) => failure.log = Some(log.to_owned()),
                    _ => {}
                }
                self.record(&planned, &current, outcome)?;
            }
            GuestMessage::Log { text } => {
                tracing::info!(block = self.block.id, "{}", shortened(&text));
                self.context.tell(&Progress::Log(self.block, &text));
            }
            // The supervisor of the guest ends it after these.
            GuestMessage::Failed { .. } | GuestMessage::Unsound { .. } | GuestMessage::Done => {}
        }
        Ok(None)
    }

    /// The guest is gone: whose fault was it, and what of the runs that are left?
    fn ended(
        &mut self,
        ending: &Ending,
        protest: Option<String>,
        log: &str,
        in_flight: Option<InFlight>,
        notes: Vec<String>,
    ) -> Result<(), BlockError> {
        let cancelled = self.context.cancel.is_cancelled() && matches!(ending.reason, EndReason::Stopped);
        let trouble = match protest {
            Some(message) => Some(RunFailure {
                kind: FailureKind::Garbage,
                phase: Some(ending.phase),
                telling: vec![message],
                log: Some(log.to_owned()),
            }),
            None if cancelled || (ending.reason.is_done() && self.left.is_empty()) => None,
            None => Some(failure::of_ending(ending, log)),
        };
        self.concluded(trouble, in_flight, notes)
    }

    /// The agent is gone, `trouble` being what went wrong with it, if something did: the run in flight failed.
    pub(crate) fn concluded(
        &mut self,
        trouble: Option<RunFailure>,
        in_flight: Option<InFlight>,
        notes: Vec<String>,
    ) -> Result<(), BlockError> {
        let ended = BlockEnded {
            block: self.block.id.clone(),
            boot: self.boot,
            at_unix_ms: unix_ms(),
            trouble: trouble.clone(),
            notes,
        };
        self.context.append(&Entry::BlockEnded(ended.clone()))?;
        self.context.tell(&Progress::Ended(self.block, &ended));
        let Some(trouble) = trouble else { return Ok(()) };

        let position =
            in_flight.as_ref().and_then(|current| self.left.iter().position(|planned| planned.order.id == current.id));
        match (position, in_flight) {
            // It died under a run: that run failed, the others get another guest.
            (Some(index), Some(current)) => {
                let planned = self.left.remove(index);
                self.record(&planned, &current, Outcome::Failed(trouble))
            }
            // It died before or between runs: another boot would end the same way.
            _ => self.give_up(&trouble),
        }
    }

    /// The host could not even start the guest.
    pub(crate) fn never_booted(&mut self, message: &str) -> Result<(), BlockError> {
        let trouble = RunFailure { kind: FailureKind::Host, phase: None, telling: vec![message.to_owned()], log: None };
        self.concluded(Some(trouble), None, Vec::new())
    }

    /// The outcome of a run; a failure where a workload that is any program did not tell of its work what it should.
    fn readable(&self, outcome: RunOutcome) -> RunOutcome {
        let RunOutcome::Measured(figures) = &outcome else { return outcome };
        let command = self.context.study.command(&self.block.case);
        match command.and_then(|command| command.unreadable(&figures.summary)) {
            Some(message) => RunOutcome::Failed { message },
            None => outcome,
        }
    }

    fn give_up(&mut self, trouble: &RunFailure) -> Result<(), BlockError> {
        for planned in std::mem::take(&mut self.left) {
            let never = InFlight::new(planned.order.id.clone());
            self.record(&planned, &never, Outcome::Failed(trouble.clone()))?;
        }
        Ok(())
    }

    fn record(&mut self, planned: &PlannedRun, current: &InFlight, outcome: Outcome) -> Result<(), BlockError> {
        match outcome {
            Outcome::Measured(_) => self.tally.measured += 1,
            Outcome::Refused(_) => self.tally.refused += 1,
            Outcome::Failed(_) => self.tally.failed += 1,
        }
        let record =
            RunRecord::new(self.block, planned, self.boot, current.since_unix_ms, millis(current.since), outcome);
        let entry = Entry::Run(Box::new(record));
        self.context.append(&entry)?;
        if let Entry::Run(record) = &entry {
            self.context.tell(&Progress::RunEnded(record));
        }
        Ok(())
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

pub(crate) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970-01-01 UTC; 0 on a host whose clock stands before that.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
