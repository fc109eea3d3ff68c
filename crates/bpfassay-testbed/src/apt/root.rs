//! Private package indexes: one suite, some architectures.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bpfassay_protocol::Arch;
use serde::{Deserialize, Serialize};

use super::{
    Apt, AptError, Indexed, Package, ReleaseFile, cannot_start, debian_name,
    host::Host,
    parse_index, parse_print_uris, program,
    release::Age,
    sandbox::{Sandbox, warn_of_root},
    tail,
};
use crate::{
    Error, Result,
    cache::{Digest, Object, free_space},
    error::human,
};

/// Indexes younger than this are used without asking the mirror.
const FRESH: Duration = Duration::from_secs(7 * 24 * 3600);

/// How often a mirror is asked before it is given up.
const ATTEMPTS: u32 = 3;

/// Space that fetching the indexes of one suite and architecture takes, about, in bytes.
const INDEX_SIZE: u64 = 100_000_000;

/// Largest release file, configuration or state that is read, in bytes; release files have some 100 KB.
const MAX_TEXT: u64 = 16 << 20;

/// When and how the indexes of a root were fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexState {
    /// When they were fetched, in seconds since 1970.
    pub fetched: u64,
    /// The release file that vouches for them.
    pub release: ReleaseFile,
    /// Whether it had expired by then, and that was accepted.
    pub stale: bool,
    /// URI of the archive that they came from.
    pub archive: String,
}

/// The indexes of one suite for some architectures, ready for use.
#[derive(Debug)]
pub struct Root {
    directory: PathBuf,
    suite: String,
    state: IndexState,
}

