//! Reading a study file: keys, values, and the IOR scripts it names.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, Nfs, NfsVersion, Tool},
    message::Phase,
    tracer::Step,
};

use crate::{
    Certainty, Clock, Deadlines, Design, EngineChoice, Expectation, FeatureExpectations, Gate, GuestSize, IorSpec,
    IorTest, STUDY_SCHEMA, Study, StudyError, Target, WorkloadKind, WorkloadSpec, bundled,
    document::{Document, Field, Section, nearest},
    expectation, ior,
    narrow::MAX_REPLICATES,
    plan::{DEFAULT_SIZE_MIB, DEFAULT_THREADS, file_system_id},
    target::{check_kernel_name, check_kernel_pattern},
};

/// Largest study file or IOR script, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Longest time that a study may name.
const DAY_MS: u64 = 24 * 3_600_000;

/// What the bytes per path of a workload `io-paths` must be a multiple of: a page, and what O_DIRECT is content with.
const PATHS_UNIT: u64 = 4096;

/// Bytes per path where a study does not say: 16 calls each.
const DEFAULT_PATHS_SIZE: u64 = 256 << 10;

const STEPS: &[(&str, Step)] = &[("open", Step::Open), ("load", Step::Load), ("attach", Step::Attach)];

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
    let looks_like_a_path = name.contains('/') || path.extension().is_some_and(|extension| extension == "toml");
    if !looks_like_a_path && !path.exists() {
        return Err(StudyError::Unknown {
            name: name.chars().take(64).collect(),
            bundled: bundled::NAMES.join(", "),
            nearest: nearest(name, bundled::NAMES.iter().copied())
                .map(|near| format!("; did you mean `{near}`?"))
                .unwrap_or_default(),
        });
    }
    let text = read("study", path)?;
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Study::parse(name, &text, &|script| match read("IOR script", &folder.join(script)) {
        Ok(text) => Ok(Some(text)),
        Err(StudyError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(bundled::script(script).map(str::to_owned))
        }
        Err(error) => Err(error),
    })
}

fn read(what: &'static str, path: &Path) -> Result<String, StudyError> {
    let path: PathBuf = path.to_path_buf();
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text)) {
        Err(source) => Err(StudyError::Read { what, path, source }),
        Ok(_) if text.len() as u64 > MAX_FILE => Err(StudyError::TooLarge { what, path, limit: MAX_FILE }),
        Ok(_) => Ok(text),
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
            return Err(schema.error(format!(
                "this program reads schema {STUDY_SCHEMA}: use the version that the study was made for"
            )));
        }
        let name = root.need("name")?;
        let probes = distinct(&root.need("probes")?, "probe configuration", Field::name::<ProbeConfiguration>)?;
        let guest = guest(root.get("guest"))?;
        let file_systems = file_systems(&root.need("file_systems")?, guest.memory_mib)?;
        let workloads = workloads(&root.need("workloads")?, scripts, &file_systems)?;
        let features = match (root.get("expected_features"), asks_for_features(&workloads)) {
            (own, true) => FeatureExpectations::read(own.as_ref())?,
            (None, false) => FeatureExpectations::default(),
            (Some(own), false) => {
                return Err(own.error("no workload of type `capabilities` asks for features that could be expected"));
            }
        };
        let tools = tools(root.get("tools"), &probes)?;
        Ok(Self {
            schema: STUDY_SCHEMA,
            name: short_name(&name)?,
            description: root.need("description")?.text()?.trim().to_owned(),
            targets: targets(&root.need("targets")?)?,
            gates: gates(root.get("gates"), &probes, &tools, &workloads)?,
            tools,
            design: design(&root.need("design")?, &probes)?,
            probes,
            workloads,
            file_systems,
            tracer_arguments: tracer_arguments(root.get("tracer"))?,
            clock: root.get("clock").map_or(Ok(Clock::Instructions), |clock| clock.word(Clock::WORDS))?,
            clock_of_host: root.get("clock").is_none(),
            guest,
            deadlines: deadlines(root.get("deadlines"))?,
            expectations: expectations(root.get("expected"))?.into_iter().chain(built_in_expectations()?).collect(),
            features,
        })
    }
}

fn gates(
    field: Option<Field<'_, '_>>,
    probes: &[ProbeConfiguration],
    tools: &[Tool],
    workloads: &[WorkloadSpec],
) -> Result<Vec<Gate>, StudyError> {
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
    workloads.iter().any(|workload| workload.kind == WorkloadKind::Capabilities)
}

