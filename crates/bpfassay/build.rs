// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gives the command the sources of the guest's programs and their digest. The command builds the
//! sources if there is no checkout, and finds programs that were built elsewhere by the digest.

use std::{env, error::Error, fmt::Write as _, fs, io::Write as _, path::Path};

use bpfassay_stage::{PACKAGES, Stage};
use flate2::{Compression, write::GzEncoder};

/// The directory of links to the sources; cargo follows the links when it packages this crate.
const PACKAGED: &str = "guest-sources";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    let home = env::var("CARGO_MANIFEST_DIR")?;
    let workspace = Path::new(&home).join("../..");
    // The package of this crate alone lacks the guest's crates.
    let stage = if workspace.join("Cargo.lock").is_file() && workspace.join("crates/bpfassay-guest").is_dir() {
        let stage = Stage::read(&workspace, &PACKAGES)?;
        for path in stage.inputs().map(|path| workspace.join(path)).filter(|path| path.exists()) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        stage
    } else {
        println!("cargo::rerun-if-changed={PACKAGED}");
        Stage::read_packaged(&Path::new(&home).join(PACKAGED), &PACKAGES)?
    };
    let mut digest = String::new();
    for byte in stage.digest() {
        write!(digest, "{byte:02x}")?;
    }
    println!("cargo::rustc-env=BPFASSAY_GUEST_SOURCES={digest}");
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(&stage.to_bytes())?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("guest-sources.gz"), compressed.finish()?)?;
    Ok(())
}
