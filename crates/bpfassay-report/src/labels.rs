// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts of figures and outcomes for tables and messages.

use bpfassay_protocol::{
    compiler_error::first_compiler_error,
    tracer_messages::{Losses, Refusal, Step},
};
use bpfassay_stats::{Bounds, Estimate, Interval, Summary, Verdict};
use bpfassay_tool::finding::Start;

use crate::tool_start::step::started;
use bpfassay_results::{ByteErrors, CellMetric, Cost, Direct, Figure, Overhead};

/// The text for a figure that does not exist; the remarks give the reason.
pub(crate) const NONE: &str = "not measured";

pub(crate) const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Inconclusive => "inconclusive",
        Verdict::Regression => "regression",
    }
}

/// Formats a number with four significant digits, at most three of them after the point.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

pub(crate) fn performance(figure: &Figure<Summary>) -> Option<String> {
    figure.value().map(|summary| number(summary.center()))
}

/// Formats the overhead of `metric`, for the baseline its A/A control: `1.049 [1.048, 1.051] ~`,
/// `within noise [0.998, 1.001]`.
pub(crate) fn overhead(metric: &CellMetric, is_baseline: bool) -> Option<String> {
    with_marks(metric, is_baseline, RATIO)
}

/// Formats an overhead with more digits: `1.0192 [1.0190, 1.0194] ~`.
pub(crate) fn overhead_finely(metric: &CellMetric, is_baseline: bool) -> Option<String> {
    with_marks(metric, is_baseline, RATIO_FINELY)
}

/// The text for an overhead that is not distinguishable from noise.
pub(crate) const WITHIN_NOISE: &str = "within noise";

fn with_marks(metric: &CellMetric, is_baseline: bool, digits: usize) -> Option<String> {
    let overhead = metric.compared(is_baseline).value()?;
    let negligible = if overhead.negligible == Some(true) { ", negligible" } else { "" };
    let pooled = if overhead.pooled.is_some() { " ~" } else { "" };
    if is_baseline {
        return Some(format!("A/A {}{pooled}{negligible}", with_interval(&overhead.estimate, digits)));
    }
    Some(match metric.is_within_noise() {
        true => {
            let words = if leaves_open(overhead) { NOT_KNOWN } else { WITHIN_NOISE };
            format!("{words}{}{pooled}{negligible}", interval(&overhead.estimate, digits))
        }
        // A change in per cent would look like a finding.
        false if overhead.estimate.bounds.interval().is_none() => {
            format!("{}, no interval{negligible}", with_interval(&overhead.estimate, digits))
        }
        false => {
            let percent = percent(overhead.estimate.value, digits.saturating_sub(2));
            format!("{}{pooled} {percent}{negligible}", with_interval(&overhead.estimate, digits))
        }
    })
}

/// The text for a figure that the spread of the runs leaves open.
pub(crate) const NOT_KNOWN: &str = "not known";

/// A detectable overhead beyond this ratio is useless: such an overhead would double the time of a
/// workload.
const BEYOND: f64 = 2.0;

fn is_beyond(detectable: f64) -> bool {
    // NaN counts as not known.
    detectable.is_nan() || detectable > BEYOND
}

/// Whether the observations are so few, or spread so widely, that they would hardly show any
/// overhead. An overhead within their noise is then not known.
pub(crate) fn leaves_open(overhead: &Overhead) -> bool {
    overhead.detectable.is_some_and(is_beyond)
}

/// Formats the smallest detectable overhead in per cent: `0.13%`; `not known` above 100%.
pub(crate) fn detectable(ratio: f64) -> String {
    if is_beyond(ratio) { NOT_KNOWN.to_owned() } else { beyond_one(ratio) }
}

/// Formats a ratio as a change with `digits` digits after the point: `+1.3%`, `-0.2%`, `0.0%`.
pub(crate) fn percent(ratio: f64, digits: usize) -> String {
    let text = format!("{:+.digits$}", (ratio - 1.0) * 100.0);
    let is_zero = text.chars().all(|c| matches!(c, '+' | '-' | '.' | '0'));
    format!("{}%", if is_zero { text.trim_start_matches(['+', '-']) } else { &text })
}

/// Formats how far a ratio exceeds 1, in per cent: `0.13%`.
pub(crate) fn beyond_one(ratio: f64) -> String {
    let percent = (ratio - 1.0) * 100.0;
    if percent < 10.0 { format!("{percent:.2}%") } else { format!("{percent:.0}%") }
}

