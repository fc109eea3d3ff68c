// SPDX-License-Identifier: MIT OR Apache-2.0
//! Evaluates a tool from a tool file: compares the tool's reports with what really happened, run by
//! run.
//!
//! The truth comes from the bundled tracer if it counted in parallel with the tool. The bundled
//! tracer was read before and after each report of the tool. Runs of the tool alone show findings
//! that need no truth.

mod cgroups;
mod map_keys;
mod requested;
mod tool_object;
mod truth;

use std::collections::{BTreeMap, BTreeSet};

use bpfassay_protocol::{
    Arch,
    message::RunFigures,
    probe::ByteMeaning,
    tool_job::{self, OutputPiece, RacyUpdate, Ready, ToolFigures},
    tracer_messages::Refusal,
};
use bpfassay_study::{Cell, Clock, Plan, Series, WorkloadSpec};
use bpfassay_tool::{
    Readings, Report, ReportForm, Source, Stream, ToolCapture, UnderTest,
    finding::{
        self, Certainty, Compared, Detach, Evidence, FindingResult, FindingStatus, KernelFacts, NotCompared, Racy,
        Start, Truth, ValueLimits,
    },
    recorded_output::{CapturedPage, CapturedPiece, Dump},
};

use bpfassay_results::{FailureKind, Loaded, Outcome, Provenance, RunFailure, RunResult, ToolResult};

use self::cgroups::SumsByCgroup;
use crate::tool_start::step::started;

/// The reason if times mean nothing ([`is_timed`]).
pub(crate) const NOT_TIMED: &str = "a guest that is emulated has no time under the wall clock";

/// Whether times in guests of `arch` mean something: they do not under the wall clock in guests
/// that are emulated.
pub(crate) fn is_timed(plan: &Plan, provenance: &[Provenance], arch: Arch) -> bool {
    plan.study.clock == Clock::Instructions || !provenance.iter().any(|provenance| provenance.is_emulated(arch))
}

/// Evaluates the tool of `cell` over all its runs; `None` for a cell without a tool from a tool
/// file.
pub(super) fn derive(plan: &Plan, provenance: &[Provenance], cell: &Cell, runs: &[&RunResult]) -> Option<ToolResult> {
    let tool = plan.study.tool(cell.tool.as_ref()?)?;
    let object = tool.object(cell.target.arch, &cell.target.kernel);
    let guest = GuestKind {
        is_timed: is_timed(plan, provenance, cell.target.arch),
        series: Series::of(&cell.target.kernel),
        cpus: plan.study.guest.cpus,
        seed: None,
    };
    let is_repeatable = plan.study.clock == Clock::Instructions;
    let mut seeds = BTreeSet::new();
    let mut result = ToolResult::default();
    let mut not_compared: Option<Vec<NotCompared>> = None;
    let mut against: BTreeMap<ByteMeaning, AgainstReference> = BTreeMap::new();
    for run in runs {
        let findings = match &run.record.outcome {
            Outcome::Failed(failure) if failure.kind == FailureKind::Unsound => left_changed(failure),
            Outcome::Failed(_) => continue,
            Outcome::Refused(refusal) => {
                result.capabilities = result.capabilities.or_else(|| refusal.capabilities.as_deref().cloned());
                of_refusal(refusal)
            }
            Outcome::Measured(figures) => {
                let search = || figures.tool.as_ref()?.capabilities.clone();
                result.capabilities = result.capabilities.or_else(search);
                let seed = is_repeatable.then(|| plan.study.design.seed_of(run.record.replicate));
                let guest = GuestKind { seed, ..guest };
                let (findings, beside) = of_run(tool, object.as_deref(), guest, &run.record.run, figures);
                seeds.extend(seed.filter(|_| !beside.figures.is_empty()));
                if let (None, Some(seen)) = (&result.loaded, &figures.tool) {
                    result.loaded = Some(Loaded { events: beside.events, ..tool_object::loaded(seen) });
                }
                let known = not_compared.get_or_insert_with(|| beside.not_compared.clone());
                known.retain(|one| beside.not_compared.iter().any(|still| still.index == one.index));
                if let Some(meaning) = figures.probe.probe.counts()
                    && run.record.has_reference
                    && !beside.figures.is_empty()
                {
                    against.insert(meaning, AgainstReference { run: Some(run.record.run.clone()), ..beside });
                }
                findings
            }
        };
        merge(&mut result.findings, findings);
    }
    if guest.cpus > 1 {
        races_not_seen(&mut result.findings, seeds.len());
    }
    let not_compared = not_compared.unwrap_or_default();
    if let Some(report) = &tool.file.report {
        finding::leave_open(&mut result.findings, report, &not_compared);
    }
    let workload = plan.study.workload(&cell.case);
    if workload.is_some_and(WorkloadSpec::compares_tools) {
        result.not_compared = not_compared;
    }
    let returned = against.remove(&ByteMeaning::Returned).unwrap_or_default();
    let requested = against.remove(&ByteMeaning::Requested).unwrap_or_default();
    let with_moved = |one: Compared| Compared { moved: returned.moved_of(&one), ..one };
    result.figures = requested.figures.into_iter().map(with_moved).collect();
    result.run = returned.run.or(requested.run);
    result.figures.extend(returned.figures);
    Some(result)
}

