// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durations in histograms that no call can have had.

use super::*;
use crate::readings::{Bucket, Distribution};

const S: u64 = 1_000_000_000;

/// Returns the finding on a histogram `value` with these buckets, 60 s after the boot.
fn status_of(value: &str, buckets: &[(u64, &str, u64)]) -> (Vec<Kind>, String) {
    let of_histogram =
        ReportedFigure { value: value.to_owned(), ..figure(&[Operation::Read], CountedUnit::Calls, Whose::System) };
    let report = report(vec![of_histogram]);
    let bucket = |&(least, up_to, count): &(u64, &str, u64)| Bucket { least, up_to: up_to.to_owned(), count };
    let buckets: Vec<Bucket> = buckets.iter().map(bucket).collect();
    let at = |at_ns| Distribution { at_ns, figure: 0, subject: None, buckets: buckets.clone() };
    let readings = Readings { distributions: vec![at(60 * S), at(61 * S)], ..readings(&[(100, 0, None, 3)]) };
    let results = counts(&report, &readings, &truth(vec![share("a", "m", Operation::Read, 3, 30, 30)]));
    let evidence = match status(&results, Kind::ImpossibleDurations) {
        FindingStatus::Found { .. } => evidence_of(&results, Kind::ImpossibleDurations),
        FindingStatus::Clear => "clear".to_owned(),
        FindingStatus::NotEvaluated { .. } => reason(&results, Kind::ImpossibleDurations).to_owned(),
    };
    (found(&results), evidence)
}

#[test]
fn a_duration_is_at_least_0_and_no_longer_than_the_kernel_has_run() {
    let wrong = [
        // The start minus the end, without and with a sign.
        (
            "usecs.count",
            &[(1 << 54, "36028797018963967", 3)][..],
            "3 values of at least 18014398509481984 usecs, 60 s after",
        ),
        ("@ns.count", &[(0, "-1", 1)], "1 value below 0"),
        // Nanoseconds that are called milliseconds.
        ("msecs.count", &[(0, "1", 9), (65536, "131071", 1)], "1 value of at least 65536 msecs, 60 s after"),
        ("io_seconds_bucket", &[(61, "+Inf", 2)], "2 values of at least 61 seconds, 60 s after"),
    ];
    for (value, buckets, part) in wrong {
        let (found, evidence) = status_of(value, buckets);
        assert_eq!(found, [Kind::ImpossibleDurations], "{value}: {evidence}");
        assert!(evidence.contains(part) && evidence.lines().count() == 1, "{value}: {evidence}");
    }
    for (value, buckets) in [
        // A call can have waited since the boot. An empty bucket shows nothing.
        ("usecs.count", &[(60_000_000, "67108863", 3)][..]),
        ("nsecs.count", &[(4096, "8191", 3), (1 << 62, "9223372036854775807", 0)]),
        ("msecs.count", &[(32768, "65535", 3)]),
    ] {
        assert_eq!(status_of(value, buckets), (Vec::new(), "clear".to_owned()), "{value}");
    }
}

#[test]
fn a_histogram_without_a_unit_of_time_is_not_evaluated() {
    let sizes = status_of("bytes.count", &[(1 << 62, "9223372036854775807", 3)]);
    assert_eq!(sizes, (Vec::new(), "it reports no histogram of durations".to_owned()));
}

/// A histogram of calls of two threads, which were made within 2 s.
struct SummedCalls {
    value: &'static str,
    /// The smallest duration.
    least: u64,
    /// Number of values in the histogram.
    counted: u64,
    /// Number of calls of the threads.
    calls: u64,
    /// Number of calls of the threads in phases, which take 0.1 s.
    in_phases: u64,
    are_files: bool,
    are_of_workload: bool,
}

const POSSIBLE: SummedCalls = SummedCalls {
    value: "usecs.count",
    least: 4_000,
    counted: 1_000,
    calls: 1_000,
    in_phases: 0,
    are_files: true,
    are_of_workload: true,
};

impl SummedCalls {
    /// Returns the evidence, or the status.
    fn evaluated(&self) -> String {
        let task = |thread| ProcessNames::from(&Task::new(7, thread, "ior"));
        let of_threads = |calls: u64| -> Vec<CallShare> {
            let by = |thread, calls| CallShare {
                process: task(thread),
                is_file: self.are_files,
                ..share("a", "m", Operation::Read, calls, 0, 0)
            };
            vec![by(7, calls.saturating_sub(10)), by(8, calls.min(10))]
        };
        let truth = Truth {
            from_ns: 60 * S,
            to_ns: 62 * S,
            threads: if self.are_of_workload { vec![task(7), task(8)] } else { vec![task(7)] },
            phases: vec![("read".to_owned(), of_threads(self.in_phases))],
            phases_ns: S / 10,
            ..truth(of_threads(self.calls))
        };
        let of_reads = figure(&[Operation::Read], CountedUnit::Calls, Whose::Cgroup);
        let histogram = ReportedFigure { value: self.value.to_owned(), ..of_reads };
        let sample = |at_ns, value| (at_ns, 0, Some("a"), value);
        let mut readings = readings(&[sample(60 * S, 0), sample(62 * S, self.counted)]);
        readings.reports = vec![60 * S, 62 * S];
        let buckets = vec![Bucket { least: self.least, up_to: "8191".to_owned(), count: self.counted }];
        readings.distributions =
            vec![Distribution { at_ns: 62 * S, figure: 0, subject: Some("a".to_owned()), buckets }];
        let results = counts(&report(vec![histogram]), &readings, &truth);
        match status(&results, Kind::ImpossibleDurations) {
            FindingStatus::Found { .. } => evidence_of(&results, Kind::ImpossibleDurations),
            other => format!("{other:?}"),
        }
    }
}

#[test]
fn durations_add_up_to_no_more_time_than_the_threads_had() {
    for (impossible, sum, most) in [
        (SummedCalls { least: 4_001, ..POSSIBLE }, 4001, 4000),
        (SummedCalls { least: 201, in_phases: 1_000, ..POSSIBLE }, 201, 200),
        // One call can have lasted from the first to the last report.
        (SummedCalls { least: 2_201, in_phases: 999, ..POSSIBLE }, 2201, 2200),
        (SummedCalls { least: 4_001, in_phases: 1_000, are_files: false, ..POSSIBLE }, 4001, 4000),
    ] {
        let evidence = format!(
            "`usecs.count` of a: 1000 values add up to at least {sum} ms, but the calls took at most {most} ms together"
        );
        assert_eq!(impossible.evaluated(), evidence);
    }
    let long = SummedCalls { least: 5_000, ..POSSIBLE };
    for (possible, why) in [
        (POSSIBLE, "two threads have 4 s within 2 s"),
        (SummedCalls { least: 200, in_phases: 1_000, ..POSSIBLE }, "two threads have 0.2 s in phases"),
        (SummedCalls { least: 2_200, in_phases: 999, ..POSSIBLE }, "one call was outside of phases"),
        (SummedCalls { in_phases: 1_000, are_files: false, ..POSSIBLE }, "threads wait in pipes between phases"),
        (SummedCalls { value: "nsecs.count", ..long }, "another unit"),
        (SummedCalls { are_of_workload: false, ..long }, "one of the threads can have waited since the boot"),
        (SummedCalls { calls: 1_001, ..long }, "the histogram has other calls than the workload made"),
    ] {
        assert_eq!(possible.evaluated(), "Clear", "{why}");
    }
}
