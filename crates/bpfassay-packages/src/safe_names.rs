// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of kernel releases and of packages. They come from untrusted files and become parts of
//! paths and of arguments.
//!
//! Each name begins with a letter or a digit and has no `/`. It is therefore one part of a path,
//! and never `.` or `..`. Names are parsed where they are read.

use std::{borrow::Cow, fmt, ops::Deref, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Longest name, in bytes. Names of Debian's packages have about 100.
const LONGEST: usize = 255;

/// The error for a text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no {what}: expected a letter or a digit, and then letters, digits and {punctuation}", text.escape_debug())]
pub struct NotAName {
    /// The first 64 characters of the text.
    text: String,
    what: &'static str,
    punctuation: &'static str,
}

fn parse(text: &str, what: &'static str, punctuation: &'static str, longest: usize) -> Result<String, NotAName> {
    let is_begin = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if is_begin && text.len() <= longest && text.chars().all(|c| c.is_ascii_alphanumeric() || punctuation.contains(c)) {
        return Ok(text.to_owned());
    }
    Err(NotAName { text: text.chars().take(64).collect(), what, punctuation })
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $punctuation:literal, $longest:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NotAName;

            fn from_str(text: &str) -> Result<Self, NotAName> {
                parse(text, $what, $punctuation, $longest).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = NotAName;

            fn try_from(text: String) -> Result<Self, NotAName> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                // `-` comes last in each set, as character classes require.
                json_schema!({"type": "string", "pattern": concat!("^[A-Za-z0-9][A-Za-z0-9", $punctuation, "]*$")})
            }
        }
    };
}

name!(
    /// The output of `uname -r`. The kernel has room for 64 bytes.
    KernelRelease, "kernel release", ".+~_-", 64
);
name!(
    /// The name of a package.
    PackageName, "name of a package", ".+~_-", LONGEST
);
name!(
    /// The version of a package, with epoch and revision if it has them.
    PackageVersion, "version of a package", ".+~:^_-", LONGEST
);
name!(
    /// The architecture of a package, as its distribution names it.
    PackageArchitecture, "architecture of a package", "_-", LONGEST
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_distributions_are_taken() {
        for release in ["6.1.0-50-amd64", "7.2.12+deb14-riscv64", "5.14.0-503.el9.x86_64", "6.12.0_1", "6.99.0-rc1~x"] {
            assert_eq!(release.parse::<KernelRelease>().unwrap(), release);
        }
        for version in ["1:7.2+dfsg-7+deb12u18+b3", "2:5.14.0-503.el9", "6.1~rc1^git1"] {
            assert_eq!(version.parse::<PackageVersion>().unwrap(), version);
        }
        for architecture in ["all", "amd64", "x86_64", "noarch"] {
            assert_eq!(architecture.parse::<PackageArchitecture>().unwrap(), architecture);
        }
        assert_eq!("kernel-default_x".parse::<PackageName>().unwrap().to_string(), "kernel-default_x");
    }

    #[test]
    fn no_name_leads_anywhere() {
        for text in ["", ".", "..", "/", "/etc", "../x", "a/b", "a/../b", "-o", "a b", "a\0", "a\u{202e}", "é", "a\n"]
        {
            assert!(text.parse::<KernelRelease>().is_err(), "{text:?}");
            assert!(text.parse::<PackageName>().is_err(), "{text:?}");
            assert!(text.parse::<PackageVersion>().is_err(), "{text:?}");
            assert!(text.parse::<PackageArchitecture>().is_err(), "{text:?}");
            let json = serde_json::to_string(text).unwrap();
            assert!(serde_json::from_str::<KernelRelease>(&json).is_err(), "{text:?}");
        }
        assert!("6".repeat(65).parse::<KernelRelease>().is_err());
        let error = "../\u{1b}x".parse::<KernelRelease>().unwrap_err().to_string();
        assert!(error.starts_with("`../\\u{1b}x` is no kernel release"), "{error}");
    }

    proptest! {
        #[test]
        fn every_name_is_one_part_of_a_path(text in "\\PC{0,6}|[a./]{0,4}") {
            if let Ok(name) = text.parse::<PackageVersion>() {
                let parts: Vec<_> = std::path::Path::new(name.as_str()).components().collect();
                prop_assert!(matches!(parts[..], [std::path::Component::Normal(part)] if part == text.as_str()));
            }
        }
    }
}
