// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of studies in the repository, measured in real guests.

use std::{fs, io::Read as _, path::PathBuf};

use bpfassay_results::Results;
use lzma_rust2::XzReader;

/// Returns the directory with the results and the report of `study`.
pub(crate) fn folder_of(study: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../results")).join(study)
}

pub(crate) fn results_of(study: &str) -> Results {
    bpfassay_results::file::read(&folder_of(study)).unwrap()
}

pub(crate) fn text_of(study: &str) -> String {
    let packed = fs::read(folder_of(study).join("results.json.xz")).unwrap();
    let mut text = String::new();
    XzReader::new(packed.as_slice(), false).read_to_string(&mut text).unwrap();
    text
}

pub(crate) fn folder() -> PathBuf {
    folder_of("quick")
}

pub(crate) fn results() -> Results {
    results_of("quick")
}
