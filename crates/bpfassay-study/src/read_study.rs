// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads study files and the IOR scripts that they name.

#![allow(clippy::disallowed_methods, reason = "the path is only shown in a message")]

mod expected_keys;
mod guest;
mod probe_names;

use std::{
    cell::RefCell,
    io,
    path::{Path, PathBuf},
};

use bpfassay_input::document::{self, Field, Reported, Section, is_file_name, suggestion};
use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    job::{FileSystem, Nfs, NfsVersion},
    message::Phase,
    tool_job::Tool,
};

use crate::{
    Clock, Deadlines, FeatureExpectations, Gate, GuestSize, STUDY_SCHEMA, Share, Study, StudyDesign, StudyError,
    Target, VerdictCertainty, WarmUp, WarmUpRule, WorkloadSpec, bundled_studies,
    clock::DAY_MS,
    cost_model::{Declared, Model},
    mount_design,
    narrow::MAX_REPLICATES,
    node_design,
    plan::{DEFAULT_SIZE_MIB, DEFAULT_THREADS, file_system_id},
    target::check_kernel_pattern,
    workload,
};

/// Size limit of study files and IOR scripts, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Loads the bundled study `name`, or the study file at that path. A file's IOR scripts are looked
/// up in the file's directory, then among the bundled ones.
///
/// # Errors
/// [`StudyError`] if the study does not exist, if the study or a script cannot be read, or if it is
/// invalid.
pub fn load(name: &str) -> Result<Study, StudyError> {
    if let Some(text) = bundled_studies::study(name) {
        return Study::parse(&format!("bundled study {name}"), text, &|script| {
            Ok(bundled_studies::script(script).map(str::to_owned))
        });
    }
    let path = Path::new(name);
    if !is_file_name(name) {
        return Err(StudyError::Unknown {
            name: name.chars().take(64).collect(),
            bundled: bundled_studies::NAMES.join(", "),
            nearest: suggestion(name, bundled_studies::NAMES.iter().copied()),
        });
    }
    let failed = |what, path: PathBuf| move |source| StudyError::Read { what, path, source };
    let text = bpfassay_input::read_text(path, MAX_FILE).map_err(failed("study", path.to_owned()))?;
    let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
    Study::parse(name, &text, &|script| match bpfassay_input::read_text_beneath(&folder, script.as_ref(), MAX_FILE) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bundled_studies::script(script).map(str::to_owned)),
        Err(error) => Err(failed("IOR script", folder.join(script))(error)),
    })
}

/// Directory that relative paths in the study `name` refer to; `None` for a bundled study.
#[must_use]
pub fn folder(name: &str) -> Option<PathBuf> {
    match bundled_studies::study(name) {
        Some(_) => None,
        None => Path::new(name).parent().map(Path::to_path_buf),
    }
}

/// Returns the text of an IOR script by file name; `None` if there is none.
pub type FindScript<'a> = &'a dyn Fn(&str) -> Result<Option<String>, StudyError>;

/// Looks up scripts, and keeps the first error.
struct Scripts<'a> {
    find: FindScript<'a>,
    error: RefCell<Option<StudyError>>,
}

impl workload::ScriptFinder for Scripts<'_> {
    fn find(&self, field: &Field<'_, '_>, name: &str) -> Result<Option<String>, Reported> {
        (self.find)(name).map_err(|error| {
            let reported = field.error(&error);
            self.error.borrow_mut().get_or_insert(error);
            reported
        })
    }
}

impl Study {
    /// Parses a study from `text`. `origin` names it in messages.
    ///
    /// # Errors
    /// [`StudyError::Invalid`] with all errors in the text, or the error that `scripts` returns.
    pub fn parse(origin: &str, text: &str, scripts: FindScript<'_>) -> Result<Self, StudyError> {
        let scripts = Scripts { find: scripts, error: RefCell::default() };
        let study = document::read(origin, text, |root| read(root, &scripts));
        if let Some(error) = scripts.error.into_inner() {
            return Err(error);
        }
        let mut study = study?;
        study.expectations.extend(expected_keys::built_in()?);
        if asks_for_features(&study.workloads) {
            study.features.extend(FeatureExpectations::built_in()?);
        }
        Ok(study)
    }
}

