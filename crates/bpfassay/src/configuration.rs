// SPDX-License-Identifier: MIT OR Apache-2.0
//! Configuration files, which hold options of packages and mirrors.
//!
//! The file of a project is the nearest `bpfassay.toml` in the working directory or above it. The
//! file of a user is `bpfassay/bpfassay.toml` in `$XDG_CONFIG_HOME` or `~/.config`. An option or
//! its environment variable wins over the file of the project, which wins over the file of the
//! user.
//!
//! A `bpfassay.toml` above the working directory can come from anybody who can write there.
//! [`packages`] therefore refuses a file of another user.

#![allow(clippy::disallowed_methods, reason = "a configuration file of the user names the paths")]

use std::{
    env,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use bpfassay_input::document::{self, Field, Invalid, Reported, Section};
use bpfassay_packages::apt::AssetSource;

use crate::{
    cli::{Packages, mirror},
    exit::{CommandFailure, USAGE},
};

/// Name of a configuration file.
const NAME: &str = "bpfassay.toml";

/// Largest configuration file that is read, in bytes.
const LIMIT: u64 = 64 << 10;

/// Keys of a configuration file. They are the names of the options.
const KEYS: &[&str] = &["accept_stale", "archive", "catalogue", "from", "mirror", "newest", "refresh"];

/// Adds the values of the configuration files to `options`.
///
/// # Errors
/// A usage failure for a file that cannot be read, is invalid or belongs to another user.
pub(crate) fn packages(options: Packages) -> Result<Packages, CommandFailure> {
    let mut packages = options;
    for path in files() {
        packages = packages.or(read(&path)?);
        tracing::info!("options of packages: {}", path.display());
    }
    Ok(packages)
}

/// Returns the configuration files that exist, the one that wins first.
pub(crate) fn files() -> Vec<PathBuf> {
    let working_directory = env::current_dir().unwrap_or_default();
    let project = working_directory.ancestors().map(|directory| directory.join(NAME)).find(|path| path.exists());
    let home = |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let user = home("XDG_CONFIG_HOME").or_else(|| Some(home("HOME")?.join(".config")));
    let user = user.map(|directory| directory.join("bpfassay").join(NAME)).filter(|path| path.exists());
    let mut files: Vec<_> = project.into_iter().chain(user).collect();
    files.dedup();
    files
}

fn read(path: &Path) -> Result<Packages, CommandFailure> {
    let unreadable = |error: std::io::Error| {
        let report = miette::miette!(
            help = "correct the file, or remove it",
            "cannot read the configuration file {}: {error}",
            path.display()
        );
        CommandFailure { code: USAGE, report }
    };
    let file = bpfassay_input::open(path).map_err(unreadable)?;
    let owner = file.metadata().map_err(unreadable)?.uid();
    let of_directory = Path::new(".").metadata().map_err(unreadable)?.uid();
    if !is_trusted(owner, rustix::process::geteuid().as_raw(), of_directory) {
        let report = miette::miette!(
            help = "copy the file if you want it, or use a working directory that is not below it",
            "the configuration file {} belongs to another user (uid {owner})",
            path.display()
        );
        return Err(CommandFailure { code: USAGE, report });
    }
    let text = bpfassay_input::read_text_file(file, LIMIT).map_err(unreadable)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    parse(&path.display().to_string(), &text, directory).map_err(|invalid| CommandFailure::new(USAGE, invalid))
}

/// Returns whether a file of this owner is used: the caller, root, or the owner of the working
/// directory (a container runs as root on a checkout of another user).
fn is_trusted(owner: u32, caller: u32, of_directory: u32) -> bool {
    [caller, 0, of_directory].contains(&owner)
}

/// Parses the text of a configuration file. Relative paths start at `directory`.
fn parse(origin: &str, text: &str, directory: &Path) -> Result<Packages, Invalid> {
    document::read(origin, text, |root| {
        root.only(KEYS);
        let source = |field: &Field<'_, '_>| {
            Ok(match field.name()? {
                AssetSource::Directory(path) => AssetSource::Directory(directory.join(path)),
                url @ AssetSource::Url(_) => url,
            })
        };
        let newest = flag(root, "newest");
        let refresh = flag(root, "refresh");
        let accept_stale = flag(root, "accept_stale");
        let from = root.or("from", Vec::new(), |field| field.each(source));
        let mirror = root.optional("mirror", |field| mirror(field.text()?).map_err(|error| field.error(error)));
        let archive = root.optional("archive", source);
        let catalogue = root.optional("catalogue", |field| Ok(directory.join(field.text()?)));
        Ok(Packages {
            newest: newest?,
            refresh: refresh?,
            accept_stale: accept_stale?,
            from: from?,
            mirror: mirror?,
            archive: archive?,
            catalogue: catalogue?,
        })
    })
}

fn flag(root: &Section<'_, '_>, key: &str) -> Result<bool, Reported> {
    root.or(key, false, Field::boolean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Packages, String> {
        parse("bpfassay.toml", text, Path::new("/project")).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn paths_start_at_the_directory_of_the_file() {
        let text =
            "from = [\"assets\", \"https://host.example/more\"]\ncatalogue = \"own.toml\"\narchive = \"/snapshots\"\n";
        let packages = parsed(text).unwrap();
        let sources: Vec<String> = packages.from.iter().map(ToString::to_string).collect();
        assert_eq!(sources, ["/project/assets", "https://host.example/more"]);
        assert_eq!(packages.catalogue.as_deref(), Some(Path::new("/project/own.toml")));
        assert_eq!(packages.archive.unwrap().to_string(), "/snapshots");
    }

    #[test]
    fn wrong_keys_and_values_are_reported_at_once() {
        let message = parsed("mirrors = \"x\"\nnewest = 1\nmirror = \"srv/debian\"\n").unwrap_err();
        let lines: Vec<_> = message.lines().collect();
        assert_eq!(
            lines,
            [
                "bpfassay.toml:1:1: unknown key `mirrors`: did you mean `mirror`?",
                "bpfassay.toml:2:10: `newest`: expected true or false, found a whole number",
                "bpfassay.toml:3:10: `mirror`: a mirror is a URL: https://HOST/PATH, without user name, `?` and `#`",
            ]
        );
    }

    #[test]
    fn a_file_of_another_user_is_not_trusted() {
        assert!(is_trusted(1000, 1000, 1000) && is_trusted(0, 1000, 1000) && is_trusted(1001, 0, 1001));
        assert!(!is_trusted(1001, 1000, 1000) && !is_trusted(1001, 0, 0));
    }

    #[test]
    fn an_option_wins_over_a_file() {
        let file = parsed("mirror = \"https://file.example/debian\"\nnewest = true\nfrom = [\"a\"]\n").unwrap();
        let options = Packages { mirror: Some("https://option.example/debian".to_owned()), ..Packages::default() };
        let both = options.or(file.clone());
        assert_eq!(both.mirror.as_deref(), Some("https://option.example/debian"));
        assert!(both.newest);
        assert_eq!(both.from, file.from);
        assert_eq!(both.clone().or(Packages::default()), both);
    }
}
