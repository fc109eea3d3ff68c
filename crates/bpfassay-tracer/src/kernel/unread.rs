// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the kernel that cannot be read.

use std::{fmt::Display, io};

/// A file that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Path of the file.
    pub(crate) what: &'static str,
    /// The system's error message.
    pub(crate) why: String,
}

/// Returns a function that makes an error the reason why the file `what` is unread.
pub(crate) fn unread<E: Display>(what: &'static str) -> impl Fn(E) -> Unread {
    move |error| Unread { what, why: error.to_string() }
}

/// Returns the result of `read` for the first of `paths` that can be read. If none can, the error
/// is the one of the first path.
///
/// # Errors
/// None of `paths` can be read.
pub(crate) fn first<T>(paths: &[&'static str], read: impl Fn(&'static str) -> io::Result<T>) -> Result<T, Unread> {
    let mut failure = None;
    for path in paths {
        match read(path) {
            Ok(text) => return Ok(text),
            Err(error) if failure.is_none() => failure = Some(unread(path)(error)),
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or(Unread { what: "", why: "nowhere to look".to_owned() }))
}
