// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the pages on tool files and FORMAT.md: their files are valid tool files, and each reads
//! the output shown before it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::{fs, path::Path};

use bpfassay_tool::{
    ReportForm, Stream, ToolCapture, ToolFile,
    finding::Kind,
    init::tool_file,
    read,
    recorded_output::{CapturedPage, CapturedPiece},
};

/// Code blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut parts = page.split("```").skip(1).step_by(2);
    std::iter::from_fn(|| parts.next()?.split_once('\n')).collect()
}

/// The pages on tool files, one after the other; `None`, with a message, where there are none.
fn book() -> Option<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    if !docs.join("SUMMARY.md").exists() {
        println!("SKIPPED: these sources are built without docs/");
        return None;
    }
    let pages = [
        "how-to/write-a-tool-file.md",
        "how-to/read-tool-output.md",
        "how-to/read-tool-events.md",
        "how-to/bare-object.md",
        "reference/operations.md",
    ];
    Some(pages.map(|page| fs::read_to_string(docs.join(page)).unwrap()).concat())
}

#[test]
fn files_of_the_book_read_the_output_that_stands_before_them() {
    let Some(page) = book() else { return };
    let mut output = None;
    let mut found = Vec::new();
    for (language, text) in blocks(&page) {
        if language == "text" {
            output = Some(text);
            continue;
        }
        if language != "toml" {
            continue;
        }
        let tool = ToolFile::parse("docs", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let report = tool.report.unwrap();
        let Some(output) = output.take() else {
            // The test object stands for the object of the page.
            assert!(matches!(report.form, ReportForm::Map { .. }));
            let object = include_bytes!("../data/counts.bpf.o");
            assert!(read(&report, &ToolCapture::default(), Some(object)).is_ok());
            continue;
        };
        let bytes = output.as_bytes().to_vec();
        let capture = ToolCapture {
            pieces: vec![CapturedPiece { at_ns: 1, stream: Stream::Stdout, bytes: bytes.clone() }],
            pages: vec![CapturedPage { at_ns: 1, place: 0, body: bytes }],
            ..ToolCapture::default()
        };
        let readings = read(&report, &capture, None).unwrap();
        assert_eq!(readings.unread, 0, "{}: {:?}", tool.name, readings.first_unread);
        let samples = readings.samples.into_iter();
        let samples = samples.map(|sample| (sample.subject.unwrap_or_else(|| "system".to_owned()), sample.value));
        found.push((tool.name, samples.collect::<Vec<_>>()));
    }
    let of =
        |subject: &str, values: &[u64]| values.iter().map(|&value| (subject.to_owned(), value)).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            ("iowatch".to_owned(), of("4711", &[65536, 16, 4096, 1])),
            ("top".to_owned(), of("206", &[16, 65536])),
            ("reads.bt".to_owned(), of("4711", &[65536])),
            ("exporter".to_owned(), of("/mnt", &[65536])),
            ("two-pages".to_owned(), of("/job", &[4])),
            ("nfsdist".to_owned(), of("system", &[43])),
            ("iosnoop".to_owned(), of("ior", &[1, 65536, 0, 1, 0, 1])),
            ("syncs".to_owned(), of("system", &[1, 1, 1])),
        ]
    );
    for kind in ["requested-as-moved", "operations-not-seen", "counts-go-backwards"] {
        assert!(page.contains(&format!("`{kind}`")) && Kind::ALL.iter().any(|known| known.name() == kind), "{kind}");
    }
}

#[test]
fn the_draft_of_the_book_is_what_is_written() {
    let Some(page) = book() else { return };
    let object = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/counts.bpf.o");
    let drafts: Vec<_> = blocks(&page).into_iter().filter(|(language, _)| *language == "toml draft").collect();
    assert_eq!(drafts, [("toml draft", tool_file(object, None).unwrap().as_str())]);
}

