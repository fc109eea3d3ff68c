//! What the commands share: from arguments to a plan, from a plan to a testbed, from a testbed to a host_setup.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
    time::Duration,
};

use bpfassay_protocol::{Arch, with_causes};
use bpfassay_results::Provenance;
use bpfassay_runner::HostSetup;
use bpfassay_study::{Available, Clock, Denied, Gate, Interface, Narrowing, Plan, Study, Target};
use bpfassay_testbed::{
    Error,
    apt::{self, Apt},
    cache::{Cache, Digest},
    catalogue::Catalogue,
    image::GuestImage,
    initramfs::tree::Overlay,
    manifest::{Check, Manifest},
    provider::{
        Request,
        local::{self, LocalKernel},
    },
};
use bpfassay_vm::{
    Accelerator, AcceleratorChoice, AcceleratorWish, Machine, Qemu,
    accelerator::{self, AcceleratorKey},
    qemu::{debian_packages, is_on_path},
};

use crate::{
    chosen::{Chosen, local_image},
    cli,
    exit::{Failure, INFRASTRUCTURE, INTERNAL, USAGE},
    host,
};

/// How long a kernel may take to come to its end under KVM: it takes two seconds where KVM works.
pub(crate) const KVM_PATIENCE: Duration = Duration::from_secs(20);

/// Kind of cache record for accelerators tried.
const ACCELERATORS: &str = "accelerator";

/// The cache and the kernel catalogue.
pub(crate) struct Store {
    pub(crate) cache: Cache,
    pub(crate) catalogue: Catalogue,
    options: apt::Options,
}

impl Store {
    /// As the command line says.
    pub(crate) fn open(global: &cli::Global) -> Result<Self, Failure> {
        let options = apt::Options {
            offline: global.offline,
            refresh: global.refresh,
            accept_stale: global.accept_stale,
            mirror: None,
        };
        let catalogue = Catalogue::bundled().map_err(|error| Failure::new(INTERNAL, error))?;
        let root = Cache::locate(global.cache.as_deref())?;
        let cache = Cache::open(&root).map_err(|error| {
            if matches!(error, Error::NotACache { .. }) {
                return error.into();
            }
            let help = "the cache must be a directory that can be made and written to: name another one with --cache";
            let report =
                miette::miette!(help = help, "cannot use the cache {}: {}", root.display(), with_causes(&error));
            Failure { code: INFRASTRUCTURE, report }
        })?;
        Ok(Self { cache, catalogue, options })
    }

    /// For commands that download nothing, whatever the command line says.
    pub(crate) fn open_offline(global: &cli::Global) -> Result<Self, Failure> {
        let mut store = Self::open(global)?;
        store.options.offline = true;
        store.options.refresh = false;
        Ok(store)
    }

    /// Debian's packages.
    pub(crate) fn apt(&self) -> Apt<'_> {
        Apt::new(&self.cache, self.options.clone())
    }
}

/// Reads the study and expands what the arguments keep of it. `clock` comes in place of the study's own.
pub(crate) fn expand(
    chosen: &Chosen,
    overlays: &cli::Overlays,
    clock: Option<Clock>,
    global: &cli::Global,
) -> Result<Plan, Failure> {
    let selection = &chosen.selection;
    let mut study = bpfassay_study::load(&selection.study).map_err(Failure::usage)?;
    let mut narrowing = Narrowing {
        archs: selection.arch.clone(),
        kernels: selection.kernel.clone(),
        probes: selection.probe.clone(),
        cells: selection.cell.clone(),
        replicates: selection.replicates,
        until: selection.until,
    };
    if let Some(image) = local_image(selection)? {
        let refuse = |problem| Failure::usage(Error::LocalKernel { path: image.to_owned(), problem });
        let kind = local::identify(&local::read_image(image).map_err(Failure::usage)?).map_err(refuse)?;
        if !selection.arch.is_empty() && !selection.arch.contains(&kind.arch) {
            let wanted: Vec<_> = selection.arch.iter().map(|arch| arch.name()).collect();
            return Err(refuse(format!("is a kernel for {}, not for {}", kind.arch, wanted.join(" or "))));
        }
        study = Study { targets: vec![Target { arch: kind.arch, kernel: local::NAME.to_owned() }], ..study };
        narrowing.archs.clear();
        narrowing.kernels.clear();
    }
    if let Some(clock) = clock {
        study.clock = clock;
        study.clock_of_host = false;
    }
    chosen.test_tools(&mut study)?;
    if !selection.deny.is_empty() {
        let probes = study.tool_files.iter().map(|tool| tool.file.name.clone()).collect();
        study.gates.push(Gate { probes, deny: Denied::kinds(&selection.deny), ..Gate::default() });
    }
    if study.targets.iter().any(Target::is_pattern) {
        study.resolve_patterns(|arch| builds(arch, overlays, global))?;
    }
    let mut available = Available { targets: targets_of_manifest(overlays)?, ..Available::default() };
    for (arch, tree) in &overlays.ior {
        available.external_ior.insert(*arch, interfaces(*arch, tree)?);
    }
    bpfassay_study::expand(&study, &narrowing, &available).map_err(Failure::usage)
}

