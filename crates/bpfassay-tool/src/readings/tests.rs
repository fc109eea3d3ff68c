// SPDX-License-Identifier: MIT OR Apache-2.0
mod forms;
mod names;

use proptest::prelude::*;

use super::*;
use crate::{
    Stream,
    file::ToolFile,
    recorded_output::{CapturedPage, CapturedPiece, Dump},
};

/// Parses `report` as the part `[report]` of a tool file; with `object`, of a bare object.
fn report(report: &str, object: bool) -> Report {
    let source =
        if object { "object = { path = \"a.bpf.o\" }" } else { "nix = { attribute = \"a\", program = \"bin/a\" }" };
    let text =
        format!("schema = 1\n[tool]\nname = \"t\"\ndescription = \"t\"\n[source]\n{source}\n[report]\n{report}\n");
    ToolFile::parse("t.toml", &text).unwrap().report.unwrap()
}

fn bundled(name: &str) -> Report {
    crate::read::load(name).unwrap().file.report.unwrap()
}

fn printed(stream: Stream, pieces: &[(u64, &str)]) -> ToolCapture {
    let pieces = pieces.iter().map(|&(at_ns, text)| CapturedPiece { at_ns, stream, bytes: text.as_bytes().to_vec() });
    ToolCapture { pieces: pieces.collect(), ..ToolCapture::default() }
}

/// Returns (time, figure, subject, value) of each sample.
fn shown(readings: &Readings) -> Vec<(u64, usize, &str, u64)> {
    let sample = |sample: &'_ ReportedSample| (sample.at_ns, sample.figure, sample.value);
    readings
        .samples
        .iter()
        .map(|one| {
            let (at, figure, value) = sample(one);
            (at, figure, one.subject.as_deref().unwrap_or("-"), value)
        })
        .collect()
}

#[test]
fn vfsstat_of_libbpf_tools() {
    // Format of libbpf-tools/vfsstat.c in bcc 0.31: "%-8s  ", " %6s/s"; "%-8s: ", " %8llu".
    let text = "TIME        READ/s  WRITE/s  FSYNC/s   OPEN/s CREATE/s UNLINK/s  MKDIR/s  RMDIR/s\r\n\
                21:30:38:       12        7        0        3        0        0        0        0\r\n\
                21:30:39:      131     4096        1        0        2        5        6        7\r\n";
    let capture = printed(Stream::Stdout, &[(5, &text[..100]), (9, &text[100..])]);
    let readings = read(&bundled("vfsstat-libbpf"), &capture, None).unwrap();
    assert_eq!(shown(&readings)[..3], [(9, 0, "-", 12), (9, 1, "-", 7), (9, 2, "-", 0)]);
    let values: Vec<_> = shown(&readings)[8..].iter().map(|shown| (shown.1, shown.3)).collect();
    assert_eq!(values, [(0, 131), (1, 4096), (2, 1), (3, 0), (4, 2), (5, 5), (6, 6), (7, 7)]);
    assert_eq!((readings.unread, readings.reports), (0, vec![9, 9]));
}

#[test]
fn vfsstat_of_bcc() {
    // Format of tools/vfsstat.py in bcc 0.31: "%-8s  ", " %8s"; "%-8s: ", " %8d".
    let text = "TIME         READ/s  WRITE/s  FSYNC/s   OPEN/s CREATE/s UNLINK/s  MKDIR/s  RMDIR/s\n\
                18:35:32:      231       12        4       98        0        3        2        1\n";
    let readings = read(&bundled("vfsstat-bpfcc"), &printed(Stream::Stdout, &[(1, text)]), None).unwrap();
    assert_eq!(
        shown(&readings),
        [
            (1, 0, "-", 231),
            (1, 1, "-", 12),
            (1, 2, "-", 4),
            (1, 3, "-", 98),
            (1, 4, "-", 0),
            (1, 5, "-", 3),
            (1, 6, "-", 2),
            (1, 7, "-", 1)
        ]
    );
    assert_eq!(readings.unread, 0);
}

