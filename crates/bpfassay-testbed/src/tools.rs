// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `tools` segment of a guest: what the tools under test and the programs of workloads need there, at the places that
//! [`bpfassay_tool::guest`] names.
//!
//! Debian packages come with everything that they depend on, unpacked as they are: nothing in them is run on this host, and documentation
//! is left out. Files beside a tool file are taken as they are, and so are Nix packages; nothing
//! outside the directory of the tool file is read.

mod beside;
pub(crate) mod closure;
mod packages;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use bpfassay_input::document::suggestion;
use bpfassay_protocol::Arch;
use bpfassay_tool::{DebianPackage, Nix, Source, Supply, file::of_arch, guest};

pub(crate) use self::packages::bundled_packages;
use self::{
    beside::{Beside, Kind},
    closure::Closure,
    packages::Chosen,
};
use crate::{
    Error, Result,
    apt::{Apt, Package},
    cache::{Digest, Scratch},
    image::{role, segment},
    initramfs::{Archive, Content, Node, tree},
    manifest::{Component, Segment},
    unpack,
    untrusted_tree::UntrustedTree,
};

/// To be changed whenever other segments are made of the same inputs.
const KEY_VERSION: &str = "1";

/// Largest program, script or object beside a tool file, in bytes.
const MAX_FILE: u64 = 256 << 20;

/// What is left out of packages: documentation, translations, what C programs are compiled with, and what glibc converts
/// character sets with.
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

/// Directories that the guest fills by itself.
const LIVE: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "var"];

/// Where Debian has merged directories: links that no package but `base-files` holds.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];

/// The segment with `tools` for guests of architecture `arch`; `None` where none of them has anything for it.
///
/// # Errors
/// [`Error::Tool`] and [`Error::ToolFile`] for a file that is not what it should be; those of packages and of the cache.
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

/// The segment with what lies beside tool files, and the packages `found`, if there are any, which have what is `started`.
///
/// # Errors
/// As [`tools_segment`].
fn segment_with(
    apt: &Apt<'_>,
    arch: Arch,
    (mut own, mut contents): (Archive, Vec<Component>),
    found: Option<Chosen>,
    started: &[Started<'_>],
) -> Result<Segment> {
    let of_packages = found.as_ref().map_or(&[][..], |found| &found.packages);
    let key = key(&own, of_packages, started)?;
    contents.extend(of_packages.iter().map(Component::from));
    // What is read when the segment is written are libraries, each a file of a directory, and store paths.
    for (path, node) in own.entries() {
        if let Node::File { content: Content::Bytes(bytes), .. } = node {
            contents.push(Component { name: format!("/{path}"), version: String::new(), sha256: Digest::of(bytes) });
        }
    }
    // Its files are read when the segment is written.
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
            check_packages(started, &own)?;
            unpacked = Some(scratch);
        }
        Ok(own)
    })?;
    drop(unpacked);
    Ok(Segment { role: role::TOOLS.to_owned(), archive: (&object).into(), contents })
}

/// What else guests may have in their root directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Besides {
    /// Nothing: they have this project's programs and what the tools bring along.
    Nothing,
    /// Whatever a user put there: a tree with a real IOR, or a testbed that was made elsewhere.
    Others,
}

