// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tools under test on this machine. Files that a guest has below `/tools` are used where the user
//! has them, next to the tool file. Debian packages that guests get must be installed here. Nothing
//! is copied. Everything that is known to be missing is refused before a run begins.

#![allow(clippy::disallowed_methods, reason = "looks for programs of a tool that the user names; opens nothing")]

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use bpfassay_protocol::{
    Arch, layout,
    tool_job::{Endpoint, Ready, Tool},
};
use bpfassay_runner::Error;
use bpfassay_tool::{
    LoadedFile, MissingService, Source, Supply,
    elf::{interpreter, no_object, no_program},
    file::{Nix, of_target},
    guest_request,
};

/// Largest program, script or object next to a tool file, in bytes. Guests have the same limit.
const MAX_FILE: u64 = 256 << 20;

/// How long a local port can take to accept a connection.
const CONNECTING: Duration = Duration::from_millis(500);

/// The places of the tools under test on this machine.
#[derive(Debug, Default)]
pub(crate) struct ToolPlaces {
    places: Vec<ToolPlace>,
    /// Paths of this project's programs on this machine, by their paths in guests.
    own: BTreeMap<&'static str, String>,
}

/// The places of one tool's files.
#[derive(Debug, PartialEq, Eq)]
struct ToolPlace {
    /// The tool's directory in guests.
    home: String,
    /// The directory of the tool file, if there is one.
    folder: Option<String>,
    /// Paths on this machine that differ from the paths in guests, by the path below `home`.
    parts: BTreeMap<String, String>,
    /// The tool's files, for the provenance.
    files: Vec<PathBuf>,
}

impl ToolPlaces {
    /// Finds what `tools` need for `kernel` on `arch`. `own` has the programs of this project by
    /// their paths in guests.
    ///
    /// # Errors
    /// [`Error::Tool`] for a file that cannot be read. [`Error::ToolRefused`] for an unsuitable
    /// file, for a program or a service that this machine lacks, and for a port that is taken.
    pub(crate) fn find(
        tools: &[LoadedFile],
        (arch, kernel): (Arch, &str),
        own: BTreeMap<&'static str, String>,
    ) -> Result<Self, Error> {
        let mut places = Vec::new();
        for tool in tools {
            // A tool that does not support this machine is left out of the plan, with the reason.
            let Ok(started) = tool.file.for_target(arch, kernel) else { continue };
            places.push(place(&tool.supply(), arch, kernel, Path::new("/"))?);
            check_services(&tool.supply(), Path::new("/"))?;
            check_ports(&started)?;
        }
        Ok(Self { places, own })
    }

    /// Returns the files of all tools.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().flat_map(|place| place.files.iter().map(PathBuf::as_path))
    }

    /// Translates `tool` from paths in guests to paths on this machine.
    pub(crate) fn here(&self, tool: &Tool) -> Tool {
        let word = |word: &String| match self.own.get(word.as_str()) {
            Some(own) => own.clone(),
            None => self.places.iter().fold(word.clone(), |word, place| place.here(&word)),
        };
        let environment = tool.environment.iter().map(|(name, value)| (name.clone(), word(value))).collect();
        Tool { command: tool.command.iter().map(word).collect(), environment, ..tool.clone() }
    }
}

impl ToolPlace {
    /// Replaces paths below [`Self::home`] in `text` with paths on this machine.
    fn here(&self, text: &str) -> String {
        let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-');
        let mut here = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(&self.home) {
            let (before, from) = rest.split_at(at);
            let after = &from[self.home.len()..];
            here.push_str(before);
            rest = after;
            let begins = !here.ends_with(|c: char| is_of_name(c) || c == '/');
            let ends = !after.starts_with(is_of_name);
            let named = after.strip_prefix('/').and_then(|name| self.part(name, is_of_name));
            match (begins && ends, named, &self.folder) {
                (true, Some((part, path)), _) => {
                    here.push_str(path);
                    rest = &after[1 + part.len()..];
                }
                (true, None, Some(folder)) => here.push_str(folder),
                _ => here.push_str(&self.home),
            }
        }
        here.push_str(rest);
        here
    }

    /// Returns the longest of [`Self::parts`] that `name` begins with, as a whole name.
    fn part(&self, name: &str, is_of_name: impl Fn(char) -> bool) -> Option<(&String, &String)> {
        let is_it = |(part, _): &(&String, &String)| {
            name.strip_prefix(part.as_str()).is_some_and(|rest| !rest.starts_with(&is_of_name))
        };
        self.parts.iter().filter(is_it).max_by_key(|(part, _)| part.len())
    }
}

fn refuse(tool: &Supply<'_>, problem: String) -> Error {
    Error::ToolRefused { name: tool.name.clone(), problem }
}

