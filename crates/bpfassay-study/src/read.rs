//! Reading a study file: keys, values, and the IOR scripts it names.

mod command;
mod expected;
mod workloads;

use std::{
    io,
    path::{Path, PathBuf},
};

use bpfassay_document::{Document, Field, Invalid, Section, distinct, is_file_name, short_name, suggestion};
use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, Nfs, NfsVersion},
    message::Phase,
    tool::Tool,
};

use crate::{
    Addresses, Certainty, Clock, Deadlines, Design, FeatureExpectations, Gate, GuestSize, STUDY_SCHEMA, Share, Study,
    StudyError, Target, WorkloadKind, WorkloadSpec, bundled,
    narrow::MAX_REPLICATES,
    plan::{DEFAULT_SIZE_MIB, DEFAULT_THREADS, file_system_id},
    target::{check_kernel_name, check_kernel_pattern},
};

/// Largest study file or IOR script, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Longest time that a study may name.
const DAY_MS: u64 = 24 * 3_600_000;

/// The study called `name`: a bundled one, or else the file at that path, whose IOR scripts are looked for beside it
/// and then among the bundled ones.
///
/// # Errors
/// [`StudyError`]
pub fn load(name: &str) -> Result<Study, StudyError> {
    if let Some(text) = bundled::study(name) {
        return Study::parse(&format!("bundled study {name}"), text, &|script| {
            Ok(bundled::script(script).map(str::to_owned))
        });
    }
    let path = Path::new(name);
    if !is_file_name(name) {
        return Err(StudyError::Unknown {
            name: name.chars().take(64).collect(),
            bundled: bundled::NAMES.join(", "),
            nearest: suggestion(name, bundled::NAMES.iter().copied()),
        });
    }
    let failed = |what, path: PathBuf| move |source| StudyError::Read { what, path, source };
    let text = bpfassay_input::read_text(path, MAX_FILE).map_err(failed("study", path.to_owned()))?;
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Study::parse(name, &text, &|script| match bpfassay_input::read_text_beneath(&folder, script.as_ref(), MAX_FILE) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bundled::script(script).map(str::to_owned)),
        Err(error) => Err(failed("IOR script", folder.join(script))(error)),
    })
}

/// The directory of the study called `name`, at which the relative paths in it begin; `None` for a bundled one, which has none.
#[must_use]
pub fn folder(name: &str) -> Option<PathBuf> {
    match bundled::study(name) {
        Some(_) => None,
        None => Path::new(name).parent().map(Path::to_path_buf),
    }
}

/// Finds the text of an IOR script by its file name; `None` where there is none.
pub type FindScript<'a> = &'a dyn Fn(&str) -> Result<Option<String>, StudyError>;

impl Study {
    /// Reads a study from `text`; `origin` names it in messages.
    ///
    /// # Errors
    /// [`StudyError::Invalid`] with the line, or what `scripts` returns.
    pub fn parse(origin: &str, text: &str, scripts: FindScript<'_>) -> Result<Self, StudyError> {
        let document = Document::parse(origin, text)?;
        let root = document.root();
        root.only(&[
            "schema",
            "name",
            "description",
            "targets",
            "probes",
            "tools",
            "file_systems",
            "workloads",
            "tracer",
            "design",
            "clock",
            "guest",
            "deadlines",
            "expected",
            "expected_features",
            "gates",
        ])?;
        let schema = root.need("schema")?;
        if schema.number(1..=u32::MAX)? != STUDY_SCHEMA {
            return Err(schema
                .error(format!("this program reads schema {STUDY_SCHEMA}: use the version that the study was made for"))
                .into());
        }
        let name = root.need("name")?;
        let probes = distinct(&root.need("probes")?, "probe configuration", Field::name::<ProbeConfiguration>)?;
        let guest = guest(root.get("guest"))?;
        let file_systems = file_systems(&root.need("file_systems")?, guest.memory_mib)?;
        let workloads = workloads::workloads(&root.need("workloads")?, scripts, &file_systems)?;
        let features = match (root.get("expected_features"), asks_for_features(&workloads)) {
            (own, true) => FeatureExpectations::read(own.as_ref())?,
            (None, false) => FeatureExpectations::default(),
            (Some(own), false) => {
                return Err(own
                    .error("no workload of type `kernel-features` asks for features that could be expected")
                    .into());
            }
        };
        let tools = tools(root.get("tools"), &probes)?;
        let mut deadlines = deadlines(root.get("deadlines"))?;
        deadlines.allow_for(&workloads);
        Ok(Self {
            schema: STUDY_SCHEMA,
            name: short_name(&name)?,
            description: root.need("description")?.text()?.trim().to_owned(),
            targets: targets(&root.need("targets")?)?,
            gates: gates(root.get("gates"), &probes, &tools, &workloads)?,
            tools,
            tool_files: Vec::new(),
            design: design(&root.need("design")?, &probes)?,
            probes,
            workloads,
            file_systems,
            tracer_arguments: tracer_arguments(root.get("tracer"))?,
            clock: root.get("clock").map_or(Ok(Clock::Instructions), |clock| clock.word(Clock::WORDS))?,
            clock_of_host: root.get("clock").is_none(),
            guest,
            deadlines,
            expectations: expected::read(root.get("expected"))?.into_iter().chain(expected::built_in()?).collect(),
            features,
        })
    }
}