/// Checks what can be known of `tools` for guests of architecture `arch` before any is made, without packages. What is not certain is not refused.
///
/// # Errors
/// [`Error::Tool`] and [`Error::ToolFile`] for a file that is missing or not what it should be, and for what a guest could not start.
pub fn check(arch: Arch, tools: &[Supply<'_>], besides: Besides) -> Result<()> {
    tools.iter().try_for_each(check_services)?;
    let needs = Needs::of(arch, tools)?;
    let (own, _) = needs.beside(arch)?;
    for tool in tools {
        start::check_linkers(tool, arch, &own)?;
        // Packages are not looked into, and may have everything.
        if besides == Besides::Nothing && needs.packages.is_empty() {
            start::check(tool, arch, &own)?;
        }
    }
    Ok(())
}

/// Whether a guest has the services that `tool` names: none has any, whatever lies in its root directory.
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

/// What tools need.
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
            let beside = |of: &str, kind: Kind| Beside { tool, path: of.to_owned(), kind };
            match tool.source {
                // Guests of all kernels have the same segment.
                Source::Binary(list) => {
                    for (place, binary) in of_arch(list, arch) {
                        let kind = Kind::Program { place, has_libraries: binary.libraries.is_some() };
                        needs.files.insert(guest::program(name, place), beside(&binary.path, kind));
                        if let Some(libraries) = &binary.libraries {
                            needs.files.insert(guest::libraries(name, place), beside(libraries, Kind::Libraries));
                        }
                    }
                }
                Source::Script(list) => {
                    for (place, script) in of_arch(list, arch) {
                        needs.files.insert(guest::script(name, place), beside(&script.path, Kind::Script));
                    }
                }
                Source::Object(_) => {
                    // A bundled one is in the tracer.
                    for (place, object) in tool.source.objects(arch).filter(|(_, object)| !object.bundled) {
                        let kind = Kind::Object { programs: object.programs.clone() };
                        needs.files.insert(guest::object(name, place), beside(&object.path, kind));
                    }
                }
                Source::Nix(nix) => {
                    // Where there is none, `ToolFile::for_arch` reports it.
                    if nix.closures.contains(&arch) {
                        let directory = tool.place(&Nix::closure(arch))?;
                        needs.closures.push(Closure { tool: name.clone(), directory, program: nix.program.clone() });
                    }
                }
                Source::Debian(_) | Source::Guest(_) => {}
            }
            for file in tool.files {
                needs.files.insert(guest::file(name, file), beside(file, Kind::File));
            }
            tool.source.packages(arch).into_iter().for_each(|(_, packages)| needs.package(packages));
        }
        Ok(needs)
    }

    /// What lies beside the tool files, and the components of Nix packages among it.
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
        names.insert(from.package.clone());
        names.extend(from.with.iter().cloned());
    }
}

fn refuse(tool: &str, problem: String) -> Error {
    Error::Tool { tool: tool.to_owned(), problem }
}

fn key(own: &Archive, packages: &[Package], started: &[Started<'_>]) -> Result<Digest> {
    let mut bytes = Vec::new();
    own.write_to(&mut bytes)?;
    let digests = packages.iter().map(|package| package.sha256.to_string());
    let first = [KEY_VERSION.to_owned(), role::TOOLS.to_owned(), Digest::of(&bytes).to_string()];
    // A segment that is there already was checked for these.
    let started = started.iter().map(|started| started.program.to_owned());
    Ok(Digest::of_parts(first.into_iter().chain(digests).chain(started)))
}

/// A program that a tool file expects in packages.
struct Started<'a> {
    tool: &'a str,
    program: &'a str,
    package: &'a str,
}

