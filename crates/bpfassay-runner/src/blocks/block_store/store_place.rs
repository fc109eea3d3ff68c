// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a user names a store of blocks.

use std::{fmt, path::PathBuf, str::FromStr};

use bpfassay_packages::apt::is_url;

/// The place of a store of blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorePlace {
    /// A directory of this machine.
    Directory(PathBuf),
    /// An object store without a slash at the end: `s3://BUCKET/PREFIX`, or the URL of a directory
    /// on a server that accepts files by HTTP.
    Url(Box<str>),
}

/// The text names neither a directory nor an object store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a directory, s3://BUCKET/PREFIX, or https://HOST/PATH; a URL has no user name, `?` and `#`, and credentials come from the environment"
)]
pub struct NotAStorePlace;

impl FromStr for StorePlace {
    type Err = NotAStorePlace;

    fn from_str(text: &str) -> Result<Self, NotAStorePlace> {
        if !text.contains("://") {
            return if text.is_empty() { Err(NotAStorePlace) } else { Ok(Self::Directory(text.into())) };
        }
        let text = text.trim_end_matches('/');
        let is_valid = match text.strip_prefix("s3://") {
            Some(rest) => bucket_and_prefix(rest).is_some(),
            None => is_url(text),
        };
        if is_valid { Ok(Self::Url(text.into())) } else { Err(NotAStorePlace) }
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Url(url) => f.write_str(url),
        }
    }
}

/// Splits the text after `s3://` into bucket and prefix. Prefixes are limited to characters that no
/// part of the protocol encodes.
pub(super) fn bucket_and_prefix(text: &str) -> Option<(&str, &str)> {
    let (bucket, prefix) = text.split_once('/').unwrap_or((text, ""));
    let is_of_bucket = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_part = |part: &str| !["", ".", ".."].contains(&part) && part.chars().all(is_plain);
    let is_bucket = (3..=63).contains(&bucket.len()) && bucket.chars().all(is_of_bucket);
    (is_bucket && (prefix.is_empty() || prefix.split('/').all(is_part))).then_some((bucket, prefix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_are_directories_and_plain_urls() {
        let of = |text: &str| text.parse::<StorePlace>();
        assert_eq!(of("blocks"), Ok(StorePlace::Directory("blocks".into())));
        assert_eq!(of("s3://my-bucket/ci/blocks/"), Ok(StorePlace::Url("s3://my-bucket/ci/blocks".into())));
        assert_eq!(bucket_and_prefix("my-bucket"), Some(("my-bucket", "")));
        assert_eq!(of("https://store.example/x"), Ok(StorePlace::Url("https://store.example/x".into())));
        for wrong in [
            "",
            "s3://",
            "s3://ab",
            "s3://Bucket/x",
            "s3://bucket//x",
            "s3://bucket/../x",
            "s3://bucket/a b",
            "s3://key:secret@bucket/x",
            "s3://bucket/x?versionId=1",
            "gs://bucket/x",
            "https://user:secret@store.example/x",
            "file:///srv/blocks",
        ] {
            assert_eq!(of(wrong), Err(NotAStorePlace), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_place_that_reads_back_or_none(text in "(s3://|https?://|)[ -~]{0,24}") {
            if let Ok(place) = text.parse::<StorePlace>() {
                prop_assert_eq!(place.to_string().parse(), Ok(place));
            }
        }
    }
}
