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
        settle(SETTLING, |moment| {
            children.reap()?;
            Ok(self.now(kept, environment, moment))
        })
    }

    fn now(&self, kept: &KeptFacts, environment: &Environment, moment: Moment) -> Vec<String> {
        let mut differences = Vec::new();
        for stage in [CheckTime::Kernel, CheckTime::FileSystem] {
            for (source, before) in self.before.iter().filter(|(source, _)| source.stage == stage) {
                let expected = kept.with(source.what, before);
                let mut found = (source.read)(environment);
                if let (Moment::Last, Some(complete)) = (moment, source.complete) {
                    complete(&expected, &mut found);
                }
                compare(source.what, source.tolerance, &expected, &found, &mut differences);
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

/// When the state is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// Differences may still vanish.
    Waiting,
    /// The differences are the result.
    Last,
}

/// Repeats `now`, which returns the present differences, until there are none or `longest` has
/// passed.
///
/// # Errors
/// The error of `now`.
fn settle(longest: Duration, mut now: impl FnMut(Moment) -> Result<Vec<String>>) -> Result<Vec<String>> {
    let begun = Instant::now();
    loop {
        let moment = if begun.elapsed() < longest { Moment::Waiting } else { Moment::Last };
        let differences = now(moment)?;
        if differences.is_empty() || moment == Moment::Last {
            return Ok(bounded(differences));
        }
        thread::sleep(if begun.elapsed() < SOON { PERIOD } else { SELDOM });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{state_comparison::Tolerance, *};

    #[test]
    fn names_are_read_once_when_waiting_is_over() {
        let observed = |longest, vanishes_at| {
            let mut moments = Vec::new();
            let found = settle(longest, |moment| {
                moments.push(moment);
                Ok(if moments.len() < vanishes_at { vec!["map 8 was not there before".to_owned()] } else { Vec::new() })
            });
            (found.unwrap().len(), moments)
        };
        assert_eq!(observed(Duration::from_mins(1), 2), (0, vec![Moment::Waiting; 2]));
        let (found, moments) = observed(PERIOD, usize::MAX);
        let (last, others) = moments.split_last().unwrap();
        assert_eq!((found, *last), (1, Moment::Last));
        assert!(!others.is_empty() && others.iter().all(|moment| *moment == Moment::Waiting), "{moments:?}");
    }

    #[test]
    fn values_are_completed_only_when_waiting_is_over() {
        static OBJECTS: StateSource = StateSource {
            what: "objects",
            stage: CheckTime::Kernel,
            on_running_systems: false,
            tolerance: Tolerance::None,
            read: |_| Ok(BTreeMap::from([("map 8".to_owned(), String::new())])),
            complete: Some(|_, now| {
                now.as_mut().unwrap().insert("map 8".to_owned(), "pa".to_owned());
            }),
        };
        let snapshot = Snapshot { before: vec![(&OBJECTS, Ok(BTreeMap::new()))] };
        let now = |moment| snapshot.now(&KeptFacts::default(), &Environment::guest("/", None), moment);
        assert_eq!(now(Moment::Waiting), ["objects: map 8 was not there before"]);
        assert_eq!(now(Moment::Last), ["objects: map 8 (pa) was not there before"]);
    }

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