#[test]
fn nfsslower_of_bcc() {
    // tools/nfsslower.py in bcc 0.31: "%-8s %-14.14s %-6s %1s %-7s %-8d %7.2f %s". The name of a
    // file that getattr was called for can be empty.
    let text = "Tracing NFS operations... Ctrl-C to quit\n\
                TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME\n\
                00:00:46 ior            132    W 4096    0           0.01 data\n\
                00:00:46 ior            132    R 100     4           0.01 data\n\
                00:00:46 ior            132    O 0       0           0.08 data\n\
                00:00:46 ior            132    G 0       0           0.08  \n\
                00:00:46 kworker/u2:0   17     C 0       0           0.08 data\n";
    let readings = read(&bundled("nfsslower-bpfcc"), &printed(Stream::Stdout, &[(3, text)]), None).unwrap();
    assert_eq!(shown(&readings), [(3, 1, "ior", 1), (3, 3, "ior", 4096), (3, 0, "ior", 1), (3, 2, "ior", 100)]);
    assert_eq!((readings.unread, readings.first_unread.as_deref()), (0, None));
}

#[test]
fn filetop_of_libbpf_tools() {
    // libbpf-tools/filetop.c: "%-7d %-16s %-6lld %-6lld %-7lld %-7lld %c %s", after a line from
    // /proc/loadavg and a heading.
    let text = "16:33:18 loadavg: 0.09 0.03 0.01 1/81 206\n\
                TID     COMM             READS  WRITES R_Kb    W_Kb    T FILE\n\
                206     ior              16     16     64      65      R data 0\n\
                207     my tool          1      0      3       0       R b\n\n";
    let readings = read(&bundled("filetop-libbpf"), &printed(Stream::Stdout, &[(3, text)]), None).unwrap();
    let of = |figure| shown(&readings).into_iter().filter(|shown| shown.1 == figure).collect::<Vec<_>>();
    assert_eq!(of(0), [(3, 0, "ior", 16), (3, 0, "my tool", 1)]);
    assert_eq!(of(3), [(3, 3, "ior", 65 * 1024), (3, 3, "my tool", 0)]);
    assert_eq!((readings.unread, readings.first_unread.as_deref()), (0, None));
}

#[test]
fn vfsstat_of_bpftrace() {
    // src/output.cpp, `JsonOutput`: messages and maps. Commas join the parts of a key.
    let text = r#"{"type": "attached_probes", "data": {"probes": 8}}
{"type": "printf", "data": "Tracing key VFS calls... Hit Ctrl-C to end.\n"}
{"type": "time", "data": "21:30:38\n"}
{"type": "map", "data": {"@": {"vfs_write": 1274, "vfs_open": 8675, "vfs_read": 11515}}}
{"type": "time", "data": "21:30:39\n"}
{"type": "lost_events", "data": {"events": 42}}
"#;
    let readings = read(&bundled("vfsstat.bt"), &printed(Stream::Stdout, &[(8, text)]), None).unwrap();
    assert_eq!(shown(&readings), [(8, 0, "-", 11515), (8, 1, "-", 1274), (8, 3, "-", 8675)]);
    assert_eq!((readings.unread, readings.lost, readings.reports.len()), (0, Some(42), 3));
}

