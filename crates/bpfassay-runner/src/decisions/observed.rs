// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's observations of a boot: which runs began and ended when, in the order of the job.
//! Pure: time is a parameter.

use bpfassay_study::PlannedRun;

/// One boot to make.
#[derive(Debug, Clone, PartialEq)]
pub struct BootPlan {
    /// Number of the boot in the block, from 1.
    pub boot: u32,
    /// Number of the attempt at the block, from 1.
    pub attempt: u32,
    /// The runs of the boot, in order.
    pub runs: Vec<PlannedRun>,
    /// The run that a confirming boot is about. The outcomes of its runs are not recorded.
    pub confirming: Option<String>,
}

impl BootPlan {
    /// Returns the identifiers of the runs.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        self.runs.iter().map(|run| run.spec.id.clone()).collect()
    }
}

/// Returns whether `run` has a tool under test, which can do harm. All others are baseline runs,
/// including controls and most warm-ups.
pub(crate) fn is_tool_run(run: &PlannedRun) -> bool {
    !run.spec.probe.is_baseline() || run.spec.tool.is_some()
}

/// A run that began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedRun {
    /// When the run began, in milliseconds since 1970-01-01 UTC.
    pub started_unix_ms: u64,
    /// When the run began, in milliseconds since the boot began.
    pub(crate) began_ms: u64,
    /// When the run ended, in milliseconds since the boot began; `None` while it is in flight.
    pub(crate) ended_ms: Option<u64>,
}

impl ObservedRun {
    /// Returns the duration of the run, until `now_ms` if it is in flight.
    #[must_use]
    pub fn duration_ms(&self, now_ms: u64) -> u64 {
        self.ended_ms.unwrap_or(now_ms).saturating_sub(self.began_ms)
    }
}

/// The observations of a boot so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedBoot {
    /// Whether the guest reported that it was ready.
    pub(crate) ready: bool,
    /// Whether the agent reported that everything is done.
    pub(crate) done: bool,
    /// The runs that began: the first ones of the boot, in order.
    pub runs: Vec<ObservedRun>,
}

/// An instant by two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds since 1970-01-01 UTC.
    pub unix_ms: u64,
    /// Milliseconds since the boot began.
    pub boot_ms: u64,
}

impl ObservedBoot {
    /// Returns the observations until `at_ms`, in milliseconds since the boot began.
    pub(crate) fn at(&self, at_ms: u64) -> Self {
        let begun = self.runs.iter().take_while(|run| run.began_ms <= at_ms);
        let runs = begun.map(|run| ObservedRun { ended_ms: run.ended_ms.filter(|ended| *ended <= at_ms), ..*run });
        Self { ready: self.ready, done: self.done, runs: runs.collect() }
    }

    /// Returns the index of the run in flight, if any.
    #[must_use]
    pub fn in_flight(&self) -> Option<usize> {
        self.runs.iter().rposition(|run| run.ended_ms.is_none())
    }

    /// Counts the runs that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.runs.iter().filter(|run| run.ended_ms.is_some()).count()
    }

    /// Returns whether all runs of `plan` have ended.
    pub(crate) fn is_whole(&self, plan: &BootPlan) -> bool {
        self.ended() == plan.runs.len()
    }

    /// Returns the index of the last tool run of `plan` that has ended.
    #[must_use]
    pub fn last_tool(&self, plan: &BootPlan) -> Option<usize> {
        let ended = plan.runs.iter().take(self.ended()).enumerate();
        ended.filter(|(_, run)| is_tool_run(run)).map(|(at, _)| at).next_back()
    }

    /// Returns whether `run` is a tool run of `plan` that has ended.
    pub(crate) fn has_ended_tool(&self, plan: &BootPlan, run: &str) -> bool {
        plan.runs.iter().take(self.ended()).any(|planned| planned.spec.id == run && is_tool_run(planned))
    }

    /// Notes a message of the agent about `run`, and returns the run's index. It must be the run in
    /// flight, or the next one, which begins with the message.
    ///
    /// # Errors
    /// A text that says which run was expected.
    pub(crate) fn message_about(&mut self, plan: &BootPlan, run: &str, now: Now) -> Result<usize, String> {
        let at = self.in_flight().unwrap_or(self.runs.len());
        let expected = plan.runs.get(at).map(|run| run.spec.id.as_str());
        match expected {
            Some(expected) if expected == run => {
                if at == self.runs.len() {
                    self.runs.push(ObservedRun { started_unix_ms: now.unix_ms, began_ms: now.boot_ms, ended_ms: None });
                }
                Ok(at)
            }
            Some(expected) => Err(format!("{}, while {expected} is due", shortened(run))),
            None => Err(format!("{}, after the last run has ended", shortened(run))),
        }
    }

    /// Notes the agent's report that `run` ended.
    ///
    /// # Errors
    /// The errors of [`Self::message_about`].
    pub(crate) fn ends(&mut self, plan: &BootPlan, run: &str, now: Now) -> Result<usize, String> {
        let at = self.message_about(plan, run, now)?;
        if let Some(seen) = self.runs.get_mut(at) {
            seen.ended_ms = Some(now.boot_ms);
        }
        Ok(at)
    }
}

/// Shortens a text from a guest.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}
