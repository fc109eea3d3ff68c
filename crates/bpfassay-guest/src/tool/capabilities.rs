// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks for the capabilities with which a tool starts: starts the tool with different sets.
//!
//! The search is QuickXplain (Junker, AAAI 2004), which needs few starts if few of many
//! capabilities are needed, and prefers narrow capabilities to broad ones. It holds for tools that
//! start with more if they start with less. A last step checks the outcome for every tool: each
//! capability is left out once.

use std::{collections::BTreeMap, time::Duration};

use bpfassay_protocol::{
    privileges::{Capability, CapabilitySearch, NeededCapability, Needs, Privileges},
    tool_job::{BpfObject, Tool, ToolFigures},
    tracer_messages::Refusal,
};

use super::{QUIET, RunningTool, ToolStart, traces::Traces};
use crate::{
    children::Children,
    environment::Environment,
    error::{Error, Result},
};

/// The capabilities to look for first, the narrowest first.
const NARROW: [Capability; 4] = [Capability::Bpf, Capability::Perfmon, Capability::SysResource, Capability::NetAdmin];

/// The capabilities to look for last, the broadest last.
const BROAD: [Capability; 6] = [
    Capability::SysPtrace,
    Capability::DacReadSearch,
    Capability::DacOverride,
    Capability::SysModule,
    Capability::SysRawio,
    Capability::SysAdmin,
];

/// Longest description of what happened without a capability, in bytes.
const MAX_MESSAGE: usize = 400;

/// The outcome of a start with a set of capabilities.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Attempt {
    Starts,
    /// The tool does not start, for this reason.
    Fails(String),
}

/// Looks for the capabilities that `tool` needs in addition to `had`. Each start is in a cgroup
/// named `name` at `environment`.
///
/// # Errors
/// The errors of [`RunningTool::start`] and [`RunningTool::stop`].
pub(crate) fn search(
    tool: &Tool,
    had: &[Capability],
    (environment, name): (&Environment, &str),
    children: &mut Children,
) -> Result<CapabilitySearch> {
    let before = Traces::now()?;
    let mut with_all: Option<Started> = None;
    let mut starts = Starts::new(|set: u64| {
        let capabilities = Capability::ALL.iter().copied().filter(|one| set & one.bit() != 0).collect();
        let privileges = Privileges { capabilities: Some(capabilities), ..tool.privileges.clone() };
        // A tool that starts does so in about the time that it takes with all capabilities.
        let patience = with_all.as_ref().map_or(Duration::MAX, |all| all.took.saturating_mul(2) + SPARE);
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX).min(tool.patience_ms);
        let tool = Tool { privileges, patience_ms, ..tool.clone() };
        let started = start(&tool, (environment, name), children)?;
        // bpftrace leaves a probe event behind when it may not attach to the event.
        if environment.is_guest() {
            before.remove_new_events()?;
        }
        let started = match started {
            Ok(started) => started,
            Err(reason) => return Ok(Attempt::Fails(reason)),
        };
        match &with_all {
            None => with_all = Some(started),
            Some(all) => {
                if let Some(lack) = started.lack(all) {
                    return Ok(Attempt::Fails(lack));
                }
            }
        }
        Ok(Attempt::Starts)
    });
    let needs = starts.needs(union(had), &by_preference(had))?;
    Ok(CapabilitySearch { user: tool.privileges.user, had: had.to_vec(), needs, starts: starts.count })
}

/// How long a start can take beyond twice the time of a start with all capabilities.
const SPARE: Duration = Duration::from_secs(5);

/// A tool that became ready.
struct Started {
    took: Duration,
    /// The names of the tool's programs.
    programs: Vec<String>,
    links: u32,
}

impl Started {
    /// Says which program, or how many links, this start lacks in comparison with `all`.
    fn lack(&self, all: &Self) -> Option<String> {
        let count = |programs: &[String], name: &String| programs.iter().filter(|one| *one == name).count();
        let is_missing = |name: &&String| count(&self.programs, name) < count(&all.programs, name);
        if let Some(program) = all.programs.iter().find(is_missing) {
            return Some(format!("became ready without the program `{program}`"));
        }
        let missing = all.links.saturating_sub(self.links);
        (missing > 0).then(|| format!("became ready with {missing} links fewer"))
    }
}