/// Digits of a ratio after the point.
const RATIO: usize = 3;
/// Digits of changes and overheads of calls after the point.
const RATIO_FINELY: usize = 4;

fn with_interval(estimate: &Estimate, digits: usize) -> String {
    format!("{:.digits$}{}", estimate.value, interval(estimate, digits))
}

/// Formats ` [1.048, 1.051]`; empty without an interval.
fn interval(estimate: &Estimate, digits: usize) -> String {
    let of = |interval: Interval| format!(" [{:.digits$}, {:.digits$}]", interval.lower, interval.upper);
    estimate.bounds.interval().map(of).unwrap_or_default()
}

/// Formats a ratio: `1.049 [1.048, 1.051]`, or `1.049` without an interval.
pub(crate) fn ratio(estimate: &Estimate) -> String {
    with_interval(estimate, RATIO)
}

/// Formats a small ratio, such as a change or an overhead of calls: `1.0051 [1.0050, 1.0052]`, or
/// `1.0051` without an interval.
pub(crate) fn ratio_finely(estimate: &Estimate) -> String {
    with_interval(estimate, RATIO_FINELY)
}

/// Formats a change: `1.0051 [1.0050, 1.0052] +0.51%`.
pub(crate) fn change(estimate: &Estimate) -> String {
    format!("{} {}", ratio_finely(estimate), percent(estimate.value, RATIO_FINELY - 2))
}

/// An interval that contains 0 and is wider than this to either side leaves a cost open, in
/// instructions per call.
pub(crate) const OPEN_COST: f64 = 10_000.0;

/// Whether a cost is known: its interval does not contain 0, or is not wider than twice
/// [`OPEN_COST`].
pub(crate) fn is_known(cost: &Cost) -> bool {
    let is_open = |interval: Interval| {
        interval.lower < 0.0 && interval.upper > 0.0 && interval.upper - interval.lower > 2.0 * OPEN_COST
    };
    !cost.shown().bounds.interval().is_some_and(is_open)
}

/// Formats a cost in instructions: `548.5 [547.9, 549.1]`, or `548.5` without an interval. ` ~`
/// follows if the interval includes more than its own spread. The text is `not known` if the
/// interval leaves the cost open.
pub(crate) fn cost(cost: &Cost) -> String {
    if !is_known(cost) {
        return NOT_KNOWN.to_owned();
    }
    let pooled = if cost.pooled.is_some() { " ~" } else { "" };
    format!("{}{pooled}", with_interval(cost.shown(), 1))
}

/// Formats a direct cost, smallest to largest over the runs: `341.4`, `506.0..506.6`, `0`.
pub(crate) fn direct(direct: &Direct) -> String {
    if direct.per_call.max == 0.0 {
        return "0".to_owned();
    }
    let (min, max) = (format!("{:.1}", direct.per_call.min), format!("{:.1}", direct.per_call.max));
    if min == max { min } else { format!("{min}..{max}") }
}

pub(crate) fn relative_error(figure: &Figure<Summary>) -> Option<String> {
    figure.value().map(|summary| format!("{:.4}", summary.center()))
}

/// Formats byte errors: `0`, `+4096`, `-8..+16`, with a mark if not all runs were compared.
pub(crate) fn byte_error(figure: &Figure<ByteErrors>) -> Option<String> {
    let errors = figure.value()?;
    let range = if errors.min == errors.max {
        signed(errors.min)
    } else {
        format!("{}..{}", signed(errors.min), signed(errors.max))
    };
    Some(match errors.not_measured {
        0 => range,
        missing => format!("{range} ({missing} of {} not measured)", errors.intervals.saturating_add(missing)),
    })
}

fn signed(value: i64) -> String {
    if value == 0 { "0".to_owned() } else { format!("{value:+}") }
}

/// Whether a tracer's counts miss events of the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MissingEvents {
    /// The counts miss some bytes or calls of the workload.
    Some,
    /// The counts have every byte and call of the workload.
    None,
    /// It is not known whether the counts miss events.
    NotKnown,
}

/// Formats skipped programs: `programs skipped 8 times, no byte missing`. The kernel counts a
/// skipped program even if a copy of the program ran instead. The bytes show whether events were
/// lost.
pub(crate) fn skipped(losses: &Losses, missing: MissingEvents) -> Option<String> {
    let times = match losses.recursion_misses? {
        0 => return None,
        1 => "once".to_owned(),
        many => format!("{many} times"),
    };
    let what = match missing {
        MissingEvents::Some => "bytes or calls are missing",
        MissingEvents::None => "no byte missing",
        MissingEvents::NotKnown => "whether events were lost is not known",
    };
    Some(format!("programs skipped {times}, {what}"))
}

