// SPDX-License-Identifier: MIT OR Apache-2.0
//! The maps of programs that are attached again. Their earlier contents must not appear in later
//! readings.
//!
//! Task storage (`turns` of bpf/fexit.bpf.c) is not deleted, because no system call reaches it for
//! every thread. This has no effect: whatever it contains of earlier calls, exactly one copy of a
//! program counts the next call (`is_first`). If recorded copies run for that call, the first of
//! them counts it and leaves only itself recorded, which the others find. If no recorded copy runs,
//! the record belongs to another call.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use bpfassay_bpf::BpfMap;

use crate::counters::error::ReadError;

/// All maps of loaded programs, by name.
#[derive(Debug)]
pub(crate) struct Written(Vec<(String, BpfMap)>);

impl Written {
    /// Duplicates these descriptors.
    ///
    /// # Errors
    /// [`ReadError::Map`] if a descriptor cannot be duplicated, or the kernel does not describe its
    /// map.
    pub(crate) fn new(maps: &BTreeMap<String, OwnedFd>) -> Result<Self, ReadError> {
        let of = |(name, fd): (&String, &OwnedFd)| {
            let map = fd.try_clone().and_then(BpfMap::new);
            map.map(|map| (name.clone(), map)).map_err(|source| ReadError::Map { map: name.clone(), source })
        };
        maps.iter().map(of).collect::<Result<_, _>>().map(Self)
    }

    /// Empties the maps. No program may run in the meantime.
    ///
    /// # Errors
    /// [`ReadError::Map`] if a map cannot be read or written.
    pub(crate) fn empty(&self) -> Result<(), ReadError> {
        for (name, map) in &self.0 {
            map.empty().map_err(|source| ReadError::Map { map: name.clone(), source })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_bpf::MapSpec;
    use bpfassay_protocol::{
        probe::{MapLayout, Probe},
        program_set::ProgramSet,
    };
    use bpfassay_tracer_common::{Key, LATENCY_SLOTS, Value, map, tally};
    use libbpf_rs::{MapType, ObjectBuilder};

    use super::*;
    use crate::{counters::maps::CounterMaps, loader::plan::object_files};

    /// Every map of every object is emptied, or holds no counts. Another kind of map fails this
    /// test and needs a decision.
    #[test]
    fn no_object_has_a_map_that_would_keep_counts() {
        let probes = Probe::ALL.iter().flat_map(|&probe| MapLayout::ALL.iter().map(move |&map| (probe, map)));
        let objects = probes.filter_map(|(probe, map)| object_files::find(probe, map)).map(|object| object.elf);
        for elf in objects.chain(ProgramSet::ALL.iter().filter_map(|&set| object_files::of_set(set))) {
            let open = ObjectBuilder::default().name("bpfassay").and_then(|builder| builder.open_memory(elf)).unwrap();
            for map in open.maps() {
                let name = map.name().to_string_lossy().into_owned();
                let is_emptied = matches!(
                    map.map_type(),
                    MapType::Hash | MapType::PercpuHash | MapType::LruHash | MapType::PercpuArray
                );
                let is_constant = map.map_type() == MapType::Array && name.contains(".rodata");
                let holds_none = matches!(map.map_type(), MapType::RingBuf | MapType::TaskStorage | MapType::ProgArray);
                assert!(is_emptied || is_constant || holds_none, "{name}: {:?}", map.map_type());
            }
        }
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn earlier_keys_and_losses_are_not_reported() {
        const HASH: u32 = 1;
        let hash = |value: usize| MapSpec {
            kind: HASH,
            key: size_of::<Key>() as u32,
            value: value as u32,
            entries: 8,
            ..MapSpec::array(0)
        };
        let specs = [
            (map::COUNTERS, hash(size_of::<Value>())),
            (map::LATENCIES, hash(8 * LATENCY_SLOTS)),
            (map::TALLIES, MapSpec { entries: 8, ..MapSpec::array(8) }),
        ];
        let mut maps = BTreeMap::new();
        for (name, spec) in specs {
            match spec.create() {
                Ok(fd) => maps.insert(name.to_owned(), fd),
                Err(error) => return eprintln!("not checked: this machine does not permit maps: {error}"),
            };
        }
        let written = Written::new(&maps).unwrap();
        let of = |name: &str| BpfMap::new(maps[name].try_clone().unwrap()).unwrap();
        let (counters, latencies, tallies) = (of(map::COUNTERS), of(map::LATENCIES), of(map::TALLIES));
        let mut reader = CounterMaps::new(maps).unwrap();
        let failures = |reader: &mut CounterMaps| reader.losses(&[]).unwrap().map_insert_failures;
        for cgroup in 1..4 {
            // The key has a cgroup, and each run creates a new one.
            let key = words(&[cgroup, 7, 3]);
            counters.update(&key, &words(&[1, 4096, 0])).unwrap();
            latencies.update(&key, &words(&[1; LATENCY_SLOTS])).unwrap();
            tallies.update(&tally::INSERT_FAILURES.to_ne_bytes(), &words(&[cgroup])).unwrap();
            let rows = reader.rows().unwrap();
            assert_eq!(rows.iter().map(|row| (row.cgroup, row.totals.bytes)).collect::<Vec<_>>(), [(cgroup, 4096)]);
            assert_eq!((rows[0].latency.len(), failures(&mut reader)), (LATENCY_SLOTS, Some(cgroup)));
            written.empty().unwrap();
            assert_eq!((reader.rows().unwrap(), failures(&mut reader)), (Vec::new(), Some(0)));
        }
    }
}
