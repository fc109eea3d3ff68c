// SPDX-License-Identifier: MIT OR Apache-2.0
//! This machine as the only target of a study.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    path::{Path, PathBuf},
};

use bpfassay_protocol::{Arch, ProbeConfiguration, job::Scheduling, layout};
use bpfassay_results::Provenance;
use bpfassay_runner::{
    Error, Happening, Observer, PlannedWork, PoolSummary, check_ids, interfaces_of, run_provenance, test_tools,
};
use bpfassay_study::{
    Available, Clock, Denied, EngineChoice, LeftOut, Narrowing, Plan, Study, Target, WarmUp, WarmUpRule, WorkloadKind,
};
use bpfassay_tool::LoadedFile;
use tokio_util::sync::CancellationToken;

use super::{
    execute_here::{HereConfig, execute_here},
    here_error::HereError,
    here_process::{AGENT, Agent, PAYLOAD},
    here_reason::MachineLimits,
    here_tools::ToolPlaces,
    mount::{self, Mounted},
    nodes::Cluster,
    reference,
};

/// A selection of what to measure on this machine.
#[derive(Debug, Default)]
pub struct HereSelection {
    /// The name of a bundled study, or the path of a study file.
    pub study: String,
    /// Selects a part of the study.
    pub narrowing: Narrowing,
    /// The mount point of the file system under test.
    pub mount: PathBuf,
    /// The program of a real IOR, used instead of the embedded engine.
    pub ior: Option<PathBuf>,
    /// Tools under test, in addition to the study's probe configurations.
    pub tools: Vec<LoadedFile>,
    /// A cluster whose nodes measure together, with this machine as the first, if requested.
    pub cluster: Option<Cluster>,
    /// Findings that the tools must not have: a gate, in addition to the study's gates.
    pub deny: Vec<Denied>,
}

/// This machine, ready to measure a plan without guests, like a [`bpfassay_runner::Session`].
#[derive(Debug)]
pub struct ThisMachine {
    plan: Plan,
    agent: Agent,
    cluster: Option<Cluster>,
    provenance: Provenance,
}

impl ThisMachine {
    /// Expands the study with this machine as its only target, and finds the needed programs.
    ///
    /// # Errors
    /// [`HereError::Mount`], [`HereError::NoMountPoint`], [`HereError::NoMountInfo`],
    /// [`HereError::Machine`]. [`HereError::NoProgram`] for a program that is not on `PATH`,
    /// [`HereError::Program`] for one that cannot be started. [`HereError::Runner`] with
    /// [`Error::Study`], [`Error::Expand`], [`Error::BlockId`], [`Error::Ior`], [`Error::NotIor`],
    /// [`Error::Tool`], [`Error::ToolRefused`], or [`Error::Testbed`] for a program that cannot be
    /// read.
    pub fn set_up(selection: &HereSelection) -> Result<Self, HereError> {
        let mount = mount::at(&selection.mount)?;
        let host = run_provenance::host();
        let facts = host.facts(1);
        let uname = rustix::system::uname();
        let arch: Arch = uname.machine().to_string_lossy().parse()?;
        let target = Target { arch, kernel: uname.release().to_string_lossy().into_owned() };
        let mut study = bpfassay_study::load(&selection.study).map_err(Error::from)?;
        test_tools(&selection.tools, &selection.deny, &mut study)?;
        let mut payload = PAYLOAD.iter().map(|name| program(name)).collect::<Result<Vec<_>, _>>()?;
        if !selection.tools.is_empty() {
            study.reference = reference(&program(PAYLOAD[0])?)?;
        }
        let (study, mut left_out) = on(study, &mount, target.clone(), facts.memory_kib / 1024, host.room.cpus);
        let study = match &selection.cluster {
            None => study,
            Some(cluster) => across(study, cluster, &mut left_out),
        };
        let mut available = Available::default();
        if let Some(program) = &selection.ior {
            available.external_ior.insert(arch, interfaces_of(program)?);
        }
        let mut plan = bpfassay_study::expand(&study, &selection.narrowing, &available).map_err(Error::from)?;
        plan.left_out.extend(left_out);
        // The ids contain the kernel's release.
        check_ids(&plan)?;
        let own = [layout::TRACER, layout::IOR].into_iter().zip(payload.iter().map(|path| path.display().to_string()));
        let own = own.collect::<BTreeMap<_, _>>();
        let agent = Agent {
            program: program(AGENT)?,
            mount: mount.path,
            external_ior: selection.ior.clone(),
            tools: ToolPlaces::find(&selection.tools, (arch, &target.kernel), own)?,
            limits: MachineLimits::of_this_machine(&target.kernel),
        };
        payload.extend(selection.ior.clone());
        payload.extend(agent.tools.files().map(Path::to_path_buf));
        let payload: Vec<&Path> = payload.iter().map(PathBuf::as_path).collect();
        let provenance = run_provenance::here(facts, target, &agent.program, &payload)?;
        Ok(Self { plan, agent, cluster: selection.cluster.clone(), provenance })
    }

