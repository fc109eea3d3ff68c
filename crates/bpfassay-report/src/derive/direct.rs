// SPDX-License-Identifier: MIT OR Apache-2.0
//! The direct cost of a probe configuration: instructions on its path per call, as QEMU's plugin
//! counted them.

use std::{
    collections::{BTreeMap, HashMap},
    iter,
    sync::Arc,
};

use bpfassay_stats::summarise;
use bpfassay_study::{Model, Plan};

use super::{
    packed::{pack, unpack},
    pairs::work_of,
    priced::{self, FoundMisses, Pricing},
};
use bpfassay_results::{
    Direct, DirectFunction, Figure, FunctionCount, Instructions, Misses, MissesPerCall, PhaseCount, Role, RunCount,
    RunResult, Work,
};

/// How far the plugin's count can differ from the clock's: a share of the clock's count, plus a
/// number of instructions. Blocks that are left early are counted whole
/// (docs/explanation/direct-cost.md).
const TOLERANCE: f64 = 0.001;
const CONSTANT: u64 = 2_000;

/// The largest measured difference, as a share, between direct costs of guests with different seeds
/// (docs/explanation/direct-cost.md). The seed determines where hooks lie and which addresses
/// compiled programs contain, and so the instructions for lookups and in programs.
pub(crate) const OF_SEEDS: f64 = 0.0075;

/// A function, and what it does on the path.
type RoleFunction = (Role, Arc<str>);

/// A boot and the phases of a run in that boot.
type PhasesOfBoot = (u32, Box<[SlimPhaseCount]>);

/// The counts of the boots whose records count.
#[derive(Debug, Default)]
pub(super) struct BootCounts {
    /// The phases of each run, by boot.
    runs: HashMap<String, Vec<PhasesOfBoot>>,
    /// Why a boot has no counts, by block and boot.
    problems: HashMap<String, HashMap<u32, String>>,
    /// The names of phases and functions, each stored once, and the index of each name.
    names: Vec<Arc<str>>,
    places: HashMap<Arc<str>, u32>,
    cpus: u32,
}

/// The needed part of a [`PhaseCount`]: whole counts of 200,000 runs would take gigabytes.
#[derive(Debug)]
struct SlimPhaseCount {
    /// Index into [`BootCounts::names`].
    name: u32,
    count: Figure<ExecutedFunctions>,
}

#[derive(Debug)]
struct ExecutedFunctions {
    all: u64,
    unresolved: u64,
    tool: Option<Figure<u64>>,
    /// Misses in the whole guest by the model; `None` without a model.
    misses: Option<Misses>,
    /// The [`SlimFunctionCount`]s, packed.
    direct: Box<[u8]>,
}

/// A [`FunctionCount`] whose name is an index.
struct SlimFunctionCount {
    /// Index into [`BootCounts::names`].
    function: u64,
    role: Role,
    instructions: u64,
    misses: Option<Misses>,
}

// A packed part has two bits for its role.
const _: () = assert!(Role::ALL.len() <= 4);

impl SlimFunctionCount {
    /// Returns the numbers to pack. The first one holds the function's index, the role, and whether
    /// there are misses.
    fn numbers(self) -> impl Iterator<Item = u64> {
        let first = self.function << 3 | (self.role as u64) << 1 | u64::from(self.misses.is_some());
        [first, self.instructions].into_iter().chain(self.misses.into_iter().flat_map(Misses::numbers))
    }

    /// Reads the next part from `numbers`.
    fn next(numbers: &mut impl Iterator<Item = u64>) -> Option<Self> {
        let (first, instructions) = (numbers.next()?, numbers.next()?);
        let mut misses = || Some(Misses::of([numbers.next()?, numbers.next()?, numbers.next()?, numbers.next()?]));
        let misses = if first & 1 == 1 { Some(misses()?) } else { None };
        let role = *Role::ALL.get((first >> 1 & 3) as usize)?;
        Some(Self { function: first >> 3, role, instructions, misses })
    }
}

