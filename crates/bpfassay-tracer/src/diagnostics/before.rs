// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pitfalls that are visible before anything is attached.

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_btf::Prototype;
use bpfassay_protocol::finding_name::{Finding, Pitfall};
use object::{Object as _, ObjectSection as _};

use super::{expected, finding, tidy};
use crate::{
    kernel::{
        btf,
        symbols::{self, symbol_table::Symbol},
        tracefs::tracefs_lists::{self, Enabled},
        unread::{Unread, unread},
    },
    loader::plan::{tracer_options::TracerOptions, usual},
};

/// The detail of a function that the compiler inlined everywhere.
const WITHOUT_SYMBOL: &str = "in the kernel's BTF, but without a symbol: it is inlined into its callers";

/// Returns the functions that have no symbol according to `findings`. Even if BTF has them, they
/// have no address to hook.
pub(crate) fn absent(findings: &[Finding]) -> BTreeSet<&str> {
    let is_absent = |finding: &&Finding| match finding.pitfall {
        Pitfall::SymbolMissing | Pitfall::SymbolRenamed => true,
        Pitfall::SymbolInlined => finding.detail == WITHOUT_SYMBOL,
        _ => false,
    };
    findings.iter().filter(is_absent).map(|finding| finding.subject.as_str()).collect()
}

/// How a kernel function is hooked, as far as this decides which pitfalls apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookKind {
    /// A kprobe or kretprobe: any address that is not blacklisted.
    Kprobe,
    /// Through ftrace: BPF trampolines and fprobe.
    Ftrace,
}

/// A function that is to be hooked.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HookedFunction<'a> {
    /// Name of the hooked function.
    function: &'a str,
    /// Name of the function whose prototype the program assumes.
    assumed: &'a str,
    way: HookKind,
}

/// The kernel's facts about the functions, or why they cannot be read.
struct FunctionFacts<'a> {
    symbols: Result<BTreeMap<String, Symbol>, Unread>,
    /// `None` before attaching, which notices this itself.
    traceable: Option<Result<BTreeSet<&'a str>, Unread>>,
    blacklist: Result<String, Unread>,
    enabled: Result<String, Unread>,
    kprobes: Result<String, Unread>,
    prototypes: Result<Vec<(String, Prototype)>, Unread>,
}

/// When to search for pitfalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchTime {
    /// Before attaching.
    Before,
    /// After the kernel refused to load or attach the programs. One more list is read
    /// (`available_filter_functions`). It costs as much as all others together: the kernel looks up
    /// 50,000 names by address, which takes several seconds under emulation. It adds nothing as
    /// long as attaching works.
    Refused,
}

/// Searches for pitfalls of hooking the kernel functions that the programs of the object file `elf`
/// name in their sections. `options` can replace functions by others. Programs that hook something
/// else have none of these pitfalls.
pub(crate) fn look_for(elf: &[u8], options: &TracerOptions, when: SearchTime) -> Vec<Finding> {
    let object = match object::read::elf::ElfFile64::<object::Endianness>::parse(elf) {
        Ok(object) => object,
        Err(error) => return vec![finding(Pitfall::NotChecked, "the tracer's programs", error.to_string())],
    };
    let sections: Vec<&str> = object.sections().filter_map(|section| section.name().ok()).collect();
    look_for_hooks(sections, options, when)
}

/// Searches for pitfalls of the functions in these section names.
pub(crate) fn look_for_hooks<'a>(
    sections: impl IntoIterator<Item = &'a str>,
    options: &'a TracerOptions,
    when: SearchTime,
) -> Vec<Finding> {
    before_hooking(sections.into_iter().filter_map(hook), options, when)
}

/// Returns the function that programs in `section` hook, and how, according to libbpf's section
/// names. aya's programs have the same names.
pub(crate) fn hook(section: &str) -> Option<(&str, HookKind)> {
    let (kind, function) = section.trim_start_matches('?').split_once('/')?;
    let way = match kind {
        "kprobe" | "kretprobe" => HookKind::Kprobe,
        "fentry" | "fexit" | "kprobe.multi" | "kretprobe.multi" | "kprobe.session" => HookKind::Ftrace,
        _ => return None,
    };
    let function = function.split_once('+').map_or(function, |(function, _)| function);
    (!function.is_empty()).then_some((function, way))
}

fn before_hooking<'a>(
    functions: impl IntoIterator<Item = (&'a str, HookKind)>,
    options: &'a TracerOptions,
    when: SearchTime,
) -> Vec<Finding> {
    let hooks: Vec<HookedFunction<'a>> = functions
        .into_iter()
        .map(|(assumed, way)| HookedFunction { function: options.function(assumed), assumed, way })
        .collect();
    if hooks.is_empty() {
        return Vec::new();
    }
    evaluate(&hooks, &look(&hooks, options, when))
}

fn look<'a>(hooks: &[HookedFunction<'a>], options: &TracerOptions, when: SearchTime) -> FunctionFacts<'a> {
    let wanted: BTreeSet<&'a str> = hooks.iter().map(|hook| hook.function).collect();
    let (kept, usual) = (options.symbol_cache.as_deref(), usual::functions());
    FunctionFacts {
        symbols: symbols::of_kernel(kept, &wanted, &usual),
        traceable: (when == SearchTime::Refused).then(|| tracefs_lists::read_traceable(&wanted)),
        blacklist: tracefs_lists::read_blacklist(),
        enabled: tracefs_lists::read_enabled(),
        kprobes: tracefs_lists::read_kprobes(),
        prototypes: btf::prototypes(kept, &wanted, &usual).map_err(unread(btf::PATH)),
    }
}

