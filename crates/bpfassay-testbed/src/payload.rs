// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's own programs: agent, tracer and embedded IOR. They are cross-built and static. The
//! same source and toolchain give the same bytes on any host.
//!
//! Their sources are staged first: the packages of the programs, the workspace packages that these
//! depend on, and the locked versions of other packages. The digest of the stage names the programs
//! in the cache and in places that offer them (`asset`). If no place has them, cargo builds them in
//! the toolchain root. Cargo sees only the stage and the vendored packages, each at a fixed path,
//! and uses no network.

#![allow(clippy::disallowed_methods, reason = "builds from a checkout of the user's own in a scratch directory")]

mod asset;
mod asset_source;
mod build_environment;
mod ebpf;
mod logged;
mod payload_files;
mod payload_sources;
mod payload_verify;

use std::{
    fs,
    ops::ControlFlow,
    panic::resume_unwind,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use bpfassay_packages::{
    apt::{Apt, AssetSource},
    cache::{Cache, CachedFile},
    digest::Digest,
    stages::{ProgressStep, StageKind},
};
use bpfassay_protocol::Arch;
use bpfassay_stage::PROFILE;
pub use bpfassay_stage::{Stage, StageError};
use serde::{Deserialize, Serialize};

pub(crate) use self::logged::end;
pub use self::{
    asset::{AssetIndex, FileHash},
    payload_files::write_files,
    payload_sources::{Buildable, ProgramSources, checkout, unpacked},
    payload_verify::{ComparedProgram, Verified, verify},
};
use self::{
    build_environment::{BuildEnvironment, Reuse, log},
    logged::LoggedBuild,
    payload_sources::{Checkout, WantedSources},
};
use crate::{
    error::{Error, Result},
    manifest::{Component, ProgramAsset},
    toolchain::{self, EarlyCaller, Sandbox, Toolchain, toolchain_sandbox},
};

/// Packages and programs that go into the guest.
const AGENT: PayloadProgram = PayloadProgram { package: "bpfassay-guest", binary: "bpfassay-guest", at: 0x1000_0000 };
const TRACER: PayloadProgram =
    PayloadProgram { package: "bpfassay-tracer", binary: "bpfassay-tracer", at: 0x2000_0000 };
const IOR: PayloadProgram = PayloadProgram { package: "bpfassay-workload", binary: "bpfassay-ior", at: 0x3000_0000 };

const PROGRAMS: [PayloadProgram; 3] = [AGENT, TRACER, IOR];

struct PayloadProgram {
    package: &'static str,
    binary: &'static str,
    /// Link address of the code, where rustc links static programs to fixed addresses. The
    /// addresses differ from each other and from the default address of tools under test, because
    /// the plugin tells programs apart by address alone. They are below 2 GiB, which every code
    /// model reaches.
    at: u32,
}

/// Change this version when the same source and toolchain give other programs than before.
const KEY_VERSION: &str = "1";

/// Kind of cache record that maps source and architecture to programs.
const RECORD: &str = "payload";

/// Prefix of the environment variable that passes [`PayloadProgram::at`] to a build script. The
/// package's name follows it.
const LINK_VARIABLE: &str = "BPFASSAY_LINK_AT";

struct Building<'a> {
    apt: &'a Apt<'a>,
    toolchain: &'a Toolchain,
    root: Sandbox<'a>,
    target: &'a Path,
    variables: Vec<(String, String)>,
    /// Path of the build's log.
    log: PathBuf,
    reuse: Reuse,
}

/// The guest's programs for one architecture.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The architecture that the programs run on.
    pub arch: Arch,
    /// The agent, `/init` in the guest.
    pub agent: CachedFile,
    /// The bundled tracer.
    pub tracer: CachedFile,
    /// The embedded IOR engine.
    pub ior: CachedFile,
    /// Digest of the programs' source.
    pub source: Digest,
}

