// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published schema: the file is current, and results conform to it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::path::Path;

use bpfassay_report::derive;
use bpfassay_results::{
    ResultsError, file,
    results_schema::{events_schema, results_schema},
};

use crate::common::{contents, outcome, quick, study};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/schema");

fn published(name: &str) -> String {
    std::fs::read_to_string(Path::new(FOLDER).join(name)).unwrap()
}

/// `BPFASSAY_UPDATE_SCHEMA=1 cargo test -p bpfassay-report` rewrites the files.
#[test]
fn the_published_files_are_current() {
    for (name, schema) in [("results-v3.json", results_schema()), ("events-v3.json", events_schema())] {
        let schema = schema.unwrap();
        if std::env::var_os("BPFASSAY_UPDATE_SCHEMA").is_some() {
            std::fs::create_dir_all(FOLDER).unwrap();
            std::fs::write(Path::new(FOLDER).join(name), &schema).unwrap();
        }
        assert!(
            published(name) == schema,
            "results/schema/{name} is not what the types say: run BPFASSAY_UPDATE_SCHEMA=1 cargo test -p bpfassay-report"
        );
    }
}

#[test]
fn results_keep_to_the_schema() {
    let schema = serde_json::from_str(&published("results-v3.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let results = derive(&contents(&study(Some("2s"), 2, 2), outcome));
    let value = serde_json::to_value(&results).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");

    // Check that the schema refuses wrong results.
    for (pointer, wrong) in [
        ("/version", serde_json::json!("1")),
        ("/cells/0/probe", serde_json::json!(7)),
        ("/cells/0/metrics/0/value", serde_json::json!(0)),
        ("/cells/0/metrics/0/overhead", serde_json::json!({"value": null})),
        ("/cells/0/attach", serde_json::json!({"outcome": "maybe"})),
        ("/plan/study/targets/0/arch", serde_json::json!("arm")),
    ] {
        let mut changed = value.clone();
        *changed.pointer_mut(pointer).unwrap() = wrong;
        assert!(!validator.is_valid(&changed), "{pointer}");
    }
}

/// Earlier versions wrote the results in the repository.
#[test]
fn results_of_earlier_versions_keep_to_the_schema() {
    let schema = serde_json::from_str(&published("results-v3.json")).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let results: serde_json::Value = serde_json::from_str(&quick::text_of("quick")).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&results).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn results_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let written = derive(&contents(&study(None, 2, 1), outcome));
    let path = file::write(folder.path(), &written).unwrap();
    assert_eq!(file::read(&path).unwrap(), written);
    assert_eq!(file::read(folder.path()).unwrap(), written);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["results.json"]);

    let text = std::fs::read_to_string(&path).unwrap();
    let keys: serde_json::Value = serde_json::from_str(&text).unwrap();
    let schema = serde_json::from_str(&published("results-v3.json")).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&keys) && keys["digest"].is_string());
    file::write(folder.path(), &bpfassay_results::Results { version: 9, ..written }).unwrap();
    assert!(matches!(file::read(&path), Err(ResultsError::Version { found: 9, .. })));
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(matches!(file::read(&path), Err(ResultsError::Damaged { .. })));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(file::read(&path), Err(ResultsError::Io { .. })));
}
