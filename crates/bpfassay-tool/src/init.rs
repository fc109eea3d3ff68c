// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool file from a look at what it is to describe: an eBPF object, a bpftrace script, another
//! script, a program, or a page of metrics.
//!
//! Only what was seen is written as it is. What numbers mean cannot be seen: figures are proposals,
//! in lines that begin with `#` and no blank, so that without that sign they are a part of the
//! file. What is looked at is untrusted.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the program")]

mod bpftrace;
mod draft;
mod endpoint;
mod guess;
mod metrics;
mod object;
mod program;

use std::{
    io,
    path::{Path, PathBuf},
};

use bpfassay_input::document::Invalid;

use self::draft::Draft;
use crate::{ToolFile, bpftrace_script, elf};

/// Largest file that is looked at, in bytes.
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
    /// A tool file cannot name the source.
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
    /// The name of the source cannot stand in a tool file.
    #[error("the path {} cannot stand in a tool file: use at most 255 bytes of UTF-8 without control characters", path.display())]
    Path {
        /// The source.
        path: PathBuf,
    },
    /// It is nothing that a tool file can describe.
    #[error(
        "{} is no eBPF object, no program for an architecture of guests, no script that begins with `#!` or ends in .bt, and no page of metrics: {why}",
        path.display()
    )]
    Unknown {
        /// The source.
        path: PathBuf,
        /// What it is.
        why: String,
    },
    /// No guest can run it.
    #[error("{} {why}", path.display())]
    Unusable {
        /// The source.
        path: PathBuf,
        /// Why not, and what to do, as a predicate.
        why: String,
    },
    /// The endpoint is no URL that is asked.
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
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file that was written cannot be read as it was meant: a fault of this library.
    #[error("the tool file that was written is not valid: report it with the source")]
    Fault(#[source] Invalid),
}

/// The text of a tool file for `source`: a path, or the URL of an endpoint on this machine.
/// `folder` is the directory that the tool file will lie in; `None`: that of the source.
///
/// # Errors
/// [`InitError`] for what cannot be read, is nothing of a tool, or cannot be named in a tool file.
pub fn tool_file(source: &str, folder: Option<&Path>) -> Result<String, InitError> {
    let draft = if source.starts_with("http://") || source.starts_with("https://") {
        let (url, page) = endpoint::ask(source)?;
        metrics::draft(&format!("port-{}", url.port), source, Some(&url), &page)
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

/// What the file `path`, which the tool file names `named`, shows of itself.
fn look(path: &Path, named: &str, bytes: &[u8]) -> Result<Draft, InitError> {
    let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if elf::is_object(bytes) {
        return match elf::no_object(bytes, &[]) {
            None => Ok(object::draft(&stem, named, bytes)),
            Some(why) => Err(InitError::Unusable { path: path.to_owned(), why }),
        };
    }
    if let Some(arch) = elf::machine(bytes) {
        return match elf::no_program(bytes, arch) {
            None => Ok(program::draft(&stem, named, arch, bytes)),
            Some(why) => Err(InitError::Unknown { path: path.to_owned(), why: format!("it {why}") }),
        };
    }
    let unknown = |why: &str| InitError::Unknown { path: path.to_owned(), why: why.to_owned() };
    if bytes.starts_with(b"\x7fELF") {
        return Err(unknown("it is an ELF file for another machine"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| unknown("it is no text"))?;
    if bpftrace_script::is_script(&stem, text) {
        return Ok(bpftrace::draft(&stem, named, text));
    }
    if text.starts_with("#!") {
        return Ok(program::script(&stem, named, text));
    }
    if metrics::is_page(text) {
        return Ok(metrics::draft(&stem, named, None, text));
    }
    Err(unknown("it is a text of another kind"))
}

/// How a tool file in `folder` names the file `source`.
fn relative(source: &Path, folder: Option<&Path>) -> Result<String, InitError> {
    let real = |path: &Path| path.canonicalize().map_err(|source| InitError::Read { path: path.to_owned(), source });
    let path = match folder {
        None => PathBuf::from(source.file_name().unwrap_or(source.as_os_str())),
        Some(folder) => {
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            // A link stays a link: it is where it is that counts.
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
