// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any program as a workload: its source, and how its output is read. Unreadable output is an error
//! with a reason, and never a number.

use std::collections::BTreeMap;

use bpfassay_input::document::{Field, Reported, Section, nearest};
use bpfassay_protocol::{
    Arch, Operation,
    job::{Better, Program, SummarySource, Workload},
};
use bpfassay_tool::{KernelNeeds, Source, Supply, ToolPattern, arguments, guest_request, program_source};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Case, CaseNames, Metric, MetricInput, MetricName, NoMetricName, OnTarget, ReadTable, TypeKey, WorkloadBehaviour,
    WorkloadKind, WorkloadTable, bundled,
};
use crate::{Clock, clock::DAY_MS};

/// Name of the regex group that holds the number.
const GROUP: &str = "value";

/// Characters of a program's output that messages quote.
const QUOTED: usize = 400;

/// Default deadline of a program, in milliseconds.
const DEADLINE_MS: u64 = 60_000;

/// Unit of the elapsed time under the instruction clock.
const INSTRUCTIONS: &str = "instructions";

/// Largest number of metrics of a workload.
const MAX_FIGURES: usize = 16;

/// Reserved names of rows: IOR's bandwidths, and the time of the work.
const TAKEN: [&str; 3] = ["read", "write", "work"];

pub(super) const TYPES: &[TypeKey] = &[TypeKey {
    name: "command",
    read: |table| {
        // The rows are named after it.
        table.section.need("name", |_| Ok(()))?;
        Ok(ReadTable { kind: WorkloadKind::Command(read(table)?), default_name: None })
    },
}];

fn read(table: &WorkloadTable<'_>) -> Result<CommandSpec, Reported> {
    let section = table.section;
    section.only(&["type", "name", "source", "arguments", "deadline", "figures", "bytes"]);
    let source = section.need("source", program_source);
    let arguments = section.or("arguments", Vec::new(), arguments);
    let deadline_ms = deadline(section);
    let figures = section.or("figures", Vec::new(), figures);
    let bytes = section.or("bytes", BTreeMap::new(), bytes);
    Ok(CommandSpec {
        source: source?,
        arguments: arguments?,
        deadline_ms: deadline_ms?,
        figures: figures?,
        bytes: bytes?,
    })
}

/// Reads the key `deadline`: the time limit of a run in milliseconds.
///
/// # Errors
/// [`Reported`] if the value is not a time between 1 s and one day. The complaint is in the
/// document.
pub(super) fn deadline(section: &Section<'_, '_>) -> Result<u64, Reported> {
    section.or("deadline", DEADLINE_MS, |field| field.milliseconds(1000..=DAY_MS))
}

fn figures(field: &Field<'_, '_>) -> Result<Vec<MetricSpec>, Reported> {
    let mut taken: Vec<MetricName> = Vec::new();
    let figures = field.each(|element| {
        let section = element.table()?;
        section.only(&["name", "unit", "better", "pattern", "pointer"]);
        let name = section.need("name", |field| {
            let name = figure_name(field)?;
            if taken.contains(&name) {
                return Err(field.error("a figure of that name exists already"));
            }
            taken.push(name);
            Ok(name)
        });
        let unit = section.need("unit", unit);
        let better = section.need("better", Field::name::<Better>);
        let location = location(&section);
        Ok(MetricSpec { name: name?, unit: unit?, better: better?, location: location? })
    })?;
    if figures.len() > MAX_FIGURES {
        return Err(field.error(format!("there are {} figures, and may be {MAX_FIGURES}", figures.len())));
    }
    Ok(figures)
}

fn figure_name(field: &Field<'_, '_>) -> Result<MetricName, Reported> {
    let text = field.text()?;
    if TAKEN.contains(&text) {
        return Err(field.error(format!("`{text}` is the name of another row: take another")));
    }
    text.parse().map_err(|error: NoMetricName| field.error(error.to_string()))
}

fn unit(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    if (1..=20).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(field.error("give a unit of at most 20 bytes, such as `1/s`"))
}

