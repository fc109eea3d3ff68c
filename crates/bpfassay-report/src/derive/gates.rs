// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on the study's gates.

use std::collections::BTreeMap;

use bpfassay_stats::{
    Adjustment, Effect, Estimate, StatsError, Verdict,
    equivalence::Equivalence,
    gate_decision::{GateEvidence, verdicts},
};
use bpfassay_study::{Correction, Gate, MetricName, Plan, Share};
use bpfassay_tool::finding::{self, Kind};

use super::{
    budgets,
    context::DeriveContext,
    direct,
    levels::LEVEL,
    pairs::{accuracy_of, observations},
    tool_results::is_timed,
};
use crate::labels;
use bpfassay_results::{
    Attach, CellAccuracy, CellMetric, CellResult, Demand, Direct, Figure, GateResult, NO_CALL_TIMES, NO_COUNTS,
    Overhead, ToolResult, Unit,
};

/// Decides every gate on every cell that it covers. Demands on figures skip cells with an expected
/// refusal, which cannot have figures. The statistical verdicts of all gates are one family.
pub(super) fn derive(context: &DeriveContext<'_>, cells: &[CellResult]) -> Vec<GateResult> {
    let plan = context.plan;
    let mut results = Vec::new();
    for (index, gate) in plan.study.gates.iter().enumerate() {
        // `cells` has a result for each cell of the plan, in the same order.
        let covered = plan.cells.iter().zip(cells).filter(|(cell, _)| gate.covers(&plan.study, cell));
        for (_, cell) in covered {
            let found = evaluate(context, gate, cells, cell);
            results.extend(found.into_iter().map(|(demand, metric, evaluated)| GateResult {
                gate: u32::try_from(index).unwrap_or(u32::MAX),
                demand,
                cell: cell.cell.clone(),
                metric,
                verdict: evaluated.verdict,
                found: evaluated.found,
                evidence: evaluated.evidence,
            }));
        }
    }
    correct(plan, &mut results);
    results
}

/// Tests whether every overhead is shown to lie within the study's margin: two one-sided tests each
/// (see bpfassay-stats, `equivalence`), all in one family. Rounds of one boot cannot show it.
/// Overheads under the wall clock without KVM are tested, too: the table marks them as functional
/// only.
pub(super) fn negligible(context: &DeriveContext<'_>, cells: &mut [CellResult]) {
    let plan = context.plan;
    let Some(margin) = plan.study.design.margin else { return };
    let certainty = plan.study.design.certainty;
    let mut overheads: Vec<_> = cells
        .iter_mut()
        .flat_map(|cell| &mut cell.metrics)
        .filter_map(|metric| match &mut metric.overhead {
            Figure::Value(overhead) => Some(overhead),
            Figure::NotMeasured(_) => None,
        })
        .collect();
    let p = |effect: &Effect| {
        let p = Equivalence::test(effect, margin.ratio()).ok()?.p()?;
        Some((p * context.looks as f64).min(1.0))
    };
    let p_over_boots = |overhead: &Overhead| (overhead.unit == Unit::Boots).then(|| p(&overhead.effect)).flatten();
    let all: Vec<Option<f64>> = overheads.iter().map(|overhead| p_over_boots(overhead)).collect();
    let Ok(adjusted) = adjustment(certainty.correction).adjust_known(&all) else { return };
    for (overhead, p) in overheads.iter_mut().zip(adjusted) {
        overhead.negligible = Some(p.is_some_and(|p| p < certainty.error_rate.value()));
    }
}

/// A verdict before the rest of its family is known.
struct Evaluated {
    verdict: Verdict,
    found: String,
    evidence: Option<GateEvidence>,
}

impl Evaluated {
    fn new(verdict: Verdict, found: impl Into<String>) -> Self {
        Self { verdict, found: found.into(), evidence: None }
    }

    /// Decides by `evidence`; without evidence the verdict is inconclusive, with the reason.
    fn by(found: String, evidence: Result<GateEvidence, StatsError>) -> Self {
        match evidence {
            // `correct` sets the verdict once the whole family is known.
            Ok(evidence) => Self { verdict: Verdict::Inconclusive, found, evidence: Some(evidence) },
            Err(error) => Self::new(Verdict::Inconclusive, format!("{found}: {error}")),
        }
    }
}

type GateRow = (Demand, Option<MetricName>, Evaluated);

