// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether two results can be compared at all.

use std::collections::BTreeSet;

use bpfassay_protocol::job::{Program, Workload};
use bpfassay_study::{Clock, Model};

use super::cells::CellPair;
use bpfassay_results::{Outcome, Results};

/// Why two results cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotComparable {
    /// The clocks differ.
    #[error(
        "the base was measured by the clock `{base}`, the new results by `{new}`: run one of them again with --clock {new}"
    )]
    Clock {
        /// The base's clock.
        base: Clock,
        /// The clock of the new results.
        new: Clock,
    },
    /// The results have no cell in common.
    #[error("the two have no cell in common: {hint}")]
    NothingInCommon {
        /// The cells of each result.
        hint: String,
    },
    /// Both results use one name for different work.
    #[error("workload `{case}` on {file_system} is not the same in both ({difference}): run one study for both")]
    Workload {
        /// The case.
        case: String,
        /// The file system.
        file_system: String,
        /// How they differ.
        difference: String,
    },
    /// Different programs did the work.
    #[error(
        "the workload was done by {base} in the base and by {new} in the new results: give both the same --ior, or none"
    )]
    Engine {
        /// The programs in the base.
        base: String,
        /// The programs in the new results.
        new: String,
    },
    /// The guests were set up differently.
    #[error("{arch} guests had {base} in the base and {new} in the new results: make them alike and run again")]
    Machine {
        /// The architecture.
        arch: String,
        /// The set-up in the base.
        base: String,
        /// The set-up in the new results.
        new: String,
    },
    /// The filter matches nothing.
    #[error("the filter takes nothing: {problem}")]
    Filter {
        /// The reason, and the existing names.
        problem: String,
    },
    /// The question itself is invalid.
    #[error("the question cannot be answered: {reason}")]
    Question {
        /// Why.
        reason: String,
    },
}