fn gates(
    field: Option<Field<'_, '_>>,
    probes: &[ProbeConfiguration],
    tools: &[Tool],
    workloads: &[WorkloadSpec],
) -> Result<Vec<Gate>, Invalid> {
    let Some(field) = field else { return Ok(Vec::new()) };
    let under_test = probes.iter().filter(|probe| !probe.is_baseline()).map(ToString::to_string);
    let known: Vec<String> = under_test.chain(tools.iter().map(|tool| tool.name.clone())).collect();
    let workloads: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let has_baseline = probes.iter().any(|probe| probe.is_baseline());
    let read = |element: &Field<'_, '_>| {
        let section = element.table()?;
        let gate = Gate::read(&section, &known, &workloads)?;
        if gate.overhead.is_some() && !has_baseline {
            return Err(section.error("an overhead is held against the baseline: add `none` to `probes`"));
        }
        Ok(gate)
    };
    field.list()?.iter().map(read).collect()
}

fn asks_for_features(workloads: &[WorkloadSpec]) -> bool {
    workloads.iter().any(|workload| workload.kind == WorkloadKind::KernelFeatures)
}

fn tools(field: Option<Field<'_, '_>>, probes: &[ProbeConfiguration]) -> Result<Vec<Tool>, Invalid> {
    let mut found: Vec<Tool> = Vec::new();
    let Some(field) = field else { return Ok(found) };
    for element in field.list()? {
        let section = element.table()?;
        section.only(&["name", "command", "programs"])?;
        let name = section.need("name")?;
        let command = section
            .need("command")?
            .list()?
            .iter()
            .map(|word| word.text().map(str::to_owned))
            .collect::<Result<_, _>>()?;
        let programs = section.get("programs").map_or(Ok(1), |programs| programs.number(1..=10_000))?;
        let tool = Tool::new(short_name(&name)?, command, programs);
        if tool.command.is_empty() {
            return Err(section.error("`command` is empty: give the program's path in the guest and its arguments"));
        }
        let is_taken = found.iter().any(|known| known.name == tool.name)
            || probes.iter().any(|probe| probe.to_string() == tool.name);
        if is_taken {
            return Err(name.error("a tool or probe configuration of that name stands here already"));
        }
        found.push(tool);
    }
    Ok(found)
}

pub(crate) fn kernel_name(field: &Field<'_, '_>) -> Result<String, Invalid> {
    let name = field.text()?;
    check_kernel_name(name).map_err(|message| field.error(message))?;
    Ok(name.to_owned())
}

