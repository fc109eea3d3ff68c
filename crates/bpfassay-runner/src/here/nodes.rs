// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several nodes of a cluster that measure together: an agent with its tracer on each, and IOR
//! across them.
//!
//! The command runs on the first node of an allocation of Slurm. srun starts a relay on each node
//! ([`relay`]), which starts the agent there, as
//! [`super::agent`] does on one machine, and passes its messages on through srun's standard streams: there are no ports, and whoever may start steps of the
//! job is trusted. The agents do the same job, and the messages of all are joined to those of one
//! agent ([`join`]), whose figures are sums ([`crate::sum`]). When the agents of all nodes have
//! attached their tracers and wait, a launcher starts IOR ([`team`]); its ranks join the cgroups
//! that the tracers count ([`node`]).

mod allocation;
mod cluster;
mod join;
mod node;
mod on;
mod relay;
mod team;
mod wire;

pub use self::{
    allocation::{AllocationError, Placement, Request, on_first_node},
    cluster::Cluster,
    node::{NodeError, rank, relay_of, stand},
    relay::relay,
};
