// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the figures of IOR's summary against each other: bytes = bandwidth × time.

use bpfassay_ior::{Access, IorSummary, Repetition, TestSummary};

/// Half a unit of the last decimal that IOR prints.
const ROUNDING: f64 = 0.000_05;

/// Tolerance for rounding of doubles in divisions and printing.
const LAST_BITS: f64 = 1e-9;

/// The shortest possible phase in seconds: IOR's clocks have no finer resolution.
const SHORTEST_S: f64 = 1e-9;

const MIB: f64 = 1_048_576.0;

/// Checks that the figures in `summary` are consistent.
///
/// # Errors
/// Names the contradiction.
pub(super) fn check(summary: &IorSummary) -> Result<(), String> {
    for test in &summary.tests {
        of_test(test).map_err(|what| format!("IOR's summary, test {}: {what}", test.id))?;
    }
    Ok(())
}

fn of_test(test: &TestSummary) -> Result<(), String> {
    for (access, name) in [(Access::Write, "write"), (Access::Read, "read")] {
        let results = || test.results.iter().filter(|result| result.access == access);
        for result in results() {
            of_repetition(result).map_err(|what| format!("{name} of repetition {}: {what}", result.repetition))?;
        }
        let (done, asked) = (results().count(), test.repetitions as usize);
        if done > 0 && done < asked {
            return Err(format!("{name} has {done} of {asked} repetitions"));
        }
    }
    Ok(())
}

fn of_repetition(result: &Repetition) -> Result<(), String> {
    let named = [
        ("bandwidth", result.bw_mib),
        ("time", result.total_s),
        ("time to open", result.open_s),
        ("time of transfers", result.transfer_s),
        ("time to close", result.close_s),
    ];
    if let Some((name, value)) = named.into_iter().find_map(|(name, value)| Some((name, value.filter(|v| *v < 0.0)?))) {
        return Err(format!("a {name} of {value}"));
    }
    let (Some(bandwidth), Some(total)) = (result.bw_mib, result.total_s) else { return Ok(()) };
    let Some(bytes) = result.moved.filter(|moved| moved.exact).map(|moved| moved.bytes) else { return Ok(()) };
    let mib = bytes as f64 / MIB;
    let low = (bandwidth - ROUNDING).max(0.0) * (total - ROUNDING).max(0.0) * (1.0 - LAST_BITS);
    let high = (bandwidth + ROUNDING) * (total + ROUNDING) * (1.0 + LAST_BITS);
    if !(low <= mib && mib <= high) {
        return Err(format!("{bandwidth} MiB/s in {total} s are not {mib} MiB"));
    }
    if bandwidth > 0.0 && bytes > 0 && mib / bandwidth < SHORTEST_S {
        return Err(format!("{mib} MiB at {bandwidth} MiB/s take less time than a clock can tell"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(bandwidth: &str, total: &str, size: &str, repetitions: u32) -> String {
        format!(
            r#"{{"Version": "4.1.0", "Command line": "ior", "tests": [{{"TestID": 0, "Parameters": {{"api": "POSIX",
            "deadlineForStonewall": 0, "repetitions": {repetitions}, "segmentCount": 1, "transferSize": 262144,
            "blockSize": 1048576}}, "Options": {{"tasks": 1}}, "Results": [{{"access": "write", "bwMiB": {bandwidth},
            "iops": 1, "latency": 0.0001, "openTime": 0.0001, "wrRdTime": {total}, "closeTime": 0.0001,
            "totalTime": {total}}}]}}], "summary": [{{"operation": "write", "TestID": 0, "xsizeMiB": {size}}}]}}"#
        )
    }

    fn checked(bandwidth: &str, total: &str, size: &str, repetitions: u32) -> Result<(), String> {
        check(&IorSummary::parse(summary(bandwidth, total, size, repetitions).as_bytes()).unwrap())
    }

    #[test]
    fn figures_that_agree_within_rounding_are_taken() {
        for (bandwidth, total, size) in [
            ("100.0", "0.0100", "1.0"),
            ("99.6", "0.0100", "1.0"),
            ("30000.0", "0.0000", "1.0"),
            ("nan", "0.0100", "1.0"),
            ("100.0", "0.0100", "nan"),
        ] {
            assert_eq!(checked(bandwidth, total, size, 1), Ok(()), "{bandwidth} MiB/s, {total} s, {size} MiB");
        }
    }

    #[test]
    fn figures_that_contradict_each_other_are_refused() {
        for (bandwidth, total, size, what) in [
            ("1000.0", "0.0100", "1.0", "1000 MiB/s in 0.01 s are not 1 MiB"),
            ("100.0", "0.0100", "2.0", "100 MiB/s in 0.01 s are not 2 MiB"),
            ("100.0", "0.0100", "0.0", "100 MiB/s in 0.01 s are not 0 MiB"),
            ("0.0", "0.0100", "1.0", "0 MiB/s in 0.01 s are not 1 MiB"),
            ("-100.0", "-0.0100", "1.0", "a bandwidth of -100"),
            ("100.0", "-0.0100", "1.0", "a time of -0.01"),
            ("1e308", "0.0000", "1.0", "take less time than a clock can tell"),
        ] {
            let found = checked(bandwidth, total, size, 1).unwrap_err();
            assert!(
                found.starts_with("IOR's summary, test 0: write of repetition 0: ") && found.contains(what),
                "{found}"
            );
        }
    }

    #[test]
    fn every_repetition_has_to_be_there() {
        let found = checked("100.0", "0.0100", "1.0", 3).unwrap_err();
        assert_eq!(found, "IOR's summary, test 0: write has 1 of 3 repetitions");
    }
}
