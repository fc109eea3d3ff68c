//! The results of the study `quick` that the repository holds, as real guests gave them.

use std::{fs, io::Read as _, path::PathBuf};

use bpfassay_report::Results;
use lzma_rust2::XzReader;

/// Where they lie, with the report made of them.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/quick"))
}

pub(crate) fn results() -> Results {
    let packed = fs::read(folder().join("results.json.xz")).unwrap();
    let mut text = String::new();
    XzReader::new(packed.as_slice(), false).read_to_string(&mut text).unwrap();
    serde_json::from_str(&text).unwrap()
}
