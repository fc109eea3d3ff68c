// SPDX-License-Identifier: MIT OR Apache-2.0
//! Program sets: the contents of their maps, and readings of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::{offset_of, size_of},
    os::fd::OwnedFd,
};

use bpfassay_bpf::BpfMap;
use bpfassay_protocol::{
    operation::Totals,
    program_set::{EventRow, ProgramEvent, ProgramSet},
    tracer_messages::Losses,
};

use super::{
    decode::{self, size_is, u32_at, u64_at},
    error::{DecodeError, ReadError},
    misses,
};
use crate::loader::plan::{hooked::Hooked, tracer_options::set_map_name};

/// The map from [`CounterKey`] to [`Value`], per CPU.
pub(crate) const SUMMARIES: &str = "summaries";

/// The per-CPU array of events that are known to be lost: keys or beginnings that did not fit.
pub(crate) const LOSSES: &str = "losses";

/// Number of elements of [`LOSSES`].
const LOST_COUNT: u32 = 2;

/// `struct event_key` in `bpf/sets/summary.h`.
#[repr(C)]
struct CounterKey {
    cgroup: u64,
    process: u32,
    event: u32,
}

/// `struct event_value`.
#[repr(C)]
struct Value {
    calls: u64,
    bytes: u64,
    errors: u64,
    time: u64,
}

/// The maps of the attached sets.
#[derive(Debug)]
pub(crate) struct Summaries(Vec<OfSet>);

#[derive(Debug)]
struct OfSet {
    set: ProgramSet,
    summaries: BpfMap,
    losses: BpfMap,
}

impl Summaries {
    /// Creates readers from the maps of all sets, by [`set_map_name`].
    ///
    /// # Errors
    /// [`ReadError::Map`] if a map is missing, or the kernel does not describe it.
    pub(crate) fn new(
        sets: impl Iterator<Item = ProgramSet>,
        maps: BTreeMap<String, OwnedFd>,
    ) -> Result<Self, ReadError> {
        let mut maps = maps;
        let mut take = |set: ProgramSet, name: &str| {
            let name = set_map_name(set, name);
            let failed = |source| ReadError::Map { map: name.clone(), source };
            let fd = maps.remove(&name).ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
            BpfMap::new(fd).map_err(failed)
        };
        let of = |set| Ok(OfSet { set, summaries: take(set, SUMMARIES)?, losses: take(set, LOSSES)? });
        sets.map(of).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the counts since the programs were attached, sorted by cgroup and event.
    ///
    /// # Errors
    /// [`ReadError`] if a map cannot be read, or contains bytes that no program of the tracer
    /// writes.
    pub(crate) fn rows(&self) -> Result<Vec<EventRow>, ReadError> {
        let mut sums = Sums::default();
        for set in &self.0 {
            let name = || set_map_name(set.set, SUMMARIES);
            for entry in set.summaries.entries().map_err(|source| ReadError::Map { map: name(), source })? {
                sums.add(&entry.key, &entry.values).map_err(|source| ReadError::Content { map: name(), source })?;
            }
        }
        Ok(sums.rows())
    }

    /// Returns the events that are known to be lost since then.
    ///
    /// # Errors
    /// [`ReadError`] if a map or the kernel's counts of misses cannot be read.
    pub(crate) fn losses(&self, hooked: &[Hooked]) -> Result<Losses, ReadError> {
        let misses = misses::of_all(hooked)?;
        let mut lost = 0u64;
        for set in &self.0 {
            let name = || set_map_name(set.set, LOSSES);
            for index in 0..LOST_COUNT {
                let values = set.losses.lookup(&index.to_ne_bytes());
                let values = values.map_err(|source| ReadError::Map { map: name(), source })?.unwrap_or_default();
                let count = decode::total(values).map_err(|source| ReadError::Content { map: name(), source })?;
                lost = lost.wrapping_add(count);
            }
        }
        Ok(Losses {
            missed_probes: misses.probes,
            recursion_misses: misses.recursion,
            map_insert_failures: Some(lost),
            lru_evictions: None,
            ring_buffer_drops: None,
        })
    }
}

/// Sums over processes and CPUs.
#[derive(Debug, Default)]
pub(crate) struct Sums(BTreeMap<(u64, ProgramEvent), (BTreeSet<u32>, Totals, u64)>);

impl Sums {
    pub(crate) fn add<V: AsRef<[u8]>>(
        &mut self,
        key: &[u8],
        values: impl IntoIterator<Item = V>,
    ) -> Result<(), DecodeError> {
        size_is("key", key, size_of::<CounterKey>())?;
        let number = u32_at(key, offset_of!(CounterKey, event));
        let event = usize::try_from(number).ok().and_then(|number| ProgramEvent::ALL.get(number));
        let event = *event.ok_or(DecodeError::Event { number })?;
        let sum = self.0.entry((u64_at(key, offset_of!(CounterKey, cgroup)), event)).or_default();
        sum.0.insert(u32_at(key, offset_of!(CounterKey, process)));
        for value in values {
            let value = value.as_ref();
            size_is("value", value, size_of::<Value>())?;
            let at = |offset| u64_at(value, offset);
            sum.1 += Totals {
                calls: at(offset_of!(Value, calls)),
                bytes: at(offset_of!(Value, bytes)),
                errors: at(offset_of!(Value, errors)),
            };
            sum.2 = sum.2.wrapping_add(at(offset_of!(Value, time)));
        }
        Ok(())
    }

