// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which sources the guest's programs are those of, and where the programs may come from.

use std::{
    env,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;
use bpfassay_stage::{PACKAGES, Stage};

use super::AssetSource;
use crate::{Error, Result, cache::Digest};

/// Where the guest's programs may come from, besides the cache and a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSources {
    /// Places that offer programs, in the order in which they are asked.
    pub from: Vec<AssetSource>,
    /// Digest of the sources that the calling program was built with: the programs of these are used where there is no checkout.
    pub built_with: Option<Digest>,
}

/// The sources whose programs are wanted.
#[derive(Debug)]
pub(super) struct Wanted {
    /// Their digest.
    pub(super) source: Digest,
    checkout: Option<Checkout>,
    /// Places that have been named, for the error where none of them helps.
    from: Vec<String>,
}

/// Sources that can be built.
#[derive(Debug)]
pub(super) struct Checkout {
    /// The root of the workspace.
    pub(super) workspace: PathBuf,
    /// What of it matters.
    pub(super) stage: Stage,
}

impl Wanted {
    /// Those of the checkout, if there is one, else those that this program was built with.
    ///
    /// # Errors
    /// [`Error::Stage`] for a checkout that cannot be read; [`Error::Build`] where there is neither.
    pub(super) fn find(sources: &ProgramSources) -> Result<Self> {
        let Some(workspace) = checkout() else { return Self::without_checkout(sources) };
        let stage = Stage::read(&workspace, &PACKAGES)?;
        Ok(Self { source: stage.digest().into(), checkout: Some(Checkout { workspace, stage }), from: Vec::new() })
    }

    /// Those that this program was built with.
    ///
    /// # Errors
    /// [`Error::Build`] where it does not have their digest.
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
        Ok(Self { source, checkout: None, from })
    }

    /// Whether there are sources to build from.
    pub(super) fn can_be_built(&self) -> bool {
        self.checkout.is_some()
    }

    /// The sources, to build `archs` from.
    ///
    /// # Errors
    /// [`Error::Build`] where there is no checkout.
    pub(super) fn checkout(&self, archs: &[Arch]) -> Result<&Checkout> {
        self.checkout.as_ref().ok_or_else(|| {
            let archs: Vec<_> = archs.iter().map(|arch| arch.name()).collect();
            let places = if self.from.is_empty() {
                "no --from names a place that offers them".to_owned()
            } else {
                format!("--from does not offer them ({})", self.from.join(", "))
            };
            let what = format!(
                "the guest's programs for {} (sources {}) are not in the cache, {places}, and there are no sources to build them \
                 from {}: {REMEDY}",
                archs.join(", "),
                &self.source.to_string()[..16],
                looked_in()
            );
            Error::Build { what }
        })
    }
}

const REMEDY: &str = "name a place that offers them with --from (or BPFASSAY_FROM), the checkout of this project in \
                      BPFASSAY_SOURCE, or a testbed made elsewhere with --manifest";

/// The environment variable that names the checkout.
const VARIABLE: &str = "BPFASSAY_SOURCE";

/// Where this program was built, unless it was built for other machines, on which that directory could be anybody's.
const BUILT_IN: Option<&str> =
    if option_env!("BPFASSAY_RELEASE").is_some() { None } else { Some(env!("CARGO_MANIFEST_DIR")) };

/// The directory in which sources are looked for.
fn place() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from).or_else(|| BUILT_IN.map(|path| Path::new(path).join("../..")))
}

/// The root of this project's workspace, in the directory that the environment variable `BPFASSAY_SOURCE` names or where this program
/// was built, if it is there.
#[must_use]
pub fn checkout() -> Option<PathBuf> {
    place()?.canonicalize().ok().filter(|path| path.join("Cargo.lock").is_file())
}

/// Where sources were looked for, for messages.
fn looked_in() -> String {
    place().map_or_else(|| format!("({VARIABLE} is not set)"), |path| format!("in {}", path.display()))
}