/// Reads exactly one of `pattern` and `pointer`.
fn location(section: &Section<'_, '_>) -> Result<ValueLocation, Reported> {
    match (section.get("pattern"), section.get("pointer")) {
        (Some(field), None) => {
            let pattern = field.name::<ToolPattern>()?;
            if !pattern.groups().any(|group| group == GROUP) {
                return Err(field.error(format!("it has no group `(?<{GROUP}>…)` that holds the number")));
            }
            Ok(ValueLocation::Pattern(pattern))
        }
        (None, Some(field)) => {
            let pointer = field.text()?;
            // RFC 6901, section 3.
            if pointer.len() > 200 || !pointer.starts_with('/') {
                return Err(field.error("give a JSON pointer of at most 200 bytes, such as `/jobs/0/iops`"));
            }
            Ok(ValueLocation::Pointer(pointer.to_owned()))
        }
        _ => Err(section.error("give either `pattern` or `pointer`")),
    }
}

fn bytes(field: &Field<'_, '_>) -> Result<BTreeMap<Operation, ValueLocation>, Reported> {
    let known = || Operation::ALL.iter().copied().filter(|operation| operation.direction().is_some());
    let of_operation = |(key, field): (&str, Field<'_, '_>)| {
        let Some(operation) = known().find(|operation| operation.name() == key) else {
            let names: Vec<&str> = known().map(Operation::name).collect();
            let hint = match nearest(key, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", names.join(", ")),
            };
            return Err(field.error(format!("no operation of that name moves data: {hint}")));
        };
        let section = field.table()?;
        section.only(&["pattern", "pointer"]);
        Ok((operation, location(&section)?))
    };
    let read: Vec<_> = field.table()?.entries().map(of_operation).collect();
    read.into_iter().collect()
}

/// A program as a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandSpec {
    /// Source of the program.
    pub source: Source,
    /// Arguments without the program name. [`bpfassay_protocol::job::DIRECTORY`] stands for the
    /// working directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// Time limit by the guest's clock, in milliseconds.
    pub deadline_ms: u64,
    /// The metrics, in display order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<MetricSpec>,
    /// Place of the bytes moved on the file system under test, by operation. Missing values count
    /// as not reported, and not as 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bytes: BTreeMap<Operation, ValueLocation>,
}

/// A metric and the place of its value in the output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MetricSpec {
    /// Name, unique in the workload.
    pub name: MetricName,
    /// Unit: `1/s`.
    pub unit: String,
    /// Whether higher or lower values are better.
    pub better: Better,
    /// Place of the value in the output.
    #[serde(flatten)]
    pub location: ValueLocation,
}

impl MetricSpec {
    fn metric(&self) -> Metric {
        Metric { name: self.name, unit: self.unit.clone(), better: self.better, operation: None, calls_of: None }
    }
}

/// Place of a number in a program's standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ValueLocation {
    /// The group `value` in the only match of a regular expression.
    Pattern(ToolPattern),
    /// The target of a JSON pointer (RFC 6901). The whole output must be one JSON document.
    Pointer(String),
}

/// A program's output about its work.
#[derive(Debug, Clone, PartialEq)]
pub struct Printed<'a> {
    /// The metrics, or why a metric cannot be read.
    pub figures: Vec<(&'a MetricSpec, Result<f64, String>)>,
    /// The bytes that the program reports by operation, or why they cannot be read.
    pub bytes: BTreeMap<Operation, Result<u64, String>>,
}

impl WorkloadBehaviour for CommandSpec {
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        vec![(name.to_owned(), self.run(name, on.arch).map(Case::from))]
    }

    /// The time of the work, then the metrics of the study.
    fn metrics(&self, _: &CaseNames<'_>, clock: Clock) -> Vec<Metric> {
        let time = match clock {
            Clock::Instructions => INSTRUCTIONS,
            Clock::Wall => "s",
        };
        [Metric::work(time, Better::Lower)].into_iter().chain(self.figures.iter().map(MetricSpec::metric)).collect()
    }

    /// The work's time lasts from before the start of the program until its end. Under the
    /// instruction clock, it is the number of instructions, without idle time if the kernel counts
    /// that. Under the wall clock, it is in seconds.
    fn measure(&self, clock: Clock, outcome: &MetricInput<'_>) -> Vec<(Metric, Result<f64, String>)> {
        let MetricInput { summary, elapsed_ns, busy_ns } = *outcome;
        let (time, unit) = match (clock, busy_ns) {
            (Clock::Instructions, Some(busy)) => (Some(busy as f64), INSTRUCTIONS),
            (Clock::Instructions, None) => (elapsed_ns.map(|ns| ns as f64), "instructions, idle included"),
            (Clock::Wall, _) => (elapsed_ns.map(|ns| ns as f64 / 1e9), "s"),
        };
        let time = time.ok_or_else(|| "the clock went back during the run".to_owned());
        let printed = self.read(summary).figures.into_iter().map(|(spec, value)| (spec.metric(), value));
        [(Metric::work(unit, Better::Lower), time)].into_iter().chain(printed).collect()
    }

    fn bytes(&self, summary: &str) -> Option<Vec<(Operation, Result<u64, String>)>> {
        (!self.bytes.is_empty()).then(|| self.read(summary).bytes.into_iter().collect())
    }

    fn unreadable(&self, output: &str) -> Option<String> {
        let printed = self.read(output);
        let figures = printed.figures.into_iter().filter_map(|(_, figure)| figure.err());
        let reasons: Vec<String> = figures.chain(printed.bytes.into_values().filter_map(Result::err)).collect();
        if reasons.is_empty() {
            return None;
        }
        let skipped = output.chars().count().saturating_sub(QUOTED);
        let end: String = output.chars().skip(skipped).collect();
        let end = if end.trim().is_empty() { "it wrote nothing".to_owned() } else { format!("its output ends: {end}") };
        Some(format!("cannot read the output of the workload: {}; {end}", reasons.join("; ")))
    }

    fn deadline_ms(&self) -> Option<u64> {
        Some(self.deadline_ms)
    }

    fn supply<'a>(&'a self, name: &str, folder: Option<&'a std::path::Path>) -> Option<Supply<'a>> {
        let kernel = KernelNeeds::default();
        Some(Supply {
            name: guest_request::of_workload(name),
            source: &self.source,
            files: &[],
            needs: &[],
            kernel,
            folder,
        })
    }
}

