// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's program. All of its code is in the library, where tests and fuzz targets reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpfassay_guest::main()
}
