// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's own apt configuration: where the Debian archive is, and how to reach it.

use std::{path::Path, process::Command, sync::OnceLock};

use super::{Mirror, NamedBy, program};
use crate::error::{PackagesError, Result, apt_failure::AptError};

/// Code names of Debian's suites.
const SUITES: &[&str] = &["bullseye", "bookworm", "trixie", "forky", "duke", "sid"];

/// Debian's other names for suites.
const CLASSES: &[&str] = &["stable", "oldstable", "oldoldstable", "testing", "unstable"];

/// The host's Debian archive, and apt's settings for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostArchive {
    /// The archive, without the suite.
    pub(super) archive: Mirror,
    /// The keyring of Debian's archive. `None` if the host lacks it: apt's trusted keys count then.
    pub(super) keyring: Option<String>,
    /// The `Acquire::…` settings (proxies, time-outs, whether expired release files are accepted),
    /// as lines of configuration.
    pub(super) settings: Vec<String>,
    /// The user that apt uses the network as, if root runs it (`APT::Sandbox::User`).
    pub(super) user: String,
}

impl HostArchive {
    /// Reads the host's apt configuration. `mirror` replaces the archive that apt names. `default`
    /// is used if apt names none.
    ///
    /// # Errors
    /// [`PackagesError::Program`] if the host has no apt. [`PackagesError::Command`] if apt fails.
    /// [`AptError::NoArchive`] if apt's sources name no archive of Debian, and there is no default.
    pub(super) fn read(mirror: Option<&str>, default: Option<&str>) -> Result<Self> {
        let dump = dump()?;
        let archive = match mirror {
            Some(mirror) => Mirror { uri: mirror.to_owned(), by: NamedBy::User },
            // Release files name the origin. Before the first `apt-get update`, there are none.
            None => match find_archive(&index_targets(&[])?) {
                Some(uri) => Mirror { uri, by: NamedBy::Host },
                None => {
                    let listed = find_archive(&index_targets(&["--no-release-info"])?);
                    preferred(listed, default).ok_or(AptError::NoArchive)?
                }
            },
        };
        Ok(Self {
            archive,
            keyring: KEYRINGS.iter().find(|path| Path::new(path).exists()).map(|&path| path.to_owned()),
            settings: settings(&dump),
            user: sandbox_user(&dump),
        })
    }
}

/// Prefers the archive of the host's apt to the default.
fn preferred(listed: Option<String>, default: Option<&str>) -> Option<Mirror> {
    let default = || default.map(|uri| Mirror { uri: uri.to_owned(), by: NamedBy::Default });
    listed.map(|uri| Mirror { uri, by: NamedBy::Host }).or_else(default)
}

/// Whether this host has apt, but its sources name no archive of Debian, as on Ubuntu. Debian
/// packages then need a mirror or a place that the user or the build names.
#[must_use]
pub fn is_of_another_distribution() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| matches!(HostArchive::read(None, None), Err(PackagesError::Apt(AptError::NoArchive))))
}

/// Returns the user that apt uses the network as, if root runs it.
///
/// # Errors
/// The errors of running `apt-config`.
pub(super) fn download_user() -> Result<String> {
    Ok(sandbox_user(&dump()?))
}

/// Creates a command that runs apt, directly or indirectly. It keeps the caller's `APT_CONFIG`.
pub(super) fn command(program: &str) -> Command {
    bpfassay_child::command(program, &[bpfassay_child::NETWORK, &["APT_CONFIG"]])
}

fn dump() -> Result<String> {
    program("apt-config", "reading the host's apt configuration", command("apt-config").arg("dump"))
}

/// Lists the host's index targets: lines in [`TARGET_FORMAT`].
fn index_targets(options: &[&str]) -> Result<String> {
    let mut command = command("apt-get");
    command.arg("indextargets").args(options).args(["--format", TARGET_FORMAT, "Created-By: Packages"]);
    program("apt-get", "asking for the host's package archives", &mut command)
}

const TARGET_FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)";

const KEYRINGS: &[&str] =
    &["/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg"];

