// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs each reader of untrusted bytes with its corpus and mutations, as crates/bpfassay-fuzz does
//! for the other crates. A panic, an overflow, or an input that takes too much time or memory is a
//! failure. `fuzz/` has the same readers for libFuzzer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../crates/bpfassay-fuzz/src/mutate.rs"]
mod mutate;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    time::Duration,
};

use bpfassay_spans::fuzz;
use rustix::{
    process::{Resource, Rlimit, setrlimit},
    time::{ClockId, clock_gettime},
};

/// Maximum input length in bytes. Longer inputs are truncated, and mutations stay below it.
const MAX_INPUT: usize = 64 << 10;
/// Maximum processor time of an input, in a program without optimisation.
const MOST_TIME: Duration = Duration::from_secs(1);
/// Maximum memory of the whole program in bytes. The program ends beyond it.
const MOST_MEMORY: u64 = 2 << 30;

/// Passes `count` inputs to `reader`: files, all files in directories, and mutations of them.
fn fuzz(reader: fn(&[u8]), count: u64, places: &[&str]) {
    setrlimit(Resource::As, Rlimit { current: Some(MOST_MEMORY), maximum: None }).unwrap();
    let mut corpus = Vec::new();
    for place in places {
        for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(place)) {
            let mut input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            input.truncate(MAX_INPUT);
            corpus.push(input);
        }
    }
    assert!(!corpus.is_empty(), "{places:?} hold nothing to begin with");
    for number in 0..count {
        let input = mutate::input(&corpus, 1, number);
        let before = processor_time();
        let outcome = catch_unwind(AssertUnwindSafe(|| reader(&input)));
        let taken = processor_time().saturating_sub(before);
        assert!(outcome.is_ok() && taken <= MOST_TIME, "input {number}, after {taken:?}: {}", input.escape_ascii());
    }
}

/// Returns the file at `place`, or the files in the directory, sorted by name.
fn files(place: &Path) -> Vec<PathBuf> {
    if !place.is_dir() {
        return vec![place.to_owned()];
    }
    let mut files: Vec<PathBuf> = fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Returns the time of this thread, which other programs on the machine do not affect.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

#[test]
fn events() {
    fuzz(fuzz::events, 1000, &["tests/corpus/events"]);
}

#[test]
fn library() {
    let objects = ["../crates/bpfassay-tool/tests/data/counts.bpf.o", "../crates/bpfassay-btf/tests/data/reads.bpf.o"];
    fuzz(fuzz::library, 4000, &objects);
}

#[test]
fn environment() {
    fuzz(fuzz::environment, 6000, &["tests/corpus/environment"]);
}

#[test]
fn darshan() {
    fuzz(fuzz::darshan, 100, &["tests/darshan/parsed.txt"]);
}

#[test]
fn otlp() {
    fuzz(fuzz::otlp, 40, &["tests/darshan/otlp.jsonl"]);
}