/// The example of FORMAT.md, reduced to one source and one form.
fn example(source: &str, form: &str) -> String {
    let page = include_str!("../../FORMAT.md");
    let (_, text) = *blocks(page).iter().find(|(language, _)| *language == "toml").unwrap();
    let is_other = |line: &&str, kinds: &[&str], wanted: &str| {
        // A figure also has a key `map`.
        let begins = |kind: &str| if kind == "map" { "map = {".to_owned() } else { format!("{kind} = ") };
        let is_of = |kind: &str| line.starts_with(&begins(kind)) || line.starts_with(&format!("{kind}."));
        kinds.iter().any(|kind| *kind != wanted && is_of(kind))
    };
    let is_out_of_place = |line: &&str| {
        is_other(line, &["binary", "debian", "guest", "nix", "script", "object"], source)
            || is_other(
                line,
                &["json-lines", "openmetrics", "table", "histogram", "events", "bpftrace-json", "map", "maps"],
                form,
            )
            // A bare object has no arguments, variables or output.
            || (source == "object" && ["arguments", "environment", "needs", "kernel_headers", "files"].iter().any(|key| line.starts_with(key)))
            // Forms that are requested have no wait time.
            || (["openmetrics", "map", "maps"].contains(&form) && ["within", "lost"].iter().any(|key| line.starts_with(key)))
            // The example's line pattern has no groups with these names.
            || (["table", "histogram", "events"].contains(&form) && ["where", "label"].iter().any(|key| line.starts_with(key)))
            // An event counts once.
            || (form == "events" && line.starts_with("counting"))
            // The report has only one page or map, or the key is a form.
            || line.starts_with("page = ")
            || (line.starts_with("map = \"") && form != "maps")
    };
    // A list of tables has a line for each.
    let text = text.replace("[\n  {", "[{").replace("},\n  {", "}, {").replace("},\n]", "}]");
    let lines = text.lines().filter(|line| !is_out_of_place(line));
    let text = lines.collect::<Vec<_>>().join("\n");
    let value = match form {
        "histogram" => "value = \"usecs.count\"",
        "events" => "value = \"ret\"",
        "bpftrace-json" => "value = \"@reads\"",
        _ => "value = \"read\"",
    };
    let text = text.replace("value = \"read\"", value);
    if form == "bpftrace-json" {
        return text.replace("where = { kind = ", "where = { key2 = ").replace("label = \"cg\"", "label = \"key1\"");
    }
    if ["table", "histogram", "events"].contains(&form) {
        text.replace("whose = \"cgroup\"", "whose = \"system\"")
    } else {
        text
    }
}

#[test]
fn every_key_of_the_format_is_a_key() {
    for (source, form) in [
        ("binary", "json-lines"),
        ("debian", "table"),
        ("nix", "openmetrics"),
        ("guest", "json-lines"),
        ("binary", "histogram"),
        ("binary", "events"),
        ("script", "bpftrace-json"),
        ("object", "map"),
        ("object", "maps"),
    ] {
        let text = example(source, form);
        let tool =
            ToolFile::parse("FORMAT.md", &text).unwrap_or_else(|error| panic!("{source}, {form}: {error}\n{text}"));
        assert_eq!((tool.name.as_str(), tool.figures().len()), ("vfsstat", 1));
    }
}

/// Every kind has a section, in the order of kinds, and there are no other sections.
#[test]
fn every_finding_has_its_section() {
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
    let pages = ["findings.md", "findings-behaviour.md"].map(|name| fs::read_to_string(reference.join(name)));
    let [Ok(first), Ok(second)] = pages else {
        println!("SKIPPED: these sources are built without docs/");
        return;
    };
    let pages = [first.split_once("\nNext: ").unwrap().0, &second];
    let sections: Vec<&str> = pages.iter().flat_map(|page| page.split("\n## ").skip(1)).collect();
    let names: Vec<&str> = sections.iter().filter_map(|section| section.lines().next()).collect();
    assert_eq!(names, Kind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>());
    for (name, section) in names.iter().zip(sections) {
        assert!(section.contains("*Check*:") && section.contains("*Repair*:"), "{name}");
        let advice = name.parse::<Kind>().unwrap().advice();
        let parts = [advice.meaning, advice.check, advice.repair];
        assert!(parts.iter().all(|part| part.len() > 5 && !part.contains('*')), "{name}: {parts:?}");
        let words: usize = parts.iter().map(|part| part.split(' ').count()).sum();
        // The heading, `*Check*:` and `*Repair*:` are not part of the advice.
        assert_eq!(words, section.split_whitespace().count() - 3, "{name}");
    }
}
