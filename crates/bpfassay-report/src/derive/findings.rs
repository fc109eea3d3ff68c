// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects the pitfalls that the tracer found, per cell.

use bpfassay_protocol::finding_name::Finding;

use bpfassay_results::{CellFinding, Outcome, RunResult};

/// Collects the findings of `runs`, in the order of their kinds and subjects.
pub(super) fn derive(runs: &[&RunResult]) -> Vec<CellFinding> {
    let mut found: Vec<CellFinding> = Vec::new();
    for run in runs {
        for finding in of_run(run) {
            let same = |known: &&mut CellFinding| {
                (known.finding.pitfall, &known.finding.subject) == (finding.pitfall, &finding.subject)
            };
            match found.iter_mut().find(same) {
                Some(known) if known.runs.last() == Some(&run.record.run) => {}
                Some(known) => known.runs.push(run.record.run.clone()),
                None => found.push(CellFinding { finding: finding.clone(), runs: vec![run.record.run.clone()] }),
            }
        }
    }
    found.sort_by(|a, b| a.finding.cmp(&b.finding));
    found
}

/// Returns the tracer's findings from before and after counting, or the findings with the refusal.
fn of_run(run: &RunResult) -> Box<dyn Iterator<Item = &Finding> + '_> {
    match &run.record.outcome {
        Outcome::Measured(figures) => {
            let before = figures.tracer.iter().flat_map(|tracer| &tracer.findings);
            let after = figures.ended.iter().flat_map(|ended| &ended.findings);
            Box::new(before.chain(after))
        }
        Outcome::Refused(refusal) => Box::new(refusal.findings.iter()),
        Outcome::Failed(_) => Box::new(std::iter::empty()),
    }
}
