// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests of a finished testbed, built here or elsewhere: `--manifest FILE`, or in one file,
//! `--bundle FILE`.

use std::path::Path;

use bpfassay_protocol::Arch;

use super::{BuiltPart, GuestRequest, PartReceiver, Provider, Sources};
use crate::{
    error::Result,
    guest_bundle,
    image::overlay_segment,
    manifest::{Check, Manifest},
    segment::role,
};

/// Provides guests of testbeds with a manifest, which names the provider that built them.
pub(super) struct ManifestFile;

impl Provider for ManifestFile {
    fn name(&self) -> &'static str {
        "manifest"
    }

    fn takes(&self, sources: &Sources) -> bool {
        sources.are_made()
    }

    fn host_packages(&self) -> &'static [&'static str] {
        &[]
    }

    fn kernels(&self, request: &GuestRequest<'_>, arch: Arch) -> Result<Vec<String>> {
        // The files are checked when they are used.
        let targets = request.sources.made_before()?.map(|manifest| manifest.targets).unwrap_or_default();
        Ok(targets.into_iter().filter(|target| target.arch == arch).map(|target| target.name).collect())
    }

    fn provide(&self, request: &GuestRequest<'_>, receiver: &PartReceiver<'_>) {
        let Sources { bundle, manifest, recorded, .. } = request.sources;
        let made = match (recorded, bundle) {
            (Some(recorded), _) => Ok(recorded.clone()),
            (None, Some(bundle)) => guest_bundle::unpack(request.apt.cache(), bundle),
            (None, None) => Manifest::load(manifest.as_deref().unwrap_or(Path::new("")), Check::Content),
        };
        let made = made.and_then(|mut manifest| {
            if !request.shell {
                // `testbed fetch` also prepares guests for `shell`. The shell's segment would make
                // them boot in another number of instructions than guests that `run` builds.
                for target in &mut manifest.targets {
                    target.initramfs.retain(|segment| segment.role != role::SHELL);
                }
            }
            add_ior(request, &mut manifest)?;
            Ok(manifest)
        });
        let _ = receiver(BuiltPart { targets: request.targets.clone(), made });
    }
}

/// Puts the real IOR of the request into the guests of its architecture. It replaces an IOR that
/// these guests already have.
///
/// # Errors
/// [`crate::Error::Overlay`] for a directory tree without an IOR, and the errors of the cache.
fn add_ior(request: &GuestRequest<'_>, manifest: &mut Manifest) -> Result<()> {
    for (arch, directory) in &request.sources.ior {
        let mut targets = manifest.targets.iter_mut().filter(|target| target.arch == *arch).peekable();
        if targets.peek().is_none() {
            continue;
        }
        let segment = overlay_segment(request.apt.cache(), *arch, directory)?;
        for target in targets {
            target.initramfs.retain(|other| other.role != role::OVERLAY);
            // The overlay is always the last segment.
            target.initramfs.push(segment.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _, sync::Mutex};

    use bpfassay_packages::{
        apt::{Apt, FetchOptions},
        cache::Cache,
    };

    use super::*;
    use crate::{
        catalogue::Catalogue,
        manifest::{File, Kernel, MadeBy, Segment, Target},
        payload::ProgramSources,
    };

    #[test]
    fn a_real_ior_comes_into_guests_that_were_made_before() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache")).unwrap();
        let file = |text: &str| File::from(&cache.add_bytes("a test", text.as_bytes()).unwrap());
        let segment = |role: &str| Segment {
            role: role.to_owned(),
            archive: file(&format!("{role} before")),
            contents: Vec::new(),
        };
        let target = |arch| Target {
            arch,
            name: "6.12".to_owned(),
            kernel: Kernel {
                release: "6.12.0".parse().unwrap(),
                version: None,
                image: file("image"),
                config: None,
                modules: None,
                packages: Vec::new(),
            },
            initramfs: vec![segment(role::BASE), segment(role::OVERLAY), segment(role::MODULES)],
        };
        let made = Manifest {
            format: 1,
            provider: MadeBy { name: "debian".to_owned(), version: "0.1.0".to_owned() },
            toolchain: Vec::new(),
            assets: Vec::new(),
            targets: vec![target(Arch::X86_64), target(Arch::Aarch64)],
        };
        let tree = directory.path().join("tree");
        fs::create_dir_all(tree.join("bin")).unwrap();
        // The first bytes of an ELF program for x86_64.
        let mut program = b"\x7fELF\x02\x01\x01".to_vec();
        program.resize(64, 0);
        program[18] = 62;
        fs::write(tree.join("bin/ior"), program).unwrap();
        fs::set_permissions(tree.join("bin/ior"), fs::Permissions::from_mode(0o755)).unwrap();
        let sources = Sources {
            recorded: Some(made),
            ior: vec![(Arch::X86_64, tree.clone()), (Arch::Riscv64, directory.path().join("none"))],
            ..Sources::default()
        };
        let (apt, catalogue, programs) =
            (Apt::new(&cache, FetchOptions::default()), Catalogue::bundled().unwrap(), ProgramSources::default());
        let request = GuestRequest::new(&apt, &catalogue, &sources, &programs);
        let found = Mutex::new(None);
        ManifestFile.provide(&request, &|part| {
            *found.lock().unwrap() = Some(part.made);
            std::ops::ControlFlow::Continue(())
        });
        let manifest = found.into_inner().unwrap().unwrap().unwrap();
        let roles = |arch: Arch| -> Vec<&str> {
            let target = manifest.target(arch, "6.12").unwrap();
            target.initramfs.iter().map(|segment| segment.role.as_str()).collect()
        };
        assert_eq!(roles(Arch::X86_64), [role::BASE, role::MODULES, role::OVERLAY]);
        assert_eq!(roles(Arch::Aarch64), [role::BASE, role::OVERLAY, role::MODULES]);
        let overlay = overlay_segment(&cache, Arch::X86_64, &tree).unwrap();
        assert_eq!(manifest.target(Arch::X86_64, "6.12").unwrap().initramfs[2], overlay);
    }
}