fn evaluate(context: &DeriveContext<'_>, gate: &Gate, cells: &[CellResult], cell: &CellResult) -> Vec<GateRow> {
    let mut rows = Vec::new();
    if gate.attach {
        rows.push((Demand::Attach, None, attach(cell)));
    }
    if let Some(found) = cell.tool_result.as_ref().filter(|_| !gate.deny.is_empty()) {
        rows.push((Demand::Findings, None, findings(&gate.deny, found)));
    }
    if matches!(cell.attach, Attach::Refused { expected: true, .. }) {
        return rows;
    }
    rows.extend(gate.budgets.iter().filter_map(|&budget| {
        let (verdict, found) = budgets::decide(context, cells, cell, budget)?;
        Some((Demand::Budget { budget }, None, Evaluated::new(verdict, found)))
    }));
    for (metric, accuracy) in cell.rows() {
        let limit = if metric.calls_of.is_some() { gate.overhead_per_call } else { gate.overhead };
        if let Some(limit) = limit {
            let evaluated = overhead(context, cell, metric, limit);
            rows.push((Demand::Overhead { limit }, Some(metric.name), evaluated));
        }
        if let (Some(limit), Some(direct)) = (gate.direct_cost, &metric.direct) {
            rows.push((Demand::DirectCost { limit }, Some(metric.name), direct_cost(context, cell, direct, limit)));
        }
        let Some(accuracy) = accuracy else { continue };
        if let Some(limit) = gate.relative_error {
            let evaluated = relative_error(context, cell, accuracy, limit);
            rows.push((Demand::RelativeError { limit }, Some(metric.name), evaluated));
        }
        if let Some(limit) = gate.byte_error {
            rows.push((Demand::ByteError { limit }, Some(metric.name), byte_error(cell, accuracy, limit)));
        }
    }
    if let Some(limit) = gate.overhead_per_call.filter(|_| cell.metrics.iter().all(|metric| metric.calls_of.is_none()))
    {
        let evaluated = Evaluated::new(Verdict::Inconclusive, format!("not measured: {NO_CALL_TIMES}"));
        rows.push((Demand::Overhead { limit }, None, evaluated));
    }
    if let Some(limit) = gate.direct_cost.filter(|_| cell.metrics.iter().all(|metric| metric.direct.is_none())) {
        let evaluated = Evaluated::new(Verdict::Inconclusive, format!("not measured: {NO_COUNTS}"));
        rows.push((Demand::DirectCost { limit }, None, evaluated));
    }
    rows
}

fn attach(cell: &CellResult) -> Evaluated {
    if let Some(reason) = cell.not_seen_to_load() {
        return Evaluated::new(Verdict::Inconclusive, format!("not seen to load: {reason}"));
    }
    if let Some(reason) = cell.left_to_a_loader() {
        return Evaluated::new(Verdict::Inconclusive, format!("not all attached: {reason}"));
    }
    match &cell.attach {
        Attach::Baseline => Evaluated::new(Verdict::Inconclusive, "nothing to attach"),
        Attach::Attached { in_spite_of: None, .. } => Evaluated::new(Verdict::Pass, "attached"),
        Attach::Attached { in_spite_of: Some(expected), .. } => {
            Evaluated::new(Verdict::Regression, format!("attached, though a refusal was expected: {}", expected.reason))
        }
        Attach::Refused { refusal, expected: true, .. } => {
            Evaluated::new(Verdict::Pass, format!("refused, as expected: {}", labels::refusal(refusal)))
        }
        Attach::Refused { refusal, .. } => {
            Evaluated::new(Verdict::Regression, format!("refused: {}", labels::refusal(refusal)))
        }
        Attach::Unsteady { attached, refused, .. } => {
            Evaluated::new(Verdict::Regression, format!("attached in {attached} runs and refused in {refused}"))
        }
        Attach::Unknown { reason } => Evaluated::new(Verdict::Inconclusive, format!("not known: {reason}")),
    }
}

/// Decides by the findings of a tool: one fault is enough for a regression. If the gate denies
/// every kind, kinds that could not be evaluated are ignored. Kinds that the gate names must be
/// evaluated.
fn findings(denied: &[Kind], found: &ToolResult) -> Evaluated {
    let (mut faults, mut clear, mut open) = (Vec::new(), 0, Vec::new());
    for finding in found.findings.iter().filter(|finding| denied.contains(&finding.kind)) {
        match &finding.status {
            finding::FindingStatus::Found { .. } => faults.push(finding.kind.name()),
            finding::FindingStatus::Clear => clear += 1,
            finding::FindingStatus::NotEvaluated { .. } => open.push(finding.kind.name()),
        }
    }
    if !faults.is_empty() {
        return Evaluated::new(Verdict::Regression, format!("found: {}", faults.join(", ")));
    }
    if clear == 0 {
        return Evaluated::new(Verdict::Inconclusive, "nothing of it could be looked for");
    }
    if open.is_empty() {
        return Evaluated::new(Verdict::Pass, format!("{clear} kinds looked for, none found"));
    }
    let verdict = if denied.len() == Kind::ALL.len() { Verdict::Pass } else { Verdict::Inconclusive };
    Evaluated::new(verdict, format!("{clear} kinds looked for, none found; not evaluated: {}", open.join(", ")))
}

