// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay check`: only loads and attaches tools.

use crate::{cli, exit::CommandOutcome};

/// The bundled study that only loads and attaches.
const STUDY: &str = "load";

/// Executes the command: the study `load`.
///
/// # Errors
/// The errors of `bpfassay run` for a study: see [`super::run::run`].
pub(crate) async fn check(arguments: cli::CheckArgs, global: &cli::Global) -> CommandOutcome {
    let cli::CheckArgs { tools, targets, deny, gate, execution, against, packages } = arguments;
    let study = STUDY.to_owned();
    let selection = cli::SelectionArgs { study, tool: tools, targets, deny, gate, ..cli::SelectionArgs::default() };
    let again = cli::AgainChoice::default();
    super::run::run(cli::RunArgs { selection, execution, against, resume: None, like: None, again, packages }, global)
        .await
}
