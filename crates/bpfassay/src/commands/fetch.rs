// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay testbed fetch`: prepares everything that a study needs to run offline.

#![allow(clippy::disallowed_methods, reason = "the user of this command names the file")]

use bpfassay_packages::error::PackagesError;
use bpfassay_runner::{AcceleratorTrial, HostSetup, ShellUse, Store, StoreOptions, Testbed};
use bpfassay_vm::AcceleratorWish;

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INTERNAL, SUCCESS},
    host, output,
    progress::Display,
    selection::{selection, store_options},
};

/// Executes the command.
///
/// # Errors
/// - A usage failure for a study, a tool file or an image that cannot be used
/// - An infrastructure failure, if the host lacks packages, a guest cannot be built, the cache or
///   the manifest cannot be read or written, or QEMU does not start
pub(crate) async fn fetch(arguments: cli::Fetch, global: &cli::Global) -> CommandOutcome {
    let overlays = cli::Overlays { ior: Vec::new(), bundle: None, manifest: None, available: false };
    let selection = selection(&arguments.selection, &overlays, global)?;
    let options = StoreOptions { qemu: arguments.qemu.qemu, ..store_options(global) };
    let plan = selection.expand(&options)?;
    let display = Display::begin(cli::MessageFormat::Human);
    let stages = display.stages();
    host::install_for(&plan, selection.host_packages(), (global, &options), &stages)?;
    let store = Store::open(&options)?.with_stages(stages);
    if arguments.verify {
        let checked = store.cache.check()?;
        super::print(&format!("checked {} files, {} MiB\n", checked.files, checked.bytes >> 20))?;
        for path in &checked.removed {
            super::print(&format!("damaged, removed: {}\n", output::path(path)))?;
        }
    }
    let testbed = Testbed::provide(&store, &selection, &plan, ShellUse::With)?;
    HostSetup::find(&store, testbed.images, &plan, AcceleratorWish::Auto, AcceleratorTrial::Boot).await?;
    display.finish();
    if let Some(path) = &arguments.manifest_out {
        let text = testbed.manifest.to_json().map_err(|error| CommandFailure::new(INTERNAL, error))?;
        std::fs::write(path, text).map_err(|source| CommandFailure::from(PackagesError::io("write", path)(source)))?;
    }
    super::print("ready; these targets now run offline:\n")?;
    for target in &testbed.manifest.targets {
        super::print(&super::testbed::summary(target))?;
    }
    Ok(SUCCESS)
}
