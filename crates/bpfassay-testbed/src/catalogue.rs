// SPDX-License-Identifier: MIT OR Apache-2.0
//! The catalogue: names of kernels, and where they come from.
//!
//! It is read from `kernels/*.toml`, which Nix reads, too. Studies and the command line use its
//! names. A series (`6.12`) means the build in the lock, or the newest one. A third part
//! (`6.12.94`) names one build of the series.

mod release_pattern;

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::Arch;
use serde::Deserialize;

pub use self::release_pattern::ReleasePattern;
use crate::{error::catalogue_error::CatalogueError, testbed_lock::TestbedLock};

/// The bundled catalogue: name of the source file, and text.
const BUNDLED: (&str, &str) = ("kernels/debian.toml", include_str!("../debian.toml"));

/// All kernels that can be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    flavours: BTreeMap<Arch, String>,
    nixpkgs: BTreeMap<String, String>,
    entries: Vec<CatalogueEntry>,
    lock: TestbedLock,
}

/// One table of the catalogue: a series of kernels in a suite.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueEntry {
    /// The name of the series in studies.
    pub name: String,
    /// The Debian suite that has it.
    pub suite: String,
    /// The release (`uname -r`). `@` stands for the flavour.
    pub release: ReleasePattern,
    /// The packages to start from. `@` stands for the release.
    pub packages: Vec<String>,
    /// The architectures that it exists for.
    pub architectures: Vec<Arch>,
}

/// A known kernel that was requested by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSelection<'a> {
    /// The name as the user wrote it.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// The tables to search, first choice first.
    pub entries: Vec<&'a CatalogueEntry>,
    /// The upstream version, if the name is the name of a build. `None` for a series.
    pub version: Option<String>,
    /// Debian's name of the kernel flavour for the architecture.
    pub flavour: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogueText {
    format: u32,
    #[serde(default)]
    flavours: BTreeMap<Arch, String>,
    #[serde(default)]
    nixpkgs: BTreeMap<String, String>,
    kernel: Vec<CatalogueEntry>,
}

/// Version of the catalogue's format.
const FORMAT: u32 = 1;

impl Catalogue {
    /// Returns the bundled catalogue with the bundled lock.
    ///
    /// # Errors
    /// None in a released program: a test checks both texts.
    pub fn bundled() -> Result<Self, CatalogueError> {
        Ok(Self { lock: TestbedLock::bundled()?.clone(), ..Self::parse(BUNDLED.0, BUNDLED.1)? })
    }

    /// Parses TOML text, without a lock. `origin` names the text in messages.
    ///
    /// # Errors
    /// [`CatalogueError::Form`] if the text is not a catalogue of this format.
    pub fn parse(origin: &str, text: &str) -> Result<Self, CatalogueError> {
        Self::parse_beside(origin, text, &BTreeMap::new())
    }

    /// Adds a user's catalogue: TOML `text` of the same form, in which flavours can be left out.
    ///
    /// # Errors
    /// [`CatalogueError::Form`] if the text is not a catalogue of this format, or if it changes the
    /// meaning of a name or flavour of this one.
    pub fn with(mut self, origin: &str, text: &str) -> Result<Self, CatalogueError> {
        let refuse = |problem: String| CatalogueError::Form { origin: origin.to_owned(), problem };
        let other = Self::parse_beside(origin, text, &self.flavours)?;
        for entry in &other.entries {
            if let Some(arch) = entry.architectures.iter().find(|arch| self.find(**arch, &entry.name).is_ok()) {
                let problem =
                    format!("kernel `{}` for {arch} is in {} already: give it another name", entry.name, BUNDLED.0);
                return Err(refuse(problem));
            }
        }
        for (arch, flavour) in other.flavours {
            match self.flavours.get(&arch) {
                Some(known) if *known != flavour => {
                    let problem =
                        format!("the flavour of {arch} is `{known}` in {}, not `{flavour}`: leave it out", BUNDLED.0);
                    return Err(refuse(problem));
                }
                _ => drop(self.flavours.insert(arch, flavour)),
            }
        }
        if let Some(name) = other.nixpkgs.keys().next() {
            return Err(refuse(format!("nixpkgs `{name}`: the flake reads only {}: leave it out", BUNDLED.0)));
        }
        self.entries.extend(other.entries);
        Ok(self)
    }

    fn parse_beside(origin: &str, text: &str, known: &BTreeMap<Arch, String>) -> Result<Self, CatalogueError> {
        let refuse = |problem: String| CatalogueError::Form { origin: origin.to_owned(), problem };
        let text: CatalogueText = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
        if text.format != FORMAT {
            return Err(refuse(format!("has format {}, this program reads {FORMAT}", text.format)));
        }
        for entry in &text.kernel {
            let flavours = text.flavours.keys().chain(known.keys()).copied().collect();
            entry.check(&flavours).map_err(|problem| refuse(format!("kernel `{}`: {problem}", entry.name)))?;
        }
        for (name, attribute) in &text.nixpkgs {
            check_nixpkgs(name, attribute).map_err(|problem| refuse(format!("nixpkgs `{name}`: {problem}")))?;
        }
        Ok(Self { flavours: text.flavours, nixpkgs: text.nixpkgs, entries: text.kernel, lock: TestbedLock::default() })
    }

