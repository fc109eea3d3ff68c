// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay doctor`: checks whether this host can measure, and names the remedy if not.

use std::{collections::BTreeSet, fmt::Write};

use bpfassay_protocol::Arch;
use bpfassay_results::plain;
use bpfassay_runner::{
    HostCheck, HostState, QemuSource, Remedy, StoreOptions, examine_host, install_command, missing_packages,
};
use bpfassay_testbed::toolchain::HOST_PACKAGES;

use crate::{
    cli, configuration,
    exit::{CommandOutcome, INFRASTRUCTURE, SUCCESS},
    host, output,
    progress::Display,
    selection::store_options,
};

/// Executes the command. A host that is not fit has a separate exit code; it is no failure of the
/// command.
///
/// # Errors
/// An infrastructure failure, if missing packages were to be installed and are not (no dpkg, not
/// root, declined, or apt-get failed), or if the result cannot be printed.
pub(crate) async fn doctor(arguments: cli::Doctor, global: &cli::Global) -> CommandOutcome {
    if arguments.install {
        let archs: BTreeSet<Arch> = Arch::ALL.iter().copied().collect();
        let stages = Display::begin(cli::MessageFormat::Human).stages();
        // Install the host's QEMU, unless `--qemu lock` is given.
        let qemu = arguments.qemu.qemu.or(Some(QemuSource::Host));
        host::install(&missing_packages(HOST_PACKAGES, &archs, qemu)?, host::answers_yes(global.yes), &stages)?;
    }
    let options = StoreOptions { qemu: arguments.qemu.qemu, ..store_options(global) };
    let checks = examine_host(&options).await;
    for file in configuration::files() {
        super::print(&format!("ok   configuration file: {}\n", output::path(&file)))?;
    }
    super::print(&text(&checks))?;
    Ok(if checks.iter().any(|check| check.state == HostState::Bad) { INFRASTRUCTURE } else { SUCCESS })
}

fn text(checks: &[HostCheck]) -> String {
    let mut text = String::new();
    for check in checks {
        let sign = match check.state {
            HostState::Good => "ok  ",
            HostState::Note => "note",
            HostState::Bad => "BAD ",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sign} {}", plain::line(&check.what));
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(text, "       remedy: {}", plain::line(&described(remedy)));
        }
    }
    text
}

/// Describes the remedy with the options and commands that apply it.
fn described(remedy: &Remedy) -> String {
    let text = match remedy {
        Remedy::NameCache => "name a directory that you may write to with --cache",
        Remedy::FreeDisk(mib) => {
            return format!("a cold start takes about {mib} MiB; make room, or name another directory with --cache");
        }
        Remedy::FreeMemory => "guests run one at a time; free some memory, or lower guest.memory_mib in the study",
        Remedy::InstallPackages(missing) => {
            return format!("bpfassay doctor --install, or as root: {}", install_command(missing));
        }
        Remedy::UseDebian => "guests are made from Debian's packages: use a Debian host, or --manifest FILE",
        Remedy::InstallQemu(arch) => {
            return format!(
                "--qemu lock takes that of testbed.lock; or as root: apt-get install {}",
                arch.facts().qemu_packages
            );
        }
        Remedy::FetchQemu => "none: it is fetched when it is needed, or by bpfassay testbed fetch",
        Remedy::InstallRustLater => {
            "none for now; to build them again when their sources change, install a Rust toolchain"
        }
        Remedy::InstallRust => {
            "install a Rust toolchain, name a place that offers them with --from, or use --manifest FILE"
        }
        Remedy::NameSources => {
            "name a place that offers them with --from, a checkout in BPFASSAY_SOURCE, or use --manifest FILE"
        }
        Remedy::NamePlace => "name a place that offers them with --from, or use --manifest FILE",
        Remedy::FetchPrograms => "bpfassay testbed fetch",
        Remedy::FetchIndexes => "leave out --offline once, or run bpfassay testbed fetch",
        Remedy::NameMirror => "name one with --mirror, or a place that has the packages with --from",
        Remedy::NameArchive => "none while the mirror has the packages of testbed.lock; else name one with --archive",
        Remedy::RetryMirror => "try again later; --accept-stale takes a mirror that is behind",
        Remedy::CheckMirror => "check the host's apt sources and network; --accept-stale takes a mirror that is behind",
        Remedy::UseTcg => "none: guests run under TCG",
        Remedy::FetchKernel => "guests run under TCG meanwhile; bpfassay testbed fetch, then doctor again",
        Remedy::PermitKvm => {
            "where /dev/kvm is to be used, let this user: as root, adduser USER kvm, then log in again"
        }
        Remedy::UseKvmHost => {
            "guests run under TCG, where wall-clock figures are functional only; for timing use a host whose KVM boots"
        }
    };
    text.to_owned()
}
