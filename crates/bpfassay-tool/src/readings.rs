// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses captured bytes to samples.
//!
//! Each form parses its bytes to rows of named texts. This module finds the figures and subjects in
//! the rows of all forms.

mod bpf_map;
mod bpftrace;
mod buckets;
mod column_table;
mod distribution;
mod histogram;
mod json;
mod matched_lines;
mod number;
mod openmetrics;
mod process_names;
mod tool_events;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

pub(crate) use self::{
    bpf_map::check as check_maps, bpftrace::MAX_KEYS, number::sum, openmetrics::sample as metrics_sample,
};
pub use self::{
    distribution::{Bucket, Distribution},
    number::{negative, shown},
    process_names::AbsentName,
};
use self::{
    histogram::LinePatterns,
    matched_lines::{TimedLine, lines},
    number::{scaled, whole},
    process_names::RowNames,
};
use crate::{
    Stream,
    file::{Counting, Lost, Report, ReportForm, ReportedFigure, Whose},
    recorded_output::ToolCapture,
};

/// Limit for samples of one run. Further samples are not read.
pub const MAX_SAMPLES: usize = 1 << 18;
/// Longest line that is read, in bytes.
pub(crate) const MAX_LINE: usize = 1 << 20;
/// Longest label value in characters; longer ones are cut.
const MAX_LABEL: usize = 255;

/// A number that a tool reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedSample {
    /// Time when the guest read it, in nanoseconds of the guest's `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// Index in [`Report::figures`].
    pub figure: usize,
    /// The cgroup, mount or process, as the tool names it; `None` for the whole system.
    pub subject: Option<String>,
    /// The value after applying the figure's scale. Negative values are in two's complement.
    pub value: u64,
}

/// Everything that was read in a tool's reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readings {
    /// The samples in the order of reports.
    pub samples: Vec<ReportedSample>,
    /// Times of all reports, with or without figures. Ascending if the capture is.
    pub reports: Vec<u64>,
    /// Number of lines, samples or entries that could not be read.
    pub unread: u64,
    /// The first line, sample or entry that could not be read, and the reason.
    pub first_unread: Option<String>,
    /// Values of histograms whose number of values is a figure.
    pub distributions: Vec<Distribution>,
    /// Lost events that the tool reported; `None` if it has no way to report them.
    pub lost: Option<u64>,
    /// Names of the tool file that no report has, for forms whose names are not checked earlier.
    /// Empty if nothing was reported, or not everything was looked at.
    pub absent: Vec<AbsentName>,
    /// Keys that disappeared between two readings of a map, by figure and subject.
    pub vanished: Vec<Vanished>,
    /// Whether some data was not looked at, because the guest or [`MAX_SAMPLES`] cut it.
    pub cut: bool,
    /// Cgroups and processes that are known to have done nothing before the workload began.
    /// Everything that the tool reports about them counts, even without an earlier report.
    pub newcomers: BTreeMap<Whose, BTreeSet<String>>,
}

/// Keys of a map that one reading has and the next lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vanished {
    /// Index in [`Report::figures`].
    pub figure: usize,
    /// The subject, as in [`ReportedSample::subject`].
    pub subject: Option<String>,
    /// Number of keys over all readings.
    pub keys: u64,
    /// Sum of the keys' counts.
    pub amount: u64,
    /// Last time of the first such key, in nanoseconds of the guest's `CLOCK_MONOTONIC`.
    pub last_ns: u64,
    /// Time of the first reading without that key.
    pub lacking_ns: u64,
}

/// Why nothing can be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadingsError {
    /// A map needs an object, and there is none.
    #[error("map `{0}` is described by an object's BTF, and no object was given")]
    NoObject(String),
    /// The object is invalid or has no BTF.
    #[error("cannot read the object's BTF: {0}")]
    Object(String),
    /// The BTF does not describe the map.
    #[error(
        "the object's BTF describes no map `{0}`: declare it with `__type(key, …)` and `__type(value, …)` in section `.maps`"
    )]
    NoMap(String),
    /// The script does not have the map of a figure.
    #[error("the script has no map `{map}`{nearest}; its maps are {known}")]
    NoScriptMap {
        /// The map name in the tool file.
        map: String,
        /// A suggestion that begins with `; `, or nothing.
        nearest: String,
        /// The map names in the script, separated by commas.
        known: String,
    },
    /// The script never uses the key of a figure.
    #[error("the map `{map}` has no key with `{label}` = `{wanted}`{nearest}; it has {known}")]
    NoScriptKey {
        /// The map.
        map: String,
        /// The part of the key, such as `key1`.
        label: String,
        /// The part's value in the tool file.
        wanted: String,
        /// A suggestion that begins with `; `, or nothing.
        nearest: String,
        /// The values in the script, separated by commas.
        known: String,
    },
    /// The map does not have the field of a figure.
    #[error("the map `{map}` has no field `{field}`{nearest}; its fields are {known}")]
    NoField {
        /// The map.
        map: String,
        /// The field name in the tool file.
        field: String,
        /// A suggestion that begins with `; `, or nothing.
        nearest: String,
        /// The field names of the map, separated by commas.
        known: String,
    },
}

