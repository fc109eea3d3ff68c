// SPDX-License-Identifier: MIT OR Apache-2.0
//! A badge, as JSON of the endpoint badge schema: a summary of the results in words.

use serde::Serialize;

use super::{
    format::ReportFormat,
    plain,
    result_summary::{Class, standing},
};
use bpfassay_results::Results;

pub(super) const FORMAT: ReportFormat = ReportFormat {
    name: "badge",
    about: "JSON of a badge for a README: what the results come to, in words",
    file: None,
    render: |results, _| Ok(badge(results)?.into()),
};

/// The longest name of a study in a badge, in characters.
const LONGEST_NAME: usize = 64;

/// Version 1 of the endpoint badge schema.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Badge {
    schema_version: u32,
    label: String,
    message: String,
    color: &'static str,
}

/// Renders `results` as a badge.
///
/// # Errors
/// [`serde_json::Error`], which texts never cause.
pub fn badge(results: &Results) -> Result<String, serde_json::Error> {
    let standing = standing(results);
    let badge = Badge {
        schema_version: 1,
        label: format!("bpfassay {}", plain::excerpt(&results.plan.title(), LONGEST_NAME)),
        message: standing.words,
        color: match standing.class {
            Class::Good => "brightgreen",
            Class::Neutral => "lightgrey",
            Class::Open => "yellow",
            Class::Bad => "red",
        },
    };
    Ok(plain::json(&serde_json::to_string_pretty(&badge)?).into_owned() + "\n")
}
