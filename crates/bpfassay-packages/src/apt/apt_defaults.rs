// SPDX-License-Identifier: MIT OR Apache-2.0
//! Default places of packages. The mirror and the archive that the user names come first, then the
//! host's, then the compiled-in ones.

use std::sync::Once;

use super::{Apt, AssetSource};
use crate::error::Result;

/// Places that were compiled into the program. They are asked only if neither the user nor, for the
/// mirror, the host's apt names one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// URL of a mirror of Debian's archive.
    pub mirror: Option<String>,
    /// An archive that keeps what mirrors drop, like [`super::FetchOptions::archive`].
    pub archive: Option<AssetSource>,
}

/// Who names a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// An option, an environment variable or a configuration file.
    User,
    /// The host's apt configuration.
    Host,
    /// The build of the program.
    Default,
}

/// A mirror of Debian's archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// The URI without the suite. Never print the mirror of the host's apt: it can contain a
    /// password.
    pub uri: String,
    /// Who names the mirror.
    pub by: NamedBy,
}

impl Mirror {
    /// Returns a name for messages. It leaves out the URI of the host's apt.
    #[must_use]
    pub fn name(&self) -> String {
        match self.by {
            NamedBy::User => format!("{} (--mirror or bpfassay.toml)", self.uri),
            NamedBy::Host => "the mirror of this host's apt".to_owned(),
            NamedBy::Default => format!("{} (the mirror that was compiled in)", self.uri),
        }
    }

    /// Reports once that the mirror was compiled in, if it was.
    pub(super) fn report(&self) {
        static REPORTED: Once = Once::new();
        if self.by == NamedBy::Default {
            REPORTED.call_once(|| {
                tracing::info!(
                    "packages are taken from {}, which was compiled into this program: neither --mirror nor this host's apt names a mirror of Debian",
                    self.uri
                );
            });
        }
    }
}

/// Reports once that an archive is used that the user did not name.
pub(super) fn report_archive(archive: &AssetSource) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        tracing::info!("packages that no mirror gives are taken from {archive}, which was compiled into this program: --archive names none");
    });
}

impl Apt<'_> {
    /// Returns the mirror for packages: the mirror in the options, else the mirror of the host's
    /// apt, else the compiled-in mirror. Returns `None` if there is none.
    ///
    /// # Errors
    /// The errors of reading apt's configuration. [`NoArchive`] if it names no archive of Debian,
    /// and neither the options nor the build name one.
    ///
    /// [`NoArchive`]: crate::error::apt_failure::AptError::NoArchive
    pub fn mirror(&self) -> Result<Option<Mirror>> {
        if !self.is_direct() {
            return Ok(Some(self.host()?.archive.clone()));
        }
        let options = self.options();
        let named = |uri: &Option<String>, by| Some(Mirror { uri: uri.clone()?, by });
        Ok(named(&options.mirror, NamedBy::User).or_else(|| named(&options.defaults.mirror, NamedBy::Default)))
    }

    /// Returns the archive of packages that mirrors have dropped, and who names it: the archive in
    /// the options, else the compiled-in archive.
    #[must_use]
    pub fn archive(&self) -> Option<(&AssetSource, NamedBy)> {
        let options = self.options();
        let named = options.archive.as_ref().map(|archive| (archive, NamedBy::User));
        named.or_else(|| options.defaults.archive.as_ref().map(|archive| (archive, NamedBy::Default)))
    }
}