/// Formats losses: `3 dropped events, 1 missed probe hits`; `None` if nothing is known to be lost.
/// [`skipped`] formats skipped programs.
pub(crate) fn losses(losses: &Losses) -> Option<String> {
    let lost: Vec<String> = [
        (losses.missed_probes, "missed probe hits"),
        (losses.map_insert_failures, "failed map inserts"),
        (losses.lru_evictions, "evicted keys"),
        (losses.ring_buffer_drops, "dropped events"),
    ]
    .into_iter()
    .filter_map(|(count, what)| count.filter(|&count| count > 0).map(|count| format!("{count} {what}")))
    .collect();
    (!lost.is_empty()).then(|| lost.join(", "))
}

/// Formats losses with their scope: `events lost by the tracer, in the whole guest: 3 dropped
/// events`. The kernel counts them per program over the whole guest; the bytes show whether they
/// include the workload's events.
pub(crate) fn lost(losses: &Losses, missing: MissingEvents) -> Option<String> {
    let lost = self::losses(losses)?;
    Some(match missing {
        MissingEvents::None => format!("{lost} elsewhere in the guest, no byte of the workload missing"),
        MissingEvents::Some | MissingEvents::NotKnown => {
            format!("events lost by the tracer, in the whole guest: {lost}")
        }
    })
}

/// Whether it is known which step failed. If not, nothing shows that the kernel refused the tool.
pub(crate) fn is_step_known(refusal: &Refusal) -> bool {
    matches!(started(refusal), Start::Refused(_))
}

/// Formats a refusal: `attach: errno 524`. If a tool has its own loader, the text has the step that
/// the loader's messages name, and the verifier's reason if they have it. The text is `start: …` if
/// they name no step.
pub(crate) fn refusal(refusal: &Refusal) -> String {
    let known = match started(refusal) {
        Start::Refused(known) => known,
        Start::Ready | Start::Running { .. } | Start::Unattached { .. } | Start::NotReady(_) => {
            return format!("start: {}", shortened(&refusal.message));
        }
    };
    let step = match known.step {
        Step::Open => "open",
        Step::Load => "load",
        Step::Attach => "attach",
    };
    match refusal.errno {
        Some(errno) => format!("{step}: errno {errno}"),
        None => {
            let reason = known.verifier.filter(|_| refusal.verifier.is_none());
            format!("{step}: {}", shortened(&reason.unwrap_or(known.message)))
        }
    }
}

/// Returns what the tool or its loader printed, with the reason in it repeated at the start.
pub(crate) fn printed(refusal: &Refusal) -> String {
    match started(refusal) {
        Start::Refused(known) => known.message,
        Start::Ready | Start::Running { .. } | Start::Unattached { .. } | Start::NotReady(_) => refusal.message.clone(),
    }
}

/// Returns why a tool was refused: the first error of a compiler if compiling is the step that
/// failed, or else what the tool or its loader printed.
#[must_use]
pub fn reason(refusal: &Refusal) -> String {
    let printed = printed(refusal);
    // The error is at the start only if the compiler refused the tool.
    match first_compiler_error(&refusal.message).filter(|error| printed.starts_with(error)) {
        Some(error) => error.to_owned(),
        None => printed,
    }
}

/// Shortens a text that a tool may have written; a remark has the whole text.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    let clause = line.split(';').next().unwrap_or_default();
    if clause.chars().count() <= LONGEST {
        return if clause.len() < text.len() { format!("{clause} …") } else { clause.to_owned() };
    }
    clause.chars().take(LONGEST).chain(" …".chars()).collect()
}