/// Keys of a study.
const KEYS: [&str; 18] = [
    "schema",
    "name",
    "description",
    "targets",
    "probes",
    "tools",
    "file_systems",
    "mounts",
    "workloads",
    "tracer",
    "design",
    "clock",
    "model",
    "guest",
    "deadlines",
    "expected",
    "expected_features",
    "gates",
];

fn read(root: &Section<'_, '_>, scripts: &Scripts<'_>) -> Result<Study, Reported> {
    root.only(&KEYS);
    // The keys of another schema can have other meanings.
    root.need("schema", |schema| match schema.number(1..=u32::MAX)? {
        STUDY_SCHEMA => Ok(()),
        _ => Err(schema
            .error(format!("this program reads schema {STUDY_SCHEMA}: use the version that the study was made for"))),
    })?;
    let study = contents(root, scripts)?;
    match (node_design::check(&study), root.get("guest")) {
        (Err(problem), Some(guest)) => Err(guest.error(problem)),
        _ => Ok(study),
    }
}

/// Reads all keys but the schema.
fn contents(root: &Section<'_, '_>, scripts: &Scripts<'_>) -> Result<Study, Reported> {
    let name = root.need("name", Field::short_name);
    let description = root.need("description", |field| Ok(field.text()?.trim().to_owned()));
    let targets = root.need("targets", targets);
    let guest = root.or("guest", GuestSize::default(), guest::read);
    // Other values are checked against this, as far as it could be read.
    let memory_mib = guest.as_ref().map_or(u32::MAX, |guest| guest.memory_mib);
    let file_systems = root.need("file_systems", |field| file_systems(field, memory_mib));
    let some_file_systems = file_systems.as_deref().unwrap_or_default();
    let mounts = root.or("mounts", Vec::new(), |field| mount_design::read(field, memory_mib));
    let some_mounts = mounts.as_deref().unwrap_or_default();
    let workloads = root.need("workloads", |field| workload::read(field, scripts, some_file_systems, some_mounts));
    let loads_only = workloads.as_ref().is_ok_and(|workloads| only_loads(workloads));
    let probes = probes(root, loads_only);
    let features = root.optional("expected_features", |field| features(field, workloads.as_deref().ok()));
    let some_probes = probes.as_deref().unwrap_or_default();
    let tools = root.or("tools", Vec::new(), |field| tools(field, some_probes));
    let deadlines = root.or("deadlines", Deadlines::default(), deadlines);
    let tracer_arguments = root.or("tracer", Vec::new(), tracer_arguments);
    let clock = root.optional("clock", |clock| clock.choice(Clock::NAMES));
    let model = root.optional("model", |field| model(field, clock.as_ref().ok().copied().flatten(), loads_only));
    let expectations = root.or("expected", Vec::new(), expected_keys::read);
    let has_baseline = some_probes.iter().any(|probe| probe.is_baseline()) || probes.is_err();
    let design = root.need("design", |field| design(field, has_baseline));
    let gates = root.or("gates", Vec::new(), |field| match (&tools, &workloads) {
        (Ok(tools), Ok(workloads)) if probes.is_ok() => {
            gates(field, some_probes, tools.iter().map(|tool| tool.name.as_str()), workloads)
        }
        // The gates could name what failed to be read.
        _ => Ok(Vec::new()),
    });
    let (workloads, mut deadlines) = (workloads?, deadlines?);
    deadlines.allow_for(&workloads);
    let (clock, model, guest) = (clock?, model?, guest?);
    // Studies of several nodes need the wall clock.
    let default_clock = if guest.nodes > 1 { Clock::Wall } else { Clock::Instructions };
    Ok(Study {
        schema: STUDY_SCHEMA,
        name: name?,
        description: description?,
        targets: targets?,
        gates: gates?,
        tools: tools?,
        tool_files: Vec::new(),
        reference: None,
        design: design?,
        probes: probes?,
        workloads,
        file_systems: file_systems?,
        mounts: mounts?,
        tracer_arguments: tracer_arguments?,
        clock: clock.unwrap_or(default_clock),
        clock_of_host: clock.is_none() && model.is_none() && guest.nodes == 1,
        model,
        guest,
        deadlines,
        expectations: expectations?,
        features: features?.unwrap_or_default(),
    })
}

