// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads paths and names. None of them can lead outside its directory.

use std::path::{Component, Path};

use bpfassay_input::document::{Field, Reported};

/// Longest path, in bytes.
const MAX_PATH: usize = 255;

/// Reads a path below the tool file's directory.
///
/// # Errors
/// [`Reported`] if the value is not such a path. The complaint is in the document.
pub(super) fn relative(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = plain(field)?;
    if Path::new(text).components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(text.to_owned());
    }
    Err(field.error("give a path below the directory that this begins at: no `/` at the front, no `.` and no `..`"))
}

/// Reads the path of a program in the guest.
///
/// # Errors
/// [`Reported`] if the value is not such a path. The complaint is in the document.
pub(super) fn in_the_guest(field: &Field<'_, '_>) -> Result<String, Reported> {
    absolute(field, "give a program by its absolute path in the guest, without `..`")
}

/// Reads the path of a mount point in the guest.
///
/// # Errors
/// [`Reported`] if the value is not such a path. The complaint is in the document.
pub(super) fn mount_point(field: &Field<'_, '_>) -> Result<String, Reported> {
    absolute(field, "give a mount point by its absolute path in the guest, without `..`; not `/` itself")
}

fn absolute(field: &Field<'_, '_>, otherwise: &str) -> Result<String, Reported> {
    let text = plain(field)?;
    let mut parts = Path::new(text).components();
    let is_absolute = parts.next() == Some(Component::RootDir);
    if is_absolute && text.len() > 1 && parts.all(|part| matches!(part, Component::Normal(_))) {
        return Ok(text.trim_end_matches('/').to_owned());
    }
    Err(field.error(otherwise))
}

fn plain<'d>(field: &Field<'d, '_>) -> Result<&'d str, Reported> {
    let text = field.text()?;
    if (1..=MAX_PATH).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text);
    }
    Err(field.error(format!("give a path of at most {MAX_PATH} bytes")))
}

/// Reads the name of a Debian package or suite (Debian Policy, 5.6.1; the same rule is used for
/// suites).
///
/// # Errors
/// [`Reported`] if the value is empty or too long, looks like an option, or has other characters.
/// The complaint is in the document.
pub(super) fn package(field: &Field<'_, '_>) -> Result<String, Reported> {
    named(field, "lower-case letters, digits, `+`, `-` and `.`", |c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '+' | '-' | '.')
    })
}

/// Reads the attribute of a Nix package.
///
/// # Errors
/// [`Reported`] if the value is empty or too long, looks like an option, or has other characters.
/// The complaint is in the document.
pub(super) fn attribute(field: &Field<'_, '_>) -> Result<String, Reported> {
    named(field, "letters, digits, `_`, `-` and `.`", |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

fn named(field: &Field<'_, '_>, of: &str, may_be: impl Fn(char) -> bool) -> Result<String, Reported> {
    let text = field.text()?;
    // A program that gets this name would parse it as an option.
    let is_option = text.starts_with('-');
    if (1..=100).contains(&text.len()) && !is_option && text.chars().all(may_be) {
        return Ok(text.to_owned());
    }
    Err(field.error(format!("use at most 100 {of}")))
}

/// Reads a command-line argument, or the value of an environment variable.
///
/// # Errors
/// [`Reported`] if the value is too long or has a NUL. The complaint is in the document.
pub(super) fn argument(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    // The text can be a bpftrace program with line feeds.
    if text.len() <= 4096 && !text.contains('\0') {
        return Ok(text.to_owned());
    }
    Err(field.error("give a text of at most 4096 bytes, without NUL"))
}
