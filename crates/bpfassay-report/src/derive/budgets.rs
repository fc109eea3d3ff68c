// SPDX-License-Identifier: MIT OR Apache-2.0
//! Verdicts on budgets: limits on what the kernel made of a tool's programs and maps, and on the
//! time that loading, attaching and detaching took, all in the first measured run.

use bpfassay_protocol::tool_job::{BpfObject, ProgramCode};
use bpfassay_stats::Verdict;
use bpfassay_study::{Budget, BudgetFigure, GROWTH_FLOOR, Series, by_version};

use super::{
    context::DeriveContext,
    tool_results::{NOT_TIMED, is_timed, map_bytes},
};
use bpfassay_results::{CellResult, Loaded};

/// A value, and words that follow its unit; or why there is no value.
type Found = Result<(u64, String), String>;

/// The reason if the verified instructions of a program are unknown.
const NOT_VERIFIED: &str = "the kernel does not report what the verifier processed (Linux 5.16 and later do)";

/// Decides whether the tool of `cell` keeps `budget`, and says on what figure. A figure that the
/// kernel does not report leaves the verdict open. `None` if the budget is about growth and `cell`
/// has the oldest kernel of several.
pub(super) fn decide(
    context: &DeriveContext<'_>,
    cells: &[CellResult],
    cell: &CellResult,
    budget: Budget,
) -> Option<(Verdict, String)> {
    let Budget { figure, limit } = budget;
    let open = |reason: String| Some((Verdict::Inconclusive, reason));
    let Some(loaded) = cell.loaded() else {
        let reason = match cell.tool {
            Some(_) => "not measured: the tool was not ready in any run",
            None => "not measured: the programs of the bundled tracer are not recorded, only those of tools",
        };
        return open(reason.to_owned());
    };
    let is_time = matches!(figure, BudgetFigure::LoadMs | BudgetFigure::AttachMs | BudgetFigure::DetachMs);
    let found = match figure {
        _ if is_time && !is_timed(context.plan, context.provenance, cell.target.arch) => Err(NOT_TIMED.to_owned()),
        BudgetFigure::LoadMs => {
            loaded.load_ns.map(milliseconds).ok_or_else(|| "the tool's loader does not report it".to_owned())
        }
        BudgetFigure::AttachMs => Ok(milliseconds(loaded.ready_ns)),
        BudgetFigure::DetachMs => match (loaded.stop_ns, grace_ms(context, cell)) {
            (Some(took), _) => Ok(milliseconds(took)),
            (None, Some(grace)) if grace >= limit => {
                return Some((Verdict::Regression, format!("it had not ended after {grace} ms and was killed")));
            }
            (None, _) => Err("the tool was killed".to_owned()),
        },
        BudgetFigure::MapBytes => match loaded.map_bytes {
            // The number is a lower bound on every kernel.
            Some(bytes) if bytes > limit => Ok((bytes, String::new())),
            _ => map_bytes(loaded, Series::of(&cell.target.kernel)).map(|bytes| (bytes, String::new())),
        },
        _ if loaded.programs.is_empty() => Err("the tool had no program in the kernel".to_owned()),
        BudgetFigure::VerifiedInstructions => most(loaded, |code| code.verified).ok_or_else(|| NOT_VERIFIED.to_owned()),
        BudgetFigure::States => most(loaded, |code| code.log.map(|log| log.total_states))
            .ok_or_else(|| "only the loader of bare objects asks for the verifier's log".to_owned()),
        BudgetFigure::JitedBytes => jited_bytes(loaded),
        BudgetFigure::VerifiedGrowthPercent => {
            let alike = |other: &&CellResult| {
                (other.target.arch, &other.tool) == (cell.target.arch, &cell.tool)
                    && (&other.case, &other.file_system) == (&cell.case, &cell.file_system)
                    && other.target != cell.target
            };
            let (older, newer): (Vec<_>, Vec<_>) = cells
                .iter()
                .filter(alike)
                .partition(|other| by_version(&other.target.kernel, &cell.target.kernel).is_lt());
            if older.is_empty() && !newer.is_empty() {
                return None;
            }
            growth(loaded, older)
        }
    };
    let (value, words) = match found {
        Ok(found) => found,
        Err(reason) => return open(format!("not known: {reason}")),
    };
    let verdict = if value <= limit { Verdict::Pass } else { Verdict::Regression };
    Some((verdict, format!("{value} {}{words}", figure.words())))
}

const fn milliseconds(nanoseconds: u64) -> (u64, String) {
    (nanoseconds.div_ceil(1_000_000), String::new())
}

/// Returns how long the tool of `cell` can take to end, in milliseconds.
fn grace_ms(context: &DeriveContext<'_>, cell: &CellResult) -> Option<u64> {
    Some(context.plan.study.tool(cell.tool.as_ref()?)?.file.stop.grace_ms)
}

/// Returns the largest figure of a program, and the program's name. `None` if that of one program
/// is unknown.
fn most(loaded: &Loaded, figure: impl Fn(&ProgramCode) -> Option<u32>) -> Option<(u64, String)> {
    let all = loaded.programs.iter().map(|program| Some((figure(program.code.as_ref()?)?, &program.name)));
    let (most, name) = all.collect::<Option<Vec<_>>>()?.into_iter().max()?;
    Some((most.into(), format!(" of {name}")))
}

fn jited_bytes(loaded: &Loaded) -> Found {
    let all: Option<Vec<_>> =
        loaded.programs.iter().map(|program| Some(u64::from(program.code?.jited_bytes))).collect();
    match all {
        Some(all) if all.iter().all(|&bytes| bytes > 0) => Ok((all.iter().sum(), String::new())),
        Some(_) => Err("the kernel interprets a program".to_owned()),
        None => Err("the kernel does not report the machine code of a program".to_owned()),
    }
}

/// Returns the growth of the program of `loaded` that grew most since the newest of the `older`
/// kernels that reports its programs, in per cent, rounded up.
fn growth(loaded: &Loaded, mut older: Vec<&CellResult>) -> Found {
    let verified = |loaded: &Loaded| {
        let of_program = |program: &BpfObject| Some((program.name.clone(), program.code?.verified?));
        loaded.programs.iter().map(of_program).collect::<Option<Vec<_>>>()
    };
    let now = verified(loaded).ok_or(NOT_VERIFIED)?;
    older.sort_by(|a, b| by_version(&b.target.kernel, &a.target.kernel));
    let before = older.into_iter().find_map(|cell| Some((&cell.target, verified(cell.loaded()?)?)));
    let (target, before) = before.ok_or("no older kernel of these results reports what the verifier processed")?;
    let grown = now.iter().filter_map(|(name, now)| {
        let (_, before) = before.iter().filter(|(other, _)| other == name).max_by_key(|(_, before)| *before)?;
        let more = now.saturating_sub(*before);
        let share = if more > GROWTH_FLOOR { u64::from(more) * 100 } else { 0 };
        Some((share.div_ceil(u64::from(*before).max(1)), name, before, now))
    });
    let Some((percent, name, before, now)) = grown.max() else {
        return Err(format!("no program has the name of one on {target}"));
    };
    Ok((percent, format!(", {target}: {before}, then {now} of {name}")))
}
