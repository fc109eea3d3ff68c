// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads IOR's JSON summary (`-O summaryFormat=JSON`) as untrusted data.
//!
//! IOR writes the summary piece by piece, and not quite as JSON. A quotient 0/0 becomes a bare
//! `nan`, and an infinite one the string `inf`. Both are read as missing figures. Times and
//! bandwidths have four decimals. The bytes moved are missing and computed ([`PhaseBytes`]).

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::ior_options::MIB;

/// Longest summary in bytes.
pub const MAX_SUMMARY: usize = 8 << 20;

/// Half of the last decimal that IOR writes.
const ROUNDING: f64 = 0.000_05;

/// A text is not a summary of IOR.
#[derive(Debug, thiserror::Error)]
pub enum SummaryError {
    /// The text is too long.
    #[error("IOR's summary has {length} bytes, more than the {MAX_SUMMARY} allowed")]
    TooLong {
        /// The text's length.
        length: usize,
    },
    /// The text is empty: IOR ended before its first test.
    #[error("IOR's summary is empty: see what IOR wrote to its output")]
    Empty,
    /// The text is not JSON, or not IOR's.
    #[error("IOR's summary is not valid (IOR ended early, or other output is mixed in: use -O summaryFile)")]
    Json(#[from] serde_json::Error),
    /// Figures contradict each other.
    #[error("IOR's summary, test {test}: {what}")]
    Inconsistent {
        /// The test's id.
        test: u32,
        /// The contradiction.
        what: String,
    },
}

/// One run of IOR.
#[derive(Debug, Clone, PartialEq)]
pub struct IorSummary {
    /// IOR's version.
    pub version: String,
    /// The command line of the run.
    pub command_line: String,
    /// The tests, in order.
    pub tests: Vec<TestSummary>,
}

/// One test.
#[derive(Debug, Clone, PartialEq)]
pub struct TestSummary {
    /// Index of the test, from 0.
    pub id: u32,
    /// IOR's name of the interface.
    pub api: String,
    /// Number of tasks that took part.
    pub tasks: u32,
    /// Bytes per task and segment.
    pub block_size: u64,
    /// Bytes per transfer.
    pub transfer_size: u64,
    /// Number of segments.
    pub segments: u64,
    /// Number of requested repetitions.
    pub repetitions: u32,
    /// Seconds after which a phase is cut short; 0 is never.
    pub deadline: u32,
    /// The measured phases, in order of time.
    pub results: Vec<Repetition>,
}

/// Direction of a timed phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Writing.
    Write,
    /// Reading, with or without comparing.
    Read,
}

/// One timed phase of one repetition. Figures that IOR could not compute (0/0, x/0) are `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Repetition {
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// Direction.
    pub access: Access,
    /// Bandwidth in MiB/s: bytes moved / total time.
    pub bw_mib: Option<f64>,
    /// Transfers per second of transfer time.
    pub iops: Option<f64>,
    /// The least mean time of one transfer among tasks, in seconds.
    pub latency_s: Option<f64>,
    /// Time from the first open's start to the last open's end, in seconds.
    pub open_s: Option<f64>,
    /// Time from the first transfer's start to the last transfer's end, in seconds.
    pub transfer_s: Option<f64>,
    /// Time from the first close's start to the last close's end, in seconds.
    pub close_s: Option<f64>,
    /// Time from the first open's start to the last close's end, in seconds: the divisor of
    /// `bw_mib`.
    pub total_s: Option<f64>,
    /// Bytes moved by all tasks; `None` if the summary does not determine them.
    pub moved: Option<PhaseBytes>,
}

/// Bytes moved in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseBytes {
    /// The bytes.
    pub bytes: u64,
    /// Whether the figures permit no other number of whole transfers.
    pub exact: bool,
}

