// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be run and with which guests: a study, the part of it that is kept, and what comes
//! beside it. Tool files are read once, so that plan and guests are made of the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
    path::Path,
};

use bpfassay_protocol::{Arch, job::Program};
use bpfassay_study::{Available, Cell, Clock, Denied, Gate, Interface, Model, Narrowing, Plan, Shard, Study, Target};
use bpfassay_testbed::{
    apt::Apt,
    initramfs::tree::{Overlay, OverlayError},
    provider::{
        Request, Sources,
        local::{self, LocalKernel},
    },
    tools::{self, Besides},
};
use bpfassay_tool::{Loaded, Supply};

use crate::{Error, Store, StoreOptions, host_setup};

/// A study, what is kept of it, and what its guests are made of.
#[derive(Debug, Default)]
pub struct Selection {
    /// The name of a bundled study, or the path of a study file.
    pub study: String,
    /// These targets in place of the study's own, where there are any.
    pub targets: Vec<Target>,
    /// What is kept of the study.
    pub narrowing: Narrowing,
    /// This clock in place of the study's own.
    pub clock: Option<Clock>,
    /// A study that leaves its clock to the host is under the instruction clock also where KVM
    /// works: only these figures are the same on every machine.
    pub same_everywhere: bool,
    /// This model of caches and branches in place of the study's own, or of none.
    pub model: Option<Model>,
    /// Findings that the tools may not have: a gate, in addition to the study's own.
    pub deny: Vec<Denied>,
    /// Gates in addition to the study's own, each as in [`Study::demand`].
    pub gates: Vec<String>,
    /// Rounds of each boot in place of the study's own number.
    pub rounds: Option<u32>,
    /// The shard of the plan that is measured; `None`: everything.
    pub shard: Option<Shard>,
    /// Tools under test, in addition to the study's probe configurations.
    pub tools: Vec<Loaded>,
    /// What the guests are made of: a testbed that was made before, a kernel of the user's in place
    /// of the study's targets, a real IOR.
    pub sources: Sources,
    /// Only the targets that the manifest has.
    pub only_available: bool,
}

impl Selection {
    /// The whole of a study.
    #[must_use]
    pub fn of_study(study: &str) -> Self {
        Self { study: study.to_owned(), ..Self::default() }
    }

    /// Reads the study and expands what is kept of it. `store` is opened only where the study names
    /// kernels by a pattern.
    ///
    /// # Errors
    /// [`Error::Study`], [`Error::Expand`] for the study and what is kept of it; [`Error::Kernel`], [`Error::Ior`], [`Error::NotIor`],
    /// [`Error::NoLauncher`], [`Error::Tool`], [`Error::ToolRefused`], [`Error::NoManifest`], [`Error::Testbed`] for what comes beside it.
    pub fn expand(&self, store: &StoreOptions) -> Result<Plan, Error> {
        self.expand_for(self.clock, store)
    }