/// Reads the probe configurations. A study that only loads the tools of the command line needs
/// none.
fn probes(root: &Section<'_, '_>, loads_only: bool) -> Result<Vec<ProbeConfiguration>, Reported> {
    if loads_only && !root.has("probes") {
        return Ok(Vec::new());
    }
    root.need("probes", probe_names::probes)
}

/// Reads the expected features of kernels. `workloads` is `None` if the workloads are invalid.
fn features(field: &Field<'_, '_>, workloads: Option<&[WorkloadSpec]>) -> Result<FeatureExpectations, Reported> {
    if workloads.is_some_and(|workloads| !asks_for_features(workloads)) {
        return Err(field.error("no workload of type `kernel-features` lists features, so none can be expected"));
    }
    FeatureExpectations::read(&field.table()?)
}

/// Reads the model that prices instructions. `clock` is the study's own choice.
fn model(field: &Field<'_, '_>, clock: Option<Clock>, loads_only: bool) -> Result<Model, Reported> {
    if clock == Some(Clock::Wall) {
        return Err(field.error("a model prices counted instructions: it needs `clock = \"instructions\"`"));
    }
    if loads_only {
        return Err(field.error("a model prices counted instructions, and this study only loads tools"));
    }
    field.choice(Declared::NAMES).map(Model::from)
}

/// Whether the workloads only load and attach.
fn only_loads(workloads: &[WorkloadSpec]) -> bool {
    !workloads.iter().any(WorkloadSpec::compares_tools)
}

impl Study {
    /// Whether instructions are counted in guests: under the instruction clock, unless the study
    /// only loads tools.
    #[must_use]
    pub fn counts_instructions(&self) -> bool {
        self.clock == Clock::Instructions && !only_loads(&self.workloads)
    }

    /// Adds a gate. `limits` is an entry of `[[gates]]` on one line, such as `overhead = "5%",
    /// probes = ["fexit"]`.
    ///
    /// # Errors
    /// [`StudyError::Invalid`] with all errors in it: an unknown key, no limit, or a name that the
    /// study does not have.
    pub fn demand(&mut self, limits: &str) -> Result<(), StudyError> {
        let text = format!("gate = {{ {limits} }}");
        let read = document::read("a gate of the command line", &text, |root| {
            root.only(&["gate"]);
            root.need("gate", |field| gates(field, &self.probes, self.tool_names(), &self.workloads))
        });
        self.gates.append(&mut read?);
        Ok(())
    }
}

fn gates<'n>(
    field: &Field<'_, '_>,
    probes: &[ProbeConfiguration],
    tools: impl Iterator<Item = &'n str>,
    workloads: &[WorkloadSpec],
) -> Result<Vec<Gate>, Reported> {
    let under_test = probes.iter().filter(|probe| !probe.is_baseline()).map(ToString::to_string);
    let known: Vec<String> = under_test.chain(tools.map(str::to_owned)).collect();
    let workloads: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let has_baseline = probes.iter().any(|probe| probe.is_baseline());
    field.each(|element| {
        let section = element.table()?;
        let gate = Gate::read(&section, &known, &workloads)?;
        if gate.overhead.is_some() && !has_baseline {
            return Err(section.error("an overhead is compared with the baseline: add `none` to `probes`"));
        }
        Ok(gate)
    })
}

fn asks_for_features(workloads: &[WorkloadSpec]) -> bool {
    workloads.iter().any(WorkloadSpec::lists_features)
}

