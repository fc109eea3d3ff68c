// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that the agent keeps between runs, and the BPF programs and maps that they hold. They
//! are allowed to exist after a run although they did not exist before the first run.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fs,
};

use rustix::process::Pid;

use super::{objects, processes, sources, state_comparison::Facts};

/// Facts by the name of their source.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeptFacts(BTreeMap<&'static str, BTreeMap<String, String>>);

impl KeptFacts {
    /// Returns the facts of a process that is kept, and of the objects that it holds now.
    ///
    /// # Errors
    /// The objects cannot be determined, or the process holds a link.
    pub(crate) fn of_process(pid: Pid) -> Result<Self, String> {
        let path = format!("/proc/{}/fdinfo", pid.as_raw_nonzero());
        let unreadable = |error| format!("{path}: {error}");
        let mut held = Held::default();
        for entry in fs::read_dir(&path).map_err(unreadable)? {
            let text = fs::read_to_string(entry.map_err(unreadable)?.path()).map_err(unreadable)?;
            held.add(&text)?;
        }
        let objects = objects::programs_and_maps(&held.programs, &held.maps);
        let process = processes::of(pid.as_raw_nonzero().get())?;
        Ok(Self(BTreeMap::from([(sources::PROCESSES, process), (sources::BPF_OBJECTS, objects)])))
    }

    /// Returns `before`, as the source `what` showed it, together with the kept objects.
    pub(super) fn with<'a>(&self, what: &str, before: &'a Facts) -> Cow<'a, Facts> {
        match (before, self.0.get(what)) {
            (Ok(before), Some(kept)) if !kept.is_empty() => {
                let mut all = before.clone();
                all.extend(kept.iter().map(|(name, value)| (name.clone(), value.clone())));
                Cow::Owned(Ok(all))
            }
            _ => Cow::Borrowed(before),
        }
    }
}

impl FromIterator<Self> for KeptFacts {
    fn from_iter<I: IntoIterator<Item = Self>>(parts: I) -> Self {
        let mut all = Self::default();
        for (what, facts) in parts.into_iter().flat_map(|part| part.0) {
            all.0.entry(what).or_default().extend(facts);
        }
        all
    }
}

/// Returns the ids of BPF programs that a process holds, through descriptors of programs or links.
///
/// # Errors
/// A message, if the descriptors cannot be read.
pub(crate) fn programs_of(pid: Pid) -> Result<BTreeSet<u32>, String> {
    let path = format!("/proc/{}/fdinfo", pid.as_raw_nonzero());
    let unreadable = |error| format!("{path}: {error}");
    let mut programs = BTreeSet::new();
    for entry in fs::read_dir(&path).map_err(unreadable)? {
        let text = fs::read_to_string(entry.map_err(unreadable)?.path()).map_err(unreadable)?;
        programs.extend(program_of(&text));
    }
    Ok(programs)
}

/// Returns the id of the program that belongs to a descriptor of a program or link. `text` is the
/// descriptor's file in `/proc/PID/fdinfo`.
fn program_of(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())
}

/// Ids of BPF objects.
#[derive(Debug, Default, PartialEq, Eq)]
struct Held {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
}

impl Held {
    /// Adds the object of a descriptor whose file in `/proc/PID/fdinfo` contains `text`
    /// (`bpf_prog_show_fdinfo`, `bpf_map_show_fdinfo` and `bpf_link_show_fdinfo` in
    /// kernel/bpf/syscall.c).
    fn add(&mut self, text: &str) -> Result<(), String> {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no id of a BPF object"));
        if let Some(link) = field("link_id:") {
            return Err(format!("link {link} is still there"));
        }
        if let Some(program) = field("prog_id:") {
            self.programs.insert(number(program)?);
        }
        if let Some(map) = field("map_id:") {
            self.maps.insert(number(map)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_holds_is_in_its_descriptors() {
        let mut held = Held::default();
        held.add("pos:\t0\nflags:\t02000002\nmnt_id:\t15\n").unwrap();
        held.add("pos:\t0\nprog_type:\t26\nprog_jited:\t1\nprog_tag:\t0000\nmemlock:\t4096\nprog_id:\t21\n").unwrap();
        held.add("map_type:\t5\nmemlock:\t81920\nmap_id:\t3\nfrozen:\t0\n").unwrap();
        let expected = Held { programs: BTreeSet::from([21]), maps: BTreeSet::from([3]) };
        assert_eq!(held, expected);
        assert_eq!(program_of("link_type:\ttracing\nlink_id:\t4\nprog_tag:\t0\nprog_id:\t21\n"), Some(21));
        assert_eq!(program_of("map_type:\t5\nmap_id:\t3\n"), None);
        assert!(held.add("link_type:\ttracing\nlink_id:\t4\nprog_tag:\t0\nprog_id:\t21\n").is_err());
        assert!(held.add("map_id:\tmany\n").is_err());
    }

    #[test]
    fn exactly_what_is_kept_is_expected_beside_what_was_there() {
        let facts =
            |of: &[&str]| of.iter().map(|name| ((*name).to_owned(), "x".to_owned())).collect::<BTreeMap<_, _>>();
        let kept = |what, of: &[&str]| KeptFacts(BTreeMap::from([(what, facts(of))]));
        let all: KeptFacts =
            [kept("processes", &["process 7"]), kept("processes", &["process 9"])].into_iter().collect();
        let before = Ok(facts(&["process 1"]));
        assert_eq!(*all.with("processes", &before), Ok(facts(&["process 1", "process 7", "process 9"])));
        assert_eq!(*all.with("mounts", &before), before);
        assert_eq!(*KeptFacts::default().with("processes", &before), before);
        let unreadable = Err("no such file".to_owned());
        assert_eq!(*all.with("processes", &unreadable), unreadable);
    }

    #[test]
    fn this_process_could_be_kept() {
        let kept = KeptFacts::of_process(rustix::process::getpid()).unwrap();
        assert_eq!(kept.0[sources::PROCESSES].len(), 1);
        programs_of(rustix::process::getpid()).unwrap();
    }
}