    /// The same with `clock` in place of the study's own.
    ///
    /// # Errors
    /// Those of [`Selection::expand`].
    pub(crate) fn expand_for(&self, clock: Option<Clock>, store: &StoreOptions) -> Result<Plan, Error> {
        let mut study = bpfassay_study::load(&self.study)?;
        let mut narrowing = self.narrowing.clone();
        if !self.targets.is_empty() {
            study.targets.clone_from(&self.targets);
        }
        if let Some(kernel) = &self.sources.local {
            study.targets = vec![Target { arch: self.arch_of(kernel)?, kernel: local::NAME.to_owned() }];
            narrowing.archs.clear();
            narrowing.kernels.clear();
        }
        if let Some(clock) = clock {
            study.clock = clock;
            study.clock_of_host = false;
        }
        // It is under the instruction clock until the host decides otherwise.
        study.clock_of_host &= !self.same_everywhere;
        if let Some(model) = &self.model {
            study.use_model(model.clone())?;
        } else if let Some(model) = study.model.take_if(|_| study.clock == Clock::Wall) {
            tracing::warn!(
                "the study's model {} is left out: it prices instructions, which the wall clock does not count",
                model.name
            );
        }
        if let Some(rounds) = self.rounds {
            study.design.rounds = rounds;
        }
        test_tools(&self.tools, &self.deny, &mut study)?;
        for gate in &self.gates {
            study.demand(gate)?;
        }
        if study.targets.iter().any(Target::is_pattern) {
            let store = Store::open(store)?;
            let apt = store.apt();
            let request = self.request(&apt, &store);
            study.resolve_patterns(|arch| self.sources.provider().kernels(&request, arch).map_err(Error::from))?;
        }
        self.add_kernels(&mut study, &narrowing, store)?;
        let mut available = Available { targets: self.available()?, ..Available::default() };
        let mut launchers = BTreeMap::new();
        for (arch, tree) in &self.sources.ior {
            let refuse = |error: OverlayError| Error::Ior(Box::new(error.into()));
            let overlay = Overlay::read(*arch, tree).map_err(refuse)?;
            available.external_ior.insert(*arch, interfaces_of(&overlay.program)?);
            launchers.insert(*arch, (overlay.launcher(*arch), tree));
        }
        let plan = bpfassay_study::expand(&study, &narrowing, &available)?;
        host_setup::check_command_lines(&plan)?;
        let folder = bpfassay_study::folder(&self.study);
        let supplies = self.supplies(&plan, folder.as_deref());
        self.check_tools(&plan, &supplies)?;
        for (arch, (launcher, tree)) in launchers {
            let Some(ranks) = most_ranks(&plan, arch) else { continue };
            // Another tool's packages may have one.
            let is_unknown = supplies.iter().any(|supply| !supply.source.packages(arch).is_empty());
            if launcher.map_err(|error| Error::Ior(Box::new(error.into())))?.is_none() && !is_unknown {
                return Err(Error::NoLauncher { tree: tree.clone(), arch, ranks });
            }
        }
        match self.shard {
            Some(shard) => Ok(plan.of_shard(shard)?),
            None => Ok(plan),
        }
    }

    /// Adds the kernels that are asked for and the study has not: any of the catalogue, or of a
    /// testbed that was made before.
    ///
    /// # Errors
    /// Those of [`StoreOptions::kernels`] and [`Sources::made_before`].
    fn add_kernels(&self, study: &mut Study, narrowing: &Narrowing, store: &StoreOptions) -> Result<(), Error> {
        if narrowing.kernels.iter().all(|kernel| study.targets.iter().any(|target| target.kernel == *kernel)) {
            return Ok(());
        }
        match self.sources.made_before()? {
            Some(made) => study.add_kernels(&narrowing.kernels, &narrowing.archs, |arch, kernel| {
                made.targets.iter().any(|target| (target.arch, target.name.as_str()) == (arch, kernel))
            }),
            None => {
                let catalogue = store.kernels()?;
                study.add_kernels(&narrowing.kernels, &narrowing.archs, |arch, kernel| {
                    catalogue.find(arch, kernel).is_ok()
                });
            }
        }
        Ok(())
    }

