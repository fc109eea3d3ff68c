// SPDX-License-Identifier: MIT OR Apache-2.0
//! Uses the guests and QEMU of earlier results for another study or tool (`run --like`).

use std::path::{Path, PathBuf};

use bpfassay_packages::apt::{Located, Package};
use bpfassay_results::{Provenance, Results};
use bpfassay_study::Plan;
use bpfassay_testbed::{
    Arch,
    catalogue::Catalogue,
    manifest::{Check, Manifest, Segment, Target},
    segment::role,
    testbed_lock::LockedKernel,
};

use crate::{error::Error, this_host::qemu_source::QemuSource};

/// The provider that can build guests again from the facts in results.
const DEBIAN: &str = "debian";

/// The testbed of earlier results.
#[derive(Debug)]
pub struct Like {
    path: PathBuf,
    recorded: Provenance,
    manifest: Manifest,
}

impl Like {
    /// Takes the testbed of `results`, which are from `path`. It excludes tools under test.
    ///
    /// # Errors
    /// [`Error::Unlike`] if the results have no guests, or were continued with others.
    /// [`Error::Testbed`] if their manifest is invalid.
    pub fn new(path: &Path, results: &Results) -> Result<Self, Error> {
        let refuse = |problem: &str| unlike(path, problem.to_owned());
        let Some(recorded) = results.provenance.last() else { return Err(refuse("they do not say with what")) };
        if recorded.is_without_guests() {
            return Err(refuse("they are of a machine without guests"));
        }
        if results.provenance.iter().any(|other| !recorded.has_same_guests(other)) {
            return Err(refuse("they were continued with other guests"));
        }
        Self::of(path, recorded.clone())
    }

    fn of(path: &Path, recorded: Provenance) -> Result<Self, Error> {
        let text = recorded.manifest.to_string();
        let mut manifest = Manifest::parse(path, text.as_bytes()).map_err(bpfassay_testbed::Error::from)?;
        for target in &mut manifest.targets {
            target.initramfs.retain(is_own);
        }
        Ok(Self { path: path.to_owned(), recorded, manifest })
    }

    /// The source of the results' QEMU, if it is known.
    #[must_use]
    pub fn qemu(&self) -> Option<QemuSource> {
        QemuSource::of(&self.recorded)
    }

    /// Returns the results' guests if all that `plan` needs still exist and are sound; `None` if
    /// they must be made again.
    ///
    /// # Errors
    /// [`Error::Unlike`] if the results lack a target, or if lost guests cannot be built again.
    pub fn guests(&self, plan: &Plan) -> Result<Option<Manifest>, Error> {
        let mut manifest = self.manifest.clone();
        crate::planned_targets::keep_planned(&mut manifest, plan);
        if let Some(target) =
            plan.targets().iter().find(|target| manifest.target(target.arch, &target.kernel).is_none())
        {
            let known: Vec<_> =
                self.manifest.targets.iter().map(|target| format!("{} {}", target.arch, target.name)).collect();
            let problem =
                format!("they have no guest for {} {}, only {}", target.arch, target.kernel, known.join(", "));
            return Err(unlike(&self.path, problem));
        }
        match manifest.check_files(&self.path, Check::Content) {
            Ok(()) => Ok(Some(manifest)),
            Err(error) if manifest.provider.name == DEBIAN => {
                tracing::info!("the guests of {} are gone ({error}); making them again", self.path.display());
                Ok(None)
            }
            Err(error) => {
                let by = &self.manifest.provider.name;
                Err(unlike(&self.path, format!("their guests, which the provider `{by}` made, are gone ({error})")))
            }
        }
    }

    /// Returns the catalogue with the names of kernels bound to the results' packages.
    #[must_use]
    pub fn catalogue(&self, catalogue: Catalogue) -> Catalogue {
        let kernels = self.manifest.targets.iter().filter(|target| !target.kernel.packages.is_empty());
        let kernels = kernels.map(|target| locked(target, &catalogue)).collect();
        let lock = catalogue.lock().with_kernels(kernels);
        catalogue.with_lock(lock)
    }

