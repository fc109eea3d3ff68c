// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selects what to run and with which guests: a study or a part of it, with additions. Tool files
//! are read once, so the plan and the guests use the same contents.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Read as _,
    path::Path,
};

use bpfassay_packages::apt::Apt;
use bpfassay_protocol::{Arch, job::Program};
use bpfassay_study::{Available, Cell, Clock, Denied, Gate, Interface, Model, Narrowing, Plan, Shard, Study, Target};
use bpfassay_testbed::{
    guest_tools::{self, Besides},
    initramfs::initramfs_tree::{Overlay, OverlayError},
    provider::{
        GuestRequest, Sources,
        local::{self, LocalKernel},
    },
};
use bpfassay_tool::{KernelNeeds, LoadedFile, Supply};

use crate::{
    boot::host_setup,
    error::Error,
    this_host::runner_store::{Store, StoreOptions},
};

/// A change of a study that options of a command make.
pub trait StudyChange: fmt::Debug + Send + Sync {
    /// Changes `study`, which has no tools of the command line yet.
    fn change(&self, study: &mut Study);
}

/// A selected part of a study, with changes, and the sources of its guests.
#[derive(Debug, Default)]
pub struct StudySelection {
    /// The name of a bundled study, or the path of a study file.
    pub study: String,
    /// Targets that replace the study's targets, unless empty.
    pub targets: Vec<Target>,
    /// Selects a part of the study.
    pub narrowing: Narrowing,
    /// A clock that replaces the study's clock.
    pub clock: Option<Clock>,
    /// Uses the instruction clock even where KVM works, if the study leaves the clock to the host.
    /// Its figures are the same on every machine.
    pub same_everywhere: bool,
    /// A model of caches and branches that replaces the study's model, if any.
    pub model: Option<Model>,
    /// Findings that the tools must not have: a gate, in addition to the study's gates.
    pub deny: Vec<Denied>,
    /// Gates in addition to the study's gates, each in the form of [`Study::demand`].
    pub gates: Vec<String>,
    /// A further change of the study.
    pub change: Option<Box<dyn StudyChange>>,
    /// The shard of the plan to measure; `None` for the whole plan.
    pub shard: Option<Shard>,
    /// Tools under test, in addition to the study's probe configurations.
    pub tools: Vec<LoadedFile>,
    /// Sources of the guests: an existing testbed, a kernel of the user instead of the study's
    /// targets, a real IOR.
    pub sources: Sources,
    /// Selects only targets of the testbed manifest.
    pub only_available: bool,
}

impl StudySelection {
    /// Selects a whole study.
    #[must_use]
    pub fn of_study(study: &str) -> Self {
        Self { study: study.to_owned(), ..Self::default() }
    }

    /// Reads the study and expands the selected part. `store` is opened only if the study names
    /// kernels by a pattern.
    ///
    /// # Errors
    /// [`Error::Study`] and [`Error::Expand`] for the study and the selected part. For the
    /// additions: [`Error::Kernel`], [`Error::Ior`], [`Error::NotIor`], [`Error::NoLauncher`],
    /// [`Error::Tool`], [`Error::ToolRefused`], [`Error::NoManifest`], [`Error::Testbed`].
    pub fn expand(&self, store: &StoreOptions) -> Result<Plan, Error> {
        self.expand_for(self.clock, store)
    }

