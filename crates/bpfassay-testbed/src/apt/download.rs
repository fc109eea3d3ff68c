// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package files: from the cache, or from the mirror.

use super::{Apt, First, Package, Root, sandbox::Sandbox};
use crate::{Error, Result, cache::Object, error::human, stages::Step};

impl Apt<'_> {
    /// The files of `packages`, checked: from the cache, or downloaded.
    ///
    /// # Errors
    /// [`super::AptError`] where the mirror fails, [`Error::Offline`] where the network may not be used, [`Error::Mismatch`] for a file that is not
    /// the index's, [`Error::DiskFull`], [`Error::Program`] where there is no apt, [`Error::Io`].
    pub fn fetch(&self, root: &Root, packages: &[Package]) -> Result<Vec<Object>> {
        let wait = || self.turn.wait(|| self.stage().step(Step::AwaitTurn, 0));
        self.fetch_after(wait, root, packages)
    }

    /// The same, before all downloads that have not begun.
    ///
    /// # Errors
    /// As [`Apt::fetch`].
    pub(crate) fn fetch_first(&self, _: &First<'_>, root: &Root, packages: &[Package]) -> Result<Vec<Object>> {
        self.fetch_after(|| (), root, packages)
    }

    fn fetch_after(&self, wait: impl FnOnce(), root: &Root, packages: &[Package]) -> Result<Vec<Object>> {
        let mut missing = Vec::new();
        for package in packages {
            if self.cache().object(&package.sha256)?.is_none() {
                missing.push(package);
            }
        }
        if !missing.is_empty() {
            wait();
            self.download(root, &missing)?;
        }
        packages
            .iter()
            .map(|package| {
                self.cache().object(&package.sha256)?.ok_or_else(|| Error::Offline { what: package.specification() })
            })
            .collect()
    }

    fn download(&self, root: &Root, packages: &[&Package]) -> Result<()> {
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
        self.ask_mirror(root.suite(), &what, size, Some(&place), |_| {
            let mut command = root.command("apt-get");
            command.current_dir(&place).args(["download", "-q"]);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_download(&mut command);
            }
            command.args(&names);
            command
        })?;
        for package in packages {
            let (what, path) = (package.specification(), place.join(package.file_name()));
            // Its owner could still write to a file of the sandbox: what is stored is a copy, hashed while it is made.
            match &sandbox {
                Some(_) => self.cache().add_file(&what, &path, Some(package.sha256))?,
                None => self.cache().adopt(&what, &path, Some(package.sha256))?,
            };
        }
        Ok(())
    }
}
