// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds which executed instructions are on a probe's path. docs/explanation/direct-cost.md has the
//! rule.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_results::{Figure, FunctionCount, Instructions, Misses, PhaseCount, PhaseMisses, Role, RunCount};

use crate::{Count, Executed, Profile, role};

/// A phase of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct DirectPhase {
    /// The run.
    pub run: String,
    /// The thing under test and the workload, which runs that do the same have in common.
    pub cell: String,
    /// Whether nothing was under test.
    pub is_baseline: bool,
    /// Whether the run only warmed the guest up.
    pub is_warm_up: bool,
    /// The phase, as the workload names it.
    pub name: String,
    /// Index of the test in the script, from 0.
    pub test: u32,
    /// Repetition within the test, from 0.
    pub repetition: u32,
    /// Calls of the workload in the phase; 0 if unknown.
    pub calls: u64,
    /// The executions in the phase.
    pub profile: Figure<Profile>,
}

/// The reason why the user space of a tool is not known.
const SHARED: &str = "the tool and another process have code at the same addresses: their programs are linked to fixed ones, or the study has `addresses = \"fixed\"`";
/// The name of code that belongs to no function.
const GENERATED: &str = "generated code";

/// The baseline's executions of one phase.
#[derive(Default)]
struct Baseline<'a> {
    /// Sums over the measured runs. Code that only warm-ups executed has an entry with 0.
    sums: BTreeMap<&'a Executed, Count>,
    runs: u64,
}

impl Baseline<'_> {
    /// Returns mean instructions and entries per run; `None` for code that no baseline executed.
    fn mean(&self, executed: &Executed) -> Option<(f64, f64)> {
        let sum = self.sums.get(executed)?;
        let runs = self.runs.max(1) as f64;
        Some((sum.instructions as f64 / runs, sum.entries as f64 / runs))
    }
}

/// Returns the direct cost of each phase: the instructions on the probe's path if something was
/// under test, and nothing for a baseline. All phases must come from one boot.
#[must_use]
pub fn direct(phases: &[DirectPhase]) -> Vec<RunCount> {
    let mut baselines: BTreeMap<_, Baseline<'_>> = BTreeMap::new();
    for phase in phases.iter().filter(|phase| phase.is_baseline) {
        let Figure::Value(profile) = &phase.profile else { continue };
        let baseline = baselines.entry(place(phase)).or_default();
        baseline.runs += u64::from(!phase.is_warm_up);
        for (executed, count) in profile {
            let sum = baseline.sums.entry(executed).or_default();
            if !phase.is_warm_up {
                sum.instructions = sum.instructions.saturating_add(count.instructions);
                sum.entries = sum.entries.saturating_add(count.entries);
            }
        }
    }
    let coming = coming(phases);
    let mut runs: Vec<RunCount> = Vec::new();
    for phase in phases {
        if runs.last().is_none_or(|run| run.run != phase.run) {
            runs.push(RunCount { run: phase.run.clone(), phases: Vec::new() });
        }
        let count = match (&phase.profile, baselines.get(&place(phase)).filter(|baseline| baseline.runs > 0)) {
            (Figure::NotMeasured(reason), _) => Figure::NotMeasured(reason.clone()),
            (Figure::Value(_), None) => Figure::missing("no run of the baseline was counted in this phase"),
            (Figure::Value(profile), Some(baseline)) => {
                let path = match coming.get(&of_cell(phase)) {
                    Some(coming) if !phase.is_baseline => {
                        path(profile, baseline, coming, Hits::of(profile, phase.calls))
                    }
                    _ => Vec::new(),
                };
                Figure::Value(totals(profile, path, phase.is_baseline))
            }
        };
        if let Some(run) = runs.last_mut() {
            let (name, test, repetition) = (phase.name.clone(), phase.test, phase.repetition);
            run.phases.push(PhaseCount { name, test, repetition, count });
        }
    }
    runs
}

