// SPDX-License-Identifier: MIT OR Apache-2.0
//! The catalogue: names of kernels, and where they come from.
//!
//! It is `kernels/*.toml`, which Nix reads too. Names are what studies and the command line use: a
//! series (`6.12`) means the build that the lock has, or the newest; a third part (`6.12.94`) one
//! build of it.

pub(crate) mod build_name;
pub(crate) mod error;
mod pattern;

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::Arch;
use serde::Deserialize;

pub use self::{error::CatalogueError, pattern::Pattern};
use crate::testbed_lock::TestbedLock;

/// The catalogue that comes with the program: its source's name and text.
const BUNDLED: (&str, &str) = ("kernels/debian.toml", include_str!("../debian.toml"));

/// Every kernel that can be named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    flavours: BTreeMap<Arch, String>,
    nixpkgs: BTreeMap<String, String>,
    entries: Vec<Entry>,
    lock: TestbedLock,
}

/// One table of the catalogue: a series of kernels in a suite.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is called.
    pub name: String,
    /// The Debian suite that holds it.
    pub suite: String,
    /// The release (`uname -r`); `@` stands for the flavour.
    pub release: Pattern,
    /// The packages to begin with; `@` stands for the release.
    pub packages: Vec<String>,
    /// Where it exists.
    pub architectures: Vec<Arch>,
}

/// A kernel that was asked for by a known name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection<'a> {
    /// The name as given.
    pub name: String,
    /// The architecture.
    pub arch: Arch,
    /// Where to look, first choice first.
    pub entries: Vec<&'a Entry>,
    /// The upstream version asked for, where it is one build and not the newest.
    pub version: Option<String>,
    /// Debian's name of the architecture's kernel flavour.
    pub flavour: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    format: u32,
    #[serde(default)]
    flavours: BTreeMap<Arch, String>,
    #[serde(default)]
    nixpkgs: BTreeMap<String, String>,
    kernel: Vec<Entry>,
}

/// Version of the catalogue's form.
const FORMAT: u32 = 1;

impl Catalogue {
    /// The one that comes with the program, with the lock that does.
    ///
    /// # Errors
    /// None in a released program: its text is checked by a test.
    pub fn bundled() -> Result<Self, CatalogueError> {
        Ok(Self { lock: TestbedLock::bundled()?, ..Self::parse(BUNDLED.0, BUNDLED.1)? })
    }

    /// From TOML text, without a lock; `origin` names it in messages.
    ///
    /// # Errors
    /// [`CatalogueError::Form`] for a text that is no catalogue of this format.
    pub fn parse(origin: &str, text: &str) -> Result<Self, CatalogueError> {
        Self::parse_beside(origin, text, &BTreeMap::new())
    }

    /// The same catalogue with that in `text`, a user's, beside it: TOML of the same form, in which
    /// flavours may be left out.
    ///
    /// # Errors
    /// [`CatalogueError::Form`] for a text that is no catalogue of this format, or has a name or a flavour that this one has with another meaning.
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
        let text: Text = toml::from_str(text).map_err(|error| refuse(error.to_string()))?;
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

    /// The same, in which names mean the builds of `lock`.
    #[must_use]
    pub fn with_lock(self, lock: TestbedLock) -> Self {
        Self { lock, ..self }
    }

    /// Which builds names mean.
    #[must_use]
    pub fn lock(&self) -> &TestbedLock {
        &self.lock
    }

    /// The tables, as they stand.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Debian's name of the kernel flavour of `arch`.
    #[must_use]
    pub fn flavour(&self, arch: Arch) -> Option<&str> {
        self.flavours.get(&arch).map(String::as_str)
    }

    /// The attribute of nixpkgs from which the flake makes the kernel `name`.
    #[must_use]
    pub fn nixpkgs(&self, name: &str) -> Option<&str> {
        self.nixpkgs.get(name).map(String::as_str)
    }

    /// The names known for `arch`, oldest series first.
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

    /// The kernel called `name`: a series, or one build of it. Whether the build exists is in the
    /// package index.
    ///
    /// # Errors
    /// [`CatalogueError::UnknownKernel`] for a name that is not in it for this architecture.
    pub fn find(&self, arch: Arch, name: &str) -> Result<Selection<'_>, CatalogueError> {
        let entries_of = |series: &str| -> Vec<&Entry> {
            self.entries.iter().filter(|entry| entry.name == series && entry.architectures.contains(&arch)).collect()
        };
        let (entries, version) = match (entries_of(name), series_of(name)) {
            (entries, _) if !entries.is_empty() => (entries, None),
            (_, Some(series)) => (entries_of(series), Some(name.to_owned())),
            (entries, None) => (entries, None),
        };
        match self.flavour(arch) {
            Some(flavour) if !entries.is_empty() => {
                Ok(Selection { name: name.to_owned(), arch, entries, version, flavour })
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

impl Entry {
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

/// The series of the name of a build: `6.12` of `6.12.94`, `7.3-rc` of `7.3-rc7`.
fn series_of(name: &str) -> Option<&str> {
    let numeric = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let (series, numbers, last) = match name.split_once("-rc") {
        Some((numbers, last)) => (&name[..name.len() - last.len()], numbers, last),
        None => name.rsplit_once('.').map(|(series, last)| (series, series, last))?,
    };
    let (major, minor) = numbers.split_once('.')?;
    [major, minor, last].into_iter().all(numeric).then_some(series)
}

/// The name nearest to `name`, the last of several equally near, if one shares more than half of
/// it.
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