fn overhead(context: &DeriveContext<'_>, cell: &CellResult, metric: &CellMetric, limit: Share) -> Evaluated {
    let plan = context.plan;
    let overhead = match &metric.overhead {
        Figure::Value(overhead) => overhead,
        Figure::NotMeasured(reason) => return Evaluated::new(Verdict::Inconclusive, format!("not measured: {reason}")),
    };
    let found = ratio(&overhead.estimate);
    if !is_timed(plan, context.provenance, cell.target.arch) && !plan.study.design.certainty.insist {
        return Evaluated::new(
            Verdict::Inconclusive,
            format!("{found} under the wall clock without KVM, which is not evaluated unless the study insists"),
        );
    }
    if overhead.unit == Unit::Rounds {
        return Evaluated::new(
            Verdict::Inconclusive,
            format!("{found} within one boot; a limit on the overhead needs two boots or more: set `replicates`"),
        );
    }
    // The baseline has no overhead over itself. If the control shows an overhead above the gate's
    // limit, the experiment is at fault and not the tool.
    if let Figure::Value(control) = &metric.control
        && let Ok(evidence) = GateEvidence::new(&control.effect, limit.ratio())
        && let Some(p) = evidence.over_looks(context.looks).p_within
        && p < plan.study.design.certainty.error_rate.value()
    {
        return Evaluated::new(
            Verdict::Inconclusive,
            format!("{found}, but the baseline differs from itself by {}", ratio(&control.estimate)),
        );
    }
    let evidence = GateEvidence::new(&overhead.effect, limit.ratio());
    Evaluated::by(found, evidence.map(|evidence| evidence.over_looks(context.looks)))
}

fn relative_error(context: &DeriveContext<'_>, cell: &CellResult, accuracy: &CellAccuracy, limit: Share) -> Evaluated {
    if let Figure::NotMeasured(reason) = &accuracy.relative_error_ior_interval {
        return Evaluated::new(Verdict::Inconclusive, format!("not measured: {reason}"));
    }
    let mut by_block = BTreeMap::<&str, Vec<f64>>::new();
    for run in context.runs_of(&cell.cell).iter().filter(|run| run.record.is_counted()) {
        let figure = accuracy_of(run, &accuracy.metric).and_then(|found| found.relative_error_ior_interval.value());
        if let Some(figure) = figure {
            by_block.entry(&run.record.block).or_default().push(figure.ln());
        }
    }
    let evaluated = || -> Result<(String, GateEvidence), StatsError> {
        let effect = Effect::paired(&observations(by_block).1)?;
        Ok((ratio(&effect.estimate(LEVEL)?), GateEvidence::band(&effect, limit.ratio())?.over_looks(context.looks)))
    };
    match evaluated() {
        Ok((found, evidence)) => Evaluated::by(found, Ok(evidence)),
        Err(error) => Evaluated::new(Verdict::Inconclusive, format!("not estimated: {error}")),
    }
}

/// Decides by direct costs, which are counts and no estimates: every run must be counted, and one
/// run above the limit is enough. One boot has only one layout; other layouts differ a little.
fn direct_cost(context: &DeriveContext<'_>, cell: &CellResult, direct: &Figure<Direct>, limit: u64) -> Evaluated {
    let direct = match direct {
        Figure::Value(direct) => direct,
        Figure::NotMeasured(reason) => return Evaluated::new(Verdict::Inconclusive, format!("not measured: {reason}")),
    };
    let found = format!("{} instructions/call", labels::direct(direct));
    if direct.per_call.max > limit as f64 {
        return Evaluated::new(Verdict::Regression, found);
    }
    let counted = u32::try_from(direct.per_call.n).unwrap_or(u32::MAX);
    if counted < cell.runs.planned {
        let found = format!("{found}, but {counted} of {} runs were counted", cell.runs.planned);
        return Evaluated::new(Verdict::Inconclusive, found);
    }
    let of_seeds = direct::OF_SEEDS;
    if context.plan.replicates() == 1 && direct.per_call.max * (1.0 + of_seeds) > limit as f64 {
        let share = of_seeds * 100.0;
        let found = format!("{found}, n {counted}, in one boot; others may differ by {share} %: set `replicates`");
        return Evaluated::new(Verdict::Inconclusive, found);
    }
    Evaluated::new(Verdict::Pass, format!("{found}, n {counted}"))
}

