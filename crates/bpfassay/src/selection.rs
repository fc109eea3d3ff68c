// SPDX-License-Identifier: MIT OR Apache-2.0
//! From arguments to what the library runs: which study, which part of it, which kernels, tools and testbed.

use std::path::Path;

use bpfassay_protocol::job::FileSystem;
use bpfassay_runner::{Selection, StoreOptions};
use bpfassay_study::{Narrowing, Plan};
use bpfassay_testbed::{
    apt,
    cache::Digest,
    payload::ProgramSources,
    provider::{
        Sources,
        local::{Config, Lack, LocalKernel, is_build_tree},
    },
};

use crate::{
    cli,
    exit::{Failure, USAGE},
};

/// Where the cache is, how packages may be fetched and where programs may come from, as the options of every command have it.
pub(crate) fn store_options(global: &cli::Global) -> StoreOptions {
    let packages = apt::Options {
        offline: global.offline,
        newest: global.newest,
        refresh: global.refresh,
        accept_stale: global.accept_stale,
        mirror: None,
        from: global.from.clone(),
        archive: global.archive.clone(),
        exact: false,
    };
    let programs = ProgramSources { from: global.from.clone(), built_with: built_with() };
    StoreOptions { cache: global.cache.clone(), catalogue: global.catalogue.clone(), packages, programs }
}

/// Digest of the sources of the guest's programs that this command was built with; none where it was built without them.
fn built_with() -> Option<Digest> {
    option_env!("BPFASSAY_GUEST_SOURCES").and_then(|digest| digest.parse().ok())
}

/// As [`store_options`], for commands that download nothing, whatever the options are.
pub(crate) fn offline(global: &cli::Global) -> StoreOptions {
    let mut options = store_options(global);
    (options.packages.offline, options.packages.refresh) = (true, false);
    options
}

/// Reads the tool files of the arguments and puts everything together.
///
/// # Errors
/// A usage failure: a tool file that is wrong, an image or a build tree beside other kernels, a build tree that is not complete, modules without either.
pub(crate) fn selection(arguments: &cli::Selection, overlays: &cli::Overlays) -> Result<Selection, Failure> {
    let tools = arguments.tool.iter().map(|name| bpfassay_tool::load(name).map_err(Failure::usage));
    let mut own = self::overlays(overlays);
    own.sources.local = local_kernel(&arguments.targets)?;
    Ok(Selection {
        study: arguments.study.clone(),
        narrowing: Narrowing {
            archs: arguments.targets.arch.clone(),
            kernels: arguments.targets.kernel.clone(),
            probes: arguments.probe.clone(),
            cells: arguments.cell.clone(),
            replicates: arguments.replicates,
            until: arguments.until,
        },
        clock: arguments.clock,
        model: arguments.model.clone(),
        deny: arguments.deny.clone(),
        gates: arguments.gate.clone(),
        rounds: arguments.rounds,
        shard: arguments.shard,
        tools: tools.collect::<Result<_, _>>()?,
        ..own
    })
}

/// Only what is overlaid on the guests of a plan that is known already.
pub(crate) fn overlays(overlays: &cli::Overlays) -> Selection {
    Selection {
        sources: Sources {
            bundle: overlays.bundle.clone(),
            manifest: overlays.manifest.clone(),
            recorded: None,
            local: None,
            ior: overlays.ior.clone(),
        },
        only_available: overlays.available,
        ..Selection::default()
    }
}

/// The kernel image or build tree given in place of names, if one was.
///
/// # Errors
/// A usage failure for one beside other kernels, for a build tree that cannot be used, and for modules without either.
fn local_kernel(targets: &cli::Targets) -> Result<Option<LocalKernel>, Failure> {
    let refuse =
        |help: &str, what: &str| Err(Failure { code: USAGE, report: miette::miette!(help = help, "{}", what) });
    match targets.kernel.as_slice() {
        [one] if is_path(one) => {
            Ok(Some(LocalKernel::find(Path::new(one), targets.modules.as_deref(), &targets.arch)?))
        }
        names if names.iter().any(|name| is_path(name)) => refuse(
            "run the study once per kernel",
            "--kernel takes the path of one image or build tree by itself, or names of the catalogue",
        ),
        _ if targets.modules.is_some() => refuse(
            "give the path of the image or of the build tree with --kernel (./bzImage, ./linux), or leave --modules out: kernels of the catalogue have their own",
            "--modules belongs to the path of a kernel, and --kernel names none",
        ),
        _ => Ok(None),
    }
}

/// Whether an argument of `--kernel` is the path of an image or of a build tree, and no name of the catalogue, nearly all of which begin with a digit.
pub(crate) fn is_path(argument: &str) -> bool {
    let (path, is_number) = (Path::new(argument), argument.starts_with(|c: char| c.is_ascii_digit()));
    argument.contains('/') || argument.starts_with('.') || (!is_number && (path.is_file() || is_build_tree(path)))
}

/// What the user's kernel lacks of what `plan` needs, by the configuration in its build tree; nothing where there is none.
///
/// # Errors
/// An infrastructure failure where the configuration cannot be read.
pub(crate) fn lacks(selection: &Selection, plan: &Plan) -> Result<Vec<Lack>, Failure> {
    let Some((config, release)) =
        selection.sources.local.as_ref().and_then(|kernel| kernel.config.as_deref().zip(kernel.release.as_deref()))
    else {
        return Ok(Vec::new());
    };
    let nfs = plan.blocks.iter().any(|block| matches!(block.file_system, FileSystem::Nfs(_)));
    Ok(Config::read(config)?.lacks(release, nfs))
}

#[cfg(test)]
mod tests {
    use bpfassay_stage::{PACKAGES, Stage};

    use super::*;

    #[test]
    fn a_directory_is_a_kernel_where_one_is_built_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        assert!(is_path("./6.12") && is_path(&path("none")));
        assert!(!is_path("6.12") && !is_path("testing"));
    }

    #[test]
    fn the_sources_that_this_was_built_with_are_those_of_the_checkout() {
        let stage = Stage::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &PACKAGES).unwrap();
        assert_eq!(built_with(), Some(Digest::from(stage.digest())));
    }
}
