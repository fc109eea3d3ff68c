// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads pprof's profiles by the description in `profile.proto`, independently of the code that
//! writes them.

use std::{collections::BTreeMap, io::Read as _};

/// The parts of a profile that tests check.
pub(crate) struct Profile {
    pub(crate) texts: Vec<String>,
    pub(crate) sample_types: Vec<[String; 2]>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) time_nanos: u64,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Sample {
    /// Names of functions, the outermost first.
    pub(crate) stack: Vec<String>,
    pub(crate) values: Vec<i64>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// A field of a message, by its encoding.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn number(&self) -> u64 {
        let Self::Number(number) = self else { panic!("bytes where a number belongs") };
        *number
    }

    fn message(&self) -> Vec<(u64, Field<'a>)> {
        let Self::Bytes(bytes) = self else { panic!("a number where a message belongs") };
        fields(bytes)
    }

    /// Returns the values of a repeated number, packed or not.
    fn numbers(&self) -> Vec<u64> {
        match *self {
            Self::Number(number) => vec![number],
            Self::Bytes(mut bytes) => {
                let mut numbers = Vec::new();
                while !bytes.is_empty() {
                    numbers.push(varint(&mut bytes));
                }
                numbers
            }
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let length = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    let (own, rest) = bytes.split_at(length);
    *bytes = rest;
    assert!(own.len() <= 10);
    own.iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f))
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(own)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

/// Returns the only field `number` of a message; `None` if it has its default.
fn only<'f, 'a>(message: &'f [(u64, Field<'a>)], number: u64) -> Option<&'f Field<'a>> {
    let mut found = message.iter().filter(|(field, _)| *field == number);
    let first = found.next();
    assert!(found.next().is_none(), "field {number} comes twice");
    first.map(|(_, field)| field)
}

fn number(message: &[(u64, Field<'_>)], field: u64) -> u64 {
    only(message, field).map_or(0, Field::number)
}

/// Reads the profile in `file`; panics if it breaks a rule of the format.
pub(crate) fn read(file: &[u8]) -> Profile {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let profile = fields(&bytes);
    let all = |number: u64| profile.iter().filter(move |(field, _)| *field == number).map(|(_, field)| field);
    let text = |field: &Field<'_>| match field {
        Field::Bytes(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Field::Number(_) => panic!("a number in the table of texts"),
    };
    let texts: Vec<String> = all(6).map(text).collect();
    assert_eq!(texts.first().map(String::as_str), Some(""), "the first text is empty");
    let text = |index: u64| texts[index as usize].clone();
    let by_id = |number: u64| {
        let mut found = BTreeMap::new();
        for part in all(number).map(Field::message) {
            let id = self::number(&part, 1);
            assert!(id != 0 && found.insert(id, part).is_none(), "an identifier is used twice, or is 0");
        }
        found
    };
    let (locations, functions) = (by_id(4), by_id(5));
    let name = |location: u64| {
        let line = only(&locations[&location], 4).unwrap().message();
        text(number(&functions[&number(&line, 1)], 2))
    };
    let sample = |field: &Field<'_>| {
        let sample = field.message();
        let numbers = |number: u64| {
            sample
                .iter()
                .filter(|(field, _)| *field == number)
                .flat_map(|(_, field)| field.numbers())
                .collect::<Vec<_>>()
        };
        let labels = sample.iter().filter(|(field, _)| *field == 3).map(|(_, label)| {
            let label = label.message();
            (text(number(&label, 1)), text(number(&label, 2)))
        });
        Sample {
            stack: numbers(1).into_iter().rev().map(name).collect(),
            values: numbers(2).into_iter().map(u64::cast_signed).collect(),
            labels: labels.collect(),
        }
    };
    let pair = |field: &Field<'_>| [1, 2].map(|field_of_pair| text(number(&field.message(), field_of_pair)));
    let sample_types: Vec<[String; 2]> = all(1).map(pair).collect();
    let samples: Vec<Sample> = all(2).map(sample).collect();
    assert!(samples.iter().all(|sample| sample.values.len() == sample_types.len()), "a value for each type");
    Profile { sample_types, samples, time_nanos: number(&profile, 9), texts }
}
