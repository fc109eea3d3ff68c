// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that tests of an IOR script leave for later tests.

use bpfassay_ior::Options;

/// The options that determine a test's file names: one file per task, one directory per task, one
/// file per repetition.
type FileLayout = (bool, bool, bool);

/// Whether any test uses files that an earlier test wrote. `ranks` is the number of tasks.
///
/// # Errors
/// Fails if a test reads bytes that no earlier test wrote. The message names the test and a
/// solution.
pub(super) fn are_shared(tests: &[Options], ranks: u32) -> Result<bool, String> {
    let mut kept: Vec<(FileLayout, u64)> = Vec::new();
    let mut shared = false;
    for (number, test) in (1..).zip(tests) {
        let layout = (test.file_per_process, test.unique_dir, test.multi_file);
        let size = test.aggregate_size(ranks).unwrap_or(u64::MAX);
        let found = kept.iter().find(|(of, _)| *of == layout).map(|(_, size)| *size);
        kept.retain(|(of, _)| *of != layout);
        let left = match (test.write, found) {
            (true, Some(earlier)) if test.use_existing => {
                shared = true;
                size.max(earlier)
            }
            (true, _) => size,
            (false, Some(earlier)) if size <= earlier => {
                shared = true;
                earlier
            }
            (false, Some(earlier)) => {
                return Err(format!(
                    "test {number} reads {size} bytes of files in which earlier tests wrote {earlier}: make its block size (-b), segments (-s) or tasks (-N) smaller"
                ));
            }
            (false, None) => {
                return Err(format!(
                    "test {number} reads what no test wrote: write in the same test (-w), or in an earlier test of the script that keeps its files (keepFile=1, -k)"
                ));
            }
        };
        if test.keep {
            kept.push((layout, left));
        }
    }
    Ok(shared)
}
