// SPDX-License-Identifier: MIT OR Apache-2.0
//! Snapshots of the tables.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{cell::Cell, collections::BTreeMap};

use bpfassay_protocol::{
    Arch,
    finding_name::{Finding, Pitfall},
    message::{Phase, PhaseActivity, WarmUp},
    probe::Probe,
};
use bpfassay_report::{
    derive,
    render::{Style, html, markdown, text},
};
use bpfassay_results::{FailureKind, JournalContents, JournalEntry, Outcome, RunFailure, journal::Torn};
use bpfassay_study::{Available, Block, Narrowing, expand};

use crate::common::{contents, outcome, study};

fn whole() -> JournalContents {
    contents(&study(None, 3, 1), outcome)
}

#[test]
fn plain_text() {
    insta::assert_snapshot!(text(&derive(&whole()), Style::default()));
}

#[test]
fn text_for_a_terminal() {
    insta::assert_snapshot!(text(&derive(&whole()), Style { width: Some(120) }));
}

#[test]
fn markdown_for_the_readme() {
    insta::assert_snapshot!(markdown(&derive(&whole())));
}

#[test]
fn sampled_and_over_boots() {
    insta::assert_snapshot!(text(&derive(&contents(&study(Some("2s"), 1, 2), outcome)), Style::default()));
}

#[test]
fn an_unfinished_journal_shows_what_is_missing() {
    let mut contents = whole();
    let runs = |entry: &JournalEntry| matches!(entry, JournalEntry::Run(_));
    let first_run = contents.entries.iter().position(runs).unwrap();
    contents.entries.truncate(first_run + 5);
    insta::assert_snapshot!(text(&derive(&contents), Style::default()));
}

#[test]
fn doubts_are_reported() {
    let contents = contents(&study(None, 1, 1), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if !run.spec.probe.is_baseline() => {
            let sample = figures.whole.after.tracer.as_mut().unwrap();
            sample.losses.recursion_misses = Some(3);
            figures.phases[0].interval.after.mountstats.as_mut().unwrap().normal_written -= 1;
            figures.tracer.as_mut().unwrap().programs[1].jited_bytes = 0;
            figures.tracer.as_mut().unwrap().programs[0].attached_to = "vfs_read+\u{1b}[31m".to_owned();
            Outcome::Measured(figures)
        }
        other => other,
    });
    let narrowing = Narrowing { archs: vec![Arch::X86_64], ..Narrowing::default() };
    let plan = expand(&study(None, 1, 1), &narrowing, &Available::default()).unwrap();
    let kept = |block: &str| plan.blocks.iter().any(|known| known.id == block);
    let entries = contents
        .entries
        .into_iter()
        .filter(|entry| matches!(entry, JournalEntry::Run(run) if kept(&run.block)))
        .collect();
    let contents = JournalContents {
        header: crate::common::header(plan),
        entries,
        torn: Some(Torn { line: 9, bytes: 7 }),
        digest: None,
    };
    let shown = text(&derive(&contents), Style::default());
    insta::assert_snapshot!(shown);
    assert!(!shown.contains('\u{1b}'), "a terminal must not obey what a guest wrote");
}

#[test]
fn a_run_in_which_the_kernel_did_something_else_is_named() {
    let activity = |commits: u64, context_switches: u64| PhaseActivity {
        rpcs: Some(BTreeMap::from([("WRITE".to_owned(), 64), ("COMMIT".to_owned(), commits)])),
        page_allocations: Some(49_000 + commits),
        context_switches: Some(context_switches),
        softirqs: None,
    };
    let of = |rounds| {
        let contents = contents(&study(None, rounds, 1), |block, run| match outcome(block, run) {
            Outcome::Measured(mut figures) => {
                let is_other = run.round == 2 && run.spec.probe.is_baseline() && !run.control;
                let is_other = is_other && block.target.arch == Arch::X86_64;
                figures.phases[0].activity =
                    Some(if is_other { activity(2, 560) } else { activity(1, 520 + u64::from(run.round)) });
                Outcome::Measured(figures)
            }
            other => other,
        });
        let shown = text(&derive(&contents), Style::default());
        shown.lines().filter(|line| line.contains("of the measurement")).map(str::to_owned).collect::<Vec<_>>()
    };
    // Two rounds are enough: the control and the probes' runs do the same work.
    let lines = of(2);
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert!(
        line.contains(
            ", write: not as in the other runs of its boot, which is of the measurement and not of the tool: "
        ),
        "{line}"
    );
    assert!(line.ends_with("RPCs COMMIT 2 (usually 1), context switches 560 (usually 522)"), "{line}");
    // The round is missing.
    assert_eq!(of(1), [""; 0]);
}

#[test]
fn a_warm_up_that_did_not_become_steady_is_named() {
    let of = |is_steady| {
        let contents = contents(&study(None, 2, 1), |block, run| match outcome(block, run) {
            Outcome::Measured(mut figures) => {
                let is_first = run.round == 1 && run.spec.probe.is_baseline() && !run.control;
                let durations_ns = vec![vec![7, 9]; 10];
                figures.warm_up = is_first.then_some(WarmUp { is_steady, durations_ns });
                Outcome::Measured(figures)
            }
            other => other,
        });
        let shown = text(&derive(&contents), Style::default());
        shown.lines().filter(|line| line.contains("was not steady after 10 warm-up runs")).count()
    };
    // There is one line for each target.
    assert_eq!((of(false), of(true)), (3, 0));
}