fn targets(field: &Field<'_, '_>) -> Result<Vec<Target>, Invalid> {
    let mut targets = Vec::new();
    for element in field.list()? {
        let section = element.table()?;
        section.only(&["arch", "kernels"])?;
        let archs = distinct(&section.need("arch")?, "architecture", Field::name::<Arch>)?;
        let kernels = distinct(&section.need("kernels")?, "kernel", |field| {
            let name = field.text()?;
            check_kernel_pattern(name).map_err(|message| field.error(message))?;
            Ok(name.to_owned())
        })?;
        for arch in archs {
            for kernel in &kernels {
                let target = Target { arch, kernel: kernel.clone() };
                if targets.contains(&target) {
                    return Err(element.error(format!("target {target} stands here twice")));
                }
                targets.push(target);
            }
        }
    }
    Ok(targets)
}

fn file_systems(field: &Field<'_, '_>, memory_mib: u32) -> Result<Vec<FileSystem>, Invalid> {
    let mut found: Vec<FileSystem> = Vec::new();
    for element in field.list()? {
        let section = element.table()?;
        let kind = section.need("type")?;
        let size = |section: &Section<'_, '_>| match section.get("size_mib") {
            None => Ok(DEFAULT_SIZE_MIB),
            Some(size) => {
                let value = size.number(16..=1 << 20)?;
                if value >= memory_mib {
                    return Err(size.error(format!(
                        "{value} MiB do not fit into the guest's memory of {memory_mib} MiB (`guest.memory_mib`)"
                    )));
                }
                Ok(value)
            }
        };
        let file_system = match kind.word(&[("nfs", true), ("tmpfs", false)])? {
            true => {
                section.only(&["type", "version", "localio", "threads", "size_mib"])?;
                FileSystem::Nfs(Nfs {
                    version: section.get("version").map_or(Ok(NfsVersion::V42), |version| version.name())?,
                    localio: section.get("localio").map(|localio| localio.boolean()).transpose()?,
                    threads: section.get("threads").map_or(Ok(DEFAULT_THREADS), |threads| threads.number(1..=256))?,
                    size_mib: size(&section)?,
                })
            }
            false => {
                section.only(&["type", "size_mib"])?;
                FileSystem::Tmpfs { size_mib: size(&section)? }
            }
        };
        if found.iter().any(|known| file_system_id(known) == file_system_id(&file_system)) {
            return Err(element.error("this file system stands here twice"));
        }
        found.push(file_system);
    }
    Ok(found)
}

fn design(field: &Field<'_, '_>, probes: &[ProbeConfiguration]) -> Result<Design, Invalid> {
    let section = field.table()?;
    section.only(&[
        "replicates",
        "rounds",
        "warm_up",
        "until",
        "margin",
        "seed",
        "control",
        "sampling_interval",
        "bpf_stats",
        "error_rate",
        "correction",
        "insist",
    ])?;
    let has_baseline = probes.iter().any(|probe| probe.is_baseline());
    let control = match section.get("control") {
        None => has_baseline,
        Some(control) => {
            let value = control.boolean()?;
            if value && !has_baseline {
                return Err(control.error(
                    "an A/A control compares the baseline with itself: add `none` to `probes`, or set `false`",
                ));
            }
            value
        }
    };
    let replicates = section.need("replicates")?.number(1..=MAX_REPLICATES)?;
    let rounds = section.get("rounds").map_or(Ok(1), |rounds| rounds.number(1..=1000))?;
    let until = section.get("until").map(|until| share_of_until(&until, replicates)).transpose()?;
    let margin = section.get("margin").map(|margin| margin.name::<Share>().map(|share| (share, margin))).transpose()?;
    let margin = match margin {
        Some((share, field)) if share.ppm() == 0 => {
            return Err(field.error("nothing can be shown to lie within 0%: allow more"));
        }
        margin => margin.map(|(share, _)| share),
    };
    Ok(Design {
        replicates,
        margin,
        rounds,
        // A single round of a single boot has no interval that a warm start could narrow.
        warm_up: section
            .get("warm_up")
            .map_or(Ok(u32::from(rounds.max(replicates) > 1)), |runs| runs.number(0..=1000))?,
        until,
        // A TOML integer is at most 2^63 - 1.
        seed: section.need("seed")?.number(0..=i64::MAX as u64)?,
        control,
        bpf_stats: section.get("bpf_stats").map_or(Ok(false), |wanted| wanted.boolean())?,
        sampling_interval_ms: section
            .get("sampling_interval")
            .map(|interval| interval.milliseconds(10..=DAY_MS))
            .transpose()?,
        certainty: Certainty::read(&section)?,
    })
}

