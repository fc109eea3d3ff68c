// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places that users name: a directory or a URL.

use std::{fmt, path::PathBuf, str::FromStr};

/// A directory or URL with files: assets or packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AssetSource {
    /// A directory on this machine.
    Directory(PathBuf),
    /// The `http` or `https` URL of a directory, without a trailing slash.
    Url(String),
}

/// Why a text is neither a directory nor a URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a directory, or the URL of one (https://HOST/PATH, without user name, `?` and `#`)")]
pub struct NotAnAssetSource;

impl FromStr for AssetSource {
    type Err = NotAnAssetSource;

    fn from_str(text: &str) -> Result<Self, NotAnAssetSource> {
        if !text.contains("://") {
            return if text.is_empty() { Err(NotAnAssetSource) } else { Ok(Self::Directory(text.into())) };
        }
        if is_url(text) { Ok(Self::Url(text.trim_end_matches('/').to_owned())) } else { Err(NotAnAssetSource) }
    }
}

/// Whether [`AssetSource`] accepts `text` as the URL of a directory. The function is `const`, so
/// that the build can refuse a bad URL that is compiled in.
#[must_use]
pub const fn is_url(text: &str) -> bool {
    let mut at = match text.as_bytes() {
        [b'h', b't', b't', b'p', b's', b':', b'/', b'/', ..] => 8,
        [b'h', b't', b't', b'p', b':', b'/', b'/', ..] => 7,
        _ => return false,
    };
    let bytes = text.as_bytes();
    if at >= bytes.len() || !(bytes[at].is_ascii_alphanumeric() || bytes[at] == b'[') {
        return false;
    }
    while at < bytes.len() {
        // A user name can come with a password, and this URL goes into results.
        let is_special = matches!(
            bytes[at],
            b'@' | b'?' | b'#' | b'"' | b'\'' | b'\\' | b'<' | b'>' | b'`' | b'{' | b'}' | b'|' | b'^'
        );
        if is_special || !bytes[at].is_ascii_graphic() {
            return false;
        }
        at += 1;
    }
    true
}

impl fmt::Display for AssetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Url(url) => f.write_str(url),
        }
    }
}
