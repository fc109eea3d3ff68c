// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stages under way, as text: for the bar of a terminal, and at a bounded rate for logs.

use std::{collections::BTreeMap, time::Duration};

use bpfassay_packages::stages::{ProgressReport, ProgressState, ProgressStep, ProgressUnit, StageKind, StepProgress};

use super::duration;

/// The longest silence of a stage in a log.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// The shortest time between two lines of a stage in a log, except for steps that take long.
const PAUSE: Duration = Duration::from_secs(3);
/// The shortest stage whose end is reported.
const NOTABLE: Duration = Duration::from_secs(1);

/// The stages under way, by number.
#[derive(Debug, Default)]
pub(super) struct Underway(BTreeMap<u32, StageUnderWay>);

#[derive(Debug)]
struct StageUnderWay {
    kind: StageKind,
    subject: String,
    at: Option<StepProgress>,
    /// When a line last mentioned the stage, since the beginning of the command; initially the
    /// stage's beginning.
    mentioned: Duration,
    /// Tenths of the step that were done at the last line.
    tenths: u64,
}

/// A line about a stage.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StageLine {
    /// For logs. On a terminal, the bar shows the stages.
    Log(String),
    /// For everybody.
    Both(String),
}

impl Underway {
    /// Processes `report` at the time `now`. Returns the line to write, if there is one.
    pub(super) fn take(&mut self, report: &ProgressReport, now: Duration) -> Option<StageLine> {
        match report.state {
            ProgressState::Begun => {
                let (kind, subject) = (report.kind, report.subject.clone());
                let running = StageUnderWay { kind, subject, at: None, mentioned: now, tenths: 0 };
                // Guests report their activity themselves.
                if kind != StageKind::Measuring {
                    self.0.insert(report.id, running);
                }
                None
            }
            ProgressState::At(at) => {
                let running = self.0.get_mut(&report.id)?;
                let is_new = running.at.is_none_or(|before| before.step != at.step);
                let takes_long = matches!(
                    at.step,
                    ProgressStep::Download | ProgressStep::Compile | ProgressStep::Install | ProgressStep::TrialBoot
                );
                running.at = Some(at);
                let tenths = (10 * at.done).checked_div(at.of).unwrap_or_default();
                let since = now.saturating_sub(running.mentioned);
                let is_due = if is_new { takes_long } else { tenths > running.tenths && since >= PAUSE };
                if is_new {
                    running.tenths = 0;
                }
                is_due.then(|| {
                    (running.mentioned, running.tenths) = (now, tenths);
                    StageLine::Log(running.long())
                })
            }
            ProgressState::Ended { succeeded } => {
                let running = self.0.remove(&report.id)?;
                let is_reported = succeeded && report.elapsed >= NOTABLE && running.kind != StageKind::Reporting;
                is_reported.then(|| {
                    StageLine::Both(format!("{}: done in {}", running.title(), duration(report.elapsed.as_secs_f64())))
                })
            }
        }
    }

    /// Returns a line for logs about the stages that no line mentioned for too long, at the time
    /// `now`.
    pub(super) fn overdue(&mut self, now: Duration) -> Option<String> {
        let is_silent = |running: &&mut StageUnderWay| now.saturating_sub(running.mentioned) >= PATIENCE;
        let mentioned: Vec<String> = self
            .0
            .values_mut()
            .filter(is_silent)
            .map(|running| {
                running.mentioned = now;
                running.long()
            })
            .collect();
        (!mentioned.is_empty()).then(|| mentioned.join(" · "))
    }

    /// Describes all stages on one line: those that take longest first, because the line can be
    /// cut.
    pub(super) fn message(&self) -> String {
        let is_kernel = |running: &&StageUnderWay| running.kind == StageKind::Kernel;
        let others = self.0.values().filter(|running| !is_kernel(running)).map(StageUnderWay::long);
        let kernels: Vec<String> = self.0.values().filter(is_kernel).map(StageUnderWay::short).collect();
        let kernels = (!kernels.is_empty()).then(|| format!("kernels: {}", kernels.join(", ")));
        others.chain(kernels).collect::<Vec<_>>().join(" · ")
    }
}

impl StageUnderWay {
    fn title(&self) -> String {
        match self.subject.as_str() {
            "" => self.kind.title().to_owned(),
            subject => format!("{} {subject}", self.kind.title()),
        }
    }

    /// Describes the stage: `guest programs x86_64: compiling, 34/97 units, about 50 s left`.
    fn long(&self) -> String {
        let title = self.title();
        let Some(at) = self.at else { return title };
        let mut text = format!("{title}: {}", at.step.title());
        let of = match at.step.unit() {
            Some(ProgressUnit::Bytes) if at.of > 0 => format!(", {} MiB", count(at, |bytes| bytes.div_ceil(1 << 20))),
            Some(unit) if at.of > 0 => format!(", {} {}", count(at, |done| done), unit.name()),
            _ => String::new(),
        };
        text.push_str(&of);
        if let Some(left) = at.seconds_left.filter(|_| at.done < at.of) {
            text.push_str(&format!(", about {} left", duration(left)));
        }
        text
    }

