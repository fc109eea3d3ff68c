// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracers whose programs stay loaded between the runs of a job. Loading takes several times as long as attaching, and a run
//! without the tracer then differs from one with it by attachment alone.

use std::{collections::BTreeMap, fs::File};

use bpfassay_protocol::job::RunSpec;

use super::{Periodic, Process, Remains, Started, Tracer, arguments};
use crate::{children::Children, environment::Environment, error::Result, soundness::Kept};

/// Most tracers that are kept at once: what they hold is memory that the runs do not have.
const MOST: usize = 12;

/// The tracers of a job.
pub(crate) struct Pool {
    /// By arguments, the runs to come.
    to_come: BTreeMap<Vec<String>, usize>,
    kept: Vec<(Process, Kept)>,
}

impl Pool {
    /// Of the job that has these runs.
    pub(crate) fn new(specs: &[RunSpec], environment: &Environment) -> Self {
        let mut to_come = BTreeMap::new();
        for spec in specs.iter().filter(|spec| may_be_kept(spec)) {
            *to_come.entry(arguments(spec, environment)).or_default() += 1;
        }
        Self { to_come, kept: Vec::new() }
    }

    /// Has the tracer of `spec` attach, one that was kept or a new one, and waits until it counts or refuses. What a new one prints to standard
    /// error goes to the file that `stderr` makes.
    pub(crate) fn start(
        &mut self,
        spec: &RunSpec,
        environment: &Environment,
        stderr: impl FnOnce() -> Result<File>,
        children: &mut Children,
        notes: &mut Vec<String>,
    ) -> Result<Started> {
        let arguments = arguments(spec, environment);
        if !may_be_kept(spec) {
            return Process::start(arguments, false, environment, stderr()?, children)?.attached(children);
        }
        let kept = self.kept.iter().position(|(process, _)| process.arguments == arguments);
        if let Some(at) = kept {
            let (mut process, _) = self.kept.remove(at);
            let attached = match process.forget_output() {
                Ok(()) => process.attach(children),
                Err(source) => {
                    process.end(children, &mut Periodic::default(), notes)?;
                    Err(crate::error::Error::system("empty the tracer's output")(source))
                }
            };
            match attached {
                Ok(started) => {
                    self.used(&arguments);
                    return Ok(started);
                }
                Err(error) => notes.push(format!("{error}; it was loaded for an earlier run, and is loaded anew")),
            }
        }
        self.used(&arguments);
        if self.to_come.get(&arguments).is_none_or(|runs| *runs == 0) || self.kept.len() >= MOST {
            return Process::start(arguments, false, environment, stderr()?, children)?.attached(children);
        }
        Process::start(arguments, true, environment, stderr()?, children)?.attach(children)
    }

    /// One run less is to come with these arguments.
    fn used(&mut self, arguments: &[String]) {
        if let Some(runs) = self.to_come.get_mut(arguments) {
            *runs = runs.saturating_sub(1);
        }
    }

    /// Detaches `tracer`, and ends it unless a run to come has use for it.
    pub(crate) fn stop(&mut self, tracer: Tracer, children: &mut Children) -> Result<Remains> {
        let arguments = &tracer.process.arguments;
        if !tracer.process.keeps_loaded || self.to_come.get(arguments).is_none_or(|runs| *runs == 0) {
            return tracer.stop(children);
        }
        let (mut remains, process) = tracer.detach(children)?;
        if let Some(process) = process {
            match Kept::of_process(process.pid) {
                Ok(facts) => self.kept.push((process, facts)),
                Err(problem) => {
                    remains.notes.push(format!("the tracer does not stay loaded: {problem}"));
                    process.end(children, &mut Periodic::default(), &mut remains.notes)?;
                }
            }
        }
        Ok(remains)
    }

    /// What is there between runs by right, as it is kept.
    pub(crate) fn kept(&self) -> Kept {
        self.kept.iter().map(|(_, kept)| kept.clone()).collect()
    }

    /// Ends all that are kept; notes on how that went.
    pub(crate) fn end(self, children: &mut Children) -> Result<Vec<String>> {
        let mut notes = Vec::new();
        for (process, _) in self.kept {
            process.end(children, &mut Periodic::default(), &mut notes)?;
        }
        Ok(notes)
    }
}

/// Whether the tracer of `spec` may be one that other runs have, too. Statistics of programs are switched on for one tracer and one run;
/// what is done beside a tool under test is done by a tracer that no other tool could reach before.
fn may_be_kept(spec: &RunSpec) -> bool {
    !spec.probe.is_baseline() && !spec.bpf_stats && spec.tool.is_none()
}
