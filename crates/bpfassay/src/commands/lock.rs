// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay testbed lock`: lists the package files of testbeds, and chooses them again.

use std::{collections::BTreeSet, fmt::Write as _, io::ErrorKind};

use bpfassay_packages::{apt::Located, error::human};
use bpfassay_results::plain;
use bpfassay_runner::Store;
use bpfassay_testbed::{Arch, lock_update, locked_qemu, testbed_lock::TestbedLock, toolchain};

use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, SUCCESS, USAGE},
    output,
    progress::Display,
    selection::store_options,
};

/// The largest lock that is read, in bytes; real ones have about 200,000.
const MAX_LOCK: u64 = 16 << 20;

/// Executes the command. An entry that cannot be chosen again stays unchanged and is reported.
///
/// # Errors
/// - A usage failure for a lock that cannot be read or parsed, and for a kernel that is not in the
///   catalogue
/// - An infrastructure failure, if the cache cannot be opened, or the lock cannot be written
pub(crate) fn lock(arguments: &cli::LockArgs, global: &cli::Global) -> CommandOutcome {
    if !arguments.update {
        let lock = TestbedLock::bundled().map_err(CommandFailure::usage)?;
        super::print(&listed(lock))?;
        return Ok(SUCCESS);
    }
    let old = match bpfassay_input::read_text(&arguments.file, MAX_LOCK) {
        Ok(text) => TestbedLock::parse(&output::path(&arguments.file), &text).map_err(CommandFailure::usage)?,
        Err(error) if error.kind() == ErrorKind::NotFound => TestbedLock::default(),
        Err(error) => {
            let report = miette::miette!(
                help = "name the lock with --file",
                "cannot read {}: {error}",
                output::path(&arguments.file)
            );
            return Err(CommandFailure { code: USAGE, report });
        }
    };
    let display = Display::begin(cli::MessageFormat::Human);
    let store = Store::open(&store_options(global))?.with_stages(display.stages());
    let updated = lock_update::update(&store.apt(), &store.catalogue, &old, &arguments.what, arguments.snapshot)?;
    display.finish();
    let mut text: String = updated.changes.iter().map(|line| plain::line(line).into_owned() + "\n").collect();
    for (what, error) in &updated.failed {
        let _ = writeln!(text, "{what} stays as it was: {}", plain::line(&error.to_string()));
    }
    if updated.without_snapshot > 0 {
        let _ = writeln!(
            text,
            "{} packages have no time stamp, so that no archive of snapshots can be asked for them: name one that has them with --snapshot",
            updated.without_snapshot
        );
    }
    let changed = updated.lock != old;
    if changed {
        super::write(&arguments.file, updated.lock.text().as_bytes())?;
    }
    let file = output::path(&arguments.file);
    text += &if changed { format!("written: {file}\n") } else { format!("{file} stays as it was\n") };
    super::print(&text)?;
    Ok(if updated.failed.is_empty() { SUCCESS } else { INFRASTRUCTURE })
}

/// Lists each kernel, the toolchain, QEMU, and the packages of tools for each architecture, one
/// line each.
fn listed(lock: &TestbedLock) -> String {
    let mut text =
        format!("{:<10} {:<9} {:<28} {:<20} {:>8}  suite\n", "arch", "kernel", "release", "version", "download");
    let size = |packages: &[Located]| human(packages.iter().map(|located| located.package.size).sum());
    for kernel in lock.kernels() {
        let (arch, size) = (kernel.architecture.name(), size(&kernel.packages));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{arch:<10} {:<9} {:<28} {:<20} {size:>8}  {}",
            kernel.name, kernel.release, kernel.version, kernel.suite
        );
    }
    if let Ok(host) = toolchain::host_arch()
        && let Some(toolchain) = lock.toolchain(host)
    {
        let (count, size) = (toolchain.packages.len(), size(&toolchain.packages));
        let _ =
            writeln!(text, "\ncross toolchain for hosts of {host}: {count} packages of {}, {size}", toolchain.suite);
    }
    if let Ok(host) = std::env::consts::ARCH.parse()
        && let Some(qemu) = lock.qemu(host)
    {
        let version = Arch::ALL.iter().find_map(|&arch| {
            qemu.packages.iter().map(|located| &located.package).find(|package| locked_qemu::is_package(package, arch))
        });
        let (count, size) = (qemu.packages.len(), size(&qemu.packages));
        let version = version.map_or("", |package| &package.version);
        let _ = writeln!(text, "QEMU for hosts of {host}: {version}, {count} packages of {}, {size}", qemu.suite);
    }
    for &arch in Arch::ALL {
        let locked: Vec<_> = lock.packages_of_guests().iter().filter(|of| of.architecture == arch).collect();
        let names: Vec<&str> = locked.iter().map(|of| of.name.as_str()).collect();
        let all: BTreeSet<_> = locked.iter().flat_map(|of| &of.packages).cloned().collect();
        if !all.is_empty() {
            let size = size(&all.iter().cloned().collect::<Vec<_>>());
            let _ = writeln!(text, "in guests of {arch}: {} packages, {size}: {}", all.len(), names.join(", "));
        }
    }
    text
}
