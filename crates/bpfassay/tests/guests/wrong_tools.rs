// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberately wrong tools in guests of the three architectures: each fault is found and named.
//! Nothing is found in the right tools.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, faults, guests_wanted, printed, results, study, without_plugins, wrong_tools};

/// Tools, the only finding that each must have, and the amount in its evidence.
const FAULTS: [(&str, &str, Amount); 40] = [
    ("argument-for-return", "prototype-differs", Amount::Text("takes argument 5 for a number of 64 bits")),
    ("backwards", "counts-go-backwards", Amount::Number),
    // 1 KiB of each of 16 calls of 4 KiB.
    ("clamped", "counts-too-low", Amount::Of(|reported, really| reported + 16 * (3 << 10) == really)),
    ("dropping", "counts-too-low", Amount::Of(|reported, really| reported.abs_diff(really / 2) <= 2)),
    ("events-lost", "events-dropped", Amount::Number),
    ("evicting", "counts-vanish", Amount::Number),
    // The first touch of reads, and that of writes.
    ("first-touch", "first-touch-lost", Amount::Of(|reported, really| reported + 2 == really)),
    // The flags of the only path with flags: RWF_NOWAIT.
    ("flags-as-bytes", "operations-not-seen", Amount::Text("what is missing is all of readv but 8 bytes: on_readv ")),
    ("four-arguments", "operations-not-seen", Amount::Text("what is missing is exactly readv")),
    ("full-map", "counts-too-low", Amount::Text("of process ior: 0, really 17: nothing of this process")),
    ("idle-cpu", "idle-cpu", Amount::Number),
    ("last-component", "subject-unknown", Amount::Text("the same as really of mount /mnt/tmpfs")),
    ("left-event", "left-behind", Amount::Text("sched_process_exit")),
    ("left-trigger", "left-behind", Amount::Text("sched_process_exit")),
    ("losing", "events-dropped", Amount::Text("it lost 42 events")),
    ("memory-held", "memory-held", Amount::Number),
    ("merged-cgroups", "cgroups-merged", Amount::Sum),
    ("merged-mounts", "mounts-merged", Amount::Sum),
    ("missed-probes", "missed-probes", Amount::Number),
    // The tool file is wrong, and the evidence shows the intended name.
    ("misspelt", "unreadable", Amount::Text("did you mean `reads`")),
    // The 64 KiB that IOR reads from tmpfs again.
    ("nested", "counts-too-high", Amount::Of(|reported, really| reported == really + (64 << 10))),
    ("no-detach", "left-behind", Amount::Number),
    ("not-attaching", "does-not-attach", Amount::Number),
    ("not-loading", "does-not-load", Amount::Number),
    // The evidence has the program and the step, unlike that of a tool that does not start.
    ("not-relocating", "does-not-load", Amount::Text("on_read: ended with exit status 1 before it was ready")),
    ("not-starting", "does-not-start", Amount::Text("3 s after its start")),
    // All 16 calls of IOR.
    ("of-procfs", "counts-too-low", Amount::Of(|reported, really| reported <= 1 && really == 16)),
    ("requested", "requested-as-moved", Amount::Number),
    ("returned-pointer", "prototype-differs", Amount::Text(", a pointer, for a number of 32 bits: ")),
    // IOR also reads a file whose last sector has less than 512 bytes.
    ("sectors", "counts-too-high", Amount::Of(|reported, really| reported.abs_diff(2 * really) < 1 << 10)),
    ("slow-attach", "slow-attach", Amount::Number),
    ("slow-detach", "slow-detach", Amount::Number),
    ("too-high", "counts-too-high", Amount::Of(|reported, really| reported == 2 * really)),
    ("unreadable", "unreadable", Amount::Text("reads many")),
    ("unseeing", "operations-not-seen", Amount::Text("what is missing is exactly write")),
    // The evidence names the map, and not what libbpf can do without.
    ("unsized", "does-not-load", Amount::Text("map 'per_cpu_state': failed to create: -EINVAL; its size ")),
    // There are three pieces per call, of 16 KiB or 4 KiB.
    (
        "vlen",
        "counts-too-low",
        Amount::Of(|reported, really| reported % 3 == 0 && reported > 0 && really > 1000 * reported),
    ),
    // All bytes that IOR reads and writes.
    ("writes-as-reads", "counts-too-high", Amount::Of(|reported, really| reported >= really + (64 << 10))),
    ("wrong-arity", "prototype-differs", Amount::Text("reads argument 6 of 4")),
    ("wrong-unit", "counts-too-low", Amount::Of(|reported, really| reported == really >> 10)),
];

