// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring without guests: on this machine, or on the nodes of a job of Slurm.
//!
//! - A [`HereSelection`] says what to measure, and [`ThisMachine::set_up`] expands its study with
//!   this machine as the only target.
//! - [`ThisMachine::begin`] begins the plan in a results directory.
//! - [`ThisMachine::execute`] does the work: it starts the agent of guests as a program
//!   (`bpfassay-guest here`), one block after the other.
//! - A [`Placement`] shows where this command runs in a job of Slurm. With a [`Cluster`], several
//!   nodes measure together. On each node, Slurm starts a [`relay`] and the ranks of IOR
//!   ([`rank`]), and the agent starts a stand-in for IOR ([`stand`]).
//!
//! Other crates have what measuring with guests needs, too: the work of a plan, the records of a
//! boot, progress and provenance (bpfassay-runner), and the agent (bpfassay-guest). The command
//! prints and sets exit codes.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod execute_here;
mod here_boot;
mod here_error;
mod here_machine;
mod here_process;
mod here_reason;
mod here_tools;
mod mount;
mod nodes;
mod reference;

pub use self::{
    here_error::HereError,
    here_machine::{HereSelection, ThisMachine},
    nodes::{
        AllocationError, AllocationRequest, Cluster, NodeError, Placement, on_first_node, rank, relay, relay_of, stand,
    },
};

#[cfg(test)]
mod tests;
