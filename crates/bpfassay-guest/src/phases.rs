// SPDX-License-Identifier: MIT OR Apache-2.0
//! The phases that a workload announces, each with the readings at both barriers.

use std::collections::BTreeMap;

use bpfassay_protocol::{
    Operation,
    call_list::CallTimes,
    control::PhaseName,
    message::{Interval, MountFacts, Reading, WorkloadPhase},
    operation::Totals,
    program_set::ProgramEvent,
    tracer_messages::Task,
};

use crate::proc::cpu_activity::Activity;

/// Largest number of phases of one workload: far more than any script has.
const MAX_PHASES: usize = 100_000;

/// The phases so far.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    ended: Vec<WorkloadPhase>,
    /// The phase that has begun and not ended, and the readings at its beginning.
    open: Option<(PhaseName, (Reading, Activity))>,
    /// The number of the window that began with the open phase.
    window: Option<u64>,
    /// The workload's threads when the open phase began, if threads are recorded.
    tasks: Option<Vec<Task>>,
}

impl Phases {
    /// Accepts the announcement that a phase begins, with the readings made at that barrier.
    ///
    /// # Errors
    /// The workload's mistake, as a predicate: phases neither nest nor overlap.
    pub(crate) fn begin(&mut self, phase: PhaseName, readings: (Reading, Activity)) -> Result<(), String> {
        match self.open.take() {
            None => {
                self.open = Some((phase, readings));
                Ok(())
            }
            Some((begun, _)) => Err(format!("began {} while {} had not ended", described(&phase), described(&begun))),
        }
    }

    /// Sets the number of the window that begins with the open phase.
    pub(crate) fn window(&mut self, number: u64) {
        self.window = Some(number);
    }

    /// Sets the threads that the workload had when the open phase began.
    pub(crate) fn tasks(&mut self, tasks: Option<Vec<Task>>) {
        self.tasks = tasks;
    }

    /// Accepts the announcement that a phase ends. `moved` and `events` are what the workload
    /// counted. `mount` is the mount that it used, if that is not the file system under test.
    ///
    /// # Errors
    /// The workload's mistake, as for [`Self::begin`].
    pub(crate) fn end(
        &mut self,
        phase: PhaseName,
        moved: BTreeMap<Operation, Totals>,
        events: BTreeMap<ProgramEvent, Totals>,
        mount: Option<MountFacts>,
        (after, now): (Reading, Activity),
    ) -> Result<(), String> {
        let Some((_, (before, then))) = self.open.take().filter(|(begun, _)| *begun == phase) else {
            return Err(format!("ended {}, which had not begun", described(&phase)));
        };
        if self.ended.len() >= MAX_PHASES {
            return Err(format!("announced more than {MAX_PHASES} phases"));
        }
        let PhaseName { phase: name, test, repetition } = phase;
        let (interval, activity) = (Interval { before, after }, Some(now.since(&then)));
        let (window, tasks) = (self.window.take(), self.tasks.take());
        self.ended.push(WorkloadPhase {
            name,
            test,
            repetition,
            moved,
            events,
            mount,
            tasks,
            window,
            calls: None,
            activity,
            interval,
        });
        Ok(())
    }

    /// Accepts the times of the calls of the phase that ended last.
    ///
    /// # Errors
    /// The workload's mistake, as a predicate: another phase, or impossible times.
    pub(crate) fn calls(&mut self, phase: &PhaseName, calls: CallTimes) -> Result<(), String> {
        let is_meant = |ended: &&mut WorkloadPhase| {
            (ended.name.as_str(), ended.test, ended.repetition) == (&phase.phase, phase.test, phase.repetition)
                && ended.calls.is_none()
        };
        let Some(ended) = self.ended.last_mut().filter(|_| self.open.is_none()).filter(is_meant) else {
            return Err(format!("reported calls of {}, which had not just ended", described(phase)));
        };
        let Interval { before, after } = &ended.interval;
        let made = ended.moved.values().fold(0, |sum: u64, totals| sum.saturating_add(totals.calls));
        calls.check(after.monotonic_ns.saturating_sub(before.monotonic_ns), made)?;
        ended.calls = Some(calls);
        Ok(())
    }

    /// Returns all phases, after the workload has ended.
    ///
    /// # Errors
    /// The workload ended within a phase. The error is a predicate.
    pub(crate) fn finish(self) -> Result<Vec<WorkloadPhase>, String> {
        match self.open {
            None => Ok(self.ended),
            Some((phase, _)) => Err(format!("ended within {}", described(&phase))),
        }
    }
}

