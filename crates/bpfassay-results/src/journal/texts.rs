// SPDX-License-Identifier: MIT OR Apache-2.0
//! The texts of a journal's records. Results that are too large for memory are written from them.
//!
//! The text of a record is the one in `results.json`. A journal that this program wrote already has
//! that text, and is read a second time. Otherwise the text is kept in an unnamed file.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::mpsc,
    thread,
};

use bpfassay_study::Plan;
use twox_hash::XxHash3_128;

use super::{
    FILE_NAME, JournalContents, JournalError, MAX_FILE,
    read_journal::{self, EntryText},
};
use crate::{
    JournalEntry, RunRecord,
    directory::{Draft, OpenDirectory},
};

/// Start of a record's line in the journal, before the comma and the other keys.
const TAG: &[u8] = b"{\"entry\":\"run\"";

/// Limit of threads that read texts. The consumer cannot keep more of them busy.
const MOST_MAKERS: usize = 4;
/// Texts per thread that can wait for the consumer.
const WAITING: usize = 16;

/// Location and XXH3 sum of a record's text. The sum shows whether the text changed between two
/// reads.
#[derive(Debug, Clone)]
pub struct TextPlace {
    source: TextSource,
    at: u64,
    length: usize,
    sum: u128,
}

#[derive(Debug, Clone, Copy)]
enum TextSource {
    Journal,
    Spool,
}

/// The place of a record's text, and the text itself if the journal does not have it.
struct RecordText {
    place: TextPlace,
    other: Option<Vec<u8>>,
}

/// The texts of the records of a journal.
#[derive(Debug)]
pub struct Texts {
    path: PathBuf,
    journal: File,
    spool: Option<File>,
    length: u64,
}

impl Texts {
    /// Reads the journal in `directory`. Several threads parse entries and call `make` on each. The
    /// entry, the result of `make`, and the place of a record's text go to `keep`, in journal
    /// order. Both functions can remove data that is not needed.
    ///
    /// # Errors
    /// The errors of [`JournalContents::read`], and [`JournalError::Io`] if a text cannot be kept.
    pub fn read<T: Send>(
        directory: &OpenDirectory,
        make: impl Fn(&Plan, &mut JournalEntry) -> T + Sync,
        mut keep: impl FnMut(&mut JournalEntry, T, Option<TextPlace>),
    ) -> Result<(JournalContents, Self), JournalError> {
        let path = directory.path().join(FILE_NAME);
        let failed = |source| JournalError::io("read", &path, source);
        let journal = directory.read(FILE_NAME).map_err(failed)?;
        let again = journal.try_clone().map_err(failed)?;
        let mut texts = Self { path: path.clone(), journal: again, spool: None, length: 0 };
        let make = |plan: &Plan, object: EntryText<'_>, entry: &mut JournalEntry| {
            let text = match &*entry {
                JournalEntry::Run(record) => Some(text_of(record, object)),
                _ => None,
            };
            (make(plan, entry), text)
        };
        let contents = read_journal::read_each(&path, journal, MAX_FILE, &make, |entry, (of_entry, text)| {
            let text = text.transpose().map_err(|source| JournalError::Json { path: path.clone(), source })?;
            let place = text.map(|text| texts.keep(directory, text)).transpose();
            keep(entry, of_entry, place.map_err(|source| JournalError::io("append to", &path, source))?);
            Ok(())
        })?;
        Ok((contents, texts))
    }

    fn keep(
        &mut self,
        directory: &OpenDirectory,
        RecordText { mut place, other }: RecordText,
    ) -> io::Result<TextPlace> {
        let Some(text) = other else { return Ok(place) };
        let spool = match &mut self.spool {
            Some(spool) => spool,
            None => self.spool.insert(spool(directory)?),
        };
        spool.write_all(&text)?;
        place.at = self.length;
        self.length = self.length.saturating_add(text.len() as u64);
        Ok(place)
    }

    /// Reads the text at each of `places`, applies `make` on several threads, and passes the
    /// results to `take` in the order of `places`. A text that cannot be read, or has changed,
    /// gives [`JournalError::Io`].
    ///
    /// # Errors
    /// The errors of `take`.
    pub(crate) fn each<T: Send, E>(
        &self,
        places: &[&TextPlace],
        make: impl Fn(String) -> T + Sync,
        mut take: impl FnMut(Result<T, JournalError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let makers = read_journal::threads(MOST_MAKERS);
        thread::scope(|scope| {
            let made: Vec<_> = (0..makers)
                .map(|first| {
                    let (sender, made) = mpsc::sync_channel(WAITING);
                    let make = &make;
                    let mut own = places.iter().skip(first).step_by(makers);
                    scope.spawn(move || own.try_for_each(|place| sender.send(self.get(place).map(make))));
                    made
                })
                .collect();
            // When one receiver has no more texts, no other has a later one.
            made.iter().cycle().map_while(|made| made.recv().ok()).try_for_each(&mut take)
        })
    }

    /// Reads the text at `place`.
    ///
    /// # Errors
    /// [`JournalError::Io`] if the text cannot be read, or has changed.
    fn get(&self, place: &TextPlace) -> Result<String, JournalError> {
        let read = || {
            let file = match place.source {
                TextSource::Journal => Some(&self.journal),
                TextSource::Spool => self.spool.as_ref(),
            };
            let changed = || io::Error::new(io::ErrorKind::InvalidData, "it was changed while it was read");
            let mut bytes = vec![0; place.length];
            file.ok_or_else(changed)?.read_exact_at(&mut bytes, place.at)?;
            if let (TextSource::Journal, Some(comma)) = (place.source, bytes.first_mut()) {
                *comma = b'{';
            }
            match XxHash3_128::oneshot(&bytes) == place.sum {
                true => String::from_utf8(bytes).map_err(|_| changed()),
                false => Err(changed()),
            }
        };
        read().map_err(|source| JournalError::io("read", &self.path, source))
    }
}

