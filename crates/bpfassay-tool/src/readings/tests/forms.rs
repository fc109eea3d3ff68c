// SPDX-License-Identifier: MIT OR Apache-2.0
//! Histograms, event streams, and reports with several pages or maps.

use super::*;

/// Output of `print_log2_hist` of libbpf-tools (fsdist of bcc 0.31 with `-T 1`).
const FSDIST: &str = "Tracing nfs operation latency... Hit Ctrl-C to end.

08:00:01
operation = 'read'
     usecs               : count    distribution
         0 -> 1          : 3        |***                                     |
         2 -> 3          : 0        |                                        |
         4 -> 7          : 40       |****************************************|

operation = 'write'
     usecs               : count    distribution
         0 -> 1          : 7        |****************************************|

08:00:02
08:00:03
operation = 'read'
     usecs               : count    distribution
      4096 -> 8191       : 1        |****************************************|
";

fn fsdist() -> Report {
    report(
        r#"histogram = { heading = "^operation = '(?<operation>\\w+)'", time = '^\d+:\d+:\d+$', ignore = "^Tracing" }
counting = "interval"
unit = "calls"
figures = [
  { value = "usecs.count", where = { operation = "read" }, operations = "read" },
  { value = "usecs.count", where = { operation = "write" }, operations = "write" },
]"#,
        false,
    )
}

fn bounds(buckets: &[Bucket]) -> Vec<(&str, u64)> {
    buckets.iter().map(|bucket| (bucket.up_to.as_str(), bucket.count)).collect()
}

#[test]
fn histograms_of_libbpf_tools() {
    let report = fsdist();
    let (first, last) = FSDIST.split_at(FSDIST.find("08:00:03").unwrap());
    let readings = read(&report, &printed(Stream::Stdout, &[(5, first), (9, last)]), None).unwrap();
    assert_eq!(shown(&readings), [(5, 0, "-", 43), (5, 1, "-", 7), (9, 0, "-", 1)]);
    assert_eq!((readings.unread, readings.reports.len(), readings.reports.contains(&9)), (0, 6, true));
    let values = readings.values(0, &report.figures[0], 0, 9);
    assert_eq!(bounds(&values[&None]), [("1", 3), ("7", 40), ("8191", 1)]);
    assert_eq!(bounds(&readings.values(0, &report.figures[0], 5, 9)[&None]), [("8191", 1)]);
}

#[test]
fn linear_histograms_count_as_well() {
    let text = "     bytes         : count     distribution\n        0          : 3        |***  |\n        \
                4096       : 2        |**   |\n";
    let report = report(
        "histogram = {}\ncounting = \"cumulative\"\nfigures = [{ value = \"bytes.count\", operations = \"read\", unit = \"calls\" }]",
        false,
    );
    let readings = read(&report, &printed(Stream::Stdout, &[(5, text)]), None).unwrap();
    assert_eq!((shown(&readings), readings.unread), (vec![(5, 0, "-", 5)], 0));
}

#[test]
fn a_histogram_with_a_wrong_line_has_no_number_of_values() {
    for (from, to, why) in [
        (
            "         4 -> 7          : 40",
            "         2 -> 7          : 40",
            "a bucket that does not lie above the one before it: 2 -> 7",
        ),
        ("         4 -> 7          : 40", "         4 -> 7          : -1", "a bucket without a whole number: 4 -> 7"),
        ("         4 -> 7          : 40", "         4 -> 3          : 40", "a bucket without a whole number: 4 -> 3"),
        ("08:00:02", "half past eight", "no line of a histogram: half past eight"),
    ] {
        assert!(FSDIST.contains(from));
        let text = FSDIST.replacen(from, to, 1);
        let readings = read(&fsdist(), &printed(Stream::Stdout, &[(5, &text)]), None).unwrap();
        assert_eq!(readings.unread, 1, "{to}");
        assert!(readings.first_unread.as_ref().unwrap().starts_with(why), "{:?}", readings.first_unread);
        let of_reads: u64 =
            readings.samples.iter().filter(|sample| sample.figure == 0).map(|sample| sample.value).sum();
        assert_eq!(of_reads, if from.contains("40") { 1 } else { 44 }, "{to}");
    }
}

