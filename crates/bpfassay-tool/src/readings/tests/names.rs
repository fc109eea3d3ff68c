// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of the tool file that no report has.

use super::*;

const LINES: &str = "{\"op\":\"read\",\"bytes\":5,\"cg\":\"a\"}\n{\"op\":\"write\",\"bytes\":7,\"cg\":\"a\"}\n";

/// Returns the absent names for this form, these figures and `capture`: the figure, the
/// description, whether it is a value, and the suggestion.
fn absent(form: &str, figures: &str, capture: &ToolCapture) -> Vec<(usize, String, bool, String)> {
    let report = report(&format!("{form}\nunit = 'calls'\ncounting = 'cumulative'\nfigures = [{figures}]"), false);
    let absent = read(&report, capture, None).unwrap().absent;
    absent.into_iter().map(|one| (one.figure, one.what, one.is_value, one.nearest)).collect()
}

fn of_json(figures: &str, text: &str) -> Vec<(usize, String, bool, String)> {
    absent("json-lines = {}", figures, &printed(Stream::Stdout, &[(1, text)]))
}

fn one(what: &str, is_value: bool, nearest: &str) -> Vec<(usize, String, bool, String)> {
    vec![(0, what.to_owned(), is_value, nearest.to_owned())]
}

#[test]
fn names_and_values_of_labels_that_no_line_has_are_absent() {
    let right = "{ value = 'bytes', operations = 'read', where = { op = 'read' }, whose = 'cgroup', label = 'cg' }";
    assert_eq!(of_json(right, LINES), []);
    let cases = [
        ("'bytes'", "'byts'", one("`byts`", false, "; did you mean `bytes`?")),
        ("op =", "opp =", one("`opp` beside `bytes`", false, "; did you mean `op`?")),
        ("label = 'cg'", "label = 'cgr'", one("`cgr` beside `bytes`", false, "; did you mean `cg`?")),
        ("= 'read' }", "= 'raed' }", one("`op` = `raed` beside `bytes`", true, "; did you mean `read`?")),
        ("= 'read' }", "= 'x' }", one("`op` = `x` beside `bytes`", true, "")),
    ];
    for (from, to, expected) in cases {
        assert_eq!(of_json(&right.replace(from, to), LINES), expected, "{to}");
    }
    // A label next to other values does not count for this value.
    let more = format!("{LINES}{{\"calls\":1}}\n");
    let figure = "{ value = 'calls', operations = 'read', where = { op = 'read' } }";
    assert_eq!(of_json(figure, &more), one("`op` beside `calls`", false, ""));
}

#[test]
fn what_other_figures_have_is_not_suggested() {
    let figures = "{ value = 'writes', operations = 'writev' }, { value = 'write', operations = 'write' }";
    assert_eq!(of_json(figures, "{\"write\": 1}\n"), one("`writes`", false, ""));
    let by_label = "{ value = 'n', operations = 'readv', where = { op = 'readv' } }, { value = 'n', operations = 'read', where = { op = 'read' } }";
    assert_eq!(of_json(by_label, "{\"n\": 1, \"op\": \"read\"}\n"), one("`op` = `readv` beside `n`", true, ""));
}

#[test]
fn nothing_is_absent_of_what_was_not_reported_or_looked_at() {
    let figure = "{ value = 'x', operations = 'read' }";
    assert_eq!(of_json(figure, ""), []);
    assert_eq!(of_json(figure, "no json\n"), []);
    let capture = ToolCapture { cut: true, ..printed(Stream::Stdout, &[(1, LINES)]) };
    assert_eq!(absent("json-lines = {}", figure, &capture), []);
    // Groups of a table are checked against its line pattern earlier.
    let table = "table = { line = '^(?<x>\\d+)$', ignore = '.' }";
    assert_eq!(absent(table, figure, &printed(Stream::Stdout, &[(1, "y\n")])), []);
}

#[test]
fn other_forms_have_names_as_well() {
    let page = "# TYPE a counter\nreads_total{op=\"read\"} 5\nother 1\n";
    let page = |place| CapturedPage { at_ns: 1, place, body: page.as_bytes().to_vec() };
    let capture = ToolCapture { pages: vec![page(0)], ..ToolCapture::default() };
    let form = "openmetrics = { port = 1 }";
    let figure = |value: &str| format!("{{ value = '{value}', operations = 'read' }}");
    assert_eq!(absent(form, &figure("reads_total"), &capture), []);
    let nearest = "; did you mean `reads_total`?";
    assert_eq!(absent(form, &figure("raeds_total"), &capture), one("`raeds_total`", false, nearest));
    // The other page has the name.
    let pages = "openmetrics = [{ name = 'a', port = 1 }, { name = 'b', port = 2 }]";
    let figures =
        "{ page = 'a', value = 'x', operations = 'read' }, { page = 'b', value = 'other', operations = 'write' }";
    let capture = ToolCapture { pages: vec![page(1)], ..ToolCapture::default() };
    assert_eq!(absent(pages, figures, &capture), one("`x`", false, ""));

    let printed = |text: &str| printed(Stream::Stdout, &[(1, text)]);
    let bpftrace = "{\"type\": \"map\", \"data\": {\"@reads\": {\"7\": 5}}}\n{\"type\": \"time\", \"data\": \"\"}\n";
    let expected = one("`@raeds`", false, "; did you mean `@reads`?");
    assert_eq!(absent("bpftrace-json = {}", &figure("@raeds"), &printed(bpftrace)), expected);
    // All maps were still empty.
    let empty = "{\"type\": \"time\", \"data\": \"\"}\n";
    assert_eq!(absent("bpftrace-json = {}", &figure("@reads"), &printed(empty)), one("`@reads`", false, ""));

    let histogram = "     usecs               : count    distribution\n         2 -> 3          : 40       |****|\n";
    let expected = one("`usec.count`", false, "; did you mean `usecs.count`?");
    assert_eq!(absent("histogram = {}", &figure("usec.count"), &printed(histogram)), expected);
    let event = "{ operations = 'read', where = { opp = 'read' } }";
    let report = report(&format!("events = {{}}\nunit = 'calls'\nfigures = [{event}]"), false);
    let absent = read(&report, &printed("{\"op\":\"read\"}\n"), None).unwrap().absent;
    assert_eq!(absent[0].what, "`opp` beside `events`");
}
