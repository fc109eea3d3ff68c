// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay testbed bundle`: the guests of a run in one file.

use std::collections::BTreeSet;

use bpfassay_packages::{apt::Package, error::human};
use bpfassay_results::{Provenance, plain};
use bpfassay_runner::{Bundling, QemuSource, Store, StoreOptions};
use bpfassay_testbed::locked_qemu::package;

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, SUCCESS},
    host, output,
    progress::Display,
    selection::store_options,
};

/// Executes the command.
///
/// # Errors
/// - A usage failure for a directory without a journal or with a damaged one, and if guests with
///   tools, or with a kernel of the user, no longer exist
/// - An infrastructure failure if the guests cannot be built again or then differ, and if the file
///   exists or cannot be written
pub(crate) fn bundle(arguments: &cli::Bundle, global: &cli::Global) -> CommandOutcome {
    let bundling = Bundling::new(&arguments.directory)?;
    let display = Display::begin(cli::MessageFormat::Human);
    let stages = display.stages();
    // No guest is booted.
    let options = StoreOptions { qemu: Some(QemuSource::Lock), ..store_options(global) };
    let store = Store::open(&options)?.with_stages(stages.clone());
    let made = || {
        host::install_for(bundling.plan(), bundling.host_packages(), (global, &options), &stages)?;
        Ok::<_, CommandFailure>(bundling.made_again(&store)?)
    };
    let testbed = bundling.testbed()?.map_or_else(made, Ok);
    let qemu = if arguments.without_qemu { Ok(Vec::new()) } else { bundling.qemu(&store) };
    display.finish();
    let qemu = qemu?;
    let (manifest, size) = bundling.write(testbed?, &qemu, &arguments.output)?;
    for target in &manifest.targets {
        super::print(&super::testbed::summary(target))?;
    }
    let text = format!("bundle: {} ({})\n", output::path(&arguments.output), human(size));
    let packages: Vec<_> = qemu.into_iter().map(|(package, _)| package).collect();
    super::print(&(text + &emulator(&packages, bundling.provenance())))?;
    Ok(SUCCESS)
}

/// Describes the QEMU in the bundle, or the QEMU that the user must install.
fn emulator(packages: &[Package], provenance: &Provenance) -> String {
    let archs = provenance.qemu.keys();
    let bundled: BTreeSet<&str> = archs.filter_map(|&arch| Some(package(packages, arch)?.version.as_str())).collect();
    if !bundled.is_empty() {
        let versions: Vec<_> = bundled.into_iter().collect();
        let host = std::env::consts::ARCH;
        return format!("in it: QEMU {} of testbed.lock, for hosts of {host}\n", versions.join(", "));
    }
    not_in_it(provenance)
}

/// Names what a host needs for the measurement in addition to the bundle.
fn not_in_it(provenance: &Provenance) -> String {
    let versions: BTreeSet<&str> = provenance.qemu.values().map(|qemu| qemu.program.version.as_str()).collect();
    let versions: Vec<_> = versions.into_iter().map(plain::line).collect();
    match versions.as_slice() {
        [] => String::new(),
        versions => format!("not in it: QEMU; the run was measured with {}\n", versions.join(", ")),
    }
}
