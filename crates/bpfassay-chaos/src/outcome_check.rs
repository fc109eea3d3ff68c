// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether the result of a command is allowed. The functions are pure.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_results::{Outcome, RunRecord};
use bpfassay_study::{Block, Plan, PlannedRun};

use crate::{
    chaos_study::TrialStudy,
    trial::{AllowedOutcomes, CommandEnd},
};

/// The record of each run that counts, by the run's id.
pub type RunRecords = BTreeMap<String, RunRecord>;

/// How far a study has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StudyStage {
    /// The command was interrupted: the records are incomplete and not final.
    Interrupted,
    /// The command ended.
    Ended,
}

/// Returns the kind of a failure, as in `results.json`.
#[must_use]
pub fn kind(outcome: &Outcome) -> Option<String> {
    let Outcome::Failed(failure) = outcome else { return None };
    let value = serde_json::to_value(failure.kind).ok()?;
    value.as_str().map(str::to_owned)
}

/// Returns a sentence for each fault of `records`.
#[must_use]
pub fn records(study: &TrialStudy, expected: &AllowedOutcomes, records: &RunRecords, stage: StudyStage) -> Vec<String> {
    let mut wrong = outcomes(&study.plan, expected, records, stage);
    if stage == StudyStage::Ended {
        wrong.extend(study.plan.blocks.iter().flat_map(|block| figures(study, expected, block, records)));
    }
    wrong
}

/// Returns a sentence for each wrong outcome in `records`. Figures are not checked.
#[must_use]
pub fn outcomes(plan: &Plan, expected: &AllowedOutcomes, records: &RunRecords, stage: StudyStage) -> Vec<String> {
    let planned: BTreeSet<&str> = plan.runs().map(|(_, run)| run.spec.id.as_str()).collect();
    let unknown = records.keys().filter(|run| !planned.contains(run.as_str()));
    let mut wrong: Vec<String> = unknown.map(|run| format!("{run} is no planned run")).collect();
    wrong.extend(planned.iter().filter_map(|run| outcome(expected, run, records.get(*run), stage)));
    wrong
}

/// Returns what is wrong with the outcome of one run.
fn outcome(expected: &AllowedOutcomes, run: &str, record: Option<&RunRecord>, stage: StudyStage) -> Option<String> {
    let blame = expected.blamed.get(run);
    let is_lie = expected.lies.contains(run);
    let by_host = expected.by_host.contains(run);
    let Some(record) = record else {
        return (stage == StudyStage::Ended && !by_host).then(|| format!("lost: {run} has no record"));
    };
    match &record.outcome {
        Outcome::Failed(failure) => {
            let kind = kind(&record.outcome).unwrap_or_default();
            let may =
                blame.is_some_and(|blame| blame.kinds.contains(&kind.as_str())) || is_lie || by_host && kind == "host";
            if !may {
                let excerpt = failure.excerpt.first().map(String::as_str).unwrap_or_default();
                return Some(format!("wrong verdict: {run} failed ({kind}): {}", shortened(excerpt)));
            }
            failure.excerpt.is_empty().then(|| format!("{run} failed ({kind}) without evidence"))
        }
        Outcome::Refused(_) => (!is_lie).then(|| format!("wrong verdict: {run} was refused")),
        Outcome::Measured(_) => {
            let is_missed = stage == StudyStage::Ended && blame.is_some_and(|blame| blame.must) && !by_host;
            is_missed.then(|| format!("wrong verdict: {run} was measured and should have failed"))
        }
    }
}

/// Returns what is wrong with the figures of one block. All figures must come from one boot. This
/// boot must have done all its runs in order, except for blamed runs.
fn figures(study: &TrialStudy, expected: &AllowedOutcomes, block: &Block, records: &RunRecords) -> Vec<String> {
    let was_in_boot = |run: &&PlannedRun| {
        let id = &run.spec.id;
        records.get(id).is_some_and(|record| match &record.outcome {
            // A false message that contradicts the agent's earlier ones is a protocol error. The
            // block is then booted again without the run.
            outcome @ Outcome::Failed(_) => {
                expected.lies.contains(id) && kind(outcome).as_deref() == Some("run")
                    || expected.blamed.get(id).is_some_and(|blame| blame.in_guest)
            }
            Outcome::Measured(_) | Outcome::Refused(_) => true,
        })
    };
    let boot: Vec<&PlannedRun> = block.runs.iter().filter(was_in_boot).collect();
    let mut wrong = Vec::new();
    let numbers: BTreeSet<u32> = boot.iter().filter_map(|run| Some(records.get(&run.spec.id)?.boot)).collect();
    if numbers.len() > 1 {
        wrong.push(format!("{} was measured in several boots: {numbers:?}", block.id));
    }
    for run in &boot {
        let id = &run.spec.id;
        let Some(Outcome::Measured(found)) = records.get(id).map(|record| &record.outcome) else { continue };
        if expected.lies.contains(id) {
            continue;
        }
        let whole = study.figures(block.replicate, boot.iter().copied(), id);
        if whole.as_ref() != Some(found) {
            wrong.push(format!("{id} has other figures than in a boot of its block from the start"));
        }
    }
    wrong
}

