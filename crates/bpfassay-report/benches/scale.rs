// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the time and memory that large results need, with runs of a realistic size: `cargo
//! bench -p bpfassay-report --bench scale [-- RUNS...]`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program for measuring: it fails by panicking, and prints what it measured"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::{env, fs, path::Path, process::Command};

use bpfassay_report::{
    Streamed, derive_in,
    render::{Style, html, text},
};
use bpfassay_results::OpenDirectory;
use common::{
    measured::{peak_mib, processor_s, timed},
    replicated::Replicated,
};

/// Measures reading, deriving and writing of the journal in `directory`, which has `planned` runs.
fn measure(directory: &Path, planned: usize) {
    let of_file = |name: &str| fs::metadata(directory.join(name)).unwrap().len();
    let directory_of = OpenDirectory::open(directory).unwrap();
    let journal = |_: &Streamed| of_file("journal.jsonl");
    let streamed = timed("read and derive", || derive_in(&directory_of).unwrap(), journal);
    timed("write results.json", || streamed.write_in(&directory_of).unwrap(), |_| of_file("results.json"));
    println!("{}", timed("fingerprint", || streamed.fingerprint().unwrap(), |_| 0));
    let results = streamed.results;
    timed("text", || text(&results, Style::default()), |text| text.len() as u64);
    timed("html", || html(&results).unwrap(), |text| text.len() as u64);
    assert_eq!((results.runs.len(), results.cells.len()), (planned, 24));
    let (used, peak) = (processor_s(), peak_mib());
    println!("{planned} runs, {} cells: of processors {used:.2} s, peak {peak} MiB", results.cells.len());
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |runs: &String| runs.parse::<usize>().unwrap();
    match arguments.as_slice() {
        [what, runs, directory] if what == "measure" => return measure(Path::new(directory), number(runs)),
        [what, runs, directory] if what == "write" => return Replicated::new(number(runs)).write(Path::new(directory)),
        _ => {}
    }
    let asked: Vec<usize> = arguments.iter().map(number).collect();
    for &runs in if asked.is_empty() { &[3_600, 18_000, 200_000][..] } else { &asked } {
        let folder = tempfile::tempdir().unwrap();
        let large = Replicated::new(runs);
        large.write(folder.path());
        // A process of its own measures the memory of reading, deriving and writing alone.
        let planned = large.plan.runs().count().to_string();
        let mut again = Command::new(env::current_exe().unwrap());
        assert!(again.args(["measure", &planned]).arg(folder.path()).status().unwrap().success());
    }
}