/// Returns notes on differences that leave the meaning of the figures unchanged.
///
/// # Errors
/// [`NotComparable`], if the two results differ in a property on which figures depend, such as
/// study, clock or engine.
pub(super) fn check(base: &Results, new: &Results, pairs: &[CellPair<'_>]) -> Result<Vec<String>, NotComparable> {
    let clocks = [base.plan.study.clock, new.plan.study.clock];
    if clocks[0] != clocks[1] {
        return Err(NotComparable::Clock { base: clocks[0], new: clocks[1] });
    }
    let common: Vec<_> = pairs.iter().filter_map(|pair| pair.base.zip(pair.new)).collect();
    if common.is_empty() {
        return Err(NotComparable::NothingInCommon { hint: in_each(base, new) });
    }
    let planned = [base, new].map(|results| results.plan.cells_by_id());
    for (in_base, in_new) in &common {
        let of = |side: usize, id: &str| planned[side].get(id).map(|cell| (&cell.workload, &cell.file_system));
        if let (Some(was), Some(is)) = (of(0, &in_base.cell), of(1, &in_new.cell))
            && was != is
        {
            return Err(NotComparable::Workload {
                case: in_new.case.clone(),
                file_system: in_new.file_system.clone(),
                difference: difference(was.0, is.0),
            });
        }
    }
    let engines = [base, new].map(engines);
    if engines[0] != engines[1] && engines.iter().all(|engines| !engines.is_empty()) {
        let [base, new] = engines.map(|engines| engines.into_iter().collect::<Vec<_>>().join(" and "));
        return Err(NotComparable::Engine { base, new });
    }
    same_guests(base, new)?;
    machines(base, new, clocks[1])
}

/// Checks that the guests of both results are set up in the same way.
///
/// # Errors
/// [`NotComparable::Machine`] if they are not.
pub(crate) fn same_guests(base: &Results, new: &Results) -> Result<(), NotComparable> {
    let [base, new] = [base, new].map(|results| {
        let guest = &results.plan.study.guest;
        format!(
            "{} CPUs, {} MiB, addresses {}, scheduling {}, kernel parameters `{}`",
            guest.cpus,
            guest.memory_mib,
            guest.addresses,
            results.plan.study.scheduling(),
            guest.kernel_parameters.join(" ")
        )
    });
    if base == new { Ok(()) } else { Err(NotComparable::Machine { arch: "all".to_owned(), base, new }) }
}

/// Notes that one of the results is a shard of its study.
fn of_shard((side, results): (&str, &Results)) -> Option<String> {
    let shard = results.plan.shard?.phrase();
    Some(format!("the {side}: {shard} of the study; what its other shards measure is left out of the comparison"))
}

/// Notes that only one of the results has priced direct costs, or that the models differ. Priced
/// figures cannot be compared then. Counts of instructions do not depend on the model.
fn models(base: &Results, new: &Results) -> Option<String> {
    let [was, is] = [base, new].map(|results| results.plan.study.model.as_ref());
    let described = |model: Option<&Model>| model.map_or_else(|| "no model".to_owned(), Model::described);
    (was != is).then(|| {
        format!(
            "priced direct costs are not comparable: the base has {}; the new results have {}; instructions do not depend on it",
            described(was),
            described(is)
        )
    })
}

/// Refuses machines that count or time differently, and notes other versions of the same machine.
fn machines(base: &Results, new: &Results, clock: Clock) -> Result<Vec<String>, NotComparable> {
    let mut notes: Vec<String> = [("base", base), ("new results", new)].into_iter().filter_map(of_shard).collect();
    notes.extend(models(base, new));
    let last = |results: &Results| results.provenance.last().cloned();
    let (Some(was), Some(is)) = (last(base), last(new)) else { return Ok(notes) };
    for (arch, new) in &is.qemu {
        let Some(base) = was.qemu.get(arch) else { continue };
        let kind = |facts: &bpfassay_results::provenance::QemuFacts| {
            format!("{} {} -cpu {}", facts.accelerator, facts.machine, facts.cpu)
        };
        if kind(base) != kind(new) {
            return Err(NotComparable::Machine { arch: arch.to_string(), base: kind(base), new: kind(new) });
        }
        if base.program != new.program {
            let names = [base, new].map(|facts| format!("{} {}", facts.program.name, facts.program.version));
            notes.push(format!("{arch}: {} in the base, {} in the new results", names[0], names[1]));
        }
    }
    let hosts = [&was, &is].map(|made| format!("{} ({} CPUs)", made.host.cpu_model, made.host.cpus));
    if clock == Clock::Wall && hosts[0] != hosts[1] {
        notes.push(format!("measured under the wall clock on {} and on {}: the hosts differ", hosts[0], hosts[1]));
    }
    Ok(notes)
}

/// Returns the engines that did the work of IOR.
fn engines(results: &Results) -> BTreeSet<String> {
    let engine = |outcome: &Outcome| match outcome {
        Outcome::Measured(figures) => figures.engine.map(|engine| format!("{engine:?}").to_lowercase()),
        Outcome::Refused(_) | Outcome::Failed(_) => None,
    };
    results.runs.iter().filter_map(|run| engine(&run.record.outcome)).collect()
}

fn difference(base: &Workload, new: &Workload) -> String {
    let [base, new] = [base, new].map(options);
    if base == new { "the file system".to_owned() } else { format!("{base} against {new}") }
}

/// Formats what `workload` runs, and how.
fn options(workload: &Workload) -> String {
    let program = match &workload.program {
        Program::Bundled => String::new(),
        Program::ExternalIor { ranks } => format!("{ranks} ranks of IOR "),
        Program::Path { path } => format!("{path} "),
    };
    let deadline = workload.deadline_ms.map_or_else(String::new, |ms| format!(", deadline {ms} ms"));
    let neighbour = if workload.neighbour { ", neighbour" } else { "" };
    let bystander =
        workload.bystander.as_ref().map(|bystander| format!(", bystander {}", options(&bystander.workload)));
    format!("`{program}{}`{deadline}{neighbour}{}", workload.arguments.join(" "), bystander.unwrap_or_default())
}

fn in_each(base: &Results, new: &Results) -> String {
    let [base, new] = [base, new].map(|results| {
        let targets = results.plan.targets().into_iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let cases: BTreeSet<&str> = results.cells.iter().map(|cell| cell.case.as_str()).collect();
        format!("{targets} with {}", cases.into_iter().collect::<Vec<_>>().join(", "))
    });
    format!("the base has {base}; the new results have {new} (kernels of other names: --kernel BASE=NEW)")
}
