// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay check`: only loads and attaches tools.

use crate::{cli, exit::CommandOutcome};

/// The bundled studies that only load and attach. The second one also looks for the capabilities
/// with which tools start.
const STUDIES: [&str; 2] = ["load", "capabilities"];

/// Executes the command: the study `load`, or `capabilities`.
///
/// # Errors
/// The errors of `bpfassay run` for a study: see [`super::run::run`].
pub(crate) async fn check(arguments: cli::CheckArgs, global: &cli::Global) -> CommandOutcome {
    let cli::CheckArgs { tools, targets, capabilities, deny, gate, execution, against, packages } = arguments;
    let study = STUDIES[usize::from(capabilities)].to_owned();
    let selection = cli::SelectionArgs { study, tool: tools, targets, deny, gate, ..cli::SelectionArgs::default() };
    let again = cli::AgainChoice::default();
    super::run::run(cli::RunArgs { selection, execution, against, resume: None, like: None, again, packages }, global)
        .await
}