impl IorSummary {
    /// Reads a summary.
    ///
    /// # Errors
    /// [`SummaryError::TooLong`] or [`SummaryError::Empty`] depending on the length,
    /// [`SummaryError::Json`] if it is not IOR's JSON, [`SummaryError::Inconsistent`] if figures
    /// contradict each other.
    pub fn parse(text: &[u8]) -> Result<Self, SummaryError> {
        if text.len() > MAX_SUMMARY {
            return Err(SummaryError::TooLong { length: text.len() });
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err(SummaryError::Empty);
        }
        let raw: RawSummary = serde_json::from_slice(&without_nan(text))?;
        let RawSummary { version, command_line, tests, summary } = raw;
        let tests = tests.into_iter().map(|test| test.convert(&summary)).collect::<Result<_, _>>()?;
        Ok(Self { version, command_line, tests })
    }
}

/// Returns `text` with `null` in place of `nan` and `-nan` outside of strings.
pub(crate) fn without_nan(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.windows(3).any(|bytes| bytes == b"nan") {
        return Cow::Borrowed(text);
    }
    let mut clean = Vec::with_capacity(text.len());
    let (mut at, mut in_string) = (0, false);
    while let Some(&byte) = text.get(at) {
        if in_string && byte == b'\\' {
            clean.extend_from_slice(&text[at..text.len().min(at + 2)]);
            at += 2;
            continue;
        }
        if byte == b'"' {
            in_string = !in_string;
        }
        let nan = [&b"-nan"[..], b"nan"].into_iter().find(|nan| !in_string && text[at..].starts_with(nan));
        match nan {
            Some(nan) => {
                clean.extend_from_slice(b"null");
                at += nan.len();
            }
            None => {
                clean.push(byte);
                at += 1;
            }
        }
    }
    Cow::Owned(clean)
}

#[derive(Deserialize)]
struct RawSummary {
    #[serde(rename = "Version")]
    version: String,
    #[serde(rename = "Command line")]
    command_line: String,
    tests: Vec<RawTest>,
    #[serde(default)]
    summary: Vec<RawTotals>,
}

#[derive(Deserialize)]
struct RawTest {
    #[serde(rename = "TestID")]
    id: u32,
    #[serde(rename = "Parameters")]
    parameters: RawParameters,
    #[serde(rename = "Options")]
    options: RawOptions,
    #[serde(rename = "Results")]
    results: Vec<RawResult>,
}

#[derive(Deserialize)]
struct RawParameters {
    api: String,
    #[serde(rename = "deadlineForStonewall")]
    deadline: u32,
    repetitions: u32,
    #[serde(rename = "segmentCount")]
    segments: u64,
    #[serde(rename = "transferSize")]
    transfer_size: u64,
    #[serde(rename = "blockSize")]
    block_size: u64,
}

#[derive(Deserialize)]
struct RawOptions {
    tasks: u32,
}

#[derive(Deserialize)]
#[serde(tag = "access", rename_all = "lowercase")]
enum RawResult {
    Write(RawFigures),
    Read(RawFigures),
    Remove {},
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFigures {
    #[serde(rename = "bwMiB", deserialize_with = "figure")]
    bw_mib: Option<f64>,
    #[serde(deserialize_with = "figure")]
    iops: Option<f64>,
    #[serde(deserialize_with = "figure")]
    latency: Option<f64>,
    #[serde(deserialize_with = "figure")]
    open_time: Option<f64>,
    #[serde(deserialize_with = "figure")]
    wr_rd_time: Option<f64>,
    #[serde(deserialize_with = "figure")]
    close_time: Option<f64>,
    #[serde(deserialize_with = "figure")]
    total_time: Option<f64>,
}

#[derive(Deserialize)]
struct RawTotals {
    operation: String,
    #[serde(rename = "TestID")]
    id: u32,
    #[serde(rename = "xsizeMiB", deserialize_with = "figure")]
    size_mib: Option<f64>,
}

/// Reads a number. `null` (was `nan`) and the strings that `printf` writes for infinities become
/// `None`.
fn figure<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Figure {
        Number(f64),
        Text(String),
        Nothing(()),
    }
    match Figure::deserialize(deserializer)? {
        Figure::Number(number) => Ok(Some(number)),
        Figure::Nothing(()) => Ok(None),
        Figure::Text(text) if matches!(text.as_str(), "inf" | "-inf" | "nan" | "-nan") => Ok(None),
        Figure::Text(text) => Err(D::Error::custom(format_args!(
            "expected a number, found {:?}",
            text.chars().take(40).collect::<String>()
        ))),
    }
}