/// Finds the Debian archive among the host's index targets (lines in [`TARGET_FORMAT`]).
pub(crate) fn find_archive(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut fields = line.split('|');
        let (uri, suite, component, origin) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let suite = suite.trim_end_matches("-backports").trim_end_matches("-updates");
        let debian = match origin {
            "Debian" => SUITES.contains(&suite) || CLASSES.contains(&suite),
            // The origin is unknown: apt prints the placeholder. Many archives have a suite
            // `stable`.
            "" | "$(ORIGIN)" => SUITES.contains(&suite) || (CLASSES.contains(&suite) && uri.contains("/debian")),
            _ => false,
        };
        (debian && component == "main").then(|| uri.to_owned())
    })
}

/// Selects the lines of `apt-config dump` with settings for reaching archives.
pub(crate) fn settings(dump: &str) -> Vec<String> {
    const OURS: &[&str] = &["IndexTargets", "Languages", "Changelogs", "GzipIndexes", "CompressionTypes", "cdrom"];
    dump.lines()
        .filter(|line| {
            line.strip_prefix("Acquire::").is_some_and(|rest| {
                !OURS.iter().any(|name| rest.strip_prefix(name).is_some_and(|rest| rest.starts_with([':', ' '])))
            })
        })
        .map(str::to_owned)
        .collect()
}

/// Reads the sandbox user from `apt-config dump`. apt's default is `_apt`.
fn sandbox_user(dump: &str) -> String {
    let named = |line: &str| line.strip_prefix("APT::Sandbox::User \"")?.strip_suffix("\";").map(str::to_owned);
    dump.lines().find_map(named).unwrap_or_else(|| "_apt".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_archive_is_found_among_others() {
        let targets = "http://a.example/debian-security/|bookworm-security|main|amd64|Debian\n\
                       http://n.example/node/|nodistro|main|. nodistro\n\
                       http://a.example/debian-security/|bookworm-security|main|Debian\n\
                       http://a.example/debian/|bookworm-updates|contrib|Debian\n\
                       http://a.example/debian/|bookworm|main|Debian\n";
        assert_eq!(find_archive(targets).as_deref(), Some("http://a.example/debian/"));
    }

    #[test]
    fn the_default_is_taken_only_where_apt_names_no_archive() {
        let default = Some("http://d.example/debian");
        let taken = |listed: Option<&str>, default| preferred(listed.map(str::to_owned), default);
        let of = |uri: &str, by| Some(Mirror { uri: uri.to_owned(), by });
        assert_eq!(taken(Some("http://a.example/debian/"), default), of("http://a.example/debian/", NamedBy::Host));
        assert_eq!(taken(None, default), of("http://d.example/debian", NamedBy::Default));
        assert_eq!(taken(None, None), None);
    }

    #[test]
    fn the_archive_is_found_before_the_first_update() {
        let targets = "mirror+file:/etc/apt/mirrors/debian.list/|trixie-updates|main|$(ORIGIN)";
        assert_eq!(find_archive(targets).as_deref(), Some("mirror+file:/etc/apt/mirrors/debian.list/"));
    }

    #[test]
    fn the_user_who_downloads_is_the_hosts() {
        assert_eq!(sandbox_user("APT::Sandbox \"\";\nAPT::Sandbox::User \"_apt\";\n"), "_apt");
        assert_eq!(sandbox_user("APT::Sandbox::User \"root\";\n"), "root");
        assert_eq!(sandbox_user("APT \"\";\n"), "_apt");
    }

    #[test]
    fn other_distributions_have_none() {
        assert_eq!(find_archive("http://u.example/ubuntu/|noble|main|Ubuntu\n"), None);
        assert_eq!(find_archive("http://u.example/x/|stable|main|Docker\n"), None);
        assert_eq!(find_archive("http://u.example/x/|stable|main|$(ORIGIN)\n"), None);
        let targets = "http://d.example/debian/|stable|main|$(ORIGIN)\n";
        assert_eq!(find_archive(targets).as_deref(), Some("http://d.example/debian/"));
    }

    #[test]
    fn settings_that_reach_archives_are_kept() {
        let dump = "APT::Architecture \"amd64\";\nAcquire \"\";\nAcquire::http::Proxy \"http://p.example:3128\";\n\
                    Acquire::Languages \"\";\nAcquire::Languages:: \"none\";\nAcquire::IndexTargets::deb \"\";\n\
                    Acquire::Check-Valid-Until \"false\";\n";
        let settings = settings(dump);
        assert_eq!(
            settings,
            ["Acquire::http::Proxy \"http://p.example:3128\";", "Acquire::Check-Valid-Until \"false\";"]
        );
    }
}
