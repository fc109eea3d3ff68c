//! Workloads, and the IOR scripts that they name.

use bpfassay_document::{Field, Invalid, Section, distinct, short_name};
use bpfassay_protocol::job::{FileSystem, Microbenchmark, Nfs};

use super::{
    FindScript,
    command::{command, fio},
};
use crate::{EngineChoice, IorSpec, IorTest, StudyError, WorkloadKind, WorkloadSpec, bundled, ior};

/// What the bytes per path of a workload `io-paths` must be a multiple of: a page, and what O_DIRECT is content with.
const PATHS_UNIT: u64 = 4096;

/// Bytes per path where a study does not say: 16 calls each.
const DEFAULT_PATHS_SIZE: u64 = 256 << 10;

/// Operations of a workload without files where a study does not say, and at most.
const DEFAULT_OPERATIONS: u64 = 10_000;
const MAX_OPERATIONS: u64 = 1_000_000_000;

pub(super) fn workloads(
    field: &Field<'_, '_>,
    scripts: FindScript<'_>,
    file_systems: &[FileSystem],
) -> Result<Vec<WorkloadSpec>, StudyError> {
    let mut specs: Vec<WorkloadSpec> = Vec::new();
    for element in field.list()? {
        let section = element.table()?;
        let words: Vec<(&str, &str)> = WorkloadKind::WORDS.iter().map(|&word| (word, word)).collect();
        let kind = section.get("type").map_or(Ok("ior"), |kind| kind.word(&words))?;
        let (default_name, kind) = match kind {
            "io-paths" => {
                section.only(&["type", "name", "size"])?;
                (Some(kind.to_owned()), WorkloadKind::IoPaths { size: paths_size(&section, file_systems)? })
            }
            "kernel-features" => {
                section.only(&["type", "name"])?;
                (Some(kind.to_owned()), WorkloadKind::KernelFeatures)
            }
            "command" => {
                // Its rows go by that name.
                section.need("name")?;
                (None, WorkloadKind::Command(command(&section)?))
            }
            "fio" => (Some(kind.to_owned()), WorkloadKind::Command(fio(&section, file_systems)?)),
            "futex" | "tcp" | "shared-memory" => (Some(kind.to_owned()), microbenchmark(&section)?),
            _ => {
                let ior = ior_spec(&element, &section, scripts, file_systems)?;
                (ior.script.as_ref().map(|name| name.trim_end_matches(".ior").to_owned()), WorkloadKind::Ior(ior))
            }
        };
        let name = match (section.get("name"), default_name) {
            (Some(name), _) => short_name(&name)?,
            (None, Some(name)) => name,
            (None, None) => {
                return Err(section.error("key `name` is missing: inline options have no file name to go by").into());
            }
        };
        if specs.iter().any(|known| known.name == name) {
            return Err(element
                .error(format!("a workload `{name}` stands here already: give this one another `name`"))
                .into());
        }
        specs.push(WorkloadSpec { name, kind });
    }
    Ok(specs)
}

fn ior_spec(
    element: &Field<'_, '_>,
    section: &Section<'_, '_>,
    scripts: FindScript<'_>,
    file_systems: &[FileSystem],
) -> Result<IorSpec, StudyError> {
    section.only(&["type", "name", "script", "options", "ranks", "engine", "interfaces", "neighbour"])?;
    let (script, tests) = match (section.get("script"), section.get("options")) {
        (Some(script), None) => {
            let name = script.text()?;
            (Some(name.to_owned()), tests_of_script(&script, name, scripts)?)
        }
        (None, Some(options)) => (None, vec![test_of_options(&options)?]),
        _ => return Err(section.error("give either `script` or `options`").into()),
    };
    let ranks = section.get("ranks").map_or(Ok(1), |ranks| ranks.number(1..=1024))?;
    for (index, test) in tests.iter().enumerate() {
        fits(test, ranks, file_systems).map_err(|message| element.error(format!("test {index}: {message}")))?;
    }
    Ok(IorSpec {
        script,
        tests,
        ranks,
        engine: section.get("engine").map_or(Ok(EngineChoice::Auto), |engine| engine.word(EngineChoice::WORDS))?,
        interfaces: match section.get("interfaces") {
            Some(interfaces) => distinct(&interfaces, "interface", Field::name)?,
            None => Vec::new(),
        },
        neighbour: section.get("neighbour").map_or(Ok(false), |neighbour| neighbour.boolean())?,
    })
}

