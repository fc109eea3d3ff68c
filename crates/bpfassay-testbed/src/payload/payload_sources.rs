// SPDX-License-Identifier: MIT OR Apache-2.0
//! Determines the sources of the guest's programs, and where the programs can come from.

use std::{
    env,
    io::Read as _,
    path::{Path, PathBuf},
};

use bpfassay_packages::{apt::AssetSource, digest::Digest};
use bpfassay_protocol::Arch;
use bpfassay_stage::{PACKAGES, Stage};
use flate2::read::GzDecoder;

use crate::error::{Error, Result};

/// Sources of the guest's programs, in addition to the cache and a build of a checkout.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSources {
    /// Places that offer programs, in the order in which they are asked.
    pub from: Vec<AssetSource>,
    /// Digest of the sources that the calling program was built with. It selects the programs if
    /// there is no checkout.
    pub built_with: Option<Digest>,
    /// The sources themselves, compressed as [`unpacked`] expects. Programs that no place offers
    /// are built from them.
    pub compiled_in: Option<&'static [u8]>,
}

/// Sources from which the guest's programs can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Buildable {
    /// A checkout of this project.
    Checkout(PathBuf),
    /// The sources that are compiled into the calling program.
    CompiledIn,
}

impl ProgramSources {
    /// Returns the sources to build the guest's programs from: the checkout, if there is one, else
    /// those compiled in. If `BPFASSAY_SOURCE` is set, only its checkout counts. Returns `None` if
    /// there are no sources.
    #[must_use]
    pub fn buildable(&self) -> Option<Buildable> {
        match checkout() {
            Some(workspace) => Some(Buildable::Checkout(workspace)),
            None if env::var_os(VARIABLE).is_none() && self.compiled_in.is_some() => Some(Buildable::CompiledIn),
            None => None,
        }
    }
}

/// Largest decompressed size of the sources that are compiled in, in bytes.
const MOST: u64 = 64 << 20;

/// Unpacks the stage in `bytes`: those of [`Stage::to_bytes`], compressed by gzip.
///
/// # Errors
/// [`Error::Stage`] if the content is not a stage, [`Error::Build`] if `bytes` cannot be
/// decompressed.
pub fn unpacked(bytes: &[u8]) -> Result<Stage> {
    let mut content = Vec::new();
    GzDecoder::new(bytes).take(MOST).read_to_end(&mut content).map_err(|error| Error::Build {
        what: format!(
            "the sources of the guest's programs that are compiled in cannot be decompressed ({error}): {REMEDY}"
        ),
    })?;
    Ok(Stage::from_bytes(&content, &PACKAGES)?)
}

/// The sources of the programs to provide.
#[derive(Debug)]
pub(super) struct WantedSources {
    /// Digest of the sources.
    pub(super) source: Digest,
    checkout: Option<Checkout>,
    /// The sources that are compiled in, if they may be built.
    compiled_in: Option<&'static [u8]>,
    /// The places of `--from`, for the error if none of them offers the programs.
    from: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Checkout {
    /// The root of the workspace. Absent for sources that are compiled in.
    pub(super) workspace: Option<PathBuf>,
    /// The files that determine the programs.
    pub(super) stage: Stage,
}

impl WantedSources {
    /// Selects the sources of the checkout, if there is one, else those that this program was built
    /// with.
    ///
    /// # Errors
    /// [`Error::Stage`] if the checkout cannot be read, [`Error::Build`] if there are no sources.
    pub(super) fn find(sources: &ProgramSources) -> Result<Self> {
        let workspace = match sources.buildable() {
            Some(Buildable::Checkout(workspace)) => workspace,
            Some(Buildable::CompiledIn) => {
                return Ok(Self { compiled_in: sources.compiled_in, ..Self::without_checkout(sources)? });
            }
            None => return Self::without_checkout(sources),
        };
        let stage = Stage::read(&workspace, &PACKAGES)?;
        let source = stage.digest().into();
        let checkout = Some(Checkout { workspace: Some(workspace), stage });
        Ok(Self { source, checkout, compiled_in: None, from: Vec::new() })
    }

    /// Selects the sources that this program was built with.
    ///
    /// # Errors
    /// [`Error::Build`] if this program does not have their digest.
    pub(super) fn without_checkout(sources: &ProgramSources) -> Result<Self> {
        let Some(source) = sources.built_with else {
            let what = format!(
                "there are no sources of the guest's programs {}, and this program does not have the digest of any: {REMEDY}",
                looked_in()
            );
            return Err(Error::Build { what });
        };
        tracing::debug!("no sources of the guest's programs {}; those of {source} are looked for", looked_in());
        let from = sources.from.iter().map(AssetSource::to_string).collect();
        Ok(Self { source, checkout: None, compiled_in: None, from })
    }

