// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes one run: fresh state, tracer, workload with barriers, readings, clean-up.

mod announced;
mod bystander;
mod measure;

use bpfassay_protocol::{
    job::RunSpec,
    message::{GuestMessage, Phase, RunFigures, RunOutcome, WarmUp},
    probe::MapLayout,
    run_name,
    tool_job::Tool,
    tracer_messages::Refusal,
    with_causes,
};

use self::{
    announced::Announced,
    measure::{ForPhase, RunInFlight, misspoke, reference},
};
use crate::{
    agent_link::Link,
    children::Children,
    conditions::Conditions,
    environment::Environment,
    error::Result,
    meetings::Meetings,
    nfs::remove_tree,
    phases::Phases,
    run_figures,
    soundness::Snapshot,
    stop_request, system, threads,
    tool::{self, capabilities},
    tracer::{self, TracerStart, tracer_pool::Pool},
    workload::RunPaths,
};

/// Executes `specs` one after the other, and reports the outcome of each. `conditions` hold when
/// phases begin.
///
/// After each run with a tool, the system must be as before the first run. Otherwise no other run
/// begins, and the message that reports this is returned. A refused tool is not started again:
/// later runs with that tool end with the same refusal.
///
/// # Errors
/// The errors of [`execute`].
pub(crate) fn execute_all(
    specs: &[RunSpec],
    environment: &Environment,
    conditions: &mut Conditions,
    link: &Link,
    children: &mut Children,
) -> Result<Option<GuestMessage>> {
    // If no tool ran, no tool can be blamed.
    let has_tool = |spec: &RunSpec| spec.tool.is_some() || !spec.probe.is_baseline();
    let snapshot = specs.iter().any(has_tool).then(|| Snapshot::take(environment));
    let mut tracers = Pool::new(specs, environment);
    let mut refused = RefusedTools::default();
    let mut execute_each = || {
        for spec in specs {
            stop_request::check()?;
            if let Some(refusal) = refused.of(spec) {
                report(&spec.id, RunOutcome::Refused(refusal.clone()), Vec::new(), link)?;
                continue;
            }
            let refusal = execute(spec, environment, conditions, link, children, &mut tracers)?;
            refused.take(spec, refusal);
            let Some(snapshot) = snapshot.as_ref().filter(|_| has_tool(spec)) else { continue };
            let differences = snapshot.differences(&tracers.kept(), environment, children)?;
            if !differences.is_empty() {
                return Ok(Some(GuestMessage::Unsound { run: spec.id.clone(), differences }));
            }
        }
        Ok(None)
    };
    let executed = execute_each();
    // Kept tracers are ended whatever the outcomes of the runs.
    for note in tracers.end(children)? {
        link.log(note)?;
    }
    executed
}

/// The tools that have been refused so far.
#[derive(Default)]
struct RefusedTools<'a>(Vec<(&'a Tool, Refusal)>);

impl<'a> RefusedTools<'a> {
    /// Returns why the tool of `spec` was refused in an earlier run.
    fn of(&self, spec: &RunSpec) -> Option<&Refusal> {
        let tool = spec.tool.as_ref()?;
        self.0.iter().find(|(known, _)| *known == tool).map(|(_, refusal)| refusal)
    }

    /// Records a run of `spec`. A refusal without a run concerns the reference tracer, not the
    /// tool.
    fn take(&mut self, spec: &'a RunSpec, refusal: Option<Refusal>) {
        self.0.extend(spec.tool.as_ref().zip(refusal.filter(|refusal| refusal.run.is_some())));
    }
}

