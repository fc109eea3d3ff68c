// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error lines of compilers. The guest keeps the first one, and the host shows it.

/// Returns whether `line` is an error of a compiler: `FILE:LINE:COLUMN: error: TEXT`, as gcc, clang
/// and bpftrace write it, in any case of letters. Columns can be a range.
///
/// ```
/// # use bpfassay_protocol::compiler_error::is_compiler_error;
/// assert!(is_compiler_error("include/linux/fs.h:2442:15: error: static assertion failed"));
/// assert!(!is_compiler_error("include/linux/fs.h:2438:2: warning: declaration does not declare"));
/// ```
#[must_use]
pub fn is_compiler_error(line: &str) -> bool {
    let line = line.to_lowercase();
    let place = [": error: ", ": fatal error: "].iter().find_map(|mark| line.find(mark));
    place.is_some_and(|place| line.get(..place).is_some_and(|place| place.ends_with(|c: char| c.is_ascii_digit())))
}
