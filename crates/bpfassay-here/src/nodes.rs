// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several nodes of a cluster that measure together: agents with tracers, and IOR across them.
//!
//! The command runs on the first node of a Slurm allocation. srun starts a relay on each node
//! ([`relay`]). The relay starts the node's agent, as [`super::here_process`] does on one machine,
//! and forwards its messages through srun's standard streams. There are no ports, and whoever can
//! start steps of the job is trusted.
//!
//! All agents do the same job. Their messages are joined into messages as of one agent ([`join`]),
//! whose figures are sums ([`bpfassay_runner::boot::sum`]). When all agents have attached their
//! tracers and wait, a launcher starts IOR ([`team`]). The ranks join the cgroups that the tracers
//! count ([`node`]).

mod allocation;
mod block_on_nodes;
mod cluster;
mod join;
mod node;
mod node_wire;
mod relay;
mod team;

pub use self::{
    allocation::{AllocationError, AllocationRequest, Placement, on_first_node},
    cluster::Cluster,
    node::{NodeError, rank, relay_of, stand},
    relay::relay,
};
