// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the bystander of a run: a process that the tools under test are not meant to trace.

use std::mem;

use bpfassay_protocol::{
    job::{Bystander, DIRECTORY, ExtraMount, MountOf, Program, RunSpec, SUMMARY, SummarySource, Workload},
    message::BystanderFigures,
    run_name,
};

use super::measure::{RunInFlight, misspoke};
use crate::{
    cgroup::Cgroup,
    error::{Error, Result},
    proc::mountinfo,
    ranks::Part,
    workload::{self, RunPaths},
};

/// Name of the bystander in messages.
const BYSTANDER: &str = "the bystander";

/// Returns what the bystander runs. Its file system is a tmpfs at `data` in its own mount
/// namespace.
fn workload(bystander: &Bystander, data: &str) -> Workload {
    let places = ["-o", &format!("{DIRECTORY}/data"), "-O", &format!("summaryFile={SUMMARY}")].map(str::to_owned);
    let tmpfs = ExtraMount { path: data.to_owned(), of: MountOf::Tmpfs(bystander.size_mib), private: true };
    Workload {
        program: Program::Bundled,
        arguments: ["--ranks=1".to_owned()]
            .into_iter()
            .chain(bystander.options.iter().cloned())
            .chain(places)
            .collect(),
        script: None,
        summary: SummarySource::File,
        control: true,
        deadline_ms: None,
        neighbour: false,
        bystander: None,
        mounts: vec![tmpfs],
        features: false,
        engine: None,
    }
}

impl RunInFlight<'_, '_> {
    /// Runs the bystander after the workload, if `spec` has one. Tracer and tool are still
    /// attached.
    pub(super) fn measure_bystander(
        &mut self,
        spec: &RunSpec,
        paths: &RunPaths<'_>,
    ) -> Result<Option<Box<BystanderFigures>>> {
        let Some(bystander) = &spec.workload.bystander else { return Ok(None) };
        let paths = paths.of_bystander();
        paths.make_work()?;
        let mut cgroup = Cgroup::make(&self.environment.cgroups, &run_name::of_bystander(&spec.id))?;
        let (phases, code) = (mem::take(&mut self.phases), mem::take(&mut self.workload_code));
        let measured = self.measure_in_its_cgroup(&workload(bystander, &paths.data), &paths, &mut cgroup);
        self.phases = phases;
        self.workload_code.extend(code);
        cgroup.kill()?;
        self.children.reap()?;
        cgroup.remove()?;
        measured.map(|figures| Some(Box::new(figures)))
    }

    fn measure_in_its_cgroup(
        &mut self,
        workload: &Workload,
        paths: &RunPaths<'_>,
        cgroup: &mut Cgroup,
    ) -> Result<BystanderFigures> {
        let mut running = workload::start(workload, Part::Alone, paths, cgroup)?;
        running.program = BYSTANDER.to_owned();
        self.children.expect(running.pid);
        let namespace = mountinfo::of_process(running.pid);
        self.until_its_end(Ok(()), &mut running, cgroup)?;
        let namespace = namespace?;
        if namespace.last().is_none_or(|mount| mount.path != paths.data) {
            return Err(Error::Order(format!("{BYSTANDER} has no file system at {}", paths.data)));
        }
        let mut phases = mem::take(&mut self.phases).finish().map_err(misspoke)?;
        for phase in &mut phases {
            phase.name.insert_str(0, "bystander-");
        }
        Ok(BystanderFigures { cgroup: cgroup.id(), namespace, phases })
    }
}