/// Tools whose fault shows only with short or vectored reads, and tools that leave the guest
/// changed, so that the others of their boot are measured again without them.
const BY_PATHS: [&str; 7] =
    ["flags-as-bytes", "four-arguments", "left-event", "left-trigger", "no-detach", "requested", "vlen"];

/// Tools for which the kernel's prototypes show the reason, in a separate finding.
const BY_PROTOTYPES: [&str; 2] = ["flags-as-bytes", "four-arguments"];

/// The evidence of that finding.
const FOUR_OF_FIVE: &str =
    "takes argument 5 for a number of 64 bits, where the return value would be with one argument less: ";

/// The required content of a fault's evidence.
#[derive(Clone, Copy)]
enum Amount {
    Number,
    Text(&'static str),
    /// The reported and the real number, with this relation.
    Of(fn(u64, u64) -> bool),
    /// A sum: a figure that consists of the subject's own part and of others'.
    Sum,
}

impl Amount {
    /// Whether a line of `evidence` has the amount.
    fn is_in(self, evidence: &Value) -> bool {
        let lines: Vec<&str> = evidence.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
        lines.iter().any(|line| match self {
            Self::Number => line.contains(|character: char| character.is_ascii_digit()),
            Self::Text(text) => line.contains(text),
            // `calls` (read, calls) of process ior: 8, really 16
            Self::Of(is_like) => line.split_once(", really ").is_some_and(|(before, after)| {
                let reported = before.rsplit(' ').next().unwrap();
                // `really` can be a range; the amounts of a process are certain.
                let really = after.split([' ', ';', ':']).next().unwrap();
                let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("no number: {line}"));
                is_like(number(reported), number(really))
            }),
            // `bytes` of mount 0:2: 90, which is 30 of its own and 60 of /proc
            Self::Sum => line.split_once(", which is ").is_some_and(|(before, after)| {
                let whole = before.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
                let parts: Vec<u64> = after.split(' ').filter_map(|word| word.parse().ok()).collect();
                // The others may have done more before the tool's first report.
                parts.len() >= 2 && parts[0] + parts[1] <= whole
            }),
        })
    }
}

/// Tools without any finding.
const RIGHT: [&str; 15] = [
    "by-both-ids",
    "by-cgroup",
    "by-id",
    "by-mount",
    "by-process",
    "configured",
    "events",
    "guarded-by-constant",
    "guarded-by-member",
    "guarded-by-type",
    "guarded-by-version",
    "leaving-out",
    "of-system",
    "of-tmpfs",
    "two-maps",
];

/// A right tool without the contents of its maps and constants: it counts nothing.
const UNCONFIGURED: &str = "unconfigured";

/// Returns the kinds of fault in the tool of `cell`, with their evidence.
fn found(cell: &Value) -> Vec<(&str, &Value)> {
    faults(cell).into_iter().map(|fault| (fault["kind"].as_str().unwrap(), &fault["evidence"])).collect()
}

fn cell<'r>(results: &'r Value, tool: &str, arch: &str) -> &'r Value {
    let mut cells = results["cells"].as_array().unwrap().iter();
    cells.find(|cell| cell["tool"] == tool && cell["target"]["arch"] == arch).unwrap()
}

/// Checks that all runs of the tool in `cell` are refused, and that the later runs refer to the
/// first one: it was started once.
fn refer_to_the_first_refusal(results: &Value, cell: &Value) -> Result<(), String> {
    let runs = results["runs"].as_array().unwrap().iter().map(|run| &run["record"]);
    let runs: Vec<&Value> = runs.filter(|run| run["cell"] == cell["cell"]).collect();
    let first = &runs.first().ok_or("it has no run")?["run"];
    let refers = |run: &&Value| run["outcome"]["type"] == "refused" && run["outcome"]["run"] == *first;
    if runs.len() > 1 && runs.iter().all(refers) { Ok(()) } else { Err(format!("{runs:#?}")) }
}

/// Writes the tool `configured` without its settings, as a loader that does not know its maps would
/// leave it.
fn unconfigured(directory: &Path) -> String {
    let text = fs::read_to_string(directory.join("configured.toml")).unwrap();
    let mut text = text.replace("name = \"configured\"", &format!("name = \"{UNCONFIGURED}\""));
    let (start, end) = (text.find("set = [").unwrap(), text.find("[report]").unwrap());
    text.replace_range(start..end, "");
    fs::write(directory.join(format!("{UNCONFIGURED}.toml")), text).unwrap();
    UNCONFIGURED.to_owned()
}

// There is one test for each architecture, so that they can run in parallel.

#[test]
fn what_is_wrong_with_a_tool_is_named_on_x86_64() {
    what_is_wrong_is_named_on("x86_64");
}