/// Starts `tool`, waits until it loads nothing more, and stops it. Returns the reason if it does
/// not become ready or ends by itself.
fn start(
    tool: &Tool,
    place: (&Environment, &str),
    children: &mut Children,
) -> Result<std::result::Result<Started, String>> {
    let mut running = match RunningTool::start(tool, place, false, children)? {
        ToolStart::Ready(running) => *running,
        ToolStart::Refused(Refusal { program, message, .. }) => {
            let program = program.map(|program| format!("{program}: ")).unwrap_or_default();
            return Ok(Err(shortened(format!("{program}{message}"))));
        }
    };
    running.rest(QUIET)?;
    let took = running.ready_after();
    running.note_objects()?;
    match running.stop(children, || Ok(None)) {
        Ok((ToolFigures { programs, links, .. }, _)) => {
            let programs = programs.into_iter().map(|BpfObject { name, .. }| name).collect();
            Ok(Ok(Started { took, programs, links: links.unwrap_or(0) }))
        }
        Err(Error::Program { problem, .. }) => Ok(Err(shortened(problem))),
        Err(error) => Err(error),
    }
}

fn shortened(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(MAX_MESSAGE));
    message
}

fn union(capabilities: &[Capability]) -> u64 {
    capabilities.iter().fold(0, |set, one| set | one.bit())
}

/// Returns all capabilities but `had`, the most preferred first.
fn by_preference(had: &[Capability]) -> Vec<Capability> {
    let rank = |one: &Capability| match (place(&NARROW, *one), place(&BROAD, *one)) {
        (Some(place), _) => place,
        (None, Some(place)) => NARROW.len() + 1 + place,
        (None, None) => NARROW.len(),
    };
    let mut order: Vec<Capability> = Capability::ALL.iter().copied().filter(|one| !had.contains(one)).collect();
    order.sort_by_key(rank);
    order
}

fn place(list: &[Capability], one: Capability) -> Option<usize> {
    list.iter().position(|other| *other == one)
}

/// The starts of a tool. A set that was tried is not tried again.
struct Starts<F> {
    start: F,
    tried: BTreeMap<u64, Attempt>,
    count: u32,
}

impl<F: FnMut(u64) -> Result<Attempt>> Starts<F> {
    const fn new(start: F) -> Self {
        Self { start, tried: BTreeMap::new(), count: 0 }
    }

    fn with(&mut self, set: u64) -> Result<Attempt> {
        if let Some(known) = self.tried.get(&set) {
            return Ok(known.clone());
        }
        self.count += 1;
        let attempt = (self.start)(set)?;
        self.tried.insert(set, attempt.clone());
        Ok(attempt)
    }

    fn works(&mut self, set: u64) -> Result<bool> {
        Ok(self.with(set)? == Attempt::Starts)
    }

    /// Returns what the tool needs of `candidates` in addition to `had`.
    fn needs(&mut self, had: u64, candidates: &[Capability]) -> Result<Needs> {
        if let Attempt::Fails(reason) = self.with(had | union(candidates))? {
            return Ok(Needs::Unknown(format!("with all capabilities, it {reason}")));
        }
        let mut needed = match self.works(had)? {
            true => Vec::new(),
            false => self.explain(had, candidates)?,
        };
        if !self.works(had | union(&needed))? {
            needed = candidates.to_vec();
        }
        // The broadest capability is left out first.
        loop {
            if self.count >= CapabilitySearch::MAX_STARTS {
                return Ok(Needs::Unknown(format!(
                    "{} starts with different capabilities were not enough",
                    CapabilitySearch::MAX_STARTS
                )));
            }
            let mut without = Vec::new();
            let mut dropped = None;
            for &capability in needed.iter().rev() {
                match self.with(had | union(&needed) & !capability.bit())? {
                    Attempt::Starts => {
                        dropped = Some(capability);
                        break;
                    }
                    Attempt::Fails(reason) => without.push(NeededCapability { capability, without: reason }),
                }
            }
            match dropped {
                Some(dropped) => needed.retain(|one| *one != dropped),
                None => {
                    without.sort_by_key(|one| one.capability);
                    // The reason with all other capabilities says more.
                    for one in &mut without {
                        if let Attempt::Fails(reason) = self.with(had | union(candidates) & !one.capability.bit())? {
                            one.without = reason;
                        }
                    }
                    return Ok(Needs::Capabilities(without));
                }
            }
        }
    }

    /// Returns those of `candidates` that are needed in addition to `background`, with which the
    /// tool does not start. It starts with `background` and all of `candidates`.
    fn explain(&mut self, background: u64, candidates: &[Capability]) -> Result<Vec<Capability>> {
        if candidates.len() <= 1 {
            return Ok(candidates.to_vec());
        }
        let (preferred, others) = candidates.split_at(candidates.len().div_ceil(2));
        let of_others = self.explain_unless(background | union(preferred), others)?;
        let mut needed = self.explain_unless(background | union(&of_others), preferred)?;
        needed.extend(of_others);
        Ok(needed)
    }

