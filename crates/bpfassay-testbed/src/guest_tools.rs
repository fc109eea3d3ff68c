// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `tools` segment of a guest: files that tools under test and programs of workloads need, at
//! the places that [`bpfassay_tool::guest_request`] names.
//!
//! Debian packages come with all their dependencies. They are unpacked without documentation, and
//! nothing in them is run on this host. Files in the directory of a tool file and Nix packages are
//! copied unchanged. Nothing outside of that directory is read.

mod beside;
pub(crate) mod closure;
mod library_cache;
mod packages;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use bpfassay_input::document::suggestion;
use bpfassay_packages::{
    apt::{Apt, Package},
    cache::Scratch,
    digest::Digest,
    unpack,
    untrusted_tree::UntrustedTree,
};
use bpfassay_protocol::Arch;
use bpfassay_tool::{DebianPackage, KernelNeeds, Nix, Source, Supply, file::of_arch, guest_request};

pub(crate) use self::packages::bundled_packages;
use self::{
    beside::{Beside, BesideKind},
    closure::Closure,
    packages::Chosen,
};
use crate::{
    error::{Error, Result},
    initramfs::{Archive, FileContent, NewcNode, initramfs_tree},
    manifest::{Component, Segment},
    provider::Sources,
    segment::{role, segment},
};

/// Change this version when the same inputs give other segments than before.
const KEY_VERSION: &str = "3";

/// The package that provides `/bin/sh`. Packages use essential ones without depending on them
/// (Debian policy, 3.5). Guests get only this essential package without asking for it.
pub(crate) const SHELL: &str = "dash";

/// Largest program, script or object in the directory of a tool file, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// Parts of packages that guests do not get: documentation, translations, headers for C programs,
/// and glibc's character set converters.
const LEFT_OUT: [&str; 9] = [
    "./usr/share/doc",
    "./usr/share/man",
    "./usr/share/info",
    "./usr/share/locale",
    "./usr/share/lintian",
    "./usr/share/bash-completion",
    "./usr/include",
    "./usr/lib/*/gconv",
    "./boot",
];

/// Directories that the guest fills while it runs.
const LIVE: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "var"];

/// Directories that Debian has merged into `usr`. Their links are in no package but `base-files`.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// Builds the segment with `tools` for guests of architecture `arch`. Returns `None` if no tool has
/// files for it.
///
/// # Errors
/// [`Error::Tool`] and [`Error::ToolFile`] for an invalid file, and the errors of packages and of
/// the cache.
pub fn tools_segment(apt: &Apt<'_>, arch: Arch, tools: &[Supply<'_>]) -> Result<Option<Segment>> {
    let needs = Needs::of(arch, tools)?;
    if needs.packages.is_empty() && needs.files.is_empty() && needs.closures.is_empty() {
        return Ok(None);
    }
    let started = started_from_packages(arch, tools);
    let made = |found| segment_with(apt, arch, needs.beside(arch)?, found, &started);
    let made = match made(Chosen::of(apt, arch, &needs.packages)?) {
        Err(ref error) if let Some(detail) = error.dropped() => {
            packages::warn_of_dropped(arch, &needs.packages, detail);
            made(Chosen::of_index(apt, arch, &needs.packages)?)
        }
        made => made,
    };
    made.map(Some)
}

/// Builds the segment from the files in the directories of tool files and from the packages
/// `found`, if there are any. The packages must contain the programs `started`.
///
/// # Errors
/// The errors of [`tools_segment`].
fn segment_with(
    apt: &Apt<'_>,
    arch: Arch,
    (mut own, mut contents): (Archive, Vec<Component>),
    found: Option<Chosen>,
    started: &[StartedProgram<'_>],
) -> Result<Segment> {
    let of_packages = found.as_ref().map_or(&[][..], |found| &found.packages);
    let key = key(&own, of_packages, started)?;
    contents.extend(of_packages.iter().map(Component::from));
    // Contents that are read only when the segment is written are libraries, whose directory stands
    // for them, and store paths.
    for (path, node) in own.entries() {
        if let NewcNode::File { content: FileContent::Bytes(bytes), .. } = node {
            contents.push(Component { name: format!("/{path}"), version: String::new(), sha256: Digest::of(bytes) });
        }
    }
    // Keeps the directory until the segment is written, which reads its files.
    let mut unpacked: Option<Scratch> = None;
    let what = format!("the tools for {arch}");
    let object = segment(apt.cache(), &key, &what, || {
        if let Some(found) = &found {
            let scratch = apt.cache().scratch()?;
            let tree = UntrustedTree::open(scratch.path())?;
            for package in found.files(apt)? {
                unpack::unpack(&package.path, &tree, &LEFT_OUT, &what)?;
            }
            lay_out(&tree, &mut own)?;
            library_cache::add(&mut own, arch)?;
            check_packages(started, &own)?;
            unpacked = Some(scratch);
        }
        Ok(own)
    })?;
    drop(unpacked);
    Ok(Segment { role: role::TOOLS.to_owned(), archive: (&object).into(), contents })
}

/// Other files that can be in a guest's root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Besides {
    /// Nothing: only this project's programs and the files of tools.
    Nothing,
    /// Anything from a user: a tree with a real IOR, or a testbed that was built elsewhere.
    Others,
}

