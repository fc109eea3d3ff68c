// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the counters through the descriptors of their maps, whichever library made them.

use std::{
    collections::BTreeMap,
    os::fd::{BorrowedFd, OwnedFd},
};

use bpfassay_bpf::BpfMap;
use bpfassay_protocol::tracer_messages::{CounterRow, Losses};
use bpfassay_tracer_common::{COPIES, Operation, PathKey, map, tally};

use crate::{
    counters::{
        decode::{self, RowKey, Rows},
        error::ReadError,
        misses,
        ring::EventRing,
    },
    kernel::mountinfo::Mounts,
    loader::plan::hooked::Hooked,
};

/// The maps of one attached tracer.
#[derive(Debug)]
pub(crate) struct CounterMaps {
    maps: BTreeMap<String, BpfMap>,
    ring: Option<EventRing>,
    /// The mount table, for the layout with paths in its keys.
    mounts: Option<Mounts>,
}

impl CounterMaps {
    /// Makes readers for all maps of an object by name. The map layout determines which maps exist.
    ///
    /// # Errors
    /// [`ReadError::Map`] if the kernel does not describe a map, or the ring buffer cannot be
    /// mapped; [`ReadError::Mounts`] if the mount table cannot be read.
    pub(crate) fn new(maps: BTreeMap<String, OwnedFd>) -> Result<Self, ReadError> {
        let mut known = BTreeMap::new();
        for (name, fd) in maps {
            let map = BpfMap::new(fd).map_err(|source| ReadError::Map { map: name.clone(), source })?;
            known.insert(name, map);
        }
        let ring = known.get(map::EVENTS).map(|map| EventRing::new(map.fd())).transpose();
        let ring = ring.map_err(|source| ReadError::Map { map: map::EVENTS.to_owned(), source })?;
        let by_path = known.get(map::COUNTERS).is_some_and(|map| map.key_size() == size_of::<PathKey>());
        let mounts = by_path.then(Mounts::open).transpose().map_err(ReadError::Mounts)?;
        Ok(Self { maps: known, ring, mounts })
    }

