// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the largest possible plan once, on real files: `cargo run --release -p bpfassay-report
//! --example scale [RUNS]`.
//!
//! One process writes the journal of a made-up study of 200,000 runs in 15,000 cells; a second one
//! reads it, derives the results and renders them in every format. It prints what each step took,
//! and the most memory that the second process ever held.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for measuring: it fails by panicking, and prints what it measured"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{env, fs, path::Path, process::Command, time::Instant};

use bpfassay_protocol::Arch;
use bpfassay_report::{
    derive_all,
    render::{Style, csv, html, junit, markdown, openmetrics, text},
};
use bpfassay_results::{Journal, JournalContents, file};
use bpfassay_study::{Study, Target, WorkloadSpec};
use common::{
    contents,
    measured::{peak_mib, processor_s, timed},
    outcome, study,
};

/// 100 kernels with `runs` / 4000 workloads each; five boots of two rounds, which have the
/// baseline, the control and two probe configurations.
fn large(runs: usize) -> Study {
    let mut study = study(None, 2, 5);
    study.targets = (1..=100).map(|patch| Target { arch: Arch::X86_64, kernel: format!("6.18.{patch}") }).collect();
    let workload = study.workloads[0].clone();
    study.workloads =
        (1..=runs / 4000).map(|number| WorkloadSpec { name: format!("w{number}"), ..workload.clone() }).collect();
    study
}

fn measure(directory: &Path) {
    let of_text = |text: &String| text.len() as u64;
    let of_file = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
    let since = Instant::now();
    let contents =
        timed("read the journal", || JournalContents::read(directory).unwrap(), |_| of_file("journal.jsonl"));
    let results = timed("derive", || derive_all(contents), |_| 0);
    timed("write results.json", || file::write(directory, &results).unwrap(), |_| of_file("results.json"));
    timed("text", || text(&results, Style::default()), of_text);
    timed("html", || html(&results).unwrap(), of_text);
    timed("junit", || junit(&results).unwrap(), of_text);
    timed("csv", || csv(&results).unwrap(), of_text);
    timed("markdown", || markdown(&results), of_text);
    timed("openmetrics", || openmetrics(&results), of_text);
    println!(
        "{} runs, {} cells: {:.2} s, of a processor {:.2} s, peak {} MiB",
        results.runs.len(),
        results.cells.len(),
        since.elapsed().as_secs_f64(),
        processor_s(),
        peak_mib()
    );
    drop(results);
    timed("read results.json", || file::read(directory).unwrap(), |_| of_file("results.json"));
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [what, directory] = arguments.as_slice()
        && what == "measure"
    {
        measure(Path::new(directory));
        return;
    }
    let runs = arguments.first().map_or(200_000, |runs| runs.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let study = large(runs);
    let contents = timed("make up the journal", || contents(&study, outcome), |_| 0);
    let mut journal = Journal::create(folder.path(), &contents.header).unwrap();
    let append = || contents.entries.iter().for_each(|entry| journal.append(entry).unwrap());
    timed("write the journal", append, |()| 0);
    drop(contents);
    if env::var_os("KEEP").is_some() {
        println!("{}", folder.keep().display());
        return;
    }
    let again = Command::new(env::current_exe().unwrap()).arg("measure").arg(folder.path()).status().unwrap();
    assert!(again.success());
}
