// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that a launcher starts in place of rsh(1).

use std::{io, net::SocketAddr, process::ExitCode};

use bpfassay_protocol::job_nodes::Node;

use super::wire::{self, PORT, RankEnded, RankRequest};
use crate::power_off;

/// First argument of such a process.
pub(super) const NAME: &str = "remote";

/// Exit status if the command may not have run, as in rsh(1) and ssh(1).
const UNREACHED: u8 = 255;

/// Runs `command` on the node with the name or address `host`, and exits with the command's status.
pub(super) fn main(host: &str, command: &[String]) -> ExitCode {
    let Some(node) = named(host) else {
        power_off::say(&format!("there is no node {host:?}"));
        return ExitCode::from(UNREACHED);
    };
    match run((node.address(), PORT).into(), command) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            power_off::say(&format!("cannot run a command on {}: {error}", node.name()));
            ExitCode::from(UNREACHED)
        }
    }
}

/// Runs `command` through the process that attends at `address`. Returns the exit status.
///
/// # Errors
/// No process attends on the node, or the end of the command is not reported.
pub(super) fn run(address: SocketAddr, command: &[String]) -> io::Result<u8> {
    let stream = wire::connect(address, &RankRequest::Run(command.join(" ")))?;
    Ok(wire::receive::<RankEnded>(&stream)?.status)
}

/// Returns the node with this host name or address.
fn named(host: &str) -> Option<Node> {
    Node::all(Node::MOST).find(|node| node.host_name() == host || node.address().to_string() == host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_by_name_and_by_address() {
        let number = |host| named(host).map(|node| node.number);
        assert_eq!((number("bpfassay-2"), number("192.0.2.9")), (Some(2), Some(8)));
        // The server runs no command for other nodes.
        assert_eq!((number("bpfassay-server"), number("192.0.2.1"), number("localhost")), (None, None, None));
    }
}
