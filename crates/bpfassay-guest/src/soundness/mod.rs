// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the system after a tool with its state before the first run. If the system has changed,
//! measuring ends, and the tool that ran last is blamed.

mod clocks;
mod kept;
mod objects;
mod processes;
mod sources;
mod state_comparison;

use std::{
    thread,
    time::{Duration, Instant},
};

pub(crate) use self::kept::{KeptFacts, programs_of};
use self::{
    sources::{CheckTime, SOURCES, StateSource},
    state_comparison::{Facts, bounded, compare},
};
use crate::{children::Children, environment::Environment, error::Result};

/// How long to wait for objects that the kernel frees late: it frees programs and removes probes
/// after RCU grace periods.
const SETTLING: Duration = Duration::from_secs(10);

/// How often to check at first, while grace periods last.
const PERIOD: Duration = Duration::from_millis(50);

/// How long to check every [`PERIOD`], and how often to check afterwards. In an emulated guest one
/// check takes half as long as [`PERIOD`].
const SOON: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_millis(500);

/// The state of the system before the first run.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Each source that applies to this machine, with its values.
    before: Vec<(&'static StateSource, Facts)>,
}

impl Snapshot {
    /// Reads the present state, before the first run.
    pub(crate) fn take(environment: &Environment) -> Self {
        let applies = |source: &&StateSource| environment.is_guest() || source.on_running_systems;
        Self { before: SOURCES.iter().filter(applies).map(|source| (source, (source.read)(environment))).collect() }
    }

    /// Returns what differs now, one sentence each, in the order of the sources. Empty if the next
    /// run finds the same system as the first run, plus what is `kept`. Waits for objects that are
    /// freed late.
    ///
    /// # Errors
    /// Processes that exited cannot be reaped.
    pub(crate) fn differences(
        &self,
        kept: &KeptFacts,
        environment: &Environment,
        children: &mut Children,
    ) -> Result<Vec<String>> {
        let deadline = Instant::now() + SETTLING;
        loop {
            children.reap()?;
            let differences = self.now(kept, environment);
            if differences.is_empty() || Instant::now() >= deadline {
                return Ok(bounded(differences));
            }
            let is_soon = deadline.duration_since(Instant::now()) > SETTLING - SOON;
            thread::sleep(if is_soon { PERIOD } else { SELDOM });
        }
    }

    fn now(&self, kept: &KeptFacts, environment: &Environment) -> Vec<String> {
        let mut differences = Vec::new();
        for stage in [CheckTime::Kernel, CheckTime::FileSystem] {
            for (source, before) in self.before.iter().filter(|(source, _)| source.stage == stage) {
                let expected = kept.with(source.what, before);
                compare(source.what, source.tolerance, &expected, &(source.read)(environment), &mut differences);
            }
            // If the NFS server or the network has changed, an access to the file system under test
            // can block for ever.
            if !differences.is_empty() {
                break;
            }
        }
        differences
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources_are_unique_and_all_stages_have_some() {
        let mut names: Vec<&str> = SOURCES.iter().map(|source| source.what).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SOURCES.len());
        for stage in [CheckTime::Kernel, CheckTime::FileSystem] {
            assert!(SOURCES.iter().any(|source| source.stage == stage && source.on_running_systems));
        }
    }
}
