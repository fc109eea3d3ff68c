// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetches package files: from the cache, or by downloading.

#![allow(
    clippy::disallowed_methods,
    reason = "apt's download directory in the cache; names of files are `PackageName`s and `PackageVersion`s"
)]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use super::{Apt, First, Located, Package, Root, apt_sandbox::AptSandbox};
use crate::{
    cache::CachedFile,
    error::{PackagesError, Result, apt_failure::AptError, human},
    stages::ProgressStep,
};

/// The origin of package files.
#[derive(Debug, Clone, Copy)]
pub enum PackageOrigin<'a> {
    /// The suite whose index lists them.
    Index(&'a Root),
    /// Places with the files at known paths, such as the archive of the host's apt, without an
    /// index.
    Pool {
        /// The suite that the packages were chosen from.
        suite: &'a str,
        /// The packages with their paths.
        packages: &'a [Located],
    },
}

/// How downloaded files are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileNames {
    /// Like `apt-get download` names them.
    Own,
    /// SHA-256: it identifies a partial file, whoever began to download it.
    Digests,
}

impl FileNames {
    pub(super) fn of(self, package: &Package) -> String {
        match self {
            Self::Own => package.file_name(),
            Self::Digests => package.sha256.to_string(),
        }
    }
}

impl Apt<'_> {
    /// Returns the checked files of `packages`. Packages that the cache lacks are downloaded.
    ///
    /// # Errors
    /// - [`AptError`]: the mirror fails.
    /// - [`PackagesError::Nowhere`]: the mirror and other places were asked, and none has a file.
    /// - [`PackagesError::Offline`]: the network may not be used.
    /// - [`PackagesError::Mismatch`]: a file has another hash than the index says.
    /// - [`PackagesError::Program`]: the host has no apt.
    /// - [`PackagesError::DiskFull`], [`PackagesError::Io`]
    pub fn fetch(&self, root: &Root, packages: &[Package]) -> Result<Vec<CachedFile>> {
        self.fetch_from(PackageOrigin::Index(root), packages)
    }

    /// Does the same as [`Apt::fetch`] for packages of any origin.
    ///
    /// # Errors
    /// The errors of [`Apt::fetch`].
    pub fn fetch_from(&self, origin: PackageOrigin<'_>, packages: &[Package]) -> Result<Vec<CachedFile>> {
        let mut missing = Vec::new();
        for package in packages {
            if self.cache().object(&package.sha256)?.is_none() {
                missing.push(package);
            }
        }
        if !missing.is_empty() {
            self.turn.wait(|| self.stage().step(ProgressStep::AwaitTurn, 0));
            self.download(origin, &missing, &mut |_, _| ())?;
        }
        packages
            .iter()
            .map(|package| {
                self.cache()
                    .object(&package.sha256)?
                    .ok_or_else(|| PackagesError::Offline { what: package.specification() })
            })
            .collect()
    }

    /// Fetches `packages` before all downloads that have not begun. `arrived` gets each file as
    /// soon as it is in the cache.
    ///
    /// # Errors
    /// The errors of [`Apt::fetch`].
    pub fn fetch_first(
        &self,
        _: &First<'_>,
        origin: PackageOrigin<'_>,
        packages: &[&Package],
        arrived: &mut dyn FnMut(&Package, CachedFile),
    ) -> Result<()> {
        let mut missing = Vec::new();
        for &package in packages {
            match self.cache().object(&package.sha256)? {
                Some(object) => arrived(package, object),
                None => missing.push(package),
            }
        }
        self.download(origin, &missing, arrived)
    }

    fn download(
        &self,
        origin: PackageOrigin<'_>,
        packages: &[&Package],
        arrived: &mut dyn FnMut(&Package, CachedFile),
    ) -> Result<()> {
        let Some(what) = named(packages) else { return Ok(()) };
        match origin {
            PackageOrigin::Pool { suite, packages: located } => self.download_pool(suite, located, packages, arrived),
            PackageOrigin::Index(_) if self.options().offline => Err(PackagesError::Offline { what }),
            PackageOrigin::Index(root) => {
                self.transfer(root.suite(), &mut packages.to_vec(), arrived, FileNames::Own, |packages, place| {
                    let mut command = root.command("apt-get");
                    command.current_dir(place).args(["download", "-q"]);
                    command.args(packages.iter().map(|package| package.specification()));
                    command
                })
            }
        }
    }

    /// Downloads `left` with the apt program that `command` builds for packages and a directory.
    /// Files that have arrived are removed from `left`, even if apt fails.
    ///
    /// # Errors
    /// The errors of [`Apt::fetch`].
    pub(super) fn transfer(
        &self,
        suite: &str,
        left: &mut Vec<&Package>,
        arrived: &mut dyn FnMut(&Package, CachedFile),
        names: FileNames,
        command: impl Fn(&[&Package], &Path) -> Command,
    ) -> Result<()> {
        let Some(what) = named(left) else { return Ok(()) };
        let size = left.iter().fold(0, |sum: u64, package| sum.saturating_add(package.size));
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, size)?;
        tracing::debug!("downloading {what} ({})", human(size));
        self.stage().step(ProgressStep::Download, size);
        let sandbox = AptSandbox::make(self.cache(), &self.host()?.user, &what, size)?;
        let scratch = self.cache().scratch()?;
        let place = sandbox.as_ref().map_or_else(|| scratch.path().to_owned(), AptSandbox::files);
        let packages = left.clone();
        for package in packages.iter().filter(|_| names == FileNames::Digests) {
            let path = place.join(names.of(package));
            let known = self.cache().take_partial(&package.sha256, package.size, &path)?;
            if known > 0 {
                tracing::info!("the download of {} goes on after {}", package.specification(), human(known));
                sandbox.as_ref().map_or(Ok(()), |sandbox| sandbox.give(&path))?;
            }
        }
        let mut tried = BTreeSet::new();
        // The right size and hash make a file complete. A wrong hash is reported when apt has
        // ended.
        let mut look = || {
            left.retain(|package| {
                let path = place.join(names.of(package));
                let is_whole = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.len() == package.size);
                if !is_whole || !tried.insert(package.sha256) {
                    return true;
                }
                let added = self.cache().add_file(&package.specification(), &path, Some(package.sha256));
                added.map(|object| arrived(package, object)).is_err()
            });
        };
        let ended = self.ask_mirror(suite, &what, size, Some(&place), &mut look, |_| {
            let mut command = command(&packages, &place);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_download(&mut command);
            }
            command
        });
        if ended.is_err() {
            look();
            // A broken-off download continues another time. A wrong file does not.
            if let Err(PackagesError::Apt(AptError::Unreachable { .. } | AptError::Other { .. })) = &ended
                && names == FileNames::Digests
            {
                for package in &*left {
                    self.cache().keep_partial(&package.sha256, package.size, &place.join(names.of(package)))?;
                }
            }
            return ended;
        }
        while let Some(package) = left.last() {
            let (what, path) = (package.specification(), place.join(names.of(package)));
            // The sandbox's user can still write to its files: store a copy hashed while it is
            // made.
            let object = match &sandbox {
                Some(_) => self.cache().add_file(&what, &path, Some(package.sha256))?,
                None => self.cache().adopt(&what, &path, Some(package.sha256))?,
            };
            arrived(package, object);
            left.pop();
        }
        Ok(())
    }
}

/// Names `packages` for messages. Returns `None` if there are none.
pub(super) fn named(packages: &[&Package]) -> Option<String> {
    match packages {
        [] => None,
        [one] => Some(one.specification()),
        [first, others @ ..] => Some(format!("{} and {} more packages", first.specification(), others.len())),
    }
}
