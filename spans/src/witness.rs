// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares spans with Darshan's record of the same run: bytes by rank and by time bin.
//!
//! Darshan counts the bytes that successful calls requested, so the spans are summed in the same
//! way. Darshan adds up files that several ranks used, unless `DARSHAN_DISABLE_SHARED_REDUCTION` is
//! set. Then only the sums can be compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{BufRead, Read as _},
};

use serde::{Deserialize, Serialize};

use crate::{
    darshan::{Amounts, Log},
    functions::{DataDirection, FUNCTIONS, Shape},
};

/// Longest line of spans, in bytes. A line is a message from a receiver.
const MAX_LINE: u64 = 64 << 20;
/// Most calls.
const MAX_CALLS: usize = 20_000_000;
/// Most time bins of one call. A call with more lasted unreasonably long.
const MAX_BINS: u64 = 100_000;

/// An error in the file of spans.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpansError {
    #[error("cannot read it")]
    Read(#[source] std::io::Error),
    #[error("line {line} is not of OTLP in JSON, as a collector's exporter to files writes it")]
    Json {
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {0} has more than {MAX_LINE} bytes")]
    Long(usize),
    #[error("there are more than {MAX_CALLS} calls")]
    TooMany,
}

#[derive(Deserialize)]
struct Request {
    #[serde(rename = "resourceSpans", default)]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Deserialize)]
struct ResourceSpans {
    #[serde(rename = "scopeSpans", default)]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Deserialize)]
struct ScopeSpans {
    #[serde(default)]
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    #[serde(rename = "traceId", default)]
    trace: String,
    name: String,
    #[serde(rename = "startTimeUnixNano")]
    begin: Number,
    #[serde(rename = "endTimeUnixNano")]
    end: Number,
    #[serde(default)]
    attributes: Vec<Attribute>,
}

#[derive(Deserialize)]
struct Attribute {
    key: String,
    value: Value,
}

#[derive(Deserialize)]
struct Value {
    #[serde(rename = "intValue")]
    int: Option<Number>,
    #[serde(rename = "stringValue")]
    text: Option<String>,
}

/// The JSON mapping of Protocol Buffers writes 64-bit numbers as strings.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(i64),
    Text(String),
}

impl Number {
    fn get(&self) -> Option<u64> {
        match self {
            Self::Number(number) => u64::try_from(*number).ok(),
            Self::Text(text) => text.parse().ok(),
        }
    }
}

/// A call that moves data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Call {
    trace: u128,
    rank: Option<u32>,
    direction: DataDirection,
    begin: u64,
    end: u64,
    bytes: u64,
}

/// The calls that spans contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SpanCalls {
    calls: Vec<Call>,
    /// When each rank first opened a file, in nanoseconds since 1970.
    first_open: BTreeMap<Option<u32>, u64>,
    /// Calls that requested an unknown number of bytes.
    unknown: u64,
    /// Traces of Darshan's own log files. Darshan writes them by MPI-IO but does not count them.
    logs: BTreeSet<u128>,
}

/// Reads spans, one OTLP message in JSON per line.
///
/// # Errors
/// [`SpansError`] if a line cannot be read or parsed.
pub(crate) fn read(mut text: impl BufRead) -> Result<SpanCalls, SpansError> {
    let mut found = SpanCalls::default();
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let count = text.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes).map_err(SpansError::Read)?;
        if count as u64 == MAX_LINE {
            return Err(SpansError::Long(line));
        }
        if count == 0 {
            break;
        }
        if bytes.trim_ascii().is_empty() {
            continue;
        }
        let request: Request = serde_json::from_slice(&bytes).map_err(|source| SpansError::Json { line, source })?;
        let of_scopes = request.resource_spans.into_iter().flat_map(|each| each.scope_spans);
        for span in of_scopes.flat_map(|each| each.spans) {
            found.add(&span)?;
        }
    }
    Ok(found)
}