/// Returns what is wrong with the way a command ended, given its records.
#[must_use]
pub fn end(
    study: &TrialStudy,
    expected: &AllowedOutcomes,
    end: CommandEnd,
    records: &RunRecords,
    may_be_interrupted: bool,
) -> Option<String> {
    if may_be_interrupted && expected.interrupted.contains(&end) {
        return None;
    }
    if expected.may_give_up && end == CommandEnd::Code(3) {
        return None;
    }
    let code = code(&study.plan, records);
    // Impossible or missing figures count as not measured, which fails the study.
    let is_measured =
        |id: &String| matches!(records.get(id), Some(record) if matches!(record.outcome, Outcome::Measured(_)));
    if code == 0 && end == CommandEnd::Code(4) && expected.lies.iter().any(is_measured) {
        return None;
    }
    (end != CommandEnd::Code(code)).then(|| format!("the command ended with {end:?} where its records mean {code}"))
}

/// Returns the exit code that follows from the records.
#[must_use]
pub fn code(plan: &Plan, records: &RunRecords) -> i32 {
    let mut host = false;
    for (_, run) in plan.runs() {
        match records.get(&run.spec.id).map(|record| &record.outcome) {
            None => host = true,
            Some(Outcome::Measured(_)) => {}
            Some(Outcome::Refused(_)) => return 4,
            Some(outcome) if kind(outcome).as_deref() == Some("host") => host = true,
            Some(Outcome::Failed(_)) => return 4,
        }
    }
    if host { 3 } else { 0 }
}

/// Returns the fingerprint of all records except those of `lies`.
#[must_use]
pub fn fingerprint(records: &RunRecords, lies: &BTreeSet<String>) -> String {
    bpfassay_results::fingerprint(records.values().filter(|record| !lies.contains(&record.run)))
}

/// Describes the first control character in what a command printed for people.
#[must_use]
pub fn control_character(text: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(text);
    let is_bad = |c: &char| c.is_control() && !matches!(c, '\n' | '\t');
    let (index, bad) = text.char_indices().find(|(_, c)| is_bad(c))?;
    let from = text[..index].char_indices().rev().nth(40).map_or(0, |(at, _)| at);
    Some(format!("U+{:04X} after `{}`", u32::from(bad), text[from..index].escape_debug()))
}

