// SPDX-License-Identifier: MIT OR Apache-2.0
//! Default sources of packages, for users and hosts that name none. Environment variables of the
//! build compile these URLs in; the sources name no server.

use bpfassay_packages::apt::{Defaults, is_url};

/// A mirror of Debian's archive.
const MIRROR: Option<&str> = place(
    option_env!("BPFASSAY_DEFAULT_MIRROR"),
    "BPFASSAY_DEFAULT_MIRROR is no URL of a mirror: https://HOST/PATH, without user name, `?` and `#`",
);

/// An archive of snapshots.
const ARCHIVE: Option<&str> = place(
    option_env!("BPFASSAY_DEFAULT_ARCHIVE"),
    "BPFASSAY_DEFAULT_ARCHIVE is no URL of an archive: https://HOST/PATH, without user name, `?` and `#`",
);

/// Returns the value of a variable, or `None` if it is unset or empty. This is evaluated in
/// constants, so the build fails on a value that is not a URL.
const fn place(value: Option<&'static str>, refusal: &'static str) -> Option<&'static str> {
    match value {
        Some(text) if !text.is_empty() => {
            assert!(is_url(text), "{}", refusal);
            Some(text)
        }
        _ => None,
    }
}

/// Returns the defaults that were compiled in.
pub(crate) fn compiled_in() -> Defaults {
    let parsed = |text: &str| text.parse().ok();
    let without_slash = |text: &str| text.trim_end_matches('/').to_owned();
    Defaults { mirror: MIRROR.map(without_slash), archive: ARCHIVE.and_then(parsed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_none_and_what_is_no_url_is_refused() {
        assert_eq!((place(None, "x"), place(Some(""), "x")), (None, None));
        let url = "https://mirror.example/debian/";
        assert_eq!(place(Some(url), "x"), Some(url));
        for wrong in
            ["mirror.example/debian", "/srv/debian", "ftp://mirror.example/debian", "https://user:pass@mirror.example"]
        {
            let refused = std::panic::catch_unwind(|| place(Some(wrong), "refused")).unwrap_err();
            assert_eq!(refused.downcast_ref::<String>().map(String::as_str), Some("refused"), "{wrong}");
        }
    }
}