/// Finds the files of `tool` on the machine with the root directory `root`.
fn place(tool: &Supply<'_>, arch: Arch, kernel: &str, root: &Path) -> Result<ToolPlace, Error> {
    let home = format!("{}/{}", guest_request::HOME, tool.name);
    let folder = tool.folder.map(|folder| real(tool, folder)).transpose()?;
    let folder_text = folder.as_deref().map(|folder| text(tool, folder)).transpose()?;
    let mut found = ToolPlace { home: home.clone(), folder: folder_text, parts: BTreeMap::new(), files: Vec::new() };
    // Strips the tool's directory from the path of a part.
    let name = |path: String| path.strip_prefix(&home).unwrap_or(&path).trim_start_matches('/').to_owned();
    match tool.source {
        Source::Binary(list) => {
            let Some((at, binary)) = of_target(list, arch, kernel) else { return Ok(found) };
            let (path, bytes) = beside(tool, &binary.path)?;
            if let Some(problem) = no_program(&bytes, arch) {
                return Err(refuse(tool, format!("{} {problem}", path.display())));
            }
            let linker = interpreter(&bytes);
            match (&binary.libraries, linker) {
                (Some(libraries), Some(linker)) => {
                    let directory = tool.directory(libraries)?;
                    let linker = directory.join(linker.rsplit('/').next().unwrap_or(&linker));
                    if !linker.is_file() {
                        let problem = format!("its dynamic linker {} is missing: copy it there", linker.display());
                        return Err(refuse(tool, problem));
                    }
                    found.parts.insert(name(guest_request::libraries(&tool.name, at)), text(tool, &directory)?);
                    found.parts.insert(name(guest_request::loader(&tool.name, at)), text(tool, &linker)?);
                }
                (Some(_), None) => return Err(refuse(tool, format!("{} names no dynamic linker", path.display()))),
                (None, linker) => {
                    must_be_executable(tool, &path)?;
                    if let Some(linker) = linker.filter(|linker| !is_there(root, linker)) {
                        let problem =
                            format!("{} is started by {linker}, which this machine does not have", path.display());
                        return Err(refuse(tool, problem));
                    }
                }
            }
            found.parts.insert(name(guest_request::program(&tool.name, at)), text(tool, &path)?);
            found.files.push(path);
        }
        Source::Script(list) => {
            let Some((at, script)) = of_target(list, arch, kernel) else { return Ok(found) };
            let (path, _) = beside(tool, &script.path)?;
            let package = script.debian.as_ref().map(|debian| debian.package.as_str());
            found.files.push(installed(tool, root, &script.interpreter, package)?);
            found.parts.insert(name(guest_request::script(&tool.name, at)), text(tool, &path)?);
            found.files.push(path);
        }
        Source::Object(_) => {
            let object = tool.source.object(arch, kernel).filter(|(_, object)| !object.bundled);
            let Some((at, object)) = object else { return Ok(found) };
            let (path, bytes) = beside(tool, &object.path)?;
            if let Some(problem) = no_object(&bytes, &object.programs) {
                return Err(refuse(tool, format!("{} {problem}", path.display())));
            }
            found.parts.insert(name(guest_request::object(&tool.name, at)), text(tool, &path)?);
            found.files.push(path);
        }
        Source::Debian(list) => {
            let Some((_, debian)) = of_target(list, arch, kernel) else { return Ok(found) };
            found.files.push(installed(tool, root, &debian.program, Some(&debian.from.package))?);
        }
        Source::Guest(program) if program.starts_with(layout::HOME) => {
            if ![layout::TRACER, layout::IOR].contains(&program.as_str()) {
                return Err(refuse(tool, format!("there is no {program}, neither in guests nor on this machine")));
            }
        }
        Source::Guest(program) => found.files.push(installed(tool, root, program, None)?),
        Source::Nix(nix) => {
            let link = tool.place(&Nix::closure(arch))?.join("package");
            let package = fs::read_link(&link).map_err(|source| bpfassay_tool::ToolError::Part {
                name: tool.name.clone(),
                path: link.clone(),
                source,
            })?;
            let program = package.join(&nix.program);
            if !package.starts_with("/nix/store") || !is_there(root, &program.to_string_lossy()) {
                let problem =
                    format!("{} is not in this machine's Nix store: `nix copy` puts it there", program.display());
                return Err(refuse(tool, problem));
            }
            found.parts.insert(name(guest_request::package(&tool.name)), text(tool, &package)?);
            found.files.push(program);
        }
    }
    for file in tool.all_files()? {
        let (path, _) = beside(tool, &file)?;
        found.parts.insert(file, text(tool, &path)?);
        found.files.push(path);
    }
    Ok(found)
}

