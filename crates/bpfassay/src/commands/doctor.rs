// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay doctor`: is this host fit, and if not, what to do.

use std::{collections::BTreeSet, fmt::Write};

use bpfassay_protocol::Arch;
use bpfassay_results::plain;
use bpfassay_runner::{HostCheck, HostState, examine_host, missing_packages};
use bpfassay_testbed::toolchain::HOST_PACKAGES;

use crate::{
    cli,
    exit::{INFRASTRUCTURE, Outcome, SUCCESS},
    host,
    progress::Display,
    selection::store_options,
};

pub(crate) async fn doctor(arguments: cli::Doctor, global: &cli::Global) -> Outcome {
    if arguments.install {
        let archs: BTreeSet<Arch> = Arch::ALL.iter().copied().collect();
        let stages = Display::begin(cli::MessageFormat::Human).stages();
        host::install(&missing_packages(HOST_PACKAGES, &archs)?, host::answers_yes(global.yes), &stages)?;
    }
    let checks = examine_host(&store_options(global)).await;
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
            let _ = writeln!(text, "       remedy: {}", plain::line(remedy));
        }
    }
    text
}