    /// Like [`StudySelection::expand`], with `clock` instead of the study's clock.
    ///
    /// # Errors
    /// The errors of [`StudySelection::expand`].
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
        // Such a study has the instruction clock until the host decides.
        study.clock_of_host &= !self.same_everywhere;
        if let Some(model) = &self.model {
            study.use_model(model.clone())?;
        } else if let Some(model) = study.model.take_if(|_| study.clock == Clock::Wall) {
            tracing::warn!(
                "the study's model {} is left out: it prices instructions, which the wall clock does not count",
                model.name
            );
        }
        if let Some(change) = &self.change {
            change.change(&mut study);
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
            // The packages of another tool can contain a launcher.
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

    /// Adds requested kernels that the study lacks, from an existing testbed or the catalogue.
    ///
    /// # Errors
    /// The errors of [`StoreOptions::kernels`] and [`Sources::made_before`].
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

    /// Returns what guests need for the tools and for the workloads of `plan`, a plan of this
    /// selection. `folder` is the study's directory.
    pub(crate) fn supplies<'a>(&'a self, plan: &'a Plan, folder: Option<&'a Path>) -> Vec<Supply<'a>> {
        let cases: BTreeSet<&str> = plan.cells.iter().map(|cell| cell.case.as_str()).collect();
        let of_workloads = cases.into_iter().filter_map(|case| plan.study.workload(case)?.supply(folder));
        self.tools.iter().map(LoadedFile::supply).chain(of_workloads).collect()
    }

    /// Refuses tools and workload programs with faults that are known before guests are made.
    fn check_tools(&self, plan: &Plan, supplies: &[Supply<'_>]) -> Result<(), Error> {
        let archs: BTreeSet<Arch> = plan.targets().iter().map(|target| target.arch).collect();
        for arch in archs {
            let has_tree = self.sources.ior.iter().any(|(of, _)| *of == arch);
            let besides = if has_tree || self.sources.are_made() { Besides::Others } else { Besides::Nothing };
            guest_tools::check(arch, supplies, besides)?;
        }
        guest_tools::check_kernel(supplies, &self.sources)?;
        Ok(())
    }

    /// Returns the request to a provider, without the targets.
    #[must_use]
    pub fn request<'a>(&'a self, apt: &'a Apt<'a>, store: &'a Store) -> GuestRequest<'a> {
        let tools = self.tools.iter().map(|tool| &tool.file.kernel);
        let of_kernels = KernelNeeds {
            modules: tools.clone().flat_map(|kernel| kernel.modules.iter().cloned()).collect(),
            headers: tools.clone().any(|kernel| kernel.headers),
        };
        GuestRequest { of_kernels, ..GuestRequest::new(apt, &store.catalogue, &self.sources, &store.programs) }
    }

    /// Returns the Debian packages, except QEMU, that this host needs to make the guests. There are
    /// none if the guests come from elsewhere.
    #[must_use]
    pub fn host_packages(&self) -> &'static [&'static str] {
        self.sources.provider().host_packages()
    }

    /// Returns the architecture of the user's kernel.
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

    /// Returns the targets of the testbed manifest if only these are requested.
    fn available(&self) -> Result<Option<BTreeSet<Target>>, Error> {
        if !self.only_available {
            return Ok(None);
        }
        // The manifest's files are checked when they are used.
        let manifest = self.sources.made_before()?.ok_or(Error::NoManifest)?;
        Ok(Some(manifest.targets.into_iter().map(|made| Target { arch: made.arch, kernel: made.name }).collect()))
    }
}

/// Adds `tools` to the probe configurations of `study`, and a gate that denies the findings `deny`.
///
/// # Errors
/// [`Error::Tool`] for a tool's file that cannot be read, [`Error::ToolRefused`] for a name that
/// the study has already.
pub fn test_tools(tools: &[LoadedFile], deny: &[Denied], study: &mut Study) -> Result<(), Error> {
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

/// Returns the highest number of MPI ranks of a real IOR on `arch` in `plan`, if it is above 1.
fn most_ranks(plan: &Plan, arch: Arch) -> Option<u32> {
    let of_cell = |cell: &Cell| match cell.workload.program {
        Program::ExternalIor { ranks: ranks @ 2.. } if cell.target.arch == arch => Some(ranks),
        _ => None,
    };
    plan.cells.iter().filter_map(of_cell).max()
}

/// Returns the interfaces of the IOR in the file `path`. They are found by their names in the
/// program, because a program for another architecture cannot be executed.
///
/// # Errors
/// [`Error::Ior`] if the file cannot be read, [`Error::NotIor`] if it has no such name.
pub fn interfaces_of(path: &Path) -> Result<BTreeSet<Interface>, Error> {
    const LIMIT: u64 = 256 << 20;
    let read = |source| Error::Ior(Box::new(bpfassay_testbed::Error::io("read", path)(source)));
    let mut bytes = Vec::new();
    bpfassay_input::open(path).map_err(read)?.take(LIMIT).read_to_end(&mut bytes).map_err(read)?;
    // A name must be a whole string constant of the program.
    let holds = |name: &str| {
        bytes.windows(name.len() + 2).any(|window| {
            window.first() == Some(&0) && window.last() == Some(&0) && window[1..=name.len()] == *name.as_bytes()
        })
    };
    let found: BTreeSet<Interface> =
        Interface::ALL.iter().copied().filter(|interface| holds(interface.name())).collect();
    // Otherwise the embedded engine would run instead of the requested one.
    if found.is_empty() { Err(Error::NotIor { path: path.to_owned() }) } else { Ok(found) }
}