/// Checks `tools` for guests of architecture `arch` before any guest is built. Does not look into
/// packages. Accepts everything that is uncertain.
///
/// # Errors
/// [`Error::Tool`] and [`Error::ToolFile`] for a missing or invalid file, and for a program that a
/// guest could not start.
pub fn check(arch: Arch, tools: &[Supply<'_>], besides: Besides) -> Result<()> {
    tools.iter().try_for_each(check_services)?;
    let needs = Needs::of(arch, tools)?;
    let (own, _) = needs.beside(arch)?;
    for tool in tools {
        start::check_linkers(tool, arch, &own)?;
        // Packages are not inspected, and can contain everything.
        if besides == Besides::Nothing && needs.packages.is_empty() {
            start::check(tool, arch, &own)?;
        }
    }
    Ok(())
}

/// Checks that guests from `sources` can have what `tools` require of the kernel.
///
/// # Errors
/// [`Error::Tool`] for modules or headers if the guests exist already, and for headers if the
/// kernel is the user's.
pub fn check_kernel(tools: &[Supply<'_>], sources: &Sources) -> Result<()> {
    // A run that goes on has guests that were built for its tools.
    let is_finished = sources.recorded.is_none() && sources.are_made();
    for tool in tools {
        let needed = match &tool.kernel {
            KernelNeeds { headers: true, .. } => "headers of the kernel".to_owned(),
            KernelNeeds { modules, .. } if modules.is_empty() => continue,
            KernelNeeds { modules, .. } => format!("kernel modules ({})", modules.join(", ")),
        };
        if is_finished {
            let problem = format!(
                "it needs {needed}, and the guests of --manifest and --bundle are finished: leave the option out, and guests are built with what the tool needs"
            );
            return Err(refuse(&tool.name, problem));
        }
        if tool.kernel.headers && sources.local.is_some() {
            let problem = format!("it needs {needed}, which are known for kernels of `bpfassay list kernels` only");
            return Err(refuse(&tool.name, problem));
        }
    }
    Ok(())
}

/// Checks that `tool` needs no services. No guest has any, whatever its root directory contains.
fn check_services(tool: &Supply<'_>) -> Result<()> {
    let names: Vec<&str> = tool.needs.iter().map(|service| service.name()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "it needs {}, which no guest has: process 1 of a guest is bpfassay's agent, and starts no services. Where the tool can do without, leave it out of `needs`",
        names.join(", ")
    );
    Err(refuse(&tool.name, problem))
}

#[derive(Default)]
struct Needs<'a> {
    /// Names of packages, by suite.
    packages: BTreeMap<String, BTreeSet<String>>,
    /// Files, by their paths in the guest.
    files: BTreeMap<String, Beside<'a>>,
    /// Nix packages.
    closures: Vec<Closure>,
}

impl<'a> Needs<'a> {
    fn of(arch: Arch, tools: &'a [Supply<'a>]) -> Result<Self> {
        let mut needs = Self::default();
        for tool in tools {
            let name = &tool.name;
            let beside = |of: &str, kind: BesideKind| Beside { tool, path: of.to_owned(), kind };
            match tool.source {
                // Guests of all kernels have the same segment.
                Source::Binary(list) => {
                    for (place, binary) in of_arch(list, arch) {
                        let kind = BesideKind::Program { place, has_libraries: binary.libraries.is_some() };
                        needs.files.insert(guest_request::program(name, place), beside(&binary.path, kind));
                        if let Some(libraries) = &binary.libraries {
                            needs.files.insert(
                                guest_request::libraries(name, place),
                                beside(libraries, BesideKind::Libraries),
                            );
                        }
                    }
                }
                Source::Script(list) => {
                    for (place, script) in of_arch(list, arch) {
                        needs
                            .files
                            .insert(guest_request::script(name, place), beside(&script.path, BesideKind::Script));
                    }
                }
                Source::Object(_) => {
                    // Bundled objects are embedded in the tracer.
                    for (place, object) in tool.source.objects(arch).filter(|(_, object)| !object.bundled) {
                        let kind = BesideKind::Object { programs: object.programs.clone() };
                        needs.files.insert(guest_request::object(name, place), beside(&object.path, kind));
                    }
                }
                Source::Nix(nix) => {
                    // `ToolFile::for_arch` reports a missing closure.
                    if nix.closures.contains(&arch) {
                        let directory = tool.place(&Nix::closure(arch))?;
                        needs.closures.push(Closure { tool: name.clone(), directory, program: nix.program.clone() });
                    }
                }
                Source::Debian(_) | Source::Guest(_) => {}
            }
            for file in tool.all_files()? {
                needs.files.insert(guest_request::file(name, &file), beside(&file, BesideKind::File));
            }
            tool.source.packages(arch).into_iter().for_each(|(_, packages)| needs.package(packages));
        }
        Ok(needs)
    }

    /// Returns the files in the directories of tool files, and the components of their Nix
    /// packages.
    fn beside(&self, arch: Arch) -> Result<(Archive, Vec<Component>)> {
        let mut own = Archive::default();
        let contents = self.closures.iter().map(|closure| closure.add(arch, &mut own)).collect::<Result<Vec<_>>>()?;
        for (path, file) in &self.files {
            file.add(arch, path, &mut own)?;
        }
        Ok((own, contents))
    }

    fn package(&mut self, from: &DebianPackage) {
        let names = self.packages.entry(from.suite.clone()).or_default();
        names.extend([&from.package].into_iter().chain(&from.with).cloned());
        names.insert(SHELL.to_owned());
    }
}

