// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay check`: tools are loaded and attached on several kernels; if that fails, the kernel's
//! prototypes are also compared.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, without_plugins, wrong_tools};

/// `vfs_mkdir` returned a number up to Linux 6.14. Since then it returns a pointer.
const SOURCE: &str = r#"
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
u64 errors;
SEC("fexit/vfs_mkdir") int on_mkdir(u64 *ctx) { if ((int)ctx[4]) errors++; return 0; }
char LICENSE[] SEC("license") = "GPL";
"#;

fn tool(directory: &Path, name: &str, cpu: &str) {
    let source = directory.join("mkdir.bpf.c");
    fs::write(&source, SOURCE).unwrap();
    wrong_tools::compile(&wrong_tools::clang(), &source, &[cpu], &directory.join(format!("{name}.bpf.o")));
    let file = format!(
        "schema = 1\n[tool]\nname = \"{name}\"\ndescription = \"errors of mkdir\"\n[source]\nobject = {{ path = \"{name}.bpf.o\" }}\n"
    );
    fs::write(directory.join(format!("{name}.toml")), file).unwrap();
}

#[test]
fn a_tool_is_loaded_and_attached_on_each_kernel_and_a_changed_prototype_is_named() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Version 3 of the instruction set compares halves of registers, which a kernel allows for
    // pointers; earlier versions shift registers.
    tool(directory.path(), "loads", "-mcpu=v3");
    tool(directory.path(), "refused", "-mcpu=v2");
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["check", "--yes", "loads.toml", "refused.toml", "--arch", "x86_64", "--kernel", "6.12,7.2"]);
    let output = command.args(["--output", "out"]).env("PATH", without_plugins(programs.path())).output().unwrap();
    let text = printed(&output);
    let results = results(&directory.path().join("out"));
    // One of them is refused, which was not expected.
    assert_eq!(output.status.code(), Some(4), "{text}");
    let cell = |tool: &str, kernel: &str| -> Value {
        let mut cells = results["cells"].as_array().unwrap().iter();
        cells.find(|cell| cell["tool"] == tool && cell["target"]["kernel"] == kernel).unwrap().clone()
    };
    let finding = |tool: &str, kernel: &str, kind: &str| -> Value {
        let cell = cell(tool, kernel);
        let mut findings = cell["tool_result"]["findings"].as_array().unwrap().iter();
        findings.find(|finding| finding["kind"] == kind).unwrap().clone()
    };
    for (tool, kernel) in [("loads", "6.12"), ("refused", "6.12"), ("loads", "7.2")] {
        let cell = cell(tool, kernel);
        assert_eq!(cell["attach"]["outcome"], "attached", "{tool} {kernel}: {text}");
        let loaded = &cell["tool_result"]["loaded"];
        assert!(loaded["ready_ns"].as_u64().unwrap() > 0, "{loaded}");
        let program = &loaded["programs"][0];
        assert_eq!(program["name"], "on_mkdir", "{loaded}");
        for figure in ["verified", "instructions", "jited_bytes"] {
            assert!(program["code"][figure].as_u64().unwrap() > 5, "{figure}: {loaded}");
        }
        let log = &program["code"]["log"];
        assert_eq!(log["instructions"], program["code"]["verified"], "{loaded}");
        let states = ["peak_states", "total_states"].map(|figure| log[figure].as_u64().unwrap());
        assert!(states[0] <= states[1], "{loaded}");
        assert!(log["time_us"].as_u64().unwrap() * 1000 < loaded["load_ns"].as_u64().unwrap(), "{loaded}");
        assert!(loaded["load_ns"].as_u64().unwrap() < loaded["ready_ns"].as_u64().unwrap(), "{loaded}");
        assert_eq!(finding(tool, kernel, "does-not-load")["status"], "clear", "{text}");
    }
    for tool in ["loads", "refused"] {
        assert_eq!(finding(tool, "6.12", "prototype-differs")["status"], "clear", "{text}");
        let differs = finding(tool, "7.2", "prototype-differs");
        assert_eq!(differs["status"], "found", "{differs}\n{text}");
        let evidence = differs["evidence"][0].as_str().unwrap();
        let begins = "on_mkdir (fexit/vfs_mkdir): takes ";
        assert!(
            evidence.starts_with(begins) && evidence.contains(", a pointer, for a number of 32 bits: "),
            "{evidence}"
        );
    }
    let refused = cell("refused", "7.2");
    assert_eq!(refused["attach"]["outcome"], "refused", "{text}");
    assert_eq!(refused["tool_result"].get("loaded"), None, "{refused}");
    let does_not_load = finding("refused", "7.2", "does-not-load");
    assert_eq!(does_not_load["status"], "found", "{text}");
    // The log of statistics alone would not have it.
    assert!(does_not_load["evidence"].to_string().contains("R1 "), "{does_not_load}");
    // Nothing is compared with the truth, so nothing runs in parallel with the tools.
    assert_eq!(results["runs"].as_array().unwrap().len(), 4, "{text}");
}

/// Counts reads in the map of a process, which the loader of a tool would make.
const MAP_OF_MAPS: &str = r#"
typedef unsigned int u32;
typedef unsigned long long u64;
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name
static void *(*const lookup)(void *, const void *) = (void *)1;
struct {
	__uint(type, 13); /* BPF_MAP_TYPE_HASH_OF_MAPS */
	__uint(max_entries, 8);
	__type(key, u32);
	__uint(value_size, 4);
} by_process SEC(".maps");
SEC("fexit/vfs_read") int on_read(u64 *ctx)
{
	u32 key = 0;
	void *counts = lookup(&by_process, &key);
	u64 *count = counts ? lookup(counts, &key) : 0;
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

#[test]
fn a_map_of_maps_is_made_as_the_tool_file_says() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("maps.bpf.c");
    fs::write(&source, MAP_OF_MAPS).unwrap();
    wrong_tools::compile(&wrong_tools::clang(), &source, &[], &directory.path().join("maps.bpf.o"));
    let inner = "{ kind = \"array\", key_size = 4, value_size = 8, max_entries = 1 }";
    for (name, maps) in [
        ("with-inner", format!(", maps = [{{ name = \"by_process\", inner = {inner} }}]")),
        ("without-inner", String::new()),
    ] {
        let file = format!(
            "schema = 1\n[tool]\nname = \"{name}\"\ndescription = \"reads\"\n[source]\nobject = {{ path = \"maps.bpf.o\"{maps} }}\n"
        );
        fs::write(directory.path().join(format!("{name}.toml")), file).unwrap();
    }
    let programs = tempfile::tempdir().unwrap();
    let mut command = bpfassay(directory.path());
    command.args(["check", "--yes", "with-inner.toml", "without-inner.toml", "--arch", "x86_64", "--kernel", "6.12"]);
    let output = command.args(["--output", "out"]).env("PATH", without_plugins(programs.path())).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    for cell in results["cells"].as_array().unwrap() {
        let expected = if cell["tool"] == "with-inner" { "attached" } else { "refused" };
        assert_eq!(cell["attach"]["outcome"], expected, "{cell:#}");
    }
}