impl SpanCalls {
    fn add(&mut self, span: &Span) -> Result<(), SpansError> {
        let Some(function) = FUNCTIONS.iter().find(|function| function.name == span.name) else { return Ok(()) };
        let of = |name: &str| span.attributes.iter().find(|each| each.key == name)?.value.int.as_ref()?.get();
        let (Some(begin), Some(end), Some(0)) = (span.begin.get(), span.end.get(), of("mpi.result")) else {
            return Ok(());
        };
        let rank = of("mpi.rank").and_then(|rank| u32::try_from(rank).ok());
        let trace = u128::from_str_radix(&span.trace, 16).unwrap_or(0);
        match function.shape {
            Shape::Open => {
                let first = self.first_open.entry(rank).or_insert(begin);
                *first = begin.min(*first);
                let path = span.attributes.iter().find(|each| each.key == "file.path");
                if path.and_then(|path| path.value.text.as_deref()).is_some_and(is_log) {
                    self.logs.insert(trace);
                }
            }
            Shape::Data { direction, .. } => match of("mpi.io.requested") {
                Some(_) if self.calls.len() == MAX_CALLS => return Err(SpansError::TooMany),
                Some(bytes) => {
                    self.calls.push(Call { trace, rank, direction, begin, end: end.max(begin), bytes });
                }
                None => self.unknown += 1,
            },
            _ => {}
        }
        Ok(())
    }
}

/// Whether `path` has a name of Darshan's log, finished or partial.
fn is_log(path: &str) -> bool {
    path.ends_with(".darshan") || path.ends_with(".darshan_partial")
}

/// A figure of the spans and the figure of Darshan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ComparedFigures {
    pub(crate) spans: u64,
    /// `None` if Darshan has no such figure.
    pub(crate) darshan: Option<u64>,
}

/// A line of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Line {
    /// All bytes that a rank requested.
    Rank { rank: u32, read: ComparedFigures, written: ComparedFigures },
    /// The bytes of a rank in a time bin. The first bin begins when Darshan starts. The bytes of a
    /// call are spread over all bins that it spans.
    Bin { rank: u32, bin: usize, read: ComparedFigures, written: ComparedFigures },
    /// All bytes, and whether they and the bytes of each rank in Darshan's record are equal. Also
    /// counts the calls without a rank or a known number of bytes.
    Compared {
        equal: bool,
        read: ComparedFigures,
        written: ComparedFigures,
        /// The width of a bin in seconds.
        #[serde(skip_serializing_if = "Option::is_none")]
        width: Option<f64>,
        /// Bytes that Darshan wrote to its own log. No other figure contains them.
        log_written: u64,
        calls_of_unknown_bytes: u64,
        calls_without_rank: u64,
    },
}

fn pairs(ours: Amounts, theirs: Option<Amounts>) -> (ComparedFigures, ComparedFigures) {
    let pair = |spans, darshan| ComparedFigures { spans, darshan };
    (pair(ours.read, theirs.map(|amounts| amounts.read)), pair(ours.written, theirs.map(|amounts| amounts.written)))
}

/// Compares spans with a log. The last line has the sums.
pub(crate) fn compare(calls: &SpanCalls, log: &Log) -> Vec<Line> {
    let mut ranks: BTreeMap<u32, Amounts> = BTreeMap::new();
    let (mut all, mut own, mut without_rank) = (Amounts::default(), Amounts::default(), 0);
    for call in &calls.calls {
        if calls.logs.contains(&call.trace) {
            own.add(call.direction, call.bytes);
            continue;
        }
        all.add(call.direction, call.bytes);
        match call.rank {
            Some(rank) => ranks.entry(rank).or_default().add(call.direction, call.bytes),
            None => without_rank += 1,
        }
    }
    let is_by_rank = log.shared == Amounts::default();
    let mut lines = Vec::new();
    let mut equal = calls.unknown == 0;
    let names: BTreeSet<u32> = ranks.keys().chain(log.by_rank.keys()).copied().collect();
    for rank in names {
        let ours = ranks.get(&rank).copied().unwrap_or_default();
        let theirs = is_by_rank.then(|| log.by_rank.get(&rank).copied().unwrap_or_default());
        equal &= theirs.is_none_or(|theirs| theirs == ours);
        let (read, written) = pairs(ours, theirs);
        lines.push(Line::Rank { rank, read, written });
    }
    lines.extend(bins(calls, log));
    let mut theirs = log.shared;
    for amounts in log.by_rank.values() {
        theirs.add(DataDirection::Read, amounts.read);
        theirs.add(DataDirection::Write, amounts.written);
    }
    equal &= theirs == all;
    let (read, written) = pairs(all, Some(theirs));
    lines.push(Line::Compared {
        equal,
        read,
        written,
        width: log.width,
        log_written: own.written,
        calls_of_unknown_bytes: calls.unknown,
        calls_without_rank: without_rank,
    });
    lines
}