impl Apt<'_> {
    /// The indexes of `suite` for `architectures`, of which the first counts as native; fetched where they are missing or
    /// old, or [`super::Options::refresh`] asks for it.
    ///
    /// Where the mirror fails and indexes are there, these are used and a warning says so, unless a refresh was asked for.
    ///
    /// # Errors
    /// [`AptError`], [`Error::Offline`], [`Error::DiskFull`], [`Error::Program`], [`Error::Io`].
    pub fn root(&self, suite: &str, architectures: &[Arch]) -> Result<Root> {
        self.root_at(suite, architectures, false)
    }

    /// As [`Apt::root`]; `force` fetches the indexes however fresh they are.
    pub(crate) fn root_at(&self, suite: &str, architectures: &[Arch], force: bool) -> Result<Root> {
        let names: Vec<_> = architectures.iter().map(|&arch| debian_name(arch)).collect();
        let name = root_name(suite, architectures);
        let directory = self.cache().root().join("apt").join(&name);
        let _lock = self.cache().lock(&format!("apt-{name}"))?;
        let known = read_state(&directory);
        if known.is_some() {
            follow_move(&directory)?;
        }
        let same_archive = |state: &IndexState| self.options().mirror.as_ref().is_none_or(|uri| *uri == state.archive);
        let fresh = known
            .as_ref()
            .is_some_and(|state| same_archive(state) && now().saturating_sub(state.fetched) < FRESH.as_secs());
        // What was fetched since we started is as fresh as a refresh can make it.
        let refreshed_by_us = self.updated().contains(&name);
        let root = |state| Root { directory: directory.clone(), suite: suite.to_owned(), state };
        match known {
            Some(state)
                if self.options().offline || (!force && (refreshed_by_us || (fresh && !self.options().refresh))) =>
            {
                Ok(root(state))
            }
            None if self.options().offline => {
                Err(Error::Offline { what: format!("the package index of suite {suite}") })
            }
            known => match self.update(&directory, suite, &names) {
                Ok(state) => {
                    self.updated().insert(name);
                    Ok(root(state))
                }
                Err(error) => match known {
                    Some(state) if !self.options().refresh && !force => {
                        let age = Age(Duration::from_secs(now().saturating_sub(state.fetched)));
                        tracing::warn!("using the package index of suite {suite} fetched {age} ago: {error}");
                        Ok(root(state))
                    }
                    _ => Err(error),
                },
            },
        }
    }

    /// How old the indexes of `suite` for `architectures` are, if they are there; nothing is fetched.
    #[must_use]
    pub fn known_state(&self, suite: &str, architectures: &[Arch]) -> Option<IndexState> {
        read_state(&self.cache().root().join("apt").join(root_name(suite, architectures)))
    }

    fn update(&self, directory: &Path, suite: &str, architectures: &[&str]) -> Result<IndexState> {
        let host = self.host()?;
        let what = format!("the package index of suite {suite}");
        let needed = INDEX_SIZE * architectures.len() as u64;
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, needed)?;
        write_configuration(directory, suite, architectures, host)?;
        tracing::info!("fetching {what} ({})", architectures.join(", "));
        let lists = directory.join("state/lists");
        let sandbox = Sandbox::make(&host.user, &what, needed)?;
        if let Some(sandbox) = &sandbox {
            sandbox.put_lists(&lists)?;
        }
        let mut attempt = 1;
        loop {
            let mut command = apt_command(directory, "apt-get");
            command.args(["update", "-q", "-o", "APT::Update::Error-Mode=any"]);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_update(&mut command);
            }
            if self.options().accept_stale {
                command.args(["-o", "Acquire::Check-Valid-Until=false"]);
            }
            if attempt == ATTEMPTS {
                // The same index in another compression: while a mirror is updated, one of them may be whole.
                command.args(["-o", "Acquire::CompressionTypes::Order::=gz"]);
            }
            let output = command.output().map_err(|source| cannot_start("apt-get", source))?;
            warn_of_root(&output.stderr);
            if output.status.success() {
                break;
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            let place = sandbox.as_ref().map(Sandbox::lists);
            if let Some(error) = self.disk_full(&what, needed, place.as_deref(), &stderr) {
                return Err(error);
            }
            let error = AptError::from_output(suite, &stderr, attempt);
            if !error.is_passing() || attempt == ATTEMPTS {
                return Err(error.into());
            }
            tracing::info!("attempt {attempt} of {ATTEMPTS} at the mirror failed; trying again");
            tracing::debug!("{error}");
            pause(attempt);
            attempt += 1;
        }
        if let Some(sandbox) = &sandbox {
            // Half of the old ones and half of the new ones count as none.
            self.cache().remove(&directory.join(STATE))?;
            sandbox.take_lists(self.cache(), &lists)?;
        }
        let release = read_release(directory, suite)?;
        let expired = release.expired_since(now());
        if let Some(age) = expired {
            let by = if self.options().accept_stale { "--accept-stale" } else { "the host's apt configuration" };
            tracing::warn!("the mirror of suite {suite} is stale (expired {} ago); accepted by {by}", Age(age));
        }
        let state = IndexState { fetched: now(), release, stale: expired.is_some(), archive: host.archive.clone() };
        self.cache().write_small(&directory.join(STATE), &state)?;
        Ok(state)
    }

    /// The files of `packages`, checked: from the cache, or downloaded.
    ///
    /// # Errors
    /// [`AptError`], [`Error::Offline`], [`Error::Mismatch`], [`Error::DiskFull`], [`Error::Program`], [`Error::Io`].
    pub fn fetch(&self, root: &Root, packages: &[Package]) -> Result<Vec<Object>> {
        let mut missing = Vec::new();
        for package in packages {
            if self.cache().object(&package.sha256)?.is_none() {
                missing.push(package);
            }
        }
        if !missing.is_empty() {
            self.download(root, &missing)?;
        }
        packages
            .iter()
            .map(|package| {
                self.cache().object(&package.sha256)?.ok_or_else(|| Error::Offline { what: package.specification() })
            })
            .collect()
    }

    fn download(&self, root: &Root, packages: &[&Package]) -> Result<()> {
        let names: Vec<_> = packages.iter().map(|package| package.specification()).collect();
        let what = match names.as_slice() {
            [one] => one.clone(),
            [first, ..] => format!("{first} and {} more packages", names.len() - 1),
            [] => return Ok(()),
        };
        if self.options().offline {
            return Err(Error::Offline { what });
        }
        let size = packages.iter().fold(0, |sum: u64, package| sum.saturating_add(package.size));
        self.cache().require_access(&what)?;
        self.cache().require_space(&what, size)?;
        tracing::info!("downloading {what} ({})", human(size));
        let sandbox = Sandbox::make(&self.host()?.user, &what, size)?;
        let scratch = self.cache().scratch()?;
        let place = sandbox.as_ref().map_or_else(|| scratch.path().to_owned(), Sandbox::files);
        let mut attempt = 1;
        loop {
            let mut command = root.command("apt-get");
            command.current_dir(&place).args(["download", "-q"]);
            if let Some(sandbox) = &sandbox {
                sandbox.confine_download(&mut command);
            }
            let output = command.args(&names).output().map_err(|source| cannot_start("apt-get", source))?;
            warn_of_root(&output.stderr);
            if output.status.success() {
                break;
            }
            let stderr = String::from_utf8_lossy(&output.stderr);
            if let Some(error) = self.disk_full(&what, size, Some(&place), &stderr) {
                return Err(error);
            }
            let error = AptError::from_output(&root.suite, &stderr, attempt);
            if !error.is_passing() || attempt == ATTEMPTS {
                return Err(error.into());
            }
            tracing::info!("attempt {attempt} of {ATTEMPTS} at the mirror failed; trying again");
            tracing::debug!("{error}");
            pause(attempt);
            attempt += 1;
        }
        for package in packages {
            let (what, path) = (package.specification(), place.join(package.file_name()));
            // Its owner could still write to a file of the sandbox: what is stored is a copy, hashed while it is made.
            match &sandbox {
                Some(_) => self.cache().add_file(&what, &path, Some(package.sha256))?,
                None => self.cache().adopt(&what, &path, Some(package.sha256))?,
            };
        }
        Ok(())
    }

    /// `place` is where apt wrote to; `None`: the cache.
    fn disk_full(&self, what: &str, needed: u64, place: Option<&Path>, stderr: &str) -> Option<Error> {
        let place = place.unwrap_or(self.cache().root());
        let full = ["No space left on device", "Disk quota exceeded", "don't have enough free space"];
        full.iter().any(|words| stderr.contains(words)).then(|| Error::DiskFull {
            what: what.to_owned(),
            path: place.to_owned(),
            needed,
            free: free_space(place).unwrap_or(0),
        })
    }
}

