// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads tool files.

#![allow(
    clippy::disallowed_methods,
    reason = "the tool file that the user names, and whether a directory is beside it"
)]

mod contents_keys;
mod places;
pub(crate) mod program_list;
mod report_keys;
mod start_keys;

use std::{
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use bpfassay_input::document::{self, Field, Invalid, Reported, Section, is_file_name, suggestion};
use bpfassay_protocol::Arch;

use self::{
    places::{argument, attribute, in_the_guest, package, relative},
    start_keys::{StartPart, start},
};
use crate::{
    Ready, Stop, TOOL_SCHEMA, bundled, elf,
    error::ToolError,
    file::{Binary, Debian, DebianPackage, Nix, Object, Script, Source, ToolFile, is_of_series},
    guest_request,
    pattern::ToolPattern,
    supply::Supply,
};

/// Size limit of a tool file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Longest time in a tool file, in milliseconds.
const HOUR_MS: u64 = 3_600_000;
/// Limit for the number of arguments and of figures.
pub(crate) const MAX_ENTRIES: usize = 64;

/// A tool file and its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// The contents of the tool file.
    pub file: ToolFile,
    /// The directory that relative paths refer to; `None` for a bundled tool file.
    pub folder: Option<PathBuf>,
}

impl LoadedFile {
    /// Returns the needs of the tool in guests.
    #[must_use]
    pub fn supply(&self) -> Supply<'_> {
        let ToolFile { name, source, files, needs, kernel, .. } = &self.file;
        Supply { name: name.clone(), source, files, needs, kernel: kernel.clone(), folder: self.folder.as_deref() }
    }
}

/// Loads the bundled tool `name`, or the tool file at that path.
///
/// # Errors
/// [`ToolError::Unknown`] if `name` is neither a bundled tool nor a file path; [`ToolError::Read`]
/// if the file cannot be read; [`ToolError::IsTool`] for an ELF file; the errors of
/// [`ToolFile::parse`].
pub fn load(name: &str) -> Result<LoadedFile, ToolError> {
    if let Some(file) = bundled::tool(name)? {
        return Ok(LoadedFile { file, folder: None });
    }
    let path = Path::new(name);
    if !is_file_name(name) {
        return Err(ToolError::Unknown {
            name: name.chars().take(64).collect(),
            nearest: suggestion(name, bundled::names()),
        });
    }
    let file = bpfassay_input::open(path).map_err(ToolError::read(path))?;
    // Objects can be larger than a tool file.
    let mut start = [0; 4];
    let length = file.read_at(&mut start, 0).map_err(ToolError::read(path))?;
    if start.get(..length).is_some_and(elf::is_elf) {
        return Err(ToolError::IsTool { path: path.to_owned() });
    }
    let text = bpfassay_input::read_text_file(file, MAX_FILE).map_err(ToolError::read(path))?;
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut file = ToolFile::parse(name, &text)?;
    if let Source::Nix(nix) = &mut file.source {
        nix.closures = Arch::ALL.iter().copied().filter(|&arch| folder.join(Nix::closure(arch)).is_dir()).collect();
    }
    Ok(LoadedFile { file, folder: Some(folder) })
}

impl ToolFile {
    /// Parses a tool file from `text`. `origin` names it in messages.
    ///
    /// # Errors
    /// [`Invalid`] with all errors in the text and their places.
    pub fn parse(origin: &str, text: &str) -> Result<Self, Invalid> {
        document::read(origin, text, Self::read)
    }

    fn read(root: &Section<'_, '_>) -> Result<Self, Reported> {
        root.only(&["schema", "tool", "source", "start", "stop", "report"]);
        // The keys of another schema can have other meanings.
        root.need("schema", |schema| match schema.number(1..=u32::MAX)? {
            TOOL_SCHEMA => Ok(()),
            _ => Err(schema
                .error(format!("this program reads schema {TOOL_SCHEMA}: use the version that the file was made for"))),
        })?;
        let tool = root.need("tool", |tool| {
            let tool = tool.table()?;
            tool.only(&["name", "description"]);
            let name = tool.need("name", Field::short_name);
            let description = tool.need("description", line);
            Ok((name?, description?))
        });
        let source = root.need("source", |field| source(field, SOURCES, &["files"], true));
        let files = root.need("source", |field| field.table()?.or("files", Vec::new(), files));
        let is_object = root.get("source").is_some_and(|source| source.has("object"));
        let mut default = StartPart::of_programs();
        if is_object {
            default.ready = Ready::Started;
        }
        let start = root.or("start", default.clone(), |field| start(field, default, is_object));
        let stop = root.or("stop", Stop::default(), stop);
        let report = root.optional("report", |field| report_keys::read(field, is_object));
        let (name, description) = tool?;
        let StartPart { arguments, environment, privileges, needs, kernel, ready, deadline_ms } = start?;
        Ok(Self {
            schema: TOOL_SCHEMA,
            name,
            description,
            files: files?,
            arguments,
            environment,
            privileges,
            needs,
            kernel,
            ready,
            deadline_ms,
            stop: stop?,
            source: source?,
            report: report?,
        })
    }
}

