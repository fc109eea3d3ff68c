// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides which boot of a block comes next, and what is recorded when a boot ends. Pure. The
//! decisions depend only on the journal, so a resumed run decides like an uninterrupted one.

use std::{collections::BTreeSet, time::Duration};

use bpfassay_results::{AfterRun, BootVerdict, FailureKind, Involved, Outcome, Past, RunFailure, RunRecord, ToDo};
use bpfassay_study::{Block, PlannedRun};

use crate::decisions::{
    blame::{self, BootEnd, HostFailure},
    failure,
    observed::{BootPlan, Now, ObservedBoot},
};

/// Pauses before a boot that failed because of the host is repeated. If the boot after the last
/// pause fails, too, only a resumed run continues the block.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// The block is given up after this many boots that failed before a tool ran. Two boots are enough
/// if they failed in the same way. One boot is enough if its kernel was silent.
const MOST_UNBLAMED: usize = 3;

/// After a probe configuration or tool has ended this many boots of a block, its other runs in the
/// block are not tried.
const MOST_BLAMED: usize = 2;

/// A run that failed without an outcome from the agent, as the host concludes.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedRun {
    /// The run as it was planned.
    pub run: PlannedRun,
    /// The boot that the run was in, or would have been in.
    pub boot: u32,
    /// When the run began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// Duration of the run; 0 if it never began.
    pub duration_ms: u64,
    /// The failure that the host concludes.
    pub failure: RunFailure,
}

impl FailedRun {
    /// Creates the run's record.
    pub(crate) fn record(&self, block: &Block) -> RunRecord {
        let outcome = Outcome::Failed(self.failure.clone());
        RunRecord::new(block, &self.run, self.boot, self.started_unix_ms, self.duration_ms, outcome)
    }
}

/// The records that follow from the end of a boot.
#[derive(Debug, Clone, PartialEq)]
pub struct BootConclusion {
    /// The verdict about the boot.
    pub verdict: BootVerdict,
    /// The failure of the boot, if any.
    pub failure: Option<RunFailure>,
    /// Runs that fail because of this boot.
    pub failed: Vec<FailedRun>,
}

impl BootConclusion {
    /// Returns the runs that this conclusion settles.
    pub(crate) fn settled(&self) -> Vec<String> {
        self.failed.iter().map(|failed| failed.run.spec.id.clone()).collect()
    }
}

/// A boot with two suspects.
#[derive(Debug, Clone)]
struct Pending {
    boot: u32,
    suspect: Involved,
    otherwise: Involved,
    after_ms: u64,
    failure: RunFailure,
}

impl Pending {
    /// Returns whether the suspect is slow by itself, given the duration `alone_ms` of its run
    /// alone.
    ///
    /// It is if the boot failed by a phase timeout and `alone_ms` is at least half of the time that
    /// the suspect had. No other run can then be blamed for a deadline that depends on the host's
    /// load. For the kernel's reports in the middle of a run, the duration of the run proves
    /// nothing.
    fn is_slow_itself(&self, alone_ms: u64) -> bool {
        self.failure.kind == FailureKind::PhaseTimeout && alone_ms >= self.suspect.duration_ms.div_ceil(2)
    }
}

/// An attempt at a block.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    runs: Vec<PlannedRun>,
    number: u32,
    boots: u32,
    settled: BTreeSet<String>,
    blamed: Vec<String>,
    pending: Option<Pending>,
    /// How boots without a tool ended, each with the boot's number.
    unblamed: Vec<(FailureKind, u32)>,
    /// Consecutive boots that failed because of the host.
    failed_by_host: usize,
    host: Option<HostFailure>,
    was_ready: bool,
    never_ready: Option<RunFailure>,
}