#[test]
fn keys_of_bpftrace_have_parts_and_statistics_fields() {
    let report = report(
        "bpftrace-json = {}\nunit = \"bytes-returned\"\ncounting = \"cumulative\"\nfigures = [\n\
         { value = \"@b\", operations = \"read\", whose = \"process\", label = \"key1\", where = { key2 = \"ior\" } },\n\
         { value = \"@s.total\", operations = \"write\" }, { value = \"@n\", operations = \"fsync\" }]",
        false,
    );
    let text = r#"{"type": "map", "data": {"@b": {"7,ior,1": 5, "7,ior,2": 6, "8,ior,1": 1, "7,sh,1": 9}}}
{"type": "stats", "data": {"@s": {"count": 2, "average": 3, "total": 7}}}
{"type": "stats", "data": {"@s": {"a": {"count": 2, "average": 3, "total": 8}, "b": {"count": 2, "average": 3, "total": 1}}}}
{"type": "map", "data": {"@n": -1}}
{"type": "map", "data": {"@n": 1.5}}
{"type": "map", "data": {"@n": 18446744073709551615}}
no json
"#;
    let readings = read(&report, &printed(Stream::Stdout, &[(8, text)]), None).unwrap();
    assert_eq!(
        shown(&readings),
        [(8, 0, "7", 11), (8, 0, "8", 1), (8, 1, "-", 7), (8, 1, "-", 9), (8, 2, "-", u64::MAX), (8, 2, "-", u64::MAX)]
    );
    assert_eq!(readings.unread, 2);
    assert!(readings.first_unread.unwrap().starts_with("`@n` is no whole number"));
}

#[test]
fn strace_counts() {
    // Output of strace 6.1 for `strace -c -f dd if=/dev/zero of=/dev/null bs=4k count=20`.
    let text = "20+0 records in
20+0 records out
81920 bytes (82 kB, 80 KiB) copied, 0.000937286 s, 87.4 MB/s
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
  0.00    0.000000           0        23           read
  0.00    0.000000           0        23           write
  0.00    0.000000           0        22           close
  0.00    0.000000           0         2           pread64
  0.00    0.000000           0         1         1 access
  0.00    0.000000           0        35        16 openat
------ ----------- ----------- --------- --------- ----------------
100.00    0.000000           0       165        17 total
";
    let report = report(
        r#"table = { stream = "stderr", line = '^ *[\d.]+ +[\d.]+ +\d+ +(?<calls>\d+) +(?:(?<errors>\d+) )?(?<name>\w+)$', ignore = '^%|^---' }
counting = "cumulative"
figures = [
  { value = "calls", where = { name = "read" }, operations = "read", unit = "calls" },
  { value = "errors", where = { name = "read" }, operations = "read", unit = "errors", blank_is_zero = true },
  { value = "errors", where = { name = "openat" }, operations = "open", unit = "errors", blank_is_zero = true },
]"#,
        false,
    );
    let readings = read(&report, &printed(Stream::Stderr, &[(1, text)]), None).unwrap();
    assert_eq!(shown(&readings), [(1, 0, "-", 23), (1, 1, "-", 0), (1, 2, "-", 16)]);
    // The lines of dd.
    assert_eq!(readings.unread, 3);
    assert_eq!(readings.first_unread.unwrap(), "not such a line: 20+0 records in");
}

#[test]
fn pages_of_exporters() {
    let report = report(
        r#"openmetrics = { port = 9100 }
unit = "bytes-returned"
whose = "mount"
figures = [
  { value = "bpfassay_returned_bytes_total", where = { operation = "read" }, operations = "read" },
  { value = "vfs_bytes", operations = "write", label = "path" },
]"#,
        false,
    );
    let page = |at_ns, body: &str| CapturedPage { at_ns, place: 0, body: body.as_bytes().to_vec() };
    let pages = vec![
        page(
            1,
            "# HELP bpfassay_returned_bytes Bytes.\n# TYPE bpfassay_returned_bytes counter\n\
             bpfassay_returned_bytes_total{operation=\"read\",mount=\"/mnt\",device=\"0:45\",cgroup=\"/a\"} 4096\n\
             bpfassay_returned_bytes_total{operation=\"read\",mount=\"/mnt\",device=\"0:45\",cgroup=\"/b\"} 1\n\
             bpfassay_returned_bytes_total{operation=\"write\",mount=\"/mnt\",device=\"0:45\",cgroup=\"/b\"} 7\n\
             bpfassay_latency_seconds_bucket{operation=\"read\",le=\"+Inf\"} 3 # {trace_id=\"a b\"} 0.67\n# EOF\n",
        ),
        page(
            2,
            "vfs_bytes{path=\"/a \\\"b\\\"\\\\\\n,}\",} 2.097152e+06 1700000000000\nother 1.5\nplain 3\ngo_info{version=\"1\"} NaN\nbroken{ 1\nvfs_bytes 4\n",
        ),
    ];
    let readings = read(&report, &ToolCapture { pages, ..ToolCapture::default() }, None).unwrap();
    assert_eq!(shown(&readings), [(1, 0, "/mnt", 4097), (2, 1, "/a \"b\"\\\n,}", 2_097_152)]);
    assert_eq!((readings.unread, readings.reports.as_slice()), (2, [1, 2].as_slice()));
    assert_eq!(readings.first_unread.unwrap(), "no sample: broken{ 1");
}

