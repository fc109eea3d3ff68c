// SPDX-License-Identifier: MIT OR Apache-2.0
//! Targets: pairs of an architecture and a kernel.

use std::{cmp::Ordering, fmt};

use bpfassay_input::document::{Field, Reported};
use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An architecture and a kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// Kernel name in the catalogue (`6.1`, `7.2`, or the build `6.12.43`), not a release string. A
    /// study that was just read can also have a pattern: `6.12.*` for every build of 6.12, `*` for
    /// every build of all series.
    pub kernel: String,
}

impl Target {
    /// Part of cell, block and run ids: `x86_64_6.1`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}_{}", self.arch, self.kernel)
    }

    /// Whether the kernel is a pattern.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.kernel.ends_with('*')
    }

    /// Whether this pattern matches the kernel `name`.
    #[must_use]
    pub fn stands_for(&self, name: &str) -> bool {
        // The dot stays, so that 6.1.* does not match 6.12.43.
        self.kernel.strip_suffix('*').is_some_and(|beginning| name.starts_with(beginning))
    }
}

impl fmt::Display for Target {
    /// Prints `x86_64 6.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.arch, self.kernel))
    }
}

/// Compares names of kernels by version: numbers by value, a release candidate before its release
/// (7.3-rc before 7.3).
#[must_use]
pub fn by_version(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| -> Vec<(u8, u64, String)> {
        let mut parts = Vec::new();
        for part in name.split(['.', '-', '+', '~']) {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(digits);
            match number.parse() {
                Ok(number) => parts.push((2, number, rest.to_owned())),
                Err(_) if part.starts_with("rc") => {
                    parts.push((0, rest.trim_start_matches("rc").parse().unwrap_or(0), String::new()));
                }
                Err(_) => parts.push((3, 0, part.to_owned())),
            }
        }
        // The end of a name sorts after a release candidate and before anything else.
        parts.push((1, 0, String::new()));
        parts
    };
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

/// Checks a kernel name or pattern.
///
/// # Errors
/// A message if `name` is neither a valid pattern nor a valid name.
pub(crate) fn check_kernel_pattern(name: &str) -> Result<(), String> {
    match name.strip_suffix('*') {
        Some("") => Ok(()),
        Some(series) if series.ends_with('.') => check_kernel_name(series),
        Some(_) => Err(format!(
            "`{}` is no pattern: `6.12.*` matches every build of 6.12, `*` for all",
            name.chars().take(64).collect::<String>()
        )),
        None => check_kernel_name(name),
    }
}

/// Checks a kernel name. Kernel names become parts of file names and ids.
///
/// # Errors
/// A message that says why `name` is invalid.
pub(crate) fn check_kernel_name(name: &str) -> Result<(), String> {
    let valid = (1..=64).contains(&name.len())
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '~' | '-'));
    if valid {
        return Ok(());
    }
    Err(format!(
        "`{}` cannot be a kernel name: use letters, digits, `.`, `+`, `~` and `-`, at most 64, a letter or digit first",
        name.chars().take(64).collect::<String>()
    ))
}

/// Reads a kernel name from a field.
///
/// # Errors
/// [`Reported`] if the value is not text or not a valid kernel name. The complaint is in the
/// document.
pub(crate) fn kernel_name(field: &Field<'_, '_>) -> Result<String, Reported> {
    let name = field.text()?;
    check_kernel_name(name).map_err(|message| field.error(message))?;
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExpandError;

    #[test]
    fn kernels_are_ordered_by_version() {
        for (before, after) in [
            ("5.10", "6.1"),
            ("6.1", "6.12"),
            ("6.9", "6.12"),
            ("6.12", "6.12.3"),
            ("7.3-rc", "7.3"),
            ("7.3-rc2", "7.3-rc10"),
            ("7.2", "7.3-rc"),
        ] {
            assert_eq!(by_version(before, after), Ordering::Less, "{before} {after}");
            assert_eq!(by_version(after, before), Ordering::Greater, "{after} {before}");
        }
        assert_eq!(by_version("6.1", "6.1"), Ordering::Equal);
    }

    #[test]
    fn a_pattern_stands_for_no_name_that_leads_elsewhere() {
        let mut study = crate::load("quick").unwrap();
        study.targets = vec![Target { arch: Arch::X86_64, kernel: "6.12.*".to_owned() }];
        for name in ["6.12./../../../evil", "6.12.\u{1b}[2J", "6.12.1 2", "6.12.\n"] {
            let error = study.clone().resolve_patterns(|_| Ok::<_, ExpandError>(vec![name.to_owned()])).unwrap_err();
            assert!(matches!(error, ExpandError::KernelName { .. }), "{name:?}: {error}");
        }
        study.resolve_patterns(|_| Ok::<_, ExpandError>(vec!["6.12.43".to_owned()])).unwrap();
        assert_eq!(study.targets[0].kernel, "6.12.43");
    }

    #[test]
    fn patterns_stand_for_builds_of_their_series() {
        let pattern = |kernel: &str| Target { arch: Arch::X86_64, kernel: kernel.to_owned() };
        assert!(pattern("6.1.*").stands_for("6.1.170") && !pattern("6.1.*").stands_for("6.12.43"));
        assert!(pattern("*").stands_for("7.3.4") && !pattern("6.1").stands_for("6.1"));
        for (name, is_good) in
            [("*", true), ("6.12.*", true), ("6.12", true), ("6.1*", false), ("6.*.1", false), (".*", false)]
        {
            assert_eq!(check_kernel_pattern(name).is_ok(), is_good, "{name}");
        }
    }
}
