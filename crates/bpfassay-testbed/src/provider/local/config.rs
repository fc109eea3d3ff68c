// SPDX-License-Identifier: MIT OR Apache-2.0
//! A kernel's configuration (`.config`), compared with the needs of guests.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
};

use crate::{
    error::{Error, Result},
    image::MAX_CONFIG,
};

/// Options that guests need and that can be modules, with the module and who needs it.
const GUEST_MODULES: [(&str, &str, Need); 5] = [
    ("CONFIG_VIRTIO_PCI", "virtio_pci", Need::Guest),
    ("CONFIG_VIRTIO_CONSOLE", "virtio_console", Need::Guest),
    ("CONFIG_NFSD", "nfsd", Need::Nfs),
    ("CONFIG_NFS_V3", "nfsv3", Need::Nfs),
    ("CONFIG_NFS_V4", "nfsv4", Need::Nfs),
];

/// Fragments of configuration, and who needs their options.
const FRAGMENTS: [(Need, &str); 4] = [
    (Need::Guest, include_str!("../../../kconfig/guest.config")),
    (Need::Probes, include_str!("../../../kconfig/tracing.config")),
    (Need::Nfs, include_str!("../../../kconfig/nfs.config")),
    (Need::Nfs, include_str!("../../../kconfig/nfs41.config")),
];

/// Who needs an option or a module. It is displayed as a noun: `the NFS mount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Every guest.
    Guest,
    /// Probes and the tools under test.
    Probes,
    /// An NFS mount. Studies can also use other file systems.
    Nfs,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guest => "a guest",
            Self::Probes => "probes and tools",
            Self::Nfs => "the NFS mount",
        })
    }
}

/// An option that a kernel lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// The option, `CONFIG_…`.
    pub option: &'static str,
    /// Who needs the option.
    pub needed_by: Need,
}

/// A module of the kernel's configuration that its packages lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absent {
    /// Name of the module, as the kernel writes it.
    pub module: &'static str,
    /// Who needs the module.
    pub needed_by: Need,
}

/// The options of a kernel that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config(BTreeMap<String, String>);

impl Config {
    /// Reads the configuration at `path`.
    ///
    /// # Errors
    /// `PackagesError::Io` if the file cannot be read or is larger than 16 MiB.
    pub fn read(path: &Path) -> Result<Self> {
        let text = bpfassay_input::read(path, MAX_CONFIG).map_err(Error::io("read", path))?;
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Parses the options that `text` sets: lines `CONFIG_NAME=value`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.lines().filter_map(option).map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Returns whether the option is built in or a module.
    #[must_use]
    pub fn is_set(&self, option: &str) -> bool {
        self.0.get(option).is_some_and(|value| value != "n")
    }

    /// Lists the options that guests can need and that are modules.
    pub(super) fn modules_of_guests(&self) -> impl Iterator<Item = &'static str> {
        GUEST_MODULES.into_iter().map(|(option, ..)| option).filter(|option| self.is_module(option))
    }

    fn is_module(&self, option: &str) -> bool {
        self.0.get(option).is_some_and(|value| value == "m")
    }

    /// Returns the modules that guests need and that are not in `modules`. `nfs` adds the options
    /// of an NFS mount.
    pub(super) fn absent(&self, modules: &BTreeSet<String>, nfs: bool) -> Vec<Absent> {
        let needed = GUEST_MODULES.into_iter().filter(|(option, module, need)| {
            self.is_module(option) && (nfs || *need != Need::Nfs) && !modules.contains(*module)
        });
        needed.map(|(_, module, need)| Absent { module, needed_by: need }).collect()
    }

    /// Returns the options that a kernel of this configuration and `release` lacks for guests and
    /// probes. `nfs` adds the options of an NFS mount.
    #[must_use]
    pub fn lacks(&self, release: &str, nfs: bool) -> Vec<Lack> {
        let fragments =
            FRAGMENTS.into_iter().filter(|(need, text)| (nfs || *need != Need::Nfs) && is_of(text, release));
        let options =
            fragments.flat_map(|(need, text)| text.lines().filter_map(option).map(move |(name, _)| (need, name)));
        let lacking = options.filter(|(_, option)| !self.is_set(option));
        lacking.map(|(need, option)| Lack { option, needed_by: need }).collect()
    }
}