/// Returns the start of `text`, escaped.
#[must_use]
pub fn shortened(text: &str) -> String {
    text.chars().take(200).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::message::Phase;
    use bpfassay_results::{FailureKind, RunFailure};

    use super::*;
    use crate::chaos_study::{StudyShape, TrialClock};

    fn study() -> TrialStudy {
        TrialStudy::new(StudyShape { clock: TrialClock::Instructions, rounds: 2, replicates: 2 }).unwrap()
    }

    /// All runs measured in boot 1, except for those of `without`.
    fn measured(study: &TrialStudy, without: &[&str]) -> RunRecords {
        let mut all = RunRecords::new();
        for block in &study.plan.blocks {
            let runs: Vec<_> = block.runs.iter().filter(|run| !without.contains(&run.spec.id.as_str())).collect();
            for run in &runs {
                let figures = study.figures(block.replicate, runs.iter().copied(), &run.spec.id).unwrap();
                let outcome = Outcome::Measured(Box::new(figures));
                all.insert(run.spec.id.clone(), RunRecord::new(block, run, 1, 0, 0, outcome));
            }
        }
        all
    }

    fn fail(study: &TrialStudy, all: &mut RunRecords, run: &str, kind: FailureKind, excerpt: &str) {
        let (block, planned) = study.plan.runs().find(|(_, planned)| planned.spec.id == run).unwrap();
        let failure = RunFailure {
            excerpt: Some(excerpt).filter(|excerpt| !excerpt.is_empty()).map(str::to_owned).into_iter().collect(),
            ..failure(kind)
        };
        all.insert(run.to_owned(), RunRecord::new(block, planned, 1, 0, 0, Outcome::Failed(failure)));
    }

    fn failure(kind: FailureKind) -> RunFailure {
        let text = serde_json::json!({ "kind": kind, "phase": Phase::Workload, "excerpt": [], "log": null });
        serde_json::from_value(text).unwrap()
    }

    fn ids(study: &TrialStudy) -> Vec<String> {
        study.plan.blocks[0].runs.iter().map(|run| run.spec.id.clone()).collect()
    }

    #[test]
    fn a_study_without_faults_has_no_violations() {
        let study = study();
        let all = measured(&study, &[]);
        assert_eq!(records(&study, &AllowedOutcomes::default(), &all, StudyStage::Ended), Vec::<String>::new());
        assert_eq!(end(&study, &AllowedOutcomes::default(), CommandEnd::Code(0), &all, true), None);
    }

    #[test]
    fn a_lost_run_is_found() {
        let study = study();
        let mut all = measured(&study, &[]);
        let last = ids(&study).pop().unwrap();
        all.remove(&last);
        assert_eq!(
            records(&study, &AllowedOutcomes::default(), &all, StudyStage::Ended),
            [format!("lost: {last} has no record")]
        );
        assert!(records(&study, &AllowedOutcomes::default(), &all, StudyStage::Interrupted).is_empty());
        assert!(end(&study, &AllowedOutcomes::default(), CommandEnd::Code(0), &all, true).is_some());
        let by_host = AllowedOutcomes { by_host: [last].into(), ..AllowedOutcomes::default() };
        assert!(records(&study, &by_host, &all, StudyStage::Ended).is_empty());
        assert_eq!(end(&study, &by_host, CommandEnd::Code(3), &all, true), None);
    }

    #[test]
    fn a_failed_run_without_a_fault_and_a_faulty_run_that_passed_are_found() {
        let study = study();
        let id = ids(&study).pop().unwrap();
        let mut all = measured(&study, &[&id]);
        fail(&study, &mut all, &id, FailureKind::Panic, "Kernel panic");
        let wrong = records(&study, &AllowedOutcomes::default(), &all, StudyStage::Ended);
        assert!(wrong[0].starts_with("wrong verdict") && wrong.len() == 1, "{wrong:?}");
        let mut expected = AllowedOutcomes::default();
        expected.blame(&id, &["panic"], true);
        assert!(records(&study, &expected, &all, StudyStage::Ended).is_empty());
        assert_eq!(end(&study, &expected, CommandEnd::Code(4), &all, false), None);
        assert!(end(&study, &expected, CommandEnd::Code(3), &all, false).is_some(), "only the host's failure is 3");
        // A failure of another kind, or without evidence, or none at all.
        fail(&study, &mut all, &id, FailureKind::ProtocolError, "x");
        assert_eq!(records(&study, &expected, &all, StudyStage::Ended).len(), 1);
        fail(&study, &mut all, &id, FailureKind::Panic, "");
        assert_eq!(records(&study, &expected, &all, StudyStage::Ended).len(), 1);
        let wrong = records(&study, &expected, &measured(&study, &[]), StudyStage::Ended);
        assert!(wrong[0].contains("should have failed"), "{wrong:?}");
    }

    #[test]
    fn a_host_failure_is_not_a_failure_of_a_tool() {
        let study = study();
        let id = ids(&study).pop().unwrap();
        let mut all = measured(&study, &[&id]);
        fail(&study, &mut all, &id, FailureKind::Host, "No space left on device");
        assert_eq!(records(&study, &AllowedOutcomes::default(), &all, StudyStage::Ended).len(), 1);
        let by_host = AllowedOutcomes { by_host: [id].into(), ..AllowedOutcomes::default() };
        assert!(records(&study, &by_host, &all, StudyStage::Ended).is_empty());
        assert_eq!(code(&study.plan, &all), 3);
    }

    #[test]
    fn figures_of_an_incomplete_block_are_found() {
        let study = study();
        let ids = ids(&study);
        let mut all = measured(&study, &[]);
        // The second half comes from another boot without the warm-up, as if the block had been
        // resumed in the middle.
        let rest = measured(&study, &ids[..4].iter().map(String::as_str).collect::<Vec<_>>());
        all.extend(rest.into_iter().filter(|(id, _)| ids[4..].contains(id)).map(|(id, mut record)| {
            record.boot = 2;
            (id, record)
        }));
        let wrong = records(&study, &AllowedOutcomes::default(), &all, StudyStage::Ended);
        assert_eq!(wrong.len(), 1 + ids[4..].len(), "{wrong:?}");
        assert!(wrong[0].contains("several boots"));
        assert_ne!(fingerprint(&all, &BTreeSet::new()), fingerprint(&measured(&study, &[]), &BTreeSet::new()));
    }

    #[test]
    fn only_runs_with_false_figures_are_left_out() {
        let study = study();
        let id = ids(&study)[2].clone();
        let mut all = measured(&study, &[]);
        if let Outcome::Measured(figures) = &mut all.get_mut(&id).unwrap().outcome {
            figures.summary.clear();
        }
        assert_eq!(records(&study, &AllowedOutcomes::default(), &all, StudyStage::Ended).len(), 1);
        let lies = AllowedOutcomes { lies: [id].into(), ..AllowedOutcomes::default() };
        assert!(records(&study, &lies, &all, StudyStage::Ended).is_empty());
        assert_eq!(fingerprint(&all, &lies.lies), fingerprint(&measured(&study, &[]), &lies.lies));
    }

    #[test]
    fn control_characters_are_found() {
        assert_eq!(control_character("table\n\tä €\n".as_bytes()), None);
        assert_eq!(control_character(b"a\x1b[2J"), Some("U+001B after `a`".to_owned()));
        assert_eq!(control_character("b\u{9b}".as_bytes()), Some("U+009B after `b`".to_owned()));
    }
}