/// Finds or makes the text of `record`, which was read from `object`.
///
/// # Errors
/// Fails if the record has no JSON form.
fn text_of(record: &RunRecord, object: EntryText<'_>) -> Result<RecordText, serde_json::Error> {
    let mut text = Vec::with_capacity(object.text.len());
    serde_json::to_writer(&mut text, record)?;
    let is_in_journal = object.text.strip_prefix(TAG).is_some_and(|rest| rest.get(1..) == text.get(1..));
    let source = if is_in_journal { TextSource::Journal } else { TextSource::Spool };
    let at = object.at.saturating_add(TAG.len() as u64);
    let place = TextPlace { source, at, length: text.len(), sum: XxHash3_128::oneshot(&text) };
    Ok(RecordText { place, other: (!is_in_journal).then_some(text) })
}

/// Opens a file that disappears when it is closed.
fn spool(directory: &OpenDirectory) -> io::Result<File> {
    // Dropping the draft removes its name, if it has one.
    Draft::new(directory, ".journal.texts").map(|(_, file)| file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bpfassay_protocol::tracer_messages::{Refusal, Step};
    use bpfassay_study::Available;

    use super::*;
    use crate::{BlockStarted, JOURNAL_VERSION, Journal, JournalHeader, Outcome, Provenance};

    #[test]
    fn a_record_has_the_text_that_results_have_however_the_journal_has_it() {
        let study = bpfassay_study::Study::parse("s.toml", STUDY, &|_| Ok(None)).unwrap();
        let plan = bpfassay_study::expand(&study, &Default::default(), &Available::default()).unwrap();
        let block = plan.blocks[0].clone();
        let header =
            JournalHeader { journal: JOURNAL_VERSION, started_unix_ms: 1, plan, provenance: Provenance::default() };
        let records = [0, 1].map(|index| {
            let outcome = Outcome::Refused(Refusal::new(Step::Load, "„no“\n".to_owned()));
            RunRecord::new(&block, &block.runs[index], 1, 2, 3, outcome)
        });
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(folder.path(), &header).unwrap();
        let started = BlockStarted {
            block: block.id.clone(),
            boot: 1,
            attempt: 1,
            at_unix_ms: 2,
            qemu: Vec::new(),
            log: None,
            runs: block.runs.iter().map(|run| run.spec.id.clone()).collect(),
            confirming: None,
            reused: None,
        };
        journal.append(&JournalEntry::BlockStarted(Box::new(started))).unwrap();
        journal.append(&JournalEntry::Run(Box::new(records[0].clone()))).unwrap();
        let mut other = serde_json::to_value(JournalEntry::Run(Box::new(records[1].clone()))).unwrap();
        other.as_object_mut().unwrap().remove("statistics");
        journal.append_value(&other).unwrap();
        let directory = OpenDirectory::open(folder.path()).unwrap();
        let mut places = Vec::new();
        let (contents, texts) = Texts::read(&directory, |_, _| (), |_, (), place| places.extend(place)).unwrap();
        assert_eq!(contents, JournalContents::read(folder.path()).unwrap());
        assert!(texts.spool.is_some());
        for (place, record) in places.iter().zip(&records) {
            assert_eq!(texts.get(place).unwrap(), serde_json::to_string(record).unwrap());
        }
        let mut wanted = records.iter().cycle().map(|record| record.run.clone());
        let all: Vec<&TextPlace> = places.iter().cycle().take(99).collect();
        let name = |text: String| serde_json::from_str::<RunRecord>(&text).unwrap().run;
        let compare = |run: Result<_, JournalError>| {
            assert_eq!(Some(run?), wanted.next());
            Ok::<(), JournalError>(())
        };
        texts.each(&all, name, compare).unwrap();
        assert_eq!(places.len(), 2);
        let path = folder.path().join(FILE_NAME);
        fs::write(&path, fs::read_to_string(&path).unwrap().replace("\"duration_ms\":3", "\"duration_ms\":4")).unwrap();
        assert!(texts.get(&places[0]).is_err());
        assert!(texts.get(&places[1]).is_ok());
        texts.each(&all, |_| (), |text| text.map(drop)).unwrap_err();
    }

    const STUDY: &str = r#"
schema = 1
name = "s"
description = "For tests."
clock = "wall"
probes = ["none", "kprobe"]
[[targets]]
arch = "x86_64"
kernels = "6.1"
[[file_systems]]
type = "nfs"
[[workloads]]
name = "w"
options = "-a POSIX -w -t 256k -b 8m"
[design]
replicates = 1
rounds = 1
seed = 1
warm_up = 0
"#;
}
