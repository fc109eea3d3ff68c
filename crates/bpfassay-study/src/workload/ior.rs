// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR: scripts and options of study files, and the engine that executes them.

use std::{collections::BTreeSet, fmt, str::FromStr};

use bpfassay_input::document::{Field, Reported};
use bpfassay_ior::{Access, Api, Invocation, IorPlan, IorSummary, Options, OptionsError};
use bpfassay_protocol::{
    Operation, UnknownName,
    job::{DIRECTORY, IorEngine, Program, SCRIPT, SUMMARY, Script, Workload},
    job_nodes::NODE,
    with_causes,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Case, CaseNames, Metric, OnTarget, PhaseReport, ReadTable, ScriptFinder, TypeKey, WorkloadBehaviour, WorkloadKind,
    WorkloadTable, bundled,
};
use crate::{Clock, bundled_studies as bundled_files, error::list};

mod bystander;
mod ior_figures;
mod kept_files;

pub(super) const TYPES: &[TypeKey] = &[TypeKey { name: "ior", read }];

fn read(table: &WorkloadTable<'_>) -> Result<ReadTable, Reported> {
    let spec = read_spec(table)?;
    let default_name = spec.script.as_ref().map(|name| name.trim_end_matches(".ior").to_owned());
    Ok(ReadTable { kind: WorkloadKind::Ior(spec), default_name })
}

fn read_spec(table: &WorkloadTable<'_>) -> Result<IorSpec, Reported> {
    let section = table.section;
    section.only(&["type", "name", "script", "options", "ranks", "engine", "interfaces", "neighbour", "bystander"]);
    let written = match (section.get("script"), section.get("options")) {
        (Some(script), None) => read_script(&script, table.scripts),
        (None, Some(options)) => plan_of_options(&options).map(|plan| (None, plan)),
        _ => Err(section.error("give either `script` or `options`")),
    };
    let ranks = section.or("ranks", 1, |ranks| ranks.number(1..=1024));
    let mut engine = section.or("engine", EngineChoice::Auto, |engine| engine.choice(EngineChoice::NAMES));
    let interfaces = section.or("interfaces", Vec::new(), |interfaces| interfaces.distinct("interface", Field::name));
    let neighbour = section.or("neighbour", false, Field::boolean);
    let bystander = section.optional("bystander", |options| bystander::read(options, &mut engine));
    let ((script, plan), ranks) = (written?, ranks?);
    let text = match kept_files::are_shared(&plan.tests, ranks).map_err(|message| section.error(message))? {
        true => script.as_ref().map(|script| in_one_run(script, &plan)).transpose(),
        false => Ok(None),
    };
    let text = text.map_err(|message| section.error(message))?;
    let script = script.map(|script| script.name);
    let files = named_files(&plan);
    let tests: Vec<IorTest> = plan.tests.into_iter().map(to_test).collect();
    for (index, test) in tests.iter().enumerate() {
        fits(test, ranks, table).map_err(|message| section.error(format!("test {index}: {message}")))?;
    }
    Ok(IorSpec {
        script,
        text,
        files,
        tests,
        ranks,
        engine: engine?,
        interfaces: interfaces?,
        neighbour: neighbour?,
        bystander: bystander?,
    })
}

/// Lists the options in `plan` that say where files are, each once.
fn named_files(plan: &IorPlan) -> Vec<String> {
    let default = Options::default().test_file;
    let mut seen = BTreeSet::new();
    let named = plan.tests.iter().map(|test| &test.test_file);
    let named = named.filter(|name| **name != default && seen.insert(*name)).map(|name| format!("-o {name}"));
    named.chain(plan.output.file.iter().map(|name| format!("-O summaryFile={name}"))).collect()
}

/// Returns the text of `script` for running all its tests, which share files, in one run.
///
/// # Errors
/// Fails if the script says where files are, because the agent decides that.
fn in_one_run(script: &Script, plan: &IorPlan) -> Result<String, String> {
    match !named_files(plan).is_empty() || plan.output != Default::default() {
        false => Ok(script.text.clone()),
        true => Err(format!(
            "{}: its tests share files, so that all are one run, whose files the agent names: leave out testFile, summaryFile and summaryFormat",
            script.name
        )),
    }
}

/// Reads the script that `field` names, with its tests.
fn read_script(field: &Field<'_, '_>, scripts: &dyn ScriptFinder) -> Result<(Option<Script>, IorPlan), Reported> {
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
        let bundled = bundled_files::script_names().collect::<Vec<_>>().join(", ");
        return Err(
            field.error(format!("no script `{name}` beside the study or among the bundled ones, which are {bundled}"))
        );
    };
    let plan = parse_script(name, &text).map_err(|message| field.error(message))?;
    Ok((Some(Script { name: name.to_owned(), text }), plan))
}

