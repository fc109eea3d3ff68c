// SPDX-License-Identifier: MIT OR Apache-2.0
use bpfassay_protocol::finding_name::Finding;
use proptest::prelude::*;

use super::*;

fn attached(probe: &str, findings: Vec<Finding>) -> Attached {
    let configuration = probe.parse().unwrap();
    Attached { findings, ..Attached::none(configuration) }
}

fn labels(operation: Operation, mount: &str) -> Labels {
    Labels {
        operation,
        mount: mount.to_owned(),
        device: "0:50".to_owned(),
        mount_id: 27,
        cgroup: "/job \"1\"\n\\é".to_owned(),
    }
}

fn series(calls: u64, bytes: u64, errors: u64, latency: &[u64]) -> LabelledCounters {
    LabelledCounters { totals: Totals { calls, bytes, errors }, latency: latency.to_vec() }
}

/// The document with which `bpfassay-tracer` was checked by hand. Both the strict OpenMetrics
/// parser and the text parser of prometheus_client 0.26.0 (Python) accept it.
const OPEN_METRICS: &str = include_str!("../../tests/golden/metrics.openmetrics");
const TEXT: &str = include_str!("../../tests/golden/metrics.text");

#[test]
fn both_formats_are_as_they_were_checked() {
    let finding =
        Finding { pitfall: Pitfall::FunctionShared, subject: "vfs_read".to_owned(), detail: "two".to_owned() };
    let attached = attached("fexit", vec![finding]);
    // 3 calls below 256 ns, 2 of 1024 to 2047 ns, and 1 longer than every bucket.
    let mut latency = vec![0; 41];
    (latency[0], latency[7], latency[10], latency[40]) = (1, 2, 2, 1);
    let snapshot = MetricsSnapshot {
        attached: &attached,
        series: BTreeMap::from([
            (labels(Operation::Read, "/mnt"), series(6, 4096, 1, &latency)),
            (labels(Operation::Open, ""), series(2, 0, 0, &[])),
        ]),
        losses: Losses { recursion_misses: Some(3), map_insert_failures: Some(0), ..Losses::default() },
    };
    for (format, expected) in [(Format::OpenMetrics, OPEN_METRICS), (Format::Text, TEXT)] {
        assert_eq!(render(&snapshot, format), expected, "{format:?}");
    }
}

#[test]
fn a_figure_that_is_not_measured_has_no_sample() {
    let attached = attached("kprobe", Vec::new());
    let snapshot = MetricsSnapshot {
        attached: &attached,
        series: BTreeMap::from([(labels(Operation::Open, "/"), series(2, 0, 0, &[]))]),
        losses: Losses::default(),
    };
    let text = render(&snapshot, Format::Text);
    assert!(text.contains("bpfassay_calls_total{operation=\"open\""), "{text}");
    for absent in ["bpfassay_bytes_total{", "errors", "latency", "losses_total{", "finding"] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    assert!(text.contains("Bytes that callers requested"), "{text}");
}

#[test]
fn the_buckets_bounds_are_whole_nanoseconds() {
    assert_eq!(float(255e-9), "2.55e-7");
    assert_eq!(float(0.001048575), "0.001048575");
    for bucket in BUCKETS {
        let nanoseconds = (1u64 << (bucket + 1)) - 1;
        let bound: f64 = float(nanoseconds as f64 / 1e9).parse().unwrap();
        assert_eq!((bound * 1e9).round() as u64, nanoseconds);
    }
}

proptest! {
    #[test]
    fn escaped_values_stay_on_their_line_and_read_back(text: String) {
        let mut escaped = String::new();
        escape(&text, &mut escaped);
        prop_assert!(!escaped.contains('\n'));
        let (mut read, mut rest) = (String::new(), escaped.chars());
        while let Some(character) = rest.next() {
            prop_assert_ne!(character, '"');
            match character {
                '\\' => read.push(match rest.next() { Some('n') => '\n', Some(other) => other, None => panic!() }),
                other => read.push(other),
            }
        }
        prop_assert_eq!(read, text);
    }

    #[test]
    fn buckets_only_grow(latency in prop::collection::vec(0u64..1000, 1..64)) {
        let attached = attached("fexit", Vec::new());
        let all: u64 = latency.iter().sum();
        let snapshot = MetricsSnapshot {
            attached: &attached,
            series: BTreeMap::from([(labels(Operation::Read, "/"), series(all, 0, 0, &latency))]),
            losses: Losses::default(),
        };
        let text = render(&snapshot, Format::OpenMetrics);
        let buckets: Vec<u64> = text
            .lines()
            .filter(|line| line.starts_with("bpfassay_latency_seconds_bucket"))
            .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
            .collect();
        prop_assert_eq!(buckets.len(), BUCKETS.count() + 1);
        prop_assert!(buckets.is_sorted());
        prop_assert_eq!(buckets.last(), Some(&all));
    }
}
