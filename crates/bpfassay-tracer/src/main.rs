//! The tracer's program; all of it is in the library, where tests and fuzz targets reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    bpfassay_tracer::main()
}
