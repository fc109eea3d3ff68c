// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay verify --files`: whether a results directory is whole.

use std::path::Path;

use bpfassay_report::check::{Soundness, check as check_directory};

use crate::exit::{INFRASTRUCTURE, Outcome, SUCCESS, USAGE};

/// Checks `directory` and prints the verdict on each file, which also decides the exit code.
///
/// # Errors
/// An infrastructure failure where the verdicts cannot be printed.
pub(super) fn check(directory: &Path) -> Outcome {
    let checked = check_directory(directory);
    let mut text = String::new();
    for one in &checked {
        let verdict = match one.soundness {
            Soundness::Sound => "sound",
            Soundness::Unreadable => "CANNOT BE READ",
            Soundness::Wrong => "WRONG",
        };
        // What is wrong is reported with excerpts of the files, which anybody may have written.
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
