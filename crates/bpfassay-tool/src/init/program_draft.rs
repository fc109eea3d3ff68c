// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drafts for programs, and for scripts other than bpftrace scripts.

use bpfassay_protocol::Arch;

use super::draft::{ToolDraft, listed, quoted, shown};
use crate::elf;

/// Proposals for the report of a program with unknown output.
fn report() -> Vec<String> {
    [
        "# Decide: what it prints. Run it by hand and look. One of these forms (a line of JSON each, a page of metrics, or lines with named groups):",
        "#json-lines = {}",
        "# openmetrics = { port = 9100 }",
        "# table = { line = '^(?<reads>\\d+) (?<bytes>\\d+)$', ignore = \"^READS\" }",
        "# Decide: \"interval\" where each report counts since the last one.",
        "#counting = \"cumulative\"",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Proposals for readiness.
fn ready() -> Vec<String> {
    [
        "# Decide: its arguments: arguments = [\"-i\", \"1\"]",
        "# Best is a line that it prints once it has attached: ready = { line = \"^attached\" }. Decide, or give the number of its eBPF programs:",
        "ready = { programs = 1 }",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Drafts a tool file for the program `named`.
pub(super) fn draft(name: &str, named: &str, arch: Arch, bytes: &[u8]) -> ToolDraft {
    let entry = |libraries: &str| {
        format!("binary = [{{ arch = {}, path = {}{libraries} }}]", quoted(arch.name()), quoted(named))
    };
    let mut source = vec!["# One entry for each architecture.".to_owned()];
    match elf::interpreter(bytes) {
        None => source.push(entry("")),
        Some(linker) => {
            let needed = elf::dynamic(bytes).unwrap_or_default().needed;
            let linker = linker.rsplit('/').next().unwrap_or(&linker).to_owned();
            let others = needed.iter().map(String::as_str).filter(|name| *name != linker);
            let needed = listed(std::iter::once(linker.as_str()).chain(others));
            source.push("# It is linked with shared libraries: `libraries` is a directory beside this file. Put there, with what they need themselves:".to_owned());
            source.push(format!("# {needed}"));
            source.push(entry(", libraries = \"lib\""));
        }
    }
    ToolDraft {
        name: name.to_owned(),
        seen: format!("the program {named} for {arch}"),
        source,
        start: ready(),
        report: report(),
        figures: Vec::new(),
    }
}

/// Drafts a tool file for the script `named`.
pub(super) fn script(name: &str, named: &str, text: &str) -> ToolDraft {
    let line = text.lines().next().unwrap_or_default().trim_start_matches("#!");
    let mut words = line.split_whitespace();
    let first = words.next().unwrap_or("/bin/sh");
    // `env` searches PATH, which could find the program anywhere.
    let interpreter = match first.rsplit('/').next() {
        Some("env") => {
            words.find(|word| !word.starts_with('-') && !word.contains('=')).map(|name| format!("/usr/bin/{name}"))
        }
        _ => Some(first.to_owned()),
    };
    let interpreter = interpreter.filter(|path| is_program(path)).unwrap_or_else(|| "/bin/sh".to_owned());
    let package = match interpreter.rsplit('/').next() {
        Some("python3") if text.contains("bcc") => Some("python3-bpfcc"),
        Some("python3") => Some("python3"),
        Some("sh" | "dash") => Some("dash"),
        Some("bash") => Some("bash"),
        Some("perl") => Some("perl"),
        _ => None,
    };
    let source = |debian: &str| {
        format!("script = {{ path = {}, interpreter = {}{debian} }}", quoted(named), quoted(&interpreter))
    };
    let lines = match package {
        Some(package) => vec![
            format!(
                "# {} names {}. Guests have no interpreters. Decide: the package that has it, and `with = […]` for others.",
                shown(named),
                shown(line.trim())
            ),
            source(&format!(", debian = {{ suite = \"trixie\", package = {} }}", quoted(package))),
        ],
        None => vec![
            format!(
                "# {} names {}. Guests have no interpreters. Decide: add `debian = {{ suite = …, package = … }}` with the package that has it.",
                shown(named),
                shown(line.trim())
            ),
            source(""),
        ],
    };
    ToolDraft {
        name: name.to_owned(),
        seen: format!("the script {named}"),
        source: lines,
        start: ready(),
        report: report(),
        figures: Vec::new(),
    }
}

/// Whether a tool file can name this program path.
fn is_program(path: &str) -> bool {
    let parts = path.split('/').skip(1);
    path.starts_with('/')
        && (2..=255).contains(&path.len())
        && !path.contains(char::is_control)
        && parts.clone().all(|part| !matches!(part, "" | "." | ".."))
}
