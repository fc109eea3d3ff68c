// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stages as events.

use std::collections::BTreeSet;

use bpfassay_packages::stages::{ProgressReport, ProgressState, ProgressUnit, Timing};
use bpfassay_results::{
    Event,
    event::{StageReport, StageState, StageStep, StageTiming},
};

/// Turns the report of a stage into an event.
#[must_use]
pub fn stage_event(report: &ProgressReport) -> Event {
    let (state, step) = match report.state {
        ProgressState::Begun => (StageState::Begun, None),
        ProgressState::At(at) => {
            let step = StageStep {
                name: at.step.name().to_owned(),
                unit: at.step.unit().map(ProgressUnit::name).map(str::to_owned),
                done: at.done,
                of: at.of,
                seconds_left: at.seconds_left,
            };
            (StageState::Running, Some(step))
        }
        ProgressState::Ended { succeeded: true } => (StageState::Ended, None),
        ProgressState::Ended { succeeded: false } => (StageState::Failed, None),
    };
    Event::Stage(StageReport {
        id: report.id,
        stage: report.kind.name().to_owned(),
        subject: report.subject.clone(),
        state,
        seconds: report.elapsed.as_secs_f64(),
        step,
    })
}

/// Turns `timings` into an event.
#[must_use]
pub fn timings_event(timings: &[Timing]) -> Event {
    let timing = |(index, timing): (usize, &Timing)| {
        let others = timings.iter().enumerate().filter(|(other, _)| *other != index);
        let beside: BTreeSet<&str> =
            others.filter(|(_, other)| timing.overlaps(other)).map(|(_, other)| other.kind.name()).collect();
        StageTiming {
            stage: timing.kind.name().to_owned(),
            subject: timing.subject.clone(),
            began: timing.began.as_secs_f64(),
            seconds: timing.took.as_secs_f64(),
            beside: beside.into_iter().map(str::to_owned).collect(),
        }
    };
    Event::Timings { stages: timings.iter().enumerate().map(timing).collect() }
}
