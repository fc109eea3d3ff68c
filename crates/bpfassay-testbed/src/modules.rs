// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel modules that a guest needs: which ones a kernel has as modules, what they depend on, and
//! in which order they must be inserted. They are stored decompressed in one archive per kernel, so
//! that a guest needs neither modprobe nor a kernel that decompresses.
//!
//! A module tree is what `make modules_install` or a Debian package puts into
//! `lib/modules/RELEASE`: `kernel/**.ko` (or `.ko.xz`, `.ko.zst`, `.ko.gz`) and `modules.builtin`;
//! or the tree that a kernel was built in ([`Layout`]). Dependencies are read from the modules
//! themselves, because Debian's packages have no `modules.dep`. A tree may come from anywhere:
//! nothing in it is trusted.

#![allow(
    clippy::disallowed_methods,
    reason = "reads a tree of modules that the user names, or that was taken out of a package without links"
)]

pub(crate) mod built;
pub mod decompress;
pub mod enum_values;
mod installed;
pub mod modinfo;
pub mod signature;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
};

use bpfassay_protocol::{
    job::{FileSystem, NfsVersion},
    layout,
};
use serde::{Deserialize, Serialize};

use self::installed::Installed;
use crate::initramfs::{Archive, ArchiveError, Node};

pub use decompress::DecompressError;
pub use modinfo::{ModInfo, ModInfoError};

/// Modules every guest needs to talk to the host.
const CONSOLE: [&str; 2] = ["virtio_pci", "virtio_console"];

/// The network card of a guest that is one of several nodes.
const NETWORK: &str = "virtio_net";

/// Modules that are included where a kernel has them, for callers of [`ModuleSet::load_order_of`].
const EXTRA: [&str; 3] = ["virtio_mmio", "qemu_fw_cfg", "pvpanic_pci"];

/// Modules for the NFS server and for the two kinds of client.
const SERVER: &str = "nfsd";
const CLIENT_V3: &str = "nfsv3";
const CLIENT_V4: &str = "nfsv4";

/// Everything that is looked for in a kernel's modules.
pub(crate) fn wanted() -> impl Iterator<Item = &'static str> {
    CONSOLE.into_iter().chain([SERVER, CLIENT_V3, CLIENT_V4, NETWORK]).chain(EXTRA)
}

/// Longest chain of dependencies that is followed; real chains have about eight.
const MAX_DEPTH: usize = 64;

/// Largest `modules.builtin` that is read, in bytes; real ones have 100 KB.
const MAX_BUILTIN: u64 = 64 << 20;

/// Largest module, decompressed, in bytes.
pub const MAX_MODULE: u64 = 256 << 20;

/// What a module tree looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Layout {
    /// `lib/modules/RELEASE`: `kernel/**.ko` (plain or compressed), `modules.builtin`. There need
    /// be no `modules.dep`.
    #[default]
    Installed,
    /// The tree that the kernel was built in: `modules.order` names its modules, and
    /// `modules.builtin` what is built in.
    Built,
}

