// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package files: from the cache, or from the mirror.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use super::{Apt, First, Located, Package, Root, package::encoded, root::APT_HELPER, sandbox::Sandbox};
use crate::{Error, Result, cache::Object, error::human, stages::Step};

/// Where the files of packages come from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Origin<'a> {
    /// The suite whose index lists them.
    Index(&'a Root),
    /// The archive that the host's apt uses, at known paths: no index is asked for.
    Pool {
        /// The suite that they were chosen from.
        suite: &'a str,
        /// The packages, with their paths.
        packages: &'a [Located],
    },
}

impl Apt<'_> {
    /// The files of `packages`, checked: from the cache, or downloaded.
    ///
    /// # Errors
    /// [`super::AptError`] where the mirror fails, [`Error::Offline`] where the network may not be used, [`Error::Mismatch`] for a file that is not
    /// the index's, [`Error::DiskFull`], [`Error::Program`] where there is no apt, [`Error::Io`].
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

    /// The same, before all downloads that have not begun. Each file is given to `arrived` as soon as it is there.
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
        let names: Vec<_> = packages.iter().map(|package| package.specification()).collect();
        let what = match names.as_slice() {
            [one] => one.clone(),
            [first, ..] => format!("{first} and {} more packages", names.len() - 1),
            [] => return Ok(()),
        };
        if self.options().offline {
            return Err(Error::Offline { what });
        }
        let size = packages.iter().fold(0, |sum: u64, package| sum.saturating_add(package.size));
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, size)?;
        tracing::debug!("downloading {what} ({})", human(size));
        self.stage().step(Step::Download, size);
        let sandbox = Sandbox::make(&self.host()?.user, &what, size)?;
        let scratch = self.cache().scratch()?;
        let place = sandbox.as_ref().map_or_else(|| scratch.path().to_owned(), Sandbox::files);
        let mut left = packages.to_vec();
        let mut tried = BTreeSet::new();
        // What has its size is whole, if it has its hash; whatever is wrong with it is reported when apt has ended.
        let mut look = || {
            left.retain(|package| {
                let path = place.join(package.file_name());
                let is_whole = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.len() == package.size);
                if !is_whole || !tried.insert(package.file_name()) {
                    return true;
                }
                let added = self.cache().add_file(&package.specification(), &path, Some(package.sha256));
                added.map(|object| arrived(package, object)).is_err()
            });
        };
        let archive = &self.host()?.archive;
        self.ask_mirror(origin.suite(), &what, size, Some(&place), &mut look, |_| {
            let mut command = origin.command(archive, packages, &place);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_download(&mut command);
            }
            command
        })?;
        for package in left {
            let (what, path) = (package.specification(), place.join(package.file_name()));
            // Its owner could still write to a file of the sandbox: what is stored is a copy, hashed while it is made.
            let object = match &sandbox {
                Some(_) => self.cache().add_file(&what, &path, Some(package.sha256))?,
                None => self.cache().adopt(&what, &path, Some(package.sha256))?,
            };
            arrived(package, object);
        }
        Ok(())
    }
}

impl Origin<'_> {
    fn suite(&self) -> &str {
        match self {
            Self::Index(root) => root.suite(),
            Self::Pool { suite, .. } => suite,
        }
    }

    /// What downloads `packages` from `archive` into the directory `place`. More options may follow.
    fn command(&self, archive: &str, packages: &[&Package], place: &Path) -> Command {
        match self {
            Self::Index(root) => {
                let mut command = root.command("apt-get");
                command.current_dir(place).args(["download", "-q"]);
                command.args(packages.iter().map(|package| package.specification()));
                command
            }
            Self::Pool { packages: located, .. } => {
                // apt compares hashes but not sizes here.
                let largest = packages.iter().map(|package| package.size).max().unwrap_or_default();
                let mut command = Command::new("prlimit");
                command.arg(format!("--fsize={largest}")).args(["--core=0", "--", APT_HELPER, "-q", "download-file"]);
                for package in packages {
                    let Some(found) = located.iter().find(|found| found.package == **package) else { continue };
                    command.arg(format!("{}/{}", archive.trim_end_matches('/'), encoded(&found.path)));
                    command.arg(place.join(package.file_name())).arg(format!("SHA256:{}", package.sha256));
                }
                command.env("LC_ALL", "C.UTF-8");
                command
            }
        }
    }
}
