// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks whether programs that were built before are what their sources give: builds them again
//! without the cache and compares.

use bpfassay_packages::{apt::Apt, digest::Digest, stages::StageKind};
use bpfassay_protocol::Arch;

use super::{
    AssetSource, Built, PROGRAMS, ProgramSources, WantedSources, asset,
    build_environment::{BuildEnvironment, Reuse},
    compile, recorded,
};
use crate::{
    error::{Error, Result},
    manifest::Component,
    toolchain::Toolchain,
};

/// Largest number of differences between two toolchains that are reported.
const MAX_DIFFERENCES: usize = 8;

/// A program that was built before, and the program that its sources give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedProgram {
    /// The architecture that the program runs on.
    pub arch: Arch,
    /// File name of the program.
    pub program: &'static str,
    /// Location of the earlier program: a place, or `the cache`.
    pub of: String,
    /// SHA-256 of the earlier program.
    pub found: Digest,
    /// SHA-256 of the program that was built now.
    pub built: Digest,
}

/// The result of [`verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Digest of the sources.
    pub source: Digest,
    /// One entry per program, architecture and place.
    pub compared: Vec<ComparedProgram>,
    /// How the toolchains that built the earlier programs differ from the present one, a line each.
    pub differences: Vec<String>,
}

/// Programs of one architecture that were built before.
struct BuiltBefore {
    arch: Arch,
    of: String,
    programs: [Digest; PROGRAMS.len()],
    toolchain_key: Digest,
    toolchain: Vec<Component>,
}

impl BuiltBefore {
    fn cached(built: Built) -> Self {
        let Built { payload, toolchain, toolchain_key, .. } = built;
        let programs = [payload.agent, payload.tracer, payload.ior].map(|object| object.digest);
        Self { arch: payload.arch, of: "the cache".to_owned(), programs, toolchain_key, toolchain }
    }
}

/// Builds the programs for `archs` again and compares them, byte for byte, with those that each
/// place of `sources` offers. If there is no place, compares them with the programs in the cache.
/// Uses no results of earlier builds, and keeps nothing of this build.
///
/// # Errors
/// [`Error::Build`] if there are no sources, a build fails, or programs to compare with are
/// missing, and the errors of assets and of the toolchain.
pub fn verify(apt: &Apt<'_>, sources: &ProgramSources, archs: &[Arch]) -> Result<Verified> {
    let wanted = WantedSources::find(sources)?;
    let source = wanted.source;
    let checkout = wanted.into_checkout(archs)?;
    let mut subjects = Vec::new();
    for &arch in archs {
        let before = subjects.len();
        for place in &sources.from {
            subjects.extend(offered(apt, place, source, arch)?);
        }
        if sources.from.is_empty() {
            let found = recorded(apt.cache(), source, arch, None)?;
            subjects.extend(found.map(BuiltBefore::cached));
        }
        if subjects.len() == before {
            let what = format!(
                "there are no programs for {arch} of the sources {} to compare with: run `bpfassay testbed payload build`, or name a place \
                 that offers them with --from",
                &source.to_string()[..16]
            );
            return Err(Error::Build { what });
        }
    }
    let environment =
        BuildEnvironment::prepare(apt, &checkout, || Toolchain::prepare(apt), archs.len(), Reuse::Nothing)?;
    for &arch in archs {
        apt.during(StageKind::Programs, arch.name(), |apt| compile(apt, &checkout.stage, &environment, arch))?;
    }
    let toolchain = &environment.toolchain;
    let mut verified = Verified { source, compared: Vec::new(), differences: Vec::new() };
    for subject in &subjects {
        for (program, found) in PROGRAMS.iter().zip(subject.programs) {
            let (arch, of) = (subject.arch, subject.of.clone());
            let built = Digest::of_file(&environment.program(arch, program))?;
            verified.compared.push(ComparedProgram { arch, program: program.binary, of, found, built });
        }
        if subject.toolchain_key != toolchain.key {
            let lines = differences(&subject.toolchain, &toolchain.components());
            verified
                .differences
                .extend(lines.into_iter().map(|line| format!("{} for {}: {line}", subject.of, subject.arch)));
        }
    }
    Ok(verified)
}

/// Reads the programs that `place` offers, checked by their hashes.
fn offered(apt: &Apt<'_>, place: &AssetSource, source: Digest, arch: Arch) -> Result<Option<BuiltBefore>> {
    let Some(index) = asset::find(apt, place, source, arch)? else {
        tracing::info!("{place} offers no programs for {arch} of these sources");
        return Ok(None);
    };
    let programs = asset::read(apt, place, &index)?.map(|program| Digest::of(&program));
    let asset::AssetIndex { toolchain_key, toolchain, .. } = index;
    Ok(Some(BuiltBefore { arch, of: place.to_string(), programs, toolchain_key, toolchain }))
}

/// Lists the packages that differ, a line each.
fn differences(before: &[Component], now: &[Component]) -> Vec<String> {
    let version = |of: &[Component], name: &str| {
        of.iter().find(|one| one.name == name).map_or_else(|| "nothing".to_owned(), |one| one.version.clone())
    };
    let mut names: Vec<&str> = before.iter().filter(|one| !now.contains(one)).map(|one| one.name.as_str()).collect();
    names.extend(now.iter().filter(|one| !before.contains(one)).map(|one| one.name.as_str()));
    names.sort_unstable();
    names.dedup();
    let line = |name: &&str| format!("built with {name} {}, now with {}", version(before, name), version(now, name));
    let mut lines: Vec<String> = names.iter().take(MAX_DIFFERENCES).map(line).collect();
    if names.len() > MAX_DIFFERENCES {
        lines.push(format!("and {} packages more", names.len() - MAX_DIFFERENCES));
    }
    if lines.is_empty() {
        lines.push("the toolchain was made in another way".to_owned());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, version: &str) -> Component {
        Component { name: name.to_owned(), version: version.to_owned(), sha256: Digest::of(version.as_bytes()) }
    }

    #[test]
    fn differences_between_toolchains_are_named() {
        let before = [component("cargo", "1"), component("gcc", "1"), component("sed", "1")];
        let now = [component("cargo", "1"), component("gcc", "2"), component("tar", "1")];
        assert_eq!(
            differences(&before, &now),
            [
                "built with gcc 1, now with 2",
                "built with sed 1, now with nothing",
                "built with tar nothing, now with 1"
            ]
        );
        let many: Vec<_> = (0..20).map(|n| component(&format!("p{n:02}"), "1")).collect();
        let lines = differences(&many, &[]);
        assert_eq!((lines.len(), lines[8].as_str()), (9, "and 12 packages more"));
        assert_eq!(differences(&now, &now).len(), 1);
    }
}
