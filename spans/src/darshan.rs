// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads Darshan's record of MPI-IO from the output of `darshan-parser` (Darshan 3.4 and later).

use std::{
    collections::BTreeMap,
    io::{BufRead, Read as _},
};

use crate::functions::DataDirection;

/// Longest line, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// Most ranks and most time bins. Darshan has far fewer time bins.
const MAX_RANKS: usize = 1 << 20;
const MAX_BINS: usize = 100_000;

/// The name of the record with bytes of MPI-IO by time.
const HEATMAP: &str = "heatmap:MPIIO";

/// Bytes read and written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) read: u64,
    pub(crate) written: u64,
}

impl Amounts {
    pub(crate) fn add(&mut self, direction: DataDirection, bytes: u64) {
        let sum = if direction == DataDirection::Read { &mut self.read } else { &mut self.written };
        *sum = sum.saturating_add(bytes);
    }
}

/// The content of a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Log {
    /// Bytes by rank, for files that one rank used.
    pub(crate) by_rank: BTreeMap<u32, Amounts>,
    /// Bytes of files that all ranks used. Darshan adds them up over the ranks.
    pub(crate) shared: Amounts,
    /// Seconds from Darshan's start to the first opening of a file, by rank. `None` stands for
    /// files that all ranks used.
    pub(crate) first_open: BTreeMap<Option<u32>, f64>,
    /// The width of a time bin, in seconds.
    pub(crate) width: Option<f64>,
    /// Bytes by rank and time bin.
    pub(crate) bins: BTreeMap<(u32, usize), Amounts>,
}

/// The text is not the output of `darshan-parser`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DarshanError {
    /// The text cannot be read.
    #[error("cannot read it")]
    Read(#[source] std::io::Error),
    /// A line has another form.
    #[error("line {line}: {problem}")]
    Line {
        /// The line's number.
        line: usize,
        /// The fault.
        problem: String,
    },
    /// The text has no record of MPI-IO.
    #[error(
        "it has no record of the module MPI-IO: is it what darshan-parser prints, of a program that was run with Darshan?"
    )]
    NoRecord,
}

/// Parses the text.
///
/// # Errors
/// [`DarshanError`] if the text cannot be read or is of another form.
pub(crate) fn read(mut text: impl BufRead) -> Result<Log, DarshanError> {
    let mut log = Log::default();
    let mut has_records = false;
    let mut bytes = Vec::new();
    for line in 1.. {
        bytes.clear();
        let count = text.by_ref().take(MAX_LINE).read_until(b'\n', &mut bytes).map_err(DarshanError::Read)?;
        if count == 0 {
            break;
        }
        let failed = |problem: String| DarshanError::Line { line, problem };
        if count as u64 == MAX_LINE {
            return Err(failed(format!("it has more than {MAX_LINE} bytes")));
        }
        let text = String::from_utf8_lossy(&bytes);
        let fields: Vec<&str> = text.trim_end_matches(['\n', '\r']).split('\t').collect();
        let [module @ ("MPI-IO" | "MPIIO" | "HEATMAP"), rank, _, counter, value, name, ..] = fields[..] else {
            continue;
        };
        let rank = match rank.parse::<i64>() {
            Ok(-1) => None,
            Ok(rank) => Some(u32::try_from(rank).map_err(|_| failed(format!("the rank {rank}")))?),
            Err(_) => return Err(failed("the rank is no number".to_owned())),
        };
        if module == "HEATMAP" {
            if name == HEATMAP {
                log.heatmap(rank, counter, value).map_err(failed)?;
            }
        } else {
            has_records = true;
            log.record(rank, counter, value).map_err(failed)?;
        }
    }
    if has_records { Ok(log) } else { Err(DarshanError::NoRecord) }
}

fn amount(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| "the value is no number of bytes".to_owned())
}

fn seconds(value: &str) -> Result<f64, String> {
    let seconds: f64 = value.parse().map_err(|_| "the value is no time".to_owned())?;
    if seconds.is_finite() && seconds >= 0.0 { Ok(seconds) } else { Err("the value is no time".to_owned()) }
}

impl Log {
    fn record(&mut self, rank: Option<u32>, counter: &str, value: &str) -> Result<(), String> {
        let direction = match counter {
            "MPIIO_BYTES_READ" => DataDirection::Read,
            "MPIIO_BYTES_WRITTEN" => DataDirection::Write,
            "MPIIO_F_OPEN_START_TIMESTAMP" => {
                let time = seconds(value)?;
                // The value is 0 if the file was not opened.
                if time > 0.0 {
                    self.bounded(rank)?;
                    let first = self.first_open.entry(rank).or_insert(time);
                    *first = first.min(time);
                }
                return Ok(());
            }
            _ => return Ok(()),
        };
        let bytes = amount(value)?;
        let Some(rank) = rank else {
            self.shared.add(direction, bytes);
            return Ok(());
        };
        self.bounded(Some(rank))?;
        self.by_rank.entry(rank).or_default().add(direction, bytes);
        Ok(())
    }

    /// Refuses a rank beyond the maximum.
    fn bounded(&self, rank: Option<u32>) -> Result<(), String> {
        let is_possible = rank.is_none_or(|rank| (rank as usize) < MAX_RANKS);
        if is_possible { Ok(()) } else { Err(format!("there are more than {MAX_RANKS} ranks")) }
    }