impl RawTest {
    fn convert(self, totals: &[RawTotals]) -> Result<TestSummary, SummaryError> {
        let Self { id, parameters, options, results } = self;
        let inconsistent = |what: String| SummaryError::Inconsistent { test: id, what };
        if parameters.transfer_size == 0 {
            return Err(inconsistent("a transfer size of 0".to_owned()));
        }
        let first_size = |access| {
            let operation = match access {
                Access::Write => "write",
                Access::Read => "read",
            };
            let size = totals.iter().find(|totals| totals.id == id && totals.operation == operation)?.size_mib?;
            Some((size - ROUNDING, size + ROUNDING))
        };
        let (mut writes, mut reads) = (0, 0);
        let mut converted = Vec::with_capacity(results.len());
        for result in results {
            let (access, figures, count) = match result {
                RawResult::Write(figures) => (Access::Write, figures, &mut writes),
                RawResult::Read(figures) => (Access::Read, figures, &mut reads),
                RawResult::Remove {} => continue,
            };
            let repetition = *count;
            *count += 1;
            if repetition >= parameters.repetitions {
                return Err(inconsistent(format!("more results than the {} repetitions", parameters.repetitions)));
            }
            let first = first_size(access).map(|range| whole_transfers(range, parameters.transfer_size));
            let moved = match (first, product(figures.bw_mib, figures.total_time)) {
                (first, _) if repetition == 0 && first.is_some() => first.flatten(),
                (first, Some(range)) => {
                    let first = first.flatten().filter(|first| first.exact && parameters.deadline == 0);
                    match first {
                        Some(first) if contains(range, first.bytes) => Some(first),
                        _ => whole_transfers(range, parameters.transfer_size),
                    }
                }
                _ => None,
            };
            converted.push(Repetition {
                repetition,
                access,
                bw_mib: figures.bw_mib,
                iops: figures.iops,
                latency_s: figures.latency,
                open_s: figures.open_time,
                transfer_s: figures.wr_rd_time,
                close_s: figures.close_time,
                total_s: figures.total_time,
                moved,
            });
        }
        Ok(TestSummary {
            id,
            api: parameters.api,
            tasks: options.tasks,
            block_size: parameters.block_size,
            transfer_size: parameters.transfer_size,
            segments: parameters.segments,
            repetitions: parameters.repetitions,
            deadline: parameters.deadline,
            results: converted,
        })
    }
}

/// Returns the range of MiB that a rounded bandwidth and a rounded time permit.
fn product(bw_mib: Option<f64>, total_s: Option<f64>) -> Option<(f64, f64)> {
    let (bw, total) = (bw_mib?, total_s?);
    Some(((bw - ROUNDING).max(0.0) * (total - ROUNDING).max(0.0), (bw + ROUNDING) * (total + ROUNDING)))
}

fn contains((low, high): (f64, f64), bytes: u64) -> bool {
    let mib = bytes as f64 / MIB as f64;
    low <= mib && mib <= high
}

/// Returns the number of bytes in a range of MiB that is a whole number of transfers, because IOR
/// gives up on partial ones. If there are several, it is the middle one. `None` means that there is
/// none, or it is not a number of bytes.
fn whole_transfers((low, high): (f64, f64), transfer: u64) -> Option<PhaseBytes> {
    let per_mib = MIB as f64 / transfer as f64;
    // The figures were divided and printed as doubles: allow for errors in the last bits.
    let slack = 1e-9;
    let first = (low.max(0.0) * per_mib * (1.0 - slack)).ceil();
    let last = (high * per_mib * (1.0 + slack)).floor();
    if !(first <= last && last < (1u64 << 53) as f64) {
        return None;
    }
    let middle = ((first + last) / 2.0).round();
    (middle as u64).checked_mul(transfer).map(|bytes| PhaseBytes { bytes, exact: first == last })
}

#[cfg(test)]
mod tests;
