// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error lines of compilers in what a program printed. The guest keeps the first one, and the
//! host shows it.

/// The text between a problem of a program and the tail of the output of the program.
pub const LAST_OUTPUT: &str = "; its last output: ";

/// Returns the first error of a compiler in `message`, which can begin with a problem and
/// [`LAST_OUTPUT`]. Later errors can follow from the first one, and other lines quote the source.
///
/// ```
/// # use bpfassay_protocol::compiler_error::first_compiler_error;
/// let message = "ended with exit status 1; its last output: a.c:1:1: error: x\na.c:2:1: error: y";
/// assert_eq!(first_compiler_error(message), Some("a.c:1:1: error: x"));
/// ```
#[must_use]
pub fn first_compiler_error(message: &str) -> Option<&str> {
    let printed = message.split_once(LAST_OUTPUT).map_or(message, |(_, printed)| printed);
    printed.lines().find(|line| is_compiler_error(line)).map(str::trim)
}

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
