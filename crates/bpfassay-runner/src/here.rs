// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a plan on this running system, without guests (`bpfassay-guest here`).

mod execute_here;
mod here_boot;
mod here_machine;
mod here_process;
mod here_reason;
mod here_tools;
mod mount;
mod nodes;
mod reference;

pub use self::{
    here_machine::{HereSelection, ThisMachine},
    nodes::{
        AllocationError, AllocationRequest, Cluster, NodeError, Placement, on_first_node, rank, relay, relay_of, stand,
    },
};

#[cfg(test)]
mod tests;