impl Attempt {
    /// Continues a block from its entries in the journal.
    pub(crate) fn new(todo: &ToDo) -> Self {
        let Past { boots, attempt, history, settled } = &todo.past;
        let mut this = Self {
            runs: todo.block.runs.clone(),
            number: *attempt,
            boots: *boots,
            settled: settled.clone(),
            blamed: Vec::new(),
            pending: None,
            unblamed: Vec::new(),
            failed_by_host: 0,
            host: None,
            was_ready: history.iter().any(|boot| boot.ready),
            never_ready: None,
        };
        for boot in history {
            if let Some(ended) = &boot.ended {
                this.note(boot.boot, &ended.verdict, ended.failure.as_ref());
            }
        }
        this
    }

    /// Notes a verdict, either as it happens or from the journal.
    fn note(&mut self, boot: u32, verdict: &BootVerdict, failure: Option<&RunFailure>) {
        match verdict {
            BootVerdict::Blamed { run } => {
                self.blamed.push(run.clone());
                self.pending = None;
            }
            BootVerdict::Suspected { suspect, otherwise, after_ms } => {
                self.pending = failure.map(|failure| Pending {
                    boot,
                    suspect: suspect.clone(),
                    otherwise: otherwise.clone(),
                    after_ms: *after_ms,
                    failure: failure.clone(),
                });
            }
            BootVerdict::Nobody => self.unblamed.extend(failure.map(|failure| (failure.kind, boot))),
            BootVerdict::Complete | BootVerdict::Interrupted | BootVerdict::Host => {}
        }
    }

    /// Returns the runs without a record that counts, in order.
    fn open(&self) -> Vec<PlannedRun> {
        self.runs.iter().filter(|run| !self.settled.contains(&run.spec.id)).cloned().collect()
    }

    /// Returns the next boot and the pause before it; `None` if nothing is left to do.
    pub(crate) fn next(&self) -> Option<(BootPlan, Duration)> {
        let open = self.open();
        if open.is_empty() {
            return None;
        }
        let pause = self.failed_by_host.checked_sub(1).and_then(|at| PAUSES.get(at)).copied().unwrap_or_default();
        let confirming = self.pending.as_ref().map(|pending| pending.suspect.run.clone());
        let runs = match &confirming {
            // The baseline warms up as in the boot that failed. No tracer runs before the suspect.
            Some(suspect) => {
                let is_wanted =
                    |run: &PlannedRun| run.warm_up && run.spec.probe.is_baseline() || run.spec.id == *suspect;
                open.into_iter().filter(is_wanted).collect()
            }
            None => open,
        };
        let boot = self.boots.saturating_add(1);
        Some((BootPlan { boot, attempt: self.number, runs, confirming }, pause))
    }

    /// Notes that `plan` has begun. The number of its boot is used up.
    pub(crate) fn begun(&mut self, plan: &BootPlan) {
        self.boots = self.boots.max(plan.boot);
    }

