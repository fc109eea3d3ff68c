// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases that a workload announces, each with the readings at its two barriers.

use bpfassay_protocol::{
    control::{PhaseEvent, PhaseName},
    message::{Interval, Reading, WorkloadPhase},
};

/// Most phases of one workload: far more than any script has.
const MAX_PHASES: usize = 100_000;

/// Phases so far.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    ended: Vec<WorkloadPhase>,
    /// The phase that has begun and not ended, and the reading and the window at its beginning.
    open: Option<(PhaseName, Reading, Option<u64>)>,
}

impl Phases {
    /// Takes an announcement with the reading made at it, and for a beginning the window that began.
    ///
    /// # Errors
    /// What the workload did wrong, as a predicate: phases neither nest nor overlap.
    pub(crate) fn take(&mut self, event: PhaseEvent, reading: Reading, window: Option<u64>) -> Result<(), String> {
        match (event, self.open.take()) {
            (PhaseEvent::Begin(phase), None) => self.open = Some((phase, reading, window)),
            (PhaseEvent::End { phase, moved, events }, Some((begun, before, window))) if phase == begun => {
                if self.ended.len() >= MAX_PHASES {
                    return Err(format!("announced more than {MAX_PHASES} phases"));
                }
                let PhaseName { phase: name, test, repetition } = phase;
                let interval = Interval { before, after: reading };
                self.ended.push(WorkloadPhase { name, test, repetition, moved, events, window, interval });
            }
            (PhaseEvent::Begin(phase), Some((begun, ..))) => {
                return Err(format!("began {} while {} had not ended", described(&phase), described(&begun)));
            }
            (PhaseEvent::End { phase, .. }, _) => {
                return Err(format!("ended {}, which had not begun", described(&phase)));
            }
        }
        Ok(())
    }

    /// All phases, after the workload has ended.
    ///
    /// # Errors
    /// Where it ended within one, as a predicate, too.
    pub(crate) fn finish(self) -> Result<Vec<WorkloadPhase>, String> {
        match self.open {
            None => Ok(self.ended),
            Some((phase, ..)) => Err(format!("ended within {}", described(&phase))),
        }
    }
}

fn described(phase: &PhaseName) -> String {
    let name: String = phase.phase.chars().take(40).collect();
    format!("phase {name} of test {} repetition {}", phase.test, phase.repetition)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bpfassay_protocol::{Operation, operation::Totals};
    use proptest::prelude::*;

    use super::*;

    fn reading(monotonic_ns: u64) -> Reading {
        Reading { monotonic_ns, idle_ns: None, tracer: None, mountstats: None }
    }

    fn event(text: &str) -> PhaseEvent {
        serde_json::from_str(text).unwrap()
    }

    const BEGIN: &str = r#"{"event":"begin","phase":"write","test":0,"repetition":1}"#;
    const END: &str =
        r#"{"event":"end","phase":"write","test":0,"repetition":1,"moved":{"write":{"calls":2,"bytes":8,"errors":0}}}"#;
    const OTHER: &str = r#"{"event":"end","phase":"write","test":0,"repetition":2,"moved":{}}"#;

    #[test]
    fn a_phase_has_the_readings_at_its_barriers_and_its_ledger() {
        let mut phases = Phases::default();
        phases.take(event(BEGIN), reading(5), Some(3)).unwrap();
        phases.take(event(END), reading(9), None).unwrap();
        let [phase] = phases.finish().unwrap().try_into().unwrap();
        assert_eq!((phase.name.as_str(), phase.test, phase.repetition), ("write", 0, 1));
        assert_eq!(phase.window, Some(3));
        assert_eq!((phase.interval.before.monotonic_ns, phase.interval.after.monotonic_ns), (5, 9));
        assert_eq!(phase.moved, BTreeMap::from([(Operation::Write, Totals { calls: 2, bytes: 8, errors: 0 })]));
    }

    #[test]
    fn announcements_out_of_order_are_reported() {
        let mut phases = Phases::default();
        let error = phases.take(event(END), reading(1), None).unwrap_err();
        assert_eq!(error, "ended phase write of test 0 repetition 1, which had not begun");
        phases.take(event(BEGIN), reading(1), None).unwrap();
        let error = phases.take(event(OTHER), reading(2), None).unwrap_err();
        assert_eq!(error, "ended phase write of test 0 repetition 2, which had not begun");
        phases.take(event(BEGIN), reading(1), None).unwrap();
        assert!(phases.take(event(BEGIN), reading(2), None).unwrap_err().contains("while phase write"));
    }

    #[test]
    fn a_workload_that_ends_within_a_phase_is_reported() {
        let mut phases = Phases::default();
        phases.take(event(BEGIN), reading(1), None).unwrap();
        assert_eq!(phases.finish().unwrap_err(), "ended within phase write of test 0 repetition 1");
    }

    proptest! {
        #[test]
        fn only_alternating_announcements_are_accepted(begins: Vec<bool>) {
            let mut phases = Phases::default();
            let accepted = begins.iter().all(|begin| phases.take(event(if *begin { BEGIN } else { END }), reading(0), None).is_ok());
            let alternating = begins.iter().enumerate().all(|(index, begin)| *begin == (index % 2 == 0));
            prop_assert_eq!(accepted, alternating);
            if accepted {
                prop_assert_eq!(phases.finish().map(|phases| phases.len()).ok(), (begins.len() % 2 == 0).then_some(begins.len() / 2));
            }
        }
    }
}