    /// Returns whether the sources are a checkout. Its developers may need programs built with a
    /// newer toolchain.
    pub(super) fn is_of_checkout(&self) -> bool {
        self.checkout.is_some()
    }

    /// Returns the sources to build the programs for `archs` from.
    ///
    /// # Errors
    /// [`Error::Build`] if there are no sources, or if those compiled in cannot be built here.
    pub(super) fn into_checkout(self, archs: &[Arch]) -> Result<Checkout> {
        if let Some(checkout) = self.checkout {
            return Ok(checkout);
        }
        let why = match self.compiled_in {
            Some(bytes) if has_cargo() => {
                let stage = unpacked(bytes)?;
                if self.source != stage.digest().into() {
                    let what = format!(
                        "the sources of the guest's programs that are compiled in are not those of {}: build bpfassay again, or {REMEDY}",
                        self.source
                    );
                    return Err(Error::Build { what });
                }
                tracing::info!("the guest's programs are built from the sources that are compiled into this program");
                return Ok(Checkout { workspace: None, stage });
            }
            Some(_) => {
                "cargo cannot be started, which would build them from the sources that are compiled into this program"
                    .to_owned()
            }
            None => format!("there are no sources to build them from {}", looked_in()),
        };
        let archs: Vec<_> = archs.iter().map(|arch| arch.name()).collect();
        let places = if self.from.is_empty() {
            "no --from names a place that offers them".to_owned()
        } else {
            format!("--from does not offer them ({})", self.from.join(", "))
        };
        let what = format!(
            "the guest's programs for {} (sources {}) are not in the cache, {places}, and {why}: {REMEDY}",
            archs.join(", "),
            &self.source.to_string()[..16],
        );
        Err(Error::Build { what })
    }
}

/// Returns whether the host has cargo, which fetches the packages that the guest's programs need.
fn has_cargo() -> bool {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    bpfassay_child::command(program, &[bpfassay_child::CARGO])
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}

const REMEDY: &str = "name a place that offers them with --from (or BPFASSAY_FROM), the checkout of this project in \
                      BPFASSAY_SOURCE, or a testbed made elsewhere with --manifest";

/// The environment variable that names the checkout.
const VARIABLE: &str = "BPFASSAY_SOURCE";

/// The directory where this program was built. Absent in releases, because that directory could
/// belong to anybody on the user's machine.
const BUILT_IN: Option<&str> =
    if option_env!("BPFASSAY_RELEASE").is_some() { None } else { Some(env!("CARGO_MANIFEST_DIR")) };

/// Returns the directory in which to look for sources.
fn place() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from).or_else(|| BUILT_IN.map(|path| Path::new(path).join("../..")))
}

/// Returns the root of this project's workspace, if it exists: the directory in the environment
/// variable `BPFASSAY_SOURCE`, or the one where this program was built.
#[must_use]
pub fn checkout() -> Option<PathBuf> {
    place()?.canonicalize().ok().filter(|path| path.join("Cargo.lock").is_file())
}

/// Tells where sources were looked for, for messages.
fn looked_in() -> String {
    place().map_or_else(|| format!("({VARIABLE} is not set)"), |path| format!("in {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn compressed(bytes: &[u8]) -> &'static [u8] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().leak()
    }

    fn wanted(source: Digest, compiled_in: &'static [u8]) -> WantedSources {
        WantedSources { source, checkout: None, compiled_in: Some(compiled_in), from: Vec::new() }
    }

    #[test]
    fn what_is_compiled_in_can_be_built_if_it_is_what_is_wanted() {
        let stage = Stage::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &PACKAGES).unwrap();
        let bytes = compressed(&stage.to_bytes());
        let checkout = wanted(stage.digest().into(), bytes).into_checkout(&[Arch::Riscv64]).unwrap();
        assert_eq!((checkout.workspace, &checkout.stage), (None, &stage));
        let refusal = |wanted: WantedSources| wanted.into_checkout(&[Arch::Riscv64]).unwrap_err().to_string();
        let other = refusal(wanted(Digest::of(b"other"), bytes));
        assert!(other.contains("are not those of") && other.contains("--from"), "{other}");
        let damaged = refusal(wanted(stage.digest().into(), b"no gzip"));
        assert!(damaged.contains("cannot be decompressed"), "{damaged}");
        let short = refusal(wanted(stage.digest().into(), compressed(&stage.to_bytes()[..1000])));
        assert!(short.contains("not the sources of the guest's programs"), "{short}");
    }
}
