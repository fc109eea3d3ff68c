// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verifier's log of a program: the reason for a refusal, and statistics.

use bpfassay_protocol::tool_job::VerifierStatistics;

/// Longest line of a log, or longest message, that is reported, in bytes.
pub(crate) const MAX_LINE: usize = 4096;

/// Returns the line of the verifier's log that contains the reason: the last one before its
/// statistics. Linux 7.3 continues after that line with a heading, reason, place, causes and a
/// suggestion in many lines (kernel/bpf/diagnostics.c). If the log has only those, the heading
/// contains the reason.
pub(crate) fn reason<'a>(log: &[&'a str]) -> Option<&'a str> {
    const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "insns processed "];
    const HEADING: &str = "Verification failed: ";
    let last = |log: &[&'a str]| {
        let mut lines = log.iter().rev().map(|line| line.trim());
        lines.find(|line| !line.is_empty() && !STATISTICS.iter().any(|statistics| line.starts_with(statistics)))
    };
    let Some(heading) = log.iter().rposition(|line| line.starts_with(HEADING)) else { return last(log) };
    // An instruction (`0: (79) r0 = …`) or the state at one (`0: R1=ctx()`) is not a reason.
    let is_trace = |line: &str| line.split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    last(&log[..heading]).filter(|line| !is_trace(line)).or(log.get(heading).copied())
}

/// Returns the statistics in the log of an accepted program; `None` if some of them are missing.
pub(crate) fn statistics(log: &str) -> Option<VerifierStatistics> {
    // `processed 12 insns (limit 1000000) max_states_per_insn 0 total_states 1 peak_states 1
    // mark_read 1`
    let after = |name: &str| log.lines().rev().find_map(|line| word_after(line, name));
    Some(VerifierStatistics {
        instructions: after("processed")?.parse().ok()?,
        total_states: after("total_states")?.parse().ok()?,
        peak_states: after("peak_states")?.parse().ok()?,
        time_us: after("time")?.parse().ok()?,
    })
}

fn word_after<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find(|word| *word == name)?;
    words.next()
}

/// Returns `line`, cut to [`MAX_LINE`] bytes.
pub(crate) fn shorten(line: &str) -> String {
    line[..line.floor_char_boundary(MAX_LINE)].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statistics_are_those_at_the_end_of_the_log() {
        // Debian's 6.12, with `BPF_LOG_STATS` alone.
        let log = "verification time 58 usec
stack depth 16+0
processed 31 insns (limit 1000000) max_states_per_insn 0 total_states 3 peak_states 2 mark_read 1
";
        let expected = VerifierStatistics { instructions: 31, total_states: 3, peak_states: 2, time_us: 58 };
        assert_eq!(statistics(log), Some(expected));
        for part in ["verification time 58 usec", "total_states 3", "peak_states 2", "processed 31"] {
            assert_eq!(statistics(&log.replace(part, "")), None, "{part}");
        }
        assert_eq!(statistics(&log.replace("58", "x")), None);
    }

    proptest! {
        #[test]
        fn any_log_has_statistics_or_none(log in "(processed |time |total_states |peak_states |[0-9]{1,12} |\n|\\PC){0,40}") {
            if let Some(found) = statistics(&log) {
                prop_assert!(log.contains(&found.total_states.to_string()));
            }
        }
    }

    #[test]
    fn the_reason_is_found_before_diagnostics() {
        // Debian's 7.3~rc7, shortened.
        let log = "0: R1=ctx() R10=fp0
0: (bf) r0 = r5
R5 !read_ok

Verification failed: Register Type Safety: Unreadable register

Reason:
  R5 has never been initialized on this path, so the verifier cannot use it as an input.

Suggestion:
  Initialize R5 on every path before this instruction.

processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0";
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(reason(&lines), Some("R5 !read_ok"));
        let alone: Vec<&str> = lines.iter().copied().filter(|line| *line != "R5 !read_ok").collect();
        assert_eq!(reason(&alone), Some("Verification failed: Register Type Safety: Unreadable register"));
    }
}
