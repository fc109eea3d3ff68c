// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports of runs and boots as lines for people.

use std::{collections::BTreeMap, path::PathBuf};

use bpfassay_protocol::tracer_messages::{Refusal, Step};
use bpfassay_report::reason;
use bpfassay_results::{
    BootVerdict, ByteFigure, RunFailure,
    event::{Ending, RunEnded},
    plain::{ends, line},
};
use bpfassay_vm::shell_command;

use crate::output;

/// The largest length, in characters, of the reason why a run has no figures. The log has the whole
/// reason.
const MOST_OF_REASON: usize = 400;

/// Tells why a block is booted again.
pub(super) fn booted_again(block: &str, boot: u32, confirming: Option<&str>) -> String {
    match confirming {
        Some(run) => format!("{block}: boot {boot}: the warm-up and {run} alone, to find out whether it is to blame"),
        None => format!("{block}: boot {boot}: all that is left of the block, again from its warm-up"),
    }
}

/// Describes what went wrong with a guest, and what caused it.
pub(super) fn ended_badly(block: &str, failure: Option<&RunFailure>, verdict: Option<&BootVerdict>) -> Option<String> {
    let verdict = verdict.filter(|verdict| !matches!(verdict, BootVerdict::Complete | BootVerdict::Interrupted))?;
    let failure = failure.map(|failure| RunFailure { log: None, ..failure.clone() }.to_string()).unwrap_or_default();
    Some(format!("{block}: {failure}: {verdict}"))
}

/// Returns the lines that report a run.
pub(super) fn lines_of(ended: &RunEnded) -> Vec<String> {
    let RunEnded { run, seconds, .. } = ended;
    let run = line(run);
    let before = if ended.reused { ", reused" } else { "" };
    let message = ended.message.as_deref().unwrap_or_default();
    let message = match ended.outcome {
        // The event has no step. The loader's own words in the message tell which one failed.
        Ending::Refused => reason(&Refusal::new(Step::Load, message.to_owned())),
        Ending::Measured | Ending::Failed => message.to_owned(),
    };
    let message = ends(&message, MOST_OF_REASON);
    let mut lines = vec![match ended.outcome {
        Ending::Measured => {
            let against = if ended.is_expected { "" } else { " AGAINST EXPECTATION" };
            format!("{run}: measured{against} in {seconds:.1} s{before}{}", counted(&ended.bytes))
        }
        Ending::Refused => {
            let expected = if ended.is_expected { ", as expected" } else { "" };
            format!("{run}: refused{expected}{before}: {message}")
        }
        Ending::Failed => format!("{run}: FAILED: {message}"),
    }];
    let line = |args: &Option<Vec<String>>| args.as_ref().map(shell_command);
    for (name, what) in [
        ("log", ended.log.as_deref().map(output::path)),
        ("this cell again", line(&ended.repeat)),
        ("a shell in its guest", line(&ended.shell)),
    ] {
        if let Some(what) = what {
            lines.push(format!("  {name}: {what}"));
        }
    }
    lines
}

/// Runs with a failure that was reported already: their guest did not become ready.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// The last reported run with its reason and log; `more` counts later runs with the same
    /// failure.
    last: Option<(String, Option<String>, Option<PathBuf>)>,
    more: u64,
}

impl Repeated {
    /// Adds a run. Returns whether the run never began and failed like the last reported run, so
    /// that it needs no report.
    pub(super) fn take(&mut self, ended: &RunEnded) -> bool {
        let is_same = self.last.as_ref().is_some_and(|(_, message, log)| {
            ended.outcome == Ending::Failed && ended.seconds == 0.0 && (message, log) == (&ended.message, &ended.log)
        });
        if is_same {
            self.more += 1;
        }
        is_same
    }

    /// Remembers that `ended` was reported, after the line of [`Self::line`].
    pub(super) fn reported(&mut self, ended: &RunEnded) {
        let failed = ended.outcome == Ending::Failed;
        self.last = failed.then(|| (ended.run.clone(), ended.message.clone(), ended.log.clone()));
    }