/// The builds known of `arch`, oldest first: those of the testbed manifest, or else those of the catalogue that packages
/// provide whole.
fn builds(arch: Arch, overlays: &cli::Overlays, global: &cli::Global) -> Result<Vec<String>, Failure> {
    let store = Store::open(global)?;
    let apt = store.apt();
    let request = Request { manifest: overlays.manifest.clone(), ..Request::new(&apt, &store.catalogue) };
    Ok(request.provider().kernels(&request, arch)?)
}

/// The targets of the testbed manifest, where only these are wanted.
fn targets_of_manifest(overlays: &cli::Overlays) -> Result<Option<BTreeSet<Target>>, Failure> {
    if !overlays.available {
        return Ok(None);
    }
    let Some(path) = &overlays.manifest else {
        return Err(Failure {
            code: USAGE,
            report: miette::miette!(
                help = "name the manifest with --manifest, or leave --available out",
                "--available keeps what a testbed manifest has, and none is given"
            ),
        });
    };
    // Its files are checked when they are used.
    let manifest = Manifest::load(path, Check::Size)?;
    Ok(Some(manifest.targets.into_iter().map(|made| Target { arch: made.arch, kernel: made.name }).collect()))
}

/// The interfaces of the IOR in `tree`: those whose names stand in the program, because a program for another
/// architecture cannot be asked.
fn interfaces(arch: Arch, tree: &Path) -> Result<BTreeSet<Interface>, Failure> {
    let overlay = Overlay::read(arch, tree).map_err(Failure::usage)?;
    interfaces_of(&overlay.program)
}

/// The interfaces of the IOR in the file `path`.
pub(crate) fn interfaces_of(path: &Path) -> Result<BTreeSet<Interface>, Failure> {
    const LIMIT: u64 = 256 << 20;
    let read = |source| Failure::usage(Error::Io { action: "read", path: path.to_owned(), source });
    let mut bytes = Vec::new();
    bpfassay_input::open(path).map_err(read)?.take(LIMIT).read_to_end(&mut bytes).map_err(read)?;
    // As a whole string constant of the program.
    let holds = |name: &str| {
        bytes.windows(name.len() + 2).any(|window| {
            window.first() == Some(&0) && window.last() == Some(&0) && window[1..=name.len()] == *name.as_bytes()
        })
    };
    let interfaces: BTreeSet<Interface> =
        Interface::ALL.iter().copied().filter(|interface| holds(interface.name())).collect();
    if interfaces.is_empty() {
        // Without this the embedded engine would run in place of the one that was asked for.
        return Err(Failure {
            code: USAGE,
            report: miette::miette!(
                help = "a script that starts IOR, such as libtool or a wrapper makes, is not enough: put the program \
                        itself in its place",
                "{} names none of IOR's interfaces ({}): it is no IOR",
                path.display(),
                Interface::ALL.iter().map(|interface| interface.name()).collect::<Vec<_>>().join(", ")
            ),
        });
    }
    Ok(interfaces)
}

