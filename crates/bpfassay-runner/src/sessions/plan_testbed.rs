// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests of a plan: a provider builds or finds them, and tools under test are added. Or they
//! are the guests that a run was begun with.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    path::Path,
    sync::Arc,
    thread,
};

use bpfassay_protocol::{Arch, with_causes};
use bpfassay_results::Provenance;
use bpfassay_study::{Plan, Target};
use bpfassay_testbed::{
    guest_tools::tools_segment,
    image::GuestImage,
    kernel_files::config_segment,
    locked_qemu::TrustedPackages,
    manifest::{Check, Manifest},
    missing::MissingParts,
    provider::{self, GuestRequest, local},
};
use tokio::sync::mpsc;

use crate::{
    error::Error,
    planned_targets::{keep_planned, targets_of},
    sessions::study_selection::StudySelection,
    this_host::{emulator, qemu_source::QemuSource, runner_store::Store},
};

/// Whether guests can be used by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShellUse {
    /// The guests have a shell.
    With,
    /// The guests have only what measuring needs.
    Without,
}

/// The guests of a plan.
#[derive(Debug)]
pub struct Testbed {
    /// The guest image of each target.
    pub images: BTreeMap<Target, GuestImage>,
    /// The manifest of the images.
    pub manifest: Manifest,
}

impl Testbed {
    /// Creates or finds the guests for the targets of `plan`, the plan of `selection`, with the
    /// selected provider.
    ///
    /// # Errors
    /// [`Error::Testbed`] if the provider fails. [`Error::NoGuest`] if a manifest lacks a target.
    /// [`Error::ToolUnknown`] if the plan's run was begun with tools whose files `selection` lacks.
    pub fn provide(store: &Store, selection: &StudySelection, plan: &Plan, shell: ShellUse) -> Result<Self, Error> {
        let apt = store.apt();
        let request = GuestRequest {
            targets: targets_of(plan),
            shell: shell == ShellUse::With,
            ..selection.request(&apt, store)
        };
        let mut manifest = provider::whole(&request)?;
        add_tools(store, selection, plan, &mut manifest)?;
        Self::of_manifest(manifest, plan)
    }

    /// Like [`Testbed::provide`], but on a thread, which sends each guest as soon as it is built.
    #[must_use]
    pub fn provide_parts(store: Arc<Store>, selection: Arc<StudySelection>, plan: Plan) -> Parts {
        let (sender, receiver) = mpsc::unbounded_channel();
        let made_for = Arc::clone(&store);
        let archs: BTreeSet<Arch> = plan.targets().iter().map(|target| target.arch).collect();
        emulator::prepare_ahead(&store, archs);
        thread::spawn(move || {
            let apt = store.apt();
            let request = GuestRequest { targets: targets_of(&plan), ..selection.request(&apt, &store) };
            selection.sources.provider().provide(&request, &|provider::BuiltPart { targets, made }| {
                let made = made.map_err(Error::from).and_then(|mut manifest| {
                    add_tools(&store, &selection, &plan, &mut manifest)?;
                    Ok(manifest)
                });
                // If the receiver has given up, no more parts are built.
                match sender.send(TestbedPart { targets, made }) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            });
        });
        Parts { store: made_for, receiver }
    }

    /// Returns the guests with which a run began, if all their files exist and are sound; `None` if
    /// the guests must be built again. `journal` is the file that `provenance` was read from.
    ///
    /// # Errors
    /// [`Error::GuestsGone`] if they cannot be made again from the plan alone.
    pub fn recorded(provenance: &Provenance, journal: &Path, plan: &Plan) -> Result<Option<Self>, Error> {
        let text = provenance.manifest.to_string();
        let is_whole = |manifest: &Manifest| {
            plan.targets().iter().all(|target| manifest.target(target.arch, &target.kernel).is_some())
        };
        let sound = Manifest::parse(journal, text.as_bytes())
            .map_err(bpfassay_testbed::Error::from)
            .and_then(|manifest| manifest.check_files(journal, Check::Content).map(|()| manifest));
        if sound.as_ref().is_ok_and(|manifest| !is_whole(manifest)) {
            tracing::info!("this run was interrupted before all of its guests were made; making the rest");
            return Ok(None);
        }
        let error = match sound {
            Ok(manifest) => return Self::of_manifest(manifest, plan).map(Some),
            Err(error) => error,
        };
        let is_kernel = plan.targets().iter().any(|target| target.kernel == local::NAME);
        if is_kernel || !plan.study.tool_files.is_empty() {
            let what = if is_kernel { "the kernel" } else { "the guests" };
            return Err(Error::GuestsGone { what, is_kernel, source: Box::new(error) });
        }
        tracing::info!("the guests that this run was begun with are gone ({}); making them again", with_causes(&error));
        Ok(None)
    }

