// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel skips probes.

use crate::{
    file::{CountedUnit, ReportedFigure},
    finding::{
        certainty::Certainty,
        definition::{Definition, KindInputs},
        evidence::KernelFacts,
        finding_comparison::{ComparedFigure, NumberComparison, shown},
        finding_figures::{Differences, EvidenceTally},
        finding_source::{KindSources, Source},
        status::FindingStatus,
    },
};

pub(super) const FINDING: Definition = Definition {
    name: "missed-probes",
    explanation: "The kernel skipped probes: kprobe misses, or programs that it skips while a program or an operation on a map runs on the CPU. Found by the figures, too, where one of calls is right, and another of the same calls is too low. Not evaluated where the kernel does not report misses of every program: those of perf events, those of kprobes and tracepoints before Linux 6.7, those of fentry and fexit before 5.12, those of kprobes that are attached without a link (bpftrace, bcc), and those of programs of other types.",
    sources: KindSources::Of(&[Source::Programs, Source::Links, Source::ProgramMisses, Source::ProbeHits]),
    clear: "the kernel counts the misses of each of its programs, and counted none",
    explain: Some(explain),
    evaluate,
};

/// Program types in include/uapi/linux/bpf.h that `trace_call_bpf` runs.
const KPROBE: u32 = 2;
const TRACEPOINT: u32 = 5;
/// The program type in include/uapi/linux/bpf.h that `bpf_overflow_handler` runs.
const PERF_EVENT: u32 = 7;
/// Program types that `__bpf_trace_run` runs.
const RAW_TRACEPOINTS: [u32; 2] = [17, 24];
/// Program types that a trampoline runs.
const TRACING: u32 = 26;
const LSM: u32 = 29;
/// Program types of which the kernel counts how often it skips programs.
const COUNTED: [u32; 6] = [KPROBE, TRACEPOINT, RAW_TRACEPOINTS[0], RAW_TRACEPOINTS[1], TRACING, LSM];

/// Finds calls that one figure counts completely and another figure of the same calls does not.
fn explain(tally: &mut EvidenceTally, differences: &mut Differences<'_>) {
    let Differences { report, readings, truth, figure, index, comparisons, .. } = differences;
    if !matches!(figure.unit, CountedUnit::Calls | CountedUnit::Successes)
        || comparisons.iter().all(|one| !is_less(one))
    {
        return;
    }
    for other in ComparedFigure::all(report, readings, truth) {
        let counts = &other.figure;
        let calls = |one: &ReportedFigure| (one.unit, one.counted(), one.whose);
        let is_same = calls(counts) == calls(figure);
        let (true, Ok((all, _))) = (is_same && other.index != *index, &other.compared) else { continue };
        for one in comparisons.iter().filter(|one| is_less(one)) {
            let is_right =
                |all: &&NumberComparison<'_>| all.subject.names == one.subject.names && all.may_be(all.reported);
            if let Some(right) = all.iter().find(is_right) {
                let text = format!("{}; `{}` has {}", shown(figure, one), counts.name(), right.reported);
                tally.evidence.push(Certainty::Fitting.line(text));
            }
        }
    }
}

/// Whether the figure has some calls, but fewer than happened.
fn is_less(one: &NumberComparison<'_>) -> bool {
    one.reported > 0 && one.negative().is_none() && one.reported.saturating_add(one.slack) < one.at_least
}

fn evaluate(known: &KindInputs<'_>) -> FindingStatus {
    let counts = [
        (known.fact(|facts| facts.missed_probes), "kprobe hits that ran no handler"),
        (
            known.fact(|facts| facts.recursion_misses),
            "program runs that were skipped, because a program or an operation on a map was already running on the CPU",
        ),
    ];
    let some = counts.into_iter().filter_map(|(count, what)| Some((count.filter(|&count| count > 0)?, what)));
    let mut lines = Certainty::Reported.lines(some.map(|(count, what)| format!("{what}: {count}")));
    let facts = known.evidence.kernel;
    if facts.is_some_and(|facts| facts.programs.contains(&KPROBE)) {
        lines.extend(known.tally().map(|tally| tally.evidence).unwrap_or_default());
    }
    if !lines.is_empty() {
        return FindingStatus::from_lines(lines);
    }
    match facts.map(unanswered) {
        None => FindingStatus::not_evaluated("the kernel does not report missed probes"),
        Some(Some(reason)) => FindingStatus::not_evaluated(reason),
        Some(None) => FindingStatus::Clear,
    }
}

/// Names the source that does not answer for a program; `None` if all answer.
///
/// Sources: `bpf_trampoline_enter` counts since Linux 5.12 (9ed9e9ba2337), `__bpf_trace_run` skips
/// and counts since 6.1 (05b24ff9b2cf), `trace_call_bpf` and links count since 6.7 (dd8657894c11).
/// `trace_call_bpf` also skips programs while an operation on a map runs on the CPU
/// (`bpf_disable_instrumentation`). `bpf_overflow_handler` skips in the same cases, and counts
/// nothing.
fn unanswered(facts: &KernelFacts) -> Option<&'static str> {
    let has = |types: &[u32]| facts.programs.iter().any(|of| types.contains(of));
    // A kernel that counts missed hits of links also counts those of programs.
    let counts_all = facts.missed_probes.is_some() || facts.kernel.is_some_and(|kernel| kernel >= (6, 7));
    let is_counted = facts.recursion_misses.is_some();
    let links = facts.links.and_then(|links| usize::try_from(links).ok()).unwrap_or(0);
    if facts.programs.is_empty() {
        Some("no BPF program of it is known")
    } else if has(&[PERF_EVENT]) {
        Some("the kernel does not count how often programs on perf events are skipped")
    } else if has(&[KPROBE, TRACEPOINT]) && !(counts_all && is_counted) {
        Some("before Linux 6.7, the kernel does not count how often programs on kprobes and tracepoints are skipped")
    } else if has(&[KPROBE]) && (facts.missed_probes.is_none() || links < facts.programs.len()) {
        // It is unknown which program a link belongs to.
        Some("the kernel reports missed hits only of kprobes that are attached by links")
    } else if has(&[TRACING, LSM]) && !is_counted {
        Some("before Linux 5.12, the kernel does not count how often programs are skipped")
    } else if has(&RAW_TRACEPOINTS) && !is_counted && facts.kernel.is_none_or(|kernel| kernel >= (6, 1)) {
        Some("the kernel does not count how often programs on raw tracepoints are skipped")
    } else if !facts.programs.iter().all(|of| COUNTED.contains(of)) {
        Some("whether the kernel counts how often programs of such types are skipped is not known")
    } else {
        None
    }
}
