// SPDX-License-Identifier: MIT OR Apache-2.0
//! Narrowing a study from the command line.

use std::{collections::HashSet, fmt::Display};

use bpfassay_input::document::nearest;
use bpfassay_protocol::{Arch, ProbeConfiguration};

use crate::{
    ExpandError, Study, StudyDesign, Target,
    error::list,
    plan::{LeftOut, Narrowing, Plan, file_system_id},
};

/// Largest number of replicates.
pub(crate) const MAX_REPLICATES: u32 = 10_000;

/// The remainder of a study.
pub(crate) struct Narrowed {
    pub(crate) targets: Vec<Target>,
    pub(crate) probes: Vec<ProbeConfiguration>,
    pub(crate) replicates: u32,
    pub(crate) left_out: Vec<LeftOut>,
}

/// Keeps the parts of `study` that `narrowing` names. Every value must be in the study. The
/// baseline stays, because the other probe configurations are compared with it.
///
/// # Errors
/// [`ExpandError`] if a value is not in the study, or if no target has all of them.
pub(crate) fn narrow(study: &Study, narrowing: &Narrowing) -> Result<Narrowed, ExpandError> {
    let archs = distinct(study.targets.iter().map(|target| target.arch));
    let kernels = distinct(study.targets.iter().map(|target| target.kernel.clone()));
    must_be_in(study, "architecture", &narrowing.archs, &archs)?;
    must_be_in(study, "kernel", &narrowing.kernels, &kernels)?;
    must_be_in(study, "probe configuration", &narrowing.probes, &study.probes)?;

    let wanted =
        |target: &Target| is_wanted(&narrowing.archs, &target.arch) && is_wanted(&narrowing.kernels, &target.kernel);
    let (targets, dropped): (Vec<Target>, Vec<Target>) = study.targets.iter().cloned().partition(wanted);
    if targets.is_empty() {
        return Err(ExpandError::NoTarget {
            study: study.name.clone(),
            asked: targets_asked(&narrowing.archs, &narrowing.kernels),
            available: list(&study.targets),
        });
    }
    let (probes, dropped_probes): (Vec<_>, Vec<_>) =
        study.probes.iter().copied().partition(|probe| probe.is_baseline() || is_wanted(&narrowing.probes, probe));
    let replicates = match (narrowing.replicates, narrowing.until) {
        (Some(replicates), _) => replicates,
        (None, Some(_)) if study.design.replicates < StudyDesign::FEWEST_UNTIL => StudyDesign::MOST_UNTIL,
        (None, _) => study.design.replicates,
    };
    if narrowing.until.or(study.design.until).is_some() && replicates < StudyDesign::FEWEST_UNTIL {
        return Err(ExpandError::TooFewUntil { replicates, fewest: StudyDesign::FEWEST_UNTIL });
    }
    if !(1..=MAX_REPLICATES).contains(&replicates) {
        return Err(ExpandError::Replicates { replicates, limit: MAX_REPLICATES });
    }

    let mut left_out = Vec::new();
    if !dropped.is_empty() {
        let reason = format!("narrowed to {}", targets_asked(&narrowing.archs, &narrowing.kernels));
        left_out.push(LeftOut { what: format!("targets {}", list(&dropped)), reason });
    }
    if !dropped_probes.is_empty() {
        let reason = format!("narrowed to probe configurations {}", list(&narrowing.probes));
        left_out.push(LeftOut { what: format!("probe configurations {}", list(&dropped_probes)), reason });
    }
    if replicates != study.design.replicates {
        let what = format!("the study's number of replicates, {}", study.design.replicates);
        let reason = match narrowing.until {
            Some(until) => format!("boots until intervals are within {until}, {replicates} at most"),
            None => format!("{replicates} requested"),
        };
        left_out.push(LeftOut { what, reason });
    }
    Ok(Narrowed { targets, probes, replicates, left_out })
}

fn must_be_in<T: PartialEq + Display>(
    study: &Study,
    kind: &'static str,
    asked: &[T],
    has: &[T],
) -> Result<(), ExpandError> {
    match asked.iter().find(|value| !has.contains(value)) {
        None => Ok(()),
        Some(value) => Err(ExpandError::NotInStudy {
            study: study.name.clone(),
            kind,
            value: value.to_string().chars().take(64).collect(),
            available: list(has),
        }),
    }
}

fn is_wanted<T: PartialEq>(asked: &[T], value: &T) -> bool {
    asked.is_empty() || asked.contains(value)
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for value in values {
        if !distinct.contains(&value) {
            distinct.push(value);
        }
    }
    distinct
}

fn targets_asked(archs: &[Arch], kernels: &[String]) -> String {
    let archs = (!archs.is_empty()).then(|| format!("architecture {}", list(archs)));
    let kernels = (!kernels.is_empty()).then(|| format!("kernel {}", list(kernels)));
    archs.into_iter().chain(kernels).collect::<Vec<_>>().join(" and ")
}

/// Reduces `plan` to the cells that its narrowing names and their baselines. Every run keeps its
/// name and its place in the order.
///
/// # Errors
/// [`ExpandError::NoCell`] if the plan has no cell with a given name.
pub(crate) fn keep_cells(plan: &mut Plan) -> Result<(), ExpandError> {
    if plan.narrowing.cells.is_empty() {
        return Ok(());
    }
    let mut places = HashSet::new();
    let known = plan.cells_by_id();
    for id in &plan.narrowing.cells {
        let Some(cell) = known.get(id.as_str()) else {
            return Err(ExpandError::NoCell {
                study: plan.study.name.clone(),
                cell: id.chars().take(128).collect(),
                nearest: nearest(id, plan.cells.iter().map(|cell| cell.id.as_str()))
                    .map(|near| format!(", did you mean `{near}`?"))
                    .unwrap_or_default(),
            });
        };
        places.insert((cell.target.clone(), cell.case.clone(), file_system_id(&cell.file_system)));
    }
    let named: HashSet<&str> = plan.narrowing.cells.iter().map(String::as_str).collect();
    plan.cells.retain(|cell| {
        let place = || (cell.target.clone(), cell.case.clone(), file_system_id(&cell.file_system));
        named.contains(cell.id.as_str()) || cell.is_baseline() && places.contains(&place())
    });
    let kept: HashSet<&str> = plan.cells.iter().map(|cell| cell.id.as_str()).collect();
    for block in &mut plan.blocks {
        block.runs.retain(|run| kept.contains(run.cell.as_str()));
    }
    plan.blocks.retain(|block| !block.runs.is_empty());
    Ok(())
}
