// SPDX-License-Identifier: MIT OR Apache-2.0
//! The forms of reports.

use bpfassay_protocol::tool_job::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pattern::ToolPattern;

/// The form of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename = "Form", tag = "form", rename_all = "kebab-case")]
pub enum ReportForm {
    /// JSON lines, one object each. Values and labels are fields. Fields of nested objects are
    /// named `outer.inner`.
    JsonLines {
        /// The stream of the lines.
        stream: Stream,
        /// Matching lines are not part of the report.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<ToolPattern>,
    },
    /// A page in the text format of Prometheus or OpenMetrics, read over HTTP in the guest. Values
    /// are sample names, and labels are labels of the samples.
    Openmetrics {
        /// TCP port on the loopback interface.
        port: u16,
        /// Path, beginning with `/`.
        path: String,
        /// Interval of readings between barriers, in milliseconds. `None` selects the study's
        /// sampling interval.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval_ms: Option<u64>,
    },
    /// Several such pages, requested one after the other. Each figure names its page.
    OpenmetricsPages {
        /// The pages.
        pages: Vec<MetricsPage>,
        /// Like `interval_ms` of a single page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval_ms: Option<u64>,
    },
    /// Lines of text. Values and labels are named groups.
    Table {
        /// The stream of the lines.
        stream: Stream,
        /// Pattern of lines with figures.
        line: ToolPattern,
        /// Matching lines (headings) are not part of the report. Empty lines never are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<ToolPattern>,
    },
    /// Histograms in the format of bcc and libbpf-tools. A value is the number of values in a
    /// histogram, named after its title (`usecs.count`). Labels are groups of the line above.
    Histogram {
        /// The stream of the lines.
        stream: Stream,
        /// Pattern of the line that names the subject of the histograms below it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heading: Option<ToolPattern>,
        /// Pattern of the line printed with every report, even without any histogram.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<ToolPattern>,
        /// Matching lines are not part of the report. Empty lines never are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<ToolPattern>,
    },
    /// One line per event. Values and labels are named groups, or fields as in JSON lines.
    Events {
        /// The stream of the lines.
        stream: Stream,
        /// Pattern of the lines; `None` if each line is a JSON object.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<ToolPattern>,
        /// Matching lines are not part of the report. Empty lines never are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<ToolPattern>,
    },
    /// Maps as `bpftrace -f json` prints them. Values are map names (`@reads`, or `@reads.total`
    /// for `avg` and `stats`). The label `key` is the whole key; `key1`, `key2`, … are its parts.
    BpftraceJson {
        /// The stream of the maps.
        stream: Stream,
    },
    /// A map of a bare object, with the layout from its BTF. Values are fields of the map's values,
    /// labels are fields of its keys. Fields of nested structures are named `outer.inner`. A key or
    /// value that is not a structure is named `key` or `value`.
    Map {
        /// Name of the map in the object.
        map: String,
    },
    /// Several such maps, read one after the other. Each figure names its map.
    Maps {
        /// Names of the maps in the object.
        maps: Vec<String>,
    },
}

impl ReportForm {
    /// The stream with the report, if the report is printed.
    #[must_use]
    pub const fn stream(&self) -> Option<Stream> {
        match self {
            Self::JsonLines { stream, .. }
            | Self::Table { stream, .. }
            | Self::Histogram { stream, .. }
            | Self::Events { stream, .. }
            | Self::BpftraceJson { stream } => Some(*stream),
            Self::Openmetrics { .. } | Self::OpenmetricsPages { .. } | Self::Map { .. } | Self::Maps { .. } => None,
        }
    }

    /// The maps to read.
    #[must_use]
    pub const fn maps(&self) -> &[String] {
        match self {
            Self::Map { map } => std::slice::from_ref(map),
            Self::Maps { maps } => maps.as_slice(),
            _ => &[],
        }
    }

    /// The names of pages or maps, if each figure names its own. Empty if there is only one.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        let (pages, maps): (&[MetricsPage], &[String]) = match self {
            Self::OpenmetricsPages { pages, .. } => (pages, &[]),
            Self::Maps { maps } => (&[], maps),
            _ => (&[], &[]),
        };
        pages.iter().map(|page| page.name.as_str()).chain(maps.iter().map(String::as_str))
    }
}

/// One of several metrics pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsPage {
    /// Name of the page in figures.
    pub name: String,
    /// TCP port on the loopback interface.
    pub port: u16,
    /// Path, beginning with `/`.
    pub path: String,
}