    /// Refuses guests that were made for `plan` if they differ from the results' guests.
    ///
    /// # Errors
    /// [`Error::Unlike`] with the difference.
    pub fn check_guests(&self, made: &Manifest, plan: &Plan) -> Result<(), Error> {
        for target in plan.targets() {
            let of = |manifest: &Manifest| manifest.target(target.arch, &target.kernel).cloned();
            let (Some(then), Some(now)) = (of(&self.manifest), of(made)) else { continue };
            if let Some(what) = difference(&then, &now) {
                let problem = format!("{what} for {} {} is another one now", target.arch, target.kernel);
                return Err(unlike(&self.path, problem));
            }
        }
        Ok(())
    }

    /// Refuses a host whose QEMU, recorded in `now`, differs from the results' QEMU.
    ///
    /// # Errors
    /// [`Error::Unlike`] with both versions.
    pub fn check_qemu(&self, now: &Provenance) -> Result<(), Error> {
        for (arch, now) in &now.qemu {
            let Some(then) = self.recorded.qemu.get(arch) else { continue };
            if then.program.sha256 != now.program.sha256 {
                let of = |artefact: &bpfassay_results::provenance::Artefact| {
                    format!("{} (SHA-256 {})", artefact.version, artefact.sha256.as_deref().unwrap_or("not known"))
                };
                let [then, now] = [&then.program, &now.program].map(of);
                return Err(unlike(&self.path, format!("QEMU for {arch} was {then}, and is {now} here")));
            }
        }
        Ok(())
    }
}

fn unlike(path: &Path, problem: String) -> Error {
    Error::Unlike { path: path.to_owned(), problem }
}

/// Returns whether a segment is part of the testbed itself, not for tools or for a shell.
fn is_own(segment: &Segment) -> bool {
    ![role::TOOLS, role::KERNEL_FILES, role::SHELL].contains(&segment.role.as_str())
}

/// Returns the packages of the kernel of `target`. Their places are known if the lock has them.
fn locked(target: &Target, catalogue: &Catalogue) -> LockedKernel {
    let in_lock = |package: &Package| {
        let all = catalogue.lock().kernels().iter().flat_map(|kernel| &kernel.packages);
        all.clone().find(|located| located.package == *package).cloned()
    };
    let located = |package: &Package| {
        in_lock(package).unwrap_or_else(|| Located { package: package.clone(), path: String::new(), snapshot: None })
    };
    let suite = |arch: Arch| catalogue.find(arch, &target.name).ok()?.entries.first().map(|entry| entry.suite.clone());
    LockedKernel {
        name: target.name.clone(),
        architecture: target.arch,
        suite: suite(target.arch).unwrap_or_else(|| "unknown".to_owned()),
        release: target.kernel.release.clone(),
        version: target.kernel.version.clone().unwrap_or_default(),
        packages: target.kernel.packages.iter().map(located).collect(),
        headers: Vec::new(),
    }
}

/// Returns the difference between two guests, if any.
fn difference(then: &Target, now: &Target) -> Option<String> {
    let image = |target: &Target| target.kernel.image.sha256;
    if image(then) != image(now) {
        return Some(format!("the kernel ({} then, {} now)", then.kernel.release, now.kernel.release));
    }
    if then.kernel.modules != now.kernel.modules {
        return Some("the set of kernel modules".to_owned());
    }
    let segments = |target: &Target| -> Vec<(String, String)> {
        let own = target.initramfs.iter().filter(|segment| is_own(segment));
        own.map(|segment| (segment.role.clone(), segment.archive.sha256.to_string())).collect()
    };
    let (then, now) = (segments(then), segments(now));
    let other = then
        .iter()
        .find(|segment| !now.contains(segment))
        .or_else(|| now.iter().find(|segment| !then.contains(segment)));
    other.map(|(role, _)| format!("the part `{role}` of the initramfs"))
}

#[cfg(test)]
mod tests;
