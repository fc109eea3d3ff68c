// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel modules that a guest needs: which of them a kernel has as modules, what they depend on,
//! and the order of their insertion. They are stored decompressed in one archive per kernel. A
//! guest therefore needs neither modprobe nor a kernel that decompresses modules.
//!
//! A module tree has one of two forms ([`ModuleLayout`]):
//!
//! - `lib/modules/RELEASE` as `make modules_install` or a Debian package fills it: `kernel/**.ko`
//!   (or `.ko.xz`, `.ko.zst`, `.ko.gz`) and `modules.builtin`.
//! - The tree that a kernel was built in.
//!
//! Dependencies are read from the modules, because Debian's packages have no `modules.dep`. A tree
//! is untrusted, because it can come from anywhere.

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
use crate::initramfs::{Archive, ArchiveError, NewcNode};

pub use decompress::DecompressError;
pub use modinfo::{ModInfo, ModInfoError};

/// Modules that every guest needs to talk to the host.
const CONSOLE: [&str; 2] = ["virtio_pci", "virtio_console"];

/// The network card of a guest that is one of several nodes.
const NETWORK: &str = "virtio_net";

/// Modules to include if the kernel has them, for callers of [`ModuleSet::load_order_of`].
const EXTRA: [&str; 3] = ["virtio_mmio", "qemu_fw_cfg", "pvpanic_pci"];

/// Modules for the NFS server and for the two kinds of client.
const SERVER: &str = "nfsd";
const CLIENT_V3: &str = "nfsv3";
const CLIENT_V4: &str = "nfsv4";

/// Returns the names of all modules to look for in a kernel: the modules of guests, then
/// `of_tools`.
pub(crate) fn wanted(of_tools: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    let of_guests = CONSOLE.into_iter().chain([SERVER, CLIENT_V3, CLIENT_V4, NETWORK]).chain(EXTRA);
    of_guests.chain(of_tools.iter().map(String::as_str))
}

/// Longest chain of dependencies that is followed. Real chains have about eight modules.
const MAX_DEPTH: usize = 64;

/// Largest `modules.builtin` that is read, in bytes. Real files have 100 KB.
const MAX_BUILTIN: u64 = 64 << 20;

/// Largest size of a decompressed module, in bytes.
pub const MAX_MODULE: u64 = 256 << 20;

/// The form of a module tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ModuleLayout {
    /// `lib/modules/RELEASE`: `kernel/**.ko` (plain or compressed) and `modules.builtin`.
    /// `modules.dep` is not needed.
    #[default]
    Installed,
    /// The tree that the kernel was built in. `modules.order` names the modules, `modules.builtin`
    /// names those built in.
    Built,
}

/// The reason why a module tree cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModulesError {
    /// A file or directory of the tree cannot be read.
    #[error("cannot read {} of the kernel's modules: check that it exists and may be read", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The tree has no `modules.builtin`. A missing module then cannot be distinguished from one
    /// that is built in.
    #[error("{} has no file modules.builtin: pass the directory lib/modules/RELEASE that `make modules_install` wrote", tree.display())]
    NoBuiltin {
        /// The module tree.
        tree: PathBuf,
    },
    /// `modules.order` names a module that does not exist in the build tree.
    #[error("{} is in modules.order of the build tree, and is not there: run `make modules`", path.display())]
    NotBuilt {
        /// The module.
        path: PathBuf,
    },
    /// `modules.order` names a path outside of the build tree.
    #[error("modules.order of the build tree {} names `{}`, which is no path in it: run `make modules` again", tree.display(), line.escape_debug())]
    Outside {
        /// The build tree.
        tree: PathBuf,
        /// The line of `modules.order`.
        line: String,
    },
    /// The modules contain too much debug information for a guest.
    #[error(
        "the modules of {} that guests need have {megabytes} MB, most of it debug information, and guests have no room for it: \
         run `make modules_install INSTALL_MOD_PATH=DIR INSTALL_MOD_STRIP=1`, and give DIR with --modules",
        tree.display()
    )]
    TooLarge {
        /// The build tree.
        tree: PathBuf,
        /// Size of the modules that guests need, in 10⁶ bytes.
        megabytes: u64,
    },
    /// The module exists, but in a form that cannot be read.
    #[error("cannot use the module {}: {why}", path.display())]
    Form {
        /// The module.
        path: PathBuf,
        /// The form, and what to do about it.
        why: String,
    },
    /// A module cannot be decompressed.
    #[error("cannot decompress the module {}: install or download the modules again", path.display())]
    Decompress {
        /// The module.
        path: PathBuf,
        /// The cause.
        #[source]
        source: DecompressError,
    },
    /// A file is not a usable kernel module.
    #[error("{} is not a usable kernel module: install or download the modules again", path.display())]
    ModInfo {
        /// The module.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ModInfoError,
    },
    /// A module depends on one that does not exist.
    #[error(
        "module `{module}` of this kernel needs `{dependency}`, which is neither in the module tree nor built in: the tree is incomplete, make or download it again"
    )]
    MissingDependency {
        /// The module that has the dependency.
        module: String,
        /// The missing module.
        dependency: String,
    },
    /// Modules depend on each other in a circle, or in too long a chain.
    #[error(
        "module `{module}` of this kernel depends on itself, or through more than {MAX_DEPTH} others: the module tree is damaged"
    )]
    Circle {
        /// One module of the circle or chain.
        module: String,
    },
    /// The kernel lacks a module that the study needs.
    #[error(
        "this kernel has no `{module}`, neither as a module nor built in, and {purpose} needs it: choose another kernel or enable it in its configuration"
    )]
    Missing {
        /// Name of the missing module.
        module: String,
        /// The feature that needs the module.
        purpose: &'static str,
    },
    /// The archive of modules cannot be built.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// Whether modules keep their signatures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Signatures {
    /// Modules stay as they are.
    #[default]
    Kept,
    /// Signatures are cut off ([`signature::cut`]) and tables of enum values are hidden
    /// ([`enum_values::hide`]), so that a guest spends no time on either.
    Cut,
}

