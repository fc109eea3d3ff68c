// SPDX-License-Identifier: MIT OR Apache-2.0
//! Private package indexes for one suite and some architectures.

#![allow(clippy::disallowed_methods, reason = "joins fixed names and suites of this program to a scratch directory")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use super::{
    Apt, IndexedPackage, Located, MAX_TEXT, ReleaseFile, SnapshotTime,
    apt_sandbox::AptSandbox,
    cannot_start,
    configuration::{apt_command, follow_move, is_configured, write_configuration},
    mirror::ATTEMPTS,
    parse_index, parse_print_uris, program,
    release::Age,
    tail,
};
use crate::{
    digest::Digest,
    error::{PackagesError, Result, apt_failure::AptError},
    stages::ProgressStep,
};

/// Maximum age of indexes that are used without asking the mirror.
const FRESH: Duration = Duration::from_secs(7 * 24 * 3600);

/// Approximate space for fetching the indexes of one suite and architecture, in bytes.
const INDEX_SIZE: u64 = 100_000_000;

/// When and how the indexes of a root were fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexState {
    /// When they were fetched, in seconds since 1970.
    pub fetched: u64,
    /// The release file that signs the indexes.
    pub release: ReleaseFile,
    /// Whether the release file had expired at that time, and was accepted all the same.
    pub stale: bool,
    /// URI of the archive that the indexes came from.
    pub archive: String,
}

/// The fetched indexes of one suite for some architectures.
#[derive(Debug)]
pub struct Root {
    directory: PathBuf,
    suite: String,
    state: IndexState,
}

