// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can be wrong with options and scripts.

/// Why arguments or a script are not options of IOR that this project accepts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// No option is called so.
    #[error("unknown IOR option `{option}`")]
    UnknownOption {
        /// The option as given.
        option: String,
    },
    /// IOR has the option, this project does not.
    #[error("IOR option `{option}` is not supported: remove it")]
    Unsupported {
        /// The option.
        option: String,
    },
    /// The option needs a value and has none.
    #[error("IOR option `{option}` needs a value")]
    MissingValue {
        /// The option.
        option: String,
    },
    /// The value is not what the option takes.
    #[error("IOR option `{option}`: `{value}` is not {expected}")]
    BadValue {
        /// The option.
        option: String,
        /// The value as given.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A flag that means something only once: IOR counts, and then often takes 2 for `off`.
    #[error("IOR flag `{flag}` is given twice: once is enough, and IOR takes two for something else")]
    FlagTwice {
        /// The flag.
        flag: String,
    },
    /// A value glued to its option: IOR reads its letters as flags too.
    #[error("IOR option `{argument}`: put a space before the value, IOR reads its letters as flags too")]
    Attached {
        /// The argument as given.
        argument: String,
    },
    /// Not `key=value`.
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
    /// Something is wrong in a line of a script.
    #[error("line {line} of the script")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong.
        #[source]
        source: Box<OptionsError>,
    },
    /// A test of a script breaks a rule.
    #[error("test {test}")]
    Test {
        /// Index of the test, from 0.
        test: usize,
        /// What is wrong.
        #[source]
        source: Box<OptionsError>,
    },
    /// The script has no beginning.
    #[error("the script has no line `IOR START`")]
    NoStart,
    /// The script is too big.
    #[error("the script is longer than {limit} {what}")]
    TooLong {
        /// How much is allowed.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
    /// `-f` was given, and no text for it.
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

/// `text` cut to a length that a message can hold.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