/// Why a module tree cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// A file or directory of the tree cannot be read.
    #[error("cannot read {} of the kernel's modules: check that it exists and may be read", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Without `modules.builtin`, a missing module cannot be distinguished from one that is built
    /// in.
    #[error("{} has no file modules.builtin: pass the directory lib/modules/RELEASE that `make modules_install` wrote", tree.display())]
    NoBuiltin {
        /// The module tree.
        tree: PathBuf,
    },
    /// A module of a build tree is not there.
    #[error("{} is in modules.order of the build tree, and is not there: run `make modules`", path.display())]
    NotBuilt {
        /// The module.
        path: PathBuf,
    },
    /// `modules.order` names something outside of the build tree.
    #[error("modules.order of the build tree {} names `{}`, which is no path in it: run `make modules` again", tree.display(), line.escape_debug())]
    Outside {
        /// The build tree.
        tree: PathBuf,
        /// The line.
        line: String,
    },
    /// Modules with everything that a debugger wants of them.
    #[error(
        "the modules of {} that guests need have {megabytes} MB, most of it debug information, and guests have no room for it: \
         run `make modules_install INSTALL_MOD_PATH=DIR INSTALL_MOD_STRIP=1`, and give DIR with --modules",
        tree.display()
    )]
    TooLarge {
        /// The build tree.
        tree: PathBuf,
        /// Size of what guests need of it, in 10⁶ bytes.
        megabytes: u64,
    },
    /// A module is there in a form that is not read.
    #[error("cannot use the module {}: {why}", path.display())]
    Form {
        /// The module.
        path: PathBuf,
        /// What it is, and what to do.
        why: String,
    },
    /// A module cannot be decompressed.
    #[error("cannot decompress the module {}: install or download the modules again", path.display())]
    Decompress {
        /// The module.
        path: PathBuf,
        /// Why.
        #[source]
        source: DecompressError,
    },
    /// A module is not a kernel module.
    #[error("{} is not a usable kernel module: install or download the modules again", path.display())]
    ModInfo {
        /// The module.
        path: PathBuf,
        /// Why.
        #[source]
        source: ModInfoError,
    },
    /// A module depends on one that is not there.
    #[error(
        "module `{module}` of this kernel needs `{dependency}`, which is neither in the module tree nor built in: the tree is incomplete, make or download it again"
    )]
    MissingDependency {
        /// Who needs it.
        module: String,
        /// Who is missing.
        dependency: String,
    },
    /// Modules depend on each other in a circle, or in a chain that is too long.
    #[error(
        "module `{module}` of this kernel depends on itself, or through more than {MAX_DEPTH} others: the module tree is damaged"
    )]
    Circle {
        /// One of them.
        module: String,
    },
    /// What the study needs is not in this kernel.
    #[error(
        "this kernel has no `{module}`, neither as a module nor built in, and {purpose} needs it: choose another kernel or enable it in its configuration"
    )]
    Missing {
        /// The module.
        module: String,
        /// What needs it.
        purpose: &'static str,
    },
    /// The archive of modules cannot be made.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Whether the signatures of modules are kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signatures {
    /// Modules are taken as they are.
    #[default]
    Kept,
    /// They are cut off ([`signature::cut`]), and so the tables of enum values are hidden
    /// ([`enum_values::hide`]), so that a guest spends no time on either.
    Cut,
}

/// A module in a [`ModuleSet`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// Modules to insert before it; those built in are left out.
    pub before: Vec<String>,
    /// Modules to insert after it (`softdep … post:`).
    pub after: Vec<String>,
}

/// The modules of one kernel that guests may need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleSet {
    /// By name, with `_` for `-`.
    pub modules: BTreeMap<String, Module>,
    /// Wanted ones that this kernel has built in.
    pub builtin: BTreeSet<String>,
    /// Wanted modules that this kernel lacks; an error only where one is needed
    /// ([`ModuleSet::load_order`]).
    pub absent: BTreeSet<String>,
    /// Whether there is no module tree: everything must be built in, which cannot be checked.
    pub monolithic: bool,
    /// Whether the modules' signatures were kept.
    #[serde(default)]
    pub signatures: Signatures,
}

impl ModuleSet {
    /// For a kernel without a module tree: nothing to insert, and the guest finds out what is
    /// missing.
    #[must_use]
    pub fn monolithic() -> Self {
        Self { monolithic: true, ..Self::default() }
    }

    /// Reads what guests may need from the module tree at `tree`, and the archive that puts it into
    /// [`layout::MODULES`].
    ///
    /// # Errors
    /// [`ModulesError`] for trees that cannot be read or are incomplete. Wanted modules that do not exist are recorded
    /// in [`ModuleSet::absent`], not an error here.
    pub fn read(tree: &Path, layout: Layout, signatures: Signatures) -> Result<(Self, Archive), ModulesError> {
        let found = match layout {
            Layout::Installed => Installed::find(tree)?,
            Layout::Built => {
                let named = built::modules(tree)?.into_iter().map(|(name, path)| (name, tree.join(path)));
                Installed { files: named.collect(), ..Installed::default() }
            }
        };
        let builtin = installed::read_builtin(tree)?;
        let set = Self { signatures, ..Self::default() };
        let mut reader =
            Reader { found: &found, builtin: &builtin, set, archive: Archive::default(), late: BTreeMap::new() };
        for name in wanted() {
            reader.want(name)?;
        }
        if layout == Layout::Built && reader.archive.size() > built::MAX_SIZE {
            return Err(ModulesError::TooLarge { tree: tree.to_owned(), megabytes: reader.archive.size() / 1_000_000 });
        }
        Ok((reader.set, reader.archive))
    }

