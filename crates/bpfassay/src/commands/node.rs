// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay node`: the command that Slurm starts on each node for `here --slurm`, and the process
//! that is the stand-in for IOR on the node.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    cli::{NodeArgs, NodeRole},
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, SUCCESS},
    output,
};

/// Executes the command. A rank does not return, but becomes IOR.
///
/// # Errors
/// An infrastructure failure, if this process was not started as a step of Slurm, or cannot do its
/// task.
pub(crate) async fn node(arguments: NodeArgs) -> CommandOutcome {
    match arguments.role {
        NodeRole::Relay { token } => {
            bpfassay_here::relay(&token).await.map_err(CommandFailure::infrastructure)?;
            Ok(SUCCESS)
        }
        NodeRole::Rank { token, directory, command } => {
            // The command line has at least one word.
            let Some((program, arguments)) = command.split_first() else { return Ok(SUCCESS) };
            let error = bpfassay_here::rank(&token, &directory, Path::new(program), arguments);
            Err(CommandFailure::infrastructure(error))
        }
    }
}

/// Runs the stand-in for IOR, if an agent started this process as the stand-in, as the name of the
/// program shows. Returns `None` otherwise.
pub(crate) fn in_place_of_ior() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let relay = bpfassay_here::relay_of(&PathBuf::from(arguments.next()?))?;
    Some(match bpfassay_here::stand(relay, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The agent passes the end of this output on.
            let _ = writeln!(output::stderr(), "{}", bpfassay_protocol::with_causes(&error));
            ExitCode::from(INFRASTRUCTURE)
        }
    })
}
