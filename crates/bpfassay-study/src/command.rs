//! Workloads that are any program: where it comes from, and how what it prints is read. Pure.
//!
//! What cannot be read is an error with the reason, never a number.

use std::collections::BTreeMap;

use arrayvec::ArrayString;
use bpfassay_protocol::{
    Arch, Operation,
    job::{Better, Workload},
};
use bpfassay_tool::{Pattern, Source, Supply, guest};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of a figure of merit. Of a fixed size, so that it can be part of small keys.
pub type FigureName = ArrayString<24>;

/// The group of a pattern that holds the number.
pub const GROUP: &str = "value";

/// How much of a program's output messages quote, in characters.
const QUOTED: usize = 400;

/// A program as a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandSpec {
    /// Where it comes from.
    pub source: Source,
    /// Its arguments, without the program's name; [`bpfassay_protocol::job::DIRECTORY`] stands for the directory that it works in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    /// How long it may take by the guest's clock, in milliseconds.
    pub deadline_ms: u64,
    /// Its figures of merit, in the order of display.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigureSpec>,
    /// Where it tells the bytes that it moved on the file system under test, by operation. What it does not tell of these counts
    /// as not told, not as 0.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bytes: BTreeMap<Operation, Place>,
}

/// One figure of merit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FigureSpec {
    /// Name, unique in the workload.
    pub name: FigureName,
    /// Unit: `1/s`.
    pub unit: String,
    /// Which way it is better.
    pub better: Better,
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
}

/// Where a number stands in what a program writes to standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In the group named [`GROUP`] of the only match of a regular expression.
    Pattern(Pattern),
    /// Where a JSON pointer (RFC 6901) leads to. All of the output is one JSON document then.
    Pointer(String),
}

/// What a program told of its work.
#[derive(Debug, Clone, PartialEq)]
pub struct Told<'a> {
    /// Its figures of merit, or why one cannot be read.
    pub figures: Vec<(&'a FigureSpec, Result<f64, String>)>,
    /// The bytes that it says it moved, by operation; or why they cannot be read.
    pub bytes: BTreeMap<Operation, Result<u64, String>>,
}

impl CommandSpec {
    /// What guests must be supplied with for the workload `name`; `folder`: that of the study file, where there is one.
    #[must_use]
    pub fn supply<'a>(&'a self, name: &str, folder: Option<&'a std::path::Path>) -> Supply<'a> {
        Supply { name: guest::of_workload(name), source: &self.source, folder }
    }

    /// What a guest of architecture `arch` is told of the workload `name`.
    ///
    /// # Errors
    /// Why there is no such guest.
    pub fn workload(&self, name: &str, arch: Arch) -> Result<Workload, String> {
        let command = guest::command(&guest::of_workload(name), &self.source, &self.arguments, arch)?;
        Ok(Workload::Command { command, deadline_ms: self.deadline_ms })
    }

    /// What the program told, from all that it wrote to standard output.
    #[must_use]
    pub fn read(&self, output: &str) -> Told<'_> {
        let document = Document { text: output, json: serde_json::from_str(output).map_err(|error| error.to_string()) };
        let bytes = self.bytes.iter().map(|(&operation, place)| {
            let bytes = document.number(place).and_then(|number| number.whole());
            (operation, bytes.map_err(|reason| format!("the bytes of {operation}: {reason}")))
        });
        let figures = self.figures.iter().map(|figure| {
            let number = document.number(&figure.place).and_then(|number| number.real());
            (figure, number.map_err(|reason| format!("the figure {}: {reason}", figure.name)))
        });
        Told { figures: figures.collect(), bytes: bytes.collect() }
    }

    /// Why a run with this output counts as failed: something that it should tell cannot be read.
    #[must_use]
    pub fn unreadable(&self, output: &str) -> Option<String> {
        let told = self.read(output);
        let figures = told.figures.into_iter().filter_map(|(_, figure)| figure.err());
        let reasons: Vec<String> = figures.chain(told.bytes.into_values().filter_map(Result::err)).collect();
        if reasons.is_empty() {
            return None;
        }
        let skipped = output.chars().count().saturating_sub(QUOTED);
        let end: String = output.chars().skip(skipped).collect();
        let end = if end.trim().is_empty() { "it wrote nothing".to_owned() } else { format!("its output ends: {end}") };
        Some(format!("cannot read what the workload told of its work: {}; {end}", reasons.join("; ")))
    }
}

/// A program's output.
struct Document<'a> {
    text: &'a str,
    json: Result<Value, String>,
}

/// A number as it stands there.
struct Number(String);

