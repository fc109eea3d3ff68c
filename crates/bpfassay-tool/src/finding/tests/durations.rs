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
