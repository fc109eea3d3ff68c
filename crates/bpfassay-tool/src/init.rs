// SPDX-License-Identifier: MIT OR Apache-2.0
//! Drafts a tool file for an eBPF object, a bpftrace script, another script, a program, or a page
//! of metrics.
//!
//! Active lines have observed facts. The meaning of numbers cannot be observed, so figures are
//! proposals: lines that begin with `#` and no blank. Removing the `#` activates such a line. The
//! source is untrusted.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the program")]

mod bpftrace_draft;
mod draft;
mod endpoint_draft;
mod guess;
mod metrics_draft;
mod object_draft;
mod program_draft;

use std::{
    io,
    path::{Path, PathBuf},
};

use bpfassay_input::document::Invalid;

use self::draft::ToolDraft;
use crate::{bpftrace_script, elf, file::ToolFile};

/// Size limit of the source, in bytes.
const MAX_SOURCE: u64 = 256 << 20;

/// Why no tool file can be written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The source cannot be read.
    #[error("cannot read {}: check that it exists, is a regular file, and may be read", path.display())]
    Read {
        /// The source.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A tool file in this directory cannot name the source.
    #[error(
        "{} is not below {}, the directory of the tool file, and paths in a tool file cannot leave it: write the tool file beside it",
        path.display(),
        folder.display()
    )]
    Elsewhere {
        /// The source.
        path: PathBuf,
        /// The directory of the tool file.
        folder: PathBuf,
    },
    /// The source's path cannot be written in a tool file.
    #[error("the path {} cannot stand in a tool file: use at most 255 bytes of UTF-8 without control characters", path.display())]
    Path {
        /// The source.
        path: PathBuf,
    },
    /// A tool file cannot describe this kind of source.
    #[error(
        "{} is no eBPF object, no program for an architecture of guests, no script that begins with `#!` or ends in .bt, and no page of metrics: {why}",
        path.display()
    )]
    Unknown {
        /// The source.
        path: PathBuf,
        /// The kind of source that it is.
        why: String,
    },
    /// No guest can run the source.
    #[error("{} {why}", path.display())]
    Unusable {
        /// The source.
        path: PathBuf,
        /// The problem and its solution, as a predicate.
        why: String,
    },
    /// The URL is not supported.
    #[error("cannot ask {url}: give http://127.0.0.1:PORT/PATH, an endpoint on this machine")]
    Url {
        /// The URL.
        url: String,
    },
    /// The endpoint does not answer.
    #[error("cannot ask {url}: check that the tool runs here and listens there")]
    Endpoint {
        /// The URL.
        url: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The draft is not a valid tool file: a fault of this library.
    #[error("the tool file that was written is not valid: report it with the source")]
    Fault(#[source] Invalid),
}

/// Drafts a tool file for `source`, which is a path or the URL of an endpoint on this machine.
/// `folder` is the directory of the new tool file; `None` for the source's directory.
///
/// # Errors
/// [`InitError`] if the source cannot be read, is not a tool, or cannot be named in a tool file.
pub fn tool_file(source: &str, folder: Option<&Path>) -> Result<String, InitError> {
    let draft = if source.starts_with("http://") || source.starts_with("https://") {
        let (url, page) = endpoint_draft::ask(source)?;
        metrics_draft::draft(&format!("port-{}", url.port), source, Some(&url), &page)
    } else {
        let path = Path::new(source);
        let bytes = bpfassay_input::read(path, MAX_SOURCE)
            .map_err(|source| InitError::Read { path: path.to_owned(), source })?;
        look(path, &relative(path, folder)?, &bytes)?
    };
    let text = draft.text();
    ToolFile::parse("the new tool file", &text).map_err(InitError::Fault)?;
    Ok(text)
}

/// Drafts a tool file for the file `path`, which the tool file calls `named`.
fn look(path: &Path, named: &str, bytes: &[u8]) -> Result<ToolDraft, InitError> {
    let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if elf::is_object(bytes) {
        return match elf::no_object(bytes, &[]) {
            None => Ok(object_draft::draft(&stem, named, bytes)),
            Some(why) => Err(InitError::Unusable { path: path.to_owned(), why }),
        };
    }
    if let Some(arch) = elf::machine(bytes) {
        return match elf::no_program(bytes, arch) {
            None => Ok(program_draft::draft(&stem, named, arch, bytes)),
            Some(why) => Err(InitError::Unknown { path: path.to_owned(), why: format!("it {why}") }),
        };
    }
    let unknown = |why: &str| InitError::Unknown { path: path.to_owned(), why: why.to_owned() };
    if elf::is_elf(bytes) {
        return Err(unknown("it is an ELF file for another machine"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| unknown("it is no text"))?;
    if bpftrace_script::is_script(&stem, text) {
        return Ok(bpftrace_draft::draft(&stem, named, text));
    }
    if text.starts_with("#!") {
        return Ok(program_draft::script(&stem, named, text));
    }
    if metrics_draft::is_page(text) {
        return Ok(metrics_draft::draft(&stem, named, None, text));
    }
    Err(unknown("it is a text of another kind"))
}

/// Path of the file `source` relative to a tool file in `folder`.
fn relative(source: &Path, folder: Option<&Path>) -> Result<String, InitError> {
    let real = |path: &Path| path.canonicalize().map_err(|source| InitError::Read { path: path.to_owned(), source });
    let path = match folder {
        None => PathBuf::from(source.file_name().unwrap_or(source.as_os_str())),
        Some(folder) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            // A symbolic link is not resolved: only its own location counts.
            let parent = source.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let place = real(parent)?.join(source.file_name().unwrap_or_default());
            let elsewhere = || InitError::Elsewhere { path: source.to_owned(), folder: folder.to_owned() };
            place.strip_prefix(real(folder)?).map_err(|_| elsewhere())?.to_owned()
        }
    };
    let text = path.to_str().filter(|text| (1..=255).contains(&text.len()) && !text.contains(char::is_control));
    text.map(str::to_owned).ok_or_else(|| InitError::Path { path: source.to_owned() })
}

#[cfg(test)]
mod tests;