fn tools(field: &Field<'_, '_>, probes: &[ProbeConfiguration]) -> Result<Vec<Tool>, Reported> {
    let mut taken: Vec<String> = probes.iter().map(ToString::to_string).collect();
    field.each(|element| {
        let section = element.table()?;
        section.only(&["name", "command", "programs"]);
        let name = section.need("name", |name| {
            let text = name.short_name()?;
            if taken.contains(&text) {
                return Err(name.error("a tool or probe configuration of that name exists already"));
            }
            taken.push(text.clone());
            Ok(text)
        });
        let command = section.need("command", |command| command.each(Field::string));
        let programs = section.or("programs", 1, |programs| programs.number(1..=10_000));
        Ok(Tool::new(name?, command?, programs?))
    })
}

fn targets(field: &Field<'_, '_>) -> Result<Vec<Target>, Reported> {
    let mut targets = Vec::new();
    let is_new = field.each(|element| {
        let section = element.table()?;
        section.only(&["arch", "kernels"]);
        let archs = section.need("arch", |field| field.distinct("architecture", Field::name::<Arch>));
        let kernels = section.need("kernels", |field| {
            field.distinct("kernel", |field| {
                let name = field.text()?;
                check_kernel_pattern(name).map_err(|message| field.error(message))?;
                Ok(name.to_owned())
            })
        });
        let (archs, kernels) = (archs?, kernels?);
        for (arch, kernel) in archs.iter().flat_map(|arch| kernels.iter().map(move |kernel| (arch, kernel))) {
            let target = Target { arch: *arch, kernel: kernel.clone() };
            if targets.contains(&target) {
                return Err(element.error(format!("target {target} is listed twice")));
            }
            targets.push(target);
        }
        Ok(())
    });
    is_new.map(|_| targets)
}

fn file_systems(field: &Field<'_, '_>, memory_mib: u32) -> Result<Vec<FileSystem>, Reported> {
    let mut taken = Vec::new();
    field.each(|element| {
        let section = element.table()?;
        let size = |section: &Section<'_, '_>| {
            section.or("size_mib", DEFAULT_SIZE_MIB, |size| match size.number(16..=1 << 20)? {
                value if value >= memory_mib => Err(size.error(format!(
                    "{value} MiB do not fit into the guest's memory of {memory_mib} MiB (`guest.memory_mib`)"
                ))),
                value => Ok(value),
            })
        };
        let file_system = match section.need("type", |kind| kind.choice(&[("nfs", true), ("tmpfs", false)]))? {
            true => {
                section.only(&["type", "version", "localio", "threads", "size_mib", "scheduling"]);
                let version = section.or("version", NfsVersion::V42, Field::name);
                let localio = section.optional("localio", Field::boolean);
                let threads = section.or("threads", DEFAULT_THREADS, |threads| threads.number(1..=256));
                let size_mib = size(&section);
                let scheduling = guest::scheduling(&section);
                FileSystem::Nfs(Nfs {
                    version: version?,
                    localio: localio?,
                    threads: threads?,
                    size_mib: size_mib?,
                    scheduling: scheduling?,
                })
            }
            false => {
                section.only(&["type", "size_mib"]);
                FileSystem::Tmpfs { size_mib: size(&section)? }
            }
        };
        let id = file_system_id(&file_system);
        if taken.contains(&id) {
            return Err(element.error("this file system is listed twice"));
        }
        taken.push(id);
        Ok(file_system)
    })
}

