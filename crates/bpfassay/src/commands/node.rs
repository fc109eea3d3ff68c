// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay node`: what `here --slurm` has Slurm start on each node, and what stands there in the
//! place of IOR.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    cli::{Node, NodeRole},
    exit::{Failure, INFRASTRUCTURE, Outcome, SUCCESS},
    output,
};

/// Executes the command. A rank does not return, but becomes IOR.
///
/// # Errors
/// An infrastructure failure where this process was not started as a step of Slurm, or cannot do
/// what it is for.
pub(crate) async fn node(arguments: Node) -> Outcome {
    match arguments.role {
        NodeRole::Relay { token } => {
            bpfassay_runner::relay(&token).await.map_err(Failure::infrastructure)?;
            Ok(SUCCESS)
        }
        NodeRole::Rank { token, directory, command } => {
            // The command line has at least one.
            let Some((program, arguments)) = command.split_first() else { return Ok(SUCCESS) };
            let error = bpfassay_runner::rank(&token, &directory, Path::new(program), arguments);
            Err(Failure::infrastructure(error))
        }
    }
}

/// What this process does where an agent started it in the place of IOR, which is seen by the name
/// of its program alone; `None`: it was not.
pub(crate) fn in_place_of_ior() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let relay = bpfassay_runner::relay_of(&PathBuf::from(arguments.next()?))?;
    Some(match bpfassay_runner::stand(relay, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The agent passes the end of it on.
            let _ = writeln!(output::stderr(), "{}", bpfassay_protocol::with_causes(&error));
            ExitCode::from(INFRASTRUCTURE)
        }
    })
}
