//! Targets: an architecture and a kernel.

use std::fmt;

use bpfassay_protocol::Arch;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An (architecture, kernel) pair.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// The kernel's name in the catalogue (`6.1`, `7.2`), not a release string.
    pub kernel: String,
}

impl Target {
    /// The target's part of identifiers of cells, blocks and runs: `x86_64_6.1`.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}_{}", self.arch, self.kernel)
    }
}

impl fmt::Display for Target {
    /// `x86_64 6.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.arch, self.kernel))
    }
}

/// Why `name` cannot name a kernel, if it cannot. Kernel names become parts of file names and identifiers.
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