impl Payload {
    /// Copies programs for `arch` that were built elsewhere from `directory` into the cache. Their
    /// file names are those that cargo gives them.
    ///
    /// # Errors
    /// `PackagesError::Io` if a program does not exist, and the errors of the cache.
    pub fn from_directory(cache: &Cache, arch: Arch, directory: &Path) -> Result<Self> {
        let [agent, tracer, ior] = add_files(cache, arch, |program| directory.join(program.binary))?;
        let source = Digest::of_parts([&agent, &tracer, &ior].map(|object| object.digest.to_string()));
        Ok(Self { arch, agent, tracer, ior, source })
    }

    /// Returns the programs by name, in the order of `PROGRAMS`.
    #[must_use]
    pub fn programs(&self) -> [(&'static str, &CachedFile); 3] {
        [(AGENT.binary, &self.agent), (TRACER.binary, &self.tracer), (IOR.binary, &self.ior)]
    }
}

/// Copies the programs for `arch` from the paths that `path` gives into the cache. Returns them in
/// the order of [`PROGRAMS`].
fn add_files(cache: &Cache, arch: Arch, path: impl Fn(&PayloadProgram) -> PathBuf) -> Result<[CachedFile; 3]> {
    let add =
        |program: &PayloadProgram| cache.add_file(&format!("{} for {arch}", program.binary), &path(program), None);
    Ok([add(&AGENT)?, add(&TRACER)?, add(&IOR)?])
}

/// The guest's programs for one architecture, and the toolchain that built them.
#[derive(Debug, Clone)]
pub struct Built {
    /// The programs.
    pub payload: Payload,
    /// The packages of the toolchain, sorted.
    pub toolchain: Vec<Component>,
    /// Digest of everything that the toolchain was built from.
    pub toolchain_key: Digest,
    /// The asset that contained the programs. Absent if they were built here.
    pub asset: Option<ProgramAsset>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedPayload {
    agent: Digest,
    tracer: Digest,
    ior: Digest,
    toolchain_key: Digest,
    toolchain: Vec<Component>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asset: Option<ProgramAsset>,
}

/// Returns those of `archs` whose programs are not in the cache.
///
/// # Errors
/// [`Error::Stage`] if the checkout cannot be read, [`Error::Build`] if there are no sources, and
/// the errors of the cache.
pub(crate) fn missing(cache: &Cache, sources: &ProgramSources, archs: &[Arch]) -> Result<Vec<Arch>> {
    let WantedSources { source, .. } = WantedSources::find(sources)?;
    let mut missing = Vec::new();
    for &arch in archs {
        if recorded(cache, source, arch, None)?.is_none() {
            missing.push(arch);
        }
    }
    Ok(missing)
}

/// Provides the programs for `archs` and passes each to `ready` as soon as it is available, until
/// `ready` asks to stop. The order is: programs in the cache, then programs that a place of
/// `sources` offers, then programs that must be built, in the order of `archs`. If some
/// architectures fail, the others are still provided. Reports what takes time as stages.
///
/// # Errors
/// Errors that prevent every architecture: [`Error::Stage`] if the checkout cannot be read,
/// [`Error::Build`] if there is nothing to build from, and those of [`Toolchain::prepare`].
///
/// `ready` gets [`Error::Build`] for a failed build, with the path and the last lines of its log.
/// It gets [`Error::Asset`], `PackagesError::Mismatch` or `PackagesError::Download` for a damaged
/// asset or a place that cannot be read.
pub fn prepare_each(
    apt: &Apt<'_>,
    sources: &ProgramSources,
    archs: &[Arch],
    ready: &mut dyn FnMut(Arch, Result<Built>) -> ControlFlow<()>,
) -> Result<()> {
    let cache = apt.cache();
    let wanted = WantedSources::find(sources)?;
    let source = wanted.source;
    // A change of the toolchain matters only if there are sources to build.
    let is_refresh = apt.options().refresh && wanted.is_of_checkout();
    let refreshed = if is_refresh { Some(Toolchain::prepare(apt)?) } else { None };
    let current = refreshed.as_ref().map(|toolchain| toolchain.key);
    let mut missing = Vec::new();
    for &arch in archs {
        match recorded(cache, source, arch, current)? {
            Some(built) => {
                if ready(arch, Ok(built)).is_break() {
                    return Ok(());
                }
            }
            None => missing.push(arch),
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let _lock = cache.lock("payload")?;
    let mut unbuilt = Vec::new();
    for &arch in &missing {
        // Another process may have built them while this process waited for the lock.
        let found = match recorded(cache, source, arch, current)? {
            Some(built) => Ok(Some(built)),
            None => offered(apt, sources, source, arch, current),
        };
        match found.transpose() {
            None => unbuilt.push(arch),
            Some(found) => {
                if ready(arch, found).is_break() {
                    return Ok(());
                }
            }
        }
    }
    if unbuilt.is_empty() {
        return Ok(());
    }
    let checkout = wanted.into_checkout(&unbuilt)?;
    build_each(apt, &checkout, &unbuilt, refreshed, ready)
}

/// Builds the programs for `archs`. If the first is the host's architecture, its build starts as
/// soon as that part of the toolchain exists, while the rest is unpacked. Builds the toolchain
/// unless `toolchain` is given.
///
/// # Errors
/// The errors of [`prepare_each`], for the architectures that `ready` was not called with.
fn build_each(
    apt: &Apt<'_>,
    checkout: &Checkout,
    archs: &[Arch],
    toolchain: Option<Toolchain>,
    ready: &mut dyn FnMut(Arch, Result<Built>) -> ControlFlow<()>,
) -> Result<()> {
    let is_host_first = archs.first().copied() == toolchain::host_arch().ok();
    thread::scope(|scope| {
        let (sender, early) = mpsc::channel();
        // Carries no message. The receiver stops waiting when `building` is dropped.
        let (building, is_built) = mpsc::channel::<()>();
        let make = move || match toolchain {
            Some(toolchain) => Ok(toolchain),
            None if is_host_first => {
                let is_built = Mutex::new(is_built);
                let tell = move |toolchain| drop(sender.send(toolchain));
                let until = || {
                    let _ = is_built.lock().unwrap_or_else(PoisonError::into_inner).recv();
                };
                Toolchain::prepare_for(apt, &EarlyCaller { tell: &tell, until: &until })
            }
            None => Toolchain::prepare(apt),
        };
        let mut making = Some(scope.spawn(make));
        let mut whole = || making.take().map(|making| making.join().unwrap_or_else(|panic| resume_unwind(panic)));
        let there = || match (early.recv(), &mut whole) {
            (Ok(toolchain), _) => Ok(toolchain),
            // The toolchain existed already, or cannot be built.
            (Err(_), whole) => {
                whole().unwrap_or_else(|| Err(Error::Build { what: "no toolchain was made".to_owned() }))
            }
        };
        let mut building = Some(building);
        let mut environment = BuildEnvironment::prepare(apt, checkout, there, archs.len(), Reuse::Known)?;
        for (index, &arch) in archs.iter().enumerate() {
            if index > 0
                && let Some(whole) = whole()
            {
                environment.toolchain = whole?;
            }
            let built = build(apt, checkout, &environment, arch);
            drop(building.take());
            // If the rest of the toolchain failed, its error is the cause.
            if built.is_err()
                && let Some(whole) = whole()
            {
                environment.toolchain = whole?;
            }
            if ready(arch, built).is_break() {
                break;
            }
        }
        Ok(())
    })
}

/// Provides the programs for all of `archs`, like [`prepare_each`].
///
/// # Errors
/// The errors of [`prepare_each`], and the first that `ready` would get.
pub fn prepare(apt: &Apt<'_>, sources: &ProgramSources, archs: &[Arch]) -> Result<Vec<Built>> {
    let mut all = Ok(Vec::new());
    prepare_each(apt, sources, archs, &mut |_, built| match (built, &mut all) {
        (Ok(built), Ok(list)) => {
            list.push(built);
            ControlFlow::Continue(())
        }
        (Err(error), _) => {
            all = Err(error);
            ControlFlow::Break(())
        }
        (Ok(_), Err(_)) => ControlFlow::Break(()),
    })?;
    let mut all = all?;
    all.sort_by_key(|built| built.payload.arch);
    Ok(all)
}

/// Copies the programs for `arch` from `source` into the cache, from the first place of
/// `sources` that offers them. If `toolchain` is given, they must have been built with it.
fn offered(
    apt: &Apt<'_>,
    sources: &ProgramSources,
    source: Digest,
    arch: Arch,
    toolchain: Option<Digest>,
) -> Result<Option<Built>> {
    let of = &source.to_string()[..16];
    for place in &sources.from {
        if matches!(place, AssetSource::Url(_)) && apt.options().offline {
            tracing::info!("the guest's programs for {arch} were not requested from {place}, because of --offline");
            continue;
        }
        match asset::find(apt, place, source, arch)? {
            None => tracing::info!("{place} offers no guest programs for {arch} of the sources {of}"),
            Some(index) if toolchain.is_some_and(|key| key != index.toolchain_key) => {
                tracing::info!(
                    "the guest's programs for {arch} in {place} were built with another toolchain than today's"
                );
            }
            Some(index) => {
                asset::take(apt, place, index)?;
                tracing::info!("took the guest's programs for {arch} of the sources {of} from {place}");
                return recorded(apt.cache(), source, arch, toolchain);
            }
        }
    }
    Ok(None)
}

/// Returns whether the cache holds the programs for `archs`, so that nothing must be built.
///
/// # Errors
/// [`Error::Stage`] if the checkout cannot be read, [`Error::Build`] if there are no sources,
/// `PackagesError::Io` or `PackagesError::Damaged` if the cache cannot be read or repaired.
pub fn is_cached(cache: &Cache, sources: &ProgramSources, archs: &[Arch]) -> Result<bool> {
    let source = WantedSources::find(sources)?.source;
    for &arch in archs {
        if recorded(cache, source, arch, None)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes programs as assets into `directory`. Creates the directory if necessary.
///
/// # Errors
/// `PackagesError::Io` and [`Error::Archive`] if files cannot be read or written.
pub fn pack(built: &[Built], directory: &Path) -> Result<Vec<AssetIndex>> {
    fs::create_dir_all(directory).map_err(Error::io("create", directory))?;
    built.iter().map(|built| asset::write(directory, built)).collect()
}

fn record_key(source: Digest, arch: Arch) -> Digest {
    Digest::of_parts([KEY_VERSION, ebpf::LINKER, PROFILE, arch.name(), &source.to_string()])
}

/// Digest of the source and of how programs are built from it, for all architectures. It names
/// assets.
fn asset_key(source: Digest) -> Digest {
    Digest::of_parts([KEY_VERSION, ebpf::LINKER, PROFILE, &source.to_string()])
}

/// Returns the recorded programs for `arch` from `source`. If `toolchain` is given, they must have
/// been built with it.
fn recorded(cache: &Cache, source: Digest, arch: Arch, toolchain: Option<Digest>) -> Result<Option<Built>> {
    let Some(recorded) = cache.recorded::<RecordedPayload>(RECORD, &record_key(source, arch))? else { return Ok(None) };
    if toolchain.is_some_and(|key| key != recorded.toolchain_key) {
        return Ok(None);
    }
    let (Some(agent), Some(tracer), Some(ior)) =
        (cache.object(&recorded.agent)?, cache.object(&recorded.tracer)?, cache.object(&recorded.ior)?)
    else {
        return Ok(None);
    };
    let RecordedPayload { toolchain, toolchain_key, asset, .. } = recorded;
    Ok(Some(Built { payload: Payload { arch, agent, tracer, ior, source }, toolchain, toolchain_key, asset }))
}

/// Builds the programs for `arch`, adds them to the cache, and records them.
fn build(apt: &Apt<'_>, checkout: &Checkout, environment: &BuildEnvironment, arch: Arch) -> Result<Built> {
    apt.during(StageKind::Programs, arch.name(), |apt| {
        compile(apt, &checkout.stage, environment, arch)?;
        let cache = apt.cache();
        let [agent, tracer, ior] = add_files(cache, arch, |program| environment.program(arch, program))?;
        let Toolchain { key: toolchain_key, .. } = environment.toolchain;
        let toolchain = environment.toolchain.components();
        let recorded = RecordedPayload {
            agent: agent.digest,
            tracer: tracer.digest,
            ior: ior.digest,
            toolchain_key,
            toolchain: toolchain.clone(),
            asset: None,
        };
        let source = checkout.stage.digest().into();
        cache.record(RECORD, &record_key(source, arch), &recorded)?;
        Ok(Built { payload: Payload { arch, agent, tracer, ior, source }, toolchain, toolchain_key, asset: None })
    })
}

/// Builds the programs for `arch` at [`BuildEnvironment::program`].
fn compile(apt: &Apt<'_>, stage: &Stage, environment: &BuildEnvironment, arch: Arch) -> Result<()> {
    let BuildEnvironment { toolchain, scratch, target, reuse } = environment;
    let root = Sandbox::new(&toolchain.root)
        .mount(scratch.path().join("src"), "src", true)
        .mount(scratch.path().join("vendor"), "vendor", false)
        .mount(target, "target", true);
    let log = log(apt, stage, arch.name());
    let building = Building { apt, toolchain, root, target, variables: variables(), log, reuse: *reuse };
    ebpf::provide(&building, stage, arch)?;
    build_programs(&building, arch)
}

fn build_programs(building: &Building<'_>, arch: Arch) -> Result<()> {
    let mut variables = building.variables.clone();
    variables.push((ebpf::VARIABLE.to_owned(), format!("/target/{}", ebpf::DIRECTORY)));
    if !arch.facts().static_programs_move {
        let at =
            |program: &PayloadProgram| (format!("{LINK_VARIABLE}_{}", program.package), format!("{:#x}", program.at));
        variables.extend(PROGRAMS.iter().map(at));
    }
    let mut command = building.root.command("/usr/bin/cargo", "/src", &variables);
    command.args(["build", "--frozen", "--profile", PROFILE, "--bins", "--target", arch.facts().rust_target]);
    for program in [AGENT, TRACER, IOR] {
        command.args(["--package", program.package]);
    }
    let run =
        LoggedBuild { program: toolchain_sandbox::PROGRAM, package: toolchain_sandbox::PACKAGE, log: &building.log };
    run.build(command, ProgressStep::Compile, building.apt.stage(), "build the guest's programs")
}

/// Cargo's environment in the root. It fixes every path that could get into a program.
/// `--remap-path-prefix` makes the paths in panic messages readable.
fn variables() -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = [
        ("CARGO_HOME", "/tmp/cargo"),
        ("CARGO_TARGET_DIR", "/target"),
        ("CARGO_INCREMENTAL", "0"),
        ("CARGO_TERM_COLOR", "never"),
        // The progress bar counts compiled crates.
        ("CARGO_TERM_PROGRESS_WHEN", "always"),
        ("CARGO_TERM_PROGRESS_WIDTH", "80"),
        ("BPFASSAY_CLANG", "clang-22"),
        (
            "RUSTFLAGS",
            "-C target-feature=+crt-static --remap-path-prefix=/src=bpfassay --remap-path-prefix=/vendor=vendor",
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    for &arch in Arch::ALL {
        let target = arch.facts().rust_target.replace('-', "_");
        let gcc = format!("{}-gcc", arch.gnu_triplet());
        let ar = format!("{}-ar", arch.gnu_triplet());
        variables.push((format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()), gcc.clone()));
        variables.push((format!("CC_{target}"), gcc));
        variables.push((format!("AR_{target}"), ar));
    }
    variables
}

#[cfg(test)]
mod tests;