/// Executes `spec` at `environment` and reports the outcome; returns a refusal, too. `conditions`
/// hold when phases begin.
///
/// # Errors
/// Nothing can be sent to the host. All other errors are outcomes of the run.
fn execute(
    spec: &RunSpec,
    environment: &Environment,
    conditions: &mut Conditions,
    link: &Link,
    children: &mut Children,
    tracers: &mut Pool,
) -> Result<Option<Refusal>> {
    let mut notes = Vec::new();
    let mut paths = RunPaths::new(environment, &spec.id);
    let mut meetings = Meetings::of(environment.node, link, &spec.id);
    let mut durations = Vec::new();
    let mut outcome = loop {
        let announced = match (&spec.until_steady, durations.as_slice()) {
            (None, _) => Announced::All,
            (Some(_), []) => Announced::Beginning,
            (Some(_), _) => Announced::Nothing,
        };
        let mut outcome = attempt(
            spec,
            announced,
            conditions,
            (&mut paths, &mut meetings),
            link,
            (&mut *children, &mut *tracers),
            &mut notes,
        )
        // If somebody replaced the directory in the meantime, the figures do not describe this file
        // system.
        .and_then(|outcome| environment.test_dir.check().map(|()| outcome))
        .unwrap_or_else(|error| RunOutcome::Failed { message: with_causes(&error) });
        let (Some(rule), RunOutcome::Measured(figures)) = (&spec.until_steady, &mut outcome) else { break outcome };
        durations.push(figures.durations_ns());
        if let Some(is_steady) = rule.ends(&durations) {
            figures.warm_up = Some(WarmUp { is_steady, durations_ns: durations });
            break outcome;
        }
        stop_request::check()?;
    };
    if let Err(error) = paths.remove() {
        // The figures are valid; the next run prepares fresh state.
        notes.push(with_causes(&error));
    }
    // The first node's removals must be done before any node compares its system with the snapshot.
    if let (RunOutcome::Measured(_), Err(error)) = (&outcome, meetings.meet()) {
        outcome = RunOutcome::Failed { message: with_causes(&error) };
    }
    // Nothing is known about a run that was killed to stop early.
    stop_request::check()?;
    let refusal = match &outcome {
        RunOutcome::Refused(refusal) => Some(refusal.clone()),
        RunOutcome::Measured(_) | RunOutcome::Failed { .. } => None,
    };
    report(&spec.id, outcome, notes, link)?;
    Ok(refusal)
}

/// Sends the notes on `run`, then the outcome.
fn report(run: &str, outcome: RunOutcome, notes: Vec<String>, link: &Link) -> Result<()> {
    let (frame, left_out) = match run_figures::report(run, outcome, bpfassay_protocol::frame::MAX_PAYLOAD) {
        Ok(report) => report,
        Err(error) => {
            let message = format!("the figures of this run do not fit into a message: {}", with_causes(&error));
            run_figures::report(run, RunOutcome::Failed { message }, usize::MAX)?
        }
    };
    for note in notes.into_iter().chain(left_out) {
        link.log(format!("run {run}: {note}"))?;
    }
    link.send_frame(&frame)
}