    /// Returns a descriptor that is readable when [`CounterMaps::drain`] has work to do; `None` for
    /// layouts that keep their sums in the kernel.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.ring.as_ref().map(EventRing::fd)
    }

    /// Reads the events in the ring buffer, if there is one, to make room.
    ///
    /// # Errors
    /// [`ReadError::Map`] if the ring buffer cannot be read.
    pub(crate) fn drain(&mut self) -> Result<(), ReadError> {
        if let Some(ring) = &mut self.ring {
            ring.drain().map_err(|source| ReadError::Map { map: map::EVENTS.to_owned(), source })?;
        }
        Ok(())
    }

    /// Discards the events in the ring buffer, and their sums.
    ///
    /// # Errors
    /// [`ReadError::Map`] if the ring buffer cannot be read.
    pub(crate) fn reset(&mut self) -> Result<(), ReadError> {
        let failed = |source| ReadError::Map { map: map::EVENTS.to_owned(), source };
        self.ring.as_mut().map_or(Ok(()), EventRing::reset).map_err(failed)
    }

    /// Returns the counters since attaching: one row per key and, if the layout has them, variant
    /// and thread. The rows are sorted by these.
    ///
    /// # Errors
    /// [`ReadError`] if a map or the mount table cannot be read, or a map contains bytes that no
    /// program of the tracer writes.
    pub(crate) fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        let mut rows = Rows::new();
        if let Some(ring) = &mut self.ring {
            let failed = |source| ReadError::Map { map: map::EVENTS.to_owned(), source };
            let sums = ring.drain_all().map_err(failed)?;
            if sums.malformed > 0 {
                return Err(failed(std::io::ErrorKind::InvalidData.into()));
            }
            for (key, (value, latency)) in &sums.counters {
                let row = decode::row_of(*key, *value, latency);
                rows.insert(
                    (*key).into(),
                    row.map_err(|source| ReadError::Content { map: map::EVENTS.to_owned(), source })?,
                );
            }
        }
        if let Some(mounts) = &mut self.mounts {
            mounts.refresh().map_err(ReadError::Mounts)?;
        }
        for name in [map::COUNTERS, map::COUNTERS_2, map::OTHERS] {
            let Some(map) = self.maps.get(name) else { continue };
            let failed = |source| ReadError::Content { map: name.to_owned(), source };
            for entry in map.entries().map_err(|source| ReadError::Map { map: name.to_owned(), source })? {
                let key = match &self.mounts {
                    Some(mounts) => decode::key_by_path(&entry.key, mounts).map(RowKey::from),
                    None => decode::row_key(&entry.key),
                };
                let key = key.map_err(failed)?;
                let value = decode::sum(entry.values).map_err(failed)?;
                decode::add(&mut rows, key, value).map_err(failed)?;
            }
        }
        if let Some(map) = self.maps.get(map::SLOTS) {
            let failed = |source| ReadError::Content { map: map::SLOTS.to_owned(), source };
            for element in 0..COPIES * Operation::DATA {
                let found = map.lookup(&element.to_ne_bytes());
                // There are as many elements as the copies need.
                let Some(values) = found.map_err(|source| ReadError::Map { map: map::SLOTS.to_owned(), source })?
                else {
                    break;
                };
                for (key, value) in decode::slots(element % Operation::DATA, &values).map_err(failed)? {
                    decode::add(&mut rows, key.into(), value).map_err(failed)?;
                }
            }
        }
        if let Some(map) = self.maps.get(map::LATENCIES) {
            let failed = |source| ReadError::Content { map: map::LATENCIES.to_owned(), source };
            for entry in map.entries().map_err(|source| ReadError::Map { map: map::LATENCIES.to_owned(), source })? {
                let key = decode::key(&entry.key).map_err(failed)?;
                let latency = decode::histogram(entry.values).map_err(failed)?;
                decode::add_latency(&mut rows, key, &latency).map_err(failed)?;
            }
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        decode::sort(&mut rows);
        Ok(rows)
    }

    /// Returns the events that are known to be lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`] if a map or the kernel's counts of misses cannot be read.
    pub(crate) fn losses(&mut self, hooked: &[Hooked]) -> Result<Losses, ReadError> {
        let misses = misses::of_all(hooked)?;
        let evicted = match (&self.mounts, self.maps.get(map::COUNTERS)) {
            (Some(_), Some(counters)) => {
                // Insertions are read first: a key that is inserted in between can only reduce the
                // derived number of evictions.
                let inserted = self.tally(tally::INSERTIONS)?;
                let failed = |source| ReadError::Map { map: map::COUNTERS.to_owned(), source };
                let live = counters.entries().map_err(failed)?.len() as u64;
                Some(inserted.saturating_sub(live))
            }
            _ => None,
        };
        Ok(Losses {
            missed_probes: misses.probes,
            recursion_misses: misses.recursion,
            map_insert_failures: Some(self.tally(tally::INSERT_FAILURES)?.wrapping_add(self.tally(tally::UNMATCHED)?)),
            lru_evictions: evicted,
            ring_buffer_drops: self.ring.is_some().then(|| self.tally(tally::RING_BUFFER_DROPS)).transpose()?,
        })
    }

    fn tally(&self, index: u32) -> Result<u64, ReadError> {
        let missing = || ReadError::Map { map: map::TALLIES.to_owned(), source: std::io::ErrorKind::NotFound.into() };
        let failed = |source| ReadError::Map { map: map::TALLIES.to_owned(), source };
        let map = self.maps.get(map::TALLIES).ok_or_else(missing)?;
        let values = map.lookup(&index.to_ne_bytes()).map_err(failed)?.unwrap_or_default();
        decode::total(values).map_err(|source| ReadError::Content { map: map::TALLIES.to_owned(), source })
    }
}