    /// What a guest inserts for this file system under test, as paths in the guest, dependencies
    /// first: the value of
    /// [`bpfassay_protocol::job::Job::modules`]. `is_node`: it is one of several nodes, with a network card.
    ///
    /// # Errors
    /// [`ModulesError::Missing`] if the kernel lacks something that is needed.
    pub fn load_order(&self, file_system: &FileSystem, is_node: bool) -> Result<Vec<String>, ModulesError> {
        let mut wanted: Vec<(&str, &'static str)> =
            CONSOLE.iter().map(|&name| (name, "the connection to the host")).collect();
        if let FileSystem::Nfs(nfs) = file_system {
            wanted.push((SERVER, "the NFS server"));
            wanted.push(match nfs.version {
                NfsVersion::V3 => (CLIENT_V3, "an NFSv3 mount"),
                NfsVersion::V41 | NfsVersion::V42 => (CLIENT_V4, "an NFSv4 mount"),
            });
        }
        if is_node {
            wanted.push((NETWORK, "the network of several nodes"));
        }
        // A set from before several nodes were has not looked for the network card.
        let is_absent = |name: &str| {
            let is_there = self.monolithic || self.modules.contains_key(name) || self.builtin.contains(name);
            self.absent.contains(name) || name == NETWORK && !is_there
        };
        if let Some((module, purpose)) = wanted.iter().find(|(name, _)| is_absent(name)) {
            return Err(ModulesError::Missing { module: (*module).to_owned(), purpose });
        }
        Ok(self.load_order_of(&wanted.into_iter().map(|(name, _)| name).collect::<Vec<_>>()))
    }

    /// The order of insertion for these modules, as paths in the guest, dependencies first. Names
    /// that are built in or unknown contribute nothing.
    #[must_use]
    pub fn load_order_of(&self, names: &[&str]) -> Vec<String> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.visit(name, &mut seen, &mut order);
        }
        order.into_iter().map(|name| format!("{}/{name}.ko", layout::MODULES)).collect()
    }

    /// `seen` ends the recursion for circles, which a set from a damaged cache file could hold.
    fn visit<'a>(&'a self, name: &'a str, seen: &mut BTreeSet<&'a str>, order: &mut Vec<&'a str>) {
        let Some(module) = self.modules.get(name) else { return };
        if !seen.insert(name) {
            return;
        }
        for dependency in &module.before {
            self.visit(dependency, seen, order);
        }
        order.push(name);
        for dependency in &module.after {
            self.visit(dependency, seen, order);
        }
    }
}

/// Why a module is looked for.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// By a guest, or by `softdep`: fine if it does not exist.
    IfPresent,
    /// By a module that cannot work without it.
    By(&'a str),
}

struct Reader<'a> {
    found: &'a Installed,
    builtin: &'a BTreeSet<String>,
    set: ModuleSet,
    archive: Archive,
    /// By module, those that are to be inserted before another and cannot work without this one:
    /// they follow it.
    late: BTreeMap<String, Vec<String>>,
}

