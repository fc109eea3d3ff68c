// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds QEMU and the accelerator for the guests. The accelerator is tried once by booting a guest
//! where figures or the clock depend on it. The outcome is kept in the cache.

#![allow(clippy::disallowed_methods, reason = "joins a fixed name to a scratch directory")]

use std::{collections::BTreeMap, time::Duration};

use bpfassay_packages::{
    digest::Digest,
    stages::{ProgressStep, RunningStage, StageKind},
};
use bpfassay_study::{Clock, Plan, Target};
use bpfassay_testbed::image::GuestImage;
use bpfassay_vm::{
    Accelerator, AcceleratorChoice, AcceleratorWish, Machine, Qemu,
    acceleration::{self, AcceleratorKey},
};

use crate::{
    boot::{host_setup::HostSetup, loaded_plugin},
    error::Error,
    this_host::{
        emulator::{self, FoundQemu},
        runner_store::Store,
    },
};

/// How long a kernel can take to boot and shut down under KVM. It takes 2 s where KVM works.
pub const KVM_PATIENCE: Duration = Duration::from_secs(20);

/// Kind of cache record for accelerators that were tried.
const ACCELERATORS: &str = "accelerator";

/// How the accelerator is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceleratorTrial {
    /// Boots a guest, unless the cache has the outcome of a trial on this very host.
    Boot,
    /// Uses only the cache.
    Recorded,
}

impl HostSetup {
    /// Finds QEMU and the accelerator for every architecture with guests among `images`.
    ///
    /// # Errors
    /// - [`Error::NoPlugin`] if the study has a model and QEMU does not load the plugin.
    /// - [`Error::Vm`] if QEMU is missing, if demanded KVM does not work, or if it cannot be tried.
    /// - [`Error::Testbed`] if the cache cannot be read or written, or if QEMU has to come from
    ///   `testbed.lock` and is not available.
    pub async fn find(
        store: &Store,
        images: BTreeMap<Target, GuestImage>,
        plan: &Plan,
        wish: AcceleratorWish,
        trial: AcceleratorTrial,
    ) -> Result<Self, Error> {
        let nothing = Self {
            qemu: BTreeMap::new(),
            qemu_packages: BTreeMap::new(),
            plugins: BTreeMap::new(),
            images: BTreeMap::new(),
        };
        nothing.with(store, images, plan, wish, trial).await
    }

    /// Adds `further` images. Architectures that already have QEMU keep it.
    ///
    /// # Errors
    /// The errors of [`HostSetup::find`].
    pub(crate) async fn with(
        &self,
        store: &Store,
        further: BTreeMap<Target, GuestImage>,
        plan: &Plan,
        wish: AcceleratorWish,
        trial: AcceleratorTrial,
    ) -> Result<Self, Error> {
        let (mut qemu, mut plugins, mut images) = (self.qemu.clone(), self.plugins.clone(), self.images.clone());
        let mut qemu_packages = self.qemu_packages.clone();
        images.extend(further);
        let is_counted = is_counted(plan);
        for target in plan.targets() {
            if qemu.contains_key(&target.arch) {
                continue;
            }
            let Some(image) = images.get(target) else { continue };
            let stage = store.stages.begin(StageKind::Qemu, target.arch.name());
            let FoundQemu { qemu: found, package } = emulator::find(store, target.arch).await?;
            qemu_packages.extend(package.map(|package| (target.arch, package)));
            let choice = match wish {
                AcceleratorWish::Auto if is_counted => counting(),
                _ => choose(store, &found, image, wish, trial, &stage).await?,
            };
            if plan.study.clock == Clock::Instructions {
                let plugin = loaded_plugin::find(&found).await;
                let refusal = plugin.as_ref().map_or_else(Some, |loaded| loaded.refusal.as_ref());
                if let (Some(reason), Some(model)) = (refusal, &plan.study.model) {
                    let (model, reason) = (model.name.clone(), reason.clone());
                    return Err(Error::NoPlugin { model, program: found.program, reason });
                }
                plugins.extend(plugin.ok().map(|plugin| (target.arch, plugin)));
            }
            stage.end(true);
            qemu.insert(target.arch, (found, choice));
        }
        Ok(Self { qemu, qemu_packages, plugins, images })
    }
}

