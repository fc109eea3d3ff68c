// SPDX-License-Identifier: MIT OR Apache-2.0
//! Package files at known paths: from places that the user names, from the mirror, then from an
//! archive that keeps what mirrors drop.
//!
//! No place needs to be trusted: size and SHA-256 of every file are checked.

#![allow(clippy::disallowed_methods, reason = "joins fixed names to a scratch directory")]

use std::{
    io::{self, Read as _},
    path::Path,
    process::Command,
};

use super::{
    Apt, AssetSource, Located, Mirror, NamedBy, Package, apt_defaults,
    apt_package::encoded,
    download::{FileNames, named},
    host_apt,
    root::APT_HELPER,
};
use crate::{
    cache::CachedFile,
    error::{PackagesError, Result, apt_failure::AptError},
};

/// The directory of Debian's main archive in an archive of snapshots.
const ARCHIVE_NAME: &str = "debian";

/// A place from which files are requested.
#[derive(Debug, Clone, Copy)]
enum PoolPlace<'a> {
    /// A place that the user names (`--from`).
    Named(&'a AssetSource),
    /// A mirror of Debian's archive.
    Mirror(&'a Mirror),
    /// An archive of snapshots, and who names it.
    Archive(&'a AssetSource, NamedBy),
}

/// A place that was asked, and what it answered.
type AskedPlace = (String, String);

impl PoolPlace<'_> {
    /// Returns a name for messages, without the URI of the host's apt: it can contain a password.
    fn name(self) -> String {
        match self {
            Self::Named(source) => format!("{source} (--from)"),
            Self::Mirror(mirror) => mirror.name(),
            Self::Archive(source, NamedBy::Default) => format!("the archive {source} (compiled in)"),
            Self::Archive(source, _) => format!("the archive {source}"),
        }
    }

    /// Returns the path of a package in this place, or `None` if it is not known.
    fn path_of(self, located: &Located) -> Option<String> {
        match self {
            // Users put files into this directory without an archive's paths.
            Self::Named(_) if located.path.is_empty() => Some(format!("pool/{}", located.package.file_name())),
            Self::Named(_) => Some(located.path.clone()),
            Self::Mirror(_) => Some(located.path.clone()).filter(|path| !path.is_empty()),
            Self::Archive(..) if located.path.is_empty() => None,
            Self::Archive(..) => located.snapshot.map(|time| format!("{ARCHIVE_NAME}/{time}/{}", located.path)),
        }
    }

    /// Returns the directory of the place, or its URL.
    fn base(&self) -> Result<&Path, &str> {
        match self {
            Self::Named(AssetSource::Directory(path)) | Self::Archive(AssetSource::Directory(path), _) => Ok(path),
            Self::Named(AssetSource::Url(url)) | Self::Archive(AssetSource::Url(url), _) => Err(url),
            Self::Mirror(mirror) => Err(mirror.uri.trim_end_matches('/')),
        }
    }
}

impl Apt<'_> {
    /// Downloads `packages`, which are among `located`, from the first place that has them.
    ///
    /// # Errors
    /// - [`AptError`]: only the mirror was asked, and it failed.
    /// - [`PackagesError::Nowhere`]: no place has all the packages.
    /// - The other errors of [`Apt::fetch`].
    pub(super) fn download_pool(
        &self,
        suite: &str,
        located: &[Located],
        packages: &[&Package],
        arrived: &mut dyn FnMut(&Package, CachedFile),
    ) -> Result<()> {
        let options = self.options();
        let mut left = packages.to_vec();
        let (mut asked, mut mirror) = (Vec::new(), None);
        for place in options.from.iter().map(PoolPlace::Named) {
            self.ask(place, suite, located, &mut left, arrived, &mut asked)?;
        }
        if !left.is_empty() && !options.offline {
            match self.mirror() {
                Ok(Some(found)) => {
                    found.report();
                    mirror = self.ask(PoolPlace::Mirror(&found), suite, located, &mut left, arrived, &mut asked)?;
                }
                // The archive can still have the files.
                Err(PackagesError::Apt(error @ AptError::NoArchive)) => {
                    asked.push(("a mirror of Debian".to_owned(), error.to_string()));
                    mirror = Some(error);
                }
                Err(error) => return Err(error),
                Ok(None) => asked.push((
                    "a mirror of Debian".to_owned(),
                    "this host has no apt whose configuration names one, and none was compiled in: --mirror URL names one, \
                     --from a place that has the files"
                        .to_owned(),
                )),
            }
        }
        if let Some((archive, by)) = self.archive()
            && !left.is_empty()
        {
            if by == NamedBy::Default && !options.offline {
                apt_defaults::report_archive(archive);
            }
            self.ask(PoolPlace::Archive(archive, by), suite, located, &mut left, arrived, &mut asked)?;
        }
        let Some(what) = named(&left) else { return Ok(()) };
        match mirror {
            _ if options.offline => Err(PackagesError::Offline { what }),
            Some(error) if asked.len() == 1 && !options.exact => Err(error.into()),
            mirror => {
                let dropped = matches!(mirror, Some(AptError::Missing { .. }));
                let asked = asked.into_iter().map(|(place, answer)| format!("{place}: {answer}")).collect::<Vec<_>>();
                let replaceable = dropped && !options.exact && options.archive.is_none();
                Err(PackagesError::Nowhere { what, asked: asked.join("; "), replaceable })
            }
        }
    }

    /// Downloads the packages of `left` that `place` has. The others, and those with other content,
    /// stay in `left`, and `asked` gets the reason. A reason that apt gave is also returned.
    ///
    /// # Errors
    /// Errors of this machine, such as a full disk.
    fn ask(
        &self,
        place: PoolPlace<'_>,
        suite: &str,
        located: &[Located],
        left: &mut Vec<&Package>,
        arrived: &mut dyn FnMut(&Package, CachedFile),
        asked: &mut Vec<AskedPlace>,
    ) -> Result<Option<AptError>> {
        let path_of = |package: &Package| {
            located.iter().find(|found| found.package == *package).and_then(|found| place.path_of(found))
        };
        let known = left.iter().filter(|package| path_of(package).is_some()).count();
        if let Some(unknown) = left.iter().find(|package| path_of(package).is_none()) {
            let what = match place {
                PoolPlace::Archive(..) => "time stamp",
                PoolPlace::Named(_) | PoolPlace::Mirror(_) => "path",
            };
            asked.push((place.name(), format!("testbed.lock has no {what} of {}", unknown.specification())));
        }
        if known == 0 || (place.base().is_err() && self.options().offline) {
            return Ok(None);
        }
        let failed = match place.base() {
            Ok(directory) => {
                let taken = self.take_from(directory, left, arrived, path_of)?;
                asked.extend(taken.map(|answer| (place.name(), answer)));
                return Ok(None);
            }
            Err(base) => {
                // Packages with unknown paths are not requested. They are put back below.
                let unknown: Vec<_> = left.iter().copied().filter(|package| path_of(package).is_none()).collect();
                left.retain(|package| path_of(package).is_some());
                let uri_of = |package: &Package| path_of(package).map(|path| format!("{base}/{}", encoded(&path)));
                let ended = if self.is_direct() {
                    self.transfer_directly(suite, left, arrived, uri_of)
                } else {
                    self.transfer(suite, left, arrived, FileNames::Digests, |packages, directory| {
                        download_file(packages, directory, uri_of)
                    })
                };
                left.extend(unknown);
                ended
            }
        };
        let error = match failed {
            Ok(()) => return Ok(None),
            Err(PackagesError::Apt(error)) => error,
            // The hash is wrong: another program changed the file, or the place sends another one.
            Err(error @ PackagesError::Mismatch { .. }) => {
                AptError::Other { suite: suite.to_owned(), detail: error.to_string() }
            }
            Err(error) => return Err(error),
        };
        tracing::info!("{} does not give {}: {error}", place.name(), named(left).unwrap_or_default());
        asked.push((place.name(), error.detail()));
        Ok(Some(error))
    }

    /// Copies the packages of `left` that `directory` has. Returns why other packages are left.
    fn take_from(
        &self,
        directory: &Path,
        left: &mut Vec<&Package>,
        arrived: &mut dyn FnMut(&Package, CachedFile),
        path_of: impl Fn(&Package) -> Option<String>,
    ) -> Result<Option<String>> {
        let mut answer = None;
        let mut remaining = Vec::new();
        for package in left.drain(..) {
            let Some(path) = path_of(package) else {
                remaining.push(package);
                continue;
            };
            match self.take_file(directory, &path, package) {
                Ok(object) => arrived(package, object),
                Err(error @ (PackagesError::Io { .. } | PackagesError::Mismatch { .. })) => {
                    tracing::debug!("{}: {error}", directory.display());
                    answer.get_or_insert(match &error {
                        PackagesError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                            format!("has no {path}")
                        }
                        PackagesError::Io { source, .. } => format!("{path}: {source}"),
                        other => other.to_string(),
                    });
                    remaining.push(package);
                }
                Err(error) => return Err(error),
            }
        }
        *left = remaining;
        Ok(answer)
    }

    fn take_file(&self, directory: &Path, path: &str, package: &Package) -> Result<CachedFile> {
        let whole = directory.join(path);
        let file =
            bpfassay_input::open_beneath(directory, Path::new(path)).map_err(PackagesError::io("read", &whole))?;
        let size = file.metadata().map_err(PackagesError::io("read", &whole))?.len();
        if size != package.size {
            let wrong = format!("it has {size} bytes, expected {}", package.size);
            return Err(PackagesError::io("take", &whole)(io::Error::new(io::ErrorKind::InvalidData, wrong)));
        }
        let failed = |error| PackagesError::io("read", &whole)(error);
        self.cache().require_access(&package.specification())?;
        self.cache().add_from(&package.specification(), file.take(size), (Some(package.sha256), size), failed)
    }
}

/// Creates a command that downloads `packages` from the URIs of `uri_of` into `directory`. The
/// caller can append options.
fn download_file(packages: &[&Package], directory: &Path, uri_of: impl Fn(&Package) -> Option<String>) -> Command {
    // apt-helper checks hashes, but not sizes.
    let largest = packages.iter().map(|package| package.size).max().unwrap_or_default();
    let mut command = host_apt::command("prlimit");
    command.arg(format!("--fsize={largest}")).args(["--core=0", "--", APT_HELPER, "-q", "download-file"]);
    for package in packages {
        let Some(uri) = uri_of(package) else { continue };
        command.arg(uri).arg(directory.join(FileNames::Digests.of(package))).arg(format!("SHA256:{}", package.sha256));
    }
    command.env("LC_ALL", "C.UTF-8");
    command
}

#[cfg(test)]
mod tests;
