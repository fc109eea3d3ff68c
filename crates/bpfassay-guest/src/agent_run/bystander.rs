// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures the bystander of a run: a process that the tools under test are not meant to trace.

use std::mem;

use bpfassay_protocol::{
    job::{ExtraMount, MountOf, RunSpec, Workload},
    message::{BYSTANDER_PREFIX, BystanderFigures},
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
        let tmpfs = ExtraMount { path: paths.data.clone(), of: MountOf::Tmpfs(bystander.size_mib), private: true };
        let workload = Workload { mounts: vec![tmpfs], ..(*bystander.workload).clone() };
        let measured = self.measure_in_its_cgroup(&workload, &paths, &mut cgroup);
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
            phase.name.insert_str(0, BYSTANDER_PREFIX);
        }
        Ok(BystanderFigures { cgroup: cgroup.id(), namespace, phases })
    }
}