/// A module in a [`ModuleSet`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// Modules to insert before this one, without those built in.
    pub before: Vec<String>,
    /// Modules to insert after this one (`softdep … post:`).
    pub after: Vec<String>,
}

/// The modules of one kernel that guests can need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModuleSet {
    /// Modules by name, with `_` for `-`.
    pub modules: BTreeMap<String, Module>,
    /// Wanted modules that this kernel has built in.
    pub builtin: BTreeSet<String>,
    /// Wanted modules that this kernel lacks. [`ModuleSet::load_order`] reports an error if one of
    /// them is needed.
    pub absent: BTreeSet<String>,
    /// Modules that tools of the run require. [`ModuleSet::load_order`] puts them last.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub of_tools: BTreeSet<String>,
    /// Whether the kernel has no module tree. Everything must then be built in, which is unchecked.
    pub monolithic: bool,
    /// Whether the modules kept their signatures.
    #[serde(default)]
    pub signatures: Signatures,
}

impl ModuleSet {
    /// Returns the set of a kernel without a module tree: nothing to insert. The guest reports
    /// whether something is missing.
    #[must_use]
    pub fn monolithic() -> Self {
        Self { monolithic: true, ..Self::default() }
    }

    /// Reads the modules that guests can need, and `of_tools`, from the tree at `tree`. Returns them
    /// with an archive that puts them into [`layout::MODULES`].
    ///
    /// # Errors
    /// [`ModulesError`] if the tree cannot be read or is incomplete. Wanted modules that do not
    /// exist are no error; they are recorded in [`ModuleSet::absent`].
    pub fn read(
        tree: &Path,
        layout: ModuleLayout,
        signatures: Signatures,
        of_tools: &BTreeSet<String>,
    ) -> Result<(Self, Archive), ModulesError> {
        let found = match layout {
            ModuleLayout::Installed => Installed::find(tree)?,
            ModuleLayout::Built => {
                let named = built::modules(tree)?.into_iter().map(|(name, path)| (name, tree.join(path)));
                Installed { files: named.collect(), ..Installed::default() }
            }
        };
        let builtin = installed::read_builtin(tree)?;
        let set = Self { signatures, of_tools: of_tools.clone(), ..Self::default() };
        let mut reader =
            ModuleReader { found: &found, builtin: &builtin, set, archive: Archive::default(), late: BTreeMap::new() };
        for name in wanted(of_tools) {
            reader.want(name)?;
        }
        if layout == ModuleLayout::Built && reader.archive.size() > built::MAX_SIZE {
            return Err(ModulesError::TooLarge { tree: tree.to_owned(), megabytes: reader.archive.size() / 1_000_000 });
        }
        Ok((reader.set, reader.archive))
    }

    /// Returns the modules that a guest inserts for this file system under test: paths in the
    /// guest, dependencies first. This is the value of [`bpfassay_protocol::job::Job::modules`].
    /// `is_node` means that the guest is one of several nodes and has a network card.
    ///
    /// # Errors
    /// [`ModulesError::Missing`] if the kernel lacks a module that is needed.
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
        // Older sets, from before studies with several nodes, did not look for the network card.
        let is_absent = |name: &str| {
            let is_there = self.monolithic || self.modules.contains_key(name) || self.builtin.contains(name);
            self.absent.contains(name) || name == NETWORK && !is_there
        };
        if let Some((module, purpose)) = wanted.iter().find(|(name, _)| is_absent(name)) {
            return Err(ModulesError::Missing { module: (*module).to_owned(), purpose });
        }
        let of_tools = self.of_tools.iter().map(String::as_str);
        Ok(self.load_order_of(&wanted.into_iter().map(|(name, _)| name).chain(of_tools).collect::<Vec<_>>()))
    }

    /// Returns the order of insertion of these modules: paths in the guest, dependencies first.
    /// Names that are built in or unknown contribute nothing.
    #[must_use]
    pub fn load_order_of(&self, names: &[&str]) -> Vec<String> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in names {
            self.visit(name, &mut seen, &mut order);
        }
        order.into_iter().map(|name| format!("{}/{name}.ko", layout::MODULES)).collect()
    }

    /// Appends `name` and its dependencies to `order`. `seen` ends the recursion for circles, which
    /// a damaged cache file could contain.
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

