// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that wait inside a traced function, in guests with a kernel that reports missed
//! returns, and with one that does not. A tool at a kretprobe counts too little on both.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, faults, guests_wanted, printed, results, study, without_plugins, wrong_tools};

/// Bytes that the reader of the file reads: 100 times 64 KiB.
const READ: u64 = 100 * (64 << 10);

/// Builds the tools `returns` and `starts`.
fn build(directory: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blocked");
    let text = fs::read_to_string(sources.join("reads.toml")).unwrap();
    for (name, options) in [("returns", [].as_slice()), ("starts", &["-DSTARTS"])] {
        let object = format!("{name}.bpf.o");
        wrong_tools::compile(&wrong_tools::clang(), &sources.join("reads.bpf.c"), options, &directory.join(&object));
        let text = text.replace("\"reads\"", &format!("\"{name}\"")).replace("reads.bpf.o", &object);
        fs::write(directory.join(format!("{name}.toml")), text).unwrap();
    }
}

#[test]
fn returns_that_a_kretprobe_misses_are_found_or_not_evaluated() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    build(directory.path());
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["run", "--yes", "--output", "out", "--tool", "returns.toml", "--tool", "starts.toml"]);
    let output = command.arg(study("blocked-readers.toml")).env("PATH", without_plugins(programs.path())).output();
    println!("{}", printed(&output.unwrap()));
    let results = results(&directory.path().join("out"));
    let cells = results["cells"].as_array().unwrap();
    for (kernel, tool) in
        ["6.1", "6.12"].into_iter().flat_map(|kernel| ["returns", "starts"].map(|tool| (kernel, tool)))
    {
        let start = format!("x86_64_{kernel}_");
        let is_wanted = |cell: &&Value| cell["cell"].as_str().unwrap().starts_with(&start) && cell["tool"] == tool;
        let cell = cells.iter().find(is_wanted).unwrap();
        let result = &cell["tool_result"];
        let lacks_all =
            |figure: &Value| figure["reported"].as_u64().unwrap() + READ == figure["really"].as_u64().unwrap();
        assert!(result["figures"].as_array().unwrap().iter().any(lacks_all), "{kernel} {tool}: {result:#}");
        let findings = result["findings"].as_array().unwrap();
        let status = |kind: &str| &findings.iter().find(|finding| finding["kind"] == kind).unwrap()["status"];
        let counted = if kernel == "6.1" { "not-evaluated" } else { "found" };
        assert_eq!((status("counts-too-low"), status("missed-probes")), (&"found".into(), &counted.into()), "{tool}");
        // The map of starts has no entry for a seventeenth call.
        let full = usize::from(tool == "starts");
        assert_eq!(status("map-full") == "found", full == 1, "{tool}");
        assert_eq!(faults(cell).len(), full + if kernel == "6.1" { 1 } else { 2 });
    }
}
