// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs priced by the study's model of caches and branches.

use std::collections::BTreeMap;

use bpfassay_results::{DirectFunction, Misses, MissesPerCall, Priced, PricedRole, Role};
use bpfassay_stats::summarise;
use bpfassay_study::Model;

/// The model's misses in a run's phases that belong to a metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundMisses {
    /// Misses in the whole guest.
    pub(super) all: MissesPerCall,
    /// Misses on the probe's path.
    pub(super) direct: MissesPerCall,
}

/// The prices of one run and of the baseline's run of the same round.
struct PricedRun {
    direct: f64,
    elsewhere: f64,
    misses: MissesPerCall,
    elsewhere_misses: MissesPerCall,
}

/// Prices runs one after the other.
pub(super) struct Pricing<'a> {
    model: Option<&'a Model>,
    /// `None` once a run had nothing to price.
    runs: Option<Vec<PricedRun>>,
}

impl<'a> Pricing<'a> {
    pub(super) fn new(model: Option<&'a Model>) -> Self {
        Self { model, runs: model.map(|_| Vec::new()) }
    }

    /// Adds a run with its instructions per call on the path and elsewhere, and the misses with and
    /// without what is under test.
    pub(super) fn add(&mut self, instructions: [f64; 2], with: Option<FoundMisses>, without: Option<FoundMisses>) {
        let (Some(model), Some(runs)) = (self.model, &mut self.runs) else { return };
        let (Some(with), Some(without)) = (with, without) else {
            self.runs = None;
            return;
        };
        let elsewhere = with.all.plus(without.all, -1.0).plus(with.direct, -1.0);
        let [direct, rest] = instructions;
        runs.push(PricedRun {
            direct: direct + with.direct.priced(&model.prices),
            elsewhere: rest + elsewhere.priced(&model.prices),
            misses: with.direct,
            elsewhere_misses: elsewhere,
        });
    }

    /// Returns the figures over all runs, with the parts by role of `functions`; `None` without a
    /// model, or if a run has nothing to price.
    pub(super) fn finish(self, functions: &[DirectFunction]) -> Option<Priced> {
        let (model, runs) = (self.model?, self.runs?);
        let share = 1.0 / runs.len() as f64;
        let mean = |of: fn(&PricedRun) -> MissesPerCall| {
            runs.iter().fold(MissesPerCall::default(), |sum, run| sum.plus(of(run), share))
        };
        let summary = |of: fn(&PricedRun) -> f64| summarise(&runs.iter().map(of).collect::<Vec<_>>()).ok();
        Some(Priced {
            per_call: summary(|run| run.direct)?,
            misses: mean(|run| run.misses),
            roles: Role::ALL.into_iter().filter_map(|role| of_role(model, functions, role)).collect(),
            elsewhere: summary(|run| run.elsewhere)?,
            elsewhere_misses: mean(|run| run.elsewhere_misses),
        })
    }
}

fn of_role(model: &Model, functions: &[DirectFunction], role: Role) -> Option<PricedRole> {
    let mut of_role = functions.iter().filter(|function| function.role == role).peekable();
    of_role.peek()?;
    let (mut instructions, mut misses) = (0.0, MissesPerCall::default());
    for function in of_role {
        instructions += function.per_call;
        misses = misses.plus(function.misses.unwrap_or_default(), 1.0);
    }
    Some(PricedRole { role, instructions, misses, per_call: instructions + misses.priced(&model.prices) })
}

/// Sums the misses of several phases; `None` if one of them had no model.
pub(super) fn sum(phases: impl Iterator<Item = Option<Misses>>) -> Option<Misses> {
    phases.reduce(|sum, more| Some(sum?.saturating_add(more?))).flatten()
}

/// Adds the misses of a function in a run to the sums over runs.
pub(super) fn add<K: Ord>(sums: &mut BTreeMap<K, MissesPerCall>, key: K, more: Option<MissesPerCall>) {
    if let Some(more) = more {
        let sum = sums.entry(key).or_default();
        *sum = sum.plus(more, 1.0);
    }
}
