// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay check`: load and attach tools, and nothing else.

use crate::{cli, exit::Outcome};

/// The bundled study that does so.
const STUDY: &str = "load";

/// Executes the command: the study `load`.
///
/// # Errors
/// As `bpfassay run` of a study: see [`super::run::run`].
pub(crate) async fn check(arguments: cli::Check, global: &cli::Global) -> Outcome {
    let cli::Check { tools, targets, deny, execution, against } = arguments;
    let selection = cli::Selection { study: STUDY.to_owned(), tool: tools, targets, deny, ..cli::Selection::default() };
    let again = cli::AgainChoice::default();
    super::run::run(cli::Run { selection, execution, against, resume: None, like: None, again }, global).await
}
