// SPDX-License-Identifier: MIT OR Apache-2.0
//! Direct costs as a profile for pprof and other viewers of its files: the message `Profile` of
//! pprof's `profile.proto`, compressed.

use std::{
    collections::HashMap,
    io::{self, Write as _},
};

use flate2::{Compression, write::GzEncoder};

use super::{collapsed::CALLS, format::ReportFormat, plain};
use bpfassay_results::{Figure, Results};

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "pprof",
    about: "Direct costs as a profile, for pprof and other viewers of its files",
    file: Some("direct.pb.gz"),
    render: |results, _| Ok(pprof(results)?.into()),
};

/// Renders the direct costs of `results` as one profile. Each function is a sample. Its value is
/// the number of instructions in 1000 calls of the workload, because values are integers. The stack
/// is the probe configuration, the role, and the function. The labels are `target`, `case`,
/// `file_system`, `probe` and `metric`. Functions without counts are left out.
///
/// # Errors
/// [`io::Error`], which writing into memory never causes.
pub fn pprof(results: &Results) -> io::Result<Vec<u8>> {
    let mut profile = ProfileBuilder::default();
    let sample_type = profile.pair("instructions_per_1000_calls", "count");
    profile.message.part(1, &sample_type);
    for cell in &results.cells {
        for metric in &cell.metrics {
            let Some(Figure::Value(direct)) = &metric.direct else { continue };
            let (target, under_test) = (cell.target.to_string(), cell.under_test());
            let labels = [
                ("target", target.as_str()),
                ("case", &cell.case),
                ("file_system", &cell.file_system),
                ("probe", &under_test),
                ("metric", &metric.name),
            ];
            let labels = labels.map(|(key, value)| profile.pair(key, value));
            for function in &direct.functions {
                let mut sample = Message::default();
                // The innermost frame comes first.
                for frame in [function.function.as_str(), &function.role.to_string(), &under_test] {
                    sample.number(1, profile.location(frame));
                }
                sample.number(2, ((function.per_call * CALLS).round() as i64).cast_unsigned());
                labels.iter().for_each(|label| sample.part(3, label));
                profile.message.part(2, &sample);
            }
        }
    }
    let about = format!("study {}: instructions on the paths of probes in 1000 calls", results.plan.study.name);
    let about = profile.text(&about);
    profile.message.number(13, about);
    profile.message.number(9, results.started_unix_ms.saturating_mul(1_000_000));
    let mut file = GzEncoder::new(Vec::new(), Compression::default());
    file.write_all(&profile.finished().0)?;
    file.finish()
}

/// A profile under construction, and its string table.
struct ProfileBuilder {
    message: Message,
    texts: Vec<String>,
    numbers: HashMap<String, u64>,
    /// Locations by the text of their only line.
    locations: HashMap<u64, u64>,
}

impl Default for ProfileBuilder {
    fn default() -> Self {
        // The first string of the table is empty.
        let (texts, numbers) = (vec![String::new()], HashMap::from([(String::new(), 0)]));
        Self { message: Message::default(), texts, numbers, locations: HashMap::new() }
    }
}

impl ProfileBuilder {
    fn text(&mut self, text: &str) -> u64 {
        let text = plain::line(text).into_owned();
        let next = self.texts.len() as u64;
        *self.numbers.entry(text).or_insert_with_key(|text| {
            self.texts.push(text.clone());
            next
        })
    }

    /// Encodes a `ValueType` of type and unit, or a `Label` of key and text: both have these
    /// fields.
    fn pair(&mut self, first: &str, second: &str) -> Message {
        let mut pair = Message::default();
        pair.number(1, self.text(first));
        pair.number(2, self.text(second));
        pair
    }

    /// Returns the identifier of the location in the function `name`, which is also the function's
    /// identifier.
    fn location(&mut self, name: &str) -> u64 {
        let name = self.text(name);
        let next = self.locations.len() as u64 + 1;
        *self.locations.entry(name).or_insert_with(|| {
            let (mut function, mut line, mut location) = (Message::default(), Message::default(), Message::default());
            function.number(1, next);
            function.number(2, name);
            line.number(1, next);
            location.number(1, next);
            location.part(4, &line);
            self.message.part(4, &location);
            self.message.part(5, &function);
            next
        })
    }

    fn finished(mut self) -> Message {
        self.texts.iter().for_each(|text| self.message.bytes(6, text.as_bytes()));
        self.message
    }
}

/// A message in the encoding of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn part(&mut self, field: u64, part: &Self) {
        self.bytes(field, &part.0);
    }
}