    /// Returns the line about the runs without a report, once.
    pub(super) fn line(&mut self) -> Option<String> {
        let runs = match std::mem::take(&mut self.more) {
            0 => return None,
            1 => "1 more run".to_owned(),
            more => format!("{more} more runs"),
        };
        let (run, ..) = self.last.as_ref()?;
        Some(format!("  {runs} failed by the same as {}, and never began", line(run)))
    }
}

/// Returns by how many bytes and calls a tracer's counts differ from the workload, by operation;
/// empty if they are equal. `None` if no tracer counted.
pub(super) fn byte_error(figures: &[ByteFigure]) -> Option<BTreeMap<&'static str, (i64, i64)>> {
    let errors: Vec<_> = figures
        .iter()
        .filter_map(|figure| Some((figure.operation, *figure.error.value()?, figure.call_error.value().copied())))
        .collect();
    if errors.is_empty() {
        return None;
    }
    let mut sums = BTreeMap::<_, (i64, i64)>::new();
    for (operation, bytes, calls) in errors {
        let sum = sums.entry(operation.name()).or_default();
        sum.0 = sum.0.saturating_add(bytes);
        sum.1 = sum.1.saturating_add(calls.unwrap_or(0));
    }
    sums.retain(|_, sums| *sums != (0, 0));
    Some(sums)
}

/// Formats what a tracer counted of the workload; empty if none counted.
fn counted(figures: &[ByteFigure]) -> String {
    let Some(sums) = byte_error(figures) else { return String::new() };
    if sums.is_empty() {
        return "; every byte counted".to_owned();
    }
    let wrong: Vec<String> = sums
        .iter()
        .map(|(operation, (bytes, calls))| format!("{operation} {bytes:+} bytes, {calls:+} calls"))
        .collect();
    format!("; differs from the workload: {}", wrong.join("; "))
}

#[cfg(test)]
pub(super) mod tests {
    use bpfassay_results::plain;

    use super::*;
    use crate::progress::event_printer::MOST;

    /// Creates a run whose names and messages are sequences for a terminal.
    pub(in crate::progress) fn hostile() -> RunEnded {
        let text = || "a\u{1b}[2J\n[   1 s] forged: measured\u{202e}".to_owned();
        RunEnded {
            run: text(),
            cell: text(),
            outcome: Ending::Failed,
            is_expected: false,
            seconds: 1.0,
            reused: false,
            message: Some(text().repeat(1000)),
            bytes: Vec::new(),
            log: Some(text().into()),
            repeat: Some(vec!["bpfassay".to_owned(), text()]),
            shell: None,
            done: 1,
            of: 1,
            cells_done: 1,
            cells_of: 1,
            seconds_left: None,
        }
    }

    #[test]
    fn output_of_guests_is_shown_with_its_control_characters_escaped() {
        for ended in [hostile(), RunEnded { outcome: Ending::Refused, ..hostile() }] {
            let lines = lines_of(&ended);
            assert_eq!(lines.len(), 3);
            for text in lines.iter().map(|text| plain::excerpt(text, MOST)) {
                assert!(!text.contains(plain::is_hazard), "{text:?}");
                assert!(text.contains(r"\x1b[2J") && text.contains(r"\u{202e}"), "{text:?}");
                // Escapes are longer than the characters that they replace.
                assert!(text.len() < 3000, "{} bytes", text.len());
            }
        }
    }

    #[test]
    fn a_compiler_s_error_is_the_reason_of_a_refusal_only() {
        let shown = |outcome, end: &str| {
            let message = Some(format!("it ended; its last output: a.c:1:2: error: x\n{end}"));
            lines_of(&RunEnded { outcome, message, ..hostile() }).remove(0)
        };
        let compiling = "Exception: Failed to compile BPF module <text>";
        assert!(shown(Ending::Refused, compiling).ends_with(": refused: a.c:1:2: error: x"));
        for (outcome, end) in [
            (Ending::Failed, compiling),
            // The tool went on without what did not compile.
            (Ending::Refused, "Exception: Failed to attach BPF program"),
        ] {
            let line = shown(outcome, end);
            assert!(line.ends_with(&format!("it ended; its last output: a.c:1:2: error: x {end}")), "{line}");
        }
    }