impl Root {
    /// The suite.
    #[must_use]
    pub fn suite(&self) -> &str {
        &self.suite
    }

    /// How old the indexes are.
    #[must_use]
    pub fn state(&self) -> &IndexState {
        &self.state
    }

    /// A program of apt that sees this root in place of the host's state, and writes English.
    #[must_use]
    pub fn command(&self, tool: &str) -> Command {
        apt_command(&self.directory, tool)
    }

    /// The packages of `arch` (and of no architecture) whose names `keep` selects.
    ///
    /// # Errors
    /// [`AptError::Parse`], [`Error::Command`], [`Error::Program`].
    pub fn packages(&self, arch: Arch, keep: impl FnMut(&str) -> bool) -> Result<Vec<Indexed>> {
        let architecture = format!("Architecture: {}", debian_name(arch));
        let purpose = "asking for the private package indexes";
        let mut command = self.command("apt-get");
        command.args(["indextargets", "--format", "$(FILENAME)", "Created-By: Packages", &architecture]);
        let files = program("apt-get", purpose, &mut command)?;
        let mut command = self.command(APT_HELPER);
        command.arg("cat-file").args(files.lines());
        let text = program(APT_HELPER, "reading a package index", &mut command)?;
        parse_index(&text, keep).map_err(|source| AptError::Parse { suite: self.suite.clone(), source }.into())
    }

    /// `packages` (names, or specifications as `apt-get install` takes them) and everything that they depend on, as if
    /// nothing were installed; without recommended packages; sorted.
    ///
    /// # Errors
    /// [`AptError::Unsatisfiable`], [`AptError::Parse`], [`Error::Program`].
    pub fn closure<T: AsRef<str>>(&self, packages: &[T]) -> Result<Vec<Package>> {
        let mut command = self.command("apt-get");
        command.args(["install", "--print-uris", "-qq", "-y", "--no-install-recommends"]);
        command.args(["-o", "Acquire::ForceHash=SHA256", "--"]);
        command.args(packages.iter().map(AsRef::as_ref));
        let output = command.output().map_err(|source| cannot_start("apt-get", source))?;
        if !output.status.success() {
            let packages: Vec<_> = packages.iter().map(AsRef::as_ref).collect();
            return Err(AptError::Unsatisfiable {
                suite: self.suite.clone(),
                packages: packages.join(", "),
                detail: tail(&output.stderr),
            }
            .into());
        }
        let mut packages = parse_print_uris(&String::from_utf8_lossy(&output.stdout))
            .map_err(|source| AptError::Parse { suite: self.suite.clone(), source })?;
        packages.sort();
        Ok(packages)
    }
}

const APT_HELPER: &str = "/usr/lib/apt/apt-helper";
const CONFIGURATION: &str = "apt.conf";
const STATE: &str = "state.json";

