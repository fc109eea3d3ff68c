// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fingerprints of the project's recorded runs, for comparison with new runs.

/// Folders of `results/`, named after their studies, with the fingerprints in their pages.
const RECORDED: &[(&str, &str)] = &[
    ("kernel-series", "b0e3e12cb3da7a60467edd43636dad312c572b1c41b2407c25c8d57453b2ce64"),
    ("program-count", "22cc6f092d2497f8530c6b7de809758dc12f7f75c4eacb0980dc30b9e08fac66"),
    ("quick", "d5dd2e708a2b19333312a0c1a6869fa009d7d52683a46a264e3fc1695b855dfb"),
];

/// Returns a line if `fingerprint` is a recorded one. Other programs, kernels or options give other
/// fingerprints.
pub(super) fn line(fingerprint: &str) -> Option<String> {
    let (folder, _) = RECORDED.iter().find(|(_, known)| *known == fingerprint)?;
    Some(format!("it is the recorded one: results/{folder}/README.md\n"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, path::Path};

    use super::*;

    #[test]
    fn the_table_has_what_the_pages_state() {
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
        let mut stated = BTreeMap::new();
        for folder in std::fs::read_dir(results).unwrap() {
            let folder = folder.unwrap();
            let Ok(page) = std::fs::read_to_string(folder.path().join("README.md")) else { continue };
            let Some((_, rest)) = page.split_once("ingerprint of ").filter(|_| page.contains("raw figures: `")) else {
                continue;
            };
            let fingerprint = rest.split('`').nth(1).unwrap().to_owned();
            stated.insert(folder.file_name().into_string().unwrap(), fingerprint);
        }
        let table = RECORDED.iter().map(|(study, known)| ((*study).to_owned(), (*known).to_owned())).collect();
        assert_eq!(stated, table);
    }

    #[test]
    fn a_run_says_that_its_fingerprint_is_the_recorded_one() {
        let (folder, known) = RECORDED[2];
        assert_eq!(line(known), Some(format!("it is the recorded one: results/{folder}/README.md\n")));
        assert_eq!(line("0"), None);
    }
}
