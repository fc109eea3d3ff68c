// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executing a plan on a running system, this one, without guests: by the agent as a program
//! (`bpfassay-guest here`).

mod agent;
mod boot;
mod machine;
mod mount;
mod nodes;
mod reason;
mod reference;
mod tools;

use std::sync::Mutex;

use bpfassay_results::Journal;
use bpfassay_study::{Block, Study};
use tokio_util::sync::CancellationToken;

pub(crate) use self::agent::Agent;
pub use self::{
    machine::{HereSelection, ThisMachine},
    nodes::{AllocationError, Cluster, NodeError, Placement, Request, on_first_node, rank, relay, relay_of, stand},
};
use crate::{
    Observer, RunnerError, Summary,
    boot::{Boot, Tally},
    context::Context,
    observed::BootPlan,
    pool,
};

/// What is to be executed on this system.
#[derive(Debug)]
pub(crate) struct HereConfig<'a> {
    /// The study that the blocks come from; its clock is the wall clock.
    pub(crate) study: &'a Study,
    /// The blocks to do, one after the other.
    pub(crate) blocks: Vec<Block>,
    /// What does them.
    pub(crate) agent: &'a Agent,
    /// The nodes on which it does; `None`: on this system alone.
    pub(crate) cluster: Option<&'a Cluster>,
}

/// Executes `config` and writes all that happens to `journal`, and what agents print to standard
/// error to [`crate::LOGS`] beside it, as [`crate::pool::execute`] does with guests. An agent that
/// does not come to its end fails the run in flight and the rest of its block; the next block gets
/// another one.
///
/// # Errors
/// [`RunnerError`] where the directory of logs cannot be made, no agent can be started, or the journal cannot be written.
pub(crate) async fn execute_here(
    config: HereConfig<'_>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<Summary, RunnerError> {
    let HereConfig { study, blocks, agent, cluster } = config;
    let logs = pool::make_logs(journal.directory())?;
    let journal = Mutex::new(journal);
    let context = Context { study, logs: &logs, journal: &journal, observer, cancel, recorded: None };
    let mut summary = Summary::default();
    for block in &blocks {
        if cancel.is_cancelled() {
            break;
        }
        let mut tally = Tally::default();
        let plan = BootPlan { boot: 1, attempt: 1, runs: block.runs.clone(), confirming: None };
        let mut boot = Boot::new(&context, block, plan, &mut tally);
        let is_sound = match cluster {
            None => boot.here(agent).await?,
            Some(cluster) => boot.here_on(agent, cluster).await?,
        };
        let name = boot.name();
        summary.add(&tally.summary());
        if !is_sound {
            // Another guest would be as before; a machine is what it is.
            tracing::error!("no further block is begun: restore what the log of {name} names, and begin again");
            break;
        }
    }
    summary.cancelled = cancel.is_cancelled();
    Ok(summary)
}

#[cfg(test)]
mod tests;