/// The programs that must come from packages.
fn started_from_packages<'a>(arch: Arch, tools: &'a [Supply<'a>]) -> Vec<Started<'a>> {
    let started = |tool: &'a Supply<'a>| {
        let of = move |(program, from): (&'a str, &'a DebianPackage)| Started {
            tool: &tool.name,
            program,
            package: &from.package,
        };
        tool.source.packages(arch).into_iter().map(of)
    };
    tools.iter().flat_map(started).collect()
}

/// Checks that packages have what is started of them.
fn check_packages(started: &[Started<'_>], unpacked: &Archive) -> Result<()> {
    for Started { tool, program, package } in started {
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

/// Adds what packages were unpacked to in `unpacked_to`.
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
    let unpacked = unpacked_to.archive()?;
    for (path, node) in unpacked.entries() {
        // Links to what was left out, or what only an installed package has.
        let dangles = matches!(node, Node::Symlink { .. }) && tree::resolve(&unpacked, path).is_none();
        if !dangles {
            tree::check_reserved(path, node)?;
            archive.add(path, node.clone())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bpfassay_tool::Loaded;

    use super::*;

    fn loaded(folder: &Path, source: &str) -> Loaded {
        let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
        Loaded { file: bpfassay_tool::ToolFile::parse("t.toml", &text).unwrap(), folder: Some(folder.to_owned()) }
    }

    fn laid_out(folder: &Path, source: &str) -> Result<Archive> {
        let (loaded, mut supplies) = (loaded(folder, source), Vec::new());
        supplies.push(loaded.supply());
        let needs = Needs::of(Arch::X86_64, &supplies)?;
        let mut archive = Archive::default();
        for (path, file) in &needs.files {
            file.add(Arch::X86_64, path, &mut archive)?;
        }
        Ok(archive)
    }

    #[test]
    fn files_lie_where_the_guest_looks_for_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("s.bt"), "BEGIN { }").unwrap();
        let archive = laid_out(folder.path(), "script = { path = 's.bt', interpreter = '/usr/bin/bpftrace' }").unwrap();
        assert!(matches!(archive.get("/tools/mine/script"), Some(Node::File { executable: true, .. })));
        // Files beside it.
        fs::create_dir(folder.path().join("data")).unwrap();
        fs::write(folder.path().join("data/conf.yml"), "x").unwrap();
        let script = "script = { path = 's.bt', interpreter = '/usr/bin/bpftrace' }";
        let archive = laid_out(folder.path(), &format!("{script}\nfiles = ['data/conf.yml']")).unwrap();
        assert!(archive.get("/tools/mine/data/conf.yml").is_some() && archive.get("/tools/mine/script").is_some());
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("data/out")).unwrap();
        let error = laid_out(folder.path(), &format!("{script}\nfiles = ['data/out']")).unwrap_err();
        assert!(
            std::error::Error::source(&error).unwrap().to_string().contains("leads out of the directory"),
            "{error}"
        );
        // This test's own program is linked with libraries.
        fs::copy(std::env::current_exe().unwrap(), folder.path().join("dynamic")).unwrap();
        if cfg!(target_arch = "x86_64") {
            let error = laid_out(folder.path(), "binary = { arch = 'x86_64', path = 'dynamic' }").unwrap_err();
            assert!(error.to_string().contains("give their directory as `libraries`"), "{error}");
            fs::create_dir(folder.path().join("lib")).unwrap();
            fs::write(folder.path().join("lib/libc.so.6"), "x").unwrap();
            let with = "binary = { arch = 'x86_64', path = 'dynamic', libraries = 'lib' }";
            let archive = laid_out(folder.path(), with).unwrap();
            let target = "lib/ld-linux-x86-64.so.2".to_owned();
            assert_eq!(archive.get("/tools/mine/loader"), Some(&Node::Symlink { target }));
            assert!(archive.get("/tools/mine/lib/libc.so.6").is_some());
            std::os::unix::fs::symlink("../../etc/passwd", folder.path().join("lib/out")).unwrap();
            let error = laid_out(folder.path(), with).unwrap_err();
            assert!(error.to_string().contains("leads out of it"), "{error}");
        }
    }

    /// Nothing in a root directory starts them.
    #[test]
    fn a_service_that_no_guest_has_is_named() {
        let work = tempfile::tempdir().unwrap();
        let checked = |start: &str, besides| {
            let tool = loaded(work.path(), &format!("guest = {{ program = '/bin/x' }}\n[start]\n{start}"));
            check(Arch::X86_64, &[tool.supply()], besides).map_err(|error| error.to_string())
        };
        for besides in [Besides::Nothing, Besides::Others] {
            let error = checked("needs = ['systemd', 'dbus']", besides).unwrap_err();
            let begins = "cannot put the tool mine into guests: it needs systemd, D-Bus, which no guest has: process 1";
            assert!(error.starts_with(begins), "{error}");
        }
        assert_eq!(checked("ready = { programs = 1 }", Besides::Others), Ok(()));
    }

    #[test]
    fn what_is_not_what_it_should_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "no program").unwrap();
        let refused = |source: &str| laid_out(folder.path(), source).unwrap_err().to_string();
        assert!(refused("binary = { arch = 'x86_64', path = 'a' }").contains("is no program for x86_64"));
        assert!(refused("object = { path = 'a' }").contains("is no eBPF object"));
        assert!(refused("object = { path = 'b' }").contains("cannot read"));
    }

    #[test]
    fn links_lead_nowhere_but_below_the_directory_of_the_tool_file() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join("tool");
        fs::create_dir_all(folder.join("real")).unwrap();
        fs::create_dir(work.path().join("elsewhere")).unwrap();
        for file in ["secret", "elsewhere/script", "elsewhere/libsecret.so", "tool/real/script"] {
            fs::write(work.path().join(file), "#!/bin/sh\n").unwrap();
        }
        let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
        link("../secret", "l1");
        link("/etc/passwd", "l2");
        link("../elsewhere", "out");
        link("real", "inside");
        link("/dev/zero", "zero");
        let script = |path: &str| {
            laid_out(&folder, &format!("script = {{ path = '{path}', interpreter = '/usr/bin/bpftrace' }}"))
        };
        for path in ["real/script", "inside/script"] {
            assert!(script(path).unwrap().get("/tools/mine/script").is_some(), "{path}");
        }
        for path in ["l1", "l2", "out/script", "zero"] {
            let error = script(path).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("leads out of the directory"), "{path}: {error}: {cause}");
            assert!(laid_out(&folder, &format!("object = {{ path = '{path}' }}")).is_err());
            assert!(laid_out(&folder, &format!("binary = {{ arch = 'x86_64', path = '{path}' }}")).is_err());
        }
        let libraries = |path: &str| {
            let exe = std::env::current_exe().unwrap();
            fs::copy(exe, folder.join("program")).unwrap();
            laid_out(&folder, &format!("binary = {{ arch = 'x86_64', path = 'program', libraries = '{path}' }}"))
        };
        let error = libraries("out").unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("leads out of the directory"), "{error}: {cause}");
        if cfg!(target_arch = "x86_64") {
            assert!(libraries("inside").unwrap().get("/tools/mine/lib/script").is_some());
        }
        let pipe = folder.join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = script("pipe").unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("a named pipe"), "{error}");
    }

    #[test]
    fn what_was_found_in_a_directory_is_not_exchanged_for_a_link() {
        let work = tempfile::tempdir().unwrap();
        let (lib, secret) = (work.path().join("lib"), work.path().join("secret"));
        fs::create_dir(&lib).unwrap();
        fs::write(lib.join("a"), "library").unwrap();
        fs::write(&secret, "secrets").unwrap();
        let mut archive = Archive::default();
        tree::add_directory(&mut archive, &lib, "").unwrap();
        fs::remove_file(lib.join("a")).unwrap();
        std::os::unix::fs::symlink(&secret, lib.join("a")).unwrap();
        assert!(archive.to_bytes().is_err());
    }

    #[test]
    fn a_program_that_is_in_no_package_is_refused_once_they_are_unpacked() {
        let mut unpacked = Archive::default();
        let content = || Content::Bytes(Vec::new());
        unpacked.add("usr/sbin/vfsstat-libbpf", Node::File { executable: true, content: content() }).unwrap();
        unpacked.add("sbin", Node::Symlink { target: "usr/sbin".to_owned() }).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let said = |program: &str| {
            let source = format!("debian = {{ suite = 'trixie', package = 'libbpf-tools', program = '{program}' }}");
            let tool = loaded(folder.path(), &source);
            let supplies = [tool.supply()];
            let started = started_from_packages(Arch::X86_64, &supplies);
            check_packages(&started, &unpacked).map_or_else(|error| error.to_string(), |()| String::new())
        };
        assert_eq!((said("/usr/sbin/vfsstat-libbpf"), said("/sbin/vfsstat-libbpf")), (String::new(), String::new()));
        let error = said("/usr/sbin/vfsstat");
        assert!(
            error.contains("neither the package libbpf-tools nor what it depends on has /usr/sbin/vfsstat"),
            "{error}"
        );
        assert!(error.ends_with("did you mean `/usr/sbin/vfsstat-libbpf`?"), "{error}");
    }

    #[test]
    fn two_suites_do_not_go_together() {
        let folder = tempfile::tempdir().unwrap();
        let debian = |suite: &str| {
            loaded(folder.path(), &format!("debian = {{ suite = '{suite}', package = 'p', program = '/usr/bin/p' }}"))
        };
        let (trixie, sid) = (debian("trixie"), debian("sid"));
        let supplies = [trixie.supply(), sid.supply()];
        let needs = Needs::of(Arch::X86_64, &supplies).unwrap();
        assert_eq!(needs.packages.len(), 2);
    }
}
