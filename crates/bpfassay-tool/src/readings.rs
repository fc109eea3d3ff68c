// SPDX-License-Identifier: MIT OR Apache-2.0
//! From captured bytes to samples.
//!
//! Each form turns its bytes into rows of named texts; what is a figure, and of whom, is decided
//! here, once for all of them.

mod bpftrace;
mod buckets;
mod distribution;
mod events;
mod histogram;
mod json;
mod lines;
mod map;
mod names;
mod number;
mod openmetrics;
mod table;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

pub(crate) use self::{
    bpftrace::MAX_KEYS, map::check as check_maps, number::sum, openmetrics::sample as metrics_sample,
};
pub use self::{
    distribution::{Bucket, Distribution},
    names::Absent,
    number::{negative, shown},
};
use self::{
    histogram::Settings,
    lines::{Line, lines},
    names::Names,
    number::{scaled, whole},
};
use crate::{Capture, Counting, Form, Lost, Report, ReportedFigure, Stream, Whose};

/// Most samples of one run; what comes after them is not read.
pub const MAX_SAMPLES: usize = 1 << 18;
/// Longest line that is read, in bytes.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// Longest text of a label, in bytes; longer ones are cut.
const MAX_LABEL: usize = 255;

/// One number that a tool reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// When, in nanoseconds of the guest's `CLOCK_MONOTONIC`: when the guest read it.
    pub at_ns: u64,
    /// Which of [`Report::figures`].
    pub figure: usize,
    /// Which cgroup, mount or process, as the tool names it; `None` for the whole system.
    pub subject: Option<String>,
    /// The value, with the figure's scale applied. A negative one is in two's complement.
    pub value: u64,
}

/// The samples that could be read in a tool's reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// The samples, in the order in which they were reported.
    pub samples: Vec<Sample>,
    /// When there was a report, whether or not any figure was in it; ascending where the capture
    /// is.
    pub reports: Vec<u64>,
    /// Lines, samples or entries that should have been read and could not be.
    pub unread: u64,
    /// The first of them, and why.
    pub first_unread: Option<String>,
    /// What the values of histograms were, of figures that are their number.
    pub distributions: Vec<Distribution>,
    /// Events that the tool itself reported as lost; `None` where this form cannot report them.
    pub lost: Option<u64>,
    /// Names of the tool file that no report has, of forms in which they are not checked before.
    /// Empty where nothing was reported, or not all was looked at.
    pub absent: Vec<Absent>,
    /// Keys that a reading of a map lacks and the one before had, by figure and subject.
    pub vanished: Vec<Vanished>,
    /// Whether not everything was looked at: the guest or [`MAX_SAMPLES`] cut it.
    pub cut: bool,
    /// Names of cgroups and processes that did nothing before the workload began, as far as that is
    /// known of all that count: what a tool reports of them is all theirs, whether or not it
    /// reported anything before.
    pub newcomers: BTreeMap<Whose, BTreeSet<String>>,
}

/// Keys of a map that a reading lacks, and that the one before had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vanished {
    /// Which of [`Report::figures`].
    pub figure: usize,
    /// As [`Sample::subject`].
    pub subject: Option<String>,
    /// How many, over all readings.
    pub keys: u64,
    /// Their counts.
    pub amount: u64,
    /// When the first of them was last there, in nanoseconds of the guest's `CLOCK_MONOTONIC`.
    pub last_ns: u64,
    /// When it was not.
    pub lacking_ns: u64,
}

/// Why nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A map is to be read and there is no object.
    #[error("map `{0}` is described by an object's BTF, and no object was given")]
    NoObject(String),
    /// The object is none, or has no BTF.
    #[error("cannot read the object's BTF: {0}")]
    Object(String),
    /// The object does not describe the map.
    #[error(
        "the object's BTF describes no map `{0}`: declare it with `__type(key, …)` and `__type(value, …)` in section `.maps`"
    )]
    NoMap(String),
    /// A figure is to be read of a map that a script has not.
    #[error("the script has no map `{map}`{nearest}; its maps are {known}")]
    NoScriptMap {
        /// The map as the tool file has it.
        map: String,
        /// Empty, or a suggestion that begins with `; `.
        nearest: String,
        /// The names that it has, comma-separated.
        known: String,
    },
    /// A figure is to be read of a key that a script never has.
    #[error("the map `{map}` has no key with `{label}` = `{wanted}`{nearest}; it has {known}")]
    NoScriptKey {
        /// The map.
        map: String,
        /// The part of the key.
        label: String,
        /// Its value as the tool file has it.
        wanted: String,
        /// Empty, or a suggestion that begins with `; `.
        nearest: String,
        /// The names that it has, comma-separated.
        known: String,
    },
    /// A figure is to be read of a field that the map has not.
    #[error("the map `{map}` has no field `{field}`{nearest}; its fields are {known}")]
    NoField {
        /// The map.
        map: String,
        /// The field as the tool file has it.
        field: String,
        /// Empty, or a suggestion that begins with `; `.
        nearest: String,
        /// The names that it has, comma-separated.
        known: String,
    },
}

