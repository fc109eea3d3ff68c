// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay bundle`: the guests of a run in one file.

use std::collections::BTreeSet;

use bpfassay_results::{Provenance, plain};
use bpfassay_runner::{Bundling, QemuSource, Store, StoreOptions};
use bpfassay_testbed::error::human;

use crate::{
    cli,
    exit::{Outcome, SUCCESS},
    host, output,
    progress::Display,
    selection::store_options,
};

/// Executes the command.
///
/// # Errors
/// A usage failure for a directory without a journal, or with a damaged one, and where guests with tools, or with a kernel of the user's, are gone; an
/// infrastructure failure where the guests cannot be made again, or are different then, and where the file exists or cannot be written.
pub(crate) fn bundle(arguments: &cli::Bundle, global: &cli::Global) -> Outcome {
    let bundling = Bundling::new(&arguments.directory)?;
    let testbed = match bundling.testbed()? {
        Some(testbed) => testbed,
        None => {
            let display = Display::begin(cli::MessageFormat::Human);
            let stages = display.stages();
            // Nothing is booted.
            let options = StoreOptions { qemu: Some(QemuSource::Lock), ..store_options(global) };
            host::install_for(bundling.plan(), bundling.host_packages(), (global, &options), &stages)?;
            let testbed = bundling.made_again(&Store::open(&options)?.with_stages(stages));
            display.finish();
            testbed?
        }
    };
    let (manifest, size) = bundling.write(testbed, &arguments.output)?;
    for target in &manifest.targets {
        super::print(&super::testbed::summary(target))?;
    }
    let text = format!("bundle: {} ({})\n", output::path(&arguments.output), human(size));
    super::print(&(text + &not_in_it(bundling.provenance())))?;
    Ok(SUCCESS)
}

/// What else a host needs to measure again.
fn not_in_it(provenance: &Provenance) -> String {
    let versions: BTreeSet<&str> = provenance.qemu.values().map(|qemu| qemu.program.version.as_str()).collect();
    let versions: Vec<_> = versions.into_iter().map(plain::line).collect();
    match versions.as_slice() {
        [] => String::new(),
        versions => format!("not in it: QEMU; the run was measured with {}\n", versions.join(", ")),
    }
}