/// Reads options as a list of arguments, or as one text that is split like a shell command.
fn plan_of_options(field: &Field<'_, '_>) -> Result<IorPlan, Reported> {
    let args = match field.is_list() {
        true => field.each(Field::string)?,
        false => shlex::split(field.text()?).ok_or_else(|| field.error("a quotation mark is not closed"))?,
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    parse_args(&args).map_err(|message| field.error(message))
}

/// Checks that the files of `test` fit into each file system.
fn fits(test: &IorTest, ranks: u32, table: &WorkloadTable<'_>) -> Result<(), String> {
    let size = least_size(test, ranks).ok_or("the test moves more bytes than fit into 63 bits")?;
    table.must_fit(size, &format!("its files of {} MiB", size.div_ceil(1 << 20)))
}

/// An IOR script or inline options, with run settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IorSpec {
    /// File name of the script; `None` for inline options.
    pub script: Option<String>,
    /// Text of the script if its tests share files. All tests then form one run. Otherwise each
    /// test is a case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Options that say where files are. They are ignored, because the agent decides that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The tests, in order.
    pub tests: Vec<IorTest>,
    /// MPI ranks.
    pub ranks: u32,
    /// Which engine does the work.
    pub engine: EngineChoice,
    /// Runs only tests with these interfaces; empty for all.
    pub interfaces: Vec<Interface>,
    /// Whether another process in another cgroup reads and writes on the same mount at the same
    /// time.
    #[serde(default)]
    pub neighbour: bool,
    /// Options of IOR for a bystander: another process in another cgroup, which reads and writes on
    /// another file system after the workload. `None` for no bystander.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bystander: Option<Vec<String>>,
}

/// One IOR test: the part of a script between two `RUN` lines, with all inherited options.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IorTest {
    /// Options, one argument each, without the program name, `-o` and `-O summary…`.
    pub options: Vec<String>,
    /// The interface it uses.
    pub interface: Interface,
    /// Transfer size in bytes.
    pub transfer_size: u64,
}

/// Which engine does IOR's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The real IOR if the user gave one for the architecture and it has the interface. Otherwise
    /// the embedded engine.
    Auto,
    /// The embedded engine.
    Embedded,
    /// The real IOR. Cases without one are left out.
    External,
}

impl EngineChoice {
    /// The names in study files.
    pub const NAMES: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("embedded", Self::Embedded), ("external", Self::External)];
}

/// An IOR interface (`-a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Interface {
    /// `read` and `write` system calls.
    #[serde(rename = "POSIX")]
    Posix,
    /// Memory-mapped files.
    #[serde(rename = "MMAP")]
    Mmap,
    /// MPI-IO (ROMIO).
    #[serde(rename = "MPIIO")]
    Mpiio,
}

impl Interface {
    /// Every interface.
    pub const ALL: &'static [Self] = &[Self::Posix, Self::Mmap, Self::Mpiio];

    /// IOR's name of the interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mmap => "MMAP",
            Self::Mpiio => "MPIIO",
        }
    }

    /// Whether the embedded engine supports the interface.
    #[must_use]
    pub const fn is_embedded(self) -> bool {
        !matches!(self, Self::Mpiio)
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Interface {
    type Err = UnknownName;

    /// Ignores case, as IOR does.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.iter().copied().find(|interface| interface.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            UnknownName {
                kind: "IOR interface",
                name: name.chars().take(64).collect(),
                known: Self::ALL.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(", "),
            }
        })
    }
}

/// IOR's timed phases with their operations, in display order.
const PHASES: [(Operation, &str); 2] = [(Operation::Write, "write"), (Operation::Read, "read")];

