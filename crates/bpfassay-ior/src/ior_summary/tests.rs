// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

const TWO_TESTS: &[u8] = include_bytes!("../../tests/data/two-tests.json");
const STONEWALLED: &[u8] = include_bytes!("../../tests/data/stonewalled.json");

fn moved(test: &TestSummary) -> Vec<(u32, Access, Option<PhaseBytes>)> {
    test.results.iter().map(|result| (result.repetition, result.access, result.moved)).collect()
}

#[test]
fn a_summary_of_the_real_ior_is_read() {
    let summary = IorSummary::parse(TWO_TESTS).unwrap();
    assert_eq!(summary.version, "4.1.0+dev");
    assert_eq!(summary.tests.len(), 2);
    let test = &summary.tests[1];
    assert_eq!(
        (test.id, test.api.as_str(), test.tasks, test.transfer_size, test.block_size),
        (1, "POSIX", 2, 131_072, 262_144)
    );
    let exact = Some(PhaseBytes { bytes: 524_288, exact: true });
    let expected =
        [(0, Access::Write, exact), (0, Access::Read, exact), (1, Access::Write, exact), (1, Access::Read, exact)];
    assert_eq!(moved(test), expected);
    let first = &summary.tests[0].results[0];
    assert!(first.bw_mib.unwrap() > 0.0 && first.total_s.unwrap() > 0.0);
}

#[test]
fn bytes_of_a_stonewalled_run_are_those_that_were_moved() {
    let summary = IorSummary::parse(STONEWALLED).unwrap();
    let test = &summary.tests[0];
    assert_eq!((test.deadline, test.repetitions), (1, 2));
    // IOR printed 2 × 178 and 2 × 125 transfers of 4 KiB. A complete phase moves 8 MiB.
    let bytes: Vec<_> = test.results.iter().map(|result| result.moved.unwrap()).collect();
    let exact = |bytes| PhaseBytes { bytes, exact: true };
    assert_eq!(bytes, [exact(1_458_176), exact(1_458_176), exact(1_024_000), exact(1_024_000)]);
}

#[test]
fn figures_that_ior_could_not_compute_are_none() {
    let text = String::from_utf8_lossy(TWO_TESTS).replacen("\"iops\": ", "\"iops\": -nan, \"was\": ", 1);
    let text = text.replacen("\"bwMiB\": ", "\"bwMiB\": \"inf\", \"was\": ", 1);
    let summary = IorSummary::parse(text.as_bytes()).unwrap();
    let result = &summary.tests[0].results[0];
    assert_eq!((result.iops, result.bw_mib), (None, None));
    assert_eq!(result.moved, Some(PhaseBytes { bytes: 524_288, exact: true }), "the total of the summary is used");
}

#[test]
fn a_name_in_a_string_is_left_alone() {
    assert_eq!(*without_nan(br#"{"a\"nan": nan, "nan": -nan}"#), *br#"{"a\"nan": null, "nan": null}"#);
    assert_eq!(*without_nan(b"[na, 1]"), *b"[na, 1]");
}

#[test]
fn what_is_not_a_summary_is_refused() {
    assert!(matches!(IorSummary::parse(b" \n"), Err(SummaryError::Empty)));
    assert!(matches!(IorSummary::parse(&vec![b' '; MAX_SUMMARY + 1]), Err(SummaryError::TooLong { .. })));
    assert!(matches!(IorSummary::parse(&TWO_TESTS[..TWO_TESTS.len() / 2]), Err(SummaryError::Json(_))));
    assert!(matches!(IorSummary::parse(b"{}"), Err(SummaryError::Json(_))));
    let text = String::from_utf8_lossy(TWO_TESTS).replace("\"repetitions\": 2", "\"repetitions\": 1");
    let error = IorSummary::parse(text.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "IOR's summary, test 0: more results than the 1 repetitions");
    let text = String::from_utf8_lossy(TWO_TESTS).replace("\"iops\": ", "\"iops\": \"many\", \"was\": ");
    assert!(std::error::Error::source(&IorSummary::parse(text.as_bytes()).unwrap_err()).is_some());
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let _ = IorSummary::parse(&bytes);
    }

    #[test]
    fn a_damaged_summary_is_read_or_refused(at in 0..TWO_TESTS.len(), byte: u8) {
        let mut text = TWO_TESTS.to_vec();
        text[at] = byte;
        let _ = IorSummary::parse(&text);
    }

    #[test]
    fn bytes_are_found_again_from_rounded_figures(
        transfers in 1u64..4096, kib in 1u64..1024, seconds in 0.001f64..20.0
    ) {
        let transfer = kib << 10;
        let bytes = transfers * transfer;
        let round = |value: f64| (value * 1e4).round() / 1e4;
        let bw = round(bytes as f64 / MIB as f64 / seconds);
        if let Some(range) = product(Some(bw), Some(round(seconds))) {
            prop_assert!(contains(range, bytes));
            if let Some(moved) = whole_transfers(range, transfer) && moved.exact {
                prop_assert_eq!(moved.bytes, bytes);
            }
        }
    }
}