/// Evaluates a tool that did not start: why, and whether an object fits the kernel's prototypes.
fn of_refusal(refusal: &Refusal) -> Vec<FindingResult> {
    let start = started(refusal);
    let prototypes = refusal.prototypes.as_ref().map(|prototypes| prototypes.0.as_slice());
    let evidence = Evidence { start: Some(&start), prototypes, ..Evidence::default() };
    finding::evaluate(&evidence, &ValueLimits::default())
}

/// Evaluates a tool after whose run the guest had changed. This finding does not depend on the
/// reports of the tool.
fn left_changed(failure: &RunFailure) -> Vec<FindingResult> {
    // The record of a failed run does not show how the tool started.
    let mut findings = finding::evaluate(&Evidence::default(), &ValueLimits::default());
    // The first line is the agent's statement; other lines come from the console and prove nothing.
    let status = FindingStatus::found(Certainty::Proven, failure.excerpt.iter().take(1).cloned().collect());
    outweigh(&mut findings, FindingResult { kind: finding::Kind::LeftBehind, status });
    findings
}

/// A tool's figures compared with a reference tracer's counts.
#[derive(Default)]
struct AgainstReference {
    figures: Vec<Compared>,
    /// The bytes that calls moved, for figures of requested bytes, by figure and subject.
    moved: BTreeMap<(String, Option<String>), u64>,
    not_compared: Vec<NotCompared>,
    run: Option<String>,
    /// Number of events that the tool reported; `None` for a tool that reports sums.
    events: Option<u64>,
}

impl AgainstReference {
    fn moved_of(&self, one: &Compared) -> Option<u64> {
        self.moved.get(&(one.figure.clone(), one.subject.clone())).copied()
    }
}

/// Ranks a status for a comparison with the status of another run. The more certain of two findings
/// weighs more.
fn weight(status: &FindingStatus) -> u8 {
    match status {
        FindingStatus::Found { certainty, .. } => 2 + certainty.map_or(0, |certainty| certainty as u8),
        FindingStatus::Clear => 1,
        FindingStatus::NotEvaluated { .. } => 0,
    }
}

/// Replaces the known finding of the same kind by `found`, if `found` weighs more.
fn outweigh(known: &mut [FindingResult], found: FindingResult) {
    let of_kind = known.iter_mut().find(|known| known.kind == found.kind);
    if let Some(known) = of_kind.filter(|known| weight(&found.status) > weight(&known.status)) {
        *known = found;
    }
}

/// Merges the findings of two runs. A fault in any run outweighs the absence of one, which
/// outweighs that a kind was not evaluated.
fn merge(known: &mut Vec<FindingResult>, new: Vec<FindingResult>) {
    if known.is_empty() {
        *known = new;
        return;
    }
    for (known, new) in known.iter_mut().zip(new) {
        // The last run has a reference tracer, and so the best reason why a kind was not evaluated.
        let (before, now) = (weight(&known.status), weight(&new.status));
        if now > before || now == 0 && before == 0 {
            *known = new;
        }
    }
}

