// SPDX-License-Identifier: MIT OR Apache-2.0
//! Derives results from a journal without holding all raw figures in memory: each record is derived
//! when it is read, and read a second time when the results are written.

use std::{collections::HashMap, path::PathBuf, sync::OnceLock};

use bpfassay_results::{
    JournalEntry, JournalError, OpenDirectory, Results, ResultsError,
    file::WholeResults,
    fingerprint,
    journal::{TextPlace, Texts},
};
use bpfassay_study::{Cell, Plan};

use super::{
    derive_ahead,
    entries::Ahead,
    runs,
    slim::{RemovedParts, slim},
};

/// Why streamed results cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StreamedError {
    /// A record cannot be read again.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The file cannot be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
}

/// Results without the raw figures of runs that no report shows; the journal has these.
#[derive(Debug)]
pub struct Streamed {
    /// The results. Callers that need all raw figures read them from the journal or from
    /// `results.json`.
    pub results: Results,
    texts: Texts,
    /// The place of each run's whole record in the journal.
    places: Vec<TextPlace>,
}

/// Derives the results from the journal in `directory`, finished or not.
///
/// # Errors
/// The errors of [`bpfassay_results::JournalContents::read_in`].
pub fn derive_in(directory: &OpenDirectory) -> Result<Streamed, JournalError> {
    let cells = OnceLock::new();
    let (mut ahead, mut kept, mut all) = (Ahead::default(), RemovedParts::default(), Vec::new());
    let make = |plan: &Plan, entry: &mut JournalEntry| {
        let JournalEntry::Run(record) = entry else { return (None, None) };
        let cell = cell(plan, &cells, &record.cell);
        let derived = cell.and_then(|cell| runs::derive(plan, cell, record));
        (derived.map(Box::new), slim(plan, cell, record))
    };
    let (contents, texts) = Texts::read(directory, make, |entry, (derived, taken), place| {
        ahead.take(entry, derived);
        if let Some(place) = place {
            kept.keep(taken);
            all.push(place);
        }
    })?;
    let mut places = Vec::new();
    let results = derive_ahead(contents, ahead, |plan, runs, numbers| {
        kept.give_back(plan, runs, &numbers);
        places = numbers.iter().filter_map(|&number| all.get(number).cloned()).collect();
    });
    Ok(Streamed { results, texts, places })
}

/// Returns the cell of `plan` with this id; `places` is the index of cells, made on first use.
fn cell<'a>(plan: &'a Plan, places: &OnceLock<HashMap<String, usize>>, id: &str) -> Option<&'a Cell> {
    let places = places.get_or_init(|| plan.cells.iter().map(|cell| cell.id.clone()).zip(0..).collect());
    plan.cells.get(*places.get(id)?)
}

impl Streamed {
    fn whole(&self) -> WholeResults<'_> {
        WholeResults::new(&self.results, &self.texts, &self.places)
    }

    /// Writes `results.json` into `directory`, as [`bpfassay_results::file::write_in`] writes
    /// results that are held in memory.
    ///
    /// # Errors
    /// [`StreamedError`], if a record cannot be read again or the file cannot be written.
    pub fn write_in(&self, directory: &OpenDirectory) -> Result<PathBuf, StreamedError> {
        Ok(self.whole().write_in(directory)??)
    }

    /// Returns the fingerprint of all raw figures, as [`bpfassay_results::fingerprint()`] does.
    ///
    /// # Errors
    /// [`JournalError`], if a record cannot be read again.
    pub fn fingerprint(&self) -> Result<String, JournalError> {
        let records = self.results.runs.iter().map(|run| &*run.record);
        fingerprint::of_texts(records.zip(&self.places), &self.texts)
    }
}