#[test]
fn what_is_wrong_with_a_tool_is_named_on_aarch64() {
    what_is_wrong_is_named_on("aarch64");
}

#[test]
fn what_is_wrong_with_a_tool_is_named_on_riscv64() {
    what_is_wrong_is_named_on("riscv64");
}

/// Runs all tools in guests of `arch`.
fn what_is_wrong_is_named_on(arch: &str) {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let tools = wrong_tools::build("wrong-tools", directory.path());
    assert_eq!(tools, FAULTS.map(|(tool, _, _)| tool));
    let mut right = wrong_tools::build("right-tools", directory.path());
    assert_eq!(right, RIGHT);
    right.push(unconfigured(directory.path()));
    // No finding needs the plugin's counts.
    let programs = tempfile::tempdir().unwrap();
    let path = without_plugins(programs.path());
    let tested = |name: &str, out: &str, tools: &mut dyn Iterator<Item = &String>| {
        let mut command = bpfassay(directory.path());
        command.args(["run", "--yes", "--arch", arch, "--output", out]).arg(study(name)).env("PATH", &path);
        for tool in tools {
            command.arg("--tool").arg(directory.path().join(format!("{tool}.toml")));
        }
        let output = command.output().unwrap();
        let printed = printed(&output);
        println!("{printed}");
        (results(&directory.path().join(out)), printed)
    };
    let short = |tool: &&String| BY_PATHS.contains(&tool.as_str());
    let (by_ior, said_by_ior) =
        tested("wrong-tools.toml", "out", &mut tools.iter().filter(|tool| !short(tool)).chain(&right));
    let (by_paths, said_by_paths) = tested("requested-bytes.toml", "short", &mut tools.iter().filter(short));
    let mut wrong = Vec::new();
    for tool in RIGHT {
        let cell = cell(&by_ior, tool, arch);
        let found = found(cell);
        if !found.is_empty() || cell["attach"]["outcome"] != "attached" {
            wrong.push(format!("{arch} {tool}: nothing is wrong with it, but {found:?}"));
        }
        // An empty comparison would have no finding either.
        let figures = cell["tool_result"]["figures"].as_array().unwrap();
        if figures.is_empty() || figures.iter().all(|figure| figure["reported"] == 0) {
            wrong.push(format!("{arch} {tool}: nothing of it was compared: {figures:?}"));
        }
    }
    let unconfigured = (UNCONFIGURED, "operations-not-seen", Amount::Text("nothing of "));
    if let Err(runs) = refer_to_the_first_refusal(&by_ior, cell(&by_ior, "not-loading", arch)) {
        wrong.push(format!("{arch} not-loading: not started once: {runs}"));
    }
    for tool in BY_PROTOTYPES {
        let reasons = found(cell(&by_paths, tool, arch));
        let is_reason = |(kind, evidence): &(&str, &Value)| {
            *kind == "prototype-differs" && Amount::Text(FOUR_OF_FIVE).is_in(evidence)
        };
        if !reasons.iter().any(is_reason) {
            wrong.push(format!("{arch} {tool}: no reason, but {reasons:?}"));
        }
    }
    for (tool, fault, amount) in FAULTS.into_iter().chain([unconfigured]) {
        // Linux 7.2 no longer has a function of that name.
        let (fault, amount) = match (arch, tool) {
            ("riscv64", "returned-pointer") => ("does-not-load", Amount::Text("'do_filp_open'")),
            _ => (fault, amount),
        };
        let results = if BY_PATHS.contains(&tool) { &by_paths } else { &by_ior };
        let found = found(cell(results, tool, arch));
        match found.iter().find(|(kind, _)| *kind == fault) {
            None => wrong.push(format!("{arch} {tool}: no {fault}, but {found:?}")),
            Some((_, evidence)) if !amount.is_in(evidence) => {
                wrong.push(format!("{arch} {tool}: {fault} without its amount: {evidence}"));
            }
            Some(_) => {}
        }
        for (kind, evidence) in found.iter().filter(|(kind, _)| *kind != fault) {
            // These are the only exceptions. This finding tells why the tools lose the bytes:
            if BY_PROTOTYPES.contains(&tool)
                && *kind == "prototype-differs"
                && Amount::Text(FOUR_OF_FIVE).is_in(evidence)
            {
                continue;
            }
            // A key that is evicted and inserted again between two reports counts from 0, so its
            // figure also goes back:
            if (tool, *kind) == ("evicting", "counts-go-backwards") {
                continue;
            }
            wrong.push(format!("{arch} {tool}: {kind} beside {fault}: {evidence}"));
        }
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), said_by_ior + &said_by_paths);
}
