// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tool files: their meaning, and which errors are found, where, and with which message.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

mod values;

use std::{fs, path::Path};

use bpfassay_protocol::{Arch, Operation};
use bpfassay_tool::{
    CountedUnit, Counting, MissingService, Ready, ReportForm, Signal, Source, Stop, Stream, ToolFile, Whose, bundled,
    file::of_target, load,
};
use proptest::prelude::*;

const GOOD: &str = r#"schema = 1
[tool]
name = "counter"
description = "Counts reads."
[source]
binary = [{ arch = "x86_64", path = "bin/counter" }, { arch = "riscv64", path = "rv/counter", libraries = "rv/lib" }]
[start]
arguments = ["--json"]
ready = { line = "^attached", stream = "stderr" }
deadline = "90s"
[stop]
signal = "TERM"
grace = "2s"
[report]
json-lines = { ignore = "^#" }
counting = "cumulative"
figures = [
  { value = "read", unit = "bytes-returned" },
  { value = "n", where = { op = "w" }, operations = ["write", "writev"], unit = "calls", whose = "cgroup", label = "cg", counting = "interval" },
]
"#;

const OBJECT: &str = r#"schema = 1
[tool]
name = "bare"
description = "A bare object."
[source]
object = { path = "bare.bpf.o", programs = ["on_read"] }
[report]
map = { map = "counts" }
unit = "bytes-returned"
whose = "mount"
figures = [{ value = "bytes", where = { operation = "0" }, operations = "read", label = "dev", scale = 1024 }]
"#;

fn parse(text: &str) -> ToolFile {
    ToolFile::parse("t.toml", text).unwrap()
}

/// Returns the error for `good` with `from` replaced by `to`.
fn refused_in(good: &str, from: &str, to: &str) -> String {
    assert!(good.contains(from), "{from}");
    ToolFile::parse("t.toml", &good.replacen(from, to, 1)).map(|_| ()).unwrap_err().to_string()
}

fn refused(from: &str, to: &str) -> String {
    refused_in(GOOD, from, to)
}

#[test]
fn a_file_describes_a_tool() {
    let tool = parse(GOOD);
    assert_eq!((tool.name.as_str(), tool.deadline_ms), ("counter", 90_000));
    assert_eq!(tool.stop, Stop { signal: Signal::Term, grace_ms: 2000 });
    assert!(matches!(&tool.ready, Ready::Line { pattern, stream: Some(Stream::Stderr) } if pattern == "^attached"));
    let Source::Binary(binaries) = &tool.source else { panic!("{:?}", tool.source) };
    let (_, binary) = of_target(binaries, Arch::Riscv64, "6.12").unwrap();
    assert_eq!(binary.libraries.as_deref(), Some("rv/lib"));
    assert!(tool.source.has(Arch::X86_64, "6.12") && !tool.source.has(Arch::Aarch64, "6.12"));
    let [reads, writes] = tool.figures() else { panic!("{tool:?}") };
    assert_eq!((reads.operations.as_slice(), reads.counting), ([Operation::Read].as_slice(), Counting::Cumulative));
    assert_eq!((reads.unit, reads.whose, reads.label.as_deref()), (CountedUnit::BytesReturned, Whose::System, None));
    assert_eq!(
        (writes.whose, writes.label.as_deref(), writes.counting),
        (Whose::Cgroup, Some("cg"), Counting::Interval)
    );
    assert_eq!(writes.labelled["op"], "w");
}

