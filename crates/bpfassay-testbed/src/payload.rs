// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's own programs, cross-built: agent, tracer and embedded IOR, static, the same bytes wherever they are
//! built from the same source with the same toolchain.
//!
//! What goes into them is staged first: the sources of their packages and of those they depend on in this workspace,
//! and the locked versions of other packages. The digest of that decides whether anything is to be built; when it is,
//! cargo runs in the toolchain root, sees nothing but the stage and the vendored packages, each at a fixed path, and
//! uses no network.

mod asset;
mod ebpf;
mod place;
mod sources;

use std::{
    collections::BTreeMap,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use bpfassay_protocol::Arch;
use bpfassay_stage::PROFILE;
pub use bpfassay_stage::{Stage, StageError};
use serde::{Deserialize, Serialize};

use self::sources::{Checkout, Wanted};
pub use self::{
    asset::{AssetError, FORMAT as ASSET_FORMAT, FileHash, Index},
    place::{NotAPlace, Place},
    sources::{ProgramSources, checkout},
};
use crate::{
    Error, Result,
    apt::Apt,
    cache::{Cache, Digest, Object},
    manifest::{Component, ProgramAsset},
    toolchain::{Sandbox, Toolchain, sandbox},
};

/// Packages and programs that go into the guest.
const AGENT: Program = Program { package: "bpfassay-guest", binary: "bpfassay-guest" };
const TRACER: Program = Program { package: "bpfassay-tracer", binary: "bpfassay-tracer" };
const IOR: Program = Program { package: "bpfassay-workload", binary: "bpfassay-ior" };

/// The programs.
const PROGRAMS: [Program; 3] = [AGENT, TRACER, IOR];

struct Program {
    package: &'static str,
    binary: &'static str,
}

/// To be changed whenever other programs are built of the same source and toolchain.
const KEY_VERSION: &str = "1";

/// Kind of cache record: source and architecture → programs.
const RECORD: &str = "payload";

/// The environment variable that names a target directory to keep between builds, for those who work on the programs:
/// only what changed is compiled again then. One build at a time may use it.
const TARGET_VARIABLE: &str = "BPFASSAY_PAYLOAD_TARGET";

/// Bytes that building takes for a while: intermediate files, per architecture and for all.
const SPACE_PER_ARCH: u64 = 250_000_000;
const SPACE: u64 = 400_000_000;

/// A build under way.
struct Building<'a> {
    toolchain: &'a Toolchain,
    root: Sandbox<'a>,
    /// The target directory, on the host.
    target: PathBuf,
    /// Cargo's environment.
    variables: Vec<(String, String)>,
    /// Where the output goes.
    log: PathBuf,
}

/// Lines of a failed build that go into the error.
const LINES: usize = 12;

/// The guest's programs for one architecture.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The architecture.
    pub arch: Arch,
    /// The agent, `/init` of the guest.
    pub agent: Object,
    /// The bundled tracer.
    pub tracer: Object,
    /// The embedded IOR engine.
    pub ior: Object,
    /// Digest of the source that they were built from.
    pub source: Digest,
}

impl Payload {
    /// The programs for `arch` that were built elsewhere, from `directory`, which holds them under the names that cargo
    /// gives them. They are copied into the cache.
    ///
    /// # Errors
    /// [`Error::Io`] for a program that is not there, and others of the cache.
    pub fn from_directory(cache: &Cache, arch: Arch, directory: &Path) -> Result<Self> {
        let take = |program: Program| {
            cache.add_file(&format!("{} for {arch}", program.binary), &directory.join(program.binary), None)
        };
        let (agent, tracer, ior) = (take(AGENT)?, take(TRACER)?, take(IOR)?);
        let source = Digest::of_parts([&agent, &tracer, &ior].map(|object| object.digest.to_string()));
        Ok(Self { arch, agent, tracer, ior, source })
    }
}

/// The guest's programs for several architectures.
#[derive(Debug, Clone, Default)]
pub struct Built {
    /// By architecture.
    pub programs: BTreeMap<Arch, Payload>,
    /// The packages of the toolchain that they were built with, sorted.
    pub toolchain: Vec<Component>,
    /// The assets that they were taken from.
    pub assets: Vec<ProgramAsset>,
}

/// What the cache remembers of a build.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    agent: Digest,
    tracer: Digest,
    ior: Digest,
    toolchain_key: Digest,
    toolchain: Vec<Component>,
    /// The asset that the programs were taken from; none where they were built here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    asset: Option<ProgramAsset>,
}

