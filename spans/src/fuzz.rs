// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry points to the readers of untrusted bytes, only for fuzzing (`tests/fuzzed.rs`, and `fuzz/`
//! beside this workspace). Each function passes its input to one reader and asserts what must
//! always hold for the result.

use std::collections::BTreeSet;

use crate::{
    assemble::{Assembler, ClockOffset, FILE},
    bytes::Family,
    darshan, library, process,
    span::Span,
    witness::{self, ComparedFigures, Line},
};

/// Records of the ring buffer, each after its length in two bytes.
///
/// # Panics
/// If spans are not sound, or a call is lost.
pub fn events(mut bytes: &[u8]) {
    let mut assembler = Assembler::new([7; 16], ClockOffset { offset: 1 }, vec![Family::Mpich, Family::OpenMpi], Some);
    let mut spans: Vec<Span> = Vec::new();
    let mut records = 0_u64;
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let (record, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
        assembler.take(record, &mut |span| spans.push(span));
        records += 1;
        bytes = rest;
    }
    assembler.finish(&mut |span| spans.push(span));
    let seen = assembler.seen();
    assert!(seen.calls + seen.system_calls + seen.malformed <= records);
    let count = |is: fn(&str) -> bool| spans.iter().filter(|span| is(span.name)).count() as u64;
    assert_eq!(count(|name| name == FILE), seen.files);
    assert_eq!(count(|name| name.starts_with("MPI_File_")), seen.calls);
    assert_eq!(spans.len() as u64, seen.files + seen.calls + seen.system_calls);
    for span in &spans {
        assert!(span.begin <= span.end && span.id != [0; 8] && span.trace != [0; 16]);
        let names: BTreeSet<&str> = span.attributes.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), span.attributes.len());
    }
}

/// The symbols of a library.
///
/// # Panics
/// Only if a reader panics.
pub fn library(elf: &[u8]) {
    let _ = library::symbols(elf);
}

/// `/proc/PID/environ`.
///
/// # Panics
/// Only if a reader panics.
pub fn environment(bytes: &[u8]) {
    let _ = process::rank_in(bytes);
}

/// Output of `darshan-parser`.
///
/// # Panics
/// If a log with bytes equals no spans.
pub fn darshan(text: &[u8]) {
    let Ok(log) = darshan::read(text) else { return };
    let (equal, read, written) = sums(&witness::SpanCalls::default(), &log);
    assert_eq!((read.spans, written.spans), (0, 0));
    assert_eq!(equal, read.darshan == Some(0) && written.darshan == Some(0));
}

/// Spans in the format of a collector.
///
/// # Panics
/// If spans with bytes equal an empty log.
pub fn otlp(text: &[u8]) {
    let Ok(calls) = witness::read(text) else { return };
    let (equal, read, written) = sums(&calls, &darshan::Log::default());
    assert!(!equal || (read.spans, written.spans) == (0, 0));
}

/// Returns the last line of a comparison.
fn sums(calls: &witness::SpanCalls, log: &darshan::Log) -> (bool, ComparedFigures, ComparedFigures) {
    match witness::compare(calls, log).pop() {
        Some(Line::Compared { equal, read, written, .. }) => (equal, read, written),
        other => unreachable!("the last line has the sums: {other:?}"),
    }
}
