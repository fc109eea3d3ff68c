// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

/// A span in a collector's JSON. A negative `bytes` leaves the number out.
fn span(name: &str, begin: u64, end: u64, rank: i64, bytes: i64) -> String {
    let number = |key: &str, value: i64| format!(r#"{{"key":"{key}","value":{{"intValue":"{value}"}}}}"#);
    let mut attributes = vec![number("mpi.result", 0), number("mpi.rank", rank)];
    if bytes >= 0 {
        attributes.push(number("mpi.io.requested", bytes));
    }
    attributes.push(r#"{"key":"mpi.library","value":{"stringValue":"mpich"}}"#.to_owned());
    let attributes = attributes.join(",");
    format!(
        r#"{{"traceId":"01","name":"{name}","startTimeUnixNano":"{begin}","endTimeUnixNano":"{end}","attributes":[{attributes}]}}"#
    )
}

fn message(spans: &[String]) -> String {
    format!(r#"{{"resourceSpans":[{{"resource":{{}},"scopeSpans":[{{"spans":[{}]}}]}}]}}"#, spans.join(","))
}

const SECOND: u64 = 1_000_000_000;

fn calls() -> SpanCalls {
    let first = [
        span("MPI_File_open", 10 * SECOND, 11 * SECOND, 0, -1),
        span("MPI_File_open", 12 * SECOND, 13 * SECOND, 1, -1),
    ];
    let second = [
        span("MPI_File_write_at", 14 * SECOND, 16 * SECOND, 0, 100),
        span("MPI_File_read_all", 14 * SECOND, 14 * SECOND, 1, 7),
        span("MPI_File_close", 20 * SECOND, 21 * SECOND, 1, -1),
        span("pwrite64", 14 * SECOND, 16 * SECOND, 0, 100),
    ];
    read(format!("{}\n\n{}\n", message(&first), message(&second)).as_bytes()).unwrap()
}

fn log() -> Log {
    Log {
        by_rank: [(0, Amounts { read: 0, written: 100 }), (1, Amounts { read: 7, written: 0 })].into(),
        // Darshan's clock begins at 8 s.
        first_open: [(Some(0), 2.0), (Some(1), 4.0)].into(),
        width: Some(1.5),
        bins: [((0, 4), Amounts { read: 0, written: 75 })].into(),
        ..Log::default()
    }
}

fn pair(spans: u64, darshan: impl Into<Option<u64>>) -> ComparedFigures {
    ComparedFigures { spans, darshan: darshan.into() }
}

fn is_equal(calls: &SpanCalls, log: &Log) -> bool {
    match compare(calls, log).last() {
        Some(Line::Compared { equal, .. }) => *equal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ranks_and_bins_stand_side_by_side() {
    let lines = compare(&calls(), &log());
    assert_eq!(
        lines,
        [
            Line::Rank { rank: 0, read: pair(0, 0), written: pair(100, 100) },
            Line::Rank { rank: 1, read: pair(7, 7), written: pair(0, 0) },
            // From 6 s to 8 s of Darshan's clock: three quarters are before 7.5 s.
            Line::Bin { rank: 0, bin: 4, read: pair(0, 0), written: pair(75, 75) },
            Line::Bin { rank: 0, bin: 5, read: pair(0, 0), written: pair(25, 0) },
            Line::Bin { rank: 1, bin: 4, read: pair(7, 0), written: pair(0, 0) },
            Line::Compared {
                equal: true,
                read: pair(7, 7),
                written: pair(100, 100),
                width: Some(1.5),
                log_written: 0,
                calls_of_unknown_bytes: 0,
                calls_without_rank: 0
            },
        ]
    );
}

#[test]
fn each_rank_has_a_clock_of_its_own() {
    let bins = |log: &Log| -> Vec<(u32, usize, u64, u64)> {
        let of = |line| match line {
            Line::Bin { rank, bin, read, written } => Some((rank, bin, read.spans, written.spans)),
            _ => None,
        };
        compare(&calls(), log).into_iter().filter_map(of).collect()
    };
    let later = Log { first_open: [(Some(0), 2.0), (Some(1), 5.5)].into(), ..log() };
    assert_eq!(bins(&later), [(0, 4, 0, 75), (0, 5, 0, 25), (1, 5, 7, 0)]);
    // For shared files only the first opening is known, here the one of rank 0.
    let shared = Log { first_open: [(None, 2.0)].into(), ..log() };
    assert_eq!(bins(&shared), [(0, 4, 0, 75), (0, 5, 0, 25), (1, 4, 7, 0)]);
    let unknown = Log { first_open: BTreeMap::new(), ..log() };
    assert_eq!(bins(&unknown), [(0, 4, 0, 0)]);
}

#[test]
fn a_byte_too_much_is_a_difference() {
    assert!(is_equal(&calls(), &log()));
    let mut more = log();
    more.by_rank.get_mut(&1).unwrap().read += 1;
    assert!(!is_equal(&calls(), &more));
    // The sums are equal, the ranks are not.
    let swapped =
        Log { by_rank: [(0, Amounts { read: 7, written: 0 }), (1, Amounts { read: 0, written: 100 })].into(), ..log() };
    assert!(!is_equal(&calls(), &swapped));
    let missing = Log { by_rank: [(0, Amounts { read: 0, written: 100 })].into(), ..log() };
    assert!(!is_equal(&calls(), &missing));
    assert!(!is_equal(&SpanCalls { unknown: 1, ..calls() }, &log()));
}

#[test]
fn of_shared_files_only_sums_are_compared() {
    let shared = Log { by_rank: BTreeMap::new(), shared: Amounts { read: 7, written: 100 }, ..log() };
    let lines = compare(&calls(), &shared);
    assert_eq!(lines[0], Line::Rank { rank: 0, read: pair(0, None), written: pair(100, None) });
    assert!(is_equal(&calls(), &shared));
}

#[test]
fn what_darshan_writes_to_its_log_is_not_compared() {
    let own = |span: String| span.replace(r#""traceId":"01""#, r#""traceId":"02""#);
    let opened = span("MPI_File_open", 30 * SECOND, 31 * SECOND, 0, -1);
    let path = r#"{"key":"file.path","value":{"stringValue":"/logs/0_ior.darshan_partial"}},{"key":"mpi.rank""#;
    let opened = opened.replace(r#"{"key":"mpi.rank""#, path);
    let written = span("MPI_File_write_at_all", 31 * SECOND, 32 * SECOND, 0, 55);
    // The spans of a file come in any order.
    let log_first = message(&[own(written.clone()), own(opened)]);
    let program = message(&[span("MPI_File_write", 10 * SECOND, 11 * SECOND, 0, 100)]);
    let found = read(format!("{log_first}\n{program}\n").as_bytes()).unwrap();
    let theirs = Log { by_rank: [(0, Amounts { read: 0, written: 100 })].into(), ..Log::default() };
    let lines = compare(&found, &theirs);
    let Some(Line::Compared { equal, written, log_written, .. }) = lines.last() else { panic!("{lines:?}") };
    assert_eq!((*equal, *written, *log_written), (true, pair(100, 100), 55));
}

#[test]
fn calls_that_fail_or_say_nothing_are_left_out() {
    let failed = span("MPI_File_write", 1, 2, 0, 5).replace(r#""intValue":"0""#, r#""intValue":"35""#);
    let unknown = span("MPI_File_write", 1, 2, 0, -1);
    let found = read(message(&[failed, unknown]).as_bytes()).unwrap();
    assert_eq!((found.calls.len(), found.unknown), (0, 1));
    // Some exporters write plain numbers.
    let plain = span("MPI_File_write", 1, 2, 0, 5).replace(r#""5""#, "5").replace(r#""1""#, "1");
    assert_eq!(read(message(&[plain]).as_bytes()).unwrap().calls.len(), 1);
    assert!(matches!(read(&b"{}\nno JSON\n"[..]), Err(SpansError::Json { line: 2, .. })));
}

proptest! {
    #[test]
    fn spreading_loses_no_byte(begin: u32, length: u32, bytes: u32, zero: u32, width in 1_000..u64::from(u32::MAX)) {
        let begin = u64::from(begin);
        let call = Call { trace: 0, rank: None, direction: DataDirection::Read, begin, end: begin + u64::from(length), bytes: bytes.into() };
        let (mut sum, mut bins) = (0, Vec::new());
        spread(&call, zero.into(), width, |bin, bytes| { sum += bytes; bins.push(bin); });
        prop_assert_eq!(sum, u64::from(bytes));
        prop_assert!(bins.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }

    #[test]
    fn no_text_makes_it_panic(text: Vec<u8>) {
        let _ = read(&text[..]);
    }
}
