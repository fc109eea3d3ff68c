// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the bundled study `quick` through the library, prints each event and counts the cells.

#![allow(clippy::print_stdout, reason = "an example")]

use bpfassay_runner::{
    EventObserver, EventSink, Session, ShellUse, Store, StoreOptions, StudySelection, Testbed, conclude,
};
use bpfassay_vm::AcceleratorWish;
use tokio_util::sync::CancellationToken;

struct Print;

impl EventSink for Print {
    fn event(&self, event: &bpfassay_results::Event) {
        println!("{event:?}");
    }
}

#[tokio::main]
async fn main() -> Result<(), bpfassay_runner::Error> {
    let options = StoreOptions::default();
    let selection = StudySelection::of_study("quick");
    let plan = selection.expand(&options)?;
    let store = Store::open(&options)?;
    let testbed = Testbed::provide(&store, &selection, &plan, ShellUse::Without)?;
    let session = Session::set_up(&store, testbed, plan, AcceleratorWish::Auto, None).await?;
    let session = session.with_clock_of_host(&selection, &options)?;
    let work = session.begin(None)?;
    let directory = work.directory.clone();
    let observer = EventObserver::new(session.plan(), session.provenance(), &Print);
    session.execute(work, &observer, &CancellationToken::new()).await?;
    let (results, _) = conclude(&directory)?;
    println!("{} cells, in {}", results.cells.len(), directory.display());
    Ok(())
}