#[test]
fn an_object_says_what_its_maps_and_constants_hold() {
    const SIZES: &str = "maps = [{ name = \"start\", max_entries = 64 }, { name = \"outer\", \
                         inner = { kind = \"lru-hash\", key_size = 4, value_size = 8, max_entries = 1 } }]";
    let from = "programs = [\"on_read\"]";
    let set = "set = [{ map = \"conf\", key = 0, value = { magic = 0x63677270, dev.major = -1, name = \"x\" } }, { map = \"m\", key = { key = 7 }, value = true }]";
    let tool = parse(&OBJECT.replace(from, &format!("{from}, {set}, {SIZES}, rodata = {{ all = false, pid = 12 }}")));
    let contents = &tool.source.object(Arch::X86_64, "6.12").unwrap().1.contents;
    assert_eq!(
        serde_json::to_value(contents).unwrap(),
        serde_json::json!({
            "set": [
                { "map": "conf", "key": { "key": 0 }, "value": { "dev.major": -1, "magic": 0x63677270, "name": "x" } },
                { "map": "m", "key": { "key": 7 }, "value": { "value": 1 } },
            ],
            "rodata": { "all": 0, "pid": 12 },
            "maps": [
                { "name": "start", "max_entries": 64 },
                { "name": "outer", "inner": { "kind": "lru-hash", "key_size": 4, "value_size": 8, "max_entries": 1 } },
            ],
        })
    );
    let refused = |more: &str| refused_in(OBJECT, from, more);
    assert_eq!(
        refused("set = [{ map = \"conf\", keys = 0, value = 1 }]"),
        "t.toml:6:56: unknown key `keys` in `source.object.set[0]`: did you mean `key`?"
    );
    for (more, complaint) in [
        ("set = { map = \"conf\", key = 0, value = 1.5 }", "expected a whole number, found a number with a fraction"),
        ("rodata = { a.b = 1 }", "`a.b` is part of a structure: only whole numbers and texts can be set"),
        ("rodata = { a = \"x\\u0000\" }", "give a text of at most 255 bytes without control characters"),
        ("rodata = { a.b.c.d.e.f.g.h.i.j = 1 }", "more than 8 tables within each other"),
        ("rodatas = { a = 1 }", "unknown key `rodatas`"),
        ("maps = [{ name = \"start\" }]", "give `max_entries`, `inner` or both"),
        ("maps = [{ name = \"start\", max_entries = 0 }]", "0 is not from 1 to 4294967295"),
        ("maps = [{ name = \"m\", inner = { kind = \"hashes\" } }]", "unknown type of an inner map `hashes`"),
    ] {
        let found = refused(more);
        assert!(found.contains(complaint), "{found}");
    }
}

#[test]
fn what_is_not_given_has_a_default() {
    let tool = parse(OBJECT);
    assert_eq!((tool.ready, tool.stop), (Ready::Started, Stop { signal: Signal::Int, grace_ms: 5000 }));
    let Source::Object(objects) = &tool.source else { panic!("{:?}", tool.source) };
    assert!(objects[0].archs.is_empty() && tool.source.has(Arch::Aarch64, "6.12"));
    let report = tool.report.unwrap();
    assert_eq!((report.figures[0].scale, report.figures[0].counting), (1024, Counting::Cumulative));
    let exporter = GOOD.replace("json-lines = { ignore = \"^#\" }", "openmetrics = { port = 9100 }");
    let ReportForm::Openmetrics { path, interval_ms, .. } = parse(&exporter).report.unwrap().form else { panic!() };
    assert_eq!((path.as_str(), interval_ms), ("/metrics", None));
}

#[test]
fn complaints_name_the_place_and_the_nearest_known_key() {
    assert_eq!(
        refused("arguments =", "argumets ="),
        "t.toml:8:1: unknown key `argumets` in `start`: did you mean `arguments`?"
    );
    assert!(refused("grace", "grade").contains("did you mean `grace`?"));
    assert!(refused("json-lines", "json-line").contains("did you mean `json-lines`?"));
    assert!(refused("schema = 1", "schema = 2").contains("this program reads schema 1"));
    assert!(refused("\"TERM\"", "\"STOP\"").contains("known are INT, TERM, HUP, QUIT, USR1, KILL"));
    assert!(refused("\"^attached\"", "\"(\"").contains("t.toml:9:18: `start.ready.line`: no regular expression"));
    assert!(refused("{ value = \"read\", unit", "{ value = \"reads\", unit").contains("operations are read, write"));
    assert!(refused("unit = \"calls\"", "scale = 1").contains("key `unit` is missing here and in `report`"));
    assert!(refused("counting = \"cumulative\"", "").contains("key `counting` is missing"));
}

