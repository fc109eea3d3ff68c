// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns the runner's reports into events for programs and people. Events say what is done, what is
//! left, and how long that will take.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

mod provisional;
mod remaining;
mod stage_events;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU32,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bpfassay_report::derive::of_run;
use bpfassay_results::{
    Event, Outcome, Provenance, RunRecord, ToDo,
    event::{EVENTS_VERSION, Ending, RunEnded, Started},
};
use bpfassay_study::{Block, Cell, Plan};

pub use self::stage_events::{stage_event, timings_event};
use self::{provisional::Rounds, remaining::Remaining};
use crate::observer::{Happening, Observer};

/// Receives events from several tasks at once. It must be quick, because guests wait for it.
pub trait EventSink: Send + Sync {
    /// Receives an event.
    fn event(&self, event: &Event);

    /// Returns the command line that repeats only this cell, if there is one.
    fn repeat(&self, _cell: &str) -> Option<Vec<String>> {
        None
    }

    /// Returns the command line that opens a shell in a guest of this cell, if there is one.
    fn shell(&self, _cell: &str) -> Option<Vec<String>> {
        None
    }
}

/// Turns the runner's reports into events.
pub struct EventObserver<'a> {
    plan: &'a Plan,
    /// Ids of the cells whose refusals the study expects.
    refusals: BTreeSet<&'a str>,
    state: Mutex<EventsState>,
    rounds: Mutex<Rounds<'a>>,
    sink: &'a dyn EventSink,
}

struct EventsState {
    directory: PathBuf,
    /// Identifiers of the runs that have ended. A repeated run does not count twice.
    done: BTreeSet<String>,
    /// Number of runs to do.
    of: u64,
    /// Number of runs left in each cell.
    cells: BTreeMap<String, u64>,
    left: Remaining,
    /// Ids of the blocks that were reused from a store.
    reused: BTreeSet<String>,
}

impl EventsState {
    fn new(blocks: &[ToDo], slots: NonZeroU32, directory: &Path) -> Self {
        let mut cells = BTreeMap::new();
        for run in blocks.iter().flat_map(ToDo::open) {
            *cells.entry(run.cell.clone()).or_default() += 1;
        }
        let of = cells.values().sum();
        let left = Remaining::new(blocks, slots);
        Self { directory: directory.to_owned(), done: BTreeSet::new(), of, cells, left, reused: BTreeSet::new() }
    }
}