fn tools(field: Option<Field<'_, '_>>, probes: &[ProbeConfiguration]) -> Result<Vec<Tool>, StudyError> {
    let mut found: Vec<Tool> = Vec::new();
    let Some(field) = field else { return Ok(found) };
    for element in field.list()? {
        let section = element.table()?;
        section.only(&["name", "command", "programs"])?;
        let name = section.need("name")?;
        let tool = Tool {
            name: short_name(&name)?,
            command: section
                .need("command")?
                .list()?
                .iter()
                .map(|word| word.text().map(str::to_owned))
                .collect::<Result<_, _>>()?,
            programs: section.get("programs").map_or(Ok(1), |programs| programs.number(1..=10_000))?,
        };
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

fn built_in_expectations() -> Result<Vec<Expectation>, StudyError> {
    let document = Document::parse("bundled expectations", expectation::BUILT_IN)?;
    let root = document.root();
    root.only(&["expected"])?;
    expectations(root.get("expected"))
}

/// A name that can be part of a file name and of identifiers, in which `_` separates parts.
fn short_name(field: &Field<'_, '_>) -> Result<String, StudyError> {
    let text = field.text()?;
    let valid = (1..=40).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_lowercase() || first.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.'));
    if valid {
        return Ok(text.to_owned());
    }
    Err(field.error("use at most 40 lower-case letters, digits, `-` and `.`, a letter or digit first"))
}

/// The values of a list, each at most once.
pub(crate) fn distinct<'d, 'i, T: PartialEq>(
    field: &Field<'d, 'i>,
    kind: &str,
    read: impl Fn(&Field<'d, 'i>) -> Result<T, StudyError>,
) -> Result<Vec<T>, StudyError> {
    let mut values = Vec::new();
    for element in field.list()? {
        let value = read(&element)?;
        if values.contains(&value) {
            return Err(element.error(format!("this {kind} stands here twice")));
        }
        values.push(value);
    }
    Ok(values)
}

pub(crate) fn kernel_name(field: &Field<'_, '_>) -> Result<String, StudyError> {
    let name = field.text()?;
    check_kernel_name(name).map_err(|message| field.error(message))?;
    Ok(name.to_owned())
}

fn targets(field: &Field<'_, '_>) -> Result<Vec<Target>, StudyError> {
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

fn file_systems(field: &Field<'_, '_>, memory_mib: u32) -> Result<Vec<FileSystem>, StudyError> {
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

fn workloads(
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
            "capabilities" => {
                section.only(&["type", "name"])?;
                (Some(kind.to_owned()), WorkloadKind::Capabilities)
            }
            _ => {
                let ior = ior_spec(&element, &section, scripts, file_systems)?;
                (ior.script.as_ref().map(|name| name.trim_end_matches(".ior").to_owned()), WorkloadKind::Ior(ior))
            }
        };
        let name = match (section.get("name"), default_name) {
            (Some(name), _) => short_name(&name)?,
            (None, Some(name)) => name,
            (None, None) => {
                return Err(section.error("key `name` is missing: inline options have no file name to go by"));
            }
        };
        if specs.iter().any(|known| known.name == name) {
            return Err(element.error(format!("a workload `{name}` stands here already: give this one another `name`")));
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
        _ => return Err(section.error("give either `script` or `options`")),
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

/// Bytes per path of a workload `io-paths`.
fn paths_size(section: &Section<'_, '_>, file_systems: &[FileSystem]) -> Result<u64, StudyError> {
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

const fn size_mib(file_system: &FileSystem) -> u32 {
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
        return Err(
            field.error("give the file name of a script: lower-case letters, digits, `-` and `.`, ending in `.ior`")
        );
    }
    let Some(text) = scripts(name)? else {
        let bundled = bundled::script_names().collect::<Vec<_>>().join(", ");
        return Err(
            field.error(format!("no script `{name}` beside the study or among the bundled ones, which are {bundled}"))
        );
    };
    ior::tests_of_script(name, &text).map_err(|message| field.error(message))
}

/// Options as a list of words, or as one text with blanks between them.
fn test_of_options(field: &Field<'_, '_>) -> Result<IorTest, StudyError> {
    let words = match field.text() {
        Ok(text) => text.split_ascii_whitespace().collect(),
        Err(_) => field.list()?.iter().map(Field::text).collect::<Result<Vec<&str>, _>>()?,
    };
    ior::test_of_words(&words).map_err(|message| field.error(message))
}

fn design(field: &Field<'_, '_>, probes: &[ProbeConfiguration]) -> Result<Design, StudyError> {
    let section = field.table()?;
    section.only(&[
        "replicates",
        "rounds",
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
    Ok(Design {
        replicates: section.need("replicates")?.number(1..=MAX_REPLICATES)?,
        rounds: section.get("rounds").map_or(Ok(1), |rounds| rounds.number(1..=1000))?,
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

fn guest(field: Option<Field<'_, '_>>) -> Result<GuestSize, StudyError> {
    let mut guest = GuestSize { cpus: 1, memory_mib: 1024, kernel_parameters: Vec::new() };
    let Some(section) = field.map(|field| field.table()).transpose()? else { return Ok(guest) };
    section.only(&["cpus", "memory_mib", "kernel_parameters"])?;
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

fn tracer_arguments(field: Option<Field<'_, '_>>) -> Result<Vec<String>, StudyError> {
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

fn deadlines(field: Option<Field<'_, '_>>) -> Result<Deadlines, StudyError> {
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

fn expectations(field: Option<Field<'_, '_>>) -> Result<Vec<Expectation>, StudyError> {
    let mut expectations = Vec::new();
    let Some(field) = field else { return Ok(expectations) };
    for element in field.list()? {
        let section = element.table()?;
        section.only(&["arch", "kernels", "probe", "step", "errno", "reason", "source"])?;
        let probe = section.need("probe")?;
        let configuration: ProbeConfiguration = probe.name()?;
        if configuration.is_baseline() {
            return Err(probe.error("the baseline attaches nothing, so no kernel can refuse it"));
        }
        expectations.push(Expectation {
            arch: section.need("arch")?.name()?,
            kernels: distinct(&section.need("kernels")?, "kernel", kernel_name)?,
            probe: configuration,
            step: section.need("step")?.word(STEPS)?,
            errno: section.need("errno")?.number(1..=4095)?,
            reason: section.need("reason")?.text()?.to_owned(),
            source: section.need("source")?.text()?.to_owned(),
        });
    }
    Ok(expectations)
}