#[test]
fn the_tracers_own_page() {
    let page = include_bytes!("../../../bpfassay-tracer/tests/golden/metrics.openmetrics");
    let pages = vec![CapturedPage { at_ns: 1, place: 0, body: page.to_vec() }];
    let report = report(
        r#"openmetrics = { port = 9100 }
whose = "cgroup"
figures = [
  { value = "bpfassay_calls_total", where = { operation = "read" }, operations = "read", unit = "calls" },
  { value = "bpfassay_bytes_total", where = { operation = "read" }, operations = "read", unit = "bytes-returned" },
]"#,
        false,
    );
    let readings = read(&report, &ToolCapture { pages, ..ToolCapture::default() }, None).unwrap();
    assert_eq!(shown(&readings), [(1, 0, "/job \"1\"\n\\é", 6), (1, 1, "/job \"1\"\n\\é", 4096)]);
    assert_eq!((readings.unread, readings.first_unread), (0, None));
}

#[test]
fn lines_of_json() {
    let report = report(
        r#"json-lines = { ignore = "^#" }
counting = "cumulative"
figures = [
  { value = "io.bytes", where = { op = "r", "io.direct" = "true" }, operations = ["read", "readv"], unit = "bytes-returned", whose = "cgroup", label = "cg" },
]"#,
        false,
    );
    let text = "# heading\n{\"op\":\"r\",\"cg\":4711,\"io\":{\"bytes\":9007199254740993,\"direct\":true}}\n\
                {\"op\":\"w\",\"io\":{\"bytes\":1}}\n{\"op\":\"r\",\"io\":{\"bytes\":1,\"direct\":true}}\n[1]\n";
    let readings = read(&report, &printed(Stream::Stdout, &[(1, text)]), None).unwrap();
    assert_eq!(shown(&readings), [(1, 0, "4711", 9_007_199_254_740_993)]);
    assert_eq!(readings.unread, 2);
    assert!(readings.first_unread.unwrap().starts_with("`io.bytes` comes without `cg`"));
}

/// clang 19 compiled this from counts.bpf.c in the same directory.
const OBJECT: &[u8] = include_bytes!("../../tests/data/counts.bpf.o");

fn map_report() -> Report {
    report(
        r#"map = { map = "counts" }
figures = [
  { value = "bytes", where = { operation = "0" }, operations = "read", unit = "bytes-returned", whose = "cgroup" },
  { value = "errors", operations = "read", unit = "errors", whose = "process", label = "comm" },
]"#,
        true,
    )
}

fn entry(cgroup: u64, operation: u32, comm: &str, copies: &[(u64, u64, i32)]) -> (Vec<u8>, Vec<u8>) {
    let mut key = [cgroup.to_le_bytes().as_slice(), &[0; 8], &operation.to_le_bytes(), comm.as_bytes()].concat();
    key.resize(32, 0);
    let copy = |&(calls, bytes, errors): &(u64, u64, i32)| {
        [calls.to_le_bytes().as_slice(), &bytes.to_le_bytes(), &errors.to_le_bytes(), &[0; 4]].concat()
    };
    (key, copies.iter().flat_map(copy).collect())
}

