// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes results without holding the raw figures in memory: the texts of the records are copied
//! one after the other.

use std::{cell::RefCell, path::PathBuf};

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};
use serde_json::value::RawValue;

use super::{ResultsError, print, write_value};
use crate::{
    JournalError, OpenDirectory, Results, RunDerived,
    journal::{TextPlace, Texts},
};

/// Results, and the place of each run's full record.
pub struct WholeResults<'a> {
    results: &'a Results,
    texts: &'a Texts,
    places: &'a [TextPlace],
    /// The error of the first text that could not be read.
    failed: RefCell<Option<JournalError>>,
}

impl<'a> WholeResults<'a> {
    /// Combines `results` with the records at `places`, which have the order of the runs.
    #[must_use]
    pub fn new(results: &'a Results, texts: &'a Texts, places: &'a [TextPlace]) -> Self {
        Self { results, texts, places, failed: RefCell::default() }
    }

    /// Writes `results.json` into `directory`, as [`super::write_in`] does.
    ///
    /// # Errors
    /// Fails if a record cannot be read; otherwise the errors of [`super::write_in`].
    pub fn write_in(&self, directory: &OpenDirectory) -> Result<Result<PathBuf, ResultsError>, JournalError> {
        let written = write_value(directory, self);
        self.failed.take().map_or(Ok(written), Err)
    }

    /// Returns the digest of `results.json`, as [`super::digest`] does.
    ///
    /// # Errors
    /// The outer error: a record cannot be read. The inner one: the results have no JSON form.
    pub fn digest(&self) -> Result<Result<String, serde_json::Error>, JournalError> {
        let printed = print(std::io::sink(), self).map(|(digest, _)| digest);
        self.failed.take().map_or(Ok(printed), Err)
    }
}

impl Serialize for WholeResults<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Keep in step with the derived `Serialize` of `Results`; only `runs` differs.
        let Results {
            version,
            journal,
            started_unix_ms,
            plan,
            provenance,
            boots,
            runs: _,
            cells,
            gates,
            sampling,
            kernel_features,
            notes,
        } = self.results;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("version", version)?;
        if let Some(journal) = journal {
            map.serialize_entry("journal", journal)?;
        }
        map.serialize_entry("started_unix_ms", started_unix_ms)?;
        map.serialize_entry("plan", plan)?;
        map.serialize_entry("provenance", provenance)?;
        map.serialize_entry("boots", boots)?;
        map.serialize_entry("runs", &Runs(self))?;
        map.serialize_entry("cells", cells)?;
        if !gates.is_empty() {
            map.serialize_entry("gates", gates)?;
        }
        if !sampling.is_empty() {
            map.serialize_entry("sampling", sampling)?;
        }
        if let Some(kernel_features) = kernel_features {
            map.serialize_entry("kernel_features", kernel_features)?;
        }
        map.serialize_entry("notes", notes)?;
        map.end()
    }
}

/// Serializes the runs, each with its full record.
struct Runs<'a>(&'a WholeResults<'a>);

/// Serializes like [`RunResult`].
#[derive(Serialize)]
struct WholeRun<'a> {
    record: &'a RawValue,
    derived: Option<&'a RunDerived>,
}

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let WholeResults { results, texts, places, failed } = self.0;
        let mut sequence = serializer.serialize_seq(Some(results.runs.len()))?;
        let mut runs = results.runs.iter();
        let places: Vec<&TextPlace> = places.iter().take(results.runs.len()).collect();
        texts.each(&places, RawValue::from_string, |text| {
            let text = text.map_err(|error| {
                let message = S::Error::custom(&error);
                *failed.borrow_mut() = Some(error);
                message
            })?;
            let record = &*text.map_err(S::Error::custom)?;
            let derived = runs.next().and_then(|run| run.derived.as_deref());
            sequence.serialize_element(&WholeRun { record, derived })
        })?;
        sequence.end()
    }
}
