// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors in options and scripts.

/// Arguments or a script are not options of IOR that this project accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// There is no such option.
    #[error("unknown IOR option `{option}`")]
    UnknownOption {
        /// The option as given.
        option: String,
    },
    /// IOR has the option, but this project does not support it.
    #[error("IOR option `{option}` is not supported: remove it")]
    Unsupported {
        /// The option.
        option: String,
    },
    /// The option needs a value but has none.
    #[error("IOR option `{option}` needs a value")]
    MissingValue {
        /// The option.
        option: String,
    },
    /// The option does not accept the value.
    #[error("IOR option `{option}`: `{value}` is not {expected}")]
    BadValue {
        /// The option.
        option: String,
        /// The value as given.
        value: String,
        /// A description of correct values.
        expected: &'static str,
    },
    /// A flag that may be given only once. IOR counts flags, and often treats 2 as `off`.
    #[error("IOR flag `{flag}` is given twice: once is enough, and IOR takes two for something else")]
    FlagTwice {
        /// The flag.
        flag: String,
    },
    /// A value without a space before it: IOR reads its letters as flags, too.
    #[error("IOR option `{argument}`: put a space before the value, IOR reads its letters as flags too")]
    Attached {
        /// The argument as given.
        argument: String,
    },
    /// The text is not `key=value`.
    #[error("`{text}` is not a directive: write key=value, several separated by commas")]
    Directive {
        /// The text as given.
        text: String,
    },
    /// Options that contradict each other or that no test can meet.
    #[error("{rule}")]
    Rule {
        /// The rule broken.
        rule: &'static str,
    },
    /// A line of a script is wrong.
    #[error("line {line} of the script")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// The error in the line.
        #[source]
        source: Box<OptionsError>,
    },
    /// A test of a script breaks a rule.
    #[error("test {test}")]
    Test {
        /// Index of the test, from 0.
        test: usize,
        /// The broken rule.
        #[source]
        source: Box<OptionsError>,
    },
    /// The script has no start.
    #[error("the script has no line `IOR START`")]
    NoStart,
    /// The script is too long.
    #[error("the script is longer than {limit} {what}")]
    TooLong {
        /// The limit.
        limit: usize,
        /// The unit of the limit.
        what: &'static str,
    },
    /// `-f` was given, but no text of the script.
    #[error("the options name a script (`-f {script}`), whose text was not given")]
    ScriptMissing {
        /// The script's name.
        script: String,
    },
}

impl OptionsError {
    pub(crate) fn bad(option: &str, value: &str, expected: &'static str) -> Self {
        Self::BadValue { option: shown(option), value: shown(value), expected }
    }
}

/// Truncates `text` for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
