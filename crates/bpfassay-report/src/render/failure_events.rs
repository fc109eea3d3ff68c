// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups failures that are one event: a guest that does not boot fails all of its runs.

use std::collections::HashMap;

use bpfassay_protocol::message::Phase;
use bpfassay_results::{FailureKind, RunFailure};
use bpfassay_study::Target;

/// Failures of runs, each event once, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct FailureEvents {
    events: Vec<FailureEvent>,
    known: HashMap<String, usize>,
}

/// An event that failed one or several runs.
#[derive(Debug)]
struct FailureEvent {
    run: String,
    more: usize,
    text: String,
}

impl FailureEvents {
    /// Adds the failure of `run` on `target`. Returns the number of the event, from 0, and whether
    /// it is new.
    pub(super) fn add(&mut self, target: &Target, run: &str, failure: &RunFailure) -> (usize, bool) {
        let next = self.events.len();
        let number = event_of(target, failure).map_or(next, |event| *self.known.entry(event).or_insert(next));
        match self.events.get_mut(number) {
            Some(event) => event.more += 1,
            None => self.events.push(FailureEvent { run: run.to_owned(), more: 0, text: failure.to_string() }),
        }
        (number, number == next)
    }

    /// Names the runs of event `number`: `RUN and 9 more runs`.
    pub(super) fn runs(&self, number: usize) -> String {
        self.events.get(number).map(FailureEvent::runs).unwrap_or_default()
    }

    /// Formats event `number` as a remark.
    pub(super) fn remark(&self, number: usize) -> String {
        self.events.get(number).map(|event| format!("{}: {}", event.runs(), event.text)).unwrap_or_default()
    }
}

impl FailureEvent {
    fn runs(&self) -> String {
        match self.more {
            0 => self.run.clone(),
            1 => format!("{} and 1 more run", self.run),
            more => format!("{} and {more} more runs", self.run),
        }
    }
}

/// Returns what runs that never began have in common if one event failed them; `None` for a failure
/// of a single run. If a target does not boot, each block has its own log.
fn event_of(target: &Target, failure: &RunFailure) -> Option<String> {
    let never_began = matches!(
        (failure.kind, failure.phase),
        (FailureKind::NotTried, _) | (FailureKind::Host, None) | (_, Some(Phase::Boot | Phase::SetUp))
    );
    let line = failure.excerpt.first().map(String::as_str).unwrap_or_default();
    never_began.then(|| format!("{target}\0{}\0{line}", failure.headline()))
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::Arch;

    use super::*;

    fn failure(phase: Phase, line: &str, log: &str) -> RunFailure {
        RunFailure {
            kind: FailureKind::BootTimeout,
            phase: Some(phase),
            excerpt: vec![line.to_owned(), log.to_owned()],
            log: Some(log.to_owned()),
            after: None,
        }
    }

    #[test]
    fn a_target_that_does_not_come_up_is_one_event_and_runs_that_fail_each_are_not() {
        let target = |kernel: &str| Target { arch: Arch::X86_64, kernel: kernel.to_owned() };
        let mut alike = FailureEvents::default();
        let boot = |log: &str| failure(Phase::Boot, "silence", log);
        assert_eq!(alike.add(&target("6.1"), "a1", &boot("1.log")), (0, true));
        assert_eq!(alike.add(&target("6.1"), "a2", &boot("1.log")), (0, false));
        assert_eq!(alike.add(&target("6.1"), "b1", &boot("2.log")), (0, false));
        assert_eq!(alike.add(&target("6.12"), "c1", &boot("3.log")), (1, true));
        assert_eq!(alike.add(&target("6.1"), "a3", &failure(Phase::Boot, "panic", "1.log")), (2, true));
        assert_eq!(alike.remark(0), "a1 and 2 more runs: boot timeout during boot: silence; log: 1.log");
        assert_eq!((alike.runs(1), alike.runs(3)), ("c1".to_owned(), String::new()));
        // Each run that was in flight has its own event.
        let run = |log: &str| failure(Phase::Workload, "panic", log);
        assert_eq!(alike.add(&target("6.1"), "d1", &run("4.log")), (3, true));
        assert_eq!(alike.add(&target("6.1"), "d2", &run("4.log")), (4, true));
    }
}
