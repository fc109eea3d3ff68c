// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where packages come from by itself: the mirror and the archive that the user names, else those
//! of the host, else those that were compiled in.

use std::sync::Once;

use super::{Apt, AssetSource};
use crate::Result;

/// Places that whoever built the program compiled in, of which none is asked where the user, or for
/// the mirror the host's apt, names one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// URL of a mirror of Debian's archive.
    pub mirror: Option<String>,
    /// An archive that keeps what mirrors drop, as [`super::Options::archive`].
    pub archive: Option<AssetSource>,
}

/// Who names a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// An option, or a variable of the environment.
    User,
    /// The host's apt configuration.
    Host,
    /// Whoever built the program.
    Default,
}

/// A mirror of Debian's archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Its URI, without suite. That of the host's apt may have a password, and is not for messages.
    pub uri: String,
    /// Who names it.
    pub by: NamedBy,
}

impl Mirror {
    /// For messages. The mirror of apt is not named.
    #[must_use]
    pub fn name(&self) -> String {
        match self.by {
            NamedBy::User => format!("{} (--mirror)", self.uri),
            NamedBy::Host => "the mirror of this host's apt".to_owned(),
            NamedBy::Default => format!("{} (the mirror that was compiled in)", self.uri),
        }
    }

    /// Reports, once, that this is used if neither the user nor the host chose it.
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

/// Reports, once, that an archive is used which the user did not name.
pub(super) fn report_archive(archive: &AssetSource) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        tracing::info!("packages that no mirror gives are taken from {archive}, which was compiled into this program: --archive names none");
    });
}

impl Apt<'_> {
    /// The mirror to take packages from: the one that options name, else that of the host's apt,
    /// else the one that was compiled in. `None` where there is none.
    ///
    /// # Errors
    /// Those of reading apt's configuration; [`super::AptError::NoArchive`] where that names no
    /// archive of Debian, and nothing else names one.
    pub fn mirror(&self) -> Result<Option<Mirror>> {
        if !self.is_direct() {
            return Ok(Some(self.host()?.archive.clone()));
        }
        let options = self.options();
        let named = |uri: &Option<String>, by| Some(Mirror { uri: uri.clone()?, by });
        Ok(named(&options.mirror, NamedBy::User).or_else(|| named(&options.defaults.mirror, NamedBy::Default)))
    }

    /// The archive that keeps what mirrors drop: the one that options name, else the one that was
    /// compiled in, and who names it.
    #[must_use]
    pub fn archive(&self) -> Option<(&AssetSource, NamedBy)> {
        let options = self.options();
        let named = options.archive.as_ref().map(|archive| (archive, NamedBy::User));
        named.or_else(|| options.defaults.archive.as_ref().map(|archive| (archive, NamedBy::Default)))
    }
}