impl WorkloadBehaviour for IorSpec {
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        let case = |(id, tests): (String, &[IorTest])| {
            let interfaces: BTreeSet<Interface> = tests.iter().map(|test| test.interface).collect();
            let case = engine(self, &interfaces, on.external_ior).map(|engine| {
                let script = self.script.clone().zip(self.text.clone());
                let script = script.map(|(name, text)| Script { name, text });
                let options = match (&script, tests) {
                    (None, [test]) => test.options.clone(),
                    _ => vec!["-f".to_owned(), SCRIPT.to_owned()],
                };
                let workload = run(engine, (self.ranks, on.nodes), &options);
                let bystander = self.bystander.as_deref().map(bystander::job);
                let workload = Workload { neighbour: self.neighbour, bystander, script, ..workload };
                Case { workload, interface: interfaces.first().copied().filter(|_| interfaces.len() == 1) }
            });
            (id, case)
        };
        self.runs(name).map(case).collect()
    }

    /// The bandwidths of the requested phases. IOR runs both if no phase is requested. A check of
    /// existing data (`-W`) has no bandwidth.
    fn metrics(&self, case: &CaseNames<'_>, _: Clock) -> Vec<Metric> {
        let asks_for = |flags: &[&str]| {
            self.tests(case).iter().any(|test| test.options.iter().any(|option| flags.contains(&option.as_str())))
        };
        // `-R` also reads, and IOR reports it like any other read.
        let asked = (asks_for(&["-w"]), asks_for(&["-r", "-R"]));
        let is_meant = |operation: Operation| match (asked, operation) {
            ((false, false), _) => !asks_for(&["-W"]),
            ((writes, _), Operation::Write) => writes,
            ((_, reads), _) => reads,
        };
        let asked = PHASES.into_iter().filter(|(operation, _)| is_meant(*operation));
        asked.map(|(operation, name)| Metric::bandwidth(name, operation)).collect()
    }

    fn phases(&self, summary: &str) -> Option<Result<Vec<PhaseReport>, String>> {
        let summary = IorSummary::parse(summary.as_bytes()).map_err(|error| with_causes(&error));
        let summary = summary.and_then(|summary| ior_figures::check(&summary).map(|()| summary));
        Some(summary.map(|summary| {
            let reports =
                summary.tests.iter().flat_map(|test| test.results.iter().map(move |result| (test.id, result)));
            let report = |(test, result): (u32, &bpfassay_ior::Repetition)| {
                let (operation, name) = match result.access {
                    Access::Write => PHASES[0],
                    Access::Read => PHASES[1],
                };
                PhaseReport {
                    operation,
                    name: name.parse().unwrap_or_default(),
                    test,
                    repetition: result.repetition,
                    bandwidth: result.bw_mib,
                    total_s: result.total_s,
                    bytes: result.moved.filter(|moved| moved.exact).map(|moved| moved.bytes),
                }
            };
            let mut reports: Vec<PhaseReport> = reports.map(report).collect();
            reports.sort_by_key(|report| report.operation != Operation::Write);
            reports
        }))
    }

    fn not_reported(&self, case: &CaseNames<'_>, operation: Operation) -> Option<&'static str> {
        let checks_writes = self.tests(case).iter().any(|test| test.options.iter().any(|option| option == "-W"));
        (operation == Operation::Read && checks_writes).then_some("IOR's summary does not report the bytes read by -W")
    }

    fn counts_bytes(&self) -> bool {
        true
    }

    fn transfer_size(&self, case: &CaseNames<'_>) -> Option<u64> {
        let (first, others) = self.tests(case).split_first()?;
        others.iter().all(|test| test.transfer_size == first.transfer_size).then_some(first.transfer_size)
    }
}

impl IorSpec {
    /// The cases of the workload `name` with their tests: all tests if they share files, else one
    /// test each.
    fn runs(&self, name: &str) -> impl Iterator<Item = (String, &[IorTest])> {
        let size = if self.text.is_some() { self.tests.len() } else { 1 };
        let runs: Vec<&[IorTest]> = self.tests.chunks(size.max(1)).collect();
        case_ids(name, &runs).into_iter().zip(runs)
    }

    /// Finds the tests of a case.
    fn tests(&self, named: &CaseNames<'_>) -> &[IorTest] {
        self.runs(named.workload).find(|(id, _)| id == named.case).map_or(&[], |(_, tests)| tests)
    }
}

/// Builds what a guest runs for IOR's `options`, with `ranks` ranks on `nodes` nodes.
pub(super) fn run(engine: IorEngine, (ranks, nodes): (u32, u32), options: &[String]) -> Workload {
    let places =
        ["-o", &format!("{DIRECTORY}/data"), "-O", "summaryFormat=JSON", "-O", &format!("summaryFile={SUMMARY}")]
            .map(str::to_owned);
    let args = options.iter().cloned().chain(places);
    let workload = match engine {
        IorEngine::Embedded => {
            let node = (nodes > 1).then(|| format!("--node={NODE}"));
            bundled(std::iter::once(format!("--ranks={}", ranks / nodes)).chain(node).chain(args))
        }
        // The real IOR cannot be stopped between its phases.
        IorEngine::External => Workload { program: Program::ExternalIor { ranks }, control: false, ..bundled(args) },
    };
    Workload { engine: Some(engine), ..workload }
}

