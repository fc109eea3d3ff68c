// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of every command.

use std::{ffi::OsString, path::PathBuf};

use bpfassay_testbed::apt::{AssetSource, NotAnAssetSource};
use clap::Args;

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Print help: `-h` in short, `--help` in full
    #[arg(long, short, global = true, action = clap::ArgAction::Help)]
    help: Option<bool>,

    /// Answer yes to every question, as with CI=true
    #[arg(long, short = 'y', global = true)]
    pub(crate) yes: bool,

    /// Use only what the cache holds, and no network
    #[arg(long, global = true)]
    pub(crate) offline: bool,

    /// Choose the newest kernels and compilers that the mirror has, instead of those of
    /// testbed.lock: figures are then not comparable with those of other machines
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) newest: bool,

    /// Ask the package mirror for its current lists, and choose the newest packages as with
    /// --newest
    #[arg(long, global = true, conflicts_with = "offline", hide_short_help = true)]
    pub(crate) refresh: bool,

    /// Accept package lists whose validity has expired (a mirror that lags behind)
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) accept_stale: bool,

    /// Directory of the cache [default: $XDG_CACHE_HOME/bpfassay or ~/.cache/bpfassay]
    #[arg(long, global = true, value_name = "DIR", env = "BPFASSAY_CACHE", hide_short_help = true)]
    pub(crate) cache: Option<PathBuf>,

    /// A place that offers the guest's programs (`bpfassay testbed payload pack`) or the package
    /// files of testbed.lock (below `pool/`), for what the cache lacks. Programs are built only if
    /// no place offers them; can be repeated
    #[arg(long, global = true, value_name = "DIR|URL", env = "BPFASSAY_FROM", hide_short_help = true)]
    pub(crate) from: Vec<AssetSource>,

    /// The mirror of Debian's archive that packages come from [default: that of the host's apt, or
    /// else the one that was compiled in, if any (`bpfassay doctor`)]
    #[arg(long, global = true, value_name = "URL", env = "BPFASSAY_MIRROR", value_parser = mirror, hide_short_help = true)]
    pub(crate) mirror: Option<String>,

    /// An archive that keeps what package mirrors drop. It provides package files of testbed.lock
    /// that no other place has, by their time stamps (ARCHIVE/debian/20251101T000000Z/pool/…).
    /// Nothing else replaces them [default: the one that was compiled in, if any]
    #[arg(long, global = true, value_name = "DIR|URL", env = "BPFASSAY_ARCHIVE", hide_short_help = true)]
    pub(crate) archive: Option<AssetSource>,

    /// More kernels in addition to those of bpfassay: a TOML file in the form of
    /// kernels/debian.toml, with different names
    #[arg(long, global = true, value_name = "FILE", env = "BPFASSAY_CATALOGUE", hide_short_help = true)]
    pub(crate) catalogue: Option<PathBuf>,

    /// Print more, such as guests' consoles; repeatable
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// Parses the URL of a mirror.
fn mirror(text: &str) -> Result<String, NotAnAssetSource> {
    match text.parse()? {
        AssetSource::Url(url) => Ok(url),
        AssetSource::Directory(_) => Err(NotAnAssetSource),
    }
}

impl Global {
    /// Returns, as arguments, the options that decide what is measured and where it comes from:
    /// another command needs them to do the same. Options for questions and output are left out.
    pub(crate) fn of_testbed(&self) -> Vec<OsString> {
        // There is no `..`: whoever adds an option decides here whether to include it.
        let Self {
            help: _,
            yes: _,
            offline,
            newest,
            refresh,
            accept_stale,
            cache,
            from,
            mirror,
            archive,
            catalogue,
            verbose: _,
        } = self;
        let source = |source: &AssetSource| match source {
            AssetSource::Directory(path) => path.clone().into_os_string(),
            AssetSource::Url(url) => url.into(),
        };
        let flags = [
            ("--offline", *offline),
            ("--newest", *newest),
            ("--refresh", *refresh),
            ("--accept-stale", *accept_stale),
        ];
        let flags = flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag.into());
        let path = |name: &'static str, path: &Option<PathBuf>| Some((name, path.clone()?.into_os_string()));
        let with_values = path("--cache", cache)
            .into_iter()
            .chain(from.iter().map(|from| ("--from", source(from))))
            .chain(mirror.iter().map(|mirror| ("--mirror", mirror.into())))
            .chain(archive.iter().map(|archive| ("--archive", source(archive))))
            .chain(path("--catalogue", catalogue));
        flags.chain(with_values.flat_map(|(name, value)| [name.into(), value])).collect()
    }
}