#[test]
fn objects_are_chosen_by_kernel() {
    let objects = |list: &str| {
        OBJECT.replace("object = { path = \"bare.bpf.o\", programs = [\"on_read\"] }", &format!("object = {list}"))
    };
    let by_kernel = objects(
        "[{ path = 'old.o', kernels = ['5.10', '6.1'] }, { path = 'arm.o', arch = 'aarch64', kernels = '6.12' }, { path = 'new.o' }]",
    );
    let tool = parse(&by_kernel);
    let of = |arch, kernel| tool.source.object(arch, kernel).map(|(place, object)| (place, object.path.as_str()));
    assert_eq!(of(Arch::X86_64, "6.1.158-1"), Some((0, "old.o")));
    assert_eq!(of(Arch::X86_64, "6.12"), Some((2, "new.o")));
    assert_eq!(of(Arch::Aarch64, "6.12.9"), Some((1, "arm.o")));
    let only = parse(&objects("{ path = 'old.o', kernels = '6.1' }"));
    assert!(!only.source.has(Arch::X86_64, "6.12"));
    let none = only.for_target(Arch::X86_64, "6.12").unwrap_err();
    assert_eq!(none, "its file has no object for x86_64 with Linux 6.12");
    for (list, complaint) in [
        (
            "[{ path = 'a.o', kernels = '6.1' }, { path = 'b.o', kernels = ['6.1.9'] }]",
            "there is an entry for x86_64 with Linux 6.1.9 already",
        ),
        ("[{ path = 'a.o' }, { path = 'b.o' }]", "there is an entry for x86_64 already"),
        ("{ path = 'a.o', kernels = 'old' }", "give a kernel as studies name it"),
        ("{ path = 'a.o', kernel = '6.1' }", "did you mean `kernels`?"),
    ] {
        let error = ToolFile::parse("t.toml", &objects(list)).unwrap_err().to_string();
        assert!(error.contains(complaint), "{list}: {error}");
    }
    // Other sources are chosen in the same way.
    let other = GOOD.replacen("path = \"bin/counter\" }", "path = \"bin/counter\", kernels = \"6.1\" }", 1);
    let source = parse(&other).source;
    assert_eq!([source.has(Arch::X86_64, "6.1.9"), source.has(Arch::X86_64, "6.12")], [true, false]);
}

#[test]
fn files_lie_beside_a_program_and_nowhere_else() {
    let with = |files: &str| GOOD.replace("[source]", &format!("[source]\nfiles = {files}"));
    assert_eq!(parse(&with("['conf.yml', 'data/x.json']")).files, ["conf.yml", "data/x.json"]);
    let refused = |files: &str| ToolFile::parse("t.toml", &with(files)).unwrap_err().to_string();
    for (files, complaint) in [
        ("['../conf.yml']", "give a path below the directory"),
        ("['/etc/passwd']", "give a path below the directory"),
        ("['program']", "`program` has another meaning in the directory of a tool"),
        ("['lib/x.so']", "`lib` has another meaning in the directory of a tool"),
        ("['a/b', 'a']", "`a/b` lies below another of the files"),
    ] {
        assert!(refused(files).contains(complaint), "{files}: {}", refused(files));
    }
    let many: Vec<String> = (0..65).map(|number| format!("'{number}'")).collect();
    assert!(refused(&format!("[{}]", many.join(", "))).contains("the list has 65 entries, and may have 64"));
    assert!(
        refused_in(OBJECT, "[source]", "[source]\nfiles = ['a']")
            .contains("a bare object has no program that would read files")
    );
}

#[test]
fn figures_of_several_maps_and_pages_name_their_own() {
    let maps = OBJECT.replace("map = { map = \"counts\" }", "maps = ['counts', 'others']");
    let with = |figure: &str| maps.replace("{ value = \"bytes\"", &format!("{{ {figure}value = \"bytes\""));
    let report = parse(&with("map = 'others', ")).report.unwrap();
    assert_eq!(
        (report.form.maps(), report.figures[0].part.as_deref()),
        (&["counts".to_owned(), "others".to_owned()][..], Some("others"))
    );
    let refused = |figure: &str| ToolFile::parse("t.toml", &with(figure)).unwrap_err().to_string();
    assert!(refused("").contains("key `map` is missing: the report has counts, others"), "{}", refused(""));
    assert!(refused("map = 'other', ").contains("no map `other`; did you mean `others`?; it has counts, others"));
    assert!(
        refused_in(OBJECT, "{ value = \"bytes\"", "{ page = 'x', value = \"bytes\"")
            .contains("the report has one only")
    );
    let page = |list: &str| {
        let text = GOOD.replace("json-lines = { ignore = \"^#\" }", &format!("openmetrics = {list}"));
        ToolFile::parse("t.toml", &text).map(|_| ()).unwrap_err().to_string()
    };
    assert!(page("[{ name = 'a', port = 1 }]").contains("the list has 1 entries, and may have 2 to 8"));
    assert!(
        page("[{ name = 'a', port = 1 }, { name = 'a', port = 2 }]")
            .contains("the same name, or the same port and path")
    );
    assert!(
        page("[{ name = 'a', port = 1 }, { name = 'b', port = 1 }]")
            .contains("the same name, or the same port and path")
    );
    assert!(page("[{ name = 'a', port = 1 }, { name = 'b', prot = 1 }]").contains("did you mean `port`?"));
}