fn design(field: &Field<'_, '_>, has_baseline: bool) -> Result<StudyDesign, Reported> {
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
    ]);
    let control =
        section.or("control", has_baseline, |control| match control.boolean()? {
            true if !has_baseline => Err(control
                .error("an A/A control compares the baseline with itself: add `none` to `probes`, or set `false`")),
            value => Ok(value),
        });
    let replicates = section.need("replicates", |field| field.number(1..=MAX_REPLICATES));
    let rounds = section.or("rounds", 1, |rounds| rounds.number(1..=StudyDesign::MOST_ROUNDS));
    let until = section.optional("until", |until| share_of_until(until, replicates.unwrap_or(MAX_REPLICATES)));
    let margin = section.optional("margin", |margin| match margin.name::<Share>()? {
        share if share.ppm() == 0 => Err(margin.error("nothing can be shown to lie within 0%: allow more")),
        share => Ok(share),
    });
    // A single round of a single boot has no interval that a warm-up could narrow.
    let several = rounds.unwrap_or(1).max(replicates.unwrap_or(1)) > 1;
    let warm_up = section.or("warm_up", WarmUp::Runs(u32::from(several)), |warm_up| match warm_up.is_text() {
        true => warm_up.choice(WarmUpRule::NAMES).map(WarmUp::Rule),
        false => warm_up.number(0..=1000).map(WarmUp::Runs),
    });
    // A TOML integer is at most 2^63 - 1.
    let seed = section.need("seed", |field| field.number(0..=i64::MAX as u64));
    let bpf_stats = section.or("bpf_stats", false, Field::boolean);
    let sampling_interval_ms = section.optional("sampling_interval", |interval| interval.milliseconds(10..=DAY_MS));
    let certainty = VerdictCertainty::read(&section);
    Ok(StudyDesign {
        replicates: replicates?,
        margin: margin?,
        rounds: rounds?,
        warm_up: warm_up?,
        until: until?,
        seed: seed?,
        control: control?,
        bpf_stats: bpf_stats?,
        sampling_interval_ms: sampling_interval_ms?,
        certainty: certainty?,
    })
}

fn share_of_until(field: &Field<'_, '_>, replicates: u32) -> Result<Share, Reported> {
    let share = field.name::<Share>()?;
    if share.ppm() == 0 {
        return Err(field.error("no interval becomes as narrow as 0%: ask for more"));
    }
    if replicates < StudyDesign::FEWEST_UNTIL {
        return Err(field.error(format!(
            "an interval needs at least {} boots: raise `replicates`, which is the most there may be",
            StudyDesign::FEWEST_UNTIL
        )));
    }
    Ok(share)
}

/// Tracer options that the agent passes itself. A second one would be refused in every guest.
const AGENTS_OPTIONS: [&str; 4] = ["--probe", "--map", "--loader", "--interval"];

fn tracer_arguments(field: &Field<'_, '_>) -> Result<Vec<String>, Reported> {
    let section = field.table()?;
    section.only(&["arguments"]);
    section.or("arguments", Vec::new(), |arguments| {
        arguments.each(|element| {
            let argument = element.text()?;
            let option = argument.split_once('=').map_or(argument, |(option, _)| option);
            if AGENTS_OPTIONS.contains(&option) {
                return Err(element.error(format!(
                    "{option} is given by the run: use `probes` and `design.sampling_interval` for it"
                )));
            }
            let valid = (1..=200).contains(&argument.len()) && !argument.chars().any(char::is_control);
            match valid {
                true => Ok(argument.to_owned()),
                false => Err(element.error("give one argument of the tracer, of at most 200 bytes")),
            }
        })
    })
}

fn deadlines(field: &Field<'_, '_>) -> Result<Deadlines, Reported> {
    let mut deadlines = Deadlines::default();
    let section = field.table()?;
    let phases = [Phase::Boot, Phase::SetUp, Phase::Attach, Phase::Workload, Phase::TearDown].map(Phase::name);
    section.only(&phases);
    let slots = [
        &mut deadlines.boot_ms,
        &mut deadlines.set_up_ms,
        &mut deadlines.attach_ms,
        &mut deadlines.workload_ms,
        &mut deadlines.tear_down_ms,
    ];
    let mut outcome = Ok(());
    for (phase, slot) in phases.into_iter().zip(slots) {
        match section.or(phase, *slot, |value| value.milliseconds(1000..=DAY_MS)) {
            Ok(value) => *slot = value,
            Err(reported) => outcome = Err(reported),
        }
    }
    outcome.map(|()| deadlines)
}