/// Reads a file next to the tool file. Returns its path without symbolic links, and its bytes.
fn beside(tool: &Supply<'_>, path: &str) -> Result<(PathBuf, Vec<u8>), Error> {
    let bytes = tool.read(path, MAX_FILE)?;
    Ok((real(tool, &tool.place(path)?)?, bytes))
}

/// Resolves symbolic links in `path`.
fn real(tool: &Supply<'_>, path: &Path) -> Result<PathBuf, Error> {
    // The folder of a tool file in the working directory is empty.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    fs::canonicalize(path).map_err(|source| {
        bpfassay_tool::ToolError::Part { name: tool.name.clone(), path: path.to_owned(), source }.into()
    })
}

/// Returns `path` as a word of a command line.
fn text(tool: &Supply<'_>, path: &Path) -> Result<String, Error> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| refuse(tool, format!("{} is not UTF-8: move it to another directory", path.display())))
}

fn is_there(root: &Path, path: &str) -> bool {
    fs::metadata(root.join(path.trim_start_matches('/'))).is_ok_and(|facts| facts.is_file())
}

/// Returns the program at `path` of this machine. In guests it comes from `package`.
fn installed(tool: &Supply<'_>, root: &Path, path: &str, package: Option<&str>) -> Result<PathBuf, Error> {
    if !is_there(root, path) {
        let how = package.map_or_else(
            || "install it, or change the tool file".to_owned(),
            |package| format!("install it (Debian has it in the package {package}), or name another program in a tool file of your own"),
        );
        return Err(refuse(tool, format!("this machine has no {path}, and here a tool is what is installed: {how}")));
    }
    let path = root.join(path.trim_start_matches('/'));
    must_be_executable(tool, &path)?;
    Ok(path)
}

fn must_be_executable(tool: &Supply<'_>, path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(facts) if facts.permissions().mode() & 0o111 != 0 => Ok(()),
        _ => Err(refuse(tool, format!("{} may not be executed: chmod +x", path.display()))),
    }
}

/// Checks that this machine runs the services that `tool` names.
fn check_services(tool: &Supply<'_>, root: &Path) -> Result<(), Error> {
    let is_missing = |service: &&MissingService| {
        let sign = match service {
            MissingService::Systemd => "run/systemd/system",
            MissingService::DBus => "run/dbus/system_bus_socket",
            MissingService::Containerd => "run/containerd/containerd.sock",
            MissingService::Docker => "run/docker.sock",
            MissingService::CriO => "run/crio/crio.sock",
            MissingService::Udev => "run/udev/control",
        };
        !root.join(sign).exists()
    };
    let missing: Vec<&str> = tool.needs.iter().filter(is_missing).map(|service| service.name()).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(refuse(tool, format!("it needs {}, which does not run on this machine", missing.join(", ")))),
    }
}

