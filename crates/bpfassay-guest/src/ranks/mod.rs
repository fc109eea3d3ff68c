// SPDX-License-Identifier: MIT OR Apache-2.0
//! A real IOR with ranks on several nodes.
//!
//! An MPI launcher starts a daemon on each node through a configurable program. That program
//! expects the name of a host and a command, and runs the command on that host, as rsh(1) does.
//! Here it is this agent, as `remote`. On every node but the first, a process *attends* in the
//! cgroup of the run, so that everything that the launcher starts on the node is counted. Each rank
//! becomes IOR through `rank`, which leaves a file behind, so that the agent can count the ranks.

mod attend;
mod hosts;
mod part;
mod rank;
mod remote;
mod wire;

use std::{
    net::{TcpListener, TcpStream},
    process::ExitCode,
};

use bpfassay_protocol::{job_nodes::Node, layout};

pub(crate) use self::{
    hosts::{HOSTS, RSH, launcher_environment, names},
    part::{Part, Ranks},
};
use crate::error::{Error, Result};

/// Returns the words before the command of IOR that start a rank ([`rank`]).
pub(crate) fn rank_command(directory: &str) -> [String; 3] {
    [layout::AGENT.to_owned(), rank::NAME.to_owned(), directory.to_owned()]
}

/// Listens on the socket on which a process can attend at `node`.
///
/// # Errors
/// The socket cannot be opened or bound.
pub(crate) fn listen(node: Node) -> Result<TcpListener> {
    TcpListener::bind((node.address(), wire::PORT)).map_err(Error::system("listen to the launcher of other nodes"))
}

/// Returns the arguments of the agent's program for a process that attends on the socket `socket`.
pub(crate) fn attending(socket: i32) -> [String; 2] {
    [attend::NAME.to_owned(), socket.to_string()]
}

/// Connects to all nodes except this one, the first. The processes that attend there end when their
/// connection is closed.
///
/// # Errors
/// A node does not listen.
pub(crate) fn hold(first: Node) -> Result<Vec<TcpStream>> {
    let others = Node::all(first.count).filter(|node| !node.is_first());
    others
        .map(|node| {
            wire::connect((node.address(), wire::PORT).into(), &wire::RankRequest::Hold)
                .map_err(Error::system(format!("reach {} for its ranks", node.name())))
        })
        .collect()
}

/// Does what `args` request if they are arguments of a process for ranks; `None` otherwise.
pub(crate) fn main(args: &[String]) -> Option<ExitCode> {
    match args {
        [name, socket] if name == attend::NAME => Some(attend::main(socket)),
        [name, host, command @ ..] if name == remote::NAME => Some(remote::main(host, command)),
        [name, directory, program, arguments @ ..] if name == rank::NAME => {
            Some(rank::main(directory, program, arguments))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_no_command_for_ranks() {
        for args in [&[][..], &["here"], &["attend"], &["remote"], &["rank", "/run"], &["attend", "3", "4"]] {
            let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
            assert!(main(&args).is_none(), "{args:?}");
        }
    }
}