impl Document<'_> {
    fn number(&self, place: &Place) -> Result<Number, String> {
        match place {
            Place::Pattern(pattern) => {
                let mut found = pattern.regex().captures_iter(self.text);
                let first = found.next().ok_or_else(|| format!("`{}` has no match", pattern.regex()))?;
                if found.next().is_some() {
                    return Err(format!("`{}` has more than one match: make it match once", pattern.regex()));
                }
                let group = first.name(GROUP).ok_or_else(|| format!("the group `{GROUP}` is no part of the match"))?;
                Ok(Number(group.as_str().to_owned()))
            }
            Place::Pointer(pointer) => {
                let json = self.json.as_ref().map_err(|error| format!("the output is no JSON document: {error}"))?;
                match json.pointer(pointer) {
                    Some(Value::Number(number)) => Ok(Number(number.to_string())),
                    Some(_) => Err(format!("at {pointer} stands no number")),
                    None => Err(format!("there is nothing at {pointer}")),
                }
            }
        }
    }
}

impl Number {
    fn real(&self) -> Result<f64, String> {
        let number = self.0.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| format!("`{}` is no number", self.0))
    }

    fn whole(&self) -> Result<u64, String> {
        self.0.parse().map_err(|_| format!("`{}` is no whole number of bytes", self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec() -> CommandSpec {
        let figure = |name: &str, place| FigureSpec {
            name: FigureName::from(name).unwrap(),
            unit: "1/s".to_owned(),
            better: Better::Higher,
            place,
        };
        CommandSpec {
            source: Source::Guest("/bin/x".to_owned()),
            arguments: vec!["-v".to_owned()],
            deadline_ms: 1000,
            figures: vec![
                figure("pattern", Place::Pattern(r#""rate": "(?<value>\S+)/s""#.parse().unwrap())),
                figure("pointer", Place::Pointer("/jobs/0/iops".to_owned())),
            ],
            bytes: [(Operation::Write, Place::Pointer("/jobs/0/bytes".to_owned()))].into(),
        }
    }

    const OUTPUT: &str = r#"{"rate": "12.5/s", "jobs": [{"iops": 3, "bytes": 18446744073709551615}]}"#;

    #[test]
    fn numbers_are_found_by_pattern_and_by_pointer() {
        let spec = spec();
        let told = spec.read(OUTPUT);
        let figures: Vec<_> = told.figures.iter().map(|(figure, number)| (&*figure.name, number.clone())).collect();
        assert_eq!(figures, [("pattern", Ok(12.5)), ("pointer", Ok(3.0))]);
        assert_eq!(told.bytes[&Operation::Write], Ok(u64::MAX));
        assert_eq!(spec.unreadable(OUTPUT), None);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_never_0() {
        let told = |output: &str| spec().unreadable(output).unwrap();
        let nothing = told("");
        assert!(nothing.contains("the figure pattern: `\"rate\": \"(?<value>\\S+)/s\"` has no match;"), "{nothing}");
        assert!(nothing.contains("the bytes of write: the output is no JSON document"), "{nothing}");
        assert!(nothing.ends_with("; it wrote nothing"), "{nothing}");
        let twice = told(&OUTPUT.replace("{\"iops", "{\"also\": {\"rate\": \"1/s\"}, \"iops"));
        assert!(twice.contains("has more than one match") && !twice.contains("pointer"), "{twice}");
        assert!(told(&OUTPUT.replace("12.5", "fast")).contains("`fast` is no number"));
        assert!(told(&OUTPUT.replace("12.5", "inf")).contains("`inf` is no number"));
        assert!(told(&OUTPUT.replace("3,", "\"3\",")).contains("at /jobs/0/iops stands no number"));
        assert!(told(&OUTPUT.replace("iops", "iop")).contains("there is nothing at /jobs/0/iops"));
        assert!(told(&OUTPUT.replace("18446744073709551615", "1.5")).contains("`1.5` is no whole number of bytes"));
        assert!(told(&OUTPUT.replace("18446744073709551615", "-1")).contains("`-1` is no whole number of bytes"));
        assert!(told(&"x".repeat(5000)).len() < 1000);
    }

    #[test]
    fn a_guest_is_told_where_the_program_lies() {
        let Workload::Command { command, deadline_ms } = spec().workload("mine", Arch::X86_64).unwrap() else {
            panic!()
        };
        assert_eq!((command.join(" ").as_str(), deadline_ms), ("/bin/x -v", 1000));
        let binary =
            Source::Binary(vec![bpfassay_tool::Binary { arch: Arch::Aarch64, path: "a".to_owned(), libraries: None }]);
        let spec = CommandSpec { source: binary, ..spec() };
        let Workload::Command { command, .. } = spec.workload("mine", Arch::Aarch64).unwrap() else { panic!() };
        // Never a tool's place: their names have no `_`.
        assert_eq!(command[0], "/tools/workload_mine/program");
        assert_eq!(spec.workload("mine", Arch::X86_64).unwrap_err(), "its file has no program for x86_64");
    }

    proptest! {
        #[test]
        fn any_output_is_survived(output: String) {
            let spec = spec();
            prop_assert!(spec.unreadable(&output).is_some());
        }
    }
}