/// Returns the findings that follow from `facts`.
fn evaluate(hooks: &[HookedFunction<'_>], facts: &FunctionFacts<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let by_kprobe = hooks.iter().any(|hook| hook.way == HookKind::Kprobe);
    let unread = [
        facts.symbols.as_ref().err(),
        facts.traceable.as_ref().and_then(|list| list.as_ref().err()),
        facts.blacklist.as_ref().err().filter(|_| by_kprobe),
        facts.enabled.as_ref().err(),
        facts.kprobes.as_ref().err(),
        facts.prototypes.as_ref().err(),
    ];
    for Unread { what, why } in unread.into_iter().flatten() {
        findings.push(finding(Pitfall::NotChecked, what, format!("cannot be read ({why})")));
    }

    let blacklist = facts.blacklist.as_deref().map(tracefs_lists::blacklist).unwrap_or_default();
    let enabled = facts.enabled.as_deref().map(tracefs_lists::enabled).unwrap_or_default();
    let kprobes = facts.kprobes.as_deref().map(tracefs_lists::kprobes).unwrap_or_default();
    for hook in hooks {
        let prototypes: Vec<&Prototype> = facts
            .prototypes
            .iter()
            .flatten()
            .filter(|(name, _)| name == hook.function)
            .map(|(_, prototype)| prototype)
            .collect();
        let mut there = true;
        if let Ok(symbols) = &facts.symbols {
            let symbol = symbols.get(hook.function).cloned().unwrap_or_default();
            there = symbol.count > 0;
            findings.extend(of_symbol(
                hook.function,
                &symbol,
                facts.prototypes.is_ok().then_some(!prototypes.is_empty()),
            ));
        }
        let untraceable =
            |list: &Result<BTreeSet<&str>, Unread>| list.as_ref().is_ok_and(|list| !list.contains(hook.function));
        if there && facts.traceable.as_ref().is_some_and(untraceable) {
            let detail = match hook.way {
                HookKind::Ftrace => {
                    "not in available_filter_functions: ftrace cannot hook it, so neither a trampoline nor an fprobe can"
                }
                // `within_notrace_func`, kernel/trace/trace_kprobe.c (5.5 and later).
                HookKind::Kprobe => {
                    "not in available_filter_functions: kprobes by perf and tracefs are refused there, too, unless the \
                     kernel was built with CONFIG_KPROBE_EVENTS_ON_NOTRACE"
                }
            };
            findings.push(finding(Pitfall::NotTraceable, hook.function, detail));
        }
        if hook.way == HookKind::Kprobe && blacklist.contains(hook.function) {
            findings.push(finding(Pitfall::Blacklisted, hook.function, "in the kernel's kprobe blacklist"));
        }
        findings.extend(shared(hook.function, enabled.get(hook.function), kprobes.get(hook.function).copied()));
        findings.extend(of_prototype(hook, &prototypes));
    }
    tidy(findings)
}

/// Checks the symbol of a function. `in_btf` tells whether the kernel's BTF contains a function of
/// that name, if it could be read.
fn of_symbol(function: &str, symbol: &Symbol, in_btf: Option<bool>) -> Option<Finding> {
    let variants = symbol.variants.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let parts = symbol.variants.iter().any(|name| name.contains(".part."));
    match (symbol.count, symbol.variants.is_empty()) {
        (0, false) => Some(finding(Pitfall::SymbolRenamed, function, format!("exists as {variants} only"))),
        (0, true) if in_btf == Some(true) => Some(finding(Pitfall::SymbolInlined, function, WITHOUT_SYMBOL)),
        (0, true) => Some(finding(
            Pitfall::SymbolMissing,
            function,
            "no such symbol in /proc/kallsyms: this kernel does not have it, or it is inlined into all its callers",
        )),
        (1, _) if parts => Some(finding(
            Pitfall::SymbolInlined,
            function,
            format!("split: callers may have its beginning inlined and call {variants} without passing the probe"),
        )),
        (1, _) => None,
        (count, _) => Some(finding(
            Pitfall::SymbolAmbiguous,
            function,
            format!("{count} functions have this name: the kernel chooses which one is hooked, or refuses"),
        )),
    }
}

fn shared(function: &str, enabled: Option<&Enabled>, kprobes: Option<u64>) -> Option<Finding> {
    let ftrace = enabled.filter(|enabled| enabled.count > 0).map(|enabled| format!("ftrace has {enabled}"));
    let kprobes = kprobes.map(|count| format!("{count} kprobe{}", if count == 1 { "" } else { "s" }));
    let there: Vec<String> = ftrace.into_iter().chain(kprobes).collect();
    if there.is_empty() {
        return None;
    }
    let detail = format!("hooked before this tracer attached: {}", there.join(", "));
    Some(finding(Pitfall::FunctionShared, function, detail))
}

fn of_prototype(hook: &HookedFunction<'_>, found: &[&Prototype]) -> Option<Finding> {
    let expected = expected::of(hook.assumed);
    let differs = |found: &&&Prototype| !expected.iter().any(|expected| expected::fits(expected, found));
    let found = found.iter().find(differs).filter(|_| !expected.is_empty())?;
    let expected: Vec<&str> = expected.iter().map(|expected| expected.text.as_str()).collect();
    let detail = format!("the kernel has `{found}`, the program assumes `{}`", expected.join("` or `"));
    Some(finding(Pitfall::PrototypeDiffers, hook.function, detail))
}

#[cfg(test)]
#[path = "before_tests.rs"]
mod tests;
