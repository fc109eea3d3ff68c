// SPDX-License-Identifier: MIT OR Apache-2.0
//! A tool as seen in the guest: the paths of its parts, and its command line. The code that copies
//! tools into guests and the code that starts them share only this module.

use bpfassay_protocol::{
    Arch, layout,
    tool_job::{Endpoint, Ready, Tool},
};

use crate::file::{ReportForm, Source, SourceEntry, ToolFile, of_arch, of_target};

/// Directory of all tools in the guest. Each tool has one subdirectory.
pub const HOME: &str = "/tools";

/// Loopback port on which the bundled tracer serves the maps of a bare object.
const OBJECT_PORT: u16 = 9127;

/// Placeholder for the script's path in arguments.
const SCRIPT: &str = "{script}";

/// Name of the directory for the program of workload `name`. It cannot collide with a tool name.
#[must_use]
pub fn of_workload(name: &str) -> String {
    format!("workload_{name}")
}

/// Path of tool `name`'s program from a file, at index `place` in the tool file.
#[must_use]
pub fn program(name: &str, place: usize) -> String {
    placed(name, "program", place, "")
}

/// Path of the directory of shared libraries for that program.
#[must_use]
pub fn libraries(name: &str, place: usize) -> String {
    placed(name, "lib", place, "")
}

/// Path of the link to the dynamic linker in that directory.
#[must_use]
pub fn loader(name: &str, place: usize) -> String {
    placed(name, "loader", place, "")
}

/// Path of the link to the store path of a Nix package.
#[must_use]
pub fn package(name: &str) -> String {
    placed(name, "package", 0, "")
}

/// Path of the script at index `place` in the tool file.
#[must_use]
pub fn script(name: &str, place: usize) -> String {
    placed(name, "script", place, "")
}

/// Path of the bare object at index `place` in the tool file.
#[must_use]
pub fn object(name: &str, place: usize) -> String {
    placed(name, "object", place, ".o")
}

fn placed(name: &str, what: &str, place: usize, suffix: &str) -> String {
    match place {
        0 => format!("{HOME}/{name}/{what}{suffix}"),
        place => format!("{HOME}/{name}/{what}-{place}{suffix}"),
    }
}

/// Reserved names in a tool's directory.
const OWN: [&str; 5] = ["program", "lib", "loader", "package", "script"];

/// Whether `name` is reserved in a tool's directory, with or without an index. Additional files
/// cannot have such names.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    let is_place = |rest: &str| {
        rest.is_empty() || rest.strip_prefix('-').is_some_and(|place| place.chars().all(|c| c.is_ascii_digit()))
    };
    OWN.iter().any(|own| name.strip_prefix(own).is_some_and(is_place))
}

/// Path of the additional file `path` of the tool file.
#[must_use]
pub fn file(name: &str, path: &str) -> String {
    format!("{HOME}/{name}/{path}")
}

impl ToolFile {
    /// Builds the tool's description for a guest of architecture `arch` with `kernel`.
    ///
    /// # Errors
    /// A message if the tool file has no program, package or object for this target.
    pub fn for_target(&self, arch: Arch, kernel: &str) -> Result<Tool, String> {
        let is_object = matches!(self.source, Source::Object(_));
        let form = self.report.as_ref().map(|report| &report.form);
        let mut endpoints = form.map(endpoints).unwrap_or_default().into_iter();
        Ok(Tool {
            name: self.name.clone(),
            command: self.command(arch, kernel)?,
            environment: self.environment.clone(),
            privileges: self.privileges.clone(),
            ready: if is_object { Ready::Port(OBJECT_PORT) } else { self.ready.clone() },
            stop: self.stop,
            endpoint: endpoints.next(),
            more_endpoints: endpoints.collect(),
            captured: is_object || form.is_some(),
            report_within_ms: self.report.as_ref().and_then(|report| report.within_ms),
            patience_ms: self.deadline_ms,
        })
    }

    fn command(&self, arch: Arch, kernel: &str) -> Result<Vec<String>, String> {
        let Source::Object(objects) = &self.source else {
            return command(&self.name, &self.source, &self.arguments, arch, kernel);
        };
        let (place, of) = entry(objects, "object", arch, kernel)?;
        let mut command = vec![layout::TRACER.to_owned(), "object".to_owned()];
        match of.path.strip_suffix(".bpf.o").filter(|_| of.bundled) {
            Some(name) => command.extend(["--bundled".to_owned(), name.to_owned()]),
            None => command.push(object(&self.name, place)),
        }
        for program in &of.programs {
            command.extend(["--program".to_owned(), program.clone()]);
        }
        if !of.contents.is_empty() {
            let text = serde_json::to_string(&of.contents).map_err(|error| error.to_string())?;
            command.extend(["--contents".to_owned(), text]);
        }
        for map in self.report.iter().flat_map(|report| report.form.maps()) {
            command.extend(["--map".to_owned(), map.clone()]);
        }
        command.extend(["--port".to_owned(), OBJECT_PORT.to_string()]);
        Ok(command)
    }
}