    /// The provenance: this machine and its programs.
    #[must_use]
    pub fn provenance(&self) -> &Provenance {
        &self.provenance
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The mount point of the file system under test, without symbolic links.
    #[must_use]
    pub fn mount(&self) -> &Path {
        &self.agent.mount
    }

    /// Begins the plan in a results directory ([`PlannedWork::begin`]).
    ///
    /// # Errors
    /// The errors of [`PlannedWork::begin`].
    pub fn begin(&self, directory: Option<&Path>) -> Result<PlannedWork, Error> {
        PlannedWork::begin(&self.plan, directory, self.provenance.clone())
    }

    /// Executes `work`, as [`bpfassay_runner::Session::execute`] does with guests.
    ///
    /// # Errors
    /// [`Error::Runner`] if the agent cannot be started or a log cannot be written,
    /// [`Error::Journal`] if a record cannot be written.
    pub async fn execute(
        &self,
        work: PlannedWork,
        observer: &dyn Observer,
        cancel: &CancellationToken,
    ) -> Result<PoolSummary, Error> {
        let directory = work.directory.clone();
        work.until_narrow(&self.plan, async |blocks, journal| {
            observer.progress(&Happening::Started { blocks: &blocks, slots: NonZeroU32::MIN, directory: &directory });
            let blocks = blocks.into_iter().map(|todo| todo.block).collect();
            let (agent, cluster) = (&self.agent, self.cluster.as_ref());
            let config = HereConfig { study: &self.plan.study, blocks, agent, cluster };
            Ok(execute_here(config, journal, observer, cancel).await?)
        })
        .await
    }
}

/// Adapts `study` to a machine that is already running. Also returns what is not possible.
fn on(study: Study, mount: &Mounted, target: Target, memory_mib: u64, cpus: u32) -> (Study, Vec<LeftOut>) {
    let mut study = Study { targets: vec![target], clock: Clock::Wall, clock_of_host: false, model: None, ..study };
    let parameters = std::mem::take(&mut study.guest.kernel_parameters);
    let mounts = std::mem::take(&mut study.mounts);
    let (file_systems, others) = mount::file_systems(&study.file_systems, mount);
    study.file_systems = file_systems;
    study.guest.cpus = cpus;
    study.guest.memory_mib = u32::try_from(memory_mib).unwrap_or(u32::MAX);
    let scheduling = study.guest.scheduling.replace(Scheduling::Kernel);
    let left_out = [
        (!parameters.is_empty()).then(|| LeftOut {
            what: format!("kernel parameters {}", parameters.join(" ")),
            reason: "this machine has been booted already".to_owned(),
        }),
        (!mounts.is_empty()).then(|| LeftOut {
            what: format!(
                "mounts at {}",
                mounts.iter().map(|mount| mount.path.as_str()).collect::<Vec<_>>().join(", ")
            ),
            reason: "nothing is mounted on a machine that others use".to_owned(),
        }),
        (scheduling == Some(Scheduling::Fixed)).then(|| LeftOut {
            what: format!("scheduling {}", Scheduling::Fixed),
            reason: "the threads of this machine's kernel are left as they are".to_owned(),
        }),
    ];
    (study, left_out.into_iter().flatten().chain(others).collect())
}

/// Adapts `study` to several nodes: only IOR runs across them, with ranks on each. Adds what is not
/// possible to `left_out`.
fn across(mut study: Study, cluster: &Cluster, left_out: &mut Vec<LeftOut>) -> Study {
    study.workloads.retain_mut(|workload| match &mut workload.kind {
        WorkloadKind::Ior(ior) => {
            ior.ranks = cluster.ranks();
            ior.engine = EngineChoice::External;
            true
        }
        _ => {
            left_out.push(LeftOut {
                what: format!("workload {}", workload.name),
                reason: "only IOR runs across several nodes".to_owned(),
            });
            false
        }
    });
    if study.design.sampling_interval_ms.take().is_some() {
        left_out.push(LeftOut {
            what: "sampling".to_owned(),
            reason: "the clocks of nodes are not the same, and samples of one are not added to those of another"
                .to_owned(),
        });
    }
    if study.design.warm_up == WarmUp::Rule(WarmUpRule::Steady) {
        study.design.warm_up = WarmUp::Runs(1);
        left_out.push(LeftOut {
            what: "warm-up until it is steady".to_owned(),
            reason:
                "each node would repeat it as often as it needs itself, and IOR runs on all of them: there is one run"
                    .to_owned(),
        });
    }
    study
}

/// Returns the configuration in which `tracer` works here as the tools' reference tracer.
fn reference(tracer: &Path) -> Result<Option<ProbeConfiguration>, HereError> {
    let found = reference::find(tracer);
    found.map_err(|source| HereError::Program { path: tracer.to_owned(), source })
}

/// Finds the program `name` on `PATH`.
fn program(name: &'static str) -> Result<PathBuf, HereError> {
    which::which(name).map_err(|_| HereError::NoProgram(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_study_is_done_on_this_machine_as_it_is() {
        let mut study = bpfassay_study::load("quick").unwrap();
        study.guest.kernel_parameters = vec!["mitigations=off".to_owned()];
        study.guest.scheduling = Some(Scheduling::Fixed);
        let target = Target { arch: Arch::X86_64, kernel: "6.12.117+deb13-amd64".to_owned() };
        let mount = mount::at(Path::new("/proc")).unwrap();
        let (study, left_out) = on(study, &mount, target.clone(), 7900, 4);
        assert_eq!((study.targets.as_slice(), study.clock), ([target].as_slice(), Clock::Wall));
        assert_eq!((study.guest.cpus, study.guest.memory_mib), (4, 7900));
        let left_out: Vec<&str> = left_out.iter().map(|left| left.what.as_str()).collect();
        assert_eq!(left_out, ["kernel parameters mitigations=off", "scheduling fixed", "file system nfs4.2"]);
        assert_eq!(study.scheduling(), Scheduling::Kernel);
        // A kernel's name in an expectation or a gate covers builds with such a release.
        let plan = bpfassay_study::expand(&study, &Narrowing::default(), &Available::default()).unwrap();
        let cell = plan.cells.iter().find(|cell| !cell.is_baseline()).unwrap();
        let gate = bpfassay_study::Gate { kernels: vec!["6.12".to_owned()], ..Default::default() };
        assert!(gate.covers(&plan.study, cell));
    }

    #[test]
    fn only_ior_runs_across_nodes_with_ranks_on_each() {
        let mut study = bpfassay_study::load("here").unwrap();
        study.design.sampling_interval_ms = Some(2000);
        study.design.warm_up = WarmUp::Rule(WarmUpRule::Steady);
        let cluster = Cluster {
            nodes: ["n1", "n2", "n3"].map(str::to_owned).into(),
            ranks_per_node: 4,
            launcher: vec!["srun".to_owned()],
        };
        let mut left_out = Vec::new();
        let study = across(study, &cluster, &mut left_out);
        let left_out: Vec<&str> = left_out.iter().map(|left| left.what.as_str()).collect();
        assert_eq!(left_out, ["workload io-paths", "sampling", "warm-up until it is steady"]);
        assert_eq!((study.design.sampling_interval_ms, study.design.warm_up), (None, WarmUp::Runs(1)));
        let [workload] = study.workloads.as_slice() else { panic!("{:?}", study.workloads) };
        let WorkloadKind::Ior(ior) = &workload.kind else { panic!("{workload:?}") };
        assert_eq!((ior.ranks, ior.engine), (12, EngineChoice::External));
    }
}