/// Finds what the host lacks for `plan`, and installs it: `needed` and QEMU. Where the testbed was made elsewhere, nothing else is
/// `needed`, and QEMU need not come from Debian's packages.
pub(crate) fn host_packages(plan: &Plan, needed: &[&str], global: &cli::Global) -> Result<(), Failure> {
    let mut archs: BTreeSet<Arch> = plan.cells.iter().map(|cell| cell.target.arch).collect();
    let missing = if needed.is_empty() {
        archs.retain(|&arch| !is_on_path(arch));
        let wanted: Vec<&str> = archs.iter().flat_map(|&arch| debian_packages(arch).split_whitespace()).collect();
        match apt::missing_host_packages(&wanted) {
            Ok(missing) => missing,
            // No Debian: whoever looks for QEMU later reports what is missing.
            Err(Error::Program { .. }) => Vec::new(),
            Err(error) => return Err(error.into()),
        }
    } else {
        missing_packages(needed, &archs)?
    };
    host::install(&missing, host::answers_yes(global.yes))
}

/// Those Debian packages of `needed`, and of QEMU for `archs`, that this host lacks.
pub(crate) fn missing_packages(needed: &[&str], archs: &BTreeSet<Arch>) -> Result<Vec<String>, Failure> {
    let mut wanted = needed.to_vec();
    for &arch in archs {
        wanted.extend(debian_packages(arch).split_whitespace());
    }
    Ok(apt::missing_host_packages(&wanted)?)
}

/// Whether guests can be used by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shell {
    /// With a shell in them.
    With,
    /// Only what measuring needs.
    Without,
}

/// The guests of a plan.
pub(crate) struct Testbed {
    pub(crate) images: BTreeMap<Target, GuestImage>,
    pub(crate) manifest: Manifest,
}

/// What the arguments ask for, but the targets.
fn request<'a>(
    apt: &'a Apt<'a>,
    store: &'a Store,
    chosen: &Chosen,
    overlays: &cli::Overlays,
) -> Result<Request<'a>, Failure> {
    let local = local_image(&chosen.selection)?
        .map(|image| LocalKernel { image: image.to_owned(), modules: chosen.selection.modules.clone() });
    let (manifest, ior) = (overlays.manifest.clone(), overlays.ior.clone());
    Ok(Request { local, manifest, ior, ..Request::new(apt, &store.catalogue) })
}

/// Debian packages that this host needs for the testbed that the arguments ask for.
pub(crate) fn needed(
    store: &Store,
    chosen: &Chosen,
    overlays: &cli::Overlays,
) -> Result<&'static [&'static str], Failure> {
    Ok(request(&store.apt(), store, chosen, overlays)?.provider().host_packages())
}

/// Makes or finds the guests for the targets of `plan`.
pub(crate) fn testbed(
    store: &Store,
    chosen: &Chosen,
    overlays: &cli::Overlays,
    plan: &Plan,
    shell: Shell,
) -> Result<Testbed, Failure> {
    let targets: Vec<Target> = plan.targets().into_iter().cloned().collect();
    let apt = store.apt();
    let request = Request {
        targets: targets.iter().map(|target| (target.arch, target.kernel.clone())).collect(),
        shell: shell == Shell::With,
        ..request(&apt, store, chosen, overlays)?
    };
    let mut manifest = request.provider().provide(&request)?;
    chosen.add_tools(store, plan, &targets, &mut manifest)?;
    from_manifest(manifest, plan)
}