/// The programs for `archs`: from the cache, else from the first of the places of `sources` that offers them, else built, all that are
/// missing in one go. What takes time is reported by `tracing` events.
///
/// # Errors
/// [`Error::Stage`] for a checkout that cannot be read, [`Error::Build`] for a build that fails (with the last lines and the place of its log)
/// and where there is nothing to build from; [`Error::Asset`], [`Error::Mismatch`], [`Error::Download`] for a place with a damaged asset
/// and one that cannot be read; those of [`Toolchain::prepare`].
pub fn prepare(apt: &Apt<'_>, sources: &ProgramSources, archs: &[Arch]) -> Result<Built> {
    let cache = apt.cache();
    let wanted = Wanted::find(sources)?;
    let source = wanted.source;
    let refreshed = if apt.options().refresh { Some(Toolchain::prepare(apt)?) } else { None };
    let current = refreshed.as_ref().map(|toolchain| toolchain.key);
    if let Some(found) = all_recorded(cache, source, archs, current)? {
        return Ok(found);
    }
    let _lock = cache.lock("payload")?;
    let mut missing = Vec::new();
    for &arch in archs {
        if recorded(cache, source, arch, current)?.is_none() && !take_offered(apt, sources, source, arch, current)? {
            missing.push(arch);
        }
    }
    if !missing.is_empty() {
        missing.sort_unstable();
        missing.dedup();
        let checkout = wanted.checkout(&missing)?;
        let toolchain = match refreshed {
            Some(toolchain) => toolchain,
            None => Toolchain::prepare(apt)?,
        };
        build(apt, checkout, &toolchain, &missing)?;
    }
    all_recorded(cache, source, archs, None)?.ok_or_else(|| Error::Build {
        what: format!(
            "the guest's programs vanished from the cache {} while they were built: run again",
            cache.root().display()
        ),
    })
}

