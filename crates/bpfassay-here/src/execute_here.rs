// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes a plan on this machine, one block after the other.

use std::sync::Mutex;

use bpfassay_results::Journal;
use bpfassay_runner::{
    Observer, PoolSummary, RunnerError,
    boot::{
        run_context::{RunContext, make_logs},
        running_boot::RunningBoot,
        tally::Tally,
    },
    decisions::observed::BootPlan,
};
use bpfassay_study::{Block, Study};
use tokio_util::sync::CancellationToken;

use super::{here_boot::BlockHere, here_process::Agent, nodes::Cluster};

/// A plan for this system.
#[derive(Debug)]
pub(crate) struct HereConfig<'a> {
    /// The study of the blocks, which uses the wall clock.
    pub(crate) study: &'a Study,
    /// The blocks to do, one after the other.
    pub(crate) blocks: Vec<Block>,
    pub(crate) agent: &'a Agent,
    /// The nodes to measure on; `None` means this system alone.
    pub(crate) cluster: Option<&'a Cluster>,
}

/// Executes `config`. Events go to `journal`, and the agents' standard error to
/// [`bpfassay_runner::LOGS`] in the same directory, as with guests. An agent that does not finish
/// fails the run in flight and the rest of its block. The next block gets a new agent.
///
/// # Errors
/// [`RunnerError`] if the directory of logs cannot be created, an agent cannot be started, or the
/// journal cannot be written.
pub(crate) async fn execute_here(
    config: HereConfig<'_>,
    journal: Journal,
    observer: &dyn Observer,
    cancel: &CancellationToken,
) -> Result<PoolSummary, RunnerError> {
    let HereConfig { study, blocks, agent, cluster } = config;
    let logs = make_logs(journal.directory())?;
    let journal = Mutex::new(journal);
    let context = RunContext { study, logs: &logs, journal: &journal, observer, cancel, recorded: None };
    let mut summary = PoolSummary::default();
    for block in &blocks {
        if cancel.is_cancelled() {
            break;
        }
        let mut tally = Tally::default();
        let plan = BootPlan { boot: 1, attempt: 1, runs: block.runs.clone(), confirming: None };
        let mut begun = BlockHere { boot: RunningBoot::new(&context, block, plan, &mut tally) };
        let is_sound = match cluster {
            None => begun.execute(agent).await?,
            Some(cluster) => begun.execute_on(agent, cluster).await?,
        };
        let name = begun.boot.name();
        summary.add(&tally.summary());
        if !is_sound {
            // A new guest would be clean, but a changed machine stays as it is.
            tracing::error!("no further block is begun: restore what the log of {name} names, and begin again");
            break;
        }
    }
    summary.cancelled = cancel.is_cancelled();
    Ok(summary)
}