    /// Replaces the lock, which maps names to builds.
    #[must_use]
    pub fn with_lock(self, lock: TestbedLock) -> Self {
        Self { lock, ..self }
    }

    /// Returns the lock, which maps names to builds.
    #[must_use]
    pub fn lock(&self) -> &TestbedLock {
        &self.lock
    }

    /// Returns the tables in the order of the text.
    #[must_use]
    pub fn entries(&self) -> &[CatalogueEntry] {
        &self.entries
    }

    /// Returns Debian's name of the kernel flavour for `arch`.
    #[must_use]
    pub fn flavour(&self, arch: Arch) -> Option<&str> {
        self.flavours.get(&arch).map(String::as_str)
    }

    /// Returns the attribute of nixpkgs that the flake builds the kernel `name` from.
    #[must_use]
    pub fn nixpkgs(&self, name: &str) -> Option<&str> {
        self.nixpkgs.get(name).map(String::as_str)
    }

    /// Returns the names known for `arch`, oldest series first.
    #[must_use]
    pub fn names(&self, arch: Arch) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for entry in self.entries.iter().filter(|entry| entry.architectures.contains(&arch)) {
            if !names.contains(&entry.name.as_str()) {
                names.push(&entry.name);
            }
        }
        names
    }

    /// Finds the kernel `name`: a series, or a build of it. The package index tells whether the
    /// build exists.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownKernel`] if the name is not known for this architecture.
    pub fn find(&self, arch: Arch, name: &str) -> Result<KernelSelection<'_>, CatalogueError> {
        let entries_of = |series: &str| -> Vec<&CatalogueEntry> {
            self.entries.iter().filter(|entry| entry.name == series && entry.architectures.contains(&arch)).collect()
        };
        let (entries, version) = match (entries_of(name), series_of(name)) {
            (entries, _) if !entries.is_empty() => (entries, None),
            (_, Some(series)) => (entries_of(series), Some(name.to_owned())),
            (entries, None) => (entries, None),
        };
        match self.flavour(arch) {
            Some(flavour) if !entries.is_empty() => {
                Ok(KernelSelection { name: name.to_owned(), arch, entries, version, flavour })
            }
            _ => Err(self.unknown(arch, name)),
        }
    }

    fn unknown(&self, arch: Arch, name: &str) -> CatalogueError {
        let known = self.names(arch);
        let in_tables = self.entries.iter().any(|entry| entry.name == name);
        let hint = match self.nixpkgs(name).filter(|_| !in_tables) {
            Some(attribute) => {
                format!(" among Debian's packages; the flake makes it from {attribute} of nixpkgs (--manifest)")
            }
            None => nearest(name, &known).map(|nearest| format!(", did you mean `{nearest}`?")).unwrap_or_default(),
        };
        CatalogueError::UnknownKernel {
            name: name.chars().take(64).collect(),
            arch,
            hint,
            known: known.into_iter().map(str::to_owned).collect(),
        }
    }
}

impl CatalogueEntry {
    fn check(&self, flavours: &BTreeSet<Arch>) -> Result<(), String> {
        if !plain(&self.name) {
            return Err("a name has letters, digits, `.` and `-` only".to_owned());
        }
        if !plain(&self.suite) {
            return Err(format!("`{}` is no name of a suite", self.suite));
        }
        if self.packages.is_empty() {
            return Err("packages is empty".to_owned());
        }
        if let Some(package) =
            self.packages.iter().find(|name| name.matches('@').count() != 1 || !plain(&name.replace('@', "")))
        {
            return Err(format!("package `{package}` must be a package name with one `@` for the release"));
        }
        if self.architectures.is_empty() {
            return Err("architectures is empty".to_owned());
        }
        match self.architectures.iter().find(|arch| !flavours.contains(arch)) {
            Some(arch) => Err(format!("no flavour is given for {arch}")),
            None => Ok(()),
        }
    }
}

fn plain(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '~'))
}

fn check_nixpkgs(name: &str, attribute: &str) -> Result<(), String> {
    if !plain(name) {
        return Err("a name has letters, digits, `.` and `-` only".to_owned());
    }
    let rest = attribute.strip_prefix("linux_").unwrap_or_default();
    if rest.is_empty() || !rest.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        return Err(format!("`{attribute}` is no attribute of a kernel, such as `linux_6_12`"));
    }
    Ok(())
}

/// Returns the series of a build's name: `6.12` for `6.12.94`, `7.3-rc` for `7.3-rc7`.
fn series_of(name: &str) -> Option<&str> {
    let numeric = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (series, numbers, last) = match name.split_once("-rc") {
        Some((numbers, last)) => (&name[..name.len() - last.len()], numbers, last),
        None => name.rsplit_once('.').map(|(series, last)| (series, series, last))?,
    };
    let (major, minor) = numbers.split_once('.')?;
    [major, minor, last].into_iter().all(numeric).then_some(series)
}

/// Returns the most similar known name, if the similarity is above one half. The last entry counts.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name: String = name.chars().take(64).collect();
    known
        .iter()
        .map(|&candidate| (strsim::normalized_damerau_levenshtein(&name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests;