/// Takes the programs for `arch` from `source` into the cache, from the first place of `sources` that offers them, built with the
/// toolchain `toolchain` if that matters. Whether there was one.
fn take_offered(
    apt: &Apt<'_>,
    sources: &ProgramSources,
    source: Digest,
    arch: Arch,
    toolchain: Option<Digest>,
) -> Result<bool> {
    let of = &source.to_string()[..16];
    for place in &sources.from {
        if matches!(place, Place::Url(_)) && apt.options().offline {
            tracing::info!("{place} was not asked for the guest's programs for {arch}, because of --offline");
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
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether the cache holds the programs for `archs`: then nothing is built.
///
/// # Errors
/// [`Error::Stage`] for a checkout that cannot be read, [`Error::Build`] where there are no sources; [`Error::Io`], [`Error::Damaged`] where the
/// cache cannot be read or repaired.
pub fn is_cached(cache: &Cache, sources: &ProgramSources, archs: &[Arch]) -> Result<bool> {
    Ok(all_recorded(cache, Wanted::find(sources)?.source, archs, None)?.is_some())
}

/// Writes the programs of `built` as assets into `directory`, which is made where it does not exist.
///
/// # Errors
/// [`Error::Io`] and [`Error::Archive`] where files cannot be read or written; those of the cache.
pub fn pack(cache: &Cache, built: &Built, directory: &Path) -> Result<Vec<Index>> {
    fs::create_dir_all(directory).map_err(Error::io("create", directory))?;
    let mut packed = Vec::new();
    for payload in built.programs.values() {
        let recorded = cache.recorded::<Recorded>(RECORD, &record_key(payload.source, payload.arch))?;
        let recorded = recorded.ok_or_else(|| Error::Build {
            what: format!("the guest's programs for {} are no longer in the cache: run again", payload.arch),
        })?;
        packed.push(asset::write(directory, payload, recorded.toolchain_key, &recorded.toolchain)?);
    }
    Ok(packed)
}

fn all_recorded(cache: &Cache, source: Digest, archs: &[Arch], toolchain: Option<Digest>) -> Result<Option<Built>> {
    let mut all = Built::default();
    for &arch in archs {
        let Some((payload, recorded)) = recorded(cache, source, arch, toolchain)? else { return Ok(None) };
        all.programs.insert(arch, payload);
        all.toolchain.extend(recorded.toolchain);
        all.assets.extend(recorded.asset);
    }
    // Architectures that were built at different times may have been built with different versions: all are named.
    all.toolchain.sort();
    all.toolchain.dedup();
    Ok(Some(all))
}

fn record_key(source: Digest, arch: Arch) -> Digest {
    Digest::of_parts([KEY_VERSION, ebpf::LINKER, PROFILE, arch.name(), &source.to_string()])
}

/// What was built from `source` for `arch`, with the toolchain `toolchain` if that matters.
fn recorded(
    cache: &Cache,
    source: Digest,
    arch: Arch,
    toolchain: Option<Digest>,
) -> Result<Option<(Payload, Recorded)>> {
    let Some(recorded) = cache.recorded::<Recorded>(RECORD, &record_key(source, arch))? else { return Ok(None) };
    if toolchain.is_some_and(|key| key != recorded.toolchain_key) {
        return Ok(None);
    }
    let (Some(agent), Some(tracer), Some(ior)) =
        (cache.object(&recorded.agent)?, cache.object(&recorded.tracer)?, cache.object(&recorded.ior)?)
    else {
        return Ok(None);
    };
    Ok(Some((Payload { arch, agent, tracer, ior, source }, recorded)))
}

fn build(apt: &Apt<'_>, checkout: &Checkout, toolchain: &Toolchain, archs: &[Arch]) -> Result<()> {
    let Checkout { workspace, stage } = checkout;
    let source_digest = Digest::from(stage.digest());
    let cache = apt.cache();
    let names = archs.iter().map(|arch| arch.name()).collect::<Vec<_>>().join(", ");
    cache.require_space("building the guest's programs", SPACE + SPACE_PER_ARCH * archs.len() as u64)?;
    let started = Instant::now();
    tracing::info!("building the guest's programs for {names}; one to three minutes, once per version of their source");
    let scratch = cache.scratch()?;
    let source = scratch.path().join("src");
    let vendor = scratch.path().join("vendor");
    let target = env::var_os(TARGET_VARIABLE).map_or_else(|| scratch.path().join("target"), PathBuf::from);
    fs::create_dir_all(&target).map_err(Error::io("create", &target))?;
    stage.write(&source)?;
    let log = cache.root().join("logs").join(format!("payload-{}.log", &source_digest.to_string()[..16]));
    run_vendor(workspace, &source, &vendor, apt.options().offline, &log)?;
    let root = Sandbox::new(&toolchain.root)
        .mount(&source, "src", true)
        .mount(&vendor, "vendor", false)
        .mount(&target, "target", true);
    let building = Building { toolchain, root, target, variables: variables(), log };
    ebpf::provide(cache, &building, stage, archs)?;
    build_programs(&building, archs)?;
    for &arch in archs {
        let take = |program: Program| {
            let path = building.target.join(arch.facts().rust_target).join(PROFILE).join(program.binary);
            Ok::<_, Error>(cache.add_file(&format!("{} for {arch}", program.binary), &path, None)?.digest)
        };
        let recorded = Recorded {
            agent: take(AGENT)?,
            tracer: take(TRACER)?,
            ior: take(IOR)?,
            toolchain_key: toolchain.key,
            toolchain: toolchain.components(),
            asset: None,
        };
        cache.record(RECORD, &record_key(source_digest, arch), &recorded)?;
    }
    tracing::info!("built the guest's programs in {} s", started.elapsed().as_secs());
    Ok(())
}

fn build_programs(building: &Building<'_>, archs: &[Arch]) -> Result<()> {
    let mut variables = building.variables.clone();
    variables.push((ebpf::VARIABLE.to_owned(), format!("/target/{}", ebpf::DIRECTORY)));
    let mut command = building.root.command("/usr/bin/cargo", "/src", &variables);
    command.args(["build", "--frozen", "--profile", PROFILE, "--bins"]);
    for arch in archs {
        command.args(["--target", arch.facts().rust_target]);
    }
    for program in [AGENT, TRACER, IOR] {
        command.args(["--package", program.package]);
    }
    run_logged(command, sandbox::PROGRAM, sandbox::PACKAGE, &building.log, "build the guest's programs")
}

/// Cargo's environment in the root. Every path that could get into a program is fixed there; `--remap-path-prefix` makes
/// those that do get in (messages of panics) readable.
fn variables() -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = [
        ("CARGO_HOME", "/tmp/cargo"),
        ("CARGO_TARGET_DIR", "/target"),
        ("CARGO_INCREMENTAL", "0"),
        ("CARGO_TERM_COLOR", "never"),
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

/// Puts the packages that the stage needs into `vendor`, by the host's cargo, which is configured for the registries that can be reached
/// here. It runs in the workspace, so that its configuration counts.
fn run_vendor(workspace: &Path, source: &Path, vendor: &Path, offline: bool, log: &Path) -> Result<()> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(&cargo);
    command.current_dir(workspace).args(["vendor", "--quiet", "--versioned-dirs", "--manifest-path"]);
    command.arg(source.join("Cargo.toml")).arg(vendor);
    if offline {
        command.arg("--offline");
    }
    run_logged(command, &cargo.to_string_lossy(), "cargo", log, "collect the packages that the guest's programs need")?;
    let configuration = source.join(".cargo");
    fs::create_dir_all(&configuration).map_err(Error::io("create", &configuration))?;
    let path = configuration.join("config.toml");
    let text = "[source.crates-io]\nreplace-with = \"vendored\"\n\n[source.vendored]\ndirectory = \"/vendor\"\n";
    fs::write(&path, text).map_err(Error::io("write", &path))
}

/// Runs `command` with its output in `log`; `purpose` completes "cannot …".
fn run_logged(mut command: Command, program: &str, package: &'static str, log: &Path, purpose: &str) -> Result<()> {
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    let file = fs::File::create(log).map_err(Error::io("write", log))?;
    let copy = file.try_clone().map_err(Error::io("write", log))?;
    let status = command.stdin(Stdio::null()).stdout(file).stderr(copy).status().map_err(|source| Error::Program {
        program: program.to_owned(),
        package,
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    let text = fs::read(log).map_err(Error::io("read", log))?;
    Err(Error::Build {
        what: format!(
            "cannot {purpose} ({status}); the whole output is in {}; it ends:\n{}",
            log.display(),
            end(&text)
        ),
    })
}

/// The last lines of an output.
pub(crate) fn end(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests;
