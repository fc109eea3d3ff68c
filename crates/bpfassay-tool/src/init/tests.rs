// SPDX-License-Identifier: MIT OR Apache-2.0

use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    thread,
};

use proptest::prelude::*;

use super::*;
use crate::{
    Ready,
    file::{CountedUnit, Counting, ReportForm, Source, Whose},
    read::LoadedFile,
};

/// Drafts a tool file for the file `name` with `contents`.
fn written(name: &str, contents: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), contents).unwrap();
    tool_file(&folder.path().join(name).display().to_string(), None).unwrap()
}

/// Activates all proposals in `text`.
fn accepted(text: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(rest) if !rest.is_empty() && !rest.starts_with(' ') => rest.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn read(text: &str) -> ToolFile {
    ToolFile::parse("t.toml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn an_object_is_written_with_its_programs_and_the_fields_of_its_map() {
    let bytes = include_bytes!("../../tests/data/counts.bpf.o");
    let text = written("Counts_1.bpf.o", bytes);
    let file = read(&text);
    assert_eq!((file.name.as_str(), file.report), ("counts-1", None));
    assert!(matches!(&file.source, Source::Object(objects) if objects[0].path == "Counts_1.bpf.o"));
    assert!(text.contains("# Programs: on_read ("), "{text}");
    let file = read(&accepted(&text));
    let report = file.report.clone().unwrap();
    assert_eq!(report.form, ReportForm::Map { map: "counts".to_owned() });
    let bytes_of = report.figures.iter().find(|figure| figure.value == "bytes").unwrap();
    assert_eq!(
        (bytes_of.unit, bytes_of.whose, bytes_of.label.as_deref()),
        (CountedUnit::BytesReturned, Whose::Cgroup, Some("cgroup"))
    );
    assert!(
        text.contains("# Decide: a figure for each value of operation, with where = { operation = \"0\" }."),
        "{text}"
    );
    // The object has all proposed names.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("Counts_1.bpf.o"), bytes).unwrap();
    LoadedFile { file, folder: Some(folder.path().to_owned()) }.under_test().unwrap();
}

#[test]
fn global_variables_of_an_object_are_proposed_as_figures() {
    let text = written("globals.bpf.o", include_bytes!("../../tests/data/globals.bpf.o"));
    assert!(!text.contains("No map of it can be read"), "{text}");
    let report = read(&accepted(&text)).report.unwrap();
    assert!(matches!(&report.form, ReportForm::Map { map } if map.starts_with(".bss") || map.starts_with(".data")));
    assert!(!report.figures.is_empty(), "{text}");
}

#[test]
fn an_object_without_types_has_no_report_and_the_reason() {
    let bytes = include_bytes!("../../tests/data/counts.bpf.o");
    let at = bytes.windows(5).position(|window| window == b".BTF\0").unwrap();
    let mut damaged = bytes.to_vec();
    damaged[at + 1] = b'X';
    let text = written("a.o", &damaged);
    assert!(text.contains("No map of it can be read") && text.contains("(maps: counts"), "{text}");
    assert_eq!(read(&accepted(&text)).report, None);
}

const SCRIPT: &str = r#"#!/usr/bin/env bpftrace
// @not[pid] = count();
BEGIN { printf("@no = count() // {\n"); }
kretprobe:vfs_read, kretprobe:vfs_readv /retval > 0/ { @bytes[cgroup, "read"] = sum(retval); @start[tid] = nsecs; }
kprobe:vfs_write /* @neither++ */ { @asked[comm] = stats(arg2); @sizes = hist(arg2); @[probe]++; }
tracepoint:syscalls:sys_exit_openat /args.ret >= 0/ { @opens += 1; }
interval:s:1 { print(@bytes); clear(@bytes); }
"#;

#[test]
fn a_bpftrace_script_is_written_with_what_it_adds_up() {
    let text = written("io.bt", SCRIPT.as_bytes());
    let file = read(&text);
    assert_eq!(file.name, "io");
    assert_eq!(file.arguments, ["-f", "json", "{script}"]);
    assert!(matches!(&file.ready, Ready::Programs { count: 1, named: None }) && file.report.is_none());
    assert!(text.contains("# Not added up, so no figures: @start\n"), "{text}");
    let report = read(&accepted(&text)).report.unwrap();
    assert!(matches!(report.form, ReportForm::BpftraceJson { .. }));
    let figures: Vec<_> = report
        .figures
        .iter()
        .map(|figure| {
            let operations: Vec<&str> = figure.operations.iter().map(|operation| operation.name()).collect();
            let labels: Vec<&str> = figure.labelled.values().map(String::as_str).collect();
            (figure.value.as_str(), operations.join("+"), figure.unit.name(), figure.label.as_deref(), labels.join("+"))
        })
        .collect();
    let figure = |value, operations: &str, unit, label, labels: &str| {
        (value, operations.to_owned(), unit, label, labels.to_owned())
    };
    assert_eq!(
        figures,
        [
            figure("@bytes", "read", "bytes-returned", Some("key1"), "read"),
            figure("@asked.count", "write", "calls", Some("key1"), ""),
            figure("@asked.total", "write", "bytes-requested", Some("key1"), ""),
            figure("@sizes.count", "write", "calls", None, ""),
            figure("@", "write", "calls", None, "kprobe:vfs_write"),
            figure("@opens", "open", "bytes-returned", None, ""),
        ]
    );
    assert_eq!(report.figures[0].whose, Whose::Cgroup);
    assert_eq!(report.figures[0].counting, Counting::Interval);
    assert!(!text.contains("prints its maps at its end only"), "{text}");
    assert!(written("a.bt", b"kprobe:vfs_read { @++; }").contains("prints its maps at its end only"));
    // Both functions give one figure if the map has no key.
    let both =
        read(&accepted(&written("b.bt", b"kprobe:vfs_read { @x++; }\nkprobe:vfs_readv { @x++ }"))).report.unwrap();
    assert_eq!(both.figures.len(), 1);
    assert_eq!(both.figures[0].operations.len(), 2);
}

const PAGE: &str = "\
# HELP vfs_bytes_total Bytes moved.
# TYPE vfs_bytes_total counter
vfs_bytes_total{op=\"read\",mountpoint=\"/mnt\"} 5
vfs_bytes_total{op=\"write\",mountpoint=\"/mnt\"} 7 1700000000
# TYPE vfs_errors counter
vfs_errors_total 1
# TYPE up gauge
up 1
process_open_fds 7
";

#[test]
fn a_page_of_metrics_is_written_with_a_figure_for_each_operation() {
    let text = written("metrics.prom", PAGE.as_bytes());
    assert!(read(&text).report.is_none());
    let report = read(&accepted(&text)).report.unwrap();
    let figures: Vec<_> =
        report.figures.iter().map(|figure| (figure.value.as_str(), figure.unit, figure.whose)).collect();
    let bytes = ("vfs_bytes_total", CountedUnit::BytesReturned, Whose::Mount);
    assert_eq!(figures, [bytes, bytes, ("vfs_errors_total", CountedUnit::Errors, Whose::System)]);
    assert_eq!(report.figures[1].labelled["op"], "write");
    assert!(
        text.contains("vfs_errors_total\", operations = [\"read\"], unit = \"errors\" },  # decide: operations\n"),
        "{text}"
    );
}

#[test]
fn an_endpoint_is_asked_and_its_port_is_written() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = thread::spawn(move || {
        for answer in
            [format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{PAGE}"), "HTTP/1.0 404 No\r\n\r\n".to_owned()]
        {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; 512];
            let length = stream.read(&mut asked).unwrap();
            assert!(asked[..length].starts_with(b"GET /m HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let url = format!("http://127.0.0.1:{port}/m");
    let text = tool_file(&url, None).unwrap();
    assert_eq!(read(&text).ready, Ready::Port(port));
    let report = read(&accepted(&text)).report.unwrap();
    assert!(
        matches!(&report.form, ReportForm::Openmetrics { port: found, path, .. } if *found == port && path == "/m")
    );
    assert!(matches!(tool_file(&url, None), Err(InitError::Endpoint { .. })));
    served.join().unwrap();
    assert!(matches!(tool_file("http://192.0.2.1/", None), Err(InitError::Url { .. })));
}

#[test]
fn a_program_is_written_with_its_architecture_and_libraries() {
    let own = std::env::current_exe().unwrap();
    let text = tool_file(&own.display().to_string(), None).unwrap();
    let file = read(&text);
    let Source::Binary(binaries) = &file.source else { panic!("{text}") };
    assert_eq!(Some(binaries[0].arch), elf::machine(&fs::read(&own).unwrap()));
    assert_eq!(binaries[0].libraries.as_deref(), Some("lib"));
    assert!(text.contains("libc.so.6"), "{text}");
    let mut fixed = b"\x7fELF\x02\x01\x01".to_vec();
    fixed.resize(64, 0);
    (fixed[16], fixed[18]) = (2, 183);
    let text = written("tool", &fixed);
    assert!(text.contains("binary = [{ arch = \"aarch64\", path = \"tool\" }]"), "{text}");
    fixed[16] = 1;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("main.o"), &fixed).unwrap();
    let error = tool_file(&folder.path().join("main.o").display().to_string(), None).unwrap_err();
    assert!(error.to_string().contains("not linked"), "{error}");
}

#[test]
fn a_script_is_written_with_its_interpreter() {
    let python = written("x.py", b"#!/usr/bin/env python3\nfrom bcc import BPF\n");
    let Source::Script(scripts) = read(&python).source else { panic!("{python}") };
    let [script] = &*scripts else { panic!("{python}") };
    assert_eq!(
        (script.interpreter.as_str(), script.debian.as_ref().unwrap().package.as_str()),
        ("/usr/bin/python3", "python3-bpfcc")
    );
    for odd in ["#!\n", "#!env\n", "#!/usr/bin/env -S\n", "#! /opt/x/../y a\"b\n", "#!/opt/mine -x\n"] {
        read(&written("x", odd.as_bytes()));
    }
    assert!(written("x", b"#!/opt/mine -x\n").contains("interpreter = \"/opt/mine\" }"));
}

#[test]
fn the_file_names_its_source_from_where_it_will_lie() {
    let folder = tempfile::tempdir().unwrap();
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("tools/bin")).unwrap();
    fs::write(at("tools/bin/a.bt"), "BEGIN { }").unwrap();
    let source = at("tools/bin/a.bt").display().to_string();
    assert!(tool_file(&source, Some(&at("tools"))).unwrap().contains("path = \"bin/a.bt\""));
    assert!(tool_file(&source, Some(&at("tools/bin"))).unwrap().contains("path = \"a.bt\""));
    fs::create_dir(at("other")).unwrap();
    let error = tool_file(&source, Some(&at("other"))).unwrap_err();
    assert!(error.to_string().contains("write the tool file beside it"), "{error}");
}

#[test]
fn what_is_no_tool_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    for (contents, why) in
        [(&b"hello\n"[..], "a text of another kind"), (b"\xff\xfe", "no text"), (b"", "a text of another kind")]
    {
        fs::write(folder.path().join("x"), contents).unwrap();
        let error = tool_file(&folder.path().join("x").display().to_string(), None).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(matches!(tool_file("no/such", None), Err(InitError::Read { .. })));
}

proptest! {
    #[test]
    fn whatever_a_script_is_the_file_is_valid(text in ".{0,200}") {
        read(&written("x.bt", text.as_bytes()));
    }

    #[test]
    fn whatever_maps_are_called_the_proposals_are_valid(
        map in "[a-z0-9_]{0,130}", key in "[a-z\"\\\\\\[\\], (){}]{0,20}", call in "(count|sum|hist|stats|x)",
    ) {
        let text = written("x.bt", format!("kprobe:vfs_read {{ @{map}[{key}] = {call}(1); }}").as_bytes());
        let accepted = accepted(&text);
        // A draft without figures has no report.
        if accepted.contains("{ value") {
            read(&accepted);
        }
    }

    #[test]
    fn whatever_labels_are_the_proposals_are_valid(label in "[a-z_]{1,10}", value in "[^\n]{0,40}") {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        let page = format!("reads_total{{{label}=\"{value}\",op=\"{value}\"}} 1\n");
        let text = metrics_draft::draft("x", "x", None, &page).text();
        read(&text);
        if text.contains("{ value") {
            read(&accepted(&text));
        }
    }

    #[test]
    fn a_damaged_object_ends_in_a_file_or_an_error(at in 0_usize..4000, value: u8) {
        let mut bytes = include_bytes!("../../tests/data/counts.bpf.o").to_vec();
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.o"), &bytes).unwrap();
        match tool_file(&folder.path().join("a.o").display().to_string(), None) {
            Ok(text) => drop(read(&text)),
            Err(error) => prop_assert!(!matches!(error, InitError::Fault(_)), "{}", error),
        }
    }
}

#[test]
fn an_object_that_no_guest_can_load_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("big.bpf.o");
    let mut header = [0_u8; 64];
    // A relocatable 64-bit big-endian ELF file for eBPF (machine 247).
    header[..7].copy_from_slice(b"\x7fELF\x02\x02\x01");
    header[16..24].copy_from_slice(&[0, 1, 0, 247, 0, 0, 0, 1]);
    header[52..54].copy_from_slice(&64_u16.to_be_bytes());
    fs::write(&path, header).unwrap();
    let refused = tool_file(path.to_str().unwrap(), None).unwrap_err();
    assert!(matches!(refused, InitError::Unusable { .. }), "{refused:?}");
    let message = refused.to_string();
    assert!(
        message.ends_with("is an eBPF object for big-endian machines: compile it with `-target bpfel`"),
        "{message}"
    );
}
