// SPDX-License-Identifier: MIT OR Apache-2.0
//! The forms that reports of tools have.

use bpfassay_protocol::tool::Stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Pattern;

/// The form of a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "form", rename_all = "kebab-case")]
pub enum Form {
    /// Lines of JSON, one object each. Values and labels are fields; those of objects inside are
    /// named `outer.inner`.
    JsonLines {
        /// The stream that it writes them to.
        stream: Stream,
        /// Lines with a match of this are no part of the report.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<Pattern>,
    },
    /// A page in the text format of Prometheus or OpenMetrics, read over HTTP in the guest. Values
    /// are sample names, labels are labels.
    Openmetrics {
        /// TCP port of the loopback interface.
        port: u16,
        /// Path, from the first `/` on.
        path: String,
        /// How often it is read beside the barriers, in milliseconds; `None`: as the study samples.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval_ms: Option<u64>,
    },
    /// Several such pages, asked one after the other; each figure names its own.
    OpenmetricsPages {
        /// Where they are.
        pages: Vec<MetricsPage>,
        /// As of one page.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interval_ms: Option<u64>,
    },
    /// Lines of text. Values and labels are named groups.
    Table {
        /// The stream that it writes them to.
        stream: Stream,
        /// A pattern of lines with figures.
        line: Pattern,
        /// Lines with a match of this (headings) are no part of the report. Empty lines never are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<Pattern>,
    },
    /// Histograms as bcc and libbpf-tools print them. The value is how many values one has, by what
    /// its title names (`usecs.count`); labels are groups of the line above.
    Histogram {
        /// The stream that it writes them to.
        stream: Stream,
        /// A line that names what the histograms below it are of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        heading: Option<Pattern>,
        /// A line that it prints with each report, also where no histogram has a value.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        time: Option<Pattern>,
        /// Lines with a match of this are no part of the report. Empty lines never are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<Pattern>,
    },
    /// A line for each event. Values and labels are named groups, or fields as of lines of JSON.
    Events {
        /// The stream that it writes them to.
        stream: Stream,
        /// A pattern of lines; `None`: each line is an object in JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<Pattern>,
        /// Lines with a match of this are no part of the report. Empty lines never are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ignore: Option<Pattern>,
    },
    /// Maps as `bpftrace -f json` prints them. Values are maps by name (`@reads`; `@reads.total`
    /// for `avg` and `stats`); the label `key` is the whole key, `key1`, `key2`, … its parts.
    BpftraceJson {
        /// The stream that it writes them to.
        stream: Stream,
    },
    /// A map of a bare object, whose layout is read from its BTF. Values are fields of its values,
    /// labels those of its keys; the fields of structures inside are named `outer.inner`, and a key
    /// or value that is no structure `key` and `value`.
    Map {
        /// The map's name in the object.
        map: String,
    },
    /// Several such maps, read one after the other; each figure names its own.
    Maps {
        /// Their names in the object.
        maps: Vec<String>,
    },
}

impl Form {
    /// The stream that has the report, where it is printed.
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

    /// The maps that are read.
    #[must_use]
    pub const fn maps(&self) -> &[String] {
        match self {
            Self::Map { map } => std::slice::from_ref(map),
            Self::Maps { maps } => maps.as_slice(),
            _ => &[],
        }
    }

    /// The names of pages or maps, of which each figure names its own; none where there is one.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        let (pages, maps): (&[MetricsPage], &[String]) = match self {
            Self::OpenmetricsPages { pages, .. } => (pages, &[]),
            Self::Maps { maps } => (&[], maps),
            _ => (&[], &[]),
        };
        pages.iter().map(|page| page.name.as_str()).chain(maps.iter().map(String::as_str))
    }
}

/// One of several pages of metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsPage {
    /// The name that figures give it.
    pub name: String,
    /// TCP port of the loopback interface.
    pub port: u16,
    /// Path, from the first `/` on.
    pub path: String,
}
