// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a journal to results without ever holding all of its raw figures: each record is derived as
//! soon as it is read, and read a second time when the results are written.

use std::{collections::HashMap, path::PathBuf, sync::OnceLock};

use bpfassay_results::{
    Entry, JournalError, OpenDirectory, Results, ResultsError,
    file::Whole,
    fingerprint,
    journal::{Place, Texts},
};
use bpfassay_study::{Cell, Plan};

use super::{
    derive_ahead,
    entries::Ahead,
    runs,
    slim::{Kept, slim},
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

/// Results without the raw figures of their runs that no report shows; the journal has these.
#[derive(Debug)]
pub struct Streamed {
    /// The results. Whoever needs all raw figures reads them from the journal or from
    /// `results.json`.
    pub results: Results,
    texts: Texts,
    /// Where the whole record of each run is.
    places: Vec<Place>,
}

/// Everything that follows from the journal in `directory`, finished or not.
///
/// # Errors
/// As [`bpfassay_results::Contents::read_in`].
pub fn derive_in(directory: &OpenDirectory) -> Result<Streamed, JournalError> {
    let cells = OnceLock::new();
    let (mut ahead, mut kept, mut all) = (Ahead::default(), Kept::default(), Vec::new());
    let make = |plan: &Plan, entry: &mut Entry| {
        let Entry::Run(record) = entry else { return (None, None) };
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

/// The cell of `plan` with this id; `places` has the place of each in it, once it was looked for.
fn cell<'a>(plan: &'a Plan, places: &OnceLock<HashMap<String, usize>>, id: &str) -> Option<&'a Cell> {
    let places = places.get_or_init(|| plan.cells.iter().map(|cell| cell.id.clone()).zip(0..).collect());
    plan.cells.get(*places.get(id)?)
}

impl Streamed {
    fn whole(&self) -> Whole<'_> {
        Whole::new(&self.results, &self.texts, &self.places)
    }

    /// Writes `results.json` into `directory`, as [`bpfassay_results::file::write_in`] does of
    /// results that are held whole.
    ///
    /// # Errors
    /// [`StreamedError`] where a record cannot be read again, or the file not be written.
    pub fn write_in(&self, directory: &OpenDirectory) -> Result<PathBuf, StreamedError> {
        Ok(self.whole().write_in(directory)??)
    }

    /// The fingerprint of all raw figures, as [`bpfassay_results::fingerprint()`] gives it.
    ///
    /// # Errors
    /// [`JournalError`] where a record cannot be read again.
    pub fn fingerprint(&self) -> Result<String, JournalError> {
        let records = self.results.runs.iter().map(|run| &*run.record);
        fingerprint::of_texts(records.zip(&self.places), &self.texts)
    }
}
