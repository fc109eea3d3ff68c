// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::{
    event::tests::{call_record, system_record},
    functions::FUNCTIONS,
};

fn assembler() -> Assembler<impl FnMut(u32) -> Option<u32>> {
    Assembler::new([7; 16], ClockOffset { offset: 1000 }, vec![Family::Mpich], |process| process.checked_sub(67))
}

/// The flags for status and handle.
const READ: u32 = 1 | 4;

fn spans(records: &[Vec<u8>]) -> (Vec<Span>, Seen) {
    let mut assembler = assembler();
    let mut spans = Vec::new();
    for record in records {
        assembler.take(record, &mut |span| spans.push(span));
    }
    assembler.finish(&mut |span| spans.push(span));
    (spans, assembler.seen())
}

fn attribute<'a>(span: &'a Span, name: &str) -> Option<&'a AttributeValue> {
    span.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
}

fn opened(begin: u64) -> Vec<u8> {
    call_record(2, "open", begin, begin + 10, 4 | 8, b"/scratch/a\0")
}

fn number(short: &str) -> u32 {
    u32::try_from(FUNCTIONS.iter().position(|function| function.short == short).unwrap()).unwrap()
}

#[test]
fn a_file_is_a_tree() {
    let records = [
        call_record(1, "init", 1, 2, 0, b""),
        opened(10),
        system_record(1, number("write_at"), 35, 30, 25),
        call_record(1, "write_at", 30, 50, READ, b""),
        call_record(1, "close", 60, 70, 4, b""),
    ];
    let (spans, seen) = spans(&records);
    let names: Vec<&str> = spans.iter().map(|span| span.name).collect();
    assert_eq!(names, ["MPI_File_open", "write", "MPI_File_write_at", "MPI_File_close", FILE]);
    let [open, system, write, close, file] = &spans[..] else { panic!() };
    assert!(spans.iter().all(|span| span.trace == file.trace));
    assert_eq!(file.parent, None);
    for call in [open, write, close] {
        assert_eq!(call.parent, Some(file.id));
    }
    assert_eq!(system.parent, Some(write.id));
    assert_eq!((file.begin, file.end, write.begin, system.end), (1010, 1070, 1030, 1045));
    assert_eq!(attribute(file, "file.path"), Some(&AttributeValue::Text("/scratch/a".into())));
    assert_eq!(attribute(file, "mpi.io.bytes.written"), Some(&AttributeValue::Number(25)));
    assert_eq!(attribute(file, "mpi.io.calls"), Some(&AttributeValue::Number(3)));
    assert_eq!(attribute(file, "mpi.io.closed"), Some(&AttributeValue::Flag(true)));
    assert_eq!(attribute(write, "mpi.io.offset"), Some(&AttributeValue::Number(4096)));
    assert_eq!(attribute(write, "mpi.io.bytes.moved"), Some(&AttributeValue::Number(25)));
    assert_eq!(attribute(system, "syscall.result"), Some(&AttributeValue::Number(25)));
    assert!(spans.iter().all(|span| attribute(span, "mpi.rank") == Some(&AttributeValue::Number(3))));
    assert_eq!(seen, Seen { calls: 3, files: 1, system_calls: 1, bytes: 25, ..Seen::default() });
}

#[test]
fn without_the_opening_a_call_is_a_trace_of_its_own() {
    let records = [
        system_record(0, number("read_at"), 35, 30, 25),
        call_record(1, "read_at", 30, 50, READ, b""),
        call_record(1, "read_at", 80, 90, READ, b""),
    ];
    let (spans, seen) = spans(&records);
    let [system, first, second] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((first.parent, system.parent, system.trace), (None, Some(first.id), first.trace));
    assert_ne!(first.trace, second.trace);
    assert_eq!((seen.calls_without_file, seen.files), (2, 0));
}

#[test]
fn what_was_read_while_opening_belongs_to_the_opening() {
    let (spans, _) = spans(&[
        // A system call inside a call without a handle.
        {
            let mut record = system_record(0, number("open"), 12, 10, 25);
            record[32..40].fill(0);
            record
        },
        opened(10),
    ]);
    assert_eq!((spans[0].parent, spans[0].trace), (Some(spans[1].id), spans[1].trace));
}

#[test]
fn an_opening_that_fails_is_no_file() {
    let mut failed = opened(10);
    failed[120..124].copy_from_slice(&35i32.to_ne_bytes());
    let (spans, seen) = spans(&[failed]);
    assert_eq!((spans.len(), spans[0].failed, spans[0].parent), (1, true, None));
    assert_eq!(attribute(&spans[0], "mpi.result"), Some(&AttributeValue::Number(35)));
    assert_eq!((seen.calls, seen.files), (1, 0));
}