/// A phase of runs of the same cell.
type OfCell<'a> = (&'a str, (&'a str, u32, u32));

/// Returns, for each phase of each cell, the functions that are entered in each call in all runs
/// with the same number of calls, including warm-ups.
///
/// Background work of the kernel can by chance happen a whole number of times in one run, but not
/// in all runs. It was seen on x86_64 6.1: 26 instructions per write of `check_new_pages`. The page
/// allocator enters it for each page that the workload writes to, if it has to look for pages.
fn coming(phases: &[DirectPhase]) -> BTreeMap<OfCell<'_>, BTreeSet<&str>> {
    let mut coming: BTreeMap<OfCell<'_>, BTreeSet<&str>> = BTreeMap::new();
    let counted = phases.iter().filter(|phase| !phase.is_warm_up);
    let calls: BTreeMap<OfCell<'_>, u64> = counted.map(|phase| (of_cell(phase), phase.calls)).collect();
    for phase in phases.iter().filter(|phase| !phase.is_baseline) {
        let Figure::Value(profile) = &phase.profile else { continue };
        let key = of_cell(phase);
        if calls.get(&key) != Some(&phase.calls) {
            continue;
        }
        let hits = Hits::of(profile, phase.calls);
        let found = profile.iter().filter_map(|(executed, count)| match executed {
            Executed::Function(name) if comes_with(count.entries, hits) => Some(name.as_str()),
            _ => None,
        });
        let found: BTreeSet<&str> = found.collect();
        coming.entry(key).and_modify(|all| all.retain(|name| found.contains(name))).or_insert(found);
    }
    coming
}

fn of_cell(phase: &DirectPhase) -> OfCell<'_> {
    (&phase.cell, place(phase))
}

fn place(phase: &DirectPhase) -> (&str, u32, u32) {
    (&phase.name, phase.test, phase.repetition)
}

fn totals(profile: &Profile, direct: Vec<FunctionCount>, is_baseline: bool) -> Instructions {
    let of = |executed| profile.get(executed).map_or(0, |count: &Count| count.instructions);
    let (tool, shared) = (of(&Executed::Tool), of(&Executed::Shared));
    let of_tool = match shared {
        0 => Figure::Value(tool),
        _ => Figure::missing(SHARED),
    };
    let on_path = |function: &FunctionCount| (function.function == GENERATED).then_some(function.instructions);
    Instructions {
        all: profile.values().fold(0, |sum, count| sum.saturating_add(count.instructions)),
        user: of(&Executed::User).saturating_add(tool).saturating_add(shared),
        tool: (!is_baseline).then_some(of_tool),
        unresolved: of(&Executed::Generated).saturating_sub(direct.iter().find_map(on_path).unwrap_or_default()),
        misses: misses(profile),
        direct,
    }
}

/// Returns the sum of what a model found; `None` without a model.
fn misses(profile: &Profile) -> Option<PhaseMisses> {
    let user = profile.get(&Executed::User)?.misses?;
    let found = profile.values().filter_map(|count| count.misses);
    Some(PhaseMisses { all: found.fold(Misses::default(), Misses::saturating_add), user })
}

/// How often programs were entered in a phase.
#[derive(Clone, Copy)]
struct Hits {
    /// Entries of all programs.
    all: u64,
    /// Entries per call of the workload, rounded; 1 if fewer, or without a number of calls.
    per_call: u64,
    /// Calls of the workload; 0 if unknown.
    of_workload: u64,
}

impl Hits {
    /// Counts the entries in a phase with `calls` calls of the workload.
    fn of(profile: &Profile, calls: u64) -> Self {
        let hits = profile.iter().filter(|(executed, _)| match executed {
            Executed::Program(_) => true,
            Executed::Function(name) => role::is_interpreter(name),
            Executed::Generated | Executed::User | Executed::Tool | Executed::Shared => false,
        });
        let all = hits.fold(0_u64, |sum, (_, count)| sum.saturating_add(count.entries));
        let per_call = (all as f64 / calls as f64).round();
        Self { all, per_call: if calls == 0 { 1 } else { (per_call as u64).max(1) }, of_workload: calls }
    }

    /// Returns the calls in which programs were entered; `None` if there are none.
    fn calls(self) -> Option<f64> {
        (self.all > 0).then(|| self.all as f64 / self.per_call as f64)
    }