fn byte_error(cell: &CellResult, accuracy: &CellAccuracy, limit: u64) -> Evaluated {
    let errors = match &accuracy.byte_error {
        Figure::Value(errors) => errors,
        Figure::NotMeasured(reason) => return Evaluated::new(Verdict::Inconclusive, format!("not measured: {reason}")),
    };
    let worst = errors.min.unsigned_abs().max(errors.max.unsigned_abs());
    let found = labels::byte_error(&accuracy.byte_error).unwrap_or_default();
    if worst > limit {
        return Evaluated::new(Verdict::Regression, format!("{found} bytes"));
    }
    let missing = cell.runs.planned.saturating_sub(cell.runs.measured);
    if errors.not_measured > 0 || missing > 0 {
        return Evaluated::new(
            Verdict::Inconclusive,
            format!("{found} bytes, but {missing} of {} runs have no figure", cell.runs.planned),
        );
    }
    Evaluated::new(Verdict::Pass, format!("{found} bytes in {} intervals", errors.intervals))
}

/// Formats a ratio: `1.049 [1.048, 1.051], n 3`.
fn ratio(estimate: &Estimate) -> String {
    format!("{}, n {}", labels::ratio(estimate), estimate.n)
}

/// Returns the procedure that a study or a question names.
pub(crate) const fn adjustment(correction: Correction) -> Adjustment {
    match correction {
        Correction::Holm => Adjustment::Holm,
        Correction::BenjaminiHochberg => Adjustment::BenjaminiHochberg,
    }
}

/// Sets the statistical verdicts, as one family.
fn correct(plan: &Plan, results: &mut [GateResult]) {
    let certainty = plan.study.design.certainty;
    let family: Vec<GateEvidence> = results.iter().filter_map(|result| result.evidence).collect();
    match verdicts(&family, certainty.error_rate.value(), adjustment(certainty.correction)) {
        Ok(verdicts) => {
            for (result, verdict) in results.iter_mut().filter(|result| result.evidence.is_some()).zip(verdicts) {
                result.verdict = verdict;
            }
        }
        Err(error) => {
            for result in results.iter_mut().filter(|result| result.evidence.is_some()) {
                result.found.push_str(&format!(": {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_tool::finding::FindingResult;

    use super::*;

    /// Creates a result whose first kinds have the statuses `verdicts`.
    fn result(verdicts: &[finding::FindingStatus]) -> ToolResult {
        let finding =
            |(&kind, verdict): (&Kind, &finding::FindingStatus)| FindingResult { kind, status: verdict.clone() };
        let findings = Kind::ALL.iter().zip(verdicts).map(finding).collect();
        ToolResult { findings, ..ToolResult::default() }
    }

    #[test]
    fn one_fault_that_is_denied_is_enough_and_what_was_not_looked_for_is_no_pass() {
        let found = || finding::FindingStatus::found(finding::Certainty::Proven, vec!["x".to_owned()]);
        let open = || finding::FindingStatus::NotEvaluated { reason: "y".to_owned() };
        let (first, second) = (Kind::ALL[0], Kind::ALL[1]);
        let evaluated = |denied: &[Kind], verdicts: &[finding::FindingStatus]| findings(denied, &result(verdicts));
        let clear = || finding::FindingStatus::Clear;

        let regression = evaluated(&[first, second], &[clear(), found()]);
        assert_eq!((regression.verdict, regression.found), (Verdict::Regression, format!("found: {second}")));
        // Findings that no gate denies do not matter.
        assert_eq!(evaluated(&[first], &[clear(), found()]).verdict, Verdict::Pass);
        assert_eq!(evaluated(&[first, second], &[clear(), open()]).verdict, Verdict::Inconclusive);
        assert_eq!(evaluated(Kind::ALL, &[clear(), open()]).verdict, Verdict::Pass);
        assert_eq!(evaluated(Kind::ALL, &[open(), open()]).verdict, Verdict::Inconclusive);
        assert_eq!(evaluated(Kind::ALL, &[]).verdict, Verdict::Inconclusive);
    }
}
