// SPDX-License-Identifier: MIT OR Apache-2.0
//! Turns arguments into what the library runs: the study and its part, kernels, tools and testbed.

use std::path::{Path, PathBuf};

use bpfassay_packages::{apt, cache::Cache, digest::Digest, unpack::is_package};
use bpfassay_protocol::job::FileSystem;
use bpfassay_runner::{StoreOptions, StudySelection};
use bpfassay_study::{Narrowing, Plan};
use bpfassay_testbed::{
    locked_qemu::TrustedPackages,
    payload::ProgramSources,
    provider::{
        Sources,
        local::{Config, LocalKernel, Need, is_build_tree, packages_in},
    },
};

use crate::{
    cli, defaults,
    exit::{CommandFailure, USAGE},
    host::is_ci,
};

/// Reads the options of every command: the cache, how to fetch packages, and where programs come
/// from.
pub(crate) fn store_options(global: &cli::Global) -> StoreOptions {
    let packages = apt::FetchOptions {
        offline: global.offline,
        newest: global.packages.newest,
        refresh: global.packages.refresh,
        accept_stale: global.packages.accept_stale,
        mirror: global.packages.mirror.clone(),
        client: apt::Downloader::default(),
        from: global.packages.from.clone(),
        archive: global.packages.archive.clone(),
        exact: false,
        defaults: defaults::compiled_in(),
    };
    let programs = ProgramSources {
        from: global.packages.from.clone(),
        built_with: built_with(),
        compiled_in: Some(GUEST_SOURCES),
    };
    let (cache, catalogue) = (global.cache.clone(), global.packages.catalogue.clone());
    StoreOptions { cache, catalogue, packages, programs, qemu: None, bundled_qemu: TrustedPackages::default() }
}

/// The sources of the guest's programs that were compiled into this command.
const GUEST_SOURCES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest-sources.gz"));

/// Returns the digest of these sources.
fn built_with() -> Option<Digest> {
    env!("BPFASSAY_GUEST_SOURCES").parse().ok()
}

/// Returns [`store_options`] for commands that download nothing, whatever the options say.
pub(crate) fn offline(global: &cli::Global) -> StoreOptions {
    let mut options = store_options(global);
    (options.packages.offline, options.packages.refresh) = (true, false);
    options
}

/// Reads the tool files of the arguments and makes the selection.
///
/// # Errors
/// - A usage failure for an invalid tool file, for an image or a build tree together with other
///   kernels, and for modules without either
/// - A usage failure for an incomplete build tree, and for package files that are invalid or do not
///   belong to one kernel
/// - An infrastructure failure, if packages cannot be unpacked into the cache
pub(crate) fn selection(
    arguments: &cli::SelectionArgs,
    overlays: &cli::Overlays,
    global: &cli::Global,
) -> Result<StudySelection, CommandFailure> {
    let tools = arguments.tool.iter().map(|name| bpfassay_tool::load(name).map_err(CommandFailure::usage));
    let mut own = self::overlays(overlays);
    own.sources.local = local_kernel(&arguments.targets, global)?;
    Ok(StudySelection {
        study: arguments.study.clone(),
        narrowing: Narrowing {
            archs: arguments.targets.arch.clone(),
            kernels: arguments.targets.kernel.clone(),
            probes: arguments.probe.clone(),
            cells: arguments.cell.clone(),
            replicates: arguments.measure.replicates,
            until: arguments.measure.until,
        },
        clock: arguments.measure.clock,
        same_everywhere: is_ci(),
        model: arguments.measure.model.clone(),
        deny: arguments.deny.clone(),
        gates: arguments.gate.clone(),
        change: Some(Box::new(arguments.measure.clone())),
        shard: arguments.shard,
        tools: tools.collect::<Result<_, _>>()?,
        ..own
    })
}

/// Selects only the additions to the guests of a known plan.
pub(crate) fn overlays(overlays: &cli::Overlays) -> StudySelection {
    StudySelection {
        sources: Sources {
            bundle: overlays.bundle.clone(),
            manifest: overlays.manifest.clone(),
            recorded: None,
            local: None,
            ior: overlays.ior.clone(),
        },
        only_available: overlays.available,
        ..StudySelection::default()
    }
}

/// Returns the kernel image, build tree or packages that were given instead of names, if any.
///
/// # Errors
/// - A usage failure for one of them together with other kernels, for a build tree or packages that
///   cannot be used, and for modules without either
/// - An infrastructure failure, if packages cannot be unpacked into the cache
fn local_kernel(targets: &cli::Targets, global: &cli::Global) -> Result<Option<LocalKernel>, CommandFailure> {
    let refuse =
        |help: &str, what: &str| Err(CommandFailure { code: USAGE, report: miette::miette!(help = help, "{}", what) });
    let packages = packages(&targets.kernel)?;
    if !packages.is_empty() {
        let cache = Cache::open(Cache::locate(global.cache.as_deref())?)?;
        return Ok(Some(LocalKernel::of_packages(&cache, &packages, targets.modules.as_deref())?));
    }
    match targets.kernel.as_slice() {
        [one] if is_path(one) => {
            Ok(Some(LocalKernel::find(Path::new(one), targets.modules.as_deref(), &targets.arch)?))
        }
        names if names.iter().any(|name| is_path(name)) => refuse(
            "run the study once per kernel",
            "--kernel takes the path of one image or build tree by itself, the packages of one kernel, or names of the catalogue",
        ),
        _ if targets.modules.is_some() => refuse(
            "give the path of the image or of the build tree with --kernel (./bzImage, ./linux), or leave --modules out: kernels of the catalogue have their own",
            "--modules belongs to the path of a kernel, and --kernel names none",
        ),
        _ => Ok(None),
    }
}

