// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows the differences that a re-execution found.

use std::path::Path;

use bpfassay_results::{fingerprint::RecordDifference, plain};

use crate::output;

/// The number of differences that are listed.
const SHOWN: usize = 20;

/// Lists the differences, and tells where the new measurement is kept.
pub(super) fn text(differences: &[RecordDifference], of: &str, kept: &Path) -> String {
    let mut text = format!("not reproduced: {of}: {} runs have other raw figures\n", differences.len());
    for RecordDifference { run, place, first, second } in differences.iter().take(SHOWN) {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let line = format!("{run}: at {place}: {} before, {} now", show(first), show(second));
        text.push_str(&format!("  {}\n", plain::line(&line)));
    }
    if differences.len() > SHOWN {
        text.push_str(&format!("  and {} more\n", differences.len() - SHOWN));
    }
    text.push_str(&format!("what was measured now is kept in {}\n", output::path(kept)));
    text
}
