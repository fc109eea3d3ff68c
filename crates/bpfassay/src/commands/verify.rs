// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay verify`: re-executes part of a run, and fails unless every raw figure matches.

use std::path::Path;

use bpfassay_runner::{EventObserver, Session, Store, StoreOptions, Verification, VerifyOutcome};
use bpfassay_vm::AcceleratorWish;

use super::differences;
use crate::{
    cli,
    exit::{CommandOutcome, INTERRUPTED, NOT_REPRODUCED, SUCCESS},
    host,
    progress::{Display, Reporter, Reporting, bundled},
    selection::store_options,
    stop, trust,
};

/// Executes the command. Figures that differ are a result, and no failure of the command.
///
/// # Errors
/// - A usage failure, if the run cannot be verified. Reasons are a missing or damaged journal, no
///   complete boot, a continued run, the wall clock, and tool files that are no longer known.
/// - An infrastructure failure, if the host lacks packages, the same guests are not available, or
///   the host fails during a boot
pub(crate) async fn verify(arguments: cli::Verify, global: &cli::Global) -> CommandOutcome {
    if let Some(store) = &arguments.store {
        return super::verify_store::verify(store, &arguments, global).await;
    }
    // clap requires a directory or a store.
    let directory = arguments.directory.as_deref().unwrap_or(Path::new("."));
    if arguments.files {
        return super::files::check(directory);
    }
    let verification = Verification::new(directory, arguments.sample)?;
    let plan = verification.plan();
    let display = Display::begin(cli::MessageFormat::Human);
    let stages = display.stages();
    let to_make = if arguments.bundle.is_some() { &[] } else { verification.host_packages() };
    let mut options = StoreOptions { qemu: arguments.qemu.qemu.or(verification.qemu()), ..store_options(global) };
    if let Some(bundle) = &arguments.bundle {
        let trusts = arguments.emulator.trust_emulator;
        options = options.with_bundle(bundle, |packages| trust::agree(bundle, packages, trusts, global))?;
    }
    host::install_for(plan, to_make, (global, &options), &stages)?;
    let store = Store::open(&options)?.with_stages(stages);
    let testbed = verification.testbed(&store, arguments.bundle.as_deref())?;
    let session = Session::set_up(&store, testbed, plan.clone(), AcceleratorWish::Tcg, arguments.jobs).await?;
    let reporter = Reporter(Reporting {
        study: bundled(plan),
        clock: plan.study.clock,
        overlays: &[],
        display: &display,
        here: None,
    });
    let verified = verification
        .execute(&session, &EventObserver::new(plan, session.provenance(), &reporter), &stop::on_signals())
        .await;
    display.finish();
    let runs: usize = plan.blocks.iter().map(|block| block.runs.len()).sum();
    let shard = verification.shard().map(|shard| format!("{}, ", shard.phrase())).unwrap_or_default();
    let of = format!("{shard}{} of {} boots, {runs} runs", plan.blocks.len(), verification.boots());
    let (text, code) = match verified? {
        VerifyOutcome::Same => (format!("verified: {of}: identical raw figures\n"), SUCCESS),
        VerifyOutcome::Different { differences, kept } => (differences::text(&differences, &of, &kept), NOT_REPRODUCED),
        VerifyOutcome::Cancelled => ("interrupted; the figures were not compared\n".to_owned(), INTERRUPTED),
    };
    super::print(&text)?;
    Ok(code)
}