impl<'a> EventObserver<'a> {
    /// Observes the execution of `plan` with `provenance`.
    #[must_use]
    pub fn new(plan: &'a Plan, provenance: &'a Provenance, sink: &'a dyn EventSink) -> Self {
        let expects =
            |cell: &&Cell| plan.study.expectations.iter().any(|expected| expected.covers(&cell.target, cell.probe));
        Self {
            plan,
            refusals: plan.cells.iter().filter(expects).map(|cell| cell.id.as_str()).collect(),
            state: Mutex::new(EventsState::new(&[], NonZeroU32::MIN, Path::new(""))),
            rounds: Mutex::new(Rounds::new(plan, provenance)),
            sink,
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut EventsState) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds<'a>> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins `blocks`, `slots` of them in parallel.
    fn started(&self, blocks: &[ToDo], slots: NonZeroU32, directory: &Path) -> Event {
        self.rounds().begin(blocks);
        let state = EventsState::new(blocks, slots, directory);
        let runs = state.of;
        self.change(|old| *old = state);
        Event::Started(Started {
            version: EVENTS_VERSION,
            study: self.plan.study.name.clone(),
            shard: self.plan.shard,
            clock: self.plan.study.clock,
            directory: directory.to_owned(),
            runs,
            jobs: slots.get(),
        })
    }

    fn run_ended(&self, record: &RunRecord) -> RunEnded {
        let seconds = seconds(record.duration_ms);
        let is_refusal_expected = self.refusals.contains(record.cell.as_str());
        let (outcome, is_expected, message) = match &record.outcome {
            Outcome::Measured(_) => (Ending::Measured, !is_refusal_expected, None),
            Outcome::Refused(refusal) => (Ending::Refused, is_refusal_expected, Some(refusal.message.clone())),
            // The path of the log is a separate field of the event.
            Outcome::Failed(failure) => {
                let failure = bpfassay_results::RunFailure { log: None, ..failure.clone() };
                (Ending::Failed, false, Some(failure.to_string()))
            }
        };
        let failure = match &record.outcome {
            Outcome::Failed(failure) => Some(failure),
            Outcome::Measured(_) | Outcome::Refused(_) => None,
        };
        let reused = self.is_reused(record);
        let (directory, done, of, cells_done, cells_of, seconds_left) = self.change(|state| {
            if state.done.insert(record.run.clone())
                && let Some(left) = state.cells.get_mut(&record.cell)
            {
                *left = left.saturating_sub(1);
            }
            let cells_done = state.cells.values().filter(|left| **left == 0).count() as u64;
            state.left.ended(&record.block, &record.cell, seconds);
            let EventsState { directory, done, of, cells, left, reused: _ } = state;
            (directory.clone(), done.len() as u64, *of, cells_done, cells.len() as u64, left.seconds())
        });
        RunEnded {
            run: record.run.clone(),
            cell: record.cell.clone(),
            outcome,
            is_expected,
            seconds,
            reused,
            message,
            bytes: of_run(self.plan, record).map(|derived| derived.bytes).unwrap_or_default(),
            log: failure.and_then(|failure| failure.log.as_ref()).map(|log| directory.join(log)),
            repeat: failure.and_then(|_| self.sink.repeat(&record.cell)),
            shell: failure.and_then(|_| self.sink.shell(&record.cell)),
            done,
            of,
            cells_done,
            cells_of,
            seconds_left,
        }
    }

    /// Returns whether `record` belongs to a block that was reused from a store.
    fn is_reused(&self, record: &RunRecord) -> bool {
        self.change(|state| state.reused.contains(&record.block))
    }

    /// Begins a boot for `runs` of `block`. Runs of this boot that had ended must be done again.
    fn begun_again(&self, block: &Block, runs: &[String]) {
        self.rounds().again(&block.id, runs);
        self.change(|state| {
            for run in block.runs.iter().filter(|run| runs.contains(&run.spec.id)) {
                if state.done.remove(&run.spec.id) {
                    *state.cells.entry(run.cell.clone()).or_default() += 1;
                    state.left.again(&block.id, &run.cell);
                }
            }
        });
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

impl Observer for EventObserver<'_> {
    fn progress(&self, progress: &Happening<'_>) {
        let event = match progress {
            Happening::MakingGuests(are_made) => return self.change(|state| state.left.making_guests(*are_made)),
            Happening::Started { blocks, slots, directory } => self.started(blocks, *slots, directory),
            Happening::Waiting(block, pause) => {
                Event::Waiting { block: block.id.clone(), seconds: pause.as_secs_f64() }
            }
            Happening::Booting(block, started) => {
                if started.confirming.is_none() {
                    self.begun_again(block, &started.runs);
                }
                Event::Booting {
                    block: block.id.clone(),
                    target: block.target.clone(),
                    boot: started.boot,
                    confirming: started.confirming.clone(),
                }
            }
            Happening::Reused(block, started) => {
                self.begun_again(block, &started.runs);
                self.change(|state| state.reused.insert(block.id.clone()));
                let (key, store) = started.reused.as_ref().map(|from| (&from.key, &from.store)).unzip();
                Event::Reused {
                    block: block.id.clone(),
                    target: block.target.clone(),
                    key: key.cloned().unwrap_or_default(),
                    store: store.cloned().unwrap_or_default(),
                    measured_unix_ms: started.at_unix_ms,
                }
            }
            Happening::Ready(block, ready) => {
                let seconds = seconds(ready.ready_after_ms);
                self.change(|state| state.left.booted(block, seconds));
                Event::Ready { block: block.id.clone(), seconds, kernel_release: ready.facts.kernel_release.clone() }
            }
            Happening::Phase(block, run, phase) => {
                Event::Phase { block: block.id.clone(), run: (*run).to_owned(), phase: *phase }
            }
            Happening::RunEnded(record) => Event::RunEnded(Box::new(self.run_ended(record))),
            Happening::Ended(block, ended) => Event::GuestEnded {
                block: block.id.clone(),
                failure: ended.failure.clone(),
                verdict: Some(ended.verdict.clone()),
            },
            Happening::Paused(why) => Event::Paused { message: (*why).to_owned() },
            Happening::Log(block, text) => Event::Log { block: block.id.clone(), text: (*text).to_owned() },
        };
        self.sink.event(&event);
        if let Happening::RunEnded(record) = progress {
            let rows = self.rounds().take(record);
            // Reused blocks have no provisional rows. Their rows come with the results.
            if let Some(rows) = rows.filter(|_| !self.is_reused(record)) {
                self.sink.event(&Event::Rows(Box::new(rows)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