fn line(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?.trim();
    if (1..=300).contains(&text.len()) && !text.contains(char::is_control) {
        return Ok(text.to_owned());
    }
    Err(field.error("give one line of at most 300 bytes"))
}

/// Reads a list of at most [`MAX_ENTRIES`] elements.
fn entries<'d, 'i, T>(
    field: &Field<'d, 'i>,
    read: impl Fn(&Field<'d, 'i>) -> Result<T, Reported>,
) -> Result<Vec<T>, Reported> {
    check_length(field, field.list()?.len())?;
    field.each(read)
}

/// Checks that a list has at most [`MAX_ENTRIES`] elements.
fn check_length(field: &Field<'_, '_>, length: usize) -> Result<(), Reported> {
    match length {
        0..=MAX_ENTRIES => Ok(()),
        _ => Err(field.error(format!("the list has {length} entries, and may have {MAX_ENTRIES}"))),
    }
}

/// Keys of the sources of tools.
const SOURCES: &[&str] = &["binary", "debian", "nix", "script", "object", "guest"];

/// Reads the additional files and directories.
fn files(field: &Field<'_, '_>) -> Result<Vec<String>, Reported> {
    let files = field.distinct("file", |file| {
        let path = relative(file)?;
        match path.split('/').next() {
            Some(first) if guest_request::is_reserved(first) => Err(file.error(format!(
                "`{first}` has another meaning in the directory of a tool: give the file another name"
            ))),
            _ => Ok(path),
        }
    })?;
    check_length(field, files.len())?;
    let is_below =
        |path: &String, other: &String| path.strip_prefix(other.as_str()).is_some_and(|rest| rest.starts_with('/'));
    match files.iter().find(|path| files.iter().any(|other| is_below(path, other))) {
        Some(path) => Err(field.error(format!("`{path}` lies below another of the files"))),
        None => Ok(files),
    }
}

/// Returns the only key of `section` that is in `known`.
fn one_of<'d, 'i>(
    section: &Section<'d, 'i>,
    known: &[&'static str],
) -> Result<(&'static str, Field<'d, 'i>), Reported> {
    let mut found = known.iter().filter_map(|&key| section.get(key).map(|field| (key, field)));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(section.error(format!("give exactly one of {}", known.join(", ")))),
    }
}

/// Reads the source of a workload's program. It has no kinds that only tools can use, and does not
/// depend on the kernel.
///
/// # Errors
/// Fails if the source is invalid. The complaint is in the document.
pub fn program_source(field: &Field<'_, '_>) -> Result<Source, Reported> {
    source(field, &["binary", "debian", "script", "guest"], &[], false)
}

/// Reads the name of a Debian suite.
///
/// # Errors
/// Fails if the value is not a valid name of a suite.
pub fn suite(field: &Field<'_, '_>) -> Result<String, Reported> {
    package(field)
}

/// Reads the arguments of a program, without its name.
///
/// # Errors
/// Fails if an argument is invalid. The complaint is in the document.
pub fn arguments(field: &Field<'_, '_>) -> Result<Vec<String>, Reported> {
    entries(field, argument)
}