/// The plugin follows calls from function to function, without distinguishing CPUs.
const SEVERAL_CPUS: &str = "with several CPUs, QEMU's plugin cannot tell the calls of one CPU from those of another";

/// The counts of a run's phases that belong to a metric.
struct MetricCounts {
    /// Instructions of the whole guest.
    all: u64,
    unresolved: u64,
    /// Instructions in user space of the tool's processes; `None` if nothing looked for them.
    tool: Option<Result<u64, String>>,
    functions: BTreeMap<(Role, Arc<str>), FunctionSums>,
    calls: u64,
    /// Misses in the whole guest by the model; `None` without a model.
    misses: Option<Misses>,
}

#[derive(Default)]
struct FunctionSums {
    instructions: u64,
    /// The model's misses, phase by phase.
    misses: Vec<Option<Misses>>,
}

impl FunctionSums {
    fn misses_per_call(&self, calls: u64) -> Option<MissesPerCall> {
        Some(priced::sum(self.misses.iter().copied())?.per_call(calls))
    }
}

impl MetricCounts {
    fn per_call(&self, instructions: u64) -> f64 {
        instructions as f64 / self.calls as f64
    }

    fn direct_per_call(&self) -> f64 {
        self.per_call(self.functions.values().map(|function| function.instructions).sum())
    }

    /// Returns the model's misses per call; `None` without a model.
    fn found(&self) -> Option<FoundMisses> {
        let all = self.misses?.per_call(self.calls);
        let mut direct = MissesPerCall::default();
        for function in self.functions.values() {
            direct = direct.plus(function.misses_per_call(self.calls)?, 1.0);
        }
        Some(FoundMisses { all, direct })
    }
}

impl BootCounts {
    pub(super) fn of_guests_with(self, cpus: u32) -> Self {
        Self { cpus, ..self }
    }

    /// Stores the counts of boot `boot` of `block`.
    pub(super) fn take(&mut self, block: &str, boot: u32, counts: Figure<Vec<RunCount>>) {
        match counts {
            Figure::Value(runs) => {
                for RunCount { run, phases } in runs {
                    let phases = phases.into_iter().map(|phase| self.phase(phase)).collect();
                    let boots = self.runs.entry(run).or_default();
                    boots.retain(|(other, _)| *other != boot);
                    boots.reserve_exact(1);
                    boots.push((boot, phases));
                }
            }
            Figure::NotMeasured(reason) => {
                self.problems.entry(block.to_owned()).or_default().insert(boot, reason.to_string());
            }
        }
    }

    fn phase(&mut self, phase: PhaseCount) -> SlimPhaseCount {
        let name = self.name(&phase.name);
        let count = phase.count.map(|count: Instructions| ExecutedFunctions {
            all: count.all,
            unresolved: count.unresolved,
            tool: count.tool,
            misses: count.misses.map(|misses| misses.all),
            direct: pack(count.direct.iter().flat_map(|function| self.part(function).numbers())),
        });
        SlimPhaseCount { name, count }
    }