    /// Whether a function that was entered `entries` times is on the path of some calls at most.
    fn is_rare(self, entries: u64) -> bool {
        (entries as f64) < self.calls().unwrap_or(self.of_workload as f64)
    }
}

/// Returns the functions on the probe's path, the largest first. `coming` are the functions that
/// come with each call in all runs.
fn path(profile: &Profile, baseline: &Baseline<'_>, coming: &BTreeSet<&str>, hits: Hits) -> Vec<FunctionCount> {
    let on_path = |(executed, count): (&Executed, &Count)| {
        let (function, role, instructions) = match executed {
            Executed::User | Executed::Tool | Executed::Shared => return None,
            Executed::Program(name) => (name.as_str(), Role::Program, count.instructions),
            Executed::Generated => {
                let before = baseline.mean(executed).unwrap_or_default().0.round() as u64;
                (GENERATED, Role::Trampoline, count.instructions.saturating_sub(before))
            }
            Executed::Function(name) => match (role::of(name), baseline.mean(executed)) {
                // Without a program in the phase, or with a function that others enter, too, this
                // is work that only happened not to be in the baseline.
                (Some(_), None) if (hits.all == 0 || role::is_common(name)) && hits.is_rare(count.entries) => {
                    return None;
                }
                (Some(role), None) => (name.as_str(), role, count.instructions),
                // The function is unknown, but is entered only with the probe, and as often.
                (None, None) if coming.contains(name.as_str()) => (name.as_str(), Role::Trampoline, count.instructions),
                (None, _) => return None,
                (Some(role), Some(before)) => (name.as_str(), role, share(count, before, hits)?),
            },
        };
        // A function that is partly on the path gets the same part of its misses.
        let misses = count.misses.map(|misses| misses.part(instructions, count.instructions));
        (instructions > 0).then(|| FunctionCount { function: function.to_owned(), role, instructions, misses })
    };
    let mut path: Vec<FunctionCount> = profile.iter().filter_map(on_path).collect();
    path.sort_by(|a, b| b.instructions.cmp(&a.instructions).then_with(|| a.function.cmp(&b.function)));
    path
}

/// Whether a function that only a phase with a probe entered, `entries` times, belongs to the
/// probe: it is entered a whole number of times per call, within 2 %. The kernel's own work in some
/// phases has any number. It was seen on x86_64 7.2: 17 instructions per call of DAMON, which sorts
/// its regions at times.
fn comes_with(entries: u64, hits: Hits) -> bool {
    hits.calls().map(|calls| entries as f64 / calls).is_some_and(|times| {
        let whole = times.round();
        whole >= 1.0 && (times - whole).abs() <= 0.02 * times
    })
}

