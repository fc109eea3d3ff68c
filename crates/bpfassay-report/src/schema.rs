//! The published JSON schemas.

use schemars::Schema;

use crate::{Event, Results};

/// The schema of `results.json`, as the text of the file `results/schema/results-v1.json` of the project.
///
/// # Errors
/// If the schema has no JSON form.
pub fn results_schema() -> Result<String, serde_json::Error> {
    text(schemars::schema_for!(Results), "Results of bpfassay")
}

/// The schema of a line of `bpfassay run --message-format json`, as the text of the file `results/schema/events-v1.json` of
/// the project.
///
/// # Errors
/// If the schema has no JSON form.
pub fn events_schema() -> Result<String, serde_json::Error> {
    text(schemars::schema_for!(Event), "An event of bpfassay run")
}

fn text(mut schema: Schema, title: &str) -> Result<String, serde_json::Error> {
    schema.insert("title".to_owned(), title.into());
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