#[test]
fn maps_of_bare_objects() {
    let entries = vec![
        entry(7, 0, "ior", &[(1, 100, 1), (2, 28, 0)]),
        entry(7, 0, "sh", &[(1, 2, 0), (0, 0, 0)]),
        entry(8, 1, "ior", &[(1, 5, 1), (0, 0, 1)]),
        (vec![0; 32], vec![0; 24]),
    ];
    let dump = Dump { at_ns: 4, map: "counts".to_owned(), copies: 2, entries };
    let capture = ToolCapture { dumps: vec![dump], ..ToolCapture::default() };
    let readings = read(&map_report(), &capture, Some(OBJECT)).unwrap();
    assert_eq!(shown(&readings), [(4, 0, "7", 130), (4, 1, "ior", 3), (4, 1, "sh", 0)]);
    assert_eq!(readings.unread, 1);
    // A bundled object has only its types here.
    let types = {
        use object::{Object as _, ObjectSection as _};
        object::File::parse(OBJECT).unwrap().section_by_name(".BTF").unwrap().data().unwrap().to_vec()
    };
    assert_eq!(read(&map_report(), &capture, Some(&types)).unwrap(), readings);
    assert!(readings.first_unread.unwrap().contains("value of 24 in 2 copies; by the BTF 32 and 24"));
    let error = |report: &Report, object| read(report, &capture, object).unwrap_err().to_string();
    assert!(error(&map_report(), None).contains("no object was given"));
    assert!(error(&map_report(), Some(b"\x7fELF")).contains("cannot read the object's BTF"));
    let other = report(
        "map = { map = \"count\" }\nfigures = [{ value = \"value\", operations = \"read\", unit = \"calls\" }]",
        true,
    );
    assert!(error(&other, Some(OBJECT)).contains("describes no map `count`"));
}

/// A subject that is still reported can lack keys of the previous reading.
#[test]
fn keys_that_a_reading_lacks_are_noted_with_what_they_had() {
    let (first, second) = (entry(7, 0, "ior", &[(1, 100, 1), (2, 28, 0)]), entry(7, 0, "sh", &[(1, 2, 0), (0, 0, 0)]));
    let dump = |at_ns, entries| Dump { at_ns, map: "counts".to_owned(), copies: 2, entries };
    let vanished = |cut, last| {
        let dumps = vec![dump(4, vec![first.clone(), second.clone()]), dump(9, last)];
        read(&map_report(), &ToolCapture { dumps, cut, ..ToolCapture::default() }, Some(OBJECT)).unwrap().vanished
    };
    assert_eq!(vanished(false, vec![second.clone(), first.clone()]), []);
    let gone = Vanished { figure: 0, subject: Some("7".to_owned()), keys: 1, amount: 2, last_ns: 4, lacking_ns: 9 };
    assert_eq!(vanished(false, vec![first.clone()]), [gone]);
    // The key could be in the data that was not looked at.
    assert_eq!(vanished(true, vec![first.clone()]), []);
}

/// clang 19 compiled this from globals.bpf.c in the same directory.
const GLOBALS: &[u8] = include_bytes!("../../tests/data/globals.bpf.o");