/// Parses `capture` as `report` describes. `object` has the bare object's bytes if maps are read.
///
/// # Errors
/// [`ReadingsError`]. Unreadable output is not an error, but is counted as unread.
pub fn read(report: &Report, capture: &ToolCapture, object: Option<&[u8]>) -> Result<Readings, ReadingsError> {
    let readings = Readings { cut: capture.cut, ..Readings::default() };
    let mut sink =
        SampleSink { figures: &report.figures, part: None, names: RowNames::of(report), buckets: 0, readings };
    // Lines about lost events are not part of the report.
    let is_lost = |line: &TimedLine, stream: Stream| {
        report.lost.as_ref().is_some_and(|lost| lost.stream == stream && lost.line.regex().is_match(&line.text))
    };
    let printed = |stream: Stream| lines(&capture.pieces, stream).filter(move |line| !is_lost(line, stream));
    match &report.form {
        ReportForm::JsonLines { stream, ignore } => json::read(&mut sink, printed(*stream), ignore.as_ref()),
        ReportForm::Table { stream, line, ignore } => {
            column_table::read(&mut sink, printed(*stream), line, ignore.as_ref())
        }
        ReportForm::Histogram { stream, heading, time, ignore } => {
            let settings = LinePatterns { heading: heading.as_ref(), time: time.as_ref(), ignore: ignore.as_ref() };
            histogram::read(&mut sink, printed(*stream), &settings);
        }
        ReportForm::Events { stream, line, ignore } => {
            tool_events::read(&mut sink, printed(*stream), line.as_ref(), ignore.as_ref());
        }
        ReportForm::BpftraceJson { stream } => bpftrace::read(&mut sink, printed(*stream)),
        ReportForm::Openmetrics { .. } | ReportForm::OpenmetricsPages { .. } => {
            openmetrics::read(&mut sink, &report.form, &capture.pages);
        }
        ReportForm::Map { .. } | ReportForm::Maps { .. } => bpf_map::read(&mut sink, report, &capture.dumps, object)?,
    }
    if let Some(lost) = &report.lost {
        count_lost(&mut sink, lost, capture);
    }
    // Missing names could be in the data that was not looked at.
    if !sink.readings.reports.is_empty() && !sink.readings.cut {
        sink.readings.absent = sink.names.iter().flat_map(RowNames::absent).collect();
    }
    Ok(sink.readings)
}

/// Adds up the lost events that the tool reports.
fn count_lost(sink: &mut SampleSink<'_>, lost: &Lost, capture: &ToolCapture) {
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

/// A row of named texts: a line, a sample, or a map entry.
type TextRow<'a> = BTreeMap<Cow<'a, str>, Cow<'a, str>>;

/// Converts rows to samples.
struct SampleSink<'f> {
    figures: &'f [ReportedFigure],
    /// The current page or map, if there are several.
    part: Option<&'f str>,
    /// The names of all rows, if they are needed.
    names: Option<RowNames<'f>>,
    /// Number of histogram buckets kept so far.
    buckets: usize,
    readings: Readings,
}

impl<'f> SampleSink<'f> {
    /// The figures of the current page or map, with their indices.
    fn own_figures(&self) -> impl Iterator<Item = (usize, &'f ReportedFigure)> + use<'f> {
        let part = self.part;
        let is_own = move |figure: &ReportedFigure| figure.part.is_none() || figure.part.as_deref() == part;
        self.figures.iter().enumerate().filter(move |(_, figure)| is_own(figure))
    }

    /// Records the begin of a report.
    fn report(&mut self, at_ns: u64) {
        self.readings.reports.push(at_ns);
    }

    /// Whether the limit of samples or reports is reached.
    const fn is_full(&mut self) -> bool {
        let full = self.readings.samples.len() >= MAX_SAMPLES || self.readings.reports.len() >= MAX_SAMPLES;
        self.readings.cut |= full;
        full
    }

    /// Counts something that could not be read.
    fn unread(&mut self, text: &str, why: &str) {
        self.readings.unread += 1;
        if self.readings.first_unread.is_none() {
            let shown: String = text.chars().take(200).collect();
            self.readings.first_unread = Some(format!("{why}: {shown}"));
        }
    }

    /// Records the names of a row.
    fn note_names(&mut self, row: &TextRow<'_>) {
        if let Some(names) = &mut self.names {
            names.add(self.part, row);
        }
    }

    /// Adds the samples of a row. Returns whether the row has the value of any figure, whatever its
    /// labels.
    fn row(&mut self, at_ns: u64, row: &TextRow<'_>, text: &str) -> bool {
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
                    self.readings.samples.push(ReportedSample { at_ns, figure: index, subject, value });
                }
            }
        }
        any
    }

    /// Merges samples from index `first` on that have the same figure and subject. They belong to
    /// one report.
    fn add_up(&mut self, first: usize) {
        let mut sums: BTreeMap<(usize, Option<String>), ReportedSample> = BTreeMap::new();
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
    /// Why not everything that the tool reported is known; `None` if it is.
    pub(crate) fn incomplete(&self) -> Option<String> {
        match self.unread {
            _ if self.cut => Some("not all that it reported was looked at".to_owned()),
            0 => None,
            unread => Some(format!("{unread} times, what it reported could not be read")),
        }
    }

    /// Why missing reports prove nothing; `None` if everything reported is known.
    pub(crate) fn unheard(&self) -> Option<String> {
        if self.reports.is_empty() { Some("the tool reported nothing".to_owned()) } else { self.incomplete() }
    }

    /// The growth of `figure` (index `index` in the report) from `from_ns` to `to_ns`, by subject.
    ///
    /// For interval figures: the sum of reports after `from_ns` up to `to_ns`. For cumulative
    /// figures: the last value up to `to_ns`, minus the last value up to `from_ns`, or minus 0
    /// without an earlier value. A decrease counts as 0 unless a value is negative; see
    /// [`crate::finding`]. Without an earlier report, only subjects in [`Self::newcomers`] have a
    /// growth.
    ///
    /// # Errors
    /// A message if the growth is unknown because the tool did not report in time.
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