fn refuse(tool: &str, problem: String) -> Error {
    Error::Tool { tool: tool.to_owned(), problem }
}

fn key(own: &Archive, packages: &[Package], started: &[StartedProgram<'_>]) -> Result<Digest> {
    let mut bytes = Vec::new();
    own.write_to(&mut bytes)?;
    let digests = packages.iter().map(|package| package.sha256.to_string());
    let first = [KEY_VERSION.to_owned(), role::TOOLS.to_owned(), Digest::of(&bytes).to_string()];
    // The key contains these, because existing segments are not checked again.
    let started = started.iter().map(|started| started.program.to_owned());
    Ok(Digest::of_parts(first.into_iter().chain(digests).chain(started)))
}

/// A program that a tool file expects in packages.
struct StartedProgram<'a> {
    tool: &'a str,
    program: &'a str,
    package: &'a str,
}

/// Returns the programs that must come from packages.
fn started_from_packages<'a>(arch: Arch, tools: &'a [Supply<'a>]) -> Vec<StartedProgram<'a>> {
    let started = |tool: &'a Supply<'a>| {
        let of = move |(program, from): (&'a str, &'a DebianPackage)| StartedProgram {
            tool: &tool.name,
            program,
            package: &from.package,
        };
        tool.source.packages(arch).into_iter().map(of)
    };
    tools.iter().flat_map(started).collect()
}

/// Checks that the packages contain the programs to start.
fn check_packages(started: &[StartedProgram<'_>], unpacked: &Archive) -> Result<()> {
    for StartedProgram { tool, program, package } in started {
        if start::is_there(unpacked, program) {
            continue;
        }
        let programs: Vec<String> = unpacked
            .entries()
            .filter(|(path, _)| {
                Path::new(path).parent().is_some_and(|parent| parent.ends_with("bin") || parent.ends_with("sbin"))
            })
            .map(|(path, _)| format!("/{path}"))
            .collect();
        let nearest = suggestion(program, programs.iter().map(String::as_str));
        let problem = format!(
            "neither the package {package} nor what it depends on has {program} (`dpkg -L {package}` lists what it has){nearest}"
        );
        return Err(refuse(tool, problem));
    }
    Ok(())
}

/// Adds the unpacked packages in `unpacked_to` to `archive`.
fn lay_out(unpacked_to: &UntrustedTree, archive: &mut Archive) -> Result<()> {
    for live in LIVE {
        unpacked_to.remove_directory(live)?;
    }
    for merged in MERGED {
        let usr = format!("usr/{merged}");
        if unpacked_to.directory(Path::new(&usr)).is_ok() {
            unpacked_to.link(&usr, merged)?;
        }
    }
    // Some versions of the package only create this link when they are installed.
    for directory in ["usr/bin", "bin"] {
        if unpacked_to.is_file(format!("{directory}/{SHELL}")) {
            unpacked_to.link(SHELL, &format!("{directory}/sh"))?;
        }
    }
    let mut unpacked = Archive::default();
    initramfs_tree::add_directory(&mut unpacked, unpacked_to.path(), "")?;
    for (path, node) in unpacked.entries() {
        // Dangling links point to files that were left out, or that only installation creates.
        let dangles = matches!(node, NewcNode::Symlink { .. }) && initramfs_tree::resolve(&unpacked, path).is_none();
        if !dangles {
            initramfs_tree::check_reserved(path, node)?;
            archive.add(path, node.clone())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