/// Returns the package files that `kernels`, the arguments of `--kernel`, name or contain; none if
/// they are something else.
///
/// # Errors
/// - A usage failure for a directory with more packages than a kernel has
/// - An infrastructure failure, if the directory cannot be read
fn packages(kernels: &[String]) -> Result<Vec<PathBuf>, CommandFailure> {
    if kernels.is_empty() || !kernels.iter().all(|kernel| is_path(kernel)) {
        return Ok(Vec::new());
    }
    if let [one] = kernels
        && Path::new(one).is_dir()
    {
        return if is_build_tree(Path::new(one)) { Ok(Vec::new()) } else { Ok(packages_in(Path::new(one))?) };
    }
    let files: Vec<_> = kernels.iter().map(PathBuf::from).collect();
    Ok(if files.iter().all(|file| is_package(file)) { files } else { Vec::new() })
}

/// Whether an argument of `--kernel` is the path of an image, of a build tree or of packages, and
/// not a name of the catalogue. Nearly all names begin with a digit.
pub(crate) fn is_path(argument: &str) -> bool {
    let (path, is_number) = (Path::new(argument), argument.starts_with(|c: char| c.is_ascii_digit()));
    let is_kernel =
        || path.is_file() || is_build_tree(path) || packages_in(path).is_ok_and(|packages| !packages.is_empty());
    argument.contains('/') || argument.starts_with('.') || (!is_number && is_kernel())
}

/// Finds what the user's kernel lacks for `plan`: options that the configuration in its build tree
/// or packages does not set, and modules that are not in the packages. Empty without such a kernel.
///
/// # Errors
/// An infrastructure failure, if the configuration cannot be read.
pub(crate) fn lacks(selection: &StudySelection, plan: &Plan) -> Result<Lacks, CommandFailure> {
    let Some(kernel) = &selection.sources.local else { return Ok(Lacks::default()) };
    let nfs = plan.blocks.iter().any(|block| matches!(block.file_system, FileSystem::Nfs(_)));
    let options = match (&kernel.config, &kernel.release) {
        (Some(config), Some(release)) => Config::read(config)?.lacks(release, nfs),
        _ => Vec::new(),
    };
    let modules = kernel.absent_modules(nfs)?;
    let mut needs = options.iter().map(|lack| lack.needed_by).chain(modules.iter().map(|absent| absent.needed_by));
    Ok(Lacks {
        for_nfs: needs.any(|need| need == Need::Nfs),
        options: options.iter().map(|lack| format!("{}, which {} needs", lack.option, lack.needed_by)).collect(),
        modules: modules.iter().map(|absent| format!("{}, which {} needs", absent.module, absent.needed_by)).collect(),
    })
}

/// Parts that a kernel lacks, in words.
#[derive(Debug, Default)]
pub(crate) struct Lacks {
    /// Options that the configuration does not set.
    pub(crate) options: Vec<String>,
    /// Modules that the packages do not have.
    pub(crate) modules: Vec<String>,
    /// Whether the NFS mount needs some of them.
    pub(crate) for_nfs: bool,
}

impl Lacks {
    /// Tells which studies still work with a kernel that lacks something for NFS.
    pub(crate) fn without_nfs(&self) -> Option<&'static str> {
        self.for_nfs.then_some(
            "studies on tmpfs need nothing of NFS: `cost`, or your own with type = \"tmpfs\" in [[file_systems]]",
        )
    }
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
        std::fs::write(path("a.deb"), b"!<arch>\ndebian-binary").unwrap();
        std::fs::write(path("b.rpm"), b"\xed\xab\xee\xdb\x03\x00\x00\x00").unwrap();
        std::fs::write(path("c.deb"), b"something else").unwrap();
        std::fs::write(path("vmlinuz"), b"an image").unwrap();
        let found = |kernels: &[String]| -> Vec<String> {
            packages(kernels).unwrap().iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(found(&[directory.path().display().to_string()]), [path("a.deb"), path("b.rpm")]);
        assert_eq!(found(&[path("b.rpm"), path("a.deb")]), [path("b.rpm"), path("a.deb")]);
        assert!(found(&[path("a.deb"), path("c.deb")]).is_empty() && found(&[path("vmlinuz")]).is_empty());
        assert!(found(&["6.12".to_owned()]).is_empty() && found(&[]).is_empty());
        assert!(!is_path("6.12") && !is_path("testing"));
    }

    #[test]
    fn the_sources_that_this_was_built_with_are_those_of_the_checkout() {
        let home = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stage = Stage::read(&home.join("../.."), &PACKAGES).unwrap();
        assert_eq!(built_with(), Some(Digest::from(stage.digest())));
        assert_eq!(bpfassay_testbed::payload::unpacked(GUEST_SOURCES).unwrap(), stage);
        // These files are in the package of this crate.
        let packaged = Stage::read_packaged(&home.join("guest-sources"), &PACKAGES).unwrap();
        assert_eq!(packaged, stage, "a link is missing in crates/bpfassay/guest-sources");
    }
}