    /// Decides what to record after `plan` has ended with `end`.
    pub(crate) fn ended(&mut self, plan: &BootPlan, seen: &ObservedBoot, end: &BootEnd, now: Now) -> BootConclusion {
        self.begun(plan);
        self.was_ready |= seen.ready;
        let mut verdict = blame::verdict(plan, seen, end);
        let failure = match end {
            BootEnd::Done | BootEnd::Interrupted => None,
            BootEnd::Host { failure, .. } | BootEnd::Unsound { failure, .. } | BootEnd::Broken { failure, .. } => {
                Some(failure.clone())
            }
        };
        self.failed_by_host = if verdict == BootVerdict::Host { self.failed_by_host.saturating_add(1) } else { 0 };
        let mut failed = Vec::new();
        match (&verdict, &failure, end) {
            (BootVerdict::Complete, ..) => match self.pending.take() {
                Some(pending) if plan.confirming.is_some() => {
                    let alone_ms = seen.runs.last().map_or(0, |run| run.duration_ms(0));
                    let (run, of_run) = if pending.is_slow_itself(alone_ms) {
                        let line = format!("alone in boot {}, this run took {alone_ms} ms", plan.boot);
                        (pending.suspect.run.clone(), self.suspect_failed(&pending, &line))
                    } else {
                        (pending.otherwise.run.clone(), self.cleared(pending, plan))
                    };
                    failed.extend(of_run);
                    verdict = BootVerdict::Blamed { run };
                }
                _ => self.settled.extend(plan.ids()),
            },
            (BootVerdict::Host, Some(failure), BootEnd::Host { class, .. }) => {
                let is_last = self.failed_by_host > PAUSES.len() || *class == HostFailure::Lacking;
                if is_last {
                    self.host = Some(*class);
                    failed = self.given_up(plan, now, failure);
                }
            }
            (BootVerdict::Blamed { run }, Some(failure), _) => {
                failed.extend(self.blamed_run(run, plan, seen, end, failure));
            }
            (BootVerdict::Nobody, Some(of_boot), _) => {
                let same = self.unblamed.iter().find(|(kind, _)| *kind == of_boot.kind);
                let first = of_boot.excerpt.first().cloned().unwrap_or_default();
                let line = match same {
                    // The kernel wrote nothing, and a repetition does not change that.
                    _ if failure::is_silent(of_boot) && !self.was_ready => {
                        Some(format!("{first}; no other boot is tried"))
                    }
                    Some((_, boot)) => Some(format!("{first}; no tool had run, and boot {boot} ended in the same way")),
                    None if self.unblamed.len() + 1 >= MOST_UNBLAMED => {
                        Some(format!("{first}; no tool had run, and {} boots before ended badly", self.unblamed.len()))
                    }
                    None => None,
                };
                if let Some(line) = line {
                    let failure = with_first_line(of_boot, line);
                    if !self.was_ready {
                        self.never_ready = Some(failure.clone());
                    }
                    failed = self.given_up(plan, now, &failure);
                }
            }
            _ => {}
        }
        self.note(plan.boot, &verdict, failure.as_ref());
        self.settled.extend(failed.iter().map(|failed| failed.run.spec.id.clone()));
        if let BootVerdict::Blamed { run } = &verdict {
            let others = self.not_tried(run, plan, now);
            self.settled.extend(others.iter().map(|failed| failed.run.spec.id.clone()));
            failed.extend(others);
        }
        BootConclusion { verdict, failure, failed }
    }

    /// Returns the host failure because of which the block was left, if there was one.
    pub(crate) fn left_by_host(&self) -> Option<HostFailure> {
        self.host
    }

    /// Returns why the block was given up, if none of its guests was ever ready.
    pub(crate) fn never_ready(&self) -> Option<&RunFailure> {
        self.never_ready.as_ref()
    }

    /// Returns whether a guest of the block was ready.
    pub(crate) fn was_ready(&self) -> bool {
        self.was_ready
    }

    fn planned(&self, id: &str) -> Option<PlannedRun> {
        self.runs.iter().find(|run| run.spec.id == id).cloned()
    }

    /// Blames the suspect. The failure says how the boot ended and what the run alone showed.
    fn suspect_failed(&self, pending: &Pending, alone: &str) -> Option<FailedRun> {
        let first = pending.failure.excerpt.first().cloned().unwrap_or_default();
        Some(FailedRun {
            run: self.planned(&pending.suspect.run)?,
            boot: pending.boot,
            started_unix_ms: pending.suspect.started_unix_ms,
            duration_ms: pending.suspect.duration_ms,
            failure: with_first_line(&pending.failure, format!("{first}; {alone}")),
        })
    }