    /// Like [`Self::explain`], but the tool may start with `background`.
    fn explain_unless(&mut self, background: u64, candidates: &[Capability]) -> Result<Vec<Capability>> {
        if self.works(background)? { Ok(Vec::new()) } else { self.explain(background, candidates) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches for what a tool needs that starts with the sets for which `works` returns true.
    fn found(had: &[Capability], works: impl Fn(u64) -> bool) -> (Needs, u32) {
        let attempt = |set| match works(set) {
            true => Attempt::Starts,
            false => Attempt::Fails(format!("lacks {set:x}")),
        };
        let mut starts = Starts::new(|set| Ok(attempt(set)));
        (starts.needs(union(had), &by_preference(had)).unwrap(), starts.count)
    }

    fn names(needs: &Needs) -> Vec<Capability> {
        match needs {
            Needs::Capabilities(needed) => needed.iter().map(|one| one.capability).collect(),
            Needs::Unknown(reason) => panic!("{reason}"),
        }
    }

    const fn has(set: u64, one: Capability) -> bool {
        set & one.bit() != 0
    }

    #[test]
    fn narrow_capabilities_are_preferred_to_the_one_that_includes_them() {
        use Capability::{Bpf, Perfmon, SysAdmin, SysResource};
        let works = |set| has(set, SysAdmin) || has(set, Bpf) && has(set, Perfmon);
        let (needs, starts) = found(&[], works);
        assert_eq!(names(&needs), [Perfmon, Bpf]);
        assert!(starts <= 12, "{starts}");
        assert_eq!(names(&found(&[Bpf], works).0), [Perfmon]);
        assert_eq!(names(&found(&[SysResource], |_| true).0), []);
        let (needs, starts) = found(&[], |set| works(set) && has(set, SysResource) && has(set, Capability::SysPtrace));
        assert_eq!(names(&needs), [Capability::SysPtrace, SysResource, Perfmon, Bpf]);
        assert!(starts <= 24, "{starts}");
    }

    #[test]
    fn each_needed_capability_has_what_happened_without_it() {
        let needs = found(&[], |set| has(set, Capability::Bpf)).0;
        let with_all_others = format!("lacks {:x}", union(Capability::ALL) & !Capability::Bpf.bit());
        let needed = NeededCapability { capability: Capability::Bpf, without: with_all_others };
        assert_eq!(needs, Needs::Capabilities(vec![needed]));
        // Another capability includes the needed one.
        let works = |set| has(set, Capability::SysAdmin) || has(set, Capability::Bpf);
        let needed = NeededCapability { capability: Capability::Bpf, without: "lacks 0".to_owned() };
        assert_eq!(found(&[], works).0, Needs::Capabilities(vec![needed]));
    }

    #[test]
    fn a_tool_that_does_not_start_with_all_capabilities_needs_something_else() {
        let (needs, starts) = found(&[], |_| false);
        assert_eq!(needs, Needs::Unknown("with all capabilities, it lacks 1ffffffffff".to_owned()));
        assert_eq!(starts, 1);
    }

    /// A tool that refuses to start with a capability that it does not want.
    #[test]
    fn a_tool_that_starts_with_less_and_not_with_more_gets_a_checked_answer() {
        use Capability::{Bpf, SysAdmin};
        let works = |set: u64| has(set, Bpf) && (!has(set, SysAdmin) || set.count_ones() > 5);
        let needs = found(&[], works).0;
        assert_eq!(names(&needs), [Bpf]);
        // It never starts again.
        let (needs, _) = found(&[], |set| set == union(Capability::ALL));
        assert_eq!(needs, Needs::Unknown("64 starts with different capabilities were not enough".to_owned()));
    }

    #[test]
    fn a_start_with_fewer_programs_or_links_lacks_something() {
        let of = |programs: &[&str], links| {
            let programs = programs.iter().map(|&name| name.to_owned()).collect();
            Started { took: Duration::ZERO, programs, links }
        };
        let all = of(&["read", "read", "write"], 3);
        assert_eq!(all.lack(&all), None);
        assert_eq!(of(&["write", "read", "more", "read"], 4).lack(&all), None);
        assert_eq!(of(&["read", "write"], 3).lack(&all).unwrap(), "became ready without the program `read`");
        assert_eq!(of(&["read", "read", "write"], 1).lack(&all).unwrap(), "became ready with 2 links fewer");
    }

    proptest! {
        #[test]
        fn what_is_found_is_enough_and_nothing_of_it_is_too_much(needed: u64, other: u64) {
            let all = union(Capability::ALL);
            // Six capabilities at most: real tools need few.
            let few = |bits: u64| (0..6).map(|at| 1 << ((bits >> (at * 8)) % 41)).fold(0_u64, |set, bit| set | bit);
            let (needed, other) = (few(needed), few(other));
            let works = |set: u64| set & needed == needed || set & other == other;
            let (needs, starts) = found(&[], works);
            let set = union(&names(&needs));
            prop_assert!(works(set));
            for one in names(&needs) {
                prop_assert!(!works(set & !one.bit()));
            }
            prop_assert!(starts <= CapabilitySearch::MAX_STARTS && set & !all == 0);
        }
    }
}
