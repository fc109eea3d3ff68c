// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tool files, and the output of tools.

use std::sync::LazyLock;

use bpfassay_protocol::Arch;
use bpfassay_tool::{
    Readings, Stream, ToolCapture, ToolFile,
    file::Report,
    finding::Kind,
    read,
    recorded_output::{CapturedPage, CapturedPiece, Dump},
};

/// A tool file: a valid one must survive a round trip, and gives a tool specification or a message.
pub(super) fn tool_file(text: &str) {
    let Ok(file) = ToolFile::parse("t.toml", text) else { return };
    for &arch in Arch::ALL {
        let _ = file.for_target(arch, "6.12");
    }
    let again = serde_json::to_vec(&file).ok().and_then(|text| serde_json::from_slice::<ToolFile>(&text).ok());
    assert_eq!(again.as_ref(), Some(&file));
}

/// Kinds of findings, as `--deny` and gates name them.
pub(super) fn finding(text: &str) {
    match text.parse::<Kind>() {
        Ok(kind) => assert_eq!(kind.name(), text),
        Err(message) => assert!(message.len() < 4000),
    }
}

/// Parses a tool file with `source` and `report` as these parts, and returns the report.
fn report(source: &str, report: &str) -> Option<Report> {
    let text =
        format!("schema = 1\n[tool]\nname = \"t\"\ndescription = \"t\"\n[source]\n{source}\n[report]\n{report}\n");
    ToolFile::parse("t.toml", &text).ok()?.report
}

const PROGRAM: &str = "nix = { attribute = \"a\", program = \"bin/a\" }";

const OBJECT: &str = "object = { path = \"a.bpf.o\" }";

/// Splits `bytes` into pieces of standard output and standard error.
fn printed(bytes: &[u8]) -> ToolCapture {
    let streams = [Stream::Stdout, Stream::Stdout, Stream::Stderr];
    let pieces = bytes.chunks(509).zip(streams.into_iter().cycle()).zip(1u64..);
    let pieces =
        pieces.map(|((bytes, stream), at_ns)| CapturedPiece { at_ns, stream, bytes: bytes.to_vec() }).collect();
    ToolCapture { pieces, ..ToolCapture::default() }
}

fn check(report: Option<&Report>, capture: &ToolCapture, object: Option<&[u8]>) {
    assert!(report.is_some(), "the report of this target is wrong");
    let Some(report) = report else { return };
    let Ok(readings) = read(report, capture, object) else { return };
    let Readings { samples, .. } = &readings;
    assert!(samples.iter().all(|sample| sample.figure < report.figures.len()));
    for (index, figure) in report.figures.iter().enumerate() {
        for (from, to) in [(0, 2), (1, 100), (5, 5)] {
            let _ = readings.grown(index, figure, from, to);
            let _ = readings.values(index, figure, from, to);
        }
    }
}

/// Lines of JSON.
pub(super) fn json_lines(bytes: &[u8]) {
    static REPORT: LazyLock<Option<Report>> = LazyLock::new(|| {
        report(
            PROGRAM,
            "json-lines = { ignore = '^#' }\ncounting = 'cumulative'\nunit = 'calls'\nfigures = [\n\
             { value = 'calls', operations = 'read', where = { name = 'vfs_read' } },\n\
             { value = 'a.b', operations = 'write', scale = 1024, label = 'pid', whose = 'process' } ]",
        )
    });
    check(REPORT.as_ref(), &printed(bytes), None);
}

/// Tables, with the reports of bundled tools.
pub(super) fn table(bytes: &[u8]) {
    static REPORTS: LazyLock<Vec<Option<Report>>> = LazyLock::new(|| {
        let tools = ["vfsstat-libbpf", "filetop-libbpf", "perf-trace"];
        tools.map(|name| bpfassay_tool::load(name).ok()?.file.report).into()
    });
    for report in REPORTS.iter() {
        check(report.as_ref(), &printed(bytes), None);
    }
}

