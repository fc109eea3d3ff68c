// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR: scripts and options of study files, and the program that does its work.

use std::{collections::BTreeSet, fmt, str::FromStr};

use bpfassay_input::document::{Field, Reported};
use bpfassay_ior::{Access, Api, Invocation, Options, OptionsError, Summary};
use bpfassay_protocol::{
    Operation, UnknownName,
    job::{DIRECTORY, IorEngine, Program, SUMMARY, Workload},
    nodes::NODE,
    with_causes,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Case, FindScript, Kind, Metric, Named, OnTarget, PhaseReport, Read, Table, Type, WorkloadKind, bundled};
use crate::{Clock, bundled as files, error::list};

mod figures;

pub(super) const TYPES: &[Type] = &[Type { name: "ior", read }];

fn read(table: &Table<'_>) -> Result<Read, Reported> {
    let spec = read_spec(table)?;
    let default_name = spec.script.as_ref().map(|name| name.trim_end_matches(".ior").to_owned());
    Ok(Read { kind: WorkloadKind::Ior(spec), default_name })
}

fn read_spec(table: &Table<'_>) -> Result<IorSpec, Reported> {
    let section = table.section;
    section.only(&["type", "name", "script", "options", "ranks", "engine", "interfaces", "neighbour"]);
    let tests = match (section.get("script"), section.get("options")) {
        (Some(script), None) => tests_of_script(&script, table.scripts).map(|(name, tests)| (Some(name), tests)),
        (None, Some(options)) => test_of_options(&options).map(|test| (None, vec![test])),
        _ => Err(section.error("give either `script` or `options`")),
    };
    let ranks = section.or("ranks", 1, |ranks| ranks.number(1..=1024));
    let engine = section.or("engine", EngineChoice::Auto, |engine| engine.choice(EngineChoice::NAMES));
    let interfaces = section.or("interfaces", Vec::new(), |interfaces| interfaces.distinct("interface", Field::name));
    let neighbour = section.or("neighbour", false, Field::boolean);
    let ((script, tests), ranks) = (tests?, ranks?);
    for (index, test) in tests.iter().enumerate() {
        fits(test, ranks, table).map_err(|message| section.error(format!("test {index}: {message}")))?;
    }
    Ok(IorSpec { script, tests, ranks, engine: engine?, interfaces: interfaces?, neighbour: neighbour? })
}

/// The name of the script that `field` names, and its tests.
fn tests_of_script(field: &Field<'_, '_>, scripts: &dyn FindScript) -> Result<(String, Vec<IorTest>), Reported> {
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
        let bundled = files::script_names().collect::<Vec<_>>().join(", ");
        return Err(
            field.error(format!("no script `{name}` beside the study or among the bundled ones, which are {bundled}"))
        );
    };
    let tests = parse_script(name, &text).map_err(|message| field.error(message))?;
    Ok((name.to_owned(), tests))
}

/// Options as a list of arguments, or as one text that is split as a shell does it.
fn test_of_options(field: &Field<'_, '_>) -> Result<IorTest, Reported> {
    let args = match field.is_list() {
        true => field.each(Field::string)?,
        false => shlex::split(field.text()?).ok_or_else(|| field.error("a quotation mark is not closed"))?,
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    parse_args(&args).map_err(|message| field.error(message))
}

/// Whether the files of `test` fit into each file system.
fn fits(test: &IorTest, ranks: u32, table: &Table<'_>) -> Result<(), String> {
    let size = least_size(test, ranks).ok_or("the test moves more bytes than fit into 63 bits")?;
    table.must_fit(size, &format!("its files of {} MiB", size.div_ceil(1 << 20)))
}

/// An IOR script or inline options, and how to run it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IorSpec {
    /// File name of the script, if it came from one.
    pub script: Option<String>,
    /// The tests, in order.
    pub tests: Vec<IorTest>,
    /// MPI ranks.
    pub ranks: u32,
    /// Which program does the work.
    pub engine: EngineChoice,
    /// Only tests with these interfaces are run; empty: all.
    pub interfaces: Vec<Interface>,
    /// Whether another process, in a cgroup of its own, reads and writes on the same mount meanwhile.
    #[serde(default)]
    pub neighbour: bool,
}