#[test]
fn buckets_of_prometheus_agree_with_each_other() {
    let report = report(
        "openmetrics = { port = 1 }\nunit = \"calls\"\nfigures = [\n\
         { value = \"io_seconds_count\", where = { op = \"read\" }, operations = \"read\", whose = \"cgroup\", label = \"cg\" },\n\
         { value = \"io_bytes_sum\", operations = \"read\", unit = \"bytes-returned\" } ]",
        false,
    );
    let page = "io_seconds_bucket{op=\"read\",cg=\"7\",le=\"0.001\"} 2\n\
                io_seconds_bucket{op=\"read\",cg=\"7\",le=\"0.1\"} 5\n\
                io_seconds_bucket{op=\"read\",cg=\"7\",le=\"+Inf\"} 6\n\
                io_seconds_sum{op=\"read\",cg=\"7\"} 0.25\n\
                io_seconds_count{op=\"read\",cg=\"7\"} 6\n\
                io_bytes_bucket{le=\"4096\"} 1\nio_bytes_bucket{le=\"+Inf\"} 1\nio_bytes_sum 4096\nio_bytes_count 1\n\
                other_bucket{le=\"2\"} 9\nother_bucket{le=\"1\"} 3\n";
    let read_page = |text: &str| {
        let pages = [1, 2].map(|at_ns| CapturedPage { at_ns, place: 0, body: text.as_bytes().to_vec() }).into();
        read(&report, &ToolCapture { pages, ..ToolCapture::default() }, None).unwrap()
    };
    let readings = read_page(page);
    assert_eq!(shown(&readings)[..2], [(1, 0, "7", 6), (1, 1, "-", 4096)]);
    assert_eq!((readings.unread, &readings.first_unread), (0, &None));
    let values = readings.values(0, &report.figures[0], 0, 2);
    assert_eq!(bounds(&values[&Some("7".to_owned())]), [("0.001", 2), ("0.1", 3), ("+Inf", 1)]);
    // Cumulative buckets: nothing happened between the two pages.
    assert_eq!(readings.values(0, &report.figures[0], 1, 2)[&Some("7".to_owned())], []);
    for (from, to, why) in [
        (
            "le=\"0.1\"} 5",
            "le=\"0.1\"} 1",
            "fewer values than in the bucket before it, which it contains: io_seconds_bucket{op=\"read\",cg=\"7\",le=\"0.1\"} 1",
        ),
        (
            "_count{op=\"read\",cg=\"7\"} 6",
            "_count{op=\"read\",cg=\"7\"} 7",
            "not the count of the bucket `+Inf`: io_seconds_count",
        ),
        ("le=\"+Inf\"} 6", "le=\"2\"} 6", "no bucket of `+Inf`: io_seconds_bucket"),
        ("le=\"0.1\"", "le=\"0.0001\"", "a bucket that does not lie above the one before it: io_seconds_bucket"),
        ("le=\"0.1\"", "le=\"NaN\"", "a bucket that does not lie above the one before it: io_seconds_bucket"),
        ("le=\"0.1\"", "up=\"0.1\"", "a bucket without a number as its `le`: io_seconds_bucket"),
        ("le=\"4096\"} 1", "le=\"4096\"} 1.5", "no whole number in a histogram: io_bytes_bucket"),
    ] {
        assert!(page.contains(from), "{from}");
        let readings = read_page(&page.replacen(from, to, 1));
        let first = readings.first_unread.unwrap_or_default();
        assert!(readings.unread == 2 && first.starts_with(why), "{} {first}", readings.unread);
    }
}

