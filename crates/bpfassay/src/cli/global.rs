// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of every command.

use std::{ffi::OsString, path::PathBuf};

use bpfassay_packages::apt::AssetSource;
use clap::Args;

use super::Packages;

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

    /// Directory of the cache [default: $XDG_CACHE_HOME/bpfassay or ~/.cache/bpfassay]
    #[arg(long, global = true, value_name = "DIR", env = "BPFASSAY_CACHE", hide_short_help = true)]
    pub(crate) cache: Option<PathBuf>,

    /// Print more, such as guests' consoles; repeatable
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// The options of packages, from the command and from configuration files.
    #[arg(skip)]
    pub(crate) packages: Packages,
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
            cache,
            verbose: _,
            packages: Packages { newest, refresh, accept_stale, from, mirror, archive, catalogue },
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