impl Reader<'_> {
    fn want(&mut self, name: &str) -> Result<(), ModulesError> {
        if self.builtin.contains(name) {
            self.set.builtin.insert(name.to_owned());
        } else if !self.found.files.contains_key(name) {
            self.found.check_form(name)?;
            self.set.absent.insert(name.to_owned());
        }
        self.take(name, Wanted::IfPresent, &mut Vec::new()).map(|_| ())
    }

    /// Takes `name` and what it depends on into the set. Says whether it is a module to be
    /// inserted.
    fn take(&mut self, name: &str, wanted: Wanted<'_>, path: &mut Vec<String>) -> Result<bool, ModulesError> {
        if self.builtin.contains(name) {
            return Ok(false);
        }
        if path.iter().any(|earlier| earlier == name) || path.len() >= MAX_DEPTH {
            return match wanted {
                Wanted::By(module) => Err(ModulesError::Circle { module: module.to_owned() }),
                Wanted::IfPresent => Ok(false),
            };
        }
        if self.set.modules.contains_key(name) {
            return Ok(true);
        }
        let Some(file) = self.found.files.get(name) else {
            return match wanted {
                Wanted::By(module) => {
                    self.found.check_form(name)?;
                    Err(ModulesError::MissingDependency { module: module.to_owned(), dependency: name.to_owned() })
                }
                Wanted::IfPresent => Ok(false),
            };
        };
        let (bytes, info) = self.read(file)?;
        path.push(name.to_owned());
        let mut before = Vec::new();
        for dependency in info.depends {
            if self.take(&dependency, Wanted::By(name), path)? {
                before.push(dependency);
            }
        }
        for dependency in info.soft_before {
            // crypto_algapi wants cryptomgr before it, which is made of it.
            if let Some(needed) = self.first_needed(&dependency, path) {
                self.late.entry(needed).or_default().push(dependency);
                continue;
            }
            if self.take(&dependency, Wanted::IfPresent, path)? {
                before.push(dependency);
            }
        }
        path.pop();
        let place = format!("{}/{name}.ko", layout::MODULES);
        self.archive.add(&place, Node::File { executable: false, content: bytes.into() })?;
        self.set.modules.insert(name.to_owned(), Module { before, after: Vec::new() });
        // Only now: what is to follow a module usually depends on it.
        let mut after = Vec::new();
        let late = self.late.remove(name).unwrap_or_default();
        for dependency in info.soft_after.into_iter().chain(late) {
            if self.take(&dependency, Wanted::IfPresent, path)? {
                after.push(dependency);
            }
        }
        if let Some(module) = self.set.modules.get_mut(name) {
            module.after = after;
        }
        Ok(true)
    }

    /// The outermost module of `path` that `name` cannot work without; none where it is in the path
    /// itself. What cannot be read is reported where it is taken.
    fn first_needed(&self, name: &str, path: &[String]) -> Option<String> {
        if path.iter().any(|earlier| earlier == name) {
            return None;
        }
        let (mut seen, mut left) = (BTreeSet::from([name.to_owned()]), vec![name.to_owned()]);
        let mut first = None;
        while let Some(next) = left.pop() {
            let Some(file) = self.found.files.get(&next).filter(|_| !self.builtin.contains(&next)) else { continue };
            let Ok((_, info)) = self.read(file) else { continue };
            for dependency in info.depends {
                match path.iter().position(|earlier| *earlier == dependency) {
                    Some(place) => first = Some(first.map_or(place, |known: usize| known.min(place))),
                    None if seen.insert(dependency.clone()) => left.push(dependency),
                    None => {}
                }
            }
        }
        first.and_then(|place| path.get(place)).cloned()
    }

    /// The content of a module as guests get it, and what it says about itself.
    fn read(&self, file: &Path) -> Result<(Vec<u8>, ModInfo), ModulesError> {
        let bytes = content(file, self.set.signatures)?;
        let info = ModInfo::parse(&bytes).map_err(|source| ModulesError::ModInfo { path: file.to_owned(), source })?;
        Ok((bytes, info))
    }
}

/// The content of the module `file` as guests get it.
fn content(file: &Path, signatures: Signatures) -> Result<Vec<u8>, ModulesError> {
    if !file.exists() {
        return Err(ModulesError::NotBuilt { path: file.to_owned() });
    }
    let mut bytes = decompress::module(file, MAX_MODULE)?;
    if signatures == Signatures::Cut {
        bytes.truncate(signature::cut(&bytes).len());
        enum_values::hide(&mut bytes);
    }
    Ok(bytes)
}

/// The names of the modules in the installed tree at `tree`, with `_` for `-`.
///
/// # Errors
/// [`ModulesError::Read`] where it cannot be read.
pub(crate) fn names(tree: &Path) -> Result<BTreeSet<String>, ModulesError> {
    Ok(Installed::find(tree)?.files.into_keys().collect())
}

#[cfg(test)]
pub(crate) mod tests;