/// Returns the instructions on the path of a function that the baseline executes, too. `before` are
/// the baseline's instructions and entries.
///
/// A path enters the function a whole number of times for each call. A call can enter several
/// programs: copies of one, or one at the call's beginning and one at its end. The code that leads
/// to them is entered once for all. Any other difference varies between runs for other reasons.
/// Exception vectors are not entered at their beginning: a path executes a whole number of their
/// instructions.
fn share(count: &Count, before: (f64, f64), hits: Hits) -> Option<u64> {
    let calls = hits.calls()?;
    let (instructions, entries) = (count.instructions as f64 - before.0, count.entries as f64 - before.1);
    let (more, of_each) = match count.entries {
        0 => (instructions, 1.0),
        _ => (entries, instructions / entries),
    };
    let times = (more / calls).round();
    (times >= 1.0 && of_each > 0.0).then(|| ((times * calls * of_each).round() as u64).min(count.instructions))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(parts: &[(Executed, u64, u64)]) -> Profile {
        let count = |&(_, instructions, entries): &(Executed, u64, u64)| Count { instructions, entries, misses: None };
        parts.iter().map(|part| (part.0.clone(), count(part))).collect()
    }

    fn function(name: &str) -> Executed {
        Executed::Function(name.to_owned())
    }

    fn phase(run: &str, is_warm_up: bool, profile: Profile) -> DirectPhase {
        let is_baseline = run.starts_with("none");
        let (run, name) = (run.to_owned(), "read".to_owned());
        let profile = Figure::Value(profile);
        let cell = run.split('-').next().unwrap_or_default().to_owned();
        DirectPhase { run, cell, is_baseline, is_warm_up, name, test: 0, repetition: 0, calls: 10, profile }
    }

    /// Returns the direct cost of the last of `phases`.
    fn last(phases: &[DirectPhase]) -> Instructions {
        let runs = direct(phases);
        let Figure::Value(count) = runs.last().unwrap().phases[0].count.clone() else { panic!("no count") };
        count
    }

    fn probed() -> Profile {
        profile(&[
            (Executed::User, 480, 0),
            (Executed::Tool, 20, 0),
            (Executed::Program("on_read".to_owned()), 1280, 10),
            (Executed::Generated, 400, 80),
            (function("__bpf_prog_enter_recur"), 210, 10),
            (function("unknown_hook"), 50, 10),
            (function("vectors"), 333, 0),
            (function("rare_work"), 999, 4),
            (function("work_by_chance"), 999, 14),
            (function("__rcu_read_lock"), 7 * 63, 63),
            (function("vfs_read"), 1000, 10),
            (function("free_pages"), 1200, 60),
        ])
    }

    fn baseline() -> Profile {
        profile(&[
            (Executed::User, 490, 0),
            (function("__rcu_read_lock"), 7 * 20, 20),
            (function("vectors"), 190, 0),
            (function("vfs_read"), 1000, 10),
            (function("free_pages"), 200, 10),
        ])
    }

    #[test]
    fn a_path_is_what_comes_with_the_probe_and_whole_multiples_of_what_is_shared() {
        let count = last(&[phase("none", false, baseline()), phase("fexit", false, probed())]);
        let found: Vec<_> =
            count.direct.iter().map(|part| (part.function.as_str(), part.role, part.instructions)).collect();
        let wanted = [
            ("on_read", Role::Program, 1280),
            ("generated code", Role::Trampoline, 400),
            // 43 additional entries are 4 for each of 10 hits, and 3 of something else.
            ("__rcu_read_lock", Role::Entry, 4 * 10 * 7),
            ("__bpf_prog_enter_recur", Role::Entry, 210),
            // 143 additional instructions are 14 for each hit, and 3 of something else.
            ("vectors", Role::Trampoline, 140),
            ("unknown_hook", Role::Trampoline, 50),
        ];
        assert_eq!(found, wanted);
        assert_eq!((count.user, count.tool, count.unresolved), (500, Some(Figure::Value(20)), 0));
        assert_eq!(count.all, probed().values().map(|count| count.instructions).sum::<u64>());
    }

    /// Six copies of a program at the end of each of 256 calls, and three entries per call on the
    /// way to them. The additional entries are one and a half times the entries of programs, and
    /// rounding must not turn that into once or twice. It was seen on x86_64 7.2: 83 instructions
    /// per call between rounds.
    #[test]
    fn of_several_programs_in_a_call_the_share_of_each_is_found() {
        let copies = |lock: u64| {
            let mut parts: Vec<_> =
                (0..6).map(|copy| (Executed::Program(format!("write_exit_{copy}")), 52 * 259, 259)).collect();
            parts.push((function("__rcu_read_lock"), 5 * lock, lock));
            profile(&parts)
        };
        let baseline = profile(&[(function("__rcu_read_lock"), 5 * 108_032, 108_032)]);
        let of = |more: u64| {
            let phases = [phase("none", false, baseline.clone()), phase("fexit", false, copies(108_032 + more))];
            let phases = phases.map(|phase| DirectPhase { calls: 256, ..phase });
            last(&phases).direct.iter().find(|part| part.function == "__rcu_read_lock").map(|part| part.instructions)
        };
        for more in [2331 - 100, 2330, 2331, 2332, 2331 + 100] {
            assert_eq!(of(more), Some(5 * 2331), "{more}");
        }
        // The difference is below one entry in two calls.
        assert_eq!(of(100), None);
    }

    #[test]
    fn what_a_warm_up_of_the_baseline_executes_is_not_the_probes() {
        let warm_up = profile(&[(function("unknown_hook"), 3, 1)]);
        let phases =
            [phase("none-warm", true, warm_up), phase("none", false, baseline()), phase("fexit", false, probed())];
        assert!(last(&phases).direct.iter().all(|part| part.function != "unknown_hook"));
    }

    /// This was seen on x86_64 6.1: in one of four runs, a function of the page allocator was
    /// entered once per call.
    #[test]
    fn what_comes_with_each_call_in_one_run_only_is_the_kernels() {
        let with = |run: &str, is_warm_up, more: &[(Executed, u64, u64)]| {
            let mut executed = probed();
            executed.extend(profile(more));
            phase(run, is_warm_up, executed)
        };
        let check = &[(function("check_new_pages"), 260, 10)];
        let unknown = |count: &Instructions| {
            let unknown =
                count.direct.iter().filter(|part| part.role == Role::Trampoline && part.function != GENERATED);
            unknown.map(|part| part.function.clone()).collect::<Vec<_>>()
        };
        let none = phase("none", false, baseline());
        let once = [none.clone(), with("fexit-r1", false, &[]), with("fexit-r2", false, check)];
        assert_eq!(unknown(&last(&once)), ["vectors", "unknown_hook"]);
        // A warm-up counts if it does as many calls.
        let warm = [none.clone(), with("fexit-w1", true, &[]), with("fexit-r1", false, check)];
        assert_eq!(unknown(&last(&warm)), ["vectors", "unknown_hook"]);
        let [first, warm_up, run] = warm;
        let other = [first, DirectPhase { calls: 3, ..warm_up }, run];
        assert_eq!(unknown(&last(&other)), ["check_new_pages", "vectors", "unknown_hook"]);
        // A function in all runs of a configuration belongs to it, whatever others do.
        let always =
            [none, with("kprobe-r1", false, &[]), with("fexit-r1", false, check), with("fexit-r2", false, check)];
        assert_eq!(unknown(&last(&always)), ["check_new_pages", "vectors", "unknown_hook"]);
    }

    /// A tool whose functions nobody called cost 3 instructions in one call of 256 on x86_64 6.12:
    /// the agent polled the tool's output through a retpoline.
    #[test]
    fn what_a_phase_without_programs_executes_now_and_then_is_on_no_path() {
        const THUNK: &str = "__x86_indirect_thunk_r8";
        let of = |more: &[(Executed, u64, u64)]| {
            let mut executed = baseline();
            executed.extend(profile(more));
            let count = last(&[phase("none", false, baseline()), phase("tool", false, executed)]);
            count.direct.iter().map(|part| (part.function.clone(), part.instructions)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(function(THUNK), 3, 1), (function("bpf_map_copy_value"), 90, 9)]), []);
        // Tracing of other system calls costs each call without a program.
        let traced = [(function("syscall_trace_enter"), 170, 10), (function(THUNK), 30, 10)];
        assert_eq!(of(&traced), [("syscall_trace_enter".to_owned(), 170), (THUNK.to_owned(), 30)]);
        let program = |more| of(&[(Executed::Program("on_read".to_owned()), 1280, 10), more]).len();
        assert_eq!(program((function(THUNK), 3, 1)), 1);
        assert_eq!(program((function("bpf_map_copy_value"), 90, 9)), 2);
    }

    #[test]
    fn what_nobody_can_divide_is_not_the_tools() {
        let mut shared = probed();
        shared.insert(Executed::Shared, Count { instructions: 7, ..Count::default() });
        let count = last(&[phase("none", false, baseline()), phase("fexit", false, shared)]);
        assert_eq!(count.user, 507);
        assert_eq!(count.tool, Some(Figure::missing(SHARED)));
    }

    #[test]
    fn the_baseline_costs_nothing_and_without_it_nothing_is_known() {
        let count = last(&[phase("none", false, baseline())]);
        assert!(count.direct.is_empty() && count.tool.is_none());
        let runs = direct(&[phase("fexit", false, probed())]);
        assert!(runs[0].phases[0].count.reason().is_some());
    }
}
