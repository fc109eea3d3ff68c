// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of packages and mirrors. Only commands that read package lists or fetch files have them.

use std::path::PathBuf;

use bpfassay_packages::apt::AssetSource;
use clap::Args;

use super::{CliCommand, ClusterCommand, ListCommand, TestbedCommand};

/// Options of packages and mirrors. A configuration file can have them, too
/// ([`crate::configuration`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Packages and mirrors (bpfassay.toml can have these options)")]
pub(crate) struct Packages {
    /// Choose the newest kernels and compilers that the mirror has, instead of those of
    /// testbed.lock: figures are then not comparable with those of other machines
    #[arg(long, hide_short_help = true)]
    pub(crate) newest: bool,

    /// Ask the package mirror for its current lists, and choose the newest packages as with
    /// --newest
    #[arg(long, conflicts_with = "offline", hide_short_help = true)]
    pub(crate) refresh: bool,

    /// Accept package lists whose validity has expired (a mirror that lags behind)
    #[arg(long, hide_short_help = true)]
    pub(crate) accept_stale: bool,

    /// A place that offers the guest's programs (`bpfassay testbed payload pack`) or the package
    /// files of testbed.lock (below `pool/`), for what the cache lacks. Programs are built only if
    /// no place offers them; can be repeated
    #[arg(long, value_name = "DIR|URL", env = "BPFASSAY_FROM", hide_short_help = true)]
    pub(crate) from: Vec<AssetSource>,

    /// The mirror of Debian's archive that packages come from [default: that of the host's apt, or
    /// else the one that was compiled in, if any (`bpfassay doctor`)]
    #[arg(long, value_name = "URL", env = "BPFASSAY_MIRROR", value_parser = mirror, hide_short_help = true)]
    pub(crate) mirror: Option<String>,

    /// An archive that keeps what package mirrors drop. It provides package files of testbed.lock
    /// that no other place has, by their time stamps (ARCHIVE/debian/20251101T000000Z/pool/…).
    /// Nothing else replaces them [default: the one that was compiled in, if any]
    #[arg(long, value_name = "DIR|URL", env = "BPFASSAY_ARCHIVE", hide_short_help = true)]
    pub(crate) archive: Option<AssetSource>,

    /// More kernels in addition to those of bpfassay: a TOML file in the form of
    /// kernels/debian.toml, with different names
    #[arg(long, value_name = "FILE", env = "BPFASSAY_CATALOGUE", hide_short_help = true)]
    pub(crate) catalogue: Option<PathBuf>,
}

/// Parses the URL of a mirror.
pub(crate) fn mirror(text: &str) -> Result<String, &'static str> {
    match text.parse() {
        Ok(AssetSource::Url(url)) => Ok(url),
        _ => Err("a mirror is a URL: https://HOST/PATH, without user name, `?` and `#`"),
    }
}

impl Packages {
    /// Returns these options, and those of `other` where these have no value. A flag is set if it
    /// is set in one of them.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            newest: self.newest || other.newest,
            refresh: self.refresh || other.refresh,
            accept_stale: self.accept_stale || other.accept_stale,
            from: if self.from.is_empty() { other.from } else { self.from },
            mirror: self.mirror.or(other.mirror),
            archive: self.archive.or(other.archive),
            catalogue: self.catalogue.or(other.catalogue),
        }
    }
}

impl CliCommand {
    /// Returns the options of packages, if the command has them.
    pub(crate) fn packages(&self) -> Option<&Packages> {
        Some(match self {
            Self::Run(arguments) => &arguments.packages,
            Self::Check(arguments) => &arguments.packages,
            Self::Plan(arguments) => &arguments.packages,
            Self::Verify(arguments) => &arguments.packages,
            Self::Shell(arguments) => &arguments.packages,
            Self::Doctor(arguments) => &arguments.packages,
            Self::List(arguments) => match &arguments.command {
                ListCommand::Kernels(arguments) => &arguments.packages,
                _ => return None,
            },
            Self::Testbed(arguments) => match &arguments.command {
                TestbedCommand::Fetch(arguments) => &arguments.packages,
                TestbedCommand::Lock(arguments) => &arguments.packages,
                TestbedCommand::Bundle(arguments) => &arguments.packages,
                TestbedCommand::Payload(arguments) => arguments.command.packages(),
                _ => return None,
            },
            Self::Cluster(arguments) => match &arguments.command {
                ClusterCommand::Submit(arguments) => &arguments.packages,
                ClusterCommand::Merge(_) => return None,
            },
            _ => return None,
        })
    }
}