    pub(crate) fn rows(self) -> Vec<EventRow> {
        let row = |((cgroup, event), (processes, totals, time_ns)): (_, (BTreeSet<u32>, _, _))| EventRow {
            cgroup,
            event,
            processes: u32::try_from(processes.len()).unwrap_or(u32::MAX),
            totals,
            time_ns,
        };
        self.0.into_iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::{
        HasSize as _,
        btf::{
            Btf,
            types::{Enum, MemberAttr, Struct},
        },
    };

    use super::*;
    use crate::loader::plan::{object_files, probes};

    fn members(btf: &Btf<'_>, name: &str) -> (Vec<(String, u32)>, usize) {
        let found = btf.type_by_name::<Struct<'_>>(name).unwrap_or_else(|| panic!("no struct {name}"));
        let members = found.iter().map(|member| {
            let MemberAttr::Normal { offset } = member.attr else { panic!("bit field in {name}") };
            (member.name.unwrap().to_str().unwrap().to_owned(), offset / 8)
        });
        (members.collect(), found.size())
    }

    #[test]
    fn c_and_rust_agree_in_every_object() {
        for &set in ProgramSet::ALL {
            let elf = object_files::of_set(set).expect("every set has an object");
            let btf = Btf::from_raw("object", elf).unwrap().unwrap();
            let expected = [("cgroup", offset_of!(CounterKey, cgroup)), ("process", offset_of!(CounterKey, process))]
                .into_iter()
                .chain([("event", offset_of!(CounterKey, event))])
                .map(|(name, offset)| (name.to_owned(), offset as u32));
            assert_eq!(members(&btf, "event_key"), (expected.collect(), size_of::<CounterKey>()), "{set}");
            let expected = [("calls", offset_of!(Value, calls)), ("bytes", offset_of!(Value, bytes))]
                .into_iter()
                .chain([("errors", offset_of!(Value, errors)), ("time", offset_of!(Value, time))])
                .map(|(name, offset)| (name.to_owned(), offset as u32));
            assert_eq!(members(&btf, "event_value"), (expected.collect(), size_of::<Value>()), "{set}");
            let numbers = btf.type_by_name::<Enum<'_>>("event").unwrap();
            let numbers: Vec<_> = numbers
                .iter()
                .map(|constant| (constant.value, constant.name.unwrap().to_str().unwrap().to_lowercase()))
                .collect();
            let expected: Vec<_> = (0..)
                .zip(ProgramEvent::ALL)
                .map(|(number, event)| (number, format!("event_{}", event.name().replace('-', "_"))))
                .collect();
            assert_eq!(numbers, expected, "{set}");
        }
    }

    #[test]
    fn every_program_of_every_set_can_be_attached() {
        use object::{Object as _, ObjectSection as _};

        for &set in ProgramSet::ALL {
            let file = object::File::parse(object_files::of_set(set).unwrap()).unwrap();
            let of_text = |section: &object::Section<'_, '_>| {
                section.kind() == object::SectionKind::Text && section.size() > 0 && section.name() != Ok(".text")
            };
            let sections = file.sections().filter(of_text).map(|section| section.name().unwrap().to_owned());
            let sections: Vec<String> = sections.collect();
            assert!(sections.len() >= 2, "{set}");
            for section in sections {
                assert!(probes::attachment(&section).is_some(), "{set}: {section}");
            }
        }
    }

    fn key(cgroup: u64, process: u32, event: u32) -> Vec<u8> {
        [&cgroup.to_ne_bytes()[..], &process.to_ne_bytes(), &event.to_ne_bytes()].concat()
    }

    fn value(numbers: [u64; 4]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    #[test]
    fn rows_are_sums_over_processes_and_cpus() {
        let mut sums = Sums::default();
        sums.add(&key(7, 11, 5), [value([1, 10, 0, 100]), value([2, 20, 1, 200])]).unwrap();
        sums.add(&key(7, 12, 5), [value([4, 0, 0, 1]), value([0; 4])]).unwrap();
        sums.add(&key(7, 12, 0), [value([9, 0, 0, 0])]).unwrap();
        let rows = sums.rows();
        assert_eq!(rows.iter().map(|row| row.event).collect::<Vec<_>>(), [ProgramEvent::Switch, ProgramEvent::TcpSend]);
        let sent = EventRow {
            cgroup: 7,
            event: ProgramEvent::TcpSend,
            processes: 2,
            totals: Totals { calls: 7, bytes: 30, errors: 1 },
            time_ns: 301,
        };
        assert_eq!(rows[1], sent);
    }

    #[test]
    fn what_no_program_writes_is_refused() {
        let none: [Vec<u8>; 0] = [];
        let mut sums = Sums::default();
        assert_eq!(sums.add(&key(1, 1, 99), none.clone()), Err(DecodeError::Event { number: 99 }));
        assert_eq!(sums.add(&[0; 15], none), Err(DecodeError::Size { what: "key", length: 15, expected: 16 }));
        assert!(sums.add(&key(1, 1, 1), [vec![0; 8]]).is_err());
    }
}