/// Reads what `capture` holds, as `report` describes. `object`: the bare object's bytes, where a
/// map is read.
///
/// # Errors
/// [`ReadError`]; what a tool printed never is an error but counts as unread.
pub fn read(report: &Report, capture: &Capture, object: Option<&[u8]>) -> Result<Readings, ReadError> {
    let readings = Readings { cut: capture.cut, ..Readings::default() };
    let mut sink = Sink { figures: &report.figures, part: None, names: Names::of(report), buckets: 0, readings };
    // Lines in which the tool says that it lost events are no part of the report.
    let is_lost = |line: &Line, stream: Stream| {
        report.lost.as_ref().is_some_and(|lost| lost.stream == stream && lost.line.regex().is_match(&line.text))
    };
    let printed = |stream: Stream| lines(&capture.pieces, stream).filter(move |line| !is_lost(line, stream));
    match &report.form {
        Form::JsonLines { stream, ignore } => json::read(&mut sink, printed(*stream), ignore.as_ref()),
        Form::Table { stream, line, ignore } => table::read(&mut sink, printed(*stream), line, ignore.as_ref()),
        Form::Histogram { stream, heading, time, ignore } => {
            let settings = Settings { heading: heading.as_ref(), time: time.as_ref(), ignore: ignore.as_ref() };
            histogram::read(&mut sink, printed(*stream), &settings);
        }
        Form::Events { stream, line, ignore } => {
            events::read(&mut sink, printed(*stream), line.as_ref(), ignore.as_ref());
        }
        Form::BpftraceJson { stream } => bpftrace::read(&mut sink, printed(*stream)),
        Form::Openmetrics { .. } | Form::OpenmetricsPages { .. } => {
            openmetrics::read(&mut sink, &report.form, &capture.pages);
        }
        Form::Map { .. } | Form::Maps { .. } => map::read(&mut sink, report, &capture.dumps, object)?,
    }
    if let Some(lost) = &report.lost {
        count_lost(&mut sink, lost, capture);
    }
    // What was not looked at may have them.
    if !sink.readings.reports.is_empty() && !sink.readings.cut {
        sink.readings.absent = sink.names.iter().flat_map(Names::absent).collect();
    }
    Ok(sink.readings)
}

/// Adds up what the tool says that it lost.
fn count_lost(sink: &mut Sink<'_>, lost: &Lost, capture: &Capture) {
    let mut sum = sink.readings.lost.unwrap_or(0);
    for line in lines(&capture.pieces, lost.stream) {
        let Some(found) = lost.line.regex().captures(&line.text) else { continue };
        match found.name(Lost::GROUP).and_then(|number| whole(number.as_str())) {
            Some(number) => sum = sum.saturating_add(number),
            None => sink.unread(&line.text, "lost events without a number"),
        }
    }
    sink.readings.lost = Some(sum);
}

/// Names and texts that belong together: a line, a sample, an entry of a map.
type Row<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

/// Takes rows and makes samples of them.
struct Sink<'f> {
    figures: &'f [ReportedFigure],
    /// The page or map that is being read, where there are several.
    part: Option<&'f str>,
    /// The names of all rows, where they have to be known.
    names: Option<Names<'f>>,
    /// How many buckets of histograms are kept.
    buckets: usize,
    readings: Readings,
}