    fn part(&mut self, count: &FunctionCount) -> SlimFunctionCount {
        let FunctionCount { function, role, instructions, misses } = count;
        SlimFunctionCount {
            function: self.name(function).into(),
            role: *role,
            instructions: *instructions,
            misses: *misses,
        }
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(&place) = self.places.get(name) {
            return place;
        }
        let (name, place) = (Arc::<str>::from(name), u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(Arc::clone(&name));
        self.places.insert(name, place);
        place
    }

    /// Derives the direct cost of `others` over the baseline's runs of the same block and round,
    /// priced by `model`; `None` if nothing was counted.
    pub(super) fn direct(
        &self,
        baseline: &[&RunResult],
        others: &[&RunResult],
        metric: &str,
        model: Option<&Model>,
    ) -> Option<Figure<Direct>> {
        let is_counted = |run: &&&RunResult| self.of(run).is_some() || self.problem(run).is_some();
        others.iter().find(is_counted)?;
        Some(self.over(baseline, others, metric, model).map_or_else(Figure::missing, Figure::Value))
    }

    /// Sets the direct cost of each run with something under test.
    pub(super) fn of_runs(&self, plan: &Plan, runs: &mut [RunResult]) {
        let cells = plan.cells_by_id();
        for run in runs {
            let is_baseline = cells.get(run.record.cell.as_str()).is_none_or(|cell| cell.is_baseline());
            if is_baseline || (self.of(run).is_none() && self.problem(run).is_none()) {
                continue;
            }
            let metrics = run.derived.iter().flat_map(|derived| &derived.metrics);
            let costs: Vec<Option<Result<MetricCounts, String>>> =
                metrics.map(|metric| metric.operation.map(|_| self.counted(run, &metric.name))).collect();
            let bystander = run.derived.iter().flat_map(|derived| &derived.bystander);
            let of_bystander: Vec<_> = bystander.map(|calls| self.counted(run, &calls.name)).collect();
            let Some(derived) = &mut run.derived else { continue };
            for (calls, cost) in derived.bystander.iter_mut().zip(of_bystander) {
                calls.direct_cost = Some(per_call(cost));
            }
            for (metric, cost) in derived.metrics.iter_mut().zip(costs) {
                let Some(cost) = cost else { continue };
                metric.direct_misses = cost
                    .as_ref()
                    .ok()
                    .and_then(MetricCounts::found)
                    .filter(|_| plan.study.model.is_some())
                    .map(|found| found.direct);
                metric.direct_cost = Some(per_call(cost));
            }
        }
    }

    fn of(&self, run: &RunResult) -> Option<&[SlimPhaseCount]> {
        let mut boots = self.runs.get(&run.record.run)?.iter();
        boots.find(|(boot, _)| *boot == run.record.boot).map(|(_, phases)| phases.as_ref())
    }

    fn problem(&self, run: &RunResult) -> Option<&String> {
        self.problems.get(&run.record.block)?.get(&run.record.boot)
    }

    fn over(
        &self,
        baseline: &[&RunResult],
        others: &[&RunResult],
        metric: &str,
        model: Option<&Model>,
    ) -> Result<Direct, String> {
        let before: BTreeMap<_, &RunResult> = baseline.iter().map(|run| (round_of(run), *run)).collect();
        let (mut totals, mut elsewhere, mut calls) = (Vec::new(), Vec::new(), 0);
        let mut tools = Vec::new();
        let mut functions = BTreeMap::<RoleFunction, f64>::new();
        let (mut misses, mut pricing) = (BTreeMap::new(), Pricing::new(model));
        let mut unresolved = 0.0;
        let mut reason = None;
        for run in others {
            let pair = before.get(&round_of(run)).ok_or_else(|| "the round has no run of the baseline".to_owned());
            let pair = pair.and_then(|before| Ok((self.counted(before, metric)?, self.counted(run, metric)?)));
            let (without, with) = match pair {
                Ok(pair) => pair,
                Err(why) => {
                    reason.get_or_insert(why);
                    continue;
                }
            };
            let direct = with.direct_per_call();
            totals.push(direct);
            let rest = with.per_call(with.all) - with.per_call(without.all) - direct;
            elsewhere.push(rest);
            pricing.add([direct, rest], with.found(), without.found());
            unresolved += with.per_call(with.unresolved);
            tools.extend(with.tool.clone().map(|of_run| of_run.map(|instructions| with.per_call(instructions))));
            calls = with.calls;
            for (function, counted) in &with.functions {
                *functions.entry(function.clone()).or_default() += with.per_call(counted.instructions);
                priced::add(
                    &mut misses,
                    function.clone(),
                    counted.misses_per_call(with.calls).filter(|_| model.is_some()),
                );
            }
        }
        let summary = |figures: &[f64]| summarise(figures).map_err(|error| error.to_string());
        if totals.is_empty() {
            return Err(reason.unwrap_or_else(|| "no run was measured".to_owned()));
        }
        let runs = totals.len() as f64;
        let functions = means(functions, &misses, runs);
        Ok(Direct {
            per_call: summary(&totals)?,
            elsewhere: summary(&elsewhere)?,
            tool: (!tools.is_empty()).then(|| {
                let of_runs: Result<Vec<f64>, String> = tools.into_iter().collect();
                of_runs.and_then(|of_runs| summary(&of_runs)).into()
            }),
            unresolved: unresolved / runs,
            calls,
            priced: pricing.finish(&functions),
            functions,
        })
    }

    /// Sums the counts over the phases of `run` that belong to `metric`.
    fn counted(&self, run: &RunResult, metric: &str) -> Result<MetricCounts, String> {
        if self.cpus > 1 {
            return Err(SEVERAL_CPUS.to_owned());
        }
        let phases = match (self.of(run), self.problem(run)) {
            (Some(phases), _) => phases,
            (None, Some(problem)) => return Err(problem.clone()),
            (None, None) => return Err("QEMU loaded no plugin that counts".to_owned()),
        };
        let work: &Work = work_of(run, metric).ok_or_else(|| "the run has no such metric".to_owned())?.known()?;
        if work.calls == 0 {
            return Err("the workload made no such calls".to_owned());
        }
        let (functions, calls) = (BTreeMap::new(), work.calls);
        let mut counted = MetricCounts { all: 0, unresolved: 0, tool: None, functions, calls, misses: None };
        let (mut misses, mut tools) = (Vec::new(), Vec::new());
        for phase in phases.iter().filter(|phase| Some(&phase.name) == self.places.get(metric)) {
            let instructions = phase.count.known()?;
            counted.all = counted.all.saturating_add(instructions.all);
            counted.unresolved = counted.unresolved.saturating_add(instructions.unresolved);
            tools.extend(instructions.tool.as_ref().map(Figure::known));
            misses.push(instructions.misses);
            let mut numbers = unpack(&instructions.direct);
            for part in iter::from_fn(|| SlimFunctionCount::next(&mut numbers)) {
                let Some(function) = self.names.get(part.function as usize) else { continue };
                let sum = counted.functions.entry((part.role, Arc::clone(function))).or_default();
                sum.instructions = sum.instructions.saturating_add(part.instructions);
                sum.misses.push(part.misses);
            }
        }
        counted.misses = priced::sum(misses.into_iter());
        counted.tool = (!tools.is_empty())
            .then(|| tools.into_iter().try_fold(0, |sum: u64, of_phase| Ok(sum.saturating_add(*of_phase?))));
        // The guest executes no instructions while it waits, so only busy time is compared.
        if let Figure::Value(clock) = work.busy_ns {
            let tolerance = (clock as f64 * TOLERANCE) as u64 + CONSTANT;
            if counted.all.abs_diff(clock) > tolerance {
                return Err(format!("the plugin counted {} instructions where the clock counted {clock}", counted.all));
            }
        }
        Ok(counted)
    }
}

fn per_call(counted: Result<MetricCounts, String>) -> Figure<f64> {
    counted.map_or_else(Figure::missing, |counted| Figure::Value(counted.direct_per_call()))
}

/// Returns the block and the round of `run`, which are those of its baseline.
fn round_of(run: &RunResult) -> (&str, u32) {
    (&run.record.block, run.record.round)
}

/// Divides sums over `runs` into means, the largest first.
fn means(
    sums: BTreeMap<RoleFunction, f64>,
    misses: &BTreeMap<RoleFunction, MissesPerCall>,
    runs: f64,
) -> Vec<DirectFunction> {
    let mean = |(key, sum): (RoleFunction, f64)| {
        let misses = misses.get(&key).map(|sum| MissesPerCall::default().plus(*sum, 1.0 / runs));
        let (role, function) = key;
        DirectFunction { function: function.to_string(), role, per_call: sum / runs, misses }
    };
    let mut functions: Vec<DirectFunction> = sums.into_iter().map(mean).collect();
    functions.sort_by(|a, b| b.per_call.total_cmp(&a.per_call));
    functions
}
