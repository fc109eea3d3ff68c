// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian packages, fetched with the host's own apt configuration and private package indexes.
//! Nothing on the host changes. A host without apt downloads files at known paths without it.
//!
//! Each suite and set of architectures has its own [`Root`], so that a suite that a mirror does not
//! have at the moment does not affect other suites. The archive, the proxies and the keys are the
//! host's. This code names no mirror, but the build can compile one in ([`Defaults`]).

mod apt_defaults;
mod apt_package;
mod apt_sandbox;
mod apt_source;
mod apt_turn;
pub(crate) mod configuration;
mod direct_fetch;
mod download;
pub(crate) mod dpkg;
pub(crate) mod host_apt;
mod mirror;
mod package_pool;
mod release;
mod root;
mod snapshot;
mod url;

use std::{
    collections::BTreeSet,
    io,
    process::Command,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use self::apt_turn::DownloadTurn;
pub use self::{
    apt_defaults::{Defaults, Mirror, NamedBy},
    apt_package::{IndexedPackage, Located, Package, is_path, is_plain, parse_index, parse_print_uris},
    apt_source::{AssetSource, NotAnAssetSource, is_url},
    apt_turn::First,
    direct_fetch::Downloader,
    download::PackageOrigin,
    dpkg::missing_host_packages,
    host_apt::is_of_another_distribution,
    release::ReleaseFile,
    root::{IndexState, Root},
    snapshot::{NotASnapshot, SnapshotTime},
};
use crate::{
    cache::Cache,
    error::{PackagesError, Result},
    stages::{RunningStage, StageKind, Stages},
};

/// Limit on a release file (about 100 KB), a configuration or a state that is read, in bytes.
const MAX_TEXT: u64 = 16 << 20;

/// How packages are fetched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FetchOptions {
    /// Never use the network.
    pub offline: bool,
    /// Choose the newest packages of the mirror, not those of `testbed.lock`.
    pub newest: bool,
    /// Fetch even fresh package indexes again, and choose the newest packages.
    pub refresh: bool,
    /// Accept a mirror whose release file has expired.
    pub accept_stale: bool,
    /// URI of a Debian archive to use instead of the archive in the host's apt sources.
    pub mirror: Option<String>,
    /// Which program downloads.
    pub client: Downloader,
    /// Places asked before the mirror. They can have package files at their paths in a pool.
    pub from: Vec<AssetSource>,
    /// An archive that keeps what mirrors drop, asked after the mirror. It has every file below
    /// `debian/TIMESTAMP/`, for the time stamps in `testbed.lock`.
    pub archive: Option<AssetSource>,
    /// Never replace a locked file: a file that no place has is an error.
    pub exact: bool,
    /// The mirror and the archive for hosts on which nobody names one.
    pub defaults: Defaults,
}

impl FetchOptions {
    /// Whether packages come from `testbed.lock`.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        !(self.newest || self.refresh)
    }
}

/// Access to Debian's packages.
#[derive(Debug)]
pub struct Apt<'a> {
    cache: &'a Cache,
    options: FetchOptions,
    host: Arc<OnceLock<host_apt::HostArchive>>,
    /// Names of the roots that this value fetched, or one that [`Apt::during`] made of it.
    updated: Arc<Mutex<BTreeSet<String>>>,
    /// Which downloads wait for others.
    turn: Arc<DownloadTurn>,
    stages: Stages,
    /// The stage that progress is reported to.
    stage: RunningStage,
}

impl<'a> Apt<'a> {
    /// Creates the value. Nothing runs yet.
    #[must_use]
    pub fn new(cache: &'a Cache, options: FetchOptions) -> Self {
        Self {
            cache,
            options,
            host: Arc::default(),
            updated: Arc::default(),
            turn: Arc::default(),
            stages: Stages::default(),
            stage: RunningStage::default(),
        }
    }

    /// Reports to `stages` from now on.
    #[must_use]
    pub fn with_stages(self, stages: Stages) -> Self {
        Self { stages, ..self }
    }

    /// Runs `work` as a stage. The [`Apt`] that `work` gets reports to this stage.
    ///
    /// # Errors
    /// The errors of `work`.
    pub fn during<T, E>(
        &self,
        kind: StageKind,
        subject: impl Into<String>,
        work: impl FnOnce(&Apt<'a>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.stages.during(kind, subject, |stage| {
            let apt = Apt {
                cache: self.cache,
                options: self.options.clone(),
                host: Arc::clone(&self.host),
                updated: Arc::clone(&self.updated),
                turn: Arc::clone(&self.turn),
                stages: self.stages.clone(),
                stage: stage.clone(),
            };
            work(&apt)
        })
    }

    /// Returns the stage that progress is reported to.
    #[must_use]
    pub fn stage(&self) -> &RunningStage {
        &self.stage
    }

    /// Returns the cache of indexes and packages.
    #[must_use]
    pub fn cache(&self) -> &'a Cache {
        self.cache
    }

    /// Returns the options given to [`Apt::new`].
    #[must_use]
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// Holds back every download that has not begun until the returned value is dropped. Only
    /// [`Apt::fetch_first`] downloads in the meantime. It is for files that everything else waits
    /// for.
    #[must_use]
    pub fn first(&self) -> First<'_> {
        self.turn.first()
    }

    fn updated(&self) -> MutexGuard<'_, BTreeSet<String>> {
        // The set of names stays valid when a thread that holds the lock panics.
        self.updated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn host(&self) -> Result<&host_apt::HostArchive> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let host =
            host_apt::HostArchive::read(self.options.mirror.as_deref(), self.options.defaults.mirror.as_deref())?;
        Ok(self.host.get_or_init(|| host))
    }
}

/// Runs a program of Debian and returns its standard output.
fn program(name: &'static str, purpose: &str, command: &mut Command) -> Result<String> {
    let output = command.env("LC_ALL", "C.UTF-8").output().map_err(|source| cannot_start(name, source))?;
    if !output.status.success() {
        return Err(PackagesError::Command {
            command: name.to_owned(),
            purpose: purpose.to_owned(),
            status: output.status,
            stderr: tail(&output.stderr),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn cannot_start(program: &str, source: io::Error) -> PackagesError {
    let package = match program {
        "dpkg-deb" | "dpkg-query" => "dpkg",
        "prlimit" => "util-linux",
        "tar" => "tar",
        _ => "apt",
    };
    PackagesError::Program { program: program.to_owned(), package, source }
}

/// Joins the last lines of a program's messages.
pub(crate) fn tail(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(5)..].join("; ")
}
