// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay verify`: re-execute part of a run; fails unless every raw figure matches.

use std::path::Path;

use bpfassay_results::{fingerprint::RecordDifference, plain};
use bpfassay_runner::{EventObserver, Session, Store, StoreOptions, Verification, Verified};
use bpfassay_vm::AcceleratorWish;

use crate::{
    cli,
    exit::{INTERRUPTED, NOT_REPRODUCED, Outcome, SUCCESS},
    host, output,
    progress::{Display, Reporter, Reporting, bundled},
    selection::store_options,
    stop,
};

/// Differences that are shown one by one.
const SHOWN: usize = 20;

/// Executes the command. Figures that differ are a result, and no failure.
///
/// # Errors
/// A usage failure where the run cannot be verified: it has no journal or a damaged one, has no complete boot, was continued, used the wall
/// clock, or needs tool files that are no longer known; an infrastructure failure where packages of the host are missing, the same guests
/// cannot be had, or the host fails during a boot.
pub(crate) async fn verify(arguments: cli::Verify, global: &cli::Global) -> Outcome {
    if let Some(store) = &arguments.store {
        return super::verify_store::verify(store, &arguments, global).await;
    }
    // The arguments are taken only with one of the two.
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
        options = options.with_bundle(bundle)?;
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
        Verified::Same => (format!("verified: {of}: identical raw figures\n"), SUCCESS),
        Verified::Different { differences, kept } => (differences_text(&differences, &of, &kept), NOT_REPRODUCED),
        Verified::Cancelled => ("interrupted; the figures were not compared\n".to_owned(), INTERRUPTED),
    };
    super::print(&text)?;
    Ok(code)
}

/// What differs, and where what was measured now is.
pub(super) fn differences_text(differences: &[RecordDifference], of: &str, kept: &Path) -> String {
    let mut text = format!("not reproduced: {of}: {} runs have other raw figures\n", differences.len());
    for RecordDifference { run, place, first, second } in differences.iter().take(SHOWN) {
        let show = |value: &Option<String>| value.clone().unwrap_or_else(|| "nothing".to_owned());
        let line = format!("{run}: at {place}: {} before, {} now", show(first), show(second));
        text.push_str(&format!("  {}\n", plain::line(&line)));
    }
    if differences.len() > SHOWN {
        text.push_str(&format!("  and {} more\n", differences.len() - SHOWN));
    }
    text.push_str(&format!("what was measured now is kept in {}\n", output::path(kept)));
    text
}