/// An `apt` program on the root in `directory`.
fn apt_command(directory: &Path, tool: &str) -> Command {
    let mut command = Command::new(tool);
    command.env("APT_CONFIG", directory.join(CONFIGURATION)).env("LC_ALL", "C.UTF-8").env_remove("LANGUAGE");
    command
}

/// Waits before a mirror is asked again: 1 s, 2 s, …
fn pause(attempt: u32) {
    thread::sleep(Duration::from_secs(attempt.into()));
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read_state(directory: &Path) -> Option<IndexState> {
    // Without its configuration, apt would look at the host's own state.
    directory.join(CONFIGURATION).exists().then_some(())?;
    serde_json::from_slice(&bpfassay_input::read(&directory.join(STATE), MAX_TEXT).ok()?).ok()
}

fn read_release(directory: &Path, suite: &str) -> Result<ReleaseFile> {
    let lists = directory.join("state/lists");
    for entry in fs::read_dir(&lists).map_err(Error::io("read", &lists))? {
        let path = entry.map_err(Error::io("read", &lists))?.path();
        if path.to_string_lossy().ends_with("Release") {
            let text = bpfassay_input::read_text(&path, MAX_TEXT).map_err(Error::io("read", &path))?;
            if let Some(release) = ReleaseFile::parse(&text) {
                return Ok(release);
            }
        }
    }
    let detail = "apt-get update left no release file with a date".to_owned();
    Err(AptError::Other { suite: suite.to_owned(), detail }.into())
}

fn write_configuration(directory: &Path, suite: &str, architectures: &[&str], host: &Host) -> Result<()> {
    for part in ["etc/apt.conf.d", "etc/preferences.d", "state/lists/partial", "cache/archives/partial"] {
        let path = directory.join(part);
        fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
    }
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(Error::io("write", path))
    };
    write("state/status", "")?;
    write("etc/sources.list", &sources(suite, architectures, host))?;
    write(CONFIGURATION, &configuration(directory, architectures, host)?)
}

/// Makes the configuration in `directory` name this directory: it holds absolute paths, and the cache may have been moved
/// or copied since it was written.
fn follow_move(directory: &Path) -> Result<()> {
    let path = directory.join(CONFIGURATION);
    let text = bpfassay_input::read_text(&path, MAX_TEXT).map_err(Error::io("read", &path))?;
    match moved(&text, &quotable(directory)?) {
        Some(text) => fs::write(&path, text).map_err(Error::io("write", path)),
        None => Ok(()),
    }
}

/// The text of a configuration with `root` in place of the directory that it was written for; `None` where that is `root`.
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

/// `path` as it can stand between the quotes of apt's configuration.
fn quotable(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) if !text.contains(['"', '\n', '\\']) => Ok(text.to_owned()),
        _ => Err(AptError::Quote(path.display().to_string()).into()),
    }
}

fn sources(suite: &str, architectures: &[&str], host: &Host) -> String {
    let keyring = host.keyring.as_ref().map(|path| format!(" signed-by={path}")).unwrap_or_default();
    format!("deb [arch={}{keyring}] {} {suite} main\n", architectures.join(","), host.archive)
}

fn configuration(directory: &Path, architectures: &[&str], host: &Host) -> Result<String> {
    let root = quotable(directory)?;
    let mut lines = host.settings.clone();
    let list: Vec<_> = architectures.iter().map(|name| format!("\"{name}\";")).collect();
    lines.extend([
        format!("APT::Architecture \"{}\";", architectures.first().unwrap_or(&"amd64")),
        format!("APT::Architectures {{ {} }};", list.join(" ")),
        // To another user, a cache below /root is closed. What root downloads, it downloads elsewhere, as another user.
        "APT::Sandbox::User \"root\";".to_owned(),
        "Acquire::Languages \"none\";".to_owned(),
        // Indexes stay compressed and are not kept a second and third time in apt's own form: 20 MB and not 140.
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

/// The name of a root's directory and lock.
fn root_name(suite: &str, architectures: &[Arch]) -> String {
    architectures.iter().fold(suite.to_owned(), |name, &arch| name + "-" + debian_name(arch))
}

impl IndexState {
    /// The same as long as the indexes are: a key for what is found in them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_parts([self.release.codename.clone(), self.release.date.to_string(), self.fetched.to_string()])
    }
}

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Host {
        Host {
            archive: "http://m.example/debian/".into(),
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
        let open = Host { keyring: None, ..host() };
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
