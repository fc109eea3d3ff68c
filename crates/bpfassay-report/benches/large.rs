// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures how long it takes to resume and to report a study of 10,000 runs, and to report the
//! largest one, of 200,000: `cargo bench -p bpfassay-report`. The example `scale` does the latter
//! once on real files, and measures the memory.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;

use bpfassay_protocol::Arch;
use bpfassay_report::{
    derive, derive_all,
    render::{Style, csv, html, junit, markdown, openmetrics, text},
    to_do,
};
use bpfassay_results::{Again, Journal, JournalContents, file};
use bpfassay_study::{Target, WorkloadSpec};
use common::{contents, outcome, study};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

/// 25 kernels on x86_64, 20 boots each, 5 rounds of the baseline, its control and two probe
/// configurations.
fn large() -> JournalContents {
    let mut study = study(None, 5, 20);
    study.targets = (1..=25).map(|patch| Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") }).collect();
    let contents = contents(&study, outcome);
    assert_eq!(contents.header.plan.blocks.iter().map(|block| block.runs.len()).sum::<usize>(), 10_000);
    contents
}

fn resume(criterion: &mut Criterion) {
    let contents = large();
    let folder = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(folder.path(), &contents.header).unwrap();
    for entry in &contents.entries {
        journal.append(entry).unwrap();
    }
    drop(journal);
    let mut group = criterion.benchmark_group("10,000 runs");
    group.sample_size(10);
    group.bench_function("read the journal, find what is to do", |bencher| {
        bencher.iter(|| {
            let contents = JournalContents::read(folder.path()).unwrap();
            assert!(black_box(to_do(&contents, Again::Host)).is_empty());
        });
    });
    group.bench_function("derive", |bencher| bencher.iter(|| derive(black_box(&contents))));
    group.finish();
}

fn render(criterion: &mut Criterion) {
    let results = derive(&large());
    let folder = tempfile::tempdir().unwrap();
    let mut group = criterion.benchmark_group("10,000 runs");
    group.sample_size(10);
    group.bench_function("write results.json", |bencher| {
        bencher.iter(|| file::write(folder.path(), black_box(&results)).unwrap());
    });
    group.bench_function("read results.json", |bencher| bencher.iter(|| file::read(folder.path()).unwrap()));
    group.bench_function("html", |bencher| bencher.iter(|| html(black_box(&results)).unwrap()));
    group.bench_function("text", |bencher| bencher.iter(|| text(black_box(&results), Style::default())));
    group.bench_function("markdown", |bencher| bencher.iter(|| markdown(black_box(&results))));
    group.bench_function("junit", |bencher| bencher.iter(|| junit(black_box(&results)).unwrap()));
    group.bench_function("openmetrics", |bencher| bencher.iter(|| openmetrics(black_box(&results))));
    group.bench_function("csv", |bencher| bencher.iter(|| csv(black_box(&results)).unwrap()));
    group.finish();
}

/// Measures the largest plan: 100 kernels, 50 workloads, five boots of two rounds.
fn largest(criterion: &mut Criterion) {
    let mut study = study(None, 2, 5);
    study.targets = (1..=100).map(|patch| Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") }).collect();
    let workload = study.workloads[0].clone();
    study.workloads = (1..=50).map(|number| WorkloadSpec { name: format!("w{number}"), ..workload.clone() }).collect();
    let results = derive_all(contents(&study, outcome));
    assert_eq!((results.runs.len(), results.cells.len()), (200_000, 15_000));
    let mut group = criterion.benchmark_group("200,000 runs");
    group.sample_size(10);
    group.bench_function("results.json", |bencher| bencher.iter(|| file::digest(black_box(&results)).unwrap()));
    group.bench_function("html", |bencher| bencher.iter(|| html(black_box(&results)).unwrap()));
    group.bench_function("text", |bencher| bencher.iter(|| text(black_box(&results), Style::default())));
    group.bench_function("csv", |bencher| bencher.iter(|| csv(black_box(&results)).unwrap()));
    drop(results);
    // `derive_all` consumes its input, so each iteration gets new input, outside the measured time.
    group.bench_function("derive", |bencher| {
        bencher.iter_batched(|| contents(&study, outcome), derive_all, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, resume, render, largest);
criterion_main!(benches);
