// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool's objects in the kernel: programs, maps, links and probe events that did not exist
//! before.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write as _},
    thread,
    time::{Duration, Instant},
};

use bpfassay_protocol::tool_job::{BpfObject, LeftBehind};

use super::strangers::HeldIds;
use crate::{
    bpf::{self, ObjectKind},
    error::{Error, Result},
};

/// How long the kernel can take to free a tool's objects in the background.
const FREEING: Duration = Duration::from_secs(5);

/// How often to check.
const PERIOD: Duration = Duration::from_millis(100);

/// Files of tracefs that list probe events, one per line (Documentation/trace/kprobetrace.rst).
const EVENTS: [&str; 2] = ["/sys/kernel/tracing/kprobe_events", "/sys/kernel/tracing/uprobe_events"];

/// All objects of the kinds that tools create, by id or name.
#[derive(Debug)]
pub(super) struct Traces {
    programs: BTreeSet<u32>,
    maps: BTreeSet<u32>,
    links: Option<BTreeSet<u32>>,
    events: BTreeSet<String>,
}

impl Traces {
    /// Returns the objects that exist now.
    pub(super) fn now() -> Result<Self> {
        // A kernel without tracefs has no probe events.
        let events = EVENTS.iter().filter_map(|path| fs::read_to_string(path).ok());
        Ok(Self {
            programs: bpf::ids(ObjectKind::Program)?,
            maps: bpf::ids(ObjectKind::Map)?,
            links: bpf::links()?,
            events: events.flat_map(|text| text.lines().map(name_of).collect::<Vec<_>>()).collect(),
        })
    }

    /// Removes what `others` hold, except objects that existed `before`.
    pub(super) fn without(mut self, others: &HeldIds, before: &Self) -> Self {
        self.programs.retain(|id| before.programs.contains(id) || !others.programs.contains(id));
        self.maps.retain(|id| before.maps.contains(id) || !others.maps.contains(id));
        if let (Some(links), Some(before)) = (&mut self.links, &before.links) {
            links.retain(|id| before.contains(id) || !others.links.contains(id));
        }
        self
    }

    /// Returns the programs that exist now and are not in `self`. This is faster than
    /// [`Traces::now`], for frequent calls.
    pub(super) fn new_programs(&self) -> Result<BTreeSet<u32>> {
        let mut now = bpf::ids(ObjectKind::Program)?;
        now.retain(|id| !self.programs.contains(id));
        Ok(now)
    }

    /// Returns the new links, equally fast. Empty if the kernel does not list links.
    pub(super) fn new_links(&self) -> Result<BTreeSet<u32>> {
        let mut now = bpf::links()?.unwrap_or_default();
        now.retain(|id| self.links.as_ref().is_none_or(|before| !before.contains(id)));
        Ok(now)
    }

    /// Returns the programs that are not in `before`.
    pub(super) fn programs_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u32> {
        self.programs.difference(&before.programs).copied()
    }

    /// Returns the maps that are not in `before`.
    pub(super) fn maps_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = u32> {
        self.maps.difference(&before.maps).copied()
    }

    /// Returns how many links are not in `before`; `None` if the kernel does not list links.
    pub(super) fn links_since(&self, before: &Self) -> Option<u32> {
        let (now, before) = (self.links.as_ref()?, before.links.as_ref()?);
        Some(u32::try_from(now.difference(before).count()).unwrap_or(u32::MAX))
    }

    /// Returns whether there is an object that is not in `before`. It opens none.
    pub(super) fn has_more_than(&self, before: &Self) -> bool {
        let has_new = self.programs_since(before).chain(self.maps_since(before)).next().is_some();
        has_new || self.links_since(before).is_some_and(|links| links > 0) || !self.events.is_subset(&before.events)
    }

    /// Waits until the kernel has freed everything that is not in `self`, the objects before the
    /// tool `name`, all of whose processes have ended. Returns what is left nevertheless.
    ///
    /// # Errors
    /// The kernel does not let this process list objects, or describe those that are left.
    pub(super) fn left_now(&self, name: &str, is_shared: bool) -> Result<LeftBehind> {
        let deadline = Instant::now() + FREEING;
        loop {
            let is_last = Instant::now() >= deadline;
            match Self::now() {
                // A program of the tool that denies it is freed in the background, too.
                Err(error) if is_denied(&error) && !is_last => {}
                Err(error) => return Err(denied(error, &format!("after {name} ended"))),
                Ok(mut now) => {
                    if is_shared {
                        now = now.without(&HeldIds::by_all_but(&[])?, self);
                    }
                    if is_last || !now.has_more_than(self) {
                        return now.left_since(self);
                    }
                }
            }
            thread::sleep(PERIOD);
        }
    }