/// The endpoints of a form. Printed forms have none.
fn endpoints(form: &ReportForm) -> Vec<Endpoint> {
    let one = |port, path: &str, interval_ms| Endpoint { port, path: path.to_owned(), interval_ms };
    match form {
        ReportForm::Openmetrics { port, path, interval_ms } => vec![one(*port, path, *interval_ms)],
        ReportForm::OpenmetricsPages { pages, interval_ms } => {
            pages.iter().map(|page| one(page.port, &page.path, *interval_ms)).collect()
        }
        ReportForm::Map { .. } | ReportForm::Maps { .. } => vec![one(OBJECT_PORT, "/map", None)],
        ReportForm::JsonLines { .. }
        | ReportForm::Table { .. }
        | ReportForm::Histogram { .. }
        | ReportForm::Events { .. }
        | ReportForm::BpftraceJson { .. } => Vec::new(),
    }
}

/// Says that there is nothing for `arch`, or nothing for this kernel on it.
fn none(what: &str, arch: Arch, kernel: Option<&str>) -> String {
    let with = kernel.map(|kernel| format!(" with Linux {kernel}")).unwrap_or_default();
    format!("its file has no {what} for {arch}{with}")
}

/// Finds the entry of `list` for this target, and its index.
fn entry<'a, T: SourceEntry>(list: &'a [T], what: &str, arch: Arch, kernel: &str) -> Result<(usize, &'a T), String> {
    of_target(list, arch, kernel)
        .ok_or_else(|| none(what, arch, of_arch(list, arch).next().is_some().then_some(kernel)))
}

