// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package files: from the cache, or downloaded.

#![allow(
    clippy::disallowed_methods,
    reason = "apt's download directory in the cache; names of files are `PackageName`s and `PackageVersion`s"
)]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use super::{Apt, AptError, First, Located, Package, Root, sandbox::Sandbox};
use crate::{Error, Result, cache::Object, error::human, stages::Step};

/// Where the files of packages come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// The suite whose index lists them.
    Index(&'a Root),
    /// Places that have them at known paths, such as the archive that the host's apt uses: no index
    /// is asked for.
    Pool {
        /// The suite that they were chosen from.
        suite: &'a str,
        /// The packages, with their paths.
        packages: &'a [Located],
    },
}

/// How apt names the files that it downloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileNames {
    /// As `apt-get download` does.
    Own,
    /// By their SHA-256: what is there of a file is known by that, whoever downloaded it.
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
    /// The files of `packages`, checked: from the cache, or downloaded.
    ///
    /// # Errors
    /// [`super::AptError`] where the mirror fails, [`Error::Nowhere`] where other places were asked, too, [`Error::Offline`] where the network may not be
    /// used, [`Error::Mismatch`] for a file that is not the index's, [`Error::DiskFull`],
    /// [`Error::Program`] where there is no apt, [`Error::Io`].
    pub fn fetch(&self, root: &Root, packages: &[Package]) -> Result<Vec<Object>> {
        self.fetch_from(Origin::Index(root), packages)
    }

    /// The same, from any origin.
    ///
    /// # Errors
    /// As [`Apt::fetch`].
    pub(crate) fn fetch_from(&self, origin: Origin<'_>, packages: &[Package]) -> Result<Vec<Object>> {
        let mut missing = Vec::new();
        for package in packages {
            if self.cache().object(&package.sha256)?.is_none() {
                missing.push(package);
            }
        }
        if !missing.is_empty() {
            self.turn.wait(|| self.stage().step(Step::AwaitTurn, 0));
            self.download(origin, &missing, &mut |_, _| ())?;
        }
        packages
            .iter()
            .map(|package| {
                self.cache().object(&package.sha256)?.ok_or_else(|| Error::Offline { what: package.specification() })
            })
            .collect()
    }

    /// The same, before all downloads that have not begun. Each file is given to `arrived` as soon
    /// as it is there.
    ///
    /// # Errors
    /// As [`Apt::fetch`].
    pub(crate) fn fetch_first(
        &self,
        _: &First<'_>,
        origin: Origin<'_>,
        packages: &[&Package],
        arrived: &mut dyn FnMut(&Package, Object),
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
        origin: Origin<'_>,
        packages: &[&Package],
        arrived: &mut dyn FnMut(&Package, Object),
    ) -> Result<()> {
        let Some(what) = named(packages) else { return Ok(()) };
        match origin {
            Origin::Pool { suite, packages: located } => self.download_pool(suite, located, packages, arrived),
            Origin::Index(_) if self.options().offline => Err(Error::Offline { what }),
            Origin::Index(root) => {
                self.transfer(root.suite(), &mut packages.to_vec(), arrived, FileNames::Own, |packages, place| {
                    let mut command = root.command("apt-get");
                    command.current_dir(place).args(["download", "-q"]);
                    command.args(packages.iter().map(|package| package.specification()));
                    command
                })
            }
        }
    }

    /// Downloads `left` by the program of apt that `command` gives for them and a directory. What
    /// has arrived is taken out of `left`, where apt fails, too.
    ///
    /// # Errors
    /// As [`Apt::fetch`].
    pub(super) fn transfer(
        &self,
        suite: &str,
        left: &mut Vec<&Package>,
        arrived: &mut dyn FnMut(&Package, Object),
        names: FileNames,
        command: impl Fn(&[&Package], &Path) -> Command,
    ) -> Result<()> {
        let Some(what) = named(left) else { return Ok(()) };
        let size = left.iter().fold(0, |sum: u64, package| sum.saturating_add(package.size));
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, size)?;
        tracing::debug!("downloading {what} ({})", human(size));
        self.stage().step(Step::Download, size);
        let sandbox = Sandbox::make(self.cache(), &self.host()?.user, &what, size)?;
        let scratch = self.cache().scratch()?;
        let place = sandbox.as_ref().map_or_else(|| scratch.path().to_owned(), Sandbox::files);
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
        // What has its size is whole, if it has its hash; whatever is wrong with it is reported
        // when apt has ended.
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
            // What was broken off goes on another time. What is wrong does not.
            if let Err(Error::Apt(AptError::Unreachable { .. } | AptError::Other { .. })) = &ended
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
            // Its owner could still write to a file of the sandbox: what is stored is a copy,
            // hashed while it is made.
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

/// What names `packages` in messages; none where there are none.
pub(super) fn named(packages: &[&Package]) -> Option<String> {
    match packages {
        [] => None,
        [one] => Some(one.specification()),
        [first, others @ ..] => Some(format!("{} and {} more packages", first.specification(), others.len())),
    }
}