/// Checks that the ranks of `spec` can run on `nodes` nodes.
///
/// # Errors
/// The problem and its solution.
pub(crate) fn check_nodes(spec: &IorSpec, nodes: u32) -> Result<(), String> {
    if !spec.ranks.is_multiple_of(nodes) {
        return Err(format!(
            "{} ranks are not the same number on each of {nodes} nodes: set `ranks` to a multiple",
            spec.ranks
        ));
    }
    if spec.neighbour {
        return Err("a neighbour is on one guest: leave out `neighbour`".to_owned());
    }
    if spec.bystander.is_some() {
        return Err("a bystander is on one guest: leave out `bystander`".to_owned());
    }
    // The ranks of a real IOR use MPI, and so support all options.
    let embedded = |test: &&IorTest| spec.engine != EngineChoice::External && test.interface.is_embedded();
    for test in spec.tests.iter().filter(embedded) {
        let args: Vec<&str> = test.options.iter().map(String::as_str).collect();
        let options = options(&args).map_err(|error| with_causes(&error))?;
        options.defaults.fits_nodes(spec.ranks).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Names the runs of a workload. A single run has the workload's name. Several runs add the
/// transfer size if it distinguishes them, else a number.
fn case_ids(name: &str, runs: &[&[IorTest]]) -> Vec<String> {
    if runs.len() == 1 {
        return vec![name.to_owned()];
    }
    let sizes: Vec<u64> = runs.iter().filter_map(|tests| tests.first()).map(|test| test.transfer_size).collect();
    let by_size = sizes.iter().collect::<BTreeSet<_>>().len() == runs.len();
    let id = |(number, size): (usize, &u64)| match by_size {
        true => format!("{name}-t{}", binary_size(*size)),
        false => format!("{name}-{number}"),
    };
    (1..).zip(&sizes).map(id).collect()
}

/// Formats `size` in the largest binary unit that divides it: `256KiB`.
fn binary_size(size: u64) -> String {
    [("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| size > 0 && size.trailing_zeros() >= *shift)
        .map_or_else(|| format!("{size}B"), |(unit, shift)| format!("{}{unit}", size >> shift))
}

/// Chooses the engine for tests with these interfaces, or says why none can run them.
fn engine(
    spec: &IorSpec,
    interfaces: &BTreeSet<Interface>,
    external: Option<&BTreeSet<Interface>>,
) -> Result<IorEngine, String> {
    if !spec.interfaces.is_empty() && interfaces.iter().any(|interface| !spec.interfaces.contains(interface)) {
        return Err(format!("the study keeps only tests with the interface {}", list(&spec.interfaces)));
    }
    let external_has = external.is_some_and(|external| interfaces.is_subset(external));
    let not_embedded: Vec<Interface> = interfaces.iter().copied().filter(|one| !one.is_embedded()).collect();
    let interface = list(&not_embedded);
    match spec.engine {
        EngineChoice::Auto | EngineChoice::External if external_has => Ok(IorEngine::External),
        EngineChoice::Auto | EngineChoice::Embedded if not_embedded.is_empty() => Ok(IorEngine::Embedded),
        EngineChoice::Embedded => Err(format!("the embedded engine does not have {interface}")),
        EngineChoice::Auto | EngineChoice::External => {
            let embedded = match spec.engine {
                EngineChoice::Auto => format!("the embedded engine does not have {interface}, and "),
                EngineChoice::Embedded | EngineChoice::External => String::new(),
            };
            Err(match external {
                None => format!("{embedded}no IOR was given for this architecture (--ior ARCH=DIR)"),
                Some(has) => {
                    let missing: Vec<Interface> = interfaces.difference(has).copied().collect();
                    format!("{embedded}the IOR given for this architecture does not have {}", list(&missing))
                }
            })
        }
    }
}

/// Parses the tests of a script.
fn parse_script(name: &str, text: &str) -> Result<IorPlan, String> {
    let invocation = Invocation { script: Some(name.to_owned()), ..Invocation::default() };
    invocation.plan(Some(text)).map_err(|error| format!("{name}: {}", with_causes(&error)))
}

/// Parses options into the one test that they describe.
fn parse_args(args: &[&str]) -> Result<IorPlan, String> {
    let options = options(args).map_err(|error| with_causes(&error))?;
    if options.script.is_some() {
        return Err("`-f` names a script: use the key `script` in place of `options`".to_owned());
    }
    options.plan(None).map_err(|error| with_causes(&error))
}

/// Smallest total size of the test's files with `ranks` ranks, in bytes. `None` if the number is
/// out of range.
fn least_size(test: &IorTest, ranks: u32) -> Option<u64> {
    let args: Vec<&str> = test.options.iter().map(String::as_str).collect();
    options(&args).ok()?.defaults.aggregate_size(ranks)
}

fn options(args: &[&str]) -> Result<Invocation, OptionsError> {
    Invocation::parse(args.iter().copied())
}

fn to_test(options: Options) -> IorTest {
    let interface = match options.api {
        Api::Posix => Interface::Posix,
        Api::Mmap => Interface::Mmap,
        Api::MpiIo => Interface::Mpiio,
    };
    let transfer_size = options.transfer_size;
    // The agent decides where files are.
    let options = Options { test_file: Options::default().test_file, ..options };
    IorTest { options: options.to_args(), interface, transfer_size }
}

#[cfg(test)]
mod tests;