/// Returns when Darshan's clock began in a rank's process, in nanoseconds since 1970. The first
/// opening of a file is at the same time in both records. For files that all ranks used, Darshan
/// has only the earliest opening.
fn zero(rank: u32, calls: &SpanCalls, log: &Log) -> Option<u64> {
    let of_rank = calls.first_open.get(&Some(rank)).zip(log.first_open.get(&Some(rank)));
    let of_all = || calls.first_open.values().min().zip(log.first_open.get(&None));
    let (first, opened) = of_rank.or_else(of_all)?;
    Some(first.saturating_sub((opened * 1e9) as u64))
}

/// Compares time bins, if Darshan has them.
fn bins(calls: &SpanCalls, log: &Log) -> Vec<Line> {
    let Some(width) = log.width else { return Vec::new() };
    let width_ns = ((width * 1e9) as u64).max(1);
    let mut all: BTreeMap<(u32, usize), (Amounts, Amounts)> =
        log.bins.iter().map(|(&key, &amounts)| (key, (Amounts::default(), amounts))).collect();
    let ranks = calls.first_open.keys().filter_map(|&rank| Some((rank?, zero(rank?, calls, log)?)));
    let zeros: BTreeMap<u32, u64> = ranks.collect();
    for call in calls.calls.iter().filter(|call| !calls.logs.contains(&call.trace)) {
        let Some((rank, zero)) = call.rank.and_then(|rank| Some((rank, *zeros.get(&rank)?))) else { continue };
        spread(call, zero, width_ns, |bin, bytes| {
            all.entry((rank, bin)).or_default().0.add(call.direction, bytes);
        });
    }
    let line = |((rank, bin), (ours, theirs))| {
        let (read, written) = pairs(ours, Some(theirs));
        Line::Bin { rank, bin, read, written }
    };
    all.into_iter().map(line).collect()
}

/// Spreads the bytes of a call evenly over its duration.
fn spread(call: &Call, zero: u64, width: u64, mut add: impl FnMut(usize, u64)) {
    let (begin, end) = (call.begin.saturating_sub(zero), call.end.saturating_sub(zero));
    let (first, last) = (begin / width, end / width);
    let last = last.min(first.saturating_add(MAX_BINS));
    let mut rest = call.bytes;
    for bin in first..last {
        let until = (bin + 1).saturating_mul(width);
        let inside = until.saturating_sub(begin.max(bin * width));
        // 128 bits hold a product of bytes and nanoseconds.
        let share = u128::from(call.bytes) * u128::from(inside) / u128::from((end - begin).max(1));
        let share = u64::try_from(share).unwrap_or(rest).min(rest);
        rest -= share;
        add(usize::try_from(bin).unwrap_or(usize::MAX), share);
    }
    add(usize::try_from(last).unwrap_or(usize::MAX), rest);
}

/// Opens a file with spans or with a log.
///
/// # Errors
/// The system's error. A file that is not regular is refused.
pub(crate) fn open(path: &std::path::Path) -> std::io::Result<std::io::BufReader<File>> {
    bpfassay_input::open(path).map(std::io::BufReader::new)
}

#[cfg(test)]
#[path = "witness_tests.rs"]
mod tests;