/// One IOR test: what stands between two `RUN` lines of a script, with everything inherited written out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IorTest {
    /// Options, one argument each, without program name, `-o` and `-O summary…`.
    pub options: Vec<String>,
    /// The interface it uses.
    pub interface: Interface,
    /// Transfer size in bytes.
    pub transfer_size: u64,
}

/// Which program does IOR's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EngineChoice {
    /// The real IOR where the user gave one for the architecture and it has the interface, else the embedded engine.
    Auto,
    /// The embedded engine.
    Embedded,
    /// The real IOR; left out where there is none.
    External,
}

impl EngineChoice {
    /// The names of study files.
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

    /// IOR's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Posix => "POSIX",
            Self::Mmap => "MMAP",
            Self::Mpiio => "MPIIO",
        }
    }

    /// Whether the embedded engine has it.
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

    /// Takes any case, as IOR does.
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

/// The timed phases of IOR by the operations that move their data, in the order of display.
const PHASES: [(Operation, &str); 2] = [(Operation::Write, "write"), (Operation::Read, "read")];

impl Kind for IorSpec {
    fn cases(&self, name: &str, on: &OnTarget<'_>) -> Vec<(String, Result<Case, String>)> {
        let case = |(id, test): (String, &IorTest)| {
            let case = engine(self, test.interface, on.external_ior).map(|engine| {
                let workload =
                    Workload { neighbour: self.neighbour, ..run(engine, (self.ranks, on.nodes), &test.options) };
                Case { workload, interface: Some(test.interface) }
            });
            (id, case)
        };
        case_ids(name, &self.tests).into_iter().zip(&self.tests).map(case).collect()
    }

    /// The bandwidths of the phases that the options ask for; both without any of these, as IOR
    /// does it. A check of what is there (`-W`) has no bandwidth.
    fn metrics(&self, case: &Named<'_>, _: Clock) -> Vec<Metric> {
        let asks_for = |flags: &[&str]| {
            self.test(case).is_some_and(|test| test.options.iter().any(|option| flags.contains(&option.as_str())))
        };
        // `-R` reads, too, and IOR reports that like any other read.
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
        let summary = Summary::parse(summary.as_bytes()).map_err(|error| with_causes(&error));
        let summary = summary.and_then(|summary| figures::check(&summary).map(|()| summary));
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

    fn not_reported(&self, case: &Named<'_>, operation: Operation) -> Option<&'static str> {
        let checks_writes = self.test(case).is_some_and(|test| test.options.iter().any(|option| option == "-W"));
        (operation == Operation::Read && checks_writes).then_some("IOR's summary does not report the bytes read by -W")
    }

    fn counts_bytes(&self) -> bool {
        true
    }

    fn transfer_size(&self, case: &Named<'_>) -> Option<u64> {
        Some(self.test(case)?.transfer_size)
    }
}

impl IorSpec {
    /// The test that a case is.
    fn test(&self, named: &Named<'_>) -> Option<&IorTest> {
        let tests = case_ids(named.workload, &self.tests).into_iter().zip(&self.tests);
        tests.into_iter().find(|(id, _)| id == named.case).map(|(_, test)| test)
    }
}

/// What a guest runs for IOR's `options`, with these ranks on so many nodes.
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
        // The real IOR cannot be held between its phases.
        IorEngine::External => Workload { program: Program::ExternalIor { ranks }, control: false, ..bundled(args) },
    };
    Workload { engine: Some(engine), ..workload }
}