#[test]
fn histograms_and_events_have_figures_of_their_own() {
    let form = |form: &str, figure: &str| {
        let (head, _) = GOOD.split_once("[report]").unwrap();
        ToolFile::parse("t.toml", &format!("{head}[report]\n{form}\nfigures = [{{ {figure} }}]\n"))
    };
    let refused = |of: &str, figure: &str| form(of, figure).unwrap_err().to_string();
    let histogram = "histogram = { heading = '^op = (?<op>\\w+)' }\ncounting = 'interval'";
    assert!(
        form(histogram, "value = 'usecs.count', where = { op = 'r' }, operations = 'read', unit = 'calls'").is_ok()
    );
    assert!(refused(histogram, "value = 'usecs', operations = 'read', unit = 'calls'").contains("as `usecs.count`"));
    let label = refused(histogram, "value = 'usecs.count', where = { o = 'r' }, operations = 'read', unit = 'calls'");
    assert!(label.contains("the heading has no group named `o`; it has op"), "{label}");
    let events = "events = { line = '^(?<op>\\w+) (?<ret>\\d+)' }";
    for unit in ["calls", "successes"] {
        assert!(form(events, &format!("operations = 'read', unit = '{unit}'")).is_ok());
    }
    assert!(refused(events, "operations = 'read', unit = 'errors'").contains("`value` is missing"));
    assert!(
        refused(events, "value = 'x', operations = 'read', unit = 'calls'")
            .contains("no group named `x`; it has op, ret")
    );
    assert!(
        refused(&format!("{events}\ncounting = 'interval'"), "operations = 'read', unit = 'calls'")
            .contains("an event counts once")
    );
    assert!(
        refused(&format!("{events}\nlost = {{ line = 'lost' }}"), "operations = 'read', unit = 'calls'")
            .contains("name the number of events with a group")
    );
    // An exporter can print lines in addition to its page. An object prints nothing.
    let lost = "lost = { line = '(?<lost>\\d+) lost' }";
    let page = format!("openmetrics = {{ port = 1 }}\n{lost}");
    assert!(form(&page, "value = 'a', operations = 'read', unit = 'calls'").is_ok());
    let map = "map = { map = \"counts\" }";
    assert!(
        refused_in(OBJECT, map, &format!("{map}\n{lost}"))
            .contains("no lines in which a tool says that it lost events")
    );
}

#[test]
fn a_nix_package_is_there_for_the_architectures_that_it_lies_beside_the_file_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nnix = { attribute = 'a.b', program = 'bin/a' }\n";
    fs::write(&path, text).unwrap();
    let order = |arch| load(path.to_str().unwrap()).unwrap().file.for_target(arch, "6.12").map(|tool| tool.command);
    assert!(
        order(Arch::Aarch64)
            .unwrap_err()
            .contains("a Nix package (a.b), which does not lie beside the tool file for aarch64")
    );
    fs::create_dir_all(folder.path().join("closure/aarch64")).unwrap();
    assert_eq!(order(Arch::Aarch64).unwrap(), ["/tools/mine/package/bin/a"]);
    assert!(order(Arch::X86_64).is_err());
}

#[test]
fn there_is_one_source_and_one_form() {
    assert!(
        refused("[source]", "[source]\nnix = { attribute = \"a\", program = \"bin/a\" }")
            .contains("exactly one of binary, debian")
    );
    assert!(refused("[report]", "[report]\nbpftrace-json = {}").contains("exactly one of json-lines"));
    assert!(refused("\"riscv64\"", "\"x86_64\"").contains("there is an entry for x86_64 already"));
    assert!(refused("arch = \"x86_64\", ", "").contains("a program is for one architecture"));
    assert!(
        refused_in(OBJECT, "map = { map = \"counts\" }", "json-lines = {}").contains("a bare object prints nothing")
    );
    assert!(
        refused("json-lines = { ignore = \"^#\" }", "map = { map = \"m\" }").contains("only maps of a bare object")
    );
    assert!(refused("stream = \"stderr\" }", "named = \"a\" }").contains("belongs to `programs`"));
    assert!(
        refused_in(OBJECT, "[report]", "[start]\narguments = [\"a\"]\n[report]").contains("not started with arguments")
    );
}

