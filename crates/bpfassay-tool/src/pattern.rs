// SPDX-License-Identifier: MIT OR Apache-2.0
//! Regular expressions of tool files. Their size is bounded, and matching takes linear time.

use std::borrow::Cow;

use regex_lite::{Regex, RegexBuilder};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Length limit of a regular expression, in bytes.
const MAX_LENGTH: usize = 2000;
/// Size limit of a compiled pattern, in bytes: a tenth of the default in `regex-lite`.
const MAX_COMPILED: usize = 1 << 20;

/// A regular expression in the syntax of the crate `regex-lite`, which guests use, too.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename = "Pattern", try_from = "String", into = "String")]
pub struct ToolPattern(Regex);

impl ToolPattern {
    /// The compiled form.
    #[must_use]
    pub const fn regex(&self) -> &Regex {
        &self.0
    }

    /// Lists the named groups.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.0.capture_names().flatten()
    }
}

impl PartialEq for ToolPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for ToolPattern {}

impl std::str::FromStr for ToolPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MAX_LENGTH {
            return Err(format!("a regular expression has from 1 to {MAX_LENGTH} bytes, this one {}", text.len()));
        }
        let compiled = RegexBuilder::new(text).size_limit(MAX_COMPILED).build();
        compiled.map(Self).map_err(|error| format!("no regular expression: {error}"))
    }
}

impl TryFrom<String> for ToolPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ToolPattern> for String {
    fn from(pattern: ToolPattern) -> Self {
        pattern.0.as_str().to_owned()
    }
}

impl JsonSchema for ToolPattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": MAX_LENGTH,
            "description": "A regular expression in the syntax of the crate `regex-lite`."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_bounded_and_errors_name_what_is_wrong() {
        let wrong = |text: &str| text.parse::<ToolPattern>().unwrap_err();
        assert_eq!(wrong("a(b"), "no regular expression: found open group without closing ')'");
        assert!(wrong(&"a".repeat(MAX_LENGTH + 1)).contains("from 1 to 2000 bytes"));
        assert!(wrong(r"(\w{500}){500}").contains("size"));
        let pattern: ToolPattern = r"^(?<calls>\d+) (\S+) (?P<name>\S+)$".parse().unwrap();
        assert_eq!(pattern.groups().collect::<Vec<_>>(), ["calls", "name"]);
        let json = serde_json::to_string(&pattern).unwrap();
        assert_eq!(serde_json::from_str::<ToolPattern>(&json).unwrap(), pattern);
        assert!(serde_json::from_str::<ToolPattern>("\"(\"").is_err());
    }
}