    /// Removes the probe events that are not in `self`. They are of a tool that has ended, if
    /// nothing else makes any: in a guest.
    ///
    /// # Errors
    /// The kernel does not remove an event.
    pub(super) fn remove_new_events(&self) -> Result<()> {
        for path in EVENTS {
            let Ok(text) = fs::read_to_string(path) else { continue };
            for name in text.lines().map(name_of).filter(|name| !self.events.contains(name)) {
                // Opening the file without this flag removes all events.
                let file = fs::OpenOptions::new().append(true).open(path);
                let removed = file.and_then(|mut file| file.write_all(format!("-:{name}\n").as_bytes()));
                removed.map_err(Error::file("remove a probe event in", path))?;
            }
        }
        Ok(())
    }

    /// Returns the names of the objects that are not in `before`. It opens these, so it is no way
    /// to wait until they are freed ([`crate::soundness`]).
    fn left_since(&self, before: &Self) -> Result<LeftBehind> {
        let names = |objects: Vec<BpfObject>| objects.into_iter().map(|object| object.name).collect();
        Ok(LeftBehind {
            programs: names(bpf::objects(ObjectKind::Program, self.programs_since(before))?),
            maps: names(bpf::objects(ObjectKind::Map, self.maps_since(before))?),
            links: self.links_since(before),
            events: self.events.difference(&before.events).cloned().collect(),
        })
    }
}

/// Whether this process is not allowed to do what failed.
fn is_denied(error: &Error) -> bool {
    matches!(error, Error::System { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

/// Adds to the `error` of a list of objects that the same call succeeded before a tool was started,
/// if it is denied now. A program of the tool can deny bpf(2) to all processes.
pub(super) fn denied(error: Error, when: &str) -> Error {
    match error {
        Error::System { action, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            let action = format!("{action} {when}, which worked before that tool was started");
            Error::System { action, source }
        }
        error => error,
    }
}

/// Returns the name of an event in a line such as `p:kprobes/mine vfs_read`.
pub(crate) fn name_of(line: &str) -> String {
    let event = line.split(' ').next().unwrap_or_default();
    event.split_once(':').map_or(event, |(_, name)| name).to_owned()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::with_causes;

    use super::*;

    fn traces(programs: &[u32], links: Option<&[u32]>, events: &[&str]) -> Traces {
        Traces {
            programs: programs.iter().copied().collect(),
            maps: BTreeSet::new(),
            links: links.map(|links| links.iter().copied().collect()),
            events: events.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    #[test]
    fn a_call_that_a_tool_denies_names_the_tool() {
        let failed = |errno| Error::system("list BPF objects")(io::Error::from_raw_os_error(errno));
        let text = |errno| with_causes(&denied(failed(errno), "while lsm runs"));
        assert_eq!(
            text(libc::EPERM),
            "cannot list BPF objects while lsm runs, which worked before that tool was started: Operation not \
             permitted (os error 1)"
        );
        assert_eq!(text(libc::ENOMEM), "cannot list BPF objects: Cannot allocate memory (os error 12)");
        assert!(is_denied(&failed(libc::EACCES)) && !is_denied(&failed(libc::EBADF)));
    }

    #[test]
    fn events_have_their_names() {
        assert_eq!(name_of("p:kprobes/mine vfs_read"), "kprobes/mine");
        assert_eq!(name_of("r8:kprobes/back vfs_read"), "kprobes/back");
        assert_eq!(name_of(""), "");
    }

    #[test]
    fn what_others_hold_is_not_the_tool_s() {
        let before = traces(&[1, 2], Some(&[7]), &[]);
        let others = HeldIds { programs: [2, 3].into(), links: [8].into(), ..HeldIds::default() };
        let after = traces(&[2, 3, 4], Some(&[7, 8, 9]), &[]).without(&others, &before);
        assert_eq!(after.programs_since(&before).collect::<Vec<_>>(), [4]);
        assert_eq!(after.links_since(&before), Some(1));
    }

    #[test]
    fn only_new_objects_count() {
        let before = traces(&[1, 2], Some(&[7]), &["a"]);
        let after = traces(&[2, 3, 4], Some(&[7, 8]), &["a", "b"]);
        assert_eq!(after.programs_since(&before).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(after.links_since(&before), Some(1));
        assert_eq!(traces(&[], None, &[]).links_since(&before), None);
        assert_eq!(after.maps_since(&before).count(), 0);
        let less = traces(&[1], Some(&[]), &[]);
        assert!(after.has_more_than(&before) && !less.has_more_than(&before) && !before.has_more_than(&before));
        let with_maps = |maps: &[u32]| Traces { maps: maps.iter().copied().collect(), ..traces(&[], None, &[]) };
        assert!(with_maps(&[8]).has_more_than(&with_maps(&[7])) && !with_maps(&[]).has_more_than(&with_maps(&[7])));
        assert!(traces(&[1, 2], Some(&[7]), &["a", "b"]).has_more_than(&before));
        assert!(traces(&[1, 2], Some(&[8]), &["a"]).has_more_than(&before));
    }
}
