// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places that users name: a directory or a URL.

use std::{fmt, path::PathBuf, str::FromStr};

/// A directory or URL with files: assets, packages.
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