#[test]
fn events_are_counted() {
    let report = report(
        r#"events = { line = '^(?<op>\w+) (?<comm>\S+) (?<ret>-?\w+)$', ignore = "^#" }
whose = "process"
lost = { line = "^lost (?<lost>\\S+) events", stream = "stdout" }
figures = [
  { where = { op = "read" }, operations = "read", unit = "calls", label = "comm" },
  { value = "ret", where = { op = "read" }, operations = "read", unit = "bytes-returned", label = "comm" },
  { value = "ret", where = { op = "read" }, operations = "read", unit = "errors", label = "comm" },
  { value = "ret", where = { op = "read" }, operations = "read", unit = "successes", label = "comm" },
  { where = { op = "read" }, operations = "read", unit = "successes", label = "comm" },
]"#,
        false,
    );
    let text = "# begin\nread ior 4096\nread ior -11\nwrite ior 1\nlost 3 events\nread sh 0\nlost 4 events\n";
    let readings = read(&report, &printed(Stream::Stdout, &[(8, text)]), None).unwrap();
    let sums = |index: usize| {
        let grown = readings.grown(index, &report.figures[index], 1, 9).unwrap();
        grown.into_iter().map(|(name, value)| (name.unwrap(), value)).collect::<Vec<_>>()
    };
    let of = |ior: u64, sh: u64| vec![("ior".to_owned(), ior), ("sh".to_owned(), sh)];
    assert_eq!([sums(0), sums(1), sums(2), sums(3)], [of(2, 1), of(4096, 0), of(1, 0), of(1, 1)]);
    // The tool prints successes only.
    assert_eq!(sums(4), of(2, 1));
    assert_eq!((readings.unread, readings.lost), (0, Some(7)));
    for (line, why) in [
        ("read ior many\n", "`ret` is no whole number below 2^64: read ior many"),
        ("read ior\n", "not such a line: read ior"),
        ("lost x events\n", "lost events without a number: lost x events"),
    ] {
        let readings = read(&report, &printed(Stream::Stdout, &[(8, line)]), None).unwrap();
        let first = readings.first_unread.unwrap();
        assert!(first.starts_with(why), "{first}");
    }
}

#[test]
fn events_in_json_are_counted_and_lost_ones_stand_elsewhere() {
    let report = report(
        "events = {}\nunit = \"calls\"\nlost = { line = 'Lost (?<lost>\\d+) events' }\nfigures = [\n\
         { operations = \"read\", where = { op = \"read\" } }, { value = \"io.bytes\", operations = \"read\", unit = \"bytes-requested\", scale = 1024 } ]",
        false,
    );
    let mut capture = printed(Stream::Stdout, &[(8, "{\"op\":\"read\",\"io\":{\"bytes\":4}}\n{\"op\":\"x\"}\n")]);
    capture.pieces.push(CapturedPiece {
        at_ns: 9,
        stream: Stream::Stderr,
        bytes: b"Lost 12 events on CPU #1!\n".to_vec(),
    });
    let readings = read(&report, &capture, None).unwrap();
    assert_eq!(shown(&readings), [(8, 0, "-", 1), (8, 1, "-", 4096)]);
    assert_eq!((readings.lost, readings.unread), (Some(12), 1));
    assert!(readings.first_unread.unwrap().starts_with("an event without `io.bytes`"));
}

#[test]
fn what_an_exporter_says_that_it_lost_stands_in_what_it_writes() {
    let report = report(
        "openmetrics = { port = 1 }\nunit = \"calls\"\nlost = { line = 'lost (?<lost>\\d+) samples' }\nfigures = [{ value = \"n\", operations = \"read\" }]",
        false,
    );
    let mut capture = printed(Stream::Stderr, &[(3, "listening\nlost 3 samples\n"), (8, "lost 40 samples\n")]);
    capture.pages = vec![CapturedPage { at_ns: 7, place: 0, body: b"n 5\n".to_vec() }];
    let readings = read(&report, &capture, None).unwrap();
    assert_eq!((shown(&readings), readings.lost, readings.unread), (vec![(7, 0, "-", 5)], Some(43), 0));
    capture.pieces.clear();
    assert_eq!(read(&report, &capture, None).unwrap().lost, Some(0));
}

#[test]
fn each_figure_is_read_of_its_own_page() {
    let report = report(
        "openmetrics = [{ name = \"io\", port = 1 }, { name = \"net\", port = 1, path = \"/net\" }]\nunit = \"calls\"\nfigures = [\n\
         { page = \"io\", value = \"n\", operations = \"read\" }, { page = \"net\", value = \"n\", operations = \"send\" } ]",
        false,
    );
    let pages = [(0, "n 3\n"), (1, "n 40\n"), (2, "n 500\n")];
    let pages = pages.map(|(place, body)| CapturedPage { at_ns: 7, place, body: body.into() }).into();
    let readings = read(&report, &ToolCapture { pages, ..ToolCapture::default() }, None).unwrap();
    assert_eq!(shown(&readings), [(7, 0, "-", 3), (7, 1, "-", 40)]);
    assert_eq!(report.figures[1].name(), "net: n");
}