impl CommandSpec {
    /// Builds what a guest of architecture `arch` runs for the workload `name`.
    fn run(&self, name: &str, arch: Arch) -> Result<Workload, String> {
        // Sources of workloads never depend on the kernel.
        let (name, any) = (guest_request::of_workload(name), "");
        let mut command = guest_request::command(&name, &self.source, &self.arguments, arch, any)?.into_iter();
        let path = command.next().ok_or("its source names no program")?;
        Ok(Workload {
            program: Program::Path { path },
            summary: SummarySource::Output,
            control: false,
            deadline_ms: Some(self.deadline_ms),
            ..bundled(command)
        })
    }

    /// Reads the metrics and bytes from the program's whole standard output.
    #[must_use]
    pub fn read(&self, output: &str) -> Printed<'_> {
        let document =
            OutputText { text: output, json: serde_json::from_str(output).map_err(|error| error.to_string()) };
        let bytes = self.bytes.iter().map(|(&operation, location)| {
            let bytes = document.number(location).and_then(|number| number.whole());
            (operation, bytes.map_err(|reason| format!("the bytes of {operation}: {reason}")))
        });
        let figures = self.figures.iter().map(|figure| {
            let number = document.number(&figure.location).and_then(|number| number.real());
            (figure, number.map_err(|reason| format!("the figure {}: {reason}", figure.name)))
        });
        Printed { figures: figures.collect(), bytes: bytes.collect() }
    }
}

/// A program's output, also parsed as JSON.
struct OutputText<'a> {
    text: &'a str,
    json: Result<Value, String>,
}

/// A number as text.
struct NumberText(String);

impl OutputText<'_> {
    fn number(&self, location: &ValueLocation) -> Result<NumberText, String> {
        match location {
            ValueLocation::Pattern(pattern) => {
                let mut found = pattern.regex().captures_iter(self.text);
                let first = found.next().ok_or_else(|| format!("`{}` has no match", pattern.regex()))?;
                if found.next().is_some() {
                    return Err(format!("`{}` has more than one match: make it match once", pattern.regex()));
                }
                let group = first.name(GROUP).ok_or_else(|| format!("the group `{GROUP}` is no part of the match"))?;
                Ok(NumberText(group.as_str().to_owned()))
            }
            ValueLocation::Pointer(pointer) => {
                let json = self.json.as_ref().map_err(|error| format!("the output is no JSON document: {error}"))?;
                match json.pointer(pointer) {
                    Some(Value::Number(number)) => Ok(NumberText(number.to_string())),
                    Some(_) => Err(format!("there is no number at {pointer}")),
                    None => Err(format!("there is nothing at {pointer}")),
                }
            }
        }
    }
}

impl NumberText {
    fn real(&self) -> Result<f64, String> {
        let number = self.0.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| format!("`{}` is no number", self.0))
    }

    fn whole(&self) -> Result<u64, String> {
        self.0.parse().map_err(|_| format!("`{}` is no whole number of bytes", self.0))
    }
}

#[cfg(test)]
mod tests;