/// Returns whether the guests of `plan` use the instruction clock on every host.
///
/// They do if the study says so. If the study leaves the clock to the host, they do if `plan` has a
/// foreign architecture. The host chooses the wall clock only if KVM works for all architectures,
/// and KVM only works for the host's own.
#[must_use]
pub fn is_counted(plan: &Plan) -> bool {
    let has_foreign = || plan.targets().iter().any(|target| !acceleration::is_native(target.arch));
    plan.study.clock == Clock::Instructions && (!plan.study.clock_of_host || has_foreign())
}

/// The accelerator of guests under the instruction clock, which is always TCG.
fn counting() -> AcceleratorChoice {
    let reason = "only QEMU's emulation counts instructions; KVM was not tried".to_owned();
    AcceleratorChoice { accelerator: Accelerator::Tcg, reason }
}

async fn choose(
    store: &Store,
    qemu: &Qemu,
    image: &GuestImage,
    wish: AcceleratorWish,
    trial: AcceleratorTrial,
    stage: &RunningStage,
) -> Result<AcceleratorChoice, Error> {
    let key = Digest::of(&serde_json::to_vec(&AcceleratorKey::of_host(qemu))?);
    let recorded: Option<AcceleratorChoice> = store.cache.recorded(ACCELERATORS, &key)?;
    match (wish, recorded, trial) {
        (AcceleratorWish::Auto, Some(choice), _) => return Ok(choice),
        (AcceleratorWish::Kvm, Some(choice), _) if choice.accelerator == Accelerator::Kvm => return Ok(choice),
        (AcceleratorWish::Auto, None, AcceleratorTrial::Recorded) => {
            let reason = "not tried yet on this host: `run` and `testbed fetch` try KVM by booting".to_owned();
            return Ok(AcceleratorChoice { accelerator: Accelerator::Tcg, reason });
        }
        _ => {}
    }
    stage.step(ProgressStep::TrialBoot, 0);
    let scratch = store.cache.scratch()?;
    let machine = Machine::new(qemu.arch, image.kernel());
    let log = scratch.path().join("console.log");
    let choice = acceleration::choose(qemu, &machine, wish, &log, KVM_PATIENCE).await?;
    if wish == AcceleratorWish::Auto {
        store.cache.record(ACCELERATORS, &key, &choice)?;
    }
    tracing::info!("{} guests run under {}: {}", qemu.arch, choice.accelerator, choice.reason);
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::Arch;
    use bpfassay_study::{Available, Narrowing};

    use super::*;

    #[test]
    fn kvm_is_tried_only_where_something_depends_on_it() {
        let is_tried = |archs: &[Arch], change: &dyn Fn(&mut bpfassay_study::Study)| {
            let mut study = bpfassay_study::load("quick").unwrap();
            change(&mut study);
            let narrowing = Narrowing { archs: archs.to_vec(), ..Narrowing::default() };
            !is_counted(&bpfassay_study::expand(&study, &narrowing, &Available::default()).unwrap())
        };
        let native: Arch = std::env::consts::ARCH.parse().unwrap();
        let as_it_is = |_: &mut bpfassay_study::Study| {};
        assert!(!is_tried(&[], &as_it_is), "guests of all architectures are not accelerated anywhere");
        assert!(is_tried(&[native], &as_it_is), "the host decides on the clock");
        assert!(!is_tried(&[native], &|study| study.clock_of_host = false), "the instruction clock");
        assert!(is_tried(&[], &|study| study.clock = Clock::Wall));
    }
}
