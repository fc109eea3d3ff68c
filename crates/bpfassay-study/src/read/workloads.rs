//! Workloads, and the IOR scripts that they name.

use bpfassay_input::document::{Field, Reported, Section};
use bpfassay_protocol::job::{FileSystem, Microbenchmark, Nfs};

use super::{
    Scripts,
    command::{command, fio},
};
use crate::{EngineChoice, IorSpec, IorTest, WorkloadKind, WorkloadSpec, bundled, ior};

/// What the bytes per path of a workload `io-paths` must be a multiple of: a page, and what O_DIRECT is content with.
const PATHS_UNIT: u64 = 4096;

/// Bytes per path where a study does not say: 16 calls each.
const DEFAULT_PATHS_SIZE: u64 = 256 << 10;

/// Operations of a workload without files where a study does not say, and at most.
const DEFAULT_OPERATIONS: u64 = 10_000;
const MAX_OPERATIONS: u64 = 1_000_000_000;

pub(super) fn workloads(
    field: &Field<'_, '_>,
    scripts: &Scripts<'_>,
    file_systems: &[FileSystem],
) -> Result<Vec<WorkloadSpec>, Reported> {
    let mut taken: Vec<String> = Vec::new();
    field.each(|element| {
        let section = element.table()?;
        let kinds: Vec<(&str, &str)> = WorkloadKind::NAMES.iter().map(|&name| (name, name)).collect();
        let kind = section.or("type", "ior", |kind| kind.choice(&kinds))?;
        let own_name = section.optional("name", Field::short_name);
        let (default_name, kind) = match kind {
            "io-paths" => {
                section.only(&["type", "name", "size"]);
                (Some(kind.to_owned()), WorkloadKind::IoPaths { size: paths_size(&section, file_systems)? })
            }
            "kernel-features" => {
                section.only(&["type", "name"]);
                (Some(kind.to_owned()), WorkloadKind::KernelFeatures)
            }
            "command" => {
                // Its rows go by that name.
                section.need("name", |_| Ok(()))?;
                (None, WorkloadKind::Command(command(&section)?))
            }
            "fio" => (Some(kind.to_owned()), WorkloadKind::Command(fio(&section, file_systems)?)),
            "futex" | "tcp" | "shared-memory" => (Some(kind.to_owned()), microbenchmark(&section)?),
            _ => {
                let ior = ior_spec(element, &section, scripts, file_systems)?;
                (ior.script.as_ref().map(|name| name.trim_end_matches(".ior").to_owned()), WorkloadKind::Ior(ior))
            }
        };
        let Some(name) = own_name?.or(default_name) else {
            return Err(section.error("key `name` is missing: inline options have no file name to go by"));
        };
        if taken.contains(&name) {
            return Err(element.error(format!("a workload `{name}` stands here already: give this one another `name`")));
        }
        taken.push(name.clone());
        Ok(WorkloadSpec { name, kind })
    })
}

fn ior_spec(
    element: &Field<'_, '_>,
    section: &Section<'_, '_>,
    scripts: &Scripts<'_>,
    file_systems: &[FileSystem],
) -> Result<IorSpec, Reported> {
    section.only(&["type", "name", "script", "options", "ranks", "engine", "interfaces", "neighbour"]);
    let tests = match (section.get("script"), section.get("options")) {
        (Some(script), None) => tests_of_script(&script, scripts).map(|(name, tests)| (Some(name), tests)),
        (None, Some(options)) => test_of_options(&options).map(|test| (None, vec![test])),
        _ => Err(section.error("give either `script` or `options`")),
    };
    let ranks = section.or("ranks", 1, |ranks| ranks.number(1..=1024));
    let engine = section.or("engine", EngineChoice::Auto, |engine| engine.choice(EngineChoice::NAMES));
    let interfaces = section.or("interfaces", Vec::new(), |interfaces| interfaces.distinct("interface", Field::name));
    let neighbour = section.or("neighbour", false, Field::boolean);
    let ((script, tests), ranks) = (tests?, ranks?);
    for (index, test) in tests.iter().enumerate() {
        fits(test, ranks, file_systems).map_err(|message| element.error(format!("test {index}: {message}")))?;
    }
    Ok(IorSpec { script, tests, ranks, engine: engine?, interfaces: interfaces?, neighbour: neighbour? })
}

/// A workload whose type is the name of a microbenchmark.
fn microbenchmark(section: &Section<'_, '_>) -> Result<WorkloadKind, Reported> {
    let microbenchmark: Microbenchmark = section.need("type", Field::name)?;
    let operations = |section: &Section<'_, '_>| {
        section.or("operations", DEFAULT_OPERATIONS, |operations| operations.number(1..=MAX_OPERATIONS))
    };
    let Some((least, most, default)) = microbenchmark.sizes() else {
        section.only(&["type", "name", "operations"]);
        return Ok(WorkloadKind::Microbenchmark { microbenchmark, operations: operations(section)?, size: 0 });
    };
    section.only(&["type", "name", "operations", "size"]);
    let size = section.or("size", default, |size| size.number(least..=most));
    Ok(WorkloadKind::Microbenchmark { microbenchmark, operations: operations(section)?, size: size? })
}

/// Bytes per path of a workload `io-paths`.
fn paths_size(section: &Section<'_, '_>, file_systems: &[FileSystem]) -> Result<u64, Reported> {
    section.or("size", DEFAULT_PATHS_SIZE, |field| {
        let size = field.number(PATHS_UNIT..=1 << 30)?;
        if !size.is_multiple_of(PATHS_UNIT) {
            return Err(field.error(format!("{size} is not a multiple of {PATHS_UNIT}")));
        }
        // Two files of that size lie there at once.
        let is_full = |file_system: &&FileSystem| size.saturating_mul(2) > u64::from(size_mib(file_system)) << 20;
        match file_systems.iter().find(is_full) {
            None => Ok(size),
            Some(file_system) => Err(field.error(format!(
                "two files of {size} bytes do not fit into a file system of {} MiB (`file_systems`, `size_mib`)",
                size_mib(file_system)
            ))),
        }
    })
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

/// The name of the script that `field` names, and its tests.
fn tests_of_script(field: &Field<'_, '_>, scripts: &Scripts<'_>) -> Result<(String, Vec<IorTest>), Reported> {
    let name = field.text()?;
    let stem = name.strip_suffix(".ior").unwrap_or_default();
    if stem.is_empty()
        || stem.contains(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.')))
    {
        return Err(
            field.error("give the file name of a script: lower-case letters, digits, `-` and `.`, ending in `.ior`")
        );
    }
    let Some(text) = scripts.find(field, name)? else {
        let bundled = bundled::script_names().collect::<Vec<_>>().join(", ");
        return Err(
            field.error(format!("no script `{name}` beside the study or among the bundled ones, which are {bundled}"))
        );
    };
    let tests = ior::tests_of_script(name, &text).map_err(|message| field.error(message))?;
    Ok((name.to_owned(), tests))
}

/// Options as a list of arguments, or as one text that is split as a shell does it.
fn test_of_options(field: &Field<'_, '_>) -> Result<IorTest, Reported> {
    let args = match field.is_list() {
        true => field.each(Field::string)?,
        false => shlex::split(field.text()?).ok_or_else(|| field.error("a quotation mark is not closed"))?,
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    ior::test_of_args(&args).map_err(|message| field.error(message))
}
