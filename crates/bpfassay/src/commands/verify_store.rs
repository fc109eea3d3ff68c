// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay verify --store`: re-executes blocks of a store. Blocks that are damaged or do not
//! reproduce are reported and put aside.

use std::time::SystemTime;

use bpfassay_protocol::with_causes;
use bpfassay_results::plain;
use bpfassay_runner::{
    BlockStore, BlockStoreError, Error, EventObserver, Session, Store, StoreKey, StoreOptions, StorePlace,
    Verification, VerifyOutcome,
};
use bpfassay_vm::AcceleratorWish;
use tokio_util::sync::CancellationToken;

use super::differences;
use crate::{
    cli,
    exit::{CommandFailure, CommandOutcome, INFRASTRUCTURE, INTERRUPTED, NOT_REPRODUCED, SUCCESS, USAGE},
    host, output,
    progress::{Display, Reporter, Reporting, bundled},
    selection::store_options,
    stop,
};

/// The number of reasons for left-out blocks that are listed.
const SHOWN: usize = 20;

/// The outcome for one block.
enum Came {
    Same,
    /// The figures differ, with the differences.
    Different(String),
    /// The entry does not match its name.
    Damaged(String),
    /// The block cannot be measured again on this host now.
    LeftOut(String),
    /// The measurement was not completed.
    Cancelled,
}

/// Executes the command for the store at `place`. Blocks that another program, QEMU or host
/// measured are left out, and replaced by others.
///
/// # Errors
/// - A usage failure, if there is no store
/// - An infrastructure failure, if it cannot be read, packages of the host are missing, the same
///   guests are not available, or the host fails during a boot
pub(super) async fn verify(place: &StorePlace, arguments: &cli::Verify, global: &cli::Global) -> CommandOutcome {
    let blocks = BlockStore::existing(place)?;
    let mut keys = blocks.keys()?;
    let all = keys.len();
    let wanted = arguments.sample.map_or(all, |sample| usize::try_from(sample).unwrap_or(usize::MAX));
    // Keys are digests, so their order does not depend on what is measured. Each call begins at
    // another key.
    keys.rotate_left(start(all));
    let cancel = stop::on_signals();
    let (mut same, mut different, mut damaged, mut left_out) = (0, 0, 0, Vec::new());
    for key in &keys {
        if cancel.is_cancelled() || same + different + damaged >= wanted {
            break;
        }
        match again(&blocks, key, arguments, global, &cancel).await? {
            Came::Same => same += 1,
            Came::Different(text) => {
                different += 1;
                super::print(&format!("{text}{}", aside(&blocks, key)))?;
            }
            Came::Damaged(problem) => {
                damaged += 1;
                super::print(&format!("{}\n{}", plain::line(&problem), aside(&blocks, key)))?;
            }
            Came::LeftOut(why) => left_out.push(format!("  {key}: {}\n", plain::line(&why))),
            Came::Cancelled => break,
        }
    }
    let store = output::path(blocks.path());
    let mut text = match left_out.len() {
        0 => String::new(),
        count => format!("left out: {count} blocks that are not measured here as they were\n"),
    };
    text.extend(left_out.iter().take(SHOWN).map(String::as_str));
    if cancel.is_cancelled() {
        super::print(&format!("{text}interrupted; {same} of {all} blocks of {store}: identical raw figures\n"))?;
        return Ok(INTERRUPTED);
    }
    let (line, code) = match (same, different, damaged) {
        (_, 1.., _) => (
            format!("not reproduced: {different} of {all} blocks of {store}, put aside; {same} others were\n"),
            NOT_REPRODUCED,
        ),
        (_, 0, 1..) => (
            format!(
                "damaged: {damaged} of {all} blocks of {store}, put aside; {same} others have identical raw figures\n"
            ),
            USAGE,
        ),
        (0, 0, 0) => (
            format!("nothing verified: none of the {all} blocks of {store} is measured here as it was\n"),
            INFRASTRUCTURE,
        ),
        (_, 0, 0) => (format!("verified: {same} of {all} blocks of {store}: identical raw figures\n"), SUCCESS),
    };
    super::print(&(text + &line))?;
    Ok(code)
}

/// Measures the block under `key` again.
async fn again(
    blocks: &BlockStore,
    key: &StoreKey,
    arguments: &cli::Verify,
    global: &cli::Global,
    cancel: &CancellationToken,
) -> Result<Came, CommandFailure> {
    let verification = match Verification::of_block(blocks, key) {
        Ok(Some(verification)) => verification,
        // Another process put the entry aside in the meantime.
        Ok(None) => return Ok(Came::LeftOut("it is gone".to_owned())),
        Err(Error::BlockStore(error @ BlockStoreError::Damaged { .. })) => {
            return Ok(Came::Damaged(with_causes(&error)));
        }
        Err(error @ Error::WallClock) => return Ok(Came::LeftOut(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let options = StoreOptions { qemu: arguments.qemu.qemu.or(verification.qemu()), ..store_options(global) };
    let store = Store::open(&options)?;
    if !verification.is_of_this_program(&store) {
        return Ok(Came::LeftOut("it was measured by another program bpfassay".to_owned()));
    }
    let plan = verification.plan();
    let Some(block) = plan.blocks.first() else { return Ok(Came::LeftOut("it has no block".to_owned())) };
    let display = Display::begin(cli::MessageFormat::Human);
    host::install_for(plan, verification.host_packages(), (global, &options), &display.stages())?;
    let testbed = match verification.testbed(&store, None) {
        Ok(testbed) => testbed,
        Err(error @ (Error::OtherGuests | Error::GuestsGone { .. } | Error::ToolUnknown { .. })) => {
            return Ok(Came::LeftOut(format!("{}: {}", block.id, with_causes(&error))));
        }
        Err(error) => return Err(error.into()),
    };
    let session = Session::set_up(&store, testbed, plan.clone(), AcceleratorWish::Tcg, arguments.jobs).await?;
    if session.key_of(block).as_ref() != Ok(key) {
        return Ok(Came::LeftOut(format!("{}: it was measured with another QEMU", block.id)));
    }
    let reporter = Reporter(Reporting {
        study: bundled(plan),
        clock: plan.study.clock,
        overlays: &[],
        display: &display,
        here: None,
    });
    let observer = EventObserver::new(plan, session.provenance(), &reporter);
    let verified = verification.execute(&session, &observer, cancel).await;
    display.finish();
    Ok(match verified? {
        VerifyOutcome::Same => Came::Same,
        VerifyOutcome::Different { differences, kept } => {
            Came::Different(differences::text(&differences, &block.id, &kept))
        }
        VerifyOutcome::Cancelled => Came::Cancelled,
    })
}

/// Puts the entry of `key` aside, and reports its path.
fn aside(blocks: &BlockStore, key: &StoreKey) -> String {
    match blocks.put_aside(key) {
        Ok(path) => format!("  its entry is put aside: {}\n", output::path(&path)),
        Err(error) => format!("  its entry {key} could not be put aside: {}\n", plain::line(&with_causes(&error))),
    }
}

/// Returns where to begin among `all`: at another key each time.
fn start(all: usize) -> usize {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    usize::try_from(now.as_micros() % (all.max(1) as u128)).unwrap_or_default()
}