/// Histograms in the format of bcc and libbpf-tools.
pub(super) fn histogram(bytes: &[u8]) {
    static REPORT: LazyLock<Option<Report>> = LazyLock::new(|| {
        report(
            PROGRAM,
            "histogram = { heading = \"^operation = '(?<operation>\\\\w+)'\", time = '^\\d+:' }\ncounting = 'interval'\nunit = 'calls'\nfigures = [\n\
             { value = 'usecs.count', operations = 'read', where = { operation = 'read' } },\n\
             { value = 'usecs.count', operations = 'write', label = 'operation', whose = 'process' } ]\n\
             lost = { line = 'lost (?<lost>\\S+)' }",
        )
    });
    check(REPORT.as_ref(), &printed(bytes), None);
}

/// Event streams, as text and as JSON.
pub(super) fn events(bytes: &[u8]) {
    static REPORTS: LazyLock<Vec<Option<Report>>> = LazyLock::new(|| {
        let forms = ["events = { line = '^(?<op>\\w+) (?<comm>\\w+) (?<ret>\\S+)' }", "events = {}"];
        let figures = "unit = 'calls'\nfigures = [\n\
             { operations = 'read', where = { op = 'read' } },\n\
             { value = 'ret', operations = 'write', unit = 'bytes-returned', scale = 1024, label = 'comm', whose = 'process' },\n\
             { value = 'ret', operations = 'write', unit = 'errors' } ]";
        forms.map(|form| report(PROGRAM, &format!("{form}\n{figures}"))).into()
    });
    for report in REPORTS.iter() {
        check(report.as_ref(), &printed(bytes), None);
    }
}

/// JSON output of bpftrace.
pub(super) fn bpftrace(bytes: &[u8]) {
    static REPORT: LazyLock<Option<Report>> = LazyLock::new(|| bpfassay_tool::load("vfsstat.bt").ok()?.file.report);
    check(REPORT.as_ref(), &printed(bytes), None);
}

/// Pages in the formats of Prometheus.
pub(super) fn openmetrics(bytes: &[u8]) {
    static REPORT: LazyLock<Option<Report>> = LazyLock::new(|| {
        report(
            PROGRAM,
            "openmetrics = { port = 9000, path = '/metrics' }\ncounting = 'cumulative'\nunit = 'calls'\nfigures = [\n\
             { value = 'bpfassay_calls_total', operations = 'read', where = { operation = 'read' } },\n\
             { value = 'bpfassay_latency_seconds_count', operations = 'write', where = { operation = 'write' } },\n\
             { value = 'x', operations = 'write', label = 'mount', whose = 'mount' } ]",
        )
    });
    let middle = bytes.len() / 2;
    let pages = [(1, bytes), (2, &bytes[middle..])];
    let pages = pages.map(|(at_ns, body)| CapturedPage { at_ns, place: 0, body: body.to_vec() }).into();
    check(REPORT.as_ref(), &ToolCapture { pages, ..ToolCapture::default() }, None);
}

/// Pages of maps from the tracer, read with the types of an object.
pub(super) fn map_page(bytes: &[u8]) {
    let Ok((dumps, cut)) = Dump::of_answer(1, bytes) else { return };
    map(dumps, cut, include_bytes!("../../../bpfassay-tool/tests/data/counts.bpf.o"));
}

/// Objects, with whose types the map of another object is read.
pub(super) fn map_object(object: &[u8]) {
    let entries = (0..8u8).map(|byte| (vec![byte; 4], vec![byte; 16])).collect();
    map(vec![Dump { at_ns: 1, map: "counts".to_owned(), copies: 1, entries }], false, object);
}

fn map(dumps: Vec<Dump>, cut: bool, object: &[u8]) {
    static REPORT: LazyLock<Option<Report>> = LazyLock::new(|| {
        report(
            OBJECT,
            "map = { map = 'counts' }\nfigures = [\n\
             { value = 'value', operations = 'read', unit = 'calls' },\n\
             { value = 'calls', operations = 'write', unit = 'calls' } ]",
        )
    });
    check(REPORT.as_ref(), &ToolCapture { dumps, cut, ..ToolCapture::default() }, Some(object));
}
