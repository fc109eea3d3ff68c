// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text about the results of many trials.

use std::{collections::BTreeMap, fmt::Write};

use crate::trial::{CommandEnd, TrialResult};

/// The introduction of the Markdown page.
const HEAD: &str = "\
# Faults by seed

Each seed draws a fault with its parameters and does it to a study under way: the command and QEMU are real, with their processes, signals,
sockets and files, and the guest's agent and console are played by a script (`crates/bpfassay-chaos`). After every command it is checked
that its exit code is the one that its records mean, that only those runs failed that may, with a kind that fits and a line of evidence,
that all others were measured, each block in one boot with the figures of that boot, that the journal can be read, that nothing printed
makes a terminal do anything, that memory stayed within 256 MiB per guest, and that no process, temporary file, mount, cgroup or shared
memory is left. Then the host is in order again and the study is resumed, with `--again failed` where runs had failed: it must come to the
fingerprint of the study without faults. Whatever of this does not hold is a violation.

Four kinds have files of strangers, or a second command, in place of that: packages and results
whose links and names lead elsewhere (`tree`), bundles (`bundle`), results directories with a link,
a pipe or another name of a file in the place of each file that a run makes (`planted`), and two
commands at once in a step of set-up (`twice`). However these commands end, files of the host beside
them are as they were, none was read into the cache, the results or what is printed, nothing was
made elsewhere, the objects of the cache have the content that their names promise, nothing waits
for ever (after 60 s, a command that does nothing for 20 s is one that waits), and the exit code is
one that is documented for it.
";

/// How many violations of one trial are shown at most.
const MOST: usize = 12;

/// A trial, as one line of output.
#[derive(Debug)]
pub struct TrialLine {
    /// The seed.
    pub seed: u64,
    /// The name of the drawn fault.
    pub fault: &'static str,
    /// The drawn parameters.
    pub parameters: String,
    /// The result.
    pub result: TrialResult,
    /// Duration in seconds.
    pub seconds: f64,
}

impl TrialLine {
    /// Returns one line, with the violations below it.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { seed, fault, parameters, result, seconds } = self;
        let ends: Vec<_> = result.ends.iter().map(|end| ended(*end)).collect();
        let verdict = match (&result.skipped, result.violations.is_empty()) {
            (Some(reason), _) => format!("skipped: {reason}"),
            (None, true) => "ok".to_owned(),
            (None, false) => "VIOLATION".to_owned(),
        };
        let mut text = format!("{seed} {fault} ({parameters}) {verdict} [{}] {seconds:.1}s", ends.join(" "));
        for violation in result.violations.iter().take(MOST) {
            // Formatting into a String does not fail.
            let _ = write!(text, "\n    {violation}");
        }
        if result.violations.len() > MOST {
            let _ = write!(text, "\n    … and {} more", result.violations.len() - MOST);
        }
        text
    }
}

fn ended(end: CommandEnd) -> String {
    match end {
        CommandEnd::Code(code) => code.to_string(),
        CommandEnd::Signal(signal) => format!("signal {signal}"),
        CommandEnd::Never => "never".to_owned(),
    }
}

/// Counts of one fault.
#[derive(Debug, Default)]
struct FaultCounts {
    trials: u32,
    skipped: u32,
    violated: u32,
    ends: BTreeMap<CommandEnd, u32>,
}

/// Counts by fault.
#[derive(Debug, Default)]
pub struct FaultSummary {
    faults: BTreeMap<&'static str, FaultCounts>,
    resumes: u32,
    peak_kib: u64,
}

impl FaultSummary {
    /// Adds `line`.
    pub fn add(&mut self, line: &TrialLine) {
        let counts = self.faults.entry(line.fault).or_default();
        counts.trials += 1;
        counts.skipped += u32::from(line.result.skipped.is_some());
        counts.violated += u32::from(!line.result.violations.is_empty());
        if let Some(end) = line.result.ends.first() {
            *counts.ends.entry(*end).or_default() += 1;
        }
        self.resumes += line.result.resumes;
        self.peak_kib = self.peak_kib.max(line.result.peak_kib);
    }

    /// Returns how many trials had violations.
    #[must_use]
    pub fn violated(&self) -> u32 {
        self.faults.values().map(|counts| counts.violated).sum()
    }

    /// Returns how many trials there were.
    #[must_use]
    pub fn trials(&self) -> u32 {
        self.faults.values().map(|counts| counts.trials).sum()
    }

    /// Returns a Markdown page with an introduction, the results, and a line per fault. `command`
    /// is the command that was run.
    #[must_use]
    pub fn markdown(&self, command: &str) -> String {
        let mut text = format!("{HEAD}\n```sh\n{command}\n```\n\n**{}.**\n\n", self.text());
        text.push_str("| fault | trials | skipped | violations | ends of the first command |\n|---|--:|--:|--:|---|\n");
        for (fault, counts) in &self.faults {
            let ends: Vec<_> = counts.ends.iter().map(|(end, count)| format!("{}: {count}", ended(*end))).collect();
            let FaultCounts { trials, skipped, violated, .. } = counts;
            // Formatting into a String does not fail.
            let _ = writeln!(text, "| {fault} | {trials} | {skipped} | {violated} | {} |", ends.join(", "));
        }
        text
    }

    /// Returns the totals in one sentence.
    #[must_use]
    pub fn text(&self) -> String {
        let skipped: u32 = self.faults.values().map(|counts| counts.skipped).sum();
        format!(
            "{} trials of {} faults: {} violations, {skipped} skipped; {} commands that resumed; at most {} MiB of memory",
            self.trials(),
            self.faults.len(),
            self.violated(),
            self.resumes,
            self.peak_kib >> 10
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_and_trials_are_counted_by_fault() {
        let line = |fault, violations: &[&str], end| TrialLine {
            seed: 7,
            fault,
            parameters: "once".to_owned(),
            result: TrialResult {
                ends: vec![end, CommandEnd::Code(0)],
                resumes: 1,
                violations: violations.iter().map(|&text| text.to_owned()).collect(),
                ..TrialResult::default()
            },
            seconds: 1.0,
        };
        let broken = line("a/b", &["first: lost"; 20], CommandEnd::Signal(9));
        assert!(broken.text().starts_with("7 a/b (once) VIOLATION [signal 9 0] 1.0s\n    first: lost"));
        assert!(broken.text().ends_with("… and 8 more"));
        let mut summary = FaultSummary::default();
        summary.add(&broken);
        summary.add(&line("a/b", &[], CommandEnd::Code(4)));
        summary.add(&line("c/d", &[], CommandEnd::Code(4)));
        assert_eq!((summary.trials(), summary.violated()), (3, 1));
        let page = summary.markdown("chaos --faults 3");
        assert!(page.contains("| a/b | 2 | 0 | 1 | 4: 1, signal 9: 1 |\n| c/d | 1 | 0 | 0 | 4: 1 |"), "{page}");
        assert!(page.contains("3 trials of 2 faults: 1 violations, 0 skipped; 3 commands that resumed"), "{page}");
    }
}