impl<'f> Sink<'f> {
    /// The figures of the page or map that is being read, with their places.
    fn own_figures(&self) -> impl Iterator<Item = (usize, &'f ReportedFigure)> + use<'f> {
        let part = self.part;
        let is_own = move |figure: &ReportedFigure| figure.part.is_none() || figure.part.as_deref() == part;
        self.figures.iter().enumerate().filter(move |(_, figure)| is_own(figure))
    }

    /// A report begins.
    fn report(&mut self, at_ns: u64) {
        self.readings.reports.push(at_ns);
    }

    /// Whether no more can be taken.
    const fn is_full(&mut self) -> bool {
        let full = self.readings.samples.len() >= MAX_SAMPLES || self.readings.reports.len() >= MAX_SAMPLES;
        self.readings.cut |= full;
        full
    }

    /// Something could not be read.
    fn unread(&mut self, text: &str, why: &str) {
        self.readings.unread += 1;
        if self.readings.first_unread.is_none() {
            let shown: String = text.chars().take(200).collect();
            self.readings.first_unread = Some(format!("{why}: {shown}"));
        }
    }

    /// Takes the names of a row to the notes.
    fn note_names(&mut self, row: &Row<'_>) {
        if let Some(names) = &mut self.names {
            names.add(self.part, row);
        }
    }

    /// The figures of one row; returns whether there was one, or would be with other labels.
    fn row(&mut self, at_ns: u64, row: &Row<'_>, text: &str) -> bool {
        let mut any = false;
        self.note_names(row);
        for (index, figure) in self.own_figures() {
            let value = row.get(figure.value.as_str());
            any |= value.is_some();
            let fits =
                figure.labelled.iter().all(|(key, value)| row.get(key.as_str()).is_some_and(|found| found == value));
            if !fits || self.is_full() {
                continue;
            }
            let value = match value {
                Some(text) => scaled(text, figure.scale),
                None if figure.blank_is_zero => Some(0),
                None => continue,
            };
            let subject = figure.label.as_ref().map(|label| row.get(label.as_str()));
            match (value, subject) {
                (None, _) => self.unread(text, &format!("`{}` is no whole number of 64 bits", figure.value)),
                (Some(_), Some(None)) => {
                    let label = figure.label.as_deref().unwrap_or_default();
                    self.unread(text, &format!("`{}` comes without `{label}`", figure.value));
                }
                (Some(value), subject) => {
                    let subject = subject.flatten().map(|text| text.chars().take(MAX_LABEL).collect());
                    self.readings.samples.push(Sample { at_ns, figure: index, subject, value });
                }
            }
        }
        any
    }

    /// Adds up the samples from `first` on that are of the same figure and subject: they belong to
    /// one report.
    fn add_up(&mut self, first: usize) {
        let mut sums: BTreeMap<(usize, Option<String>), Sample> = BTreeMap::new();
        for sample in self.readings.samples.drain(first..) {
            let key = (sample.figure, sample.subject.clone());
            match sums.get_mut(&key) {
                Some(sum) => sum.value = number::sum(sum.value, sample.value),
                None => drop(sums.insert(key, sample)),
            }
        }
        self.readings.samples.extend(sums.into_values());
    }
}

impl Readings {
    /// Why not all that the tool reported is known; `None` where it is.
    pub(crate) fn incomplete(&self) -> Option<String> {
        match self.unread {
            _ if self.cut => Some("not all that it reported was looked at".to_owned()),
            0 => None,
            unread => Some(format!("{unread} times, what it reported could not be read")),
        }
    }

    /// Why nothing follows from what it did not report; `None` where all is known that it did.
    pub(crate) fn unheard(&self) -> Option<String> {
        if self.reports.is_empty() { Some("the tool reported nothing".to_owned()) } else { self.incomplete() }
    }

    /// What `figure`, which is number `index` of the report, grew by from `from_ns` to `to_ns`, by
    /// subject.
    ///
    /// Per interval: the sum of what was reported after `from_ns` and until `to_ns`. Cumulative:
    /// the last value until `to_ns` less the last until `from_ns`, or less 0 where an earlier
    /// report did not have it; below 0 counts as 0, for which see
    /// [`crate::finding`]. Without an earlier report, that of [`Self::newcomers`] alone.
    ///
    /// # Errors
    /// A message where it is not known: the tool did not report in time, or its figure has no
    /// value.
    pub fn grown(
        &self,
        index: usize,
        figure: &ReportedFigure,
        from_ns: u64,
        to_ns: u64,
    ) -> Result<BTreeMap<Option<String>, u64>, String> {
        if self.reports.is_empty() {
            return Err("the tool reported nothing".to_owned());
        }
        let of_figure = || self.samples.iter().filter(|sample| sample.figure == index && sample.at_ns <= to_ns);
        let mut grown: BTreeMap<Option<String>, u64> = BTreeMap::new();
        if figure.counting == Counting::Interval {
            if !self.reports.iter().any(|&at| at > from_ns && at <= to_ns) {
                return Err("the tool did not report while or after the workload ran".to_owned());
            }
            for sample in of_figure().filter(|sample| sample.at_ns > from_ns) {
                let sum = grown.entry(sample.subject.clone()).or_default();
                *sum = number::sum(*sum, sample.value);
            }
            return Ok(grown);
        }
        let newcomers = self.newcomers.get(&figure.whose).filter(|names| !names.is_empty());
        let begins_late = !self.reports.iter().any(|&at| at <= from_ns);
        if begins_late && newcomers.is_none() {
            return Err("the tool reported nothing before the workload began: what it counted until then is not known"
                .to_owned());
        }
        if !self.reports.iter().any(|&at| at > from_ns && at <= to_ns) {
            return Err("the tool did not report after the workload ran".to_owned());
        }
        let mut before: BTreeMap<&Option<String>, u64> = BTreeMap::new();
        let mut last: BTreeMap<&Option<String>, u64> = BTreeMap::new();
        for sample in of_figure() {
            last.insert(&sample.subject, sample.value);
            if sample.at_ns <= from_ns {
                before.insert(&sample.subject, sample.value);
            }
        }
        let is_new = |subject: &Option<String>| {
            subject.as_ref().zip(newcomers).is_some_and(|(name, newcomers)| newcomers.contains(name))
        };
        for (subject, value) in last.into_iter().filter(|(subject, _)| !begins_late || is_new(subject)) {
            let earlier = before.get(subject).copied().unwrap_or(0);
            let is_signed = [value, earlier].into_iter().any(|value| negative(value).is_some());
            let growth = if is_signed { value.wrapping_sub(earlier) } else { value.saturating_sub(earlier) };
            grown.insert(subject.clone(), growth);
        }
        Ok(grown)
    }
}

#[cfg(test)]
mod tests;
