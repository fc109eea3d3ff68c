// SPDX-License-Identifier: MIT OR Apache-2.0
//! apt's configuration for private package indexes. It has one suite and the host's own archive and
//! proxies, and nothing of the host's state.

#![allow(clippy::disallowed_methods, reason = "writes fixed names into a scratch directory")]

use std::{fs, path::Path, process::Command};

use super::{MAX_TEXT, host_apt::HostArchive};
use crate::error::{PackagesError, Result, apt_failure::AptError};

const CONFIGURATION: &str = "apt.conf";

/// Creates a command that runs an `apt` program on the root in `directory`.
pub(super) fn apt_command(directory: &Path, tool: &str) -> Command {
    let mut command = bpfassay_child::command(tool, &[bpfassay_child::NETWORK]);
    command.env("APT_CONFIG", directory.join(CONFIGURATION)).env("LC_ALL", "C.UTF-8");
    command
}

/// Whether `directory` has a configuration.
pub(super) fn is_configured(directory: &Path) -> bool {
    directory.join(CONFIGURATION).exists()
}

/// Makes `directory` a root for `suite`.
///
/// # Errors
/// - [`PackagesError::Io`]: a directory or file cannot be written.
/// - [`AptError::Quote`]: apt's configuration cannot quote the path of `directory`.
pub(super) fn write_configuration(
    directory: &Path,
    suite: &str,
    architectures: &[&str],
    host: &HostArchive,
) -> Result<()> {
    for part in ["etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"] {
        let path = directory.join(part);
        fs::create_dir_all(&path).map_err(PackagesError::io("create", &path))?;
    }
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(PackagesError::io("write", path))
    };
    write("state/status", "")?;
    write("etc/sources.list", &sources(suite, architectures, host))?;
    write(CONFIGURATION, &configuration(directory, architectures, host)?)
}

/// Makes the configuration in `directory` name this directory. The configuration holds absolute
/// paths, and the cache may have been moved or copied since it was written.
///
/// # Errors
/// - [`PackagesError::Io`]: the configuration cannot be read or written.
/// - [`AptError::Quote`]: apt's configuration cannot quote the path of `directory`.
pub(super) fn follow_move(directory: &Path) -> Result<()> {
    let path = directory.join(CONFIGURATION);
    let text = bpfassay_input::read_text(&path, MAX_TEXT).map_err(PackagesError::io("read", &path))?;
    match moved(&text, &quotable(directory)?) {
        Some(text) => fs::write(&path, text).map_err(PackagesError::io("write", path)),
        None => Ok(()),
    }
}

/// Replaces the directory that a configuration was written for by `root`. Returns `None` if it was
/// written for `root`, or names no directory.
pub(crate) fn moved(text: &str, root: &str) -> Option<String> {
    let before = text.lines().find_map(|line| line.strip_prefix("Dir::State \"")?.strip_suffix("/state\";"))?;
    if before == root {
        return None;
    }
    let lines = text.lines().map(|line| match line.strip_prefix("Dir::") {
        Some(_) => line.replace(&format!("\"{before}/"), &format!("\"{root}/")) + "\n",
        None => format!("{line}\n"),
    });
    Some(lines.collect())
}

/// Returns `path` as text, if it can stand between the quotes of apt's configuration.
fn quotable(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) if !text.contains(['"', '\n', '\\']) => Ok(text.to_owned()),
        _ => Err(AptError::Quote(path.display().to_string()).into()),
    }
}

fn sources(suite: &str, architectures: &[&str], host: &HostArchive) -> String {
    let keyring = host.keyring.as_ref().map(|path| format!(" signed-by={path}")).unwrap_or_default();
    format!("deb [arch={}{keyring}] {} {suite} main\n", architectures.join(","), host.archive.uri)
}

fn configuration(directory: &Path, architectures: &[&str], host: &HostArchive) -> Result<String> {
    let root = quotable(directory)?;
    let mut lines = host.settings.clone();
    let list: Vec<_> = architectures.iter().map(|name| format!("\"{name}\";")).collect();
    lines.extend([
        format!("APT::Architecture \"{}\";", architectures.first().unwrap_or(&"amd64")),
        format!("APT::Architectures {{ {} }};", list.join(" ")),
        // Another user cannot enter a cache below /root. apt started by root downloads to a sandbox
        // outside the cache, as another user.
        "APT::Sandbox::User \"root\";".to_owned(),
        "Acquire::Languages \"none\";".to_owned(),
        // Indexes stay compressed, and apt keeps no binary copies of them: 20 MB in place of 140.
        "Acquire::GzipIndexes \"true\";".to_owned(),
        "Dir::Cache::pkgcache \"\";".to_owned(),
        "Dir::Cache::srcpkgcache \"\";".to_owned(),
        format!("Dir::State \"{root}/state\";"),
        format!("Dir::State::status \"{root}/state/status\";"),
        format!("Dir::Cache \"{root}/cache\";"),
        format!("Dir::Etc \"{root}/etc\";"),
        "Dir::Etc::netrc \"/etc/apt/auth.conf\";".to_owned(),
        "Dir::Etc::netrcparts \"/etc/apt/auth.conf.d\";".to_owned(),
        "Dir::Etc::trusted \"/etc/apt/trusted.gpg\";".to_owned(),
        "Dir::Etc::trustedparts \"/etc/apt/trusted.gpg.d\";".to_owned(),
    ]);
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apt::{Mirror, NamedBy};

    fn host() -> HostArchive {
        HostArchive {
            archive: Mirror { uri: "http://m.example/debian/".into(), by: NamedBy::Host },
            keyring: Some("/usr/share/keyrings/k.gpg".into()),
            settings: vec!["Acquire::http::Proxy \"http://p.example\";".into()],
            user: "_apt".into(),
        }
    }

    #[test]
    fn sources_name_suite_architectures_and_keys() {
        assert_eq!(
            sources("forky", &["amd64", "riscv64"], &host()),
            "deb [arch=amd64,riscv64 signed-by=/usr/share/keyrings/k.gpg] http://m.example/debian/ forky main\n"
        );
        let open = HostArchive { keyring: None, ..host() };
        assert_eq!(sources("sid", &["arm64"], &open), "deb [arch=arm64] http://m.example/debian/ sid main\n");
    }

    #[test]
    fn the_configuration_keeps_proxies_and_leaves_the_hosts_state_alone() {
        let text = configuration(Path::new("/c/apt/x"), &["arm64"], &host()).unwrap();
        for line in [
            "Acquire::http::Proxy \"http://p.example\";",
            "APT::Architecture \"arm64\";",
            "Dir::State \"/c/apt/x/state\";",
            "Dir::Cache \"/c/apt/x/cache\";",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(configuration(Path::new("/c/\"x"), &["arm64"], &host()).is_err());
    }

    #[test]
    fn the_configuration_follows_a_cache_that_was_moved() {
        let at = |root: &str| configuration(Path::new(root), &["arm64"], &host()).unwrap();
        assert_eq!(moved(&at("/c/apt/x"), "/new place/apt/x").as_deref(), Some(at("/new place/apt/x").as_str()));
        assert_eq!(moved(&at("/c/apt/x"), "/c/apt/x"), None);
    }
}