/// Tells why some of these overheads have no interval, one line for each reason.
pub(crate) fn why_no_intervals<'a>(overheads: impl Iterator<Item = &'a Overhead>) -> Vec<String> {
    let bounds: Vec<Bounds> = overheads.map(|overhead| overhead.estimate.bounds).collect();
    let reasons = [Bounds::OneObservation, Bounds::NoSpread].into_iter().filter(|reason| bounds.contains(reason));
    reasons.filter_map(|reason| Some(format!("no interval: {}.", reason.reason()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_of_tools_are_shortened() {
        assert_eq!(shortened("no such function"), "no such function");
        assert_eq!(
            shortened("ended with exit status 1 before it was ready; its last output: Unable\nto"),
            "ended with exit status 1 before it was ready …"
        );
        assert_eq!(shortened(&"x".repeat(100)).chars().count(), 62);
    }

    #[test]
    fn a_tool_s_own_loader_names_the_step_and_the_reason() {
        let of = |printed: &str| {
            let message = format!("ended with exit status 1 before it was ready; its last output: {printed}");
            refusal(&Refusal::new(Step::Load, message))
        };
        assert_eq!(
            of("cannot attach kprobe, probe entry may not exist"),
            "attach: ended with exit status 1 before it was ready …"
        );
        assert_eq!(
            of("load program: permission denied: R1 invalid mem access 'scalar' (17 line(s) omitted)"),
            "load: R1 invalid mem access 'scalar'"
        );
        assert_eq!(of("no such file"), "start: ended with exit status 1 before it was ready …");
        let compiled =
            "In file included from a.h:9:\nb.h:1:2: error: x\nException: Failed to compile BPF module <text>";
        assert_eq!(of(compiled), "open: b.h:1:2: error: x …");
        let message = format!("ended with exit status 1 before it was ready; its last output: {compiled}");
        assert_eq!(reason(&Refusal::new(Step::Load, message)), "b.h:1:2: error: x");
        let reported =
            Refusal { errno: Some(22), ..Refusal::new(Step::Attach, "failed to load BPF object".to_owned()) };
        assert_eq!(refusal(&reported), "attach: errno 22");
    }

    #[test]
    fn skipped_programs_are_lost_events_only_where_bytes_are_missing() {
        let losses = |misses| Losses { recursion_misses: misses, ..Losses::default() };
        assert_eq!(skipped(&losses(None), MissingEvents::None), None);
        assert_eq!(skipped(&losses(Some(0)), MissingEvents::Some), None);
        let of = |misses, missing| skipped(&losses(Some(misses)), missing).unwrap();
        assert_eq!(of(8, MissingEvents::None), "programs skipped 8 times, no byte missing");
        assert_eq!(of(1, MissingEvents::Some), "programs skipped once, bytes or calls are missing");
        assert_eq!(of(2, MissingEvents::NotKnown), "programs skipped 2 times, whether events were lost is not known");
        assert_eq!(super::losses(&losses(Some(8))), None);
    }

    #[test]
    fn events_were_lost_only_where_bytes_may_be_missing() {
        let dropped = Losses { ring_buffer_drops: Some(3), ..Losses::default() };
        assert_eq!(lost(&Losses::default(), MissingEvents::Some), None);
        let none = "3 dropped events elsewhere in the guest, no byte of the workload missing";
        assert_eq!(lost(&dropped, MissingEvents::None).unwrap(), none);
        for missing in [MissingEvents::Some, MissingEvents::NotKnown] {
            let shown = lost(&dropped, missing).unwrap();
            assert_eq!(shown, "events lost by the tracer, in the whole guest: 3 dropped events");
        }
    }

    #[test]
    fn ratios_are_changes_in_per_cent() {
        assert_eq!([1.0129, 0.998, 1.0].map(|ratio| percent(ratio, 1)), ["+1.3%", "-0.2%", "0.0%"]);
        // A change that rounds to zero has no sign.
        assert_eq!([1.00004, 0.99996].map(|ratio| percent(ratio, 2)), ["0.00%", "0.00%"]);
        assert_eq!([1.0013, 1.9, 13.96, f64::NAN].map(detectable), ["0.13%", "90%", NOT_KNOWN, NOT_KNOWN]);
    }

    #[test]
    fn numbers_have_four_digits() {
        let shown: Vec<String> = [0.1234, 1.5, 12.345, 123.45, 1234.5].into_iter().map(number).collect();
        assert_eq!(shown, ["0.123", "1.500", "12.35", "123.5", "1234"].map(str::to_owned));
    }

    #[test]
    fn byte_errors_show_sign_and_range() {
        let errors = |min, max, not_measured| {
            byte_error(&Figure::Value(ByteErrors { min, max, intervals: 3, exact: 0, not_measured }))
        };
        assert_eq!(errors(0, 0, 0).as_deref(), Some("0"));
        assert_eq!(errors(-8, 16, 0).as_deref(), Some("-8..+16"));
        assert_eq!(errors(4096, 4096, 1).as_deref(), Some("+4096 (1 of 4 not measured)"));
    }
}