#[test]
fn each_figure_is_read_of_its_own_map() {
    let maps = |second: &str| {
        let text = format!(
            "maps = [\"counts\", \"{second}\"]\nunit = \"calls\"\nfigures = [\n\
             {{ map = \"counts\", value = \"calls\", operations = \"read\" }}, {{ map = \"{second}\", value = \"value\", operations = \"write\" }} ]"
        );
        report(&text, true)
    };
    // Both forms report a map that the object does not describe.
    let error = read(&maps("other"), &ToolCapture::default(), Some(OBJECT)).unwrap_err().to_string();
    assert!(error.contains("describes no map `other`"), "{error}");
    let one = report(
        "map = { map = \"counts\" }\nfigures = [{ value = \"calls\", operations = \"read\", unit = \"calls\" }]",
        true,
    );
    let dumps = ["counts", "other"].map(|map| Dump {
        at_ns: 4,
        map: map.to_owned(),
        copies: 1,
        entries: vec![entry(7, 0, "ior", &[(3, 100, 1)])],
    });
    let readings = read(&one, &ToolCapture { dumps: dumps.into(), ..ToolCapture::default() }, Some(OBJECT)).unwrap();
    assert_eq!(shown(&readings), [(4, 0, "-", 3)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_lines_are_read_or_counted(text in "((operation = 'read'|     usecs  : count    distribution|[0-9]{1,3} -> [0-9]{1,3} : [0-9]{1,3} \\|\\*+ *\\||[a-z:>|*0-9 -]{0,20})\n){0,20}") {
        let readings = read(&fsdist(), &printed(Stream::Stdout, &[(1, &text)]), None).unwrap();
        // The figure of a histogram is the sum of its buckets.
        for one in &readings.distributions {
            let count: u64 = one.buckets.iter().map(|bucket| bucket.count).sum();
            prop_assert!(readings.samples.iter().any(|sample| (sample.figure, sample.value) == (one.figure, count)));
            prop_assert!(one.buckets.windows(2).all(|two| two[0].up_to.parse::<u64>().unwrap() < two[1].up_to.parse().unwrap()));
        }
        prop_assert!(readings.samples.len() <= readings.distributions.len());
    }

    /// Consistent buckets are accepted whatever their counts, and inconsistent ones never.
    #[test]
    fn agreeing_buckets_are_read_and_others_are_not(counts in proptest::collection::vec(0_u64..1000, 1..8), more in 1_u64..9) {
        let report = report(
            "openmetrics = { port = 1 }\nunit = \"calls\"\nfigures = [{ value = \"h_count\", operations = \"read\" }]",
            false,
        );
        let mut sum = 0;
        let mut page = String::new();
        for (bound, count) in counts.iter().enumerate() {
            sum += count;
            page += &format!("h_bucket{{le=\"{bound}\"}} {sum}\n");
        }
        for (count, unread) in [(sum, 0), (sum + more, 1)] {
            let body = format!("{page}h_bucket{{le=\"+Inf\"}} {sum}\nh_count {count}\n").into_bytes();
            let pages = vec![CapturedPage { at_ns: 1, place: 0, body }];
            let readings = read(&report, &ToolCapture { pages, ..ToolCapture::default() }, None).unwrap();
            prop_assert_eq!((readings.unread, readings.distributions.len()), (unread, usize::from(unread == 0)));
        }
    }
}

#[test]
fn what_the_compiler_of_bpftrace_says_before_its_first_object_is_no_report() {
    let report = report(
        "bpftrace-json = {}\nunit = \"bytes-returned\"\ncounting = \"cumulative\"\nfigures = [{ value = \"@b\", operations = \"read\" }]",
        false,
    );
    // Output of bpftrace from Debian forky with -f json, recorded in a guest.
    let warning = r"/tools/b/script:6:28-35: WARNING: Unnecessary cast: expression is already of type int64
    @read_bytes[comm] = sum((int64)retval > 0 ? retval : 0);
                            ~~~~~~~
";
    let map = "{\"type\": \"map\", \"data\": {\"@b\": 7}}\n";
    let unread = |text: &str| {
        let readings = read(&report, &printed(Stream::Stdout, &[(8, text)]), None).unwrap();
        let figures = shown(&readings).len();
        (readings.unread, readings.first_unread, figures)
    };
    assert_eq!(unread(&format!("{warning}{map}")), (0, None, 1));
    // Text between reports, or without any report, counts as unread.
    let (lines, first, figures) = unread(&format!("{map}{warning}{map}"));
    assert_eq!((lines, figures), (3, 2));
    assert!(first.unwrap().contains("Unnecessary cast"));
    let (lines, first, figures) = unread(warning);
    assert_eq!((lines, figures), (3, 0));
    assert!(first.unwrap().contains("Unnecessary cast"));
}