#[test]
fn no_path_and_no_name_leads_elsewhere() {
    for path in ["../counter", "/bin/counter", "bin/../../x", "./x", "", "a\\u0000b", "a\\nb"] {
        assert!(refused("bin/counter", path).contains("give a path"), "{path}");
    }
    let debian = |from: &str, to: &str| {
        let text = "debian = { suite = \"trixie\", package = \"a\", program = \"/usr/bin/a\" }";
        refused_in(&GOOD.replace("binary = [{ arch = \"x86_64\", path = \"bin/counter\" }, { arch = \"riscv64\", path = \"rv/counter\", libraries = \"rv/lib\" }]", text), from, to)
    };
    assert!(debian("/usr/bin/a", "usr/bin/a").contains("absolute path"));
    assert!(debian("/usr/bin/a", "/usr/../a").contains("absolute path"));
    assert!(debian("\"trixie\"", "\"trixie/../sid\"").contains("at most 100 lower-case letters"));
    assert!(debian("\"a\"", "\"-o=x\"").contains("at most 100 lower-case letters"));
    assert!(refused("[\"--json\"]", &format!("[\"{}\"]", "a".repeat(5000))).contains("at most 4096 bytes"));
    assert!(refused("[\"--json\"]", &format!("[{}]", "\"a\", ".repeat(65))).contains("may have 64"));
    let page = "openmetrics = { port = 1, path = \"/a HTTP/1.1\\r\\nX: y\" }";
    assert!(refused("json-lines = { ignore = \"^#\" }", page).contains("visible ASCII"));
}

#[test]
fn a_table_has_a_group_for_everything_that_is_spoken_of() {
    let table = GOOD.replace(
        "json-lines = { ignore = \"^#\" }",
        r"table = { line = '^(?<op>\w) (?<cg>\w+) (?<n>\d+) (?<read>\d+)$' }",
    );
    assert_eq!(parse(&table).figures().len(), 2);
    assert!(refused_in(&table, "(?<n>", "(?<m>").contains("no group named `n`; it has op, cg, m, read"));
    assert!(refused_in(&table, "label = \"cg\", ", "").contains("no group named `cgroup`"));
    assert!(refused_in(&table, "where = { op", "where = { oq").contains("no group named `oq`"));
}

#[test]
fn modules_and_headers_of_the_kernel_are_what_a_tool_requires_of_it() {
    let with = |keys: &str| GOOD.replace("deadline = \"90s\"", &format!("deadline = \"90s\"\n{keys}"));
    assert!(parse(GOOD).kernel.is_empty());
    let kernel = parse(&with("modules = [\"xfs\", \"md-mod\"]\nkernel_headers = true")).kernel;
    assert_eq!((&kernel.modules[..], kernel.headers), (&["xfs".to_owned(), "md_mod".to_owned()][..], true));
    let error = |keys: &str| ToolFile::parse("t.toml", &with(keys)).unwrap_err().to_string();
    assert!(error("modules = [\"../xfs\"]").contains("give the name of a kernel module"));
    assert!(error("modules = [\"md_mod\", \"md-mod\"]").contains("this module is listed twice"));
    assert!(error("kernel_header = true").contains("did you mean `kernel_headers`?"));
    assert!(
        refused_in(OBJECT, "[report]", "[start]\nkernel_headers = true\n[report]")
            .contains("is not compiled in the guest")
    );
}

#[test]
fn services_that_a_tool_needs_are_known_ones() {
    let with = |needs: &str| GOOD.replace("deadline = \"90s\"", &format!("deadline = \"90s\"\nneeds = {needs}"));
    assert_eq!(parse(&with("[\"cri-o\", \"dbus\"]")).needs, [MissingService::CriO, MissingService::DBus]);
    assert_eq!(parse(&with("\"systemd\"")).needs, [MissingService::Systemd]);
    let error = |needs: &str| ToolFile::parse("t.toml", &with(needs)).unwrap_err().to_string();
    let known =
        "unknown value `sistemd`; known are systemd, dbus, containerd, docker, cri-o, udev; did you mean `systemd`?";
    assert!(error("[\"sistemd\"]").contains(known), "{}", error("[\"sistemd\"]"));
    assert!(error("[\"udev\", \"udev\"]").contains("this service is listed twice"));
    assert!(
        refused_in(OBJECT, "[report]", "[start]\nneeds = [\"udev\"]\n[report]").contains("no program that would need")
    );
    for (name, service) in MissingService::NAMES {
        let json = serde_json::to_string(service).unwrap();
        assert_eq!(json, format!("\"{name}\""));
    }
}