/// The guests that a run was begun with, as long as all their files are there and sound; otherwise they are made again.
pub(crate) fn recorded(provenance: &Provenance, journal: &Path, plan: &Plan) -> Result<Option<Testbed>, Failure> {
    let text = provenance.manifest.to_string();
    let sound = Manifest::parse(journal, text.as_bytes())
        .map_err(Error::from)
        .and_then(|manifest| manifest.check_files(journal, Check::Content).map(|()| manifest));
    match sound {
        Ok(manifest) => from_manifest(manifest, plan).map(Some),
        Err(error) if plan.targets().iter().any(|target| target.kernel == local::NAME) => {
            let help = "begin again in another directory, with --kernel and the path of the image";
            let report = miette::miette!(
                help = help,
                "the kernel that this run was begun with is gone: {}",
                with_causes(&error)
            );
            Err(Failure { code: USAGE, report })
        }
        Err(error) if !plan.study.tool_files.is_empty() => {
            let help = "begin again in another directory, with --tool";
            let report = miette::miette!(
                help = help,
                "the guests that this run was begun with are gone: {}",
                with_causes(&error)
            );
            Err(Failure { code: USAGE, report })
        }
        Err(error) => {
            tracing::info!(
                "the guests that this run was begun with are gone ({}); making them again",
                with_causes(&error)
            );
            Ok(None)
        }
    }
}

/// The images of the targets of `plan`.
fn from_manifest(manifest: Manifest, plan: &Plan) -> Result<Testbed, Failure> {
    let targets: Vec<Target> = plan.targets().into_iter().cloned().collect();
    let mut images = BTreeMap::new();
    for target in targets {
        let made = manifest.target(target.arch, &target.kernel).ok_or_else(|| Failure {
            code: USAGE,
            report: miette::miette!(
                help =
                    "name a testbed manifest that holds it, or narrow the study with --arch, --kernel or --available",
                "the testbed manifest has no guest for {target}"
            ),
        })?;
        let image = GuestImage::from_manifest(made)?;
        images.insert(target, image);
    }
    Ok(Testbed { images, manifest })
}

/// How the accelerator is found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trial {
    /// By booting, unless the cache remembers a trial on this very host.
    Boot,
    /// From what the cache remembers, without booting anything.
    Recorded,
}

/// Finds QEMU for every architecture of `plan` and the accelerator to use.
pub(crate) async fn rig(
    store: &Store,
    images: BTreeMap<Target, GuestImage>,
    plan: &Plan,
    wish: AcceleratorWish,
    trial: Trial,
) -> Result<HostSetup, Failure> {
    let mut qemu = BTreeMap::new();
    for target in plan.targets() {
        if qemu.contains_key(&target.arch) {
            continue;
        }
        let found = Qemu::find(target.arch, None).await.map_err(Failure::infrastructure)?;
        let image = images
            .get(target)
            .ok_or_else(|| Failure { code: INTERNAL, report: miette::miette!("no image was made for {target}") })?;
        let choice = choose(store, &found, image, wish, trial).await?;
        qemu.insert(target.arch, (found, choice));
    }
    Ok(HostSetup { qemu, images })
}

async fn choose(
    store: &Store,
    qemu: &Qemu,
    image: &GuestImage,
    wish: AcceleratorWish,
    trial: Trial,
) -> Result<AcceleratorChoice, Failure> {
    let key = serde_json::to_vec(&AcceleratorKey::of_host(qemu)).map_err(|error| Failure::new(INTERNAL, error))?;
    let key = Digest::of(&key);
    let remembered: Option<AcceleratorChoice> = store.cache.recorded(ACCELERATORS, &key)?;
    match (wish, remembered, trial) {
        (AcceleratorWish::Auto, Some(choice), _) => return Ok(choice),
        (AcceleratorWish::Kvm, Some(choice), _) if choice.accelerator == Accelerator::Kvm => return Ok(choice),
        (AcceleratorWish::Auto, None, Trial::Recorded) => {
            let reason = "not tried yet on this host: `run` and `fetch` try KVM by booting".to_owned();
            return Ok(AcceleratorChoice { accelerator: Accelerator::Tcg, reason });
        }
        _ => {}
    }
    let scratch = store.cache.scratch()?;
    let machine = Machine::new(qemu.arch, image.kernel());
    let choice = accelerator::choose(qemu, &machine, wish, &scratch.path().join("console.log"), KVM_PATIENCE)
        .await
        .map_err(Failure::infrastructure)?;
    if wish == AcceleratorWish::Auto {
        store.cache.record(ACCELERATORS, &key, &choice)?;
    }
    tracing::info!("{} guests run under {}: {}", qemu.arch, choice.accelerator, choice.reason);
    Ok(choice)
}