#[test]
fn pitfalls_are_shown_by_target_and_configuration() {
    let finding = |pitfall, subject: &str, detail: &str| Finding {
        pitfall,
        subject: subject.to_owned(),
        detail: detail.to_owned(),
    };
    let skipped = Cell::new(0);
    let contents = contents(&study(None, 2, 1), |block, run| match outcome(block, run) {
        Outcome::Measured(mut figures) if run.spec.probe.probe == Probe::Fexit => {
            let shared = finding(Pitfall::FunctionShared, "vfs_read", "hooked already: 1 kprobe");
            figures.tracer.as_mut().unwrap().findings = vec![shared];
            skipped.set(skipped.get() + 1);
            let detail = format!("{} runs on vfs_read were skipped", skipped.get());
            figures.ended.as_mut().unwrap().findings = vec![finding(Pitfall::RecursionMisses, "read_exit", &detail)];
            Outcome::Measured(figures)
        }
        Outcome::Refused(mut refusal) => {
            refusal.findings = vec![finding(Pitfall::SymbolMissing, "vfs_read|x", "no such symbol")];
            Outcome::Refused(refusal)
        }
        other => other,
    });
    let results = derive(&contents);
    let shown = text(&results, Style { width: Some(90) });
    let (_, table) = shown.split_once("pitfalls that the tracer found").unwrap();
    insta::assert_snapshot!(table);
    let shown = markdown(&results);
    let (_, table) = shown.split_once("pitfalls that the tracer found").unwrap();
    assert!(table.contains("function-shared | vfs\\_read | 2 of 2 | \\[2\\]"), "{table}");
    assert!(table.contains("vfs\\_read\\|x"), "{table}");
}

#[test]
fn surprises_are_loud() {
    // aarch64 attaches although a refusal was expected, and x86_64 refuses with an unexpected
    // error.
    let contents = contents(&study(None, 2, 1), |block, run| {
        match (block.target.arch.name(), run.spec.probe.to_string().as_str()) {
            ("aarch64", "fexit") => Outcome::Measured(Box::new(crate::common::figures(run.spec.probe, 150.0, 300.0))),
            ("x86_64", "fexit") => {
                let mut refusal = crate::common::not_supported();
                refusal.errno = Some(22);
                refusal.message = "cannot load on_read: Invalid argument | `x`".to_owned();
                refusal.verifier = Some("R1 invalid mem access 'scalar'".to_owned());
                Outcome::Refused(refusal)
            }
            ("x86_64", "kprobe") if run.round == 2 => Outcome::Refused(crate::common::not_supported()),
            _ => outcome(block, run),
        }
    });
    let results = derive(&contents);
    insta::assert_snapshot!(text(&results, Style::default()));
    assert!(
        markdown(&results).contains(r"Invalid argument \| \`x\`"),
        "markup of a message must not become markup of the table"
    );
}

#[test]
fn byte_errors_of_mapped_files_are_explained() {
    let shown = |options: &str| {
        text(&derive(&contents(&crate::common::study_of(options, None, 1, 1), outcome)), Style::default())
            .contains("MMAP: no system call moves mapped pages")
    };
    assert!(shown("-a MMAP -w -r -t 256k -b 8m"));
    assert!(!shown("-a POSIX -w -r -t 256k -b 8m"));
}

#[test]
fn a_kernel_that_does_not_boot_is_one_remark_and_a_record_for_each_run() {
    let never_ready = |block: &Block| RunFailure {
        kind: FailureKind::BootTimeout,
        phase: Some(Phase::Boot),
        excerpt: vec!["no sign of life within 60 s; no tool had run, and boot 1 ended in the same way".to_owned()],
        log: Some(format!("logs/{}_boot2.log", block.id)),
        after: None,
    };
    let contents = contents(&study(None, 3, 2), |block, run| match block.target.arch {
        Arch::Riscv64 => Outcome::Failed(never_ready(block)),
        _ => outcome(block, run),
    });
    let results = derive(&contents);
    let failed = results.cells.iter().flat_map(|cell| &cell.failures).count();
    assert!(failed > 10, "{failed}");
    let expected = format!("and {} more runs", failed - 1);
    // The matrix has a remark of its own, and a page also lists failures with excerpts of logs.
    let shown = [
        (text(&results, Style::default()), 1, 1),
        (markdown(&results).replace('\\', ""), 2, 1),
        (html(&results).unwrap(), 3, 2),
    ];
    for (text, times, listed) in shown {
        assert_eq!(text.matches("no sign of life within 60 s").count(), times, "{text}");
        assert_eq!(text.matches(&expected).count(), listed, "{expected}: {text}");
    }
    let plain = text(&results, Style::default());
    assert!(plain.contains("kprobe   FAILED: boot timeout [2] "), "{plain}");
    assert!(plain.contains("[2] riscv64_6.12_"), "{plain}");
}
