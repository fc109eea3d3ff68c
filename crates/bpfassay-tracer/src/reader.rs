//! Readings of the ledger through the descriptors of its maps, whichever library made them.

use std::{collections::BTreeMap, os::fd::OwnedFd};

use bpfassay_ledger::{map, tally};
use bpfassay_protocol::tracer::{CounterRow, Losses};

use crate::{hooked::Hooked, kernel::Map, ledger, misses, tracer::ReadError};

/// The maps of one attached tracer.
#[derive(Debug)]
pub(crate) struct Reader {
    maps: BTreeMap<String, Map>,
}

impl Reader {
    /// Over all maps of an object by name; which of them there are depends on the map layout.
    ///
    /// # Errors
    /// [`ReadError::Map`].
    pub(crate) fn new(maps: BTreeMap<String, OwnedFd>) -> Result<Self, ReadError> {
        let mut known = BTreeMap::new();
        for (name, fd) in maps {
            let map = Map::new(fd).map_err(|source| ReadError::Map { map: name.clone(), source })?;
            known.insert(name, map);
        }
        Ok(Self { maps: known })
    }

    /// The counters since attaching, one row per key, sorted by key.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn rows(&mut self) -> Result<Vec<CounterRow>, ReadError> {
        let name = map::COUNTERS;
        let mut rows = Vec::new();
        for entry in self.map(name)?.entries().map_err(|source| ReadError::Map { map: name.to_owned(), source })? {
            let row = ledger::row(&entry.key, entry.values);
            rows.push(row.map_err(|source| ReadError::Ledger { map: name.to_owned(), source })?);
        }
        ledger::sort(&mut rows);
        Ok(rows)
    }

    /// Events known to be lost since attaching.
    ///
    /// # Errors
    /// [`ReadError`].
    pub(crate) fn losses(&mut self, hooked: &[Hooked]) -> Result<Losses, ReadError> {
        let misses = misses::of_all(hooked)?;
        Ok(Losses {
            missed_probes: misses.probes,
            recursion_misses: misses.recursion,
            map_insert_failures: Some(self.tally(tally::INSERT_FAILURES)?),
            ..Losses::default()
        })
    }

    fn map(&self, name: &str) -> Result<&Map, ReadError> {
        let missing = || ReadError::Map { map: name.to_owned(), source: std::io::ErrorKind::NotFound.into() };
        self.maps.get(name).ok_or_else(missing)
    }

    fn tally(&self, index: u32) -> Result<u64, ReadError> {
        let failed = |source| ReadError::Map { map: map::TALLIES.to_owned(), source };
        let values = self.map(map::TALLIES)?.lookup(&index.to_ne_bytes()).map_err(failed)?.unwrap_or_default();
        ledger::total(values).map_err(|source| ReadError::Ledger { map: map::TALLIES.to_owned(), source })
    }
}