    /// Describes the stage briefly: `x86_64 6.12 45 %`.
    fn short(&self) -> String {
        match self.at {
            Some(at) if at.of > 0 && at.step == ProgressStep::Download => {
                format!("{} {} %", self.subject, 100 * at.done / at.of)
            }
            _ => self.subject.clone(),
        }
    }
}

fn count(at: StepProgress, scaled: impl Fn(u64) -> u64) -> String {
    format!("{}/{}", scaled(at.done), scaled(at.of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(id: u32, kind: StageKind, subject: &str, state: ProgressState, elapsed: u64) -> ProgressReport {
        ProgressReport { id, kind, subject: subject.to_owned(), state, elapsed: Duration::from_secs(elapsed) }
    }

    fn at(step: ProgressStep, done: u64, of: u64, seconds_left: Option<f64>) -> ProgressState {
        ProgressState::At(StepProgress { step, done, of, seconds_left })
    }

    /// Returns the lines that `reports` cause, each at its number of seconds.
    fn lines(underway: &mut Underway, reports: &[(u64, ProgressReport)]) -> Vec<StageLine> {
        reports.iter().filter_map(|(now, report)| underway.take(report, Duration::from_secs(*now))).collect()
    }

    #[test]
    fn a_log_has_a_line_for_each_tenth_at_a_bounded_rate() {
        let programs = |state, elapsed| report(1, StageKind::Programs, "x86_64", state, elapsed);
        let mut underway = Underway::default();
        let mut reports = vec![(0, programs(ProgressState::Begun, 0))];
        reports.push((0, programs(at(ProgressStep::Compile, 0, 100, None), 0)));
        // One unit per second, then the rest within one second.
        reports.extend((1..=40).map(|done| (done, programs(at(ProgressStep::Compile, done, 100, Some(60.0)), done))));
        reports.extend((41..=100).map(|done| (41, programs(at(ProgressStep::Compile, done, 100, None), 41))));
        reports.push((42, programs(ProgressState::Ended { succeeded: true }, 42)));
        let log = |text: &str| StageLine::Log(format!("guest programs x86_64: compiling, {text}"));
        let expected = [
            log("0/100 units"),
            log("10/100 units, about 1 min left"),
            log("20/100 units, about 1 min left"),
            log("30/100 units, about 1 min left"),
            log("40/100 units, about 1 min left"),
            StageLine::Both("guest programs x86_64: done in 42 s".to_owned()),
        ];
        assert_eq!(lines(&mut underway, &reports), expected);
    }

    #[test]
    fn no_stage_is_silent_for_long() {
        let mut underway = Underway::default();
        let begun = [
            (0, report(1, StageKind::Sources, "", ProgressState::Begun, 0)),
            (0, report(1, StageKind::Sources, "", at(ProgressStep::Collect, 0, 0, None), 0)),
            (10, report(2, StageKind::Kernel, "x86_64 6.12", ProgressState::Begun, 0)),
            (10, report(2, StageKind::Kernel, "x86_64 6.12", at(ProgressStep::Download, 0, 100 << 20, None), 0)),
        ];
        assert_eq!(lines(&mut underway, &begun).len(), 1);
        let mut overdue = |now| underway.overdue(Duration::from_secs(now));
        assert_eq!(overdue(14), None);
        assert_eq!(overdue(15).as_deref(), Some("crates: collecting sources"));
        assert_eq!(overdue(16), None);
        let both = "crates: collecting sources · kernel x86_64 6.12: downloading, 0/100 MiB";
        assert_eq!(overdue(40).as_deref(), Some(both));
    }

    #[test]
    fn what_is_found_at_once_is_not_worth_a_line() {
        let kernel = |state| report(1, StageKind::Kernel, "x86_64 6.12", state, 0);
        let reports = [(0, kernel(ProgressState::Begun)), (0, kernel(ProgressState::Ended { succeeded: true }))];
        assert_eq!(lines(&mut Underway::default(), &reports), []);
        let failed = [(0, kernel(ProgressState::Begun)), (90, kernel(ProgressState::Ended { succeeded: false }))];
        assert_eq!(lines(&mut Underway::default(), &failed), [], "the error is reported");
    }

    #[test]
    fn the_bar_shows_everything_under_way() {
        let mut underway = Underway::default();
        let reports = [
            (0, report(1, StageKind::Kernel, "x86_64 6.12", ProgressState::Begun, 0)),
            (0, report(1, StageKind::Kernel, "x86_64 6.12", at(ProgressStep::Download, 30, 100, None), 0)),
            (0, report(2, StageKind::Kernel, "riscv64 7.2", ProgressState::Begun, 0)),
            (0, report(3, StageKind::Toolchain, "", ProgressState::Begun, 0)),
            (0, report(3, StageKind::Toolchain, "", at(ProgressStep::Unpack, 3, 90, Some(12.0)), 0)),
        ];
        lines(&mut underway, &reports);
        let expected =
            "cross toolchain: unpacking, 3/90 packages, about 12 s left · kernels: x86_64 6.12 30 %, riscv64 7.2";
        assert_eq!(underway.message(), expected);
    }
}