    pub(crate) fn of_manifest(manifest: Manifest, plan: &Plan) -> Result<Self, Error> {
        Self::of_part(manifest, plan, &targets_of(plan))
    }

    /// Returns the guests for those targets of `plan` that `part` names.
    ///
    /// # Errors
    /// [`Error::NoGuest`] if `manifest` lacks a target.
    pub(crate) fn of_part(manifest: Manifest, plan: &Plan, part: &[(Arch, String)]) -> Result<Self, Error> {
        let is_wanted =
            |target: &&Target| part.iter().any(|(arch, kernel)| (*arch, kernel) == (target.arch, &target.kernel));
        let mut images = BTreeMap::new();
        for target in plan.targets().into_iter().filter(is_wanted) {
            let made = manifest.target(target.arch, &target.kernel).ok_or_else(|| Error::NoGuest(target.clone()))?;
            images.insert(target.clone(), GuestImage::from_manifest(made)?);
        }
        Ok(Self { images, manifest })
    }
}

/// Finds the parts that the cache of `store` lacks for the guests of `plan`, and for the QEMU that
/// boots them. Uses no network, and ignores packages of tools.
///
/// # Errors
/// [`Error::Testbed`] for a kernel without a name in the catalogue, a checkout that cannot be read,
/// and a cache that cannot be read.
pub fn missing_parts(store: &Store, selection: &StudySelection, plan: &Plan) -> Result<MissingParts, Error> {
    let apt = store.apt();
    let request = GuestRequest { targets: targets_of(plan), ..selection.request(&apt, store) };
    let mut qemu = false;
    for (arch, _) in &request.targets {
        qemu |= store.bundled_qemu == TrustedPackages::default()
            && QemuSource::resolved(store.qemu, *arch)? == QemuSource::Lock;
    }
    Ok(MissingParts::of(&request, qemu)?)
}

/// Guests for some targets, or why there are none.
#[derive(Debug)]
pub(crate) struct TestbedPart {
    pub(crate) targets: Vec<(Arch, String)>,
    pub(crate) made: Result<Manifest, Error>,
}

/// The guests of a plan, part by part. Dropping this value stops their making.
#[derive(Debug)]
pub struct Parts {
    pub(crate) store: Arc<Store>,
    receiver: mpsc::UnboundedReceiver<TestbedPart>,
}

impl Parts {
    /// Waits for the next guests; `None` if there are no more.
    pub(crate) async fn next(&mut self) -> Option<TestbedPart> {
        self.receiver.recv().await
    }
}

/// Adds the tools of `selection` and the workload programs of `plan` to the guests.
fn add_tools(store: &Store, selection: &StudySelection, plan: &Plan, manifest: &mut Manifest) -> Result<(), Error> {
    // A continued plan names its tools, but not the places of their files.
    let has_file = |name: &str| selection.tools.iter().any(|tool| tool.file.name == name);
    if let Some(tool) = plan.study.tool_files.iter().find(|tool| !has_file(&tool.file.name)) {
        return Err(Error::ToolUnknown { name: tool.file.name.clone() });
    }
    let folder = bpfassay_study::folder(&selection.study);
    let supplies = selection.supplies(plan, folder.as_deref());
    if supplies.is_empty() {
        return Ok(());
    }
    // Another provider's manifest can have guests of architectures that this plan does not need.
    keep_planned(manifest, plan);
    for target in &mut manifest.targets {
        target.initramfs.extend(config_segment(store.apt().cache(), &target.kernel)?);
    }
    let archs: BTreeSet<Arch> = manifest.targets.iter().map(|target| target.arch).collect();
    for arch in archs {
        let Some(segment) = tools_segment(&store.apt(), arch, &supplies)? else { continue };
        for target in manifest.targets.iter_mut().filter(|target| target.arch == arch) {
            target.initramfs.push(segment.clone());
        }
    }
    Ok(())
}
