//! What the verb `kernels` shows: what is known, cached, and available.

use bpfassay_protocol::Arch;

use super::{Build, Kernels};
use crate::{Error, Result};

/// One series of kernels on one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Its name.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// The suites that hold it, first choice first.
    pub suites: Vec<String>,
    /// Its builds in these suites, oldest first within each; none where a package index has not been fetched yet.
    pub builds: Option<Vec<(String, Build)>>,
    /// What is in the cache: the build that the name means now, and builds fetched by their own names.
    pub cached: Vec<Cached>,
}

/// A kernel in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cached {
    /// The name that it was fetched by.
    pub name: String,
    /// What `uname -r` prints.
    pub release: String,
    /// Version of its packages.
    pub version: Option<String>,
}

/// Whether [`Kernels::list`] may ask mirrors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Update {
    /// Only indexes that are there.
    Never,
    /// Indexes that are missing or old are fetched.
    WhereOld,
}

impl Kernels<'_> {
    /// Everything known for `arch`.
    ///
    /// # Errors
    /// Those of fetching and reading package indexes, and [`Error::Io`].
    pub fn list(&self, arch: Arch, update: Update) -> Result<Vec<Listing>> {
        let mut listings = Vec::new();
        for name in self.catalogue.names(arch) {
            let selection = self.catalogue.find(arch, name)?;
            let mut builds = Some(Vec::new());
            for entry in &selection.entries {
                let known = self.apt.known_state(&entry.suite, &[arch]).is_some();
                if update == Update::Never && !known {
                    builds = None;
                    break;
                }
                let root = match update {
                    Update::Never => self.apt.known_root(&entry.suite, &[arch])?,
                    Update::WhereOld => self.apt.root(&entry.suite, &[arch])?,
                };
                let found = self.builds_in(entry, arch, &root)?;
                if let Some(builds) = &mut builds {
                    builds.extend(found.into_iter().map(|build| (entry.suite.clone(), build)));
                }
            }
            let mut names = vec![name.to_owned()];
            names.extend(builds.iter().flatten().map(|(_, build)| build.name()));
            names.dedup();
            let mut cached = Vec::new();
            for name in names {
                match self.cached(arch, &name) {
                    Ok(Some(kernel)) => {
                        cached.push(Cached { name, release: kernel.release, version: kernel.version });
                    }
                    // A build whose name the command line cannot say (7.3-rc7) is not fetched by it.
                    Ok(None) | Err(Error::Catalogue(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            let mut suites: Vec<_> = selection.entries.iter().map(|entry| entry.suite.clone()).collect();
            suites.dedup();
            listings.push(Listing { name: name.to_owned(), arch, suites, builds, cached });
        }
        Ok(listings)
    }
}
