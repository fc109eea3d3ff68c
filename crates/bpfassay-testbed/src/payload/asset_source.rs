// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sources of the guest's programs as assets: a directory or a URL (`--from`).

use std::{
    fmt, io,
    path::{Path, PathBuf},
    str::FromStr,
};

use crate::{Error, Result, apt::Apt};

/// A directory or URL with assets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetSource {
    /// A directory of this machine.
    Directory(PathBuf),
    /// The URL of a directory, `http` or `https`, without a slash at its end.
    Url(String),
}

/// A text that is neither a directory nor a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a directory, or the URL of one (https://HOST/PATH, without user name, `?` and `#`)")]
pub struct NotAnAssetSource;

impl FromStr for AssetSource {
    type Err = NotAnAssetSource;

    fn from_str(text: &str) -> Result<Self, NotAnAssetSource> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return if text.is_empty() { Err(NotAnAssetSource) } else { Ok(Self::Directory(text.into())) };
        };
        // A user name may come with a password, and what is named here goes into results.
        let is_plain = |c: char| c.is_ascii_graphic() && !"@?#\"'\\<>`{}|^".contains(c);
        let rest = rest.trim_end_matches('/');
        let has_host = rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[');
        if !["http", "https"].contains(&scheme) || !has_host || !rest.chars().all(is_plain) {
            return Err(NotAnAssetSource);
        }
        Ok(Self::Url(format!("{scheme}://{rest}")))
    }
}

impl fmt::Display for AssetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Url(url) => f.write_str(url),
        }
    }
}

impl AssetSource {
    /// The file `name` in this source, which has `limit` bytes at most; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Io`] for a directory that does not exist and a file that cannot be read; those of downloading.
    pub(super) fn read(&self, apt: &Apt<'_>, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Directory(directory) => read_in(directory, name, limit),
            Self::Url(url) => apt.read_url(&format!("{url}/{name}"), limit),
        }
    }

    /// The path or URL of the file `name` in this source, for messages.
    pub(super) fn of_file(&self, name: &str) -> String {
        format!("{self}/{name}")
    }
}

fn read_in(directory: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
    match bpfassay_input::read_beneath(directory, Path::new(name), limit) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && directory.is_dir() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::io("find", directory)(error)),
        Err(error) => Err(Error::io("read", directory.join(name))(error)),
    }
}
