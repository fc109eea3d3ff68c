// SPDX-License-Identifier: MIT OR Apache-2.0
//! OpenMetrics text, with which a monitoring system keeps the results of each study.
//!
//! Version 1.0.0 of the format: every family once with type, unit and help, gauges only, `# EOF` at
//! the end.

use std::fmt::Write as _;

use bpfassay_stats::Verdict;

use super::{finished, format::ReportFormat, head::facts, plain};
use crate::labels;
use bpfassay_results::{CellAccuracy, CellMetric, CellResult, Direct, Priced, Results, Role};

/// The values of one family, each with its labels.
type Samples = Vec<(Vec<(&'static str, String)>, f64)>;

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "openmetrics",
    about: "Gauges, for monitoring systems",
    file: None,
    render: |results, _| Ok(openmetrics(results).into()),
};

/// Returns the value of a family for one metric of a cell; `None` if there is none.
type OfMetric = fn(&CellMetric, Option<&CellAccuracy>) -> Option<f64>;

/// Families with a value for each metric of a cell: name, unit, help, and the value.
const FAMILIES: [(&str, &str, &str, OfMetric); 12] = [
    (
        "bpfassay_direct_instructions_per_call",
        "",
        "Instructions on the path of the probe per call, mean of the runs.",
        |metric, _| Some(direct(metric)?.per_call.mean),
    ),
    (
        "bpfassay_direct_spread_instructions_per_call",
        "",
        "By how many of them the runs differ, largest - smallest.",
        |metric, _| direct(metric).map(|direct| direct.per_call.max - direct.per_call.min),
    ),
    (
        "bpfassay_elsewhere_instructions_per_call",
        "",
        "Instructions per call beyond the baseline's that are not on the path, mean of the runs.",
        |metric, _| Some(direct(metric)?.elsewhere.mean),
    ),
    (
        "bpfassay_tool_user_instructions_per_call",
        "",
        "Of these the ones of the tool's processes in user space, mean of the runs.",
        |metric, _| Some(direct(metric)?.tool.as_ref()?.value()?.mean),
    ),
    ("bpfassay_bandwidth_mebibytes_per_second", "", "Bandwidth by IOR, mean of the runs.", |metric, _| {
        metric.value.value().filter(|_| metric.operation.is_some()).map(|summary| summary.center())
    }),
    ("bpfassay_overhead_ratio", "ratio", "Speed of the baseline / with what is under test.", |metric, _| {
        metric.overhead.value().map(|overhead| overhead.estimate.value)
    }),
    ("bpfassay_overhead_lower_ratio", "ratio", "Lower end of its 95 % interval.", |metric, _| {
        metric.overhead.value()?.estimate.bounds.interval().map(|interval| interval.lower)
    }),
    ("bpfassay_overhead_upper_ratio", "ratio", "Upper end of its 95 % interval.", |metric, _| {
        metric.overhead.value()?.estimate.bounds.interval().map(|interval| interval.upper)
    }),
    ("bpfassay_overhead_within_noise", "", "1: the overhead is within the noise floor, 0: it is not.", |metric, _| {
        metric.overhead.value().map(|_| f64::from(u8::from(metric.is_within_noise())))
    }),
    ("bpfassay_instructions_per_call", "", "Instructions per call beyond the baseline's.", |metric, _| {
        metric.cost.value().map(|cost| cost.per_call.value)
    }),
    ("bpfassay_relative_error_ratio", "ratio", "Bandwidth by IOR / traced.", |_, accuracy| {
        accuracy?.relative_error_ior_interval.value().map(|summary| summary.center())
    }),
    (
        "bpfassay_byte_error_bytes",
        "bytes",
        "Bytes traced - bytes moved, the difference farthest from 0.",
        |_, accuracy| {
            #[expect(clippy::cast_precision_loss, reason = "the format has floating point")]
            accuracy?.byte_error.value().map(|errors| {
                if errors.min.unsigned_abs() > errors.max.unsigned_abs() {
                    errors.min as f64
                } else {
                    errors.max as f64
                }
            })
        },
    ),
];

/// Renders `results` as OpenMetrics.
#[must_use]
pub fn openmetrics(results: &Results) -> String {
    let mut text = String::new();
    study(&mut text, results);
    for (name, unit, help, of) in FAMILIES {
        let samples = results.cells.iter().flat_map(|cell| {
            cell.rows().filter_map(move |(metric, accuracy)| {
                let mut labels = labels(results, cell);
                labels.extend(named(metric));
                Some((labels, of(metric, accuracy)?))
            })
        });
        family(&mut text, name, unit, help, samples.collect());
    }
    let roles = results.cells.iter().flat_map(|cell| {
        let counted = cell.metrics.iter().filter_map(|metric| Some((metric, direct(metric)?)));
        counted.flat_map(move |(metric, direct)| {
            Role::ALL.map(|role| {
                let mut labels = labels(results, cell);
                labels.extend(named(metric));
                labels.push(("role", role.to_string()));
                (labels, direct.of(role))
            })
        })
    });
    let help = "The same by what their functions do: program, trampoline, helpers, entry.";
    family(&mut text, "bpfassay_direct_role_instructions_per_call", "", help, roles.collect());
    priced(&mut text, results);
    let others = results.cells.iter().flat_map(|cell| {
        cell.metrics.iter().filter(|metric| metric.operation.is_none()).filter_map(move |metric| {
            let mut labels = labels(results, cell);
            labels.extend(named(metric));
            Some((labels, metric.value.value()?.center()))
        })
    });
    let help = "Metric that is no bandwidth, in its own unit; mean of the runs.";
    family(&mut text, "bpfassay_metric_value", "", help, others.collect());
    let runs = results.cells.iter().flat_map(|cell| {
        let of = |outcome: &str, count: u32| {
            let mut labels = labels(results, cell);
            labels.push(("outcome", outcome.to_owned()));
            (labels, f64::from(count))
        };
        [of("measured", cell.runs.measured), of("refused", cell.runs.refused), of("failed", cell.runs.failed)]
    });
    family(&mut text, "bpfassay_runs", "", "Runs by outcome.", runs.collect());
    let verdicts = [Verdict::Pass, Verdict::Regression, Verdict::Inconclusive].map(|verdict| {
        let count = results.gates.iter().filter(|gate| gate.verdict == verdict).count();
        let labels = vec![("study", results.plan.study.name.clone()), ("verdict", labels::verdict(verdict).to_owned())];
        (labels, f64::from(u32::try_from(count).unwrap_or(u32::MAX)))
    });
    family(&mut text, "bpfassay_gates", "", "Gates of the study by verdict.", verdicts.into());
    text.push_str("# EOF\n");
    finished(text)
}

/// Adds a sample of value 1, whose labels describe the measurement.
fn study(text: &mut String, results: &Results) {
    let mut labels = vec![("study", results.plan.title().to_string()), ("clock", results.plan.study.clock.to_string())];
    labels.extend(facts(results));
    family(text, "bpfassay_study_info", "", "When, where, and of what the figures are.", vec![(labels, 1.0)]);
}

/// The names of a model's misses in samples, in the order of
/// [`bpfassay_results::MissesPerCall::numbers`].
const FOUND: [&str; 4] = ["l1i", "l1d", "l2", "mispredicted"];

/// Adds direct costs as the study's model prices them; nothing without a model.
fn priced(text: &mut String, results: &Results) {
    let Some(model) = &results.plan.study.model else { return };
    type SamplesOf = fn(&Priced) -> Samples;
    const FAMILIES: [(&str, &str, SamplesOf); 3] = [
        (
            "bpfassay_priced_direct_per_call",
            "Instructions on the path of the probe per call and what the model found there by its prices, mean of the runs.",
            |priced| vec![(Vec::new(), priced.per_call.mean)],
        ),
        (
            "bpfassay_priced_elsewhere_per_call",
            "The same beyond the baseline's that is not on the path, mean of the runs.",
            |priced| vec![(Vec::new(), priced.elsewhere.mean)],
        ),
        (
            "bpfassay_model_direct_role_per_call",
            "What the model found on the path per call by role: lines that missed in l1i, l1d and l2, and branches that were mispredicted.",
            |priced| {
                let roles = priced.roles.iter();
                let of_role =
                    roles.flat_map(|of| FOUND.into_iter().zip(of.misses.numbers()).map(|found| (of.role, found)));
                of_role
                    .map(|(role, (found, number))| {
                        (vec![("role", role.to_string()), ("found", found.to_owned())], number)
                    })
                    .collect()
            },
        ),
    ];
    for (name, help, of) in FAMILIES {
        let mut samples = Samples::new();
        for cell in &results.cells {
            for metric in &cell.metrics {
                let Some(priced) = direct(metric).and_then(|direct| direct.priced.as_ref()) else { continue };
                for (own, value) in of(priced) {
                    let mut labels = labels(results, cell);
                    labels.extend(named(metric));
                    labels.push(("model", model.name.clone()));
                    labels.extend(own);
                    samples.push((labels, value));
                }
            }
        }
        family(text, name, "", help, samples);
    }
}

fn direct(metric: &CellMetric) -> Option<&Direct> {
    metric.direct.as_ref()?.value()
}

fn labels(results: &Results, cell: &CellResult) -> Vec<(&'static str, String)> {
    vec![
        ("arch", cell.target.arch.to_string()),
        ("kernel", cell.target.kernel.clone()),
        ("workload", cell.case.clone()),
        ("file_system", cell.file_system.clone()),
        ("under_test", cell.under_test()),
        ("clock", results.plan.study.clock.to_string()),
    ]
}

/// Returns labels for the metric and its unit.
fn named(metric: &CellMetric) -> [(&'static str, String); 2] {
    [("metric", metric.name.to_string()), ("unit", metric.unit.clone())]
}

fn family(text: &mut String, name: &str, unit: &str, help: &str, samples: Samples) {
    if samples.is_empty() {
        return;
    }
    let _ = writeln!(text, "# TYPE {name} gauge");
    if !unit.is_empty() {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {help}");
    for (labels, value) in samples {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape(value))).collect();
        let _ = writeln!(text, "{name}{{{}}} {value}", labels.join(","));
    }
}

/// Escapes backslash, quotation mark and line feed in a label's value.
fn escape(value: &str) -> String {
    plain::text(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
