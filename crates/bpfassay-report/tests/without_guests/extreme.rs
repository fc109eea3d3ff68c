// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whatever numbers a guest reports, figures follow or are missing with a reason, and results can
//! be written in every format: nothing overflows.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use bpfassay_report::{
    derive,
    render::{Style, csv, html, junit, markdown, openmetrics, text},
};
use bpfassay_results::{JournalContents, JournalEntry, Outcome, file};
use bpfassay_study::Clock;
use proptest::prelude::*;
use serde::Deserialize as _;
use serde_json::Value;

use crate::common::{contents, matrix, outcome, paths, sample, study};

/// Extreme numbers, and some in between.
const EXTREMES: [u64; 9] =
    [0, 1, u64::MAX, u64::MAX - 1, i64::MAX as u64, i64::MAX as u64 + 1, u32::MAX as u64, 1 << 53, 1_000_000_000];

/// Replaces numbers by those that `draw` returns.
fn shake(value: &mut Value, draw: &mut dyn FnMut() -> Option<u64>) {
    match value {
        Value::Number(number) if number.is_u64() || number.is_i64() => {
            if let Some(other) = draw() {
                *value = other.into();
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| shake(value, draw)),
        Value::Object(values) => values.values_mut().for_each(|value| shake(value, draw)),
        _ => {}
    }
}

/// Changes numbers of `outcome`, one part after the other, as long as it remains a valid outcome:
/// error numbers and counts of programs have fewer bits.
fn shaken(outcome: &Outcome, seed: u64, one_in: u64) -> Outcome {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let drawn = usize::try_from(state >> 40).unwrap();
        (drawn as u64).is_multiple_of(one_in).then(|| EXTREMES[drawn / 64 % EXTREMES.len()])
    };
    let Value::Object(mut parts) = serde_json::to_value(outcome).unwrap() else { return outcome.clone() };
    for key in parts.keys().cloned().collect::<Vec<_>>() {
        let mut changed = parts.clone();
        shake(&mut changed[&key], &mut draw);
        let changed = Value::Object(changed);
        if Outcome::deserialize(&changed).is_ok()
            && let Value::Object(changed) = changed
        {
            parts = changed;
        }
    }
    serde_json::from_value(Value::Object(parts)).unwrap()
}

fn shaken_all(mut contents: JournalContents, seed: u64, one_in: u64) -> JournalContents {
    for (index, entry) in contents.entries.iter_mut().enumerate() {
        if let JournalEntry::Run(record) = entry {
            let seed = seed.wrapping_add(index as u64);
            record.outcome = shaken(&record.outcome, seed, one_in);
            record.duration_ms = EXTREMES[usize::try_from(seed % 9).unwrap()];
            record.started_unix_ms = EXTREMES[usize::try_from(seed / 9 % 9).unwrap()];
        }
    }
    contents
}

/// Creates a journal with samples, statistics of programs, and an end of the tracer.
fn rich(clock: Clock) -> JournalContents {
    let mut study = study(Some("2s"), 2, 2);
    study.clock = clock;
    study.design.bpf_stats = true;
    let mut contents = contents(&study, outcome);
    for entry in &mut contents.entries {
        if let JournalEntry::Run(record) = entry
            && let Outcome::Measured(figures) = &mut record.outcome
            && !figures.probe.is_baseline()
        {
            figures.samples = vec![sample(1_500_000_000, None, 1 << 22, 0), sample(3_500_000_000, None, 1 << 23, 0)];
            for reading in [&mut figures.whole.before, &mut figures.whole.after] {
                reading.idle_ns = Some(reading.monotonic_ns / 2);
            }
        }
    }
    contents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_number_of_a_guest_overflows(seed: u64, one_in in 1_u64..8, kind in 0..4_usize) {
        let contents = match kind {
            0 => rich(Clock::Wall),
            1 => rich(Clock::Instructions),
            2 => contents(&matrix::study(""), matrix::outcome),
            _ => paths::contents_of_paths(),
        };
        let results = derive(&shaken_all(contents, seed, one_in));
        file::digest(&results).unwrap();
        html(&results).unwrap();
        junit(&results).unwrap();
        csv(&results).unwrap();
        for written in [text(&results, Style::default()), markdown(&results), openmetrics(&results)] {
            prop_assert!(!written.is_empty());
        }
    }
}