    /// What guests must be supplied with for the tools, and for the workloads of `plan`, a plan of
    /// this selection. `folder` is that of the study.
    pub(crate) fn supplies<'a>(&'a self, plan: &'a Plan, folder: Option<&'a Path>) -> Vec<Supply<'a>> {
        let cases: BTreeSet<&str> = plan.cells.iter().map(|cell| cell.case.as_str()).collect();
        let of_workloads = cases.into_iter().filter_map(|case| plan.study.workload(case)?.supply(folder));
        self.tools.iter().map(Loaded::supply).chain(of_workloads).collect()
    }

    /// Refuses what can be known of tools and programs of workloads before guests are made.
    fn check_tools(&self, plan: &Plan, supplies: &[Supply<'_>]) -> Result<(), Error> {
        let archs: BTreeSet<Arch> = plan.targets().iter().map(|target| target.arch).collect();
        for arch in archs {
            let has_tree = self.sources.ior.iter().any(|(of, _)| *of == arch);
            let besides = if has_tree || self.sources.are_made() { Besides::Others } else { Besides::Nothing };
            tools::check(arch, supplies, besides)?;
        }
        Ok(())
    }

    /// What is asked of a provider, but the targets.
    #[must_use]
    pub fn request<'a>(&'a self, apt: &'a Apt<'a>, store: &'a Store) -> Request<'a> {
        Request::new(apt, &store.catalogue, &self.sources, &store.programs)
    }

    /// Debian packages that this host needs to make the guests, besides QEMU; empty where they are
    /// made elsewhere.
    #[must_use]
    pub fn host_packages(&self) -> &'static [&'static str] {
        self.sources.provider().host_packages()
    }

    /// The architecture of the user's kernel.
    fn arch_of(&self, kernel: &LocalKernel) -> Result<Arch, Error> {
        let refuse = |error| Error::Kernel(Box::new(error));
        let image = kernel.image.as_path();
        let problem = |problem| refuse(bpfassay_testbed::Error::LocalKernel { path: image.to_owned(), problem });
        let unusable = |problem| refuse(bpfassay_testbed::Error::UnusableImage { path: image.to_owned(), problem });
        let kind = local::identify(&local::read_image(image).map_err(refuse)?).map_err(unusable)?;
        let wanted = &self.narrowing.archs;
        if !wanted.is_empty() && !wanted.contains(&kind.arch) {
            let wanted: Vec<_> = wanted.iter().map(|arch| arch.name()).collect();
            return Err(problem(format!("is a kernel for {}, not for {}", kind.arch, wanted.join(" or "))));
        }
        Ok(kind.arch)
    }

    /// The targets of the testbed manifest, where only these are wanted.
    fn available(&self) -> Result<Option<BTreeSet<Target>>, Error> {
        if !self.only_available {
            return Ok(None);
        }
        // Its files are checked when they are used.
        let manifest = self.sources.made_before()?.ok_or(Error::NoManifest)?;
        Ok(Some(manifest.targets.into_iter().map(|made| Target { arch: made.arch, kernel: made.name }).collect()))
    }
}

/// Adds `tools` to what `study` measures, and a gate on findings that they may not have.
///
/// # Errors
/// [`Error::Tool`] for a file of a tool that cannot be read, [`Error::ToolRefused`] for a name that the study has already.
pub(crate) fn test_tools(tools: &[Loaded], deny: &[Denied], study: &mut Study) -> Result<(), Error> {
    for tool in tools {
        let refuse = |problem| Error::ToolRefused { name: tool.file.name.clone(), problem };
        study.test_tool(tool.under_test()?).map_err(refuse)?;
    }
    if !deny.is_empty() {
        let probes = study.tool_files.iter().map(|tool| tool.file.name.clone()).collect();
        study.gates.push(Gate { probes, deny: Denied::kinds(deny), ..Gate::default() });
    }
    Ok(())
}

/// The most MPI ranks that `plan` has of a real IOR on `arch`, if several.
fn most_ranks(plan: &Plan, arch: Arch) -> Option<u32> {
    let of_cell = |cell: &Cell| match cell.workload.program {
        Program::ExternalIor { ranks: ranks @ 2.. } if cell.target.arch == arch => Some(ranks),
        _ => None,
    };
    plan.cells.iter().filter_map(of_cell).max()
}

/// The interfaces of the IOR in the file `path`: those whose names are in the program, since a
/// program for another architecture cannot be executed.
///
/// # Errors
/// [`Error::Ior`] if it cannot be read, [`Error::NotIor`] if it has none of them.
pub(crate) fn interfaces_of(path: &Path) -> Result<BTreeSet<Interface>, Error> {
    const LIMIT: u64 = 256 << 20;
    let read =
        |source| Error::Ior(Box::new(bpfassay_testbed::Error::Io { action: "read", path: path.to_owned(), source }));
    let mut bytes = Vec::new();
    bpfassay_input::open(path).map_err(read)?.take(LIMIT).read_to_end(&mut bytes).map_err(read)?;
    // As a whole string constant of the program.
    let holds = |name: &str| {
        bytes.windows(name.len() + 2).any(|window| {
            window.first() == Some(&0) && window.last() == Some(&0) && window[1..=name.len()] == *name.as_bytes()
        })
    };
    let found: BTreeSet<Interface> =
        Interface::ALL.iter().copied().filter(|interface| holds(interface.name())).collect();
    // Without this the embedded engine would run in place of the one that was asked for.
    if found.is_empty() { Err(Error::NotIor { path: path.to_owned() }) } else { Ok(found) }
}