fn share_of_until(field: &Field<'_, '_>, replicates: u32) -> Result<Share, Invalid> {
    let share = field.name::<Share>()?;
    if share.ppm() == 0 {
        return Err(field.error("no interval becomes as narrow as 0%: ask for more"));
    }
    if replicates < Design::FEWEST_UNTIL {
        return Err(field.error(format!(
            "an interval needs at least {} boots: raise `replicates`, which is the most there may be",
            Design::FEWEST_UNTIL
        )));
    }
    Ok(share)
}

fn guest(field: Option<Field<'_, '_>>) -> Result<GuestSize, Invalid> {
    let mut guest =
        GuestSize { cpus: 1, memory_mib: 1024, kernel_parameters: Vec::new(), addresses: Addresses::default() };
    let Some(section) = field.map(|field| field.table()).transpose()? else { return Ok(guest) };
    section.only(&["cpus", "memory_mib", "kernel_parameters", "addresses"])?;
    if let Some(addresses) = section.get("addresses") {
        guest.addresses = addresses.word(Addresses::WORDS)?;
    }
    if let Some(cpus) = section.get("cpus") {
        guest.cpus = cpus.number(1..=64)?;
    }
    if let Some(memory) = section.get("memory_mib") {
        // Below this a Debian kernel does not come up with its initramfs.
        guest.memory_mib = memory.number(384..=1 << 20)?;
    }
    if let Some(parameters) = section.get("kernel_parameters") {
        guest.kernel_parameters = distinct(&parameters, "kernel parameter", |field| {
            let word = field.text()?;
            let valid = (1..=200).contains(&word.len()) && word.chars().all(|c| c.is_ascii_graphic() && c != '"');
            match valid {
                true => Ok(word.to_owned()),
                false => {
                    Err(field.error("give one kernel parameter: visible ASCII characters without blanks and quotes"))
                }
            }
        })?;
    }
    Ok(guest)
}

/// Options of the tracer that the agent gives by itself; a second one would be refused in every guest.
const AGENTS_OPTIONS: [&str; 4] = ["--probe", "--map", "--loader", "--interval"];

fn tracer_arguments(field: Option<Field<'_, '_>>) -> Result<Vec<String>, Invalid> {
    let Some(section) = field.map(|field| field.table()).transpose()? else { return Ok(Vec::new()) };
    section.only(&["arguments"])?;
    let Some(arguments) = section.get("arguments") else { return Ok(Vec::new()) };
    let mut words = Vec::new();
    for element in arguments.list()? {
        let word = element.text()?;
        let option = word.split_once('=').map_or(word, |(option, _)| option);
        if AGENTS_OPTIONS.contains(&option) {
            return Err(element
                .error(format!("{option} is given by the run: use `probes` and `design.sampling_interval` for it")));
        }
        let valid = (1..=200).contains(&word.len()) && !word.chars().any(char::is_control);
        if !valid {
            return Err(element.error("give one word of the tracer's command line, of at most 200 bytes"));
        }
        words.push(word.to_owned());
    }
    Ok(words)
}

fn deadlines(field: Option<Field<'_, '_>>) -> Result<Deadlines, Invalid> {
    let mut deadlines = Deadlines::default();
    let Some(section) = field.map(|field| field.table()).transpose()? else { return Ok(deadlines) };
    let phases = [Phase::Boot, Phase::SetUp, Phase::Attach, Phase::Workload, Phase::TearDown].map(Phase::name);
    section.only(&phases)?;
    let slots = [
        &mut deadlines.boot_ms,
        &mut deadlines.set_up_ms,
        &mut deadlines.attach_ms,
        &mut deadlines.workload_ms,
        &mut deadlines.tear_down_ms,
    ];
    for (phase, slot) in phases.into_iter().zip(slots) {
        if let Some(value) = section.get(phase) {
            *slot = value.milliseconds(1000..=DAY_MS)?;
        }
    }
    Ok(deadlines)
}