/// The linker sets the addresses of global variables. clang's type information has offset 0 for all
/// of them.
#[test]
fn global_variables_are_read_where_the_linker_puts_them() {
    let report = report(
        "maps = [\".bss\", \".data.opened\"]\nfigures = [\n\
         { map = \".bss\", value = \"reads\", operations = \"read\", unit = \"calls\" },\n\
         { map = \".bss\", value = \"writes\", operations = \"write\", unit = \"calls\" },\n\
         { map = \".bss\", value = \"errors\", operations = \"read\", unit = \"errors\" },\n\
         { map = \".data.opened\", value = \"opened.bytes\", operations = \"write\", unit = \"bytes-returned\" }]",
        true,
    );
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let dump = |map: &str, value: Vec<u8>| Dump {
        at_ns: 4,
        map: map.to_owned(),
        copies: 1,
        entries: vec![(vec![0; 4], value)],
    };
    let bss = [words(&[11, 22]), vec![33, 0, 0, 0]].concat();
    let dumps = vec![dump(".bss", bss), dump(".data.opened", words(&[44, 55]))];
    let capture = ToolCapture { dumps, ..ToolCapture::default() };
    let readings = read(&report, &capture, Some(GLOBALS)).unwrap();
    assert_eq!(shown(&readings), [(4, 0, "-", 11), (4, 1, "-", 22), (4, 2, "-", 33), (4, 3, "-", 55)]);
    assert_eq!((readings.unread, readings.first_unread), (0, None));
}

/// A misspelt field is an error in the tool file, and not a finding about the tool.
#[test]
fn a_map_has_the_fields_of_every_figure() {
    let with = |figure: &str| report(&format!("map = {{ map = \"counts\" }}\nfigures = [{{ {figure} }}]"), true);
    let error = |figure| match read(&with(figure), &ToolCapture::default(), Some(OBJECT)) {
        Err(error) => error.to_string(),
        Ok(readings) => format!("{readings:?}"),
    };
    let expected = "the map `counts` has no field `byts`; did you mean `bytes`?; its fields are cgroup, ";
    let misspelt = error("value = 'byts', operations = 'read', unit = 'bytes-returned'");
    assert!(misspelt.starts_with(expected), "{misspelt}");
    for figure in [
        "value = 'bytes', operations = 'read', unit = 'bytes-returned', whose = 'mount', label = 'mnt'",
        "value = 'bytes', operations = 'read', unit = 'bytes-returned', where = { op = '0' }",
    ] {
        assert!(error(figure).contains("has no field"), "{figure}");
    }
    let absent = with("value = 'byts', operations = 'read', unit = 'bytes-returned', blank_is_zero = true");
    assert!(read(&absent, &ToolCapture::default(), Some(OBJECT)).is_ok());
}

