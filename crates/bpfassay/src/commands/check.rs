// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay check`: loads and attaches tools, or runs a bundled study that an option names.

use crate::{cli, exit::CommandOutcome};

/// Executes the command: the bundled study `load`, or the study of the requested option.
///
/// # Errors
/// The errors of `bpfassay run` for a study: see [`super::run::run`].
pub(crate) async fn check(arguments: cli::CheckArgs, global: &cli::Global) -> CommandOutcome {
    let cli::CheckArgs { tools, targets, capabilities, races, deny, gate, execution, against, packages } = arguments;
    let study = match (capabilities, races) {
        (true, _) => "capabilities",
        (false, Some(_)) => "races",
        (false, None) => "load",
    };
    let study = study.to_owned();
    let measure = cli::MeasureArgs { replicates: races, ..cli::MeasureArgs::default() };
    let selection =
        cli::SelectionArgs { study, tool: tools, targets, measure, deny, gate, ..cli::SelectionArgs::default() };
    let again = cli::AgainChoice::default();
    super::run::run(cli::RunArgs { selection, execution, against, resume: None, like: None, again, packages }, global)
        .await
}