/// Reads a source of one of the kinds in `known`. Its section can also have the keys `more`.
/// `by_kernel` allows entries to name kernels.
fn source(field: &Field<'_, '_>, known: &[&'static str], more: &[&str], by_kernel: bool) -> Result<Source, Reported> {
    let section = field.table()?;
    section.only(&[known, more].concat());
    let (kind, field) = one_of(&section, known)?;
    if let Some(files) = section.get("files")
        && kind == "object"
    {
        return Err(files.error("a bare object has no program that would read files"));
    }
    match kind {
        "binary" => per_target(&field, &["path", "libraries"], by_kernel, binary).map(Source::Binary),
        "debian" => per_target(&field, &["suite", "package", "with", "program"], by_kernel, program_of_debian)
            .map(Source::Debian),
        "object" => {
            per_target(&field, &["path", "programs", "set", "rodata", "maps"], by_kernel, object).map(Source::Object)
        }
        "guest" => {
            let section = field.table()?;
            section.only(&["program"]);
            section.need("program", in_the_guest).map(Source::Guest)
        }
        "nix" => {
            let section = field.table()?;
            section.only(&["attribute", "program"]);
            let attribute = section.need("attribute", attribute);
            let program = section.need("program", relative);
            Ok(Source::Nix(Nix { attribute: attribute?, program: program?, closures: Vec::new() }))
        }
        _ => per_target(&field, &["path", "interpreter", "debian"], by_kernel, script).map(Source::Script),
    }
}

fn binary(section: &Section<'_, '_>, archs: &[Arch], kernels: &[String]) -> Result<Binary, Reported> {
    let libraries = section.optional("libraries", relative);
    let path = section.need("path", relative);
    match archs {
        [arch] => Ok(Binary { arch: *arch, kernels: kernels.to_vec(), path: path?, libraries: libraries? }),
        _ => Err(section.error("a program is for one architecture: name it with `arch`")),
    }
}

fn program_of_debian(section: &Section<'_, '_>, archs: &[Arch], kernels: &[String]) -> Result<Debian, Reported> {
    let from = debian(section);
    let program = section.need("program", in_the_guest);
    Ok(Debian { archs: archs.to_vec(), kernels: kernels.to_vec(), from: from?, program: program? })
}

fn object(section: &Section<'_, '_>, archs: &[Arch], kernels: &[String]) -> Result<Object, Reported> {
    let programs = section.or("programs", Vec::new(), |field| field.distinct("program", function));
    let contents = contents_keys::read(section);
    let path = section.need("path", relative);
    Ok(Object {
        archs: archs.to_vec(),
        kernels: kernels.to_vec(),
        path: path?,
        bundled: false,
        programs: programs?,
        contents: contents?,
    })
}

fn script(section: &Section<'_, '_>, archs: &[Arch], kernels: &[String]) -> Result<Script, Reported> {
    let debian = section.optional("debian", |field| {
        let section = field.table()?;
        section.only(&["suite", "package", "with"]);
        debian(&section)
    });
    let path = section.need("path", relative);
    let interpreter = section.need("interpreter", in_the_guest);
    let (archs, kernels) = (archs.to_vec(), kernels.to_vec());
    Ok(Script { archs, kernels, path: path?, interpreter: interpreter?, debian: debian? })
}

fn debian(section: &Section<'_, '_>) -> Result<DebianPackage, Reported> {
    let with = section.or("with", Vec::new(), |field| field.distinct("package", package));
    let suite = section.need("suite", package);
    let name = section.need("package", package);
    Ok(DebianPackage { suite: suite?, package: name?, with: with? })
}

/// Reads a list of tables, or one table. The key `arch` limits an entry to some architectures. The
/// key `kernels`, which `by_kernel` allows, limits it to some kernels. Two entries cannot cover the
/// same target.
fn per_target<'d, 'i, T>(
    field: &Field<'d, 'i>,
    keys: &[&str],
    by_kernel: bool,
    read: impl Fn(&Section<'d, 'i>, &[Arch], &[String]) -> Result<T, Reported>,
) -> Result<Vec<T>, Reported> {
    let mut taken: Vec<(Arch, Option<String>)> = Vec::new();
    field.each(|element| {
        let section = element.table()?;
        let more: &[&str] = if by_kernel { &["arch", "kernels"] } else { &["arch"] };
        section.only(&[keys, more].concat());
        let archs = section.or("arch", Vec::new(), |field| field.distinct("architecture", Field::name::<Arch>))?;
        let kernels = match by_kernel {
            true => section.or("kernels", Vec::new(), |field| field.distinct("kernel", series))?,
            false => Vec::new(),
        };
        let all = if archs.is_empty() { Arch::ALL } else { &archs };
        let of_arch = |arch: &Arch| -> Vec<(Arch, Option<String>)> {
            match kernels.is_empty() {
                true => vec![(*arch, None)],
                false => kernels.iter().map(|kernel| (*arch, Some(kernel.clone()))).collect(),
            }
        };
        for (arch, kernel) in all.iter().flat_map(of_arch) {
            let is_same = |other: &Option<String>| match (&kernel, other) {
                (None, None) => true,
                (Some(one), Some(other)) => is_of_series(one, other) || is_of_series(other, one),
                _ => false,
            };
            if taken.iter().any(|(other, series)| *other == arch && is_same(series)) {
                let with = kernel.map(|kernel| format!(" with Linux {kernel}")).unwrap_or_default();
                return Err(element.error(format!("there is an entry for {arch}{with} already")));
            }
            taken.push((arch, kernel));
        }
        read(&section, &archs, &kernels)
    })
}

/// Reads a kernel series as studies name it: `6.12`, `7.3-rc`.
fn series(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    let is_series = (1..=32).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '~'));
    if is_series { Ok(text.to_owned()) } else { Err(field.error("give a kernel as studies name it, such as \"6.12\"")) }
}

/// Whether `text` has 1 to 127 letters, digits and `_`.
fn is_word(text: &str) -> bool {
    (1..=127).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads the name of a function in an object.
fn function(field: &Field<'_, '_>) -> Result<String, Reported> {
    let text = field.text()?;
    if is_word(text) { Ok(text.to_owned()) } else { Err(field.error("give the name of a function of the object")) }
}

/// Reads a regular expression.
///
/// # Errors
/// [`Reported`] if the value is not text, or not an accepted regular expression. The complaint is
/// in the document.
pub(crate) fn pattern(field: &Field<'_, '_>) -> Result<ToolPattern, Reported> {
    field.name()
}

fn stop(field: &Field<'_, '_>) -> Result<Stop, Reported> {
    let section = field.table()?;
    section.only(&["signal", "grace"]);
    let default = Stop::default();
    let signal = section.or("signal", default.signal, Field::name);
    let grace_ms = section.or("grace", default.grace_ms, |field| field.milliseconds(0..=HOUR_MS));
    Ok(Stop { signal: signal?, grace_ms: grace_ms? })
}