/// Who looks for a module.
#[derive(Clone, Copy)]
enum Seeker<'a> {
    /// A guest or a `softdep`. The module need not exist.
    IfPresent,
    /// A module that cannot work without it.
    By(&'a str),
}

struct ModuleReader<'a> {
    found: &'a Installed,
    builtin: &'a BTreeSet<String>,
    set: ModuleSet,
    archive: Archive,
    /// For each module, its dependents that another module wants before itself. They are inserted
    /// after this module.
    late: BTreeMap<String, Vec<String>>,
}

impl ModuleReader<'_> {
    fn want(&mut self, name: &str) -> Result<(), ModulesError> {
        if self.builtin.contains(name) {
            self.set.builtin.insert(name.to_owned());
        } else if !self.found.files.contains_key(name) {
            self.found.check_form(name)?;
            self.set.absent.insert(name.to_owned());
        }
        self.take(name, Seeker::IfPresent, &mut Vec::new()).map(|_| ())
    }

    /// Adds `name` and its dependencies to the set. Returns whether `name` is a module to be
    /// inserted.
    fn take(&mut self, name: &str, wanted: Seeker<'_>, path: &mut Vec<String>) -> Result<bool, ModulesError> {
        if self.builtin.contains(name) {
            return Ok(false);
        }
        if path.iter().any(|earlier| earlier == name) || path.len() >= MAX_DEPTH {
            return match wanted {
                Seeker::By(module) => Err(ModulesError::Circle { module: module.to_owned() }),
                Seeker::IfPresent => Ok(false),
            };
        }
        if self.set.modules.contains_key(name) {
            return Ok(true);
        }
        let Some(file) = self.found.files.get(name) else {
            return match wanted {
                Seeker::By(module) => {
                    self.found.check_form(name)?;
                    Err(ModulesError::MissingDependency { module: module.to_owned(), dependency: name.to_owned() })
                }
                Seeker::IfPresent => Ok(false),
            };
        };
        let (bytes, info) = self.read(file)?;
        path.push(name.to_owned());
        let mut before = Vec::new();
        for dependency in info.depends {
            if self.take(&dependency, Seeker::By(name), path)? {
                before.push(dependency);
            }
        }
        for dependency in info.soft_before {
            let dependency = self.implementation(dependency);
            // crypto_algapi wants cryptomgr before it, but cryptomgr depends on crypto_algapi.
            if let Some(needed) = self.first_needed(&dependency, path) {
                self.late.entry(needed).or_default().push(dependency);
                continue;
            }
            if self.take(&dependency, Seeker::IfPresent, path)? {
                before.push(dependency);
            }
        }
        path.pop();
        let place = format!("{}/{name}.ko", layout::MODULES);
        self.archive.add(&place, NewcNode::File { executable: false, content: bytes.into() })?;
        self.set.modules.insert(name.to_owned(), Module { before, after: Vec::new() });
        // Comes last, because modules that follow this one usually depend on it.
        let mut after = Vec::new();
        let late = self.late.remove(name).unwrap_or_default();
        for dependency in info.soft_after.into_iter().chain(late) {
            if self.take(&dependency, Seeker::IfPresent, path)? {
                after.push(dependency);
            }
        }
        if let Some(module) = self.set.modules.get_mut(name) {
            module.after = after;
        }
        Ok(true)
    }

    /// Returns the module that `name` in a softdep means. The name can be that of a crypto
    /// algorithm, whose generic implementation is `NAME_generic` (`crc32c_generic` has the alias `crc32c`).
    fn implementation(&self, name: String) -> String {
        let generic = format!("{name}_generic");
        let is_algorithm = !self.found.files.contains_key(&name) && self.found.files.contains_key(&generic);
        if is_algorithm { generic } else { name }
    }

    /// Returns the outermost module of `path` that `name` depends on, or `None` if `name` is in the
    /// path. Ignores modules that cannot be read; `take` reports them.
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

    /// Returns the content of a module as guests get it, and its `.modinfo`.
    fn read(&self, file: &Path) -> Result<(Vec<u8>, ModInfo), ModulesError> {
        let bytes = content(file, self.set.signatures)?;
        let info = ModInfo::parse(&bytes).map_err(|source| ModulesError::ModInfo { path: file.to_owned(), source })?;
        Ok((bytes, info))
    }
}

/// Returns the content of the module `file` as guests get it.
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

/// Returns the names of the modules in the installed tree at `tree`, with `_` for `-`.
///
/// # Errors
/// [`ModulesError::Read`] if the tree cannot be read.
pub(crate) fn names(tree: &Path) -> Result<BTreeSet<String>, ModulesError> {
    Ok(Installed::find(tree)?.files.into_keys().collect())
}

#[cfg(test)]
pub(crate) mod tests;
