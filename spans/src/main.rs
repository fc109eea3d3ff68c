// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program; all of it is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpfassay_spans::main()
}
