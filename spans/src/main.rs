// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls the library's `main`. All code is in the library, so that tests can reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpfassay_spans::main()
}