impl Apt<'_> {
    /// Returns the indexes of `suite` for `architectures`; the first architecture counts as native.
    /// Fetches them if they are missing or old, or if [`super::FetchOptions::refresh`] is set.
    ///
    /// If the mirror fails, existing indexes are used with a warning, unless this is a refresh.
    ///
    /// # Errors
    /// - [`AptError`]: the mirror fails.
    /// - [`PackagesError::Offline`]: there are no indexes, and the network may not be used.
    /// - [`PackagesError::Program`]: the host has no apt.
    /// - [`PackagesError::DiskFull`], [`PackagesError::Io`]
    pub fn root(&self, suite: &str, architectures: &[Arch]) -> Result<Root> {
        self.root_at(suite, architectures, false)
    }

    /// Does the same as [`Apt::root`], but `force` fetches even fresh indexes.
    ///
    /// # Errors
    /// The errors of [`Apt::root`].
    pub fn root_at(&self, suite: &str, architectures: &[Arch], force: bool) -> Result<Root> {
        let names: Vec<_> = architectures.iter().map(|&arch| arch.facts().debian_name).collect();
        let name = root_name(suite, architectures);
        let directory = self.cache().root().join("apt").join(&name);
        let _lock = self.cache().lock(&format!("apt-{name}"))?;
        let known = read_state(&directory);
        if known.is_some() {
            follow_move(&directory)?;
        }
        let same_archive = |state: &IndexState| self.options().mirror.as_ref().is_none_or(|uri| *uri == state.archive);
        let fresh = known
            .as_ref()
            .is_some_and(|state| same_archive(state) && now().saturating_sub(state.fetched) < FRESH.as_secs());
        // A refresh cannot improve on what this process fetched.
        let refreshed_by_us = self.updated().contains(&name);
        let root = |state| Root { directory: directory.clone(), suite: suite.to_owned(), state };
        match known {
            Some(state)
                if self.options().offline || (!force && (refreshed_by_us || (fresh && !self.options().refresh))) =>
            {
                Ok(root(state))
            }
            None if self.options().offline => {
                Err(PackagesError::Offline { what: format!("the package index of suite {suite}") })
            }
            known => match self.update(&directory, suite, &names) {
                Ok(state) => {
                    self.updated().insert(name);
                    Ok(root(state))
                }
                Err(error) => match known {
                    Some(state) if !self.options().refresh && !force => {
                        let age = Age(Duration::from_secs(now().saturating_sub(state.fetched)));
                        tracing::warn!("using the package index of suite {suite} fetched {age} ago: {error}");
                        Ok(root(state))
                    }
                    _ => Err(error),
                },
            },
        }
    }

    /// Returns the age of the cached indexes of `suite` for `architectures`. Fetches nothing.
    #[must_use]
    pub fn known_state(&self, suite: &str, architectures: &[Arch]) -> Option<IndexState> {
        read_state(&self.cache().root().join("apt").join(root_name(suite, architectures)))
    }

    /// Returns the cached indexes of `suite` for `architectures`. Fetches nothing.
    ///
    /// # Errors
    /// [`PackagesError::Io`] if their configuration cannot be read or written.
    pub fn known_root(&self, suite: &str, architectures: &[Arch]) -> Result<Option<Root>> {
        let name = root_name(suite, architectures);
        let directory = self.cache().root().join("apt").join(&name);
        let _lock = self.cache().lock(&format!("apt-{name}"))?;
        let Some(state) = read_state(&directory) else { return Ok(None) };
        follow_move(&directory)?;
        Ok(Some(Root { directory, suite: suite.to_owned(), state }))
    }

    fn update(&self, directory: &Path, suite: &str, architectures: &[&str]) -> Result<IndexState> {
        let host = self.host()?;
        let what = format!("the package index of suite {suite}");
        let needed = INDEX_SIZE * architectures.len() as u64;
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, needed)?;
        write_configuration(directory, suite, architectures, host)?;
        host.archive.report();
        tracing::debug!("fetching {what} ({})", architectures.join(", "));
        self.stage().step(ProgressStep::Index, 0);
        let lists = directory.join("state/lists");
        let sandbox = AptSandbox::make(self.cache(), &host.user, &what, needed)?;
        if let Some(sandbox) = &sandbox {
            sandbox.put_lists(&lists)?;
        }
        let place = sandbox.as_ref().map(AptSandbox::lists);
        self.ask_mirror(suite, &what, needed, place.as_deref(), &mut || (), |attempt| {
            let mut command = apt_command(directory, "apt-get");
            command.args(["update", "-q", "-o", "APT::Update::Error-Mode=any"]);
            // Skip building apt's package cache: it would not be kept.
            command.args(["-o", "pkgCacheFile::Generate=false"]);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_update(&mut command);
            }
            if self.options().accept_stale {
                command.args(["-o", "Acquire::Check-Valid-Until=false"]);
            }
            if attempt == ATTEMPTS {
                // Another compression of the index may be complete while the mirror is updated.
                command.args(["-o", "Acquire::CompressionTypes::Order::=gz"]);
            }
            command
        })?;
        if let Some(sandbox) = &sandbox {
            // A mixture of old and new lists must not count as an index.
            self.cache().remove(&directory.join(STATE))?;
            sandbox.take_lists(self.cache(), &lists)?;
        }
        let release = read_release(directory, suite)?;
        let expired = release.expired_since(now());
        if let Some(age) = expired {
            let by = if self.options().accept_stale { "--accept-stale" } else { "the host's apt configuration" };
            tracing::warn!("the mirror of suite {suite} is stale (expired {} ago); accepted by {by}", Age(age));
        }
        let state = IndexState { fetched: now(), release, stale: expired.is_some(), archive: host.archive.uri.clone() };
        self.cache().write_small(&directory.join(STATE), &state)?;
        Ok(state)
    }
}

impl Root {
    /// Returns the name of the suite.
    #[must_use]
    pub fn suite(&self) -> &str {
        &self.suite
    }

    /// Returns when and how the indexes were fetched.
    #[must_use]
    pub fn state(&self) -> &IndexState {
        &self.state
    }

    /// Returns the time stamp of a snapshot that has the packages of the indexes.
    #[must_use]
    pub fn snapshot(&self) -> Option<SnapshotTime> {
        SnapshotTime::of_index(self.state.release.date, self.state.fetched)
    }

    /// Creates a command that runs apt in English on this root, not on the host's state.
    #[must_use]
    pub fn command(&self, tool: &str) -> Command {
        apt_command(&self.directory, tool)
    }

