// SPDX-License-Identifier: MIT OR Apache-2.0
//! Downloads files at URLs without apt ([`crate::http`]), for hosts that have none.
//!
//! No file is parsed before its hash was checked. Unlike apt's, these downloads need no other user.

#![allow(clippy::disallowed_methods, reason = "writes a download to a file that the cache named")]

use std::{fs, mem, path::Path, thread, time::Duration};

use super::{
    Apt, Package,
    download::{FileNames, named},
    mirror::ATTEMPTS,
    root::APT_HELPER,
};
use crate::{
    cache::CachedFile,
    error::{PackagesError, Result, apt_failure::AptError, human},
    http::{self, HttpError, Partial},
    stages::ProgressStep,
};

/// The program that downloads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Downloader {
    /// apt, with its proxies and certificates, if the host has it; else this program.
    #[default]
    OfHost,
    /// This program, on every host.
    Own,
}

impl Apt<'_> {
    /// Whether this program downloads in place of apt.
    pub(super) fn is_direct(&self) -> bool {
        self.options().client == Downloader::Own || !Path::new(APT_HELPER).exists()
    }

    /// Downloads `left` from the URIs that `uri_of` gives, one after the other. A file that has
    /// arrived and was checked is removed from `left`. A file without a URI stays.
    ///
    /// # Errors
    /// An error of the server: the first error after all files were requested, or at once if the
    /// server does not answer. An error of this machine is returned at once.
    pub(super) fn transfer_directly(
        &self,
        suite: &str,
        left: &mut Vec<&Package>,
        arrived: &mut dyn FnMut(&Package, CachedFile),
        uri_of: impl Fn(&Package) -> Option<String>,
    ) -> Result<()> {
        let Some(what) = named(left) else { return Ok(()) };
        let size = left.iter().fold(0, |sum: u64, package| sum.saturating_add(package.size));
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, size)?;
        self.stage().step(ProgressStep::Download, size);
        let scratch = self.cache().scratch()?;
        let (mut done, mut failed, mut gives_up) = (0, None, false);
        for package in mem::take(left) {
            let Some(uri) = uri_of(package).filter(|_| !gives_up) else {
                left.push(package);
                continue;
            };
            let path = scratch.path().join(FileNames::Digests.of(package));
            match self.download_package(suite, &uri, package, &path, done) {
                Ok(object) => arrived(package, object),
                Err(error @ (PackagesError::Apt(_) | PackagesError::Mismatch { .. })) => {
                    gives_up = matches!(&error, PackagesError::Apt(AptError::Unreachable { .. }));
                    left.push(package);
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            done = package.size.saturating_add(done);
            self.stage().at(done);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Downloads the file of `package` to `path`, and moves it into the cache. The `before` bytes
    /// of earlier files count as progress.
    fn download_package(
        &self,
        suite: &str,
        uri: &str,
        package: &Package,
        path: &Path,
        before: u64,
    ) -> Result<CachedFile> {
        let (what, suite) = (package.specification(), suite.to_owned());
        let mut resumed = self.cache().take_partial(&package.sha256, package.size, path)?;
        if resumed > 0 {
            tracing::info!("the download of {what} goes on after {}", human(resumed));
        }
        let mut attempt = 1;
        loop {
            let file = fs::File::options().create(true).truncate(false).write(true).open(path);
            let mut sink = file.and_then(Partial::continued).map_err(PackagesError::io("open", path))?;
            let mut progress = |at: u64| self.stage().at(before.saturating_add(at));
            let ended = http::download(uri, &mut sink, package.size, &mut progress);
            drop(sink);
            let is_wrong = match ended {
                Ok(()) => match self.cache().adopt(&what, path, Some(package.sha256)) {
                    Err(error @ PackagesError::Mismatch { .. }) => error,
                    ended => return ended,
                },
                Err(HttpError::TooLarge(_)) => {
                    let detail = format!("it is larger than {} bytes", package.size);
                    AptError::Other { suite: suite.clone(), detail }.into()
                }
                Err(HttpError::Passing(detail)) if attempt < ATTEMPTS => {
                    tracing::info!("attempt {attempt} of {ATTEMPTS} at {what} failed; trying again");
                    tracing::debug!("{detail}");
                    thread::sleep(Duration::from_secs(attempt.into()));
                    attempt += 1;
                    continue;
                }
                Err(HttpError::Passing(detail) | HttpError::Slow(detail)) => {
                    self.cache().keep_partial(&package.sha256, package.size, path)?;
                    return Err(AptError::Unreachable { suite, detail }.into());
                }
                Err(error @ HttpError::Missing(_)) => {
                    return Err(AptError::Missing { suite, detail: error.to_string() }.into());
                }
                Err(HttpError::Refused(detail)) => return Err(AptError::Other { suite, detail }.into()),
                Err(HttpError::Write(error)) => return Err(self.cache().write_error(&what, package.size, path, error)),
            };
            // A part from another process or place may be wrong: restart once at the first byte.
            if mem::take(&mut resumed) == 0 {
                return Err(is_wrong);
            }
            if path.exists() {
                fs::remove_file(path).map_err(PackagesError::io("remove", path))?;
            }
        }
    }

    /// Does the same as [`Apt::read_url`], without apt.
    pub(super) fn read_url_directly(&self, url: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let mut attempt = 1;
        loop {
            let mut content = Vec::new();
            let error = match http::download(url, &mut content, limit, &mut |_| ()) {
                Ok(()) => return Ok(Some(content)),
                Err(HttpError::Missing(_)) => return Ok(None),
                Err(error) => error,
            };
            if !matches!(error, HttpError::Passing(_)) || attempt == ATTEMPTS {
                return Err(PackagesError::Download { url: url.to_owned(), detail: error.to_string() });
            }
            tracing::debug!("attempt {attempt} of {ATTEMPTS} at {url} failed: {error}");
            thread::sleep(Duration::from_secs(attempt.into()));
            attempt += 1;
        }
    }
}
