// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay check`: only loads and attaches tools.

use crate::{cli, exit::Outcome};

/// The bundled study that only loads and attaches.
const STUDY: &str = "load";

/// Executes the command: the study `load`.
///
/// # Errors
/// Those of `bpfassay run` for a study: see [`super::run::run`].
pub(crate) async fn check(arguments: cli::Check, global: &cli::Global) -> Outcome {
    let cli::Check { tools, targets, deny, execution, against } = arguments;
    let selection = cli::Selection { study: STUDY.to_owned(), tool: tools, targets, deny, ..cli::Selection::default() };
    let again = cli::AgainChoice::default();
    super::run::run(cli::Run { selection, execution, against, resume: None, like: None, again }, global).await
}