    /// Returns the packages of `arch`, and of architecture `all`, whose names `keep` selects.
    ///
    /// # Errors
    /// [`AptError::Parse`] if an index is malformed. [`PackagesError::Command`] if apt fails.
    /// [`PackagesError::Program`] if the host has no apt.
    pub fn packages(&self, arch: Arch, keep: impl FnMut(&str) -> bool) -> Result<Vec<IndexedPackage>> {
        let architecture = format!("Architecture: {}", arch.facts().debian_name);
        let purpose = "asking for the private package indexes";
        let mut command = self.command("apt-get");
        command.args(["indextargets", "--format", "$(FILENAME)", "Created-By: Packages", &architecture]);
        let files = program("apt-get", purpose, &mut command)?;
        let mut command = self.command(APT_HELPER);
        command.arg("cat-file").args(files.lines());
        let text = program(APT_HELPER, "reading a package index", &mut command)?;
        parse_index(&text, keep).map_err(|source| AptError::Parse { suite: self.suite.clone(), source }.into())
    }

    /// Returns `packages` (names, or specifications for `apt-get install`) and all their
    /// dependencies, sorted. Recommended packages are left out, and nothing counts as installed.
    ///
    /// # Errors
    /// - [`AptError::Unsatisfiable`]: packages do not exist or exclude each other.
    /// - [`AptError::Parse`]: apt's answer is malformed.
    /// - [`PackagesError::Program`]: the host has no apt.
    pub fn closure<T: AsRef<str>>(&self, packages: &[T]) -> Result<Vec<Located>> {
        let mut command = self.command("apt-get");
        command.args(["install", "--print-uris", "-qq", "-y", "--no-install-recommends"]);
        command.args(["-o", "Acquire::ForceHash=SHA256", "--"]);
        command.args(packages.iter().map(AsRef::as_ref));
        let output = command.output().map_err(|source| cannot_start("apt-get", source))?;
        if !output.status.success() {
            let packages: Vec<_> = packages.iter().map(AsRef::as_ref).collect();
            return Err(AptError::Unsatisfiable {
                suite: self.suite.clone(),
                packages: packages.join(", "),
                detail: tail(&output.stderr),
            }
            .into());
        }
        let mut packages = parse_print_uris(&String::from_utf8_lossy(&output.stdout))
            .map_err(|source| AptError::Parse { suite: self.suite.clone(), source })?;
        packages.sort();
        Ok(packages)
    }
}

/// apt's helper program for files other than packages.
pub(super) const APT_HELPER: &str = "/usr/lib/apt/apt-helper";
const STATE: &str = "state.json";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read_state(directory: &Path) -> Option<IndexState> {
    // apt would use the host's own state without this configuration.
    is_configured(directory).then_some(())?;
    serde_json::from_slice(&bpfassay_input::read(&directory.join(STATE), MAX_TEXT).ok()?).ok()
}

fn read_release(directory: &Path, suite: &str) -> Result<ReleaseFile> {
    let lists = directory.join("state/lists");
    for entry in fs::read_dir(&lists).map_err(PackagesError::io("read", &lists))? {
        let path = entry.map_err(PackagesError::io("read", &lists))?.path();
        if path.to_string_lossy().ends_with("Release") {
            let text = bpfassay_input::read_text(&path, MAX_TEXT).map_err(PackagesError::io("read", &path))?;
            if let Some(release) = ReleaseFile::parse(&text) {
                return Ok(release);
            }
        }
    }
    let detail = "apt-get update left no release file with a date".to_owned();
    Err(AptError::Other { suite: suite.to_owned(), detail }.into())
}

/// Returns the name of a root's directory and lock.
fn root_name(suite: &str, architectures: &[Arch]) -> String {
    architectures.iter().fold(suite.to_owned(), |name, &arch| name + "-" + arch.facts().debian_name)
}

impl IndexState {
    /// Returns a key for facts found in these indexes. It changes when they are fetched again.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_parts([self.release.codename.clone(), self.release.date.to_string(), self.fetched.to_string()])
    }
}

#[cfg(test)]
mod tests;
