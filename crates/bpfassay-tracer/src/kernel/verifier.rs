// SPDX-License-Identifier: MIT OR Apache-2.0
//! The verifier's log of a program that it refuses.

/// Longest line of a log, or message, that is reported, in bytes.
pub(crate) const MAX_LINE: usize = 4096;

/// The line of the verifier's log that has the reason: the last one before its statistics. Linux 7.3 continues after that line with
/// a heading, reason, place, causes and a suggestion in many lines (kernel/bpf/diagnostics.c); where it has only
/// those, the heading has the reason.
pub(crate) fn reason<'a>(log: &[&'a str]) -> Option<&'a str> {
    const STATISTICS: [&str; 4] = ["processed ", "verification time ", "stack depth ", "insns processed "];
    const HEADING: &str = "Verification failed: ";
    let last = |log: &[&'a str]| {
        let mut lines = log.iter().rev().map(|line| line.trim());
        lines.find(|line| !line.is_empty() && !STATISTICS.iter().any(|statistics| line.starts_with(statistics)))
    };
    let Some(heading) = log.iter().rposition(|line| line.starts_with(HEADING)) else { return last(log) };
    // An instruction (`0: (79) r0 = …`) or the state at one (`0: R1=ctx()`) is no reason.
    let is_trace = |line: &str| line.split_once(':').is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    last(&log[..heading]).filter(|line| !is_trace(line)).or(log.get(heading).copied())
}

/// `line`, cut to [`MAX_LINE`] bytes.
pub(crate) fn shorten(line: &str) -> String {
    line[..line.floor_char_boundary(MAX_LINE)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