/// Whether the ranks of `spec` can be on so many nodes.
///
/// # Errors
/// What is not possible, and what to do.
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
    // Under MPI, a real IOR's ranks can do whatever its options ask for.
    let embedded = |test: &&IorTest| spec.engine != EngineChoice::External && test.interface.is_embedded();
    for test in spec.tests.iter().filter(embedded) {
        let args: Vec<&str> = test.options.iter().map(String::as_str).collect();
        let options = options(&args).map_err(|error| with_causes(&error))?;
        options.defaults.fits_nodes(spec.ranks).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Names of the tests of one workload: the workload's name alone where there is one test, with the transfer size
/// where that distinguishes the tests, else with their number.
fn case_ids(name: &str, tests: &[IorTest]) -> Vec<String> {
    if tests.len() == 1 {
        return vec![name.to_owned()];
    }
    let sizes: BTreeSet<u64> = tests.iter().map(|test| test.transfer_size).collect();
    let by_size = sizes.len() == tests.len();
    tests
        .iter()
        .enumerate()
        .map(|(index, test)| match by_size {
            true => format!("{name}-t{}", binary_size(test.transfer_size)),
            false => format!("{name}-{}", index + 1),
        })
        .collect()
}

/// `size` bytes in the largest binary unit that holds it exactly: `256KiB`.
fn binary_size(size: u64) -> String {
    [("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| size > 0 && size.trailing_zeros() >= *shift)
        .map_or_else(|| format!("{size}B"), |(unit, shift)| format!("{}{unit}", size >> shift))
}

/// The engine that runs a test, or why none does.
fn engine(spec: &IorSpec, interface: Interface, external: Option<&BTreeSet<Interface>>) -> Result<IorEngine, String> {
    if !spec.interfaces.is_empty() && !spec.interfaces.contains(&interface) {
        return Err(format!("the study keeps only tests with the interface {}", list(&spec.interfaces)));
    }
    let external_has = external.is_some_and(|interfaces| interfaces.contains(&interface));
    match spec.engine {
        EngineChoice::Auto | EngineChoice::External if external_has => Ok(IorEngine::External),
        EngineChoice::Auto | EngineChoice::Embedded if interface.is_embedded() => Ok(IorEngine::Embedded),
        EngineChoice::Embedded => Err(format!("the embedded engine does not have {interface}")),
        EngineChoice::Auto | EngineChoice::External => {
            let embedded = match spec.engine {
                EngineChoice::Auto => format!("the embedded engine does not have {interface}, and "),
                EngineChoice::Embedded | EngineChoice::External => String::new(),
            };
            Err(match external {
                None => format!("{embedded}no IOR was given for this architecture (--ior ARCH=DIR)"),
                Some(_) => format!("{embedded}the IOR given for this architecture does not have {interface}"),
            })
        }
    }
}

/// The tests of a script, in order.
fn parse_script(name: &str, text: &str) -> Result<Vec<IorTest>, String> {
    let invocation = Invocation { script: Some(name.to_owned()), ..Invocation::default() };
    let plan = invocation.plan(Some(text)).map_err(|error| format!("{name}: {}", with_causes(&error)))?;
    Ok(plan.tests.into_iter().map(to_test).collect())
}

/// The one test that options on a line describe.
fn parse_args(args: &[&str]) -> Result<IorTest, String> {
    let options = options(args).map_err(|error| with_causes(&error))?;
    if options.script.is_some() {
        return Err("`-f` names a script: use the key `script` in place of `options`".to_owned());
    }
    let plan = options.plan(None).map_err(|error| with_causes(&error))?;
    plan.tests.into_iter().next().map(to_test).ok_or_else(|| "the options describe no test".to_owned())
}

/// Bytes that lie in the test's files at least, with `ranks` ranks; `None` where the number is out of range.
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
    // The agent decides where the files are.
    let options = Options { test_file: Options::default().test_file, ..options };
    IorTest { options: options.to_args(), interface, transfer_size }
}

#[cfg(test)]
mod tests;