/// The command line for `source`, whose parts are in the directory `name` of a guest with
/// architecture `arch` and `kernel`.
///
/// # Errors
/// A message if `source` has no program, script or package for this target.
pub fn command(
    name: &str,
    source: &Source,
    arguments: &[String],
    arch: Arch,
    kernel: &str,
) -> Result<Vec<String>, String> {
    let mut command = match source {
        Source::Binary(list) => {
            let (place, binary) = entry(list, "program", arch, kernel)?;
            let linker = || [loader(name, place), "--library-path".to_owned(), libraries(name, place)];
            let linker = binary.libraries.as_ref().map(|_| linker());
            linker.into_iter().flatten().chain([program(name, place)]).collect()
        }
        Source::Debian(list) => vec![entry(list, "package", arch, kernel)?.1.program.clone()],
        Source::Guest(program) => vec![program.clone()],
        Source::Nix(nix) if nix.closures.contains(&arch) => vec![format!("{}/{}", package(name), nix.program)],
        Source::Nix(nix) => {
            return Err(format!(
                "it comes from a Nix package ({}), which does not lie beside the tool file for {arch}: `lib.mkTool` of the \
                 flake puts it there",
                nix.attribute
            ));
        }
        Source::Script(list) => {
            let (place, of) = entry(list, "script", arch, kernel)?;
            let script = script(name, place);
            let is_named = arguments.iter().any(|arg| arg.contains(SCRIPT));
            let args = arguments.iter().map(|arg| arg.replace(SCRIPT, &script));
            let mut command: Vec<String> = std::iter::once(of.interpreter.clone()).chain(args).collect();
            if !is_named {
                command.push(script);
            }
            return Ok(command);
        }
        Source::Object(_) => return Err("an eBPF object is no program".to_owned()),
    };
    command.extend(arguments.iter().cloned());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(source: &str, start: &str, arch: Arch) -> Result<String, String> {
        let report = if source.starts_with("object") {
            "[report]\nmap = { map = 'counts' }\nfigures = [{ value = 'value', operations = 'read', unit = 'calls' }]"
        } else {
            ""
        };
        let text = format!(
            "schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n[start]\n{start}\n{report}\n"
        );
        Ok(ToolFile::parse("t.toml", &text).unwrap().for_target(arch, "6.12")?.command.join(" "))
    }

    #[test]
    fn every_source_is_started_where_it_lies() {
        let binary = "binary = { arch = 'x86_64', path = 'a' }";
        assert_eq!(command(binary, "arguments = ['-v']", Arch::X86_64).unwrap(), "/tools/mine/program -v");
        assert_eq!(command(binary, "", Arch::Riscv64).unwrap_err(), "its file has no program for riscv64");
        let dynamic = "binary = { arch = 'x86_64', path = 'a', libraries = 'lib' }";
        assert_eq!(
            command(dynamic, "arguments = ['1']", Arch::X86_64).unwrap(),
            "/tools/mine/loader --library-path /tools/mine/lib /tools/mine/program 1"
        );
        let debian = "debian = { suite = 'trixie', package = 'libbpf-tools', program = '/usr/sbin/vfsstat-libbpf' }";
        assert_eq!(command(debian, "arguments = ['1']", Arch::Aarch64).unwrap(), "/usr/sbin/vfsstat-libbpf 1");
        let script = "script = { path = 'a.bt', interpreter = '/usr/bin/bpftrace' }";
        assert_eq!(command(script, "", Arch::X86_64).unwrap(), "/usr/bin/bpftrace /tools/mine/script");
        assert_eq!(
            command(script, "arguments = ['{script}', 'x']", Arch::X86_64).unwrap(),
            "/usr/bin/bpftrace /tools/mine/script x"
        );
        assert_eq!(
            command("object = { path = 'a.o', programs = ['p'] }", "", Arch::X86_64).unwrap(),
            "/bpfassay/tracer object /tools/mine/object.o --program p --map counts --port 9127"
        );
        let set = "set = { map = 'conf', key = 0, value = { fs = { magic = 7 } } }";
        assert_eq!(
            command(&format!("object = {{ path = 'a.o', {set}, rodata = {{ pid = -1 }} }}"), "", Arch::X86_64).unwrap(),
            "/bpfassay/tracer object /tools/mine/object.o --contents \
             {\"set\":[{\"map\":\"conf\",\"key\":{\"key\":0},\"value\":{\"fs.magic\":7}}],\"rodata\":{\"pid\":-1}} \
             --map counts --port 9127"
        );
        let bundled = crate::read::load("ceems-layout").unwrap().file.for_target(Arch::Riscv64, "6.12").unwrap();
        assert_eq!(
            bundled.command.join(" "),
            "/bpfassay/tracer object --bundled ceems-layout --map counts --port 9127"
        );
        let nix = command("nix = { attribute = 'bcc', program = 'bin/x' }", "", Arch::X86_64).unwrap_err();
        assert!(nix.contains("does not lie beside the tool file for x86_64: `lib.mkTool`"), "{nix}");
    }

    #[test]
    fn each_kernel_has_what_is_for_it() {
        let started = |source: &str, kernel: &str| {
            let text = format!("schema = 1\n[tool]\nname = 'mine'\ndescription = 'x'\n[source]\n{source}\n");
            let tool = ToolFile::parse("t.toml", &text).unwrap().for_target(Arch::X86_64, kernel);
            tool.map(|tool| tool.command.join(" "))
        };
        let object = "object = [{ path = 'old.o', kernels = ['5.10', '6.1'] }, { path = 'new.o' }]";
        let binary = "binary = [{ arch = 'x86_64', path = 'a', kernels = ['6.1'] }, { arch = 'x86_64', path = 'b', libraries = 'l' }]";
        let script = "script = [{ path = 'a.bt', interpreter = '/b', kernels = ['6.1'] }, { path = 'b.bt', interpreter = '/b' }]";
        let debian = "debian = [{ suite = 's', package = 'p', program = '/old', kernels = ['6.1'] }, \
                      { suite = 's', package = 'q', program = '/new' }]";
        for (source, old, new) in [
            (object, "/tools/mine/object.o", "/tools/mine/object-1.o"),
            (
                binary,
                "/tools/mine/program",
                "/tools/mine/loader-1 --library-path /tools/mine/lib-1 /tools/mine/program-1",
            ),
            (script, "/b /tools/mine/script", "/b /tools/mine/script-1"),
            (debian, "/old", "/new"),
        ] {
            for (kernel, part) in [("6.1", old), ("6.1.158-1", old), ("6.12", new)] {
                let command = started(source, kernel).unwrap();
                let is_part = command == part || command.starts_with(&format!("/bpfassay/tracer object {part} "));
                assert!(is_part, "{kernel}: {command}");
            }
        }
        for (what, source) in [("program", binary), ("script", script), ("package", debian)] {
            let (only, _) = source.split_once("}, {").unwrap();
            let error = started(&format!("{only}}}]"), "6.12").unwrap_err();
            assert_eq!(error, format!("its file has no {what} for x86_64 with Linux 6.12"));
        }
    }

    #[test]
    fn no_file_may_have_the_name_of_what_is_the_tools_own() {
        for name in ["program", "program-1", "lib-20", "script", "loader-", "package"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["programs", "program-x", "lib-1.so", "conf.yml", "object.o"] {
            assert!(!is_reserved(name), "{name}");
        }
    }
}