#[test]
fn files_that_are_not_closed_are_reported_as_such() {
    let not_closed = |records: &[Vec<u8>]| {
        let (spans, seen) = spans(records);
        let files: Vec<&Span> = spans.iter().filter(|span| span.name == FILE).collect();
        assert!(files.iter().all(|span| attribute(span, "mpi.io.closed") == Some(&AttributeValue::Flag(false))));
        assert_eq!(files.len() as u64, seen.files_not_closed);
        seen.files_not_closed
    };
    assert_eq!(not_closed(&[opened(10)]), 1, "at the end");
    assert_eq!(not_closed(&[opened(10), opened(30)]), 2, "the same handle again");
    assert_eq!(
        not_closed(&[opened(10), call_record(1, "init", 50, 60, 0, b""), opened(70)]),
        2,
        "the same process again"
    );
}

#[test]
fn records_of_no_program_are_counted() {
    let mut unknown = call_record(1, "read_at", 5, 9, 5, b"");
    unknown[128] = 1;
    let (spans, seen) = spans(&[vec![1, 2, 3], unknown]);
    assert_eq!((spans.len(), seen.malformed), (0, 2));
}

#[test]
fn bytes_that_are_not_known_are_counted() {
    let mut derived = call_record(1, "write_at", 5, 9, 4, b"");
    // The fifth argument is a datatype whose handle does not tell the size.
    derived[72..80].copy_from_slice(&0x8c00_0000u64.to_ne_bytes());
    let (spans, seen) = spans(&[derived]);
    assert_eq!(attribute(&spans[0], "mpi.io.bytes.moved"), None);
    assert_eq!((seen.bytes, seen.calls_of_unknown_bytes), (0, 1));
}

/// A step of a program: kind of record, length, handle, function.
fn record() -> impl Strategy<AttributeValue = (u8, u64, u64, usize)> {
    (0..5u8, 0..1000u64, 0..3u64, 4..FUNCTIONS.len())
}

proptest! {
    /// Any records: span identifiers are unique, ends follow begins, children share traces.
    #[test]
    fn any_order_of_records_gives_sound_spans(steps in proptest::collection::vec(record(), 0..60)) {
        let mut time = 10;
        let records: Vec<Vec<u8>> = steps.iter().map(|&(kind, length, handle, function)| {
            let begin = time;
            time += length + 2;
            let mut record = match kind {
                0 => opened(begin),
                1 => call_record(1, "close", begin, begin + length, 4, b""),
                2 => call_record(1, "init", begin, begin + length, 0, b""),
                3 => system_record(0, 4, begin, begin.saturating_sub(1), -1),
                _ => call_record(1, FUNCTIONS[function].short, begin, begin + length, READ, b""),
            };
            record[32..40].copy_from_slice(&handle.to_ne_bytes());
            record
        }).collect();
        let (spans, seen) = spans(&records);
        let ids: BTreeSet<_> = spans.iter().map(|span| span.id).collect();
        prop_assert_eq!(ids.len(), spans.len());
        for span in &spans {
            prop_assert!(span.begin <= span.end);
            let names: BTreeSet<_> = span.attributes.iter().map(|(name, _)| name).collect();
            prop_assert_eq!(names.len(), span.attributes.len());
            // OpenTelemetry forbids a name that is the namespace of another name. Receivers that
            // build trees of names keep only one of the two.
            let is_namespace = |name: &str| names.iter().any(|other| other.starts_with(&format!("{name}.")));
            prop_assert!(names.iter().all(|name| !is_namespace(name)), "{names:?}");
            if let Some(parent) = span.parent.and_then(|id| spans.iter().find(|other| other.id == id)) {
                prop_assert!(parent.begin <= span.begin);
                prop_assert!(parent.trace == span.trace || parent.name != FILE);
            }
        }
        let count = |name: &str| spans.iter().filter(|span| span.name == name).count() as u64;
        prop_assert_eq!(spans.iter().filter(|span| span.name.starts_with("MPI_File_")).count() as u64, seen.calls);
        prop_assert_eq!(count(FILE), seen.files);
        prop_assert_eq!(count("read"), seen.system_calls);
        prop_assert_eq!(seen.malformed, 0);
    }

    #[test]
    fn no_bytes_make_it_panic(records: Vec<Vec<u8>>) {
        let (spans, seen) = spans(&records);
        prop_assert!(spans.len() as u64 <= records.len() as u64 * 2);
        prop_assert!(seen.malformed <= records.len() as u64);
    }
}