    /// Clears the suspect, which did no harm alone, and blames the tool run before it.
    fn cleared(&self, pending: Pending, confirmed: &BootPlan) -> Option<FailedRun> {
        let Pending { boot, suspect, otherwise, after_ms, failure } = pending;
        let after = AfterRun { ms: after_ms, during: Some(suspect.run.clone()) };
        let first = failure.excerpt.first().cloned().unwrap_or_default();
        let line = format!("{first}, {after}; {} alone did no harm in boot {}", suspect.run, confirmed.boot);
        Some(FailedRun {
            run: self.planned(&otherwise.run)?,
            boot,
            started_unix_ms: otherwise.started_unix_ms,
            duration_ms: otherwise.duration_ms,
            failure: RunFailure { after: Some(after), ..with_first_line(&failure, line) },
        })
    }

    /// Blames `run` of the boot that ended, either in flight or after its end.
    fn blamed_run(
        &self,
        run: &str,
        plan: &BootPlan,
        seen: &ObservedBoot,
        end: &BootEnd,
        failure: &RunFailure,
    ) -> Option<FailedRun> {
        let first = failure.excerpt.first().cloned().unwrap_or_default();
        if let (Some(pending), Some(confirmed)) = (&self.pending, &plan.confirming)
            && confirmed == run
        {
            let line = format!("boot {} of this run alone ended badly, too: {first}", plan.boot);
            return self.suspect_failed(pending, &line);
        }
        let at = plan.runs.iter().position(|planned| planned.spec.id == run)?;
        let when = seen.runs.get(at)?;
        let at_ms = match end {
            BootEnd::Unsound { at_ms, .. } | BootEnd::Broken { at_ms, .. } => *at_ms,
            BootEnd::Done | BootEnd::Interrupted | BootEnd::Host { .. } => when.began_ms,
        };
        let failure = match when.ended_ms {
            None => failure.clone(),
            Some(ended_ms) => {
                let during = seen.in_flight().and_then(|at| plan.runs.get(at)).map(|run| run.spec.id.clone());
                let after = AfterRun { ms: at_ms.saturating_sub(ended_ms), during };
                let line = format!("{first}, {after}");
                RunFailure { after: Some(after), ..with_first_line(failure, line) }
            }
        };
        Some(FailedRun {
            run: plan.runs.get(at)?.clone(),
            boot: plan.boot,
            started_unix_ms: when.started_unix_ms,
            duration_ms: when.duration_ms(at_ms),
            failure,
        })
    }

    /// Returns the other runs of the cell of `run` if that cell has ended two boots.
    fn not_tried(&self, run: &str, plan: &BootPlan, now: Now) -> Vec<FailedRun> {
        let Some(cell) = self.planned(run).map(|run| run.cell) else { return Vec::new() };
        let blamed: Vec<&str> = self
            .blamed
            .iter()
            .map(String::as_str)
            .filter(|id| self.runs.iter().any(|run| run.spec.id == *id && run.cell == cell))
            .collect();
        if blamed.len() < MOST_BLAMED {
            return Vec::new();
        }
        let line = format!("{} ended a boot of this block each", blamed.join(" and "));
        let failure =
            RunFailure { kind: FailureKind::NotTried, phase: None, excerpt: vec![line], log: None, after: None };
        let others = self.open().into_iter().filter(|run| run.cell == cell);
        others.map(|run| never_began(run, plan.boot, now, &failure)).collect()
    }

    /// Fails every run that is left with `failure`.
    fn given_up(&self, plan: &BootPlan, now: Now, failure: &RunFailure) -> Vec<FailedRun> {
        self.open().into_iter().map(|run| never_began(run, plan.boot, now, failure)).collect()
    }
}

fn never_began(run: PlannedRun, boot: u32, now: Now, failure: &RunFailure) -> FailedRun {
    FailedRun { run, boot, started_unix_ms: now.unix_ms, duration_ms: 0, failure: failure.clone() }
}

/// Replaces the first line of `failure`.
fn with_first_line(failure: &RunFailure, line: String) -> RunFailure {
    let rest = failure.excerpt.iter().skip(1).cloned();
    RunFailure { excerpt: std::iter::once(line).chain(rest).collect(), ..failure.clone() }
}

#[cfg(test)]
mod tests;