fn attempt(
    spec: &RunSpec,
    announced: Announced,
    conditions: &mut Conditions,
    (paths, meetings): (&mut RunPaths<'_>, &mut Meetings<'_>),
    link: &Link,
    (children, tracers): (&mut Children, &mut Pool),
    notes: &mut Vec<String>,
) -> Result<RunOutcome> {
    let environment = paths.environment;
    environment.test_dir.check()?;
    make_fresh(paths, meetings)?;
    let paths = &*paths;
    let asks_for_features = spec.workload.features && spec.probe.is_baseline();
    if !spec.probe.is_baseline() || asks_for_features || spec.tool.is_some() {
        announced.phase(link, Phase::Attach, &spec.id)?;
    }
    let started = if spec.probe.is_baseline() {
        None
    } else {
        match tracers.start(spec, environment, || paths.output("tracer"), children, notes)? {
            TracerStart::Attached(tracer) => Some(*tracer),
            TracerStart::Refused(refusal) => return Ok(RunOutcome::Refused(refusal)),
        }
    };
    let features = match asks_for_features {
        true => tracer::features(environment, paths.output("features")?, children)?,
        false => Vec::new(),
    };
    let tool = match start_tool(spec, environment, children) {
        Ok(tool) => tool,
        Err(outcome) => {
            // The reference tracer sees nothing without the tool.
            started.map(|tracer| tracers.stop(tracer, children)).transpose()?;
            return outcome;
        }
    };
    let mut run = RunInFlight {
        environment,
        announced,
        conditions,
        link,
        meetings,
        children,
        tracer: started,
        tool,
        phases: Phases::default(),
        for_phase: ForPhase::default(),
        workload_code: Vec::new(),
        by_thread: by_thread(spec),
    };
    let measured = run.measure(spec, paths);
    let RunInFlight { mut tracer, tool, phases, children, .. } = run;
    let is_sent = announced.phase(link, Phase::TearDown, &spec.id);
    // The tracer is detached and the tool ended whatever the workload's outcome, and before the
    // first error is reported. The tool ends first, so that its last output has a reference.
    let stopped = tool.map(|tool| tool.stop(children, || reference(&mut tracer))).transpose();
    let remains = tracer.map(|tracer| tracers.stop(tracer, children)).transpose();
    is_sent?;
    let measured = measured?;
    let (mut tool, tool_statistics) = stopped?.unzip();
    if let Some(tool) = tool.as_mut().filter(|_| by_thread(spec)) {
        tool.agent = threads::own_name();
    }
    let phases = phases.finish().map_err(misspoke)?;
    let (tracer, samples, ended) = match remains? {
        Some(remains) => {
            notes.extend(remains.notes);
            (Some(remains.attached), remains.samples, remains.ended)
        }
        None => (None, Vec::new(), None),
    };
    let summary = match measured.output {
        Some(text) => text,
        None => paths.read_summary()?,
    };
    Ok(RunOutcome::Measured(Box::new(RunFigures {
        probe: spec.probe,
        engine: spec.workload.engine,
        summary,
        features,
        cgroup: measured.cgroup,
        mount: measured.mount,
        namespace: measured.namespace,
        phases,
        bystander: measured.bystander,
        whole: measured.whole,
        tracer,
        ended,
        tool_statistics: tool_statistics.unwrap_or_default(),
        tool: tool.map(Box::new),
        samples,
        warm_up: None,
    })))
}

/// Starts the tool under test, if `spec` has one. If the tool is refused and does not have all
/// capabilities, looks for those that it lacks.
///
/// # Errors
/// The outcome of the run, if the tool does not become ready.
fn start_tool(
    spec: &RunSpec,
    environment: &Environment,
    children: &mut Children,
) -> std::result::Result<Option<tool::RunningTool>, Result<RunOutcome>> {
    let Some(tool) = &spec.tool else { return Ok(None) };
    let name = run_name::of_tool(&spec.id);
    let place = (environment, name.as_str());
    // Root of a user namespace has all capabilities that it can have.
    let may_lack = !tool.privileges.user_namespace;
    let looked_for = match spec.workload.capabilities && may_lack {
        true => Some(capabilities::search(tool, &[], place, children).map_err(Err)?),
        false => None,
    };
    match tool::RunningTool::start(tool, place, spec.bpf_stats, children).map_err(Err)? {
        tool::ToolStart::Ready(mut running) => {
            running.note_capabilities(looked_for);
            Ok(Some(*running))
        }
        tool::ToolStart::Refused(refusal) => {
            let lacking = match looked_for {
                None if may_lack && !tool.privileges.are_all() => {
                    let had = tool.privileges.capabilities();
                    Some(capabilities::search(tool, had, place, children).map_err(Err)?)
                }
                found => found,
            };
            let run = Some(spec.id.clone());
            Err(Ok(RunOutcome::Refused(Refusal { run, capabilities: lacking.map(Box::new), ..refusal })))
        }
    }
}

/// Returns whether a reference tracer counts by thread.
fn by_thread(spec: &RunSpec) -> bool {
    spec.tool.is_some() && spec.probe.map == MapLayout::Threads
}

/// Removes files of earlier runs and cached data, and makes the directories of this run. The first
/// node creates what nodes share.
fn make_fresh(paths: &mut RunPaths<'_>, meetings: &mut Meetings<'_>) -> Result<()> {
    meetings.meet()?;
    if meetings.is_first() {
        paths.environment.test_dir.empty()?;
    }
    remove_tree(&paths.work)?;
    rustix::fs::sync();
    // 3 drops page cache, dentries and inodes.
    system::write("/proc/sys/vm/drop_caches", "3\n")?;
    if meetings.is_first() {
        paths.make()?;
        return meetings.meet();
    }
    meetings.meet()?;
    paths.make_work()
}