    fn heatmap(&mut self, rank: Option<u32>, counter: &str, value: &str) -> Result<(), String> {
        if counter == "HEATMAP_F_BIN_WIDTH_SECONDS" {
            let width = seconds(value)?;
            // All ranks have the same width: Darshan widens all bins if one rank needs that.
            if self.width.is_some_and(|known| known != width) || width <= 0.0 {
                return Err("the bins are not of one width".to_owned());
            }
            self.width = Some(width);
            return Ok(());
        }
        let (direction, bin) =
            match (counter.strip_prefix("HEATMAP_READ_BIN_"), counter.strip_prefix("HEATMAP_WRITE_BIN_")) {
                (Some(bin), _) => (DataDirection::Read, bin),
                (_, Some(bin)) => (DataDirection::Write, bin),
                _ => return Ok(()),
            };
        let bin: usize = bin.parse().ok().filter(|&bin| bin < MAX_BINS).ok_or("the number of the bin")?;
        let rank = rank.ok_or("the heatmap has no rank")?;
        let bytes = amount(value)?;
        if bytes > 0 {
            if self.bins.len() == MAX_RANKS {
                return Err(format!("there are more than {MAX_RANKS} bins with data"));
            }
            self.bins.entry((rank, bin)).or_default().add(direction, bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "# darshan log version: 3.41\n# nprocs: 2\n\
        POSIX\t0\t7\tPOSIX_BYTES_READ\t99\t/data\t/\text4\n\
        MPI-IO\t0\t7\tMPIIO_BYTES_READ\t100\t/data\t/\text4\n\
        MPI-IO\t0\t7\tMPIIO_BYTES_WRITTEN\t200\t/data\t/\text4\n\
        MPI-IO\t0\t8\tMPIIO_BYTES_WRITTEN\t1\t/data2\t/\text4\n\
        MPI-IO\t1\t7\tMPIIO_F_OPEN_START_TIMESTAMP\t0.250000\t/data\t/\text4\n\
        MPI-IO\t0\t7\tMPIIO_F_OPEN_START_TIMESTAMP\t0.125000\t/data\t/\text4\n\
        MPI-IO\t0\t8\tMPIIO_F_OPEN_START_TIMESTAMP\t0.000000\t/data\t/\text4\n\
        MPI-IO\t-1\t9\tMPIIO_BYTES_READ\t5\t/shared\t/\text4\n\
        HEATMAP\t0\t3\tHEATMAP_F_BIN_WIDTH_SECONDS\t0.100000\theatmap:MPIIO\tUNKNOWN\tUNKNOWN\n\
        HEATMAP\t0\t3\tHEATMAP_READ_BIN_0\t0\theatmap:MPIIO\tUNKNOWN\tUNKNOWN\n\
        HEATMAP\t0\t3\tHEATMAP_READ_BIN_1\t60\theatmap:MPIIO\tUNKNOWN\tUNKNOWN\n\
        HEATMAP\t0\t3\tHEATMAP_WRITE_BIN_1\t61\theatmap:MPIIO\tUNKNOWN\tUNKNOWN\n\
        HEATMAP\t0\t4\tHEATMAP_READ_BIN_1\t62\theatmap:POSIX\tUNKNOWN\tUNKNOWN\n";

    #[test]
    fn the_text_of_a_log_is_read() {
        let log = read(TEXT.as_bytes()).unwrap();
        assert_eq!(log.by_rank, BTreeMap::from([(0, Amounts { read: 100, written: 201 })]));
        assert_eq!(log.shared, Amounts { read: 5, written: 0 });
        assert_eq!(log.first_open, BTreeMap::from([(Some(0), 0.125), (Some(1), 0.25)]));
        assert_eq!(log.width, Some(0.1));
        assert_eq!(log.bins, BTreeMap::from([((0, 1), Amounts { read: 60, written: 61 })]));
    }

    #[test]
    fn other_texts_are_refused() {
        let error = |text: &str| read(text.as_bytes()).unwrap_err().to_string();
        assert!(error("# darshan log version: 3.41\n").starts_with("it has no record"));
        let line = |rank: &str, counter: &str, value: &str| {
            error(&format!("\nMPI-IO\t{rank}\t7\t{counter}\t{value}\t/data\t/\n"))
        };
        assert_eq!(line("x", "MPIIO_BYTES_READ", "1"), "line 2: the rank is no number");
        assert_eq!(line("-2", "MPIIO_BYTES_READ", "1"), "line 2: the rank -2");
        assert_eq!(line("1048576", "MPIIO_BYTES_READ", "1"), "line 2: there are more than 1048576 ranks");
        assert_eq!(line("0", "MPIIO_BYTES_READ", "-1"), "line 2: the value is no number of bytes");
        assert_eq!(line("0", "MPIIO_F_OPEN_START_TIMESTAMP", "nan"), "line 2: the value is no time");
        let bin = |counter: &str| error(&format!("HEATMAP\t0\t3\t{counter}\t1\t{HEATMAP}\t\n"));
        assert_eq!(bin("HEATMAP_READ_BIN_9999999"), "line 1: the number of the bin");
        assert!(error(&"x".repeat(70_000)).contains("more than"));
        assert!(
            error(&TEXT.replace("HEATMAP_READ_BIN_0\t0", "HEATMAP_F_BIN_WIDTH_SECONDS\t0.2")).contains("one width")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text: Vec<u8>, parts in proptest::collection::vec("[-0-9A-Z_a-z.]{0,30}", 0..40)) {
            let _ = read(&text[..]);
            let _ = read(format!("MPI-IO\t{}", parts.join("\t")).as_bytes());
            let _ = read(format!("HEATMAP\t{}", parts.join("\t")).as_bytes());
        }
    }
}
