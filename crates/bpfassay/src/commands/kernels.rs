// SPDX-License-Identifier: MIT OR Apache-2.0
//! `bpfassay list kernels`: lists known, cached and available kernels.

use std::fmt::Write;

use bpfassay_protocol::Arch;
use bpfassay_results::plain;
use bpfassay_runner::Store;
use bpfassay_testbed::provider::debian::{KernelProvider, SeriesListing};
use serde_json::json;

use crate::{
    cli,
    exit::{CommandOutcome, SUCCESS},
    selection::store_options,
};

/// Executes the command. If a mirror does not answer, the list says so; that is no failure.
///
/// # Errors
/// - An infrastructure failure, if the cache cannot be opened or read, or the list cannot be
///   printed
/// - A usage failure, if the cache directory is not a cache
pub(crate) fn kernels(arguments: &cli::ListKernelsArgs, global: &cli::Global) -> CommandOutcome {
    let store = Store::open(&store_options(global))?;
    let apt = store.apt();
    let kernels = KernelProvider::new(&apt, &store.catalogue);
    let mut listings = Vec::new();
    for &arch in Arch::ALL {
        if arguments.arch.is_empty() || arguments.arch.contains(&arch) {
            listings.extend(kernels.list(arch)?);
        }
    }
    if arguments.json {
        super::print_json(serde_json::to_string_pretty(&listings.iter().map(as_json).collect::<Vec<_>>()))?;
    } else {
        super::print(&as_text(&listings))?;
    }
    Ok(SUCCESS)
}

fn as_json(listing: &SeriesListing) -> serde_json::Value {
    json!({
        "name": listing.name,
        "arch": listing.arch.name(),
        "suites": listing.suites,
        "available": listing.builds.as_ref().map(|builds| {
            builds
                .iter()
                .map(|(suite, build)| json!({ "name": build.name(), "suite": suite, "release": build.release, "version": build.version }))
                .collect::<Vec<_>>()
        }),
        "problem": listing.problem,
        "locked": listing.locked,
        "cached": listing.cached.iter().map(|cached| json!({
            "name": cached.name, "release": cached.release, "version": cached.version,
        })).collect::<Vec<_>>(),
    })
}

fn as_text(listings: &[SeriesListing]) -> String {
    let mut text = format!(
        "{:<8} {:<9} {:<26} {:<26} {:<26} {}\n",
        "arch", "kernel", "locked", "cached", "newest available", "suite"
    );
    for listing in listings {
        let locked = listing.locked.as_deref().unwrap_or("-");
        let cached = listing.cached.first().map_or("-", |cached| cached.release.as_str());
        let newest = match (&listing.builds, &listing.problem) {
            (_, Some(_)) => "not known (see below)".to_owned(),
            (None, None) => "not known (no list yet)".to_owned(),
            (Some(_), None) => {
                listing.current().map_or("none today".to_owned(), |(_, build)| build.release.to_string())
            }
        };
        let suites = listing.suites.join(", ");
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "{:<8} {:<9} {locked:<26} {cached:<26} {newest:<26} {suites}", listing.arch, listing.name);
        if let Some(builds) = &listing.builds
            && builds.len() > 1
        {
            let names = listing.names(|_| true);
            let _ = writeln!(text, "{:>18} builds by name: {}", "", names.join(" "));
        }
    }
    let mut problems: Vec<_> = listings.iter().filter_map(|listing| listing.problem.as_deref()).collect();
    problems.dedup();
    for problem in problems {
        let _ = writeln!(text, "! {}", plain::line(problem));
    }
    text.push_str("\nAny name in the column `kernel`, or of a build, goes into a study or after --kernel. A series\nmeans its locked build; with --newest, the newest that is available.\n");
    text
}
