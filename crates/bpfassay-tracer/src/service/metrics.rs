// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters as text for Prometheus: OpenMetrics 1.0 or the older text format 0.0.4.
//!
//! The text depends on the arguments only. Every counter is a sum since the tracer attached, so it
//! never decreases while the tracer runs. A quantity that the configuration cannot measure has no
//! sample, rather than a zero.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
};

use bpfassay_protocol::{
    Operation,
    finding_name::Pitfall,
    operation::Totals,
    probe::ByteMeaning,
    tracer_messages::{Attached, Losses},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// OpenMetrics 1.0 (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).
    OpenMetrics,
    /// Prometheus text format 0.0.4
    /// (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
    Text,
}

impl Format {
    /// Returns the `Content-Type` to send.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    pub(crate) operation: Operation,
    /// Path of the mount; empty if it is not known.
    pub(crate) mount: String,
    /// `major:minor`.
    pub(crate) device: String,
    pub(crate) mount_id: u64,
    /// Path of the cgroup, or its id if the path is not known.
    pub(crate) cgroup: String,
}

/// Counters of one set of labels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelledCounters {
    pub(crate) totals: Totals,
    /// Calls by duration ([`bpfassay_protocol::tracer_messages::CounterRow::latency`]).
    pub(crate) latency: Vec<u64>,
}

/// The contents of one response.
#[derive(Debug)]
pub(crate) struct MetricsSnapshot<'a> {
    pub(crate) attached: &'a Attached,
    pub(crate) series: BTreeMap<Labels, LabelledCounters>,
    pub(crate) losses: Losses,
}

impl LabelledCounters {
    /// Adds the counters of another key with the same labels.
    pub(crate) fn add(&mut self, totals: Totals, latency: &[u64]) {
        self.totals += totals;
        if self.latency.len() < latency.len() {
            self.latency.resize(latency.len(), 0);
        }
        for (sum, count) in self.latency.iter_mut().zip(latency) {
            *sum = sum.wrapping_add(*count);
        }
    }
}

/// Exponents of the histogram's buckets. Element `i` of a latency counts calls of 2^i to 2^(i+1) -
/// 1 ns, so the inclusive upper bounds are 2^(i+1) - 1 ns, from 255 ns to 34 s. The set never
/// changes, because sums over series need that.
const BUCKETS: std::ops::RangeInclusive<u32> = 7..=34;

/// Writes `snapshot` in `format`.
pub(crate) fn render(snapshot: &MetricsSnapshot<'_>, format: Format) -> String {
    let mut text = Text { out: String::new(), format };
    // Writing into a String does not fail.
    let _ = text.all(snapshot);
    text.out
}

struct Text {
    out: String,
    format: Format,
}

/// The types of metric families.
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Histogram,
    /// A family whose samples are 1 and whose labels contain the information.
    Info,
}

impl Text {
    fn all(&mut self, snapshot: &MetricsSnapshot<'_>) -> fmt::Result {
        let configuration = snapshot.attached.configuration;
        self.family("bpfassay_build", Kind::Info, "The tracer and its probe configuration.")?;
        self.sample(
            "bpfassay_build_info",
            &[
                ("version", env!("CARGO_PKG_VERSION")),
                ("probe", configuration.probe.name()),
                ("map", configuration.map.name()),
                ("loader", configuration.loader.name()),
            ],
            1,
        )?;
        if !snapshot.attached.findings.is_empty() {
            self.family("bpfassay_finding", Kind::Info, "A pitfall found on this kernel before counting began.")?;
            // Two findings can differ in their details only.
            let findings = snapshot.attached.findings.iter();
            let distinct: BTreeSet<_> = findings.map(|finding| (finding.pitfall, finding.subject.as_str())).collect();
            for (pitfall, subject) in distinct {
                self.sample("bpfassay_finding_info", &[("pitfall", pitfall.name()), ("subject", subject)], 1)?;
            }
        }

        let returned = configuration.probe.counts() == Some(ByteMeaning::Returned);
        self.counters(
            snapshot,
            "bpfassay_calls",
            "Calls, failed ones included where the probe sees them.",
            |_, series| Some(series.totals.calls),
        )?;
        let bytes = if returned {
            "Bytes that calls returned."
        } else {
            "Bytes that callers requested, whatever the calls returned."
        };
        self.counters(snapshot, "bpfassay_bytes", bytes, |labels, series| {
            labels.operation.direction().map(|_| series.totals.bytes)
        })?;
        if returned {
            self.counters(snapshot, "bpfassay_errors", "Calls that returned an error.", |_, series| {
                Some(series.totals.errors)
            })?;
        }
        self.latencies(snapshot)?;
        self.losses(&snapshot.losses)?;
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        Ok(())
    }

