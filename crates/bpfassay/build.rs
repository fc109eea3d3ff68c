// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the command the digest of the guest's sources, by which it finds the guest's programs where there is no checkout.

use std::{env, error::Error, fmt::Write as _, path::Path};

use bpfassay_stage::{PACKAGES, Stage};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..");
    // The package of this crate alone comes without the guest's.
    if !workspace.join("Cargo.lock").is_file() {
        return Ok(());
    }
    let stage = Stage::read(&workspace, &PACKAGES)?;
    let mut digest = String::new();
    for byte in stage.digest() {
        write!(digest, "{byte:02x}")?;
    }
    println!("cargo::rustc-env=BPFASSAY_GUEST_SOURCES={digest}");
    for path in stage.inputs().map(|path| workspace.join(path)).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Ok(())
}
