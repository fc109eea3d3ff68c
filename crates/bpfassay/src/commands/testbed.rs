// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay testbed`: composes testbeds from kernels and programs of other builders, and checks
//! and packs testbeds.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a directory that the user names")]

use std::path::Path;

use bpfassay_protocol::Arch;
use bpfassay_results::plain;
use bpfassay_runner::Store;
use bpfassay_testbed::{
    catalogue::Catalogue,
    compose::{self, TestbedSpec},
    manifest::{self, Check, Manifest, Target},
};

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INTERNAL, SUCCESS},
    output,
    selection::offline,
};

/// Composes the guests of the specification `spec` in the directory `output`.
///
/// # Errors
/// - A usage failure for a specification that cannot be used
/// - An infrastructure failure, if a file that it names is missing or changed, or if guests cannot
///   be composed in the cache or copied
pub(crate) fn compose(spec: &Path, output: &Path, global: &cli::Global) -> CommandOutcome {
    let spec = TestbedSpec::load(spec)?;
    let store = Store::open(&offline(global))?;
    let manifest = compose::compose(&store.cache, &spec)?;
    compose::pack(&manifest, output)?;
    print(&manifest, &output.join(manifest::MANIFEST))
}

/// Copies the testbed of `manifest` into the directory `output`.
///
/// # Errors
/// - A usage failure for a manifest that cannot be used
/// - An infrastructure failure, if a file that it names is missing or changed, or cannot be copied
pub(crate) fn pack(manifest: &Path, output: &Path) -> CommandOutcome {
    let manifest = Manifest::load(manifest, Check::Size)?;
    compose::pack(&manifest, output)?;
    print(&manifest, &output.join(manifest::MANIFEST))
}

/// Checks `file`: a manifest, or with `is_spec` a testbed specification.
///
/// # Errors
/// - A usage failure for a file that cannot be used
/// - An infrastructure failure, if a file that the manifest names is missing or changed
pub(crate) fn check(file: &Path, is_spec: bool) -> CommandOutcome {
    if !is_spec {
        return print(&Manifest::load(file, Check::Content)?, file);
    }
    let spec = TestbedSpec::load(file)?;
    let catalogue = Catalogue::bundled().map_err(|error| CommandFailure::new(INTERNAL, error))?;
    for target in &spec.targets {
        let version = target.version.as_deref().unwrap_or("of unknown version");
        super::print(&line(target.arch, &target.name, version))?;
    }
    for target in spec.unknown_targets(&catalogue) {
        super::print(&format!("not in the catalogue: {} {}\n", target.arch, plain::line(&target.name)))?;
    }
    Ok(SUCCESS)
}

fn print(manifest: &Manifest, path: &Path) -> CommandOutcome {
    for target in &manifest.targets {
        super::print(&summary(target))?;
    }
    super::print(&format!("manifest: {}\n", output::path(path)))?;
    Ok(SUCCESS)
}

/// Formats the line of a target. The names come from the author of the manifest.
pub(super) fn summary(target: &Target) -> String {
    line(target.arch, &target.name, &target.kernel.release)
}

fn line(arch: Arch, name: &str, release: &str) -> String {
    format!("  {arch:<8} {:<8} Linux {}\n", plain::line(name), plain::line(release))
}