    fn counters(
        &mut self,
        snapshot: &MetricsSnapshot<'_>,
        name: &str,
        help: &str,
        value: impl Fn(&Labels, &LabelledCounters) -> Option<u64>,
    ) -> fmt::Result {
        self.family(name, Kind::Counter, help)?;
        for (labels, series) in &snapshot.series {
            if let Some(value) = value(labels, series) {
                self.labelled(&format!("{name}_total"), labels, None, value)?;
            }
        }
        Ok(())
    }

    fn latencies(&mut self, snapshot: &MetricsSnapshot<'_>) -> fmt::Result {
        if snapshot.series.values().all(|series| series.latency.is_empty()) {
            return Ok(());
        }
        let name = "bpfassay_latency_seconds";
        self.family(name, Kind::Histogram, "Durations of calls; their sum is not measured.")?;
        for (labels, series) in snapshot.series.iter().filter(|(_, series)| !series.latency.is_empty()) {
            for bucket in BUCKETS {
                let up_to: u64 = series.latency.iter().take(bucket as usize + 1).sum();
                let bound = ((1u64 << (bucket + 1)) - 1) as f64 / 1e9;
                self.labelled(&format!("{name}_bucket"), labels, Some(&float(bound)), up_to)?;
            }
            let all: u64 = series.latency.iter().sum();
            self.labelled(&format!("{name}_bucket"), labels, Some("+Inf"), all)?;
            // OpenMetrics requires a count exactly if there is a sum. The older format always
            // requires one.
            if self.format == Format::Text {
                self.labelled(&format!("{name}_count"), labels, None, all)?;
            }
        }
        Ok(())
    }

    fn losses(&mut self, losses: &Losses) -> fmt::Result {
        let kinds = [
            (Pitfall::MissedProbes, losses.missed_probes),
            (Pitfall::RecursionMisses, losses.recursion_misses),
            (Pitfall::MapInsertFailures, losses.map_insert_failures),
            (Pitfall::LruEvictions, losses.lru_evictions),
            (Pitfall::RingBufferDrops, losses.ring_buffer_drops),
        ];
        let name = "bpfassay_losses";
        self.family(
            name,
            Kind::Counter,
            "Events and keys known to be lost; a kind that the kernel does not count is missing.",
        )?;
        for (kind, count) in kinds {
            if let Some(count) = count {
                self.sample(&format!("{name}_total"), &[("kind", kind.name())], count)?;
            }
        }
        Ok(())
    }

    /// Writes `# HELP` and `# TYPE`. OpenMetrics names the family without the suffix of its
    /// samples, the older format with the suffix.
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> fmt::Result {
        let (suffix, kind) = match (kind, self.format) {
            (Kind::Histogram, _) => ("", "histogram"),
            (Kind::Counter, Format::OpenMetrics) => ("", "counter"),
            (Kind::Counter, Format::Text) => ("_total", "counter"),
            (Kind::Info, Format::OpenMetrics) => ("", "info"),
            (Kind::Info, Format::Text) => ("_info", "gauge"),
        };
        // The help texts are constants without characters to escape.
        writeln!(self.out, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}")
    }

    fn labelled(&mut self, name: &str, labels: &Labels, bound: Option<&str>, value: u64) -> fmt::Result {
        let mount_id = labels.mount_id.to_string();
        let mut pairs = vec![
            ("operation", labels.operation.name()),
            ("mount", labels.mount.as_str()),
            ("device", labels.device.as_str()),
            ("mount_id", mount_id.as_str()),
            ("cgroup", labels.cgroup.as_str()),
        ];
        pairs.extend(bound.map(|bound| ("le", bound)));
        self.sample(name, &pairs, value)
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) -> fmt::Result {
        self.out.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.out.push(if index == 0 { '{' } else { ',' });
            write!(self.out, "{label}=\"")?;
            escape(text, &mut self.out);
            self.out.push('"');
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        writeln!(self.out, " {value}")
    }
}

/// Escapes a label value for both formats: backslash, double quote and line feed.
fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

/// Returns a bound in seconds in the shortest form that reads back as the same number, with an
/// exponent if it is small.
fn float(value: f64) -> String {
    if value < 1e-3 { format!("{value:e}") } else { value.to_string() }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