/// Refuses a tool if another program listens on one of its ports. The figures of that program would
/// be taken for the tool's.
fn check_ports(tool: &Tool) -> Result<(), Error> {
    let of_endpoint = |endpoint: &Endpoint| endpoint.port;
    let ready = match tool.ready {
        Ready::Port(port) => Some(port),
        _ => None,
    };
    let ports = tool.endpoint.iter().chain(&tool.more_endpoints).map(of_endpoint).chain(ready);
    for port in ports {
        if TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), CONNECTING).is_ok() {
            let problem = format!(
                "something listens on port {port} of the loopback interface already, and would be taken for the tool: stop it, or give the tool another port"
            );
            return Err(Error::ToolRefused { name: tool.name.clone(), problem });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, os::unix::fs::symlink};

    use super::*;

    fn loaded(folder: &Path, source: &str) -> LoadedFile {
        let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
        LoadedFile { file: bpfassay_tool::ToolFile::parse("t.toml", &text).unwrap(), folder: Some(folder.to_owned()) }
    }

    /// Returns the tool's command line on this machine.
    fn command(folder: &Path, source: &str) -> Result<String, String> {
        let loaded = loaded(folder, source);
        let own = BTreeMap::from([(layout::TRACER, "/opt/bpfassay-tracer".to_owned())]);
        let places = ToolPlaces::find(std::slice::from_ref(&loaded), (HOST, "6.18.44-x"), own)
            .map_err(|error| error.to_string())?;
        let tool = loaded.file.for_target(HOST, "6.18.44-x").unwrap();
        Ok(places.here(&tool).command.join(" "))
    }

    #[cfg(target_arch = "x86_64")]
    const HOST: Arch = Arch::X86_64;
    #[cfg(target_arch = "aarch64")]
    const HOST: Arch = Arch::Aarch64;
    #[cfg(target_arch = "riscv64")]
    const HOST: Arch = Arch::Riscv64;

    #[test]
    fn every_source_is_started_where_it_lies_on_this_machine() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().canonicalize().unwrap();
        let at = folder.display();
        fs::copy(std::env::current_exe().unwrap(), folder.join("prog")).unwrap();
        fs::write(folder.join("a.pl"), "").unwrap();
        fs::create_dir(folder.join("conf")).unwrap();
        fs::write(folder.join("conf/x.yml"), "").unwrap();
        let binary =
            |more: &str| format!("binary = {{ arch = '{HOST}', path = 'prog'{more} }}\nfiles = ['conf/x.yml']");
        // This machine has the libraries of its own programs.
        let start = "[start]\narguments = ['--config=/tools/mine/conf/x.yml', '/tools/mine', '/tools/mine-2/x', '/srv/tools/mine/x']";
        assert_eq!(
            command(&folder, &format!("{}\n{start}", binary(""))).unwrap(),
            format!("{at}/prog --config={at}/conf/x.yml {at} /tools/mine-2/x /srv/tools/mine/x")
        );
        let script = "script = { path = 'a.pl', interpreter = '/bin/sh' }";
        assert_eq!(command(&folder, script).unwrap(), format!("/bin/sh {at}/a.pl"));
        let kernels = "script = [{ path = 'a.pl', interpreter = '/bin/ash', kernels = ['6.1'] }, { path = 'a.pl', interpreter = '/bin/sh' }]";
        assert_eq!(command(&folder, kernels).unwrap(), format!("/bin/sh {at}/a.pl"));
        assert_eq!(command(&folder, "guest = { program = '/bpfassay/tracer' }").unwrap(), "/opt/bpfassay-tracer");
        assert_eq!(
            command(&folder, "guest = { program = '/bin/sh' }\n[start]\narguments = ['-c']").unwrap(),
            "/bin/sh -c"
        );
    }

    #[test]
    fn what_this_machine_lacks_is_refused_before_anything_begins() {
        let work = tempfile::tempdir().unwrap();
        let folder = work.path();
        fs::write(folder.join("prog"), "no program").unwrap();
        fs::copy("/bin/sh", folder.join("sh")).unwrap();
        let refused = |source: &str| command(folder, source).unwrap_err();
        assert!(refused(&format!("binary = {{ arch = '{HOST}', path = 'prog' }}")).contains("is no program for"));
        assert!(refused("object = { path = 'prog' }").contains("is no eBPF object"));
        assert!(refused("script = { path = 'none', interpreter = '/bin/sh' }").contains("cannot read"));
        let debian = refused("debian = { suite = 's', package = 'p', program = '/usr/bin/no-such-program' }");
        assert!(debian.contains("no /usr/bin/no-such-program") && debian.contains("package p"), "{debian}");
        assert!(refused("guest = { program = '/bpfassay/other' }").contains("there is no /bpfassay/other"));
        fs::set_permissions(folder.join("sh"), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(refused(&format!("binary = {{ arch = '{HOST}', path = 'sh' }}")).contains("chmod +x"));
        symlink("/etc/passwd", folder.join("out")).unwrap();
        refused("script = { path = 'out', interpreter = '/bin/sh' }");
        let needs = loaded(folder, "guest = { program = '/bin/sh' }\n[start]\nneeds = ['systemd', 'docker']");
        let nowhere = tempfile::tempdir().unwrap();
        fs::create_dir_all(nowhere.path().join("run/systemd/system")).unwrap();
        let error = check_services(&needs.supply(), nowhere.path()).unwrap_err().to_string();
        assert!(error.contains("it needs Docker, which does not run"), "{error}");
    }

    #[test]
    fn a_port_that_is_taken_is_refused() {
        let work = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let source = format!("guest = {{ program = '/bin/sh' }}\n[start]\nready = {{ port = {port} }}");
        let error = command(work.path(), &source).unwrap_err();
        assert!(error.contains(&format!("something listens on port {port}")), "{error}");
        drop(listener);
        command(work.path(), &source).unwrap();
    }

    proptest::proptest! {
        #[test]
        fn any_word_is_survived(word: String, name in "[a-z]{1,4}") {
            let place = ToolPlace {
                home: "/tools/a".to_owned(),
                folder: Some("/x/tools/a".to_owned()),
                parts: BTreeMap::from([(name, "/y".to_owned())]),
                files: Vec::new(),
            };
            let _ = place.here(&word);
            // A word without a path of the tool stays as it is.
            if !word.contains("/tools/a") {
                proptest::prop_assert_eq!(place.here(&word), word);
            }
        }
    }
}