fn described(phase: &PhaseName) -> String {
    let name: String = phase.phase.chars().take(40).collect();
    format!("phase {name} of test {} repetition {}", phase.test, phase.repetition)
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::control::PhaseEvent;
    use proptest::prelude::*;

    use super::*;

    impl Phases {
        fn take(&mut self, event: PhaseEvent, reading: Reading) -> Result<(), String> {
            let reading = (reading, Activity::default());
            match event {
                PhaseEvent::Begin(phase) => self.begin(phase, reading),
                PhaseEvent::End { phase, moved, events, mount: _ } => self.end(phase, moved, events, None, reading),
                PhaseEvent::Calls { phase, calls } => self.calls(&phase, calls),
                PhaseEvent::Meet => Ok(()),
            }
        }
    }

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
    fn a_phase_has_the_readings_at_its_barriers_and_what_it_moved() {
        let mut phases = Phases::default();
        phases.take(event(BEGIN), reading(5)).unwrap();
        phases.take(event(END), reading(9)).unwrap();
        let [phase] = phases.finish().unwrap().try_into().unwrap();
        assert_eq!((phase.name.as_str(), phase.test, phase.repetition), ("write", 0, 1));
        assert_eq!((phase.interval.before.monotonic_ns, phase.interval.after.monotonic_ns), (5, 9));
        assert_eq!(phase.moved, BTreeMap::from([(Operation::Write, Totals { calls: 2, bytes: 8, errors: 0 })]));
    }

    #[test]
    fn a_phase_has_the_threads_that_were_there_when_it_began() {
        let mut phases = Phases::default();
        for tasks in [Some(vec![Task::new(7, 8, "ior")]), None] {
            phases.take(event(BEGIN), reading(5)).unwrap();
            phases.tasks(tasks);
            phases.take(event(END), reading(9)).unwrap();
        }
        let tasks: Vec<_> = phases.finish().unwrap().into_iter().map(|phase| phase.tasks).collect();
        assert_eq!(tasks, [Some(vec![Task::new(7, 8, "ior")]), None]);
    }

    #[test]
    fn announcements_out_of_order_are_reported() {
        let mut phases = Phases::default();
        let error = phases.take(event(END), reading(1)).unwrap_err();
        assert_eq!(error, "ended phase write of test 0 repetition 1, which had not begun");
        phases.take(event(BEGIN), reading(1)).unwrap();
        let error = phases.take(event(OTHER), reading(2)).unwrap_err();
        assert_eq!(error, "ended phase write of test 0 repetition 2, which had not begun");
        phases.take(event(BEGIN), reading(1)).unwrap();
        assert!(phases.take(event(BEGIN), reading(2)).unwrap_err().contains("while phase write"));
    }

    #[test]
    fn calls_belong_to_the_phase_that_has_just_ended_and_fit_into_it() {
        let calls = |sum_ns: u64| {
            event(&format!(
                r#"{{"event":"calls","phase":"write","test":0,"repetition":1,"calls":{{"ranks":1,"calls":2,"sum_ns":{sum_ns},"tail_ns":1,"max_ns":{},"distribution":null}}}}"#,
                sum_ns - 1
            ))
        };
        let mut phases = Phases::default();
        assert!(phases.take(calls(3), reading(1)).unwrap_err().contains("which had not just ended"));
        phases.take(event(BEGIN), reading(5)).unwrap();
        assert!(phases.take(calls(3), reading(1)).unwrap_err().contains("which had not just ended"));
        phases.take(event(END), reading(9)).unwrap();
        assert!(phases.take(calls(4), reading(1)).unwrap_err().contains("5 ns in a phase"));
        phases.take(calls(3), reading(1)).unwrap();
        // Times are accepted once per phase.
        assert!(phases.take(calls(3), reading(1)).is_err());
        let [phase] = phases.finish().unwrap().try_into().unwrap();
        assert_eq!(phase.calls.map(|calls| (calls.calls, calls.sum_ns, calls.distribution)), Some((2, 3, None)));
    }

    #[test]
    fn a_workload_that_ends_within_a_phase_is_reported() {
        let mut phases = Phases::default();
        phases.take(event(BEGIN), reading(1)).unwrap();
        assert_eq!(phases.finish().unwrap_err(), "ended within phase write of test 0 repetition 1");
    }

    proptest! {
        #[test]
        fn only_alternating_announcements_are_accepted(begins: Vec<bool>) {
            let mut phases = Phases::default();
            let accepted = begins.iter().all(|begin| phases.take(event(if *begin { BEGIN } else { END }), reading(0)).is_ok());
            let alternating = begins.iter().enumerate().all(|(index, begin)| *begin == (index % 2 == 0));
            prop_assert_eq!(accepted, alternating);
            if accepted {
                prop_assert_eq!(phases.finish().map(|phases| phases.len()).ok(), (begins.len() % 2 == 0).then_some(begins.len() / 2));
            }
        }
    }
}