/// Says that no count was lost to the racy updates of programs, in runs with so many seeds.
fn races_not_seen(findings: &mut [FindingResult], seeds: usize) {
    let is_clear =
        |one: &FindingResult| (one.kind, &one.status) == (finding::Kind::CountsTooLow, &FindingStatus::Clear);
    if seeds == 0 || !findings.iter().any(is_clear) {
        return;
    }
    for one in findings.iter_mut().filter(|one| one.kind == finding::Kind::RacyUpdate) {
        if let FindingStatus::Found { evidence, certainty: Some(Certainty::Fitting) } = &mut one.status {
            let plural = if seeds == 1 { "" } else { "s" };
            evidence.push(format!("no lost count was seen with {seeds} seed{plural}"));
        }
    }
}

/// What decides how a tool is evaluated in a guest.
#[derive(Debug, Clone, Copy)]
struct GuestKind {
    /// Whether times mean something.
    is_timed: bool,
    /// The series of the kernel, if its name has one.
    series: Option<Series>,
    cpus: u32,
    /// See [`KernelFacts::seed`].
    seed: Option<u64>,
}

/// Evaluates the run `id` of the tool.
fn of_run(
    tool: &UnderTest,
    object: Option<&[u8]>,
    guest: GuestKind,
    id: &str,
    figures: &RunFigures,
) -> (Vec<FindingResult>, AgainstReference) {
    let Some(seen) = &figures.tool else { return (Vec::new(), AgainstReference::default()) };
    let report = tool.file.report.as_ref();
    let kernel = kernel_facts(tool, seen, figures, guest);
    let types = tool_object::types(seen);
    let object = object.or(types.as_deref());
    let read = report.map(|report| bpfassay_tool::read(report, &capture(report, seen), object)).transpose();
    let (mut readings, unreadable) = match read {
        Ok(Some(mut readings)) => {
            // A script prints a map only when it has entries.
            readings.absent.retain(|one| one.is_value || !tool.file.names_maps_of_scripts());
            (Some(readings), None)
        }
        Ok(None) => (None, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let cgroups = SumsByCgroup::of(id, seen, figures);
    let truth = report.and_then(|report| truth::of(report, seen, figures, &cgroups));
    if let (Some(readings), Some(truth)) = (&mut readings, &truth) {
        readings.newcomers = truth::newcomers(truth, figures, &cgroups);
    }
    let prototypes = tool_object::prototypes(seen);
    let (of_phases, requested) = report
        .zip(readings.as_ref())
        .map(|(report, readings)| requested::evaluate(report, readings, seen, figures, &cgroups))
        .unwrap_or_default();
    let start = start_of(tool, seen, readings.as_ref());
    let evidence = Evidence {
        start: Some(&start),
        prototypes: prototypes.as_deref(),
        report,
        readings: readings.as_ref(),
        truth: truth.as_ref(),
        requested: Some(&requested),
        kernel: Some(&kernel),
    };
    let mut findings = finding::evaluate(&evidence, &ValueLimits::default());
    for found in of_phases {
        outweigh(&mut findings, found);
    }
    if let Some(reason) = unreadable {
        let status = FindingStatus::found(Certainty::Proven, vec![reason]);
        outweigh(&mut findings, FindingResult { kind: finding::Kind::Unreadable, status });
    }
    let beside = report.map(|report| against_reference(report, readings.as_ref(), truth.as_ref()));
    let is_of_events = report.is_some_and(|report| matches!(report.form, ReportForm::Events { .. }));
    let events =
        readings.filter(|readings| is_of_events && !readings.cut).map(|readings| readings.reports.len() as u64);
    (findings, AgainstReference { events, ..beside.unwrap_or_default() })
}

/// Compares what the tool reported with what happened, as far as both are known.
fn against_reference(report: &Report, readings: Option<&Readings>, truth: Option<&Truth>) -> AgainstReference {
    let not_compared = finding::not_compared(report, readings, truth);
    let (Some(readings), Some(truth)) = (readings, truth) else {
        return AgainstReference { not_compared, ..AgainstReference::default() };
    };
    let moved = finding::moved(report, truth).into_iter();
    AgainstReference {
        figures: finding::compared(report, readings, truth),
        not_compared,
        moved: moved.map(|(figure, name, bytes)| ((figure, name.map(str::to_owned)), bytes)).collect(),
        run: None,
        events: None,
    }
}

/// Whether the tool itself shows when it is ready. The loader of a bare object does.
pub(crate) fn has_sign(tool: &UnderTest) -> bool {
    matches!(tool.file.source, Source::Object(_)) || tool.file.ready != Ready::Started
}

/// Determines the outcome of the start of a running tool. A started process, a line and an open
/// port do not prove that programs are loaded, and loaded programs alone do not prove that they are
/// attached. A link proves it, and so does any count, unless the loader of a bare object says what
/// it did not attach.
fn start_of(tool: &UnderTest, seen: &ToolFigures, readings: Option<&Readings>) -> Start {
    if matches!(tool.file.source, Source::Object(_)) {
        let programs = tool_object::unattached(seen);
        if !programs.is_empty() {
            return Start::Unattached { programs };
        }
    }
    let shows_all = match tool.file.ready {
        Ready::Line { .. } | Ready::Port(_) => true,
        Ready::Programs { .. } | Ready::Started => matches!(tool.file.source, Source::Object(_)),
    };
    let counted = readings.is_some_and(|readings| readings.samples.iter().any(|sample| sample.value != 0));
    let attached = counted || seen.links.is_some_and(|links| links > 0);
    let loaded = attached || !seen.programs.is_empty();
    match loaded && shows_all {
        true => Start::Ready,
        false => Start::Running { loaded, attached },
    }
}

/// `BPF_MAP_TYPE_LRU_HASH` and `BPF_MAP_TYPE_LRU_PERCPU_HASH` of include/uapi/linux/bpf.h.
const EVICTING: [u32; 2] = [9, 10];

/// The series whose kernels derive the memory of a map from the sizes of keys and values alone,
/// first and end: from commit 80ee81e0403c (`bpf_map_memory_footprint`) until commit 90a5527d7686
/// (`map_mem_usage`). The buckets and headers of a hash map can need more than the keys and values.
const MAPS_UNDERSTATED: [(u32, u32); 2] = [(5, 11), (6, 4)];

/// Says that kernels of this series report less than the memory of maps, if they do.
fn maps_understated(series: Option<Series>) -> Option<String> {
    let [first, end] = MAPS_UNDERSTATED;
    let is_understated = series.is_some_and(|series| (first..end).contains(&series.version()));
    is_understated.then(|| "Linux 5.11 to 6.3 report only the keys and values of maps".to_owned())
}

/// Returns the memory of all maps of a tool on a kernel of `series`, in bytes.
///
/// # Errors
/// The reason why the kernel's number says less, or is missing.
pub(crate) fn map_bytes(loaded: &Loaded, series: Option<Series>) -> Result<u64, String> {
    let bytes = loaded.map_bytes.ok_or("the kernel does not report the memory of each map")?;
    maps_understated(series).filter(|_| bytes > 0).map_or(Ok(bytes), Err)
}

fn kernel_facts(tool: &UnderTest, seen: &ToolFigures, figures: &RunFigures, guest: GuestKind) -> KernelFacts {
    let (full_maps, keys_lacks) = map_keys::full_maps(seen, figures);
    let GuestKind { is_timed, series, cpus, seed } = guest;
    let left = &seen.left_behind;
    let mut left_behind: Vec<String> = Vec::new();
    for (what, names) in [("program", &left.programs), ("map", &left.maps), ("probe event", &left.events)] {
        left_behind.extend(names.iter().map(|name| format!("{what} {name}")));
    }
    left_behind.extend(left.links.filter(|&links| links > 0).map(|links| format!("{links} links")));
    let objects = || seen.programs.iter().chain(&seen.maps);
    let in_kernel = objects().filter_map(|object| object.memory_bytes);
    let unknown = objects().filter(|object| object.memory_bytes.is_none()).count();
    let resident = seen.resident_bytes.iter().copied().max().unwrap_or(0);
    let memory_lacks = match unknown {
        0 if resident == 0 => Some("the memory of its processes is not known".to_owned()),
        0 if seen.maps.is_empty() => None,
        0 => maps_understated(series),
        _ => Some(format!("the kernel does not report the memory of {unknown} of its programs and maps")),
    };
    let time = &seen.processor_us;
    let idle = time.idle.checked_sub(time.ready).filter(|_| is_timed && time.idle_ns > 0);
    KernelFacts {
        missed_probes: seen.missed_probes,
        recursion_misses: seen.recursion_misses,
        programs: seen.programs.iter().map(|program| program.kind).collect(),
        evicting: seen.maps.iter().filter(|map| EVICTING.contains(&map.kind)).map(|map| map.name.clone()).collect(),
        cpus,
        seed,
        racy: seen.races.as_ref().map(|races| races.updates.iter().map(|update| racy(seen, update)).collect()),
        racy_lacks: seen.races.as_ref().and_then(|races| races.unknown.first().cloned()),
        full_maps: Some(full_maps),
        keys_lacks,
        links: seen.links,
        kernel: series.map(Series::version),
        left_behind: Some(left_behind),
        left_lacks: left.links.is_none().then(|| "the kernel does not list links".to_owned()),
        memory_bytes: Some(in_kernel.fold(resident, u64::saturating_add)),
        memory_lacks,
        idle_cpu: idle.map(|used| (used.saturating_mul(1000), time.idle_ns)),
        attach_ns: (is_timed && has_sign(tool)).then_some(seen.ready_ns),
        detach: is_timed.then(|| match seen.stop_ns {
            Some(took) => Detach::After(took),
            None => Detach::Killed(seen.ended.clone()),
        }),
    }
}

/// Names the map of an update.
fn racy(seen: &ToolFigures, update: &RacyUpdate) -> Racy {
    let map = seen.maps.iter().find(|map| map.id == update.map).map(|map| map.name.clone());
    let map = map.unwrap_or_else(|| update.map.to_string());
    Racy { program: update.program.clone(), map, line: update.line.clone() }
}

/// Whether this piece of output holds figures. If several endpoints answer, each piece does.
fn is_of(report: &Report, piece: &OutputPiece) -> bool {
    piece.source == report.form.stream().map_or(tool_job::Source::Endpoint, source)
}

/// Returns the source of the output that a tool writes to this stream.
const fn source(stream: Stream) -> tool_job::Source {
    match stream {
        Stream::Stdout => tool_job::Source::Output,
        Stream::Stderr => tool_job::Source::Error,
    }
}

fn capture(report: &Report, seen: &ToolFigures) -> ToolCapture {
    let mut capture = ToolCapture { cut: seen.dropped_bytes > 0, ..ToolCapture::default() };
    let lost = report.lost.as_ref().map(|lost| lost.stream);
    for piece in &seen.output {
        let (at_ns, bytes) = (piece.monotonic_ns, || piece.text.clone().into_bytes());
        let wanted = report.form.stream().into_iter().chain(lost).find(|stream| source(*stream) == piece.source);
        if let Some(stream) = wanted {
            capture.pieces.push(CapturedPiece { at_ns, stream, bytes: bytes() });
        }
        if !is_of(report, piece) || report.form.stream().is_some() {
            continue;
        }
        if report.form.maps().is_empty() {
            let place = usize::try_from(piece.endpoint).unwrap_or(usize::MAX);
            capture.pages.push(CapturedPage { at_ns, place, body: bytes() });
            continue;
        }
        match Dump::of_answer(at_ns, piece.text.as_bytes()) {
            Ok((dumps, is_cut)) => {
                capture.cut |= is_cut;
                capture.dumps.extend(dumps);
            }
            // A reading that cannot be used counts as missing.
            Err(_) => capture.cut = true,
        }
    }
    capture
}

#[cfg(test)]
mod tests;
