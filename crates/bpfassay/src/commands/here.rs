// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay here`: run a study on this machine itself, without guests.

use bpfassay_runner::{EventObserver, HereSelection, ThisMachine};
use bpfassay_study::Narrowing;

use super::run;
use crate::{
    cli,
    exit::{Failure, Outcome},
    progress::{Display, Reporter, Reporting},
    stop,
};

/// Executes the command.
///
/// # Errors
/// A usage failure for a study that this machine cannot execute, a mount point, a tool or an IOR that cannot be used, and a results directory that
/// has a journal; an infrastructure failure where `PATH` lacks a program, the agent cannot be started, or the journal or the results cannot
/// be written.
pub(crate) async fn here(arguments: cli::Here) -> Outcome {
    let tools = arguments.tool.iter().map(|name| bpfassay_tool::load(name).map_err(Failure::usage));
    let machine = ThisMachine::set_up(&HereSelection {
        study: arguments.study.clone(),
        narrowing: Narrowing {
            probes: arguments.probe,
            cells: arguments.cell,
            replicates: arguments.replicates,
            ..Narrowing::default()
        },
        mount: arguments.mount,
        ior: arguments.ior,
        tools: tools.collect::<Result<_, _>>()?,
        deny: arguments.deny,
    })?;
    let work = machine.begin(arguments.output.as_deref())?;
    let directory = work.directory.clone();
    let tools: Vec<String> = arguments.tool.iter().flat_map(|tool| ["--tool".to_owned(), tool.clone()]).collect();
    let display = Display::begin(arguments.message_format);
    let reporter = Reporter(Reporting {
        study: Some(&arguments.study),
        clock: machine.plan().study.clock,
        overlays: &tools,
        display: &display,
        here: Some(machine.mount()),
    });
    let observer = EventObserver::new(machine.plan(), machine.provenance(), &reporter);
    let summary = machine.execute(work, &observer, &stop::on_signals()).await;
    display.finish();
    let how_to_continue = "; what was measured is kept".to_owned();
    let end = run::End { summary: summary?, how_to_continue, against: None };
    run::report(&directory, bpfassay_runner::conclude(&directory)?, &end, arguments.message_format)
}