/// A workload whose type is the name of a microbenchmark.
fn microbenchmark(section: &Section<'_, '_>) -> Result<WorkloadKind, Invalid> {
    let microbenchmark: Microbenchmark = section.need("type")?.name()?;
    let Some((least, most, default)) = microbenchmark.sizes() else {
        section.only(&["type", "name", "operations"])?;
        return Ok(WorkloadKind::Microbenchmark { microbenchmark, operations: operations(section)?, size: 0 });
    };
    section.only(&["type", "name", "operations", "size"])?;
    let size = section.get("size").map_or(Ok(default), |size| size.number(least..=most))?;
    Ok(WorkloadKind::Microbenchmark { microbenchmark, operations: operations(section)?, size })
}

fn operations(section: &Section<'_, '_>) -> Result<u64, Invalid> {
    section.get("operations").map_or(Ok(DEFAULT_OPERATIONS), |operations| operations.number(1..=MAX_OPERATIONS))
}

/// Bytes per path of a workload `io-paths`.
fn paths_size(section: &Section<'_, '_>, file_systems: &[FileSystem]) -> Result<u64, Invalid> {
    let Some(field) = section.get("size") else { return Ok(DEFAULT_PATHS_SIZE) };
    let size = field.number(PATHS_UNIT..=1 << 30)?;
    if !size.is_multiple_of(PATHS_UNIT) {
        return Err(field.error(format!("{size} is not a multiple of {PATHS_UNIT}")));
    }
    for file_system in file_systems {
        // Two files of that size lie there at once.
        if size.saturating_mul(2) > u64::from(size_mib(file_system)) << 20 {
            return Err(field.error(format!(
                "two files of {size} bytes do not fit into a file system of {} MiB (`file_systems`, `size_mib`)",
                size_mib(file_system)
            )));
        }
    }
    Ok(size)
}

pub(super) const fn size_mib(file_system: &FileSystem) -> u32 {
    let (FileSystem::Nfs(Nfs { size_mib, .. }) | FileSystem::Tmpfs { size_mib }) = file_system;
    *size_mib
}

/// Whether the files of `test` fit into each of `file_systems`.
fn fits(test: &IorTest, ranks: u32, file_systems: &[FileSystem]) -> Result<(), String> {
    let size = ior::least_size(test, ranks).ok_or("the test moves more bytes than fit into 63 bits")?;
    for file_system in file_systems {
        let size_mib = size_mib(file_system);
        if size > u64::from(size_mib) << 20 {
            return Err(format!(
                "its files of {} MiB do not fit into a file system of {size_mib} MiB (`file_systems`, `size_mib`)",
                size.div_ceil(1 << 20)
            ));
        }
    }
    Ok(())
}

fn tests_of_script(field: &Field<'_, '_>, name: &str, scripts: FindScript<'_>) -> Result<Vec<IorTest>, StudyError> {
    let stem = name.strip_suffix(".ior").unwrap_or_default();
    if stem.is_empty()
        || stem.contains(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.')))
    {
        return Err(field
            .error("give the file name of a script: lower-case letters, digits, `-` and `.`, ending in `.ior`")
            .into());
    }
    let Some(text) = scripts(name)? else {
        let bundled = bundled::script_names().collect::<Vec<_>>().join(", ");
        return Err(field
            .error(format!("no script `{name}` beside the study or among the bundled ones, which are {bundled}"))
            .into());
    };
    ior::tests_of_script(name, &text).map_err(|message| field.error(message).into())
}

/// Options as a list of words, or as one text with blanks between them.
fn test_of_options(field: &Field<'_, '_>) -> Result<IorTest, Invalid> {
    let words = match field.text() {
        Ok(text) => text.split_ascii_whitespace().collect(),
        Err(_) => field.list()?.iter().map(Field::text).collect::<Result<Vec<&str>, _>>()?,
    };
    ior::test_of_args(&words).map_err(|message| field.error(message))
}
