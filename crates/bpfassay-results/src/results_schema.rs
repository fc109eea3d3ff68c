// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published JSON schemas.

use schemars::Schema;

use crate::{Results, event::EventLine};

/// Returns the schema of `results.json`, as in `results/schema/results-v3.json`.
///
/// # Errors
/// Fails if the schema has no JSON form.
pub fn results_schema() -> Result<String, serde_json::Error> {
    let mut schema = schemars::schema_for!(Results);
    // `file::write` puts this key first.
    let digest = serde_json::json!({
        "description": "SHA-256, in hexadecimal, of all bytes of the file with zeros in the place of these digits. The first key of every file; \
                        absent from those of versions that had none.",
        "type": "string",
        "pattern": "^[0-9a-f]{64}$"
    });
    if let Some(properties) = schema.get_mut("properties").and_then(serde_json::Value::as_object_mut) {
        properties.insert("digest".to_owned(), digest);
    }
    text(schema, "Results of bpfassay")
}

/// Returns the schema of a line of `bpfassay run --message-format json`, as in
/// `results/schema/events-v3.json`.
///
/// # Errors
/// Fails if the schema has no JSON form.
pub fn events_schema() -> Result<String, serde_json::Error> {
    text(schemars::schema_for!(EventLine), "An event of bpfassay run")
}

fn text(mut schema: Schema, title: &str) -> Result<String, serde_json::Error> {
    schema.insert("title".to_owned(), title.into());
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