/// Parses a line that sets an option into name and value.
fn option(line: &str) -> Option<(&str, &str)> {
    line.trim().split_once('=').filter(|(name, value)| name.starts_with("CONFIG_") && !value.is_empty())
}

/// Returns whether kernels of `release` have the options of a fragment, according to its lines `#
/// since: 6.12` and `# before: 7.0`.
fn is_of(fragment: &str, release: &str) -> bool {
    let named =
        |key: &str| fragment.lines().find_map(|line| version(line.strip_prefix("# ")?.strip_prefix(key)?.trim()));
    let Some(release) = version(release) else { return true };
    named("since:").is_none_or(|since| release >= since) && named("before:").is_none_or(|before| release < before)
}

/// Parses the first two numbers of a release: 6 and 12 of `6.12.0-mine`.
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A configuration with all options of the fragments.
    fn whole() -> String {
        FRAGMENTS.map(|(_, text)| text).concat()
    }

    fn lacks(text: &str, release: &str, nfs: bool) -> Vec<String> {
        let lacks = Config::parse(text).lacks(release, nfs);
        lacks.into_iter().map(|lack| format!("{}: {}", lack.option, lack.needed_by)).collect()
    }

    #[test]
    fn a_kernel_with_everything_lacks_nothing() {
        assert!(lacks(&whole(), "6.12.1", true).is_empty());
        assert!(lacks(&whole().replace("=m", "=y"), "6.12.1", true).is_empty());
    }

    #[test]
    fn what_is_not_set_is_named_with_what_needs_it() {
        let without = whole().replace("CONFIG_NFSD=m", "# CONFIG_NFSD is not set");
        let without = without.replace("CONFIG_DEBUG_INFO_BTF=y", "CONFIG_DEBUG_INFO_BTF=n");
        assert_eq!(
            lacks(&without, "6.12.1", true),
            ["CONFIG_DEBUG_INFO_BTF: probes and tools", "CONFIG_NFSD: the NFS mount"]
        );
        assert_eq!(lacks(&without, "6.12.1", false), ["CONFIG_DEBUG_INFO_BTF: probes and tools"]);
    }

    #[test]
    fn an_option_that_later_kernels_do_not_have_is_not_asked_of_them() {
        let without = whole().replace("CONFIG_NFS_V4_1=y", "");
        assert_eq!(lacks(&without, "6.18.0-mine", true), ["CONFIG_NFS_V4_1: the NFS mount"]);
        assert!(lacks(&without, "7.0.0", true).is_empty());
    }

    #[test]
    fn modules_that_are_not_there_are_named_with_what_needs_them() {
        let config = Config::parse("CONFIG_NFSD=m\nCONFIG_VIRTIO_PCI=m\nCONFIG_NFS_V4=y\nCONFIG_NFS_V3=m\n");
        let absent = |modules: &[&str], nfs| {
            let modules = modules.iter().map(|&module| module.to_owned()).collect();
            let absent = config.absent(&modules, nfs).into_iter();
            absent.map(|Absent { module, needed_by }| format!("{module}: {needed_by}")).collect::<Vec<_>>()
        };
        assert_eq!(absent(&["virtio_pci", "nfsv3"], true), ["nfsd: the NFS mount"]);
        assert_eq!(absent(&["nfsv3"], false), ["virtio_pci: a guest"]);
    }

    #[test]
    fn modules_that_guests_load_are_known() {
        let config = Config::parse("CONFIG_NFSD=m\nCONFIG_VIRTIO_PCI=y\n# CONFIG_NFS_V3 is not set\n");
        assert_eq!(config.modules_of_guests().collect::<Vec<_>>(), ["CONFIG_NFSD"]);
    }

    proptest! {
        #[test]
        fn any_text_has_an_answer(text in "(CONFIG_[A-Z]{0,4}[= ][ymn]?|.{0,20}|\n){0,8}", release in ".{0,12}") {
            let _ = Config::parse(&text).lacks(&release, true);
        }
    }
}