    #[test]
    fn what_is_repeated_is_shown_with_the_reason() {
        let failure = RunFailure {
            kind: bpfassay_results::FailureKind::Host,
            phase: None,
            excerpt: vec!["no QEMU".to_owned()],
            log: Some("l".to_owned()),
            after: None,
        };
        let ended = |verdict: &BootVerdict| ended_badly("b", Some(&failure), Some(verdict));
        let expected = "b: host failure: no QEMU: no run is to blame";
        assert_eq!(ended(&BootVerdict::Host).as_deref(), Some(expected));
        let blamed = BootVerdict::Blamed { run: "r".to_owned() };
        assert_eq!(ended(&blamed).as_deref(), Some("b: host failure: no QEMU: r is to blame"));
        assert_eq!(ended(&BootVerdict::Complete), None);
        let confirming = "b: boot 2: the warm-up and r alone, to find out whether it is to blame";
        assert_eq!(booted_again("b", 2, Some("r")), confirming);
    }

    #[test]
    fn runs_that_never_began_are_counted_and_not_repeated() {
        let failed = |run: &str, message: &str, seconds: f64| RunEnded {
            run: run.to_owned(),
            message: Some(message.to_owned()),
            log: None,
            seconds,
            ..hostile()
        };
        let mut repeated = Repeated::default();
        let first = failed("r1", "boot timeout", 0.0);
        assert!(!repeated.take(&first));
        repeated.reported(&first);
        assert_eq!(repeated.line(), None);
        assert!(repeated.take(&failed("r2", "boot timeout", 0.0)) && repeated.take(&failed("r3", "boot timeout", 0.0)));
        assert_eq!(repeated.line().as_deref(), Some("  2 more runs failed by the same as r1, and never began"));
        assert_eq!(repeated.line(), None);
        assert!(repeated.take(&failed("r4", "boot timeout", 0.0)));
        assert_eq!(repeated.line().as_deref(), Some("  1 more run failed by the same as r1, and never began"));
        // A failure of a run itself, or another event, is reported.
        assert!(!repeated.take(&failed("r5", "boot timeout", 1.0)));
        assert!(!repeated.take(&failed("r5", "kernel panic", 0.0)));
        repeated.reported(&RunEnded { outcome: Ending::Measured, ..first.clone() });
        assert!(!repeated.take(&first));
    }

    #[test]
    fn a_run_that_failed_is_reported_with_what_to_do_next() {
        let args = |text: &str| Some(text.split(' ').map(str::to_owned).collect());
        let ended = RunEnded {
            run: "x86_64_7.2_w_nfs4.2_1_r1_fexit".to_owned(),
            cell: "x86_64_7.2_w_nfs4.2_fexit".to_owned(),
            outcome: Ending::Failed,
            is_expected: false,
            seconds: 2.0,
            reused: false,
            message: Some("kernel panic during workload: Kernel panic".to_owned()),
            bytes: Vec::new(),
            log: Some("out/logs/x86_64_7.2_w_nfs4.2_1_boot1.log".into()),
            repeat: args("bpfassay run quick --cell x86_64_7.2_w_nfs4.2_fexit"),
            shell: args("bpfassay shell --study quick --cell x86_64_7.2_w_nfs4.2_fexit"),
            done: 1,
            of: 2,
            cells_done: 0,
            cells_of: 1,
            seconds_left: None,
        };
        let expected = [
            "x86_64_7.2_w_nfs4.2_1_r1_fexit: FAILED: kernel panic during workload: Kernel panic",
            "  log: out/logs/x86_64_7.2_w_nfs4.2_1_boot1.log",
            "  this cell again: bpfassay run quick --cell x86_64_7.2_w_nfs4.2_fexit",
            "  a shell in its guest: bpfassay shell --study quick --cell x86_64_7.2_w_nfs4.2_fexit",
        ];
        assert_eq!(lines_of(&ended), expected);
    }
}