#[test]
fn a_map_of_bpftrace_has_its_key_as_labels() {
    let of = |figure: &str| {
        let bpftrace = GOOD.replace("json-lines = { ignore = \"^#\" }", "bpftrace-json = {}");
        let (head, _) = bpftrace.split_once("figures = [").unwrap();
        ToolFile::parse(
            "t.toml",
            &format!("{head}figures = [{{ value = '@n', operations = 'read', unit = 'calls', {figure} }}]"),
        )
    };
    for right in
        ["whose = 'system', where = { key = 'a' }", "whose = 'cgroup', label = 'key16', where = { key1 = 'a' }"]
    {
        assert!(of(right).is_ok(), "{right}: {:?}", of(right));
    }
    for (wrong, label) in [
        ("whose = 'system', where = { kye2 = 'a' }", "kye2"),
        ("whose = 'cgroup', label = 'cg'", "cg"),
        ("whose = 'cgroup'", "cgroup"),
        ("whose = 'cgroup', label = 'key17'", "key17"),
        ("whose = 'cgroup', label = 'key0'", "key0"),
    ] {
        let error = of(wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("no label `{label}`: `label` or `where` names `key`")), "{error}");
    }
}

/// Figures that a script cannot report are refused before anything boots.
#[test]
fn the_maps_of_a_bpftrace_script_are_those_that_figures_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.toml");
    let text = "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\nscript = { path = 'x.bt', interpreter = '/usr/bin/bpftrace' }\n\
                [report]\nbpftrace-json = {}\ncounting = 'cumulative'\nunit = 'calls'\nfigures = [{ value = '@reads', operations = 'read' }]\n";
    let refusal = |text: &str, script: &[u8]| {
        fs::write(&path, text).unwrap();
        fs::write(folder.path().join("x.bt"), script).unwrap();
        let error = load(path.to_str().unwrap()).unwrap().under_test().err()?;
        Some(format!("{error}: {}", std::error::Error::source(&error).unwrap()))
    };
    let script = "kprobe:vfs_read { @raeds = count(); }";
    let expected = "mine reports what {} does not have: the script has no map `@reads`; did you mean `@raeds`?; its maps are @raeds";
    let expected = expected.replace("{}", &folder.path().join("x.bt").display().to_string());
    assert_eq!(refusal(text, script.as_bytes()).unwrap(), expected);
    assert_eq!(refusal(&text.replace("@reads", "@raeds"), script.as_bytes()), None);
    assert!(refusal(text, b"\xff").unwrap().ends_with("is no text in UTF-8"));
    // Scripts of other interpreters are not checked.
    assert_eq!(refusal(&text.replace("/usr/bin/bpftrace", "/bin/sh"), script.as_bytes()), None);
}

#[test]
fn bundled_tools_are_tool_files_named_as_their_files() {
    for name in bundled::with_files() {
        let loaded = load(name).unwrap();
        assert_eq!((loaded.file.name.as_str(), loaded.folder), (name, None));
        // Bundled tools have no files of their own; their objects are in the tracer.
        match loaded.file.source {
            Source::Debian(_) | Source::Nix(_) | Source::Guest(_) => {}
            Source::Object(objects) => {
                assert!(
                    objects.iter().all(|object| object.bundled && object.path == format!("{name}.bpf.o")),
                    "{name}"
                );
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpfassay-tracer/src/bpf/bundled");
                assert!(source.join(format!("{name}.bpf.c")).is_file(), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(bundled::with_files().count() > 0);
    let error = load("vfsstaat-libbpf").unwrap_err().to_string();
    assert!(error.contains("did you mean `vfsstat-libbpf`?"), "{error}");
    assert!(load("no/such.toml").unwrap_err().to_string().starts_with("cannot read the tool file no/such.toml"));
}

#[test]
fn what_was_read_survives_json() {
    for text in [GOOD, OBJECT] {
        let tool = parse(text);
        let json = serde_json::to_string(&tool).unwrap();
        assert_eq!(serde_json::from_str::<ToolFile>(&json).unwrap(), tool);
    }
    assert!(schemars::schema_for!(ToolFile).to_value().to_string().contains("bytes-requested"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(from in 0..GOOD.len(), to in 0..GOOD.len(), text: String) {
        let (from, to) = (from.min(to), from.max(to));
        let _ = ToolFile::parse("t.toml", &format!("{}{text}{}", &GOOD[..from], &GOOD[to..]));
        let _ = ToolFile::parse("t.toml", &text);
    }
}
