// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay verify --files`: checks whether a results directory is intact.

use std::path::Path;

use bpfassay_report::check_results::{Soundness, check as check_directory};

use crate::exit::{CommandOutcome, INFRASTRUCTURE, SUCCESS, USAGE};

/// Checks `directory` and prints the verdict on each part. The exit code follows from the verdicts.
///
/// # Errors
/// An infrastructure failure, if the verdicts cannot be printed.
pub(super) fn check(directory: &Path) -> CommandOutcome {
    let checked = check_directory(directory);
    let mut text = String::new();
    for one in &checked {
        let verdict = match one.soundness {
            Soundness::Sound => "sound",
            Soundness::Unreadable => "CANNOT BE READ",
            Soundness::Wrong => "WRONG",
        };
        // The messages quote the files, which anybody may have written.
        let message: String = one.message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        text.push_str(&format!("{}: {verdict}: {message}\n", one.what));
    }
    super::print(&text)?;
    Ok(match checked.iter().map(|one| one.soundness).max() {
        Some(Soundness::Wrong) => USAGE,
        Some(Soundness::Unreadable) => INFRASTRUCTURE,
        Some(Soundness::Sound) | None => SUCCESS,
    })
}
