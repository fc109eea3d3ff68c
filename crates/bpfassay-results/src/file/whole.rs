// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results whose raw figures are not held: they are written from the texts of the records, one
//! after the other.

use std::{cell::RefCell, path::PathBuf};

use serde::{
    Serialize, Serializer,
    ser::{Error as _, SerializeMap},
};
use serde_json::value::RawValue;

use super::{ResultsError, print, write_value};
use crate::{
    JournalError, OpenDirectory, Results, RunDerived,
    journal::{Place, Texts},
};

/// Results, and where the whole record of each run is.
pub struct Whole<'a> {
    results: &'a Results,
    texts: &'a Texts,
    places: &'a [Place],
    /// Why a text could not be read.
    failed: RefCell<Option<JournalError>>,
}

impl<'a> Whole<'a> {
    /// `results` with the records at `places`, in the order of its runs.
    #[must_use]
    pub fn new(results: &'a Results, texts: &'a Texts, places: &'a [Place]) -> Self {
        Self { results, texts, places, failed: RefCell::default() }
    }

    /// Writes `results.json` into `directory`, as [`super::write_in`] does.
    ///
    /// # Errors
    /// Where a record cannot be read, why, and otherwise as [`super::write_in`].
    pub fn write_in(&self, directory: &OpenDirectory) -> Result<Result<PathBuf, ResultsError>, JournalError> {
        let written = write_value(directory, self);
        self.failed.take().map_or(Ok(written), Err)
    }

    /// The digest that `results.json` has, as [`super::digest`] gives it.
    ///
    /// # Errors
    /// Where a record cannot be read, why; otherwise that the results have no JSON form.
    pub fn digest(&self) -> Result<Result<String, serde_json::Error>, JournalError> {
        let printed = print(std::io::sink(), self).map(|(digest, _)| digest);
        self.failed.take().map_or(Ok(printed), Err)
    }
}

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // As `Results` is written, with other runs.
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

/// The runs, each with its whole record.
struct Runs<'a>(&'a Whole<'a>);

/// As [`RunResult`] is written.
#[derive(Serialize)]
struct Run<'a> {
    record: &'a RawValue,
    derived: Option<&'a RunDerived>,
}

impl Serialize for Runs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeSeq;
        let Whole { results, texts, places, failed } = self.0;
        let mut sequence = serializer.serialize_seq(Some(results.runs.len()))?;
        let mut runs = results.runs.iter();
        let places: Vec<&Place> = places.iter().take(results.runs.len()).collect();
        texts.each(&places, RawValue::from_string, |text| {
            let text = text.map_err(|error| {
                let message = S::Error::custom(&error);
                *failed.borrow_mut() = Some(error);
                message
            })?;
            let record = &*text.map_err(S::Error::custom)?;
            let derived = runs.next().and_then(|run| run.derived.as_deref());
            sequence.serialize_element(&Run { record, derived })
        })?;
        sequence.end()
    }
}
