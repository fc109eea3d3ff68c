//! The published JSON schema of `results.json`.

use crate::Results;

/// The schema, as the text of the file `results/schema/results-v1.json` of the project.
///
/// # Errors
/// If the schema has no JSON form.
pub fn results_schema() -> Result<String, serde_json::Error> {
    let mut schema = schemars::schema_for!(Results);
    schema.insert("title".to_owned(), "Results of bpfassay".into());
    let mut text = serde_json::to_string_pretty(&schema)?;
    text.push('\n');
    Ok(text)
}
