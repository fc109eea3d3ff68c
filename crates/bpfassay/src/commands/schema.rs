// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay generate schema`: prints the JSON schemas of files.

use crate::{
    cli::{Schema, SchemaOf},
    exit::{CommandFailure, CommandOutcome, INTERNAL, SUCCESS},
};

/// Executes the command.
///
/// # Errors
/// An infrastructure failure, if the schema cannot be printed.
pub(crate) fn schema(arguments: &Schema) -> CommandOutcome {
    let text = match arguments.file {
        SchemaOf::Events => bpfassay_results::results_schema::events_schema(),
        SchemaOf::Results => bpfassay_results::results_schema::results_schema(),
        SchemaOf::Manifest => {
            serde_json::to_string_pretty(&bpfassay_testbed::manifest::Manifest::schema()).map(|text| text + "\n")
        }
    };
    super::print(&text.map_err(|error| CommandFailure::new(INTERNAL, error))?)?;
    Ok(SUCCESS)
}