#[test]
fn histograms_of_bpftrace_have_a_number_of_values() {
    let report = report(
        "bpftrace-json = {}\nunit = \"calls\"\ncounting = \"cumulative\"\nfigures = [\n\
         { value = \"@h.count\", operations = \"read\" }, { value = \"@k.count\", operations = \"write\", whose = \"process\", label = \"key\" },\n\
         { value = \"@l\", operations = \"fsync\" }]",
        false,
    );
    let text = r#"{"type": "hist", "data": {"@h": [{"max": -1, "count": 37}, {"min": 0, "max": 0, "count": 1}, {"min": 2, "max": 3, "count": 4}]}}
{"type": "hist", "data": {"@k": {"ior": [{"min": 1, "max": 1, "count": 6}], "sh": []}}}
"#;
    let readings = read(&report, &printed(Stream::Stdout, &[(8, text)]), None).unwrap();
    assert_eq!(shown(&readings), [(8, 0, "-", 42), (8, 1, "ior", 6), (8, 1, "sh", 0)]);
    assert_eq!((readings.unread, readings.reports.len()), (0, 2));
    for (text, why) in [
        (
            r#"{"type": "lhist", "data": {"@l": [{"min": 0, "max": 9, "count": 2}]}}"#,
            "`@l` has buckets and is no number",
        ),
        (r#"{"type": "hist", "data": {"@h": 3}}"#, "`@h` is no list of buckets"),
        (r#"{"type": "hist", "data": {"@h": [{"min": 0}]}}"#, "a bucket of `@h` has no count"),
    ] {
        let readings = read(&report, &printed(Stream::Stdout, &[(8, text)]), None).unwrap();
        assert_eq!((readings.unread, shown(&readings).len()), (1, 0), "{text}");
        assert!(readings.first_unread.unwrap().starts_with(why), "{text}");
    }
}

#[test]
fn growth_is_between_two_instants() {
    let sample =
        |at_ns, subject: &str, value| ReportedSample { at_ns, figure: 0, subject: Some(subject.to_owned()), value };
    let readings = Readings {
        samples: vec![sample(10, "a", 5), sample(20, "a", 9), sample(20, "b", 4), sample(30, "a", 100)],
        reports: vec![10, 20, 30],
        ..Readings::default()
    };
    let mut figure = map_report().figures[0].clone();
    let grown = |figure: &ReportedFigure, from, to| {
        readings.grown(0, figure, from, to).map(|grown| grown.into_values().collect::<Vec<_>>())
    };
    assert_eq!(grown(&figure, 10, 25), Ok(vec![4, 4]));
    // Nothing comes after the largest time.
    assert!(grown(&ReportedFigure { counting: Counting::Interval, ..figure.clone() }, u64::MAX, u64::MAX).is_err());
    assert!(grown(&figure, 5, 25).unwrap_err().contains("before the workload began"));
    assert!(grown(&figure, 30, 40).unwrap_err().contains("after the workload ran"));
    figure.counting = Counting::Interval;
    assert_eq!(grown(&figure, 10, 30), Ok(vec![109, 4]));
    assert_eq!(grown(&figure, 0, 15), Ok(vec![5]));
    assert!(grown(&figure, 30, 40).is_err());
    assert!(Readings::default().grown(0, &figure, 0, 1).unwrap_err().contains("reported nothing"));
}

#[test]
fn there_is_an_end_to_samples() {
    let text = "{\"type\": \"map\", \"data\": {\"@\": {\"vfs_read\": 1}}}\n".repeat(MAX_SAMPLES / 16);
    let pieces: Vec<_> = (0..20).map(|at| (at, text.as_str())).collect();
    let readings = read(&bundled("vfsstat.bt"), &printed(Stream::Stdout, &pieces), None).unwrap();
    assert!(readings.cut && readings.samples.len() <= MAX_SAMPLES && readings.reports.len() <= MAX_SAMPLES);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes_are_read_or_counted(bytes in proptest::collection::vec(any::<u8>(), 0..400), text in "([\\[\\]{}\",:=# @a-c0-9e.\\\\-]|\n){0,200}") {
        let forms = [
            bundled("vfsstat-libbpf"),
            bundled("vfsstat.bt"),
            report("openmetrics = { port = 1 }\nfigures = [{ value = \"a\", operations = \"read\", unit = \"calls\" }]", false),
            report("json-lines = {}\ncounting = \"interval\"\nfigures = [{ value = \"a\", operations = \"read\", unit = \"calls\" }]", false),
            map_report(),
        ];
        for bytes in [bytes, text.into_bytes()] {
            let piece = CapturedPiece { at_ns: 1, stream: Stream::Stdout, bytes: bytes.clone() };
            let (key, value) = bytes.split_at(bytes.len().min(32));
            let dump = Dump { at_ns: 1, map: "counts".to_owned(), copies: 1, entries: vec![(key.to_vec(), value.to_vec())] };
            let capture = ToolCapture { pieces: vec![piece], pages: vec![CapturedPage { at_ns: 1, place: 0, body: bytes }], dumps: vec![dump], cut: false };
            for form in &forms {
                let readings = read(form, &capture, Some(OBJECT)).unwrap();
                prop_assert!(readings.samples.len() <= 400);
            }
        }
    }

    #[test]
    fn a_damaged_object_is_an_error_or_is_read(at in 0..OBJECT.len(), byte: u8) {
        let mut object = OBJECT.to_vec();
        object[at] = byte;
        let dump = Dump { at_ns: 1, map: "counts".to_owned(), copies: 1, entries: vec![entry(1, 0, "a", &[(1, 1, 1)])] };
        let _ = read(&map_report(), &ToolCapture { dumps: vec![dump], ..ToolCapture::default() }, Some(&object));
    }
}
