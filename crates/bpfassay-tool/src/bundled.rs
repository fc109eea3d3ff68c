// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tools compiled into this crate: one tool file each (`tools/`), or a line of a program list
//! (`packages/`).
//!
//! The objects that tool files name are compiled into the bundled tracer. The tracer loads them by
//! name and reports their types (`bpfassay-tracer object --bundled`).

use std::sync::LazyLock;

use bpfassay_input::document::Invalid;

use crate::{
    file::{Source, ToolFile},
    read::program_list,
};

// Defines `TOOL_FILES` and `PROGRAM_LISTS`: pairs of name and text, sorted by name.
include!(concat!(env!("OUT_DIR"), "/bundled.rs"));

/// The tools of all program lists.
static PROGRAMS: LazyLock<Result<Vec<ToolFile>, Invalid>> = LazyLock::new(|| {
    let parse = |&(name, text): &(&str, &str)| program_list::parse(&format!("packages/{name}.toml"), text);
    Ok(PROGRAM_LISTS.iter().map(parse).collect::<Result<Vec<_>, _>>()?.concat())
});

/// Names of the tools with a tool file each, sorted.
pub fn with_files() -> impl Iterator<Item = &'static str> {
    TOOL_FILES.iter().map(|(name, _)| *name)
}

/// The tools of program lists, by package and then by name.
///
/// # Errors
/// [`Invalid`] if a program list is invalid, which a test excludes.
pub fn of_packages() -> Result<&'static [ToolFile], Invalid> {
    PROGRAMS.as_deref().map_err(Invalid::clone)
}

/// Names of all bundled tools; those with a tool file only, if a program list is invalid.
pub fn names() -> impl Iterator<Item = &'static str> {
    with_files().chain(PROGRAMS.iter().flatten().map(|tool| &*tool.name))
}

/// Returns the bundled tool `name`, if there is one.
///
/// # Errors
/// [`Invalid`] if its file is invalid, which a test excludes.
pub fn tool(name: &str) -> Result<Option<ToolFile>, Invalid> {
    let Some((_, text)) = TOOL_FILES.iter().find(|(known, _)| *known == name) else {
        return Ok(of_packages()?.iter().find(|tool| tool.name == name).cloned());
    };
    let mut file = ToolFile::parse(&format!("bundled tool {name}"), text)?;
    if let Source::Object(objects) = &mut file.source {
        objects.iter_mut().for_each(|object| object.bundled = true);
    }
    Ok(Some(file))
}
