// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels, packages, initramfs and manifests.

use std::path::Path;

use bpfassay_packages::{
    apt::{Located, ReleaseFile, parse_index, parse_print_uris},
    digest::Digest,
};
use bpfassay_protocol::Arch;
use bpfassay_testbed::{
    catalogue::{Catalogue, ReleasePattern},
    compose::TestbedSpec,
    kernel_modules::{ModInfo, decompress, enum_values, signature},
    manifest::Manifest,
    payload::AssetIndex,
    provider::{
        debian::{builds, compare_versions},
        local,
    },
    testbed_lock::TestbedLock,
};

/// The header of a kernel image.
pub(super) fn kernel_image(image: &[u8]) {
    match local::identify(image) {
        Ok(kind) => assert!(kind.release.is_none_or(|release| release.len() <= image.len())),
        Err(message) => assert!(message.len() < 1000),
    }
    match local::unpack_zboot(image, 1 << 20) {
        Ok(kernel) => assert!(kernel.is_none_or(|kernel| kernel.len() <= 1 << 20)),
        Err(message) => assert!(message.len() < 1000),
    }
}

/// Streams of xz, zstd and gzip. The output must not exceed the limit.
pub(super) fn compressed(bytes: &[u8]) {
    const LIMIT: u64 = 1 << 20;
    if let Ok(output) = decompress::decompress(bytes.to_vec(), LIMIT) {
        assert!(output.len() as u64 <= LIMIT);
    }
}

/// A kernel module: `.modinfo` and signature.
pub(super) fn module(module: &[u8]) {
    for info in [ModInfo::parse(module), ModInfo::parse_section(module)].into_iter().flatten() {
        let names = info.name.iter().chain(&info.depends).chain(&info.soft_before).chain(&info.soft_after);
        assert!(names.into_iter().all(|name| (1..=64).contains(&name.len()) && !name.contains(['/', '.'])));
    }
    let unsigned = signature::cut(module);
    assert!(module.starts_with(unsigned) && (module.is_empty() || !unsigned.is_empty()));
    let _ = signature::enforced(&crate::lossy(module));
    let mut hidden = module.to_vec();
    enum_values::hide(&mut hidden);
    assert!(hidden.iter().zip(module).filter(|(after, before)| after != before).count() <= 1);
}

/// The index of a package archive, the builds of kernels in it, and apt's list of downloads.
pub(super) fn packages(text: &str) {
    if let Ok(index) = parse_index(text, |_| true) {
        if let Ok(catalogue) = Catalogue::bundled() {
            for entry in catalogue.entries() {
                let _ = builds(entry, "amd64", &index);
            }
        }
        index.iter().for_each(|indexed| check(&indexed.found));
    }
    parse_print_uris(text).into_iter().flatten().for_each(|found| check(&found));
}

/// A package's path and file name must not lead out of their directory.
fn check(found: &Located) {
    assert!(!found.package.file_name().contains('/'), "{found:?}");
    assert!(found.path.split('/').all(|part| !part.is_empty() && !part.starts_with('.')), "{found:?}");
}

/// Output of apt, dpkg and cargo.
pub(super) fn program_output(text: &str) {
    bpfassay_packages::fuzz::apt_output(text);
    bpfassay_testbed::fuzz::failed_output(text);
}

/// A lock: a valid one must survive a round trip.
pub(super) fn lock(text: &str) {
    if let Ok(lock) = TestbedLock::parse("x", text) {
        assert_eq!(TestbedLock::parse("x", &lock.text()).ok().as_ref(), Some(&lock));
    }
}

/// The release file of a suite.
pub(super) fn release(text: &str) {
    if let Some(release) = ReleaseFile::parse(text) {
        let _ = release.expired_since(0).or(release.expired_since(u64::MAX));
    }
}

/// The order of Debian versions, which must be total.
pub(super) fn versions(text: &str) {
    let versions: Vec<&str> = text.split_whitespace().take(12).collect();
    for a in &versions {
        assert!(compare_versions(a, a).is_eq());
        for b in &versions {
            assert_eq!(compare_versions(a, b), compare_versions(b, a).reverse());
        }
    }
}

/// A catalogue of kernels.
pub(super) fn catalogue(text: &str) {
    let Ok(catalogue) = Catalogue::parse("c.toml", text) else { return };
    for &arch in Arch::ALL {
        for name in catalogue.names(arch) {
            assert!(catalogue.find(arch, name).is_ok(), "{name}");
        }
        let _ = catalogue.find(arch, "6.1");
    }
}

/// A manifest: a valid one must survive a round trip.
pub(super) fn manifest(text: &[u8]) {
    let path = Path::new("/testbed/manifest.json");
    let Ok(manifest) = Manifest::parse(path, text) else { return };
    let again = manifest.to_json().ok().and_then(|text| Manifest::parse(path, text.as_bytes()).ok());
    assert_eq!(again.as_ref(), Some(&manifest));
}

/// The index of an asset: a valid one must survive a round trip.
pub(super) fn payload_index(text: &[u8]) {
    let Ok(index) = AssetIndex::parse("payload.json", text) else { return };
    assert!(index.programs.keys().all(|name| !name.contains('/')));
    let again = serde_json::to_vec(&index).ok().and_then(|text| AssetIndex::parse("payload.json", &text).ok());
    assert_eq!(again, Some(index));
}

/// A testbed spec.
pub(super) fn testbed_spec(text: &[u8]) {
    let path = Path::new("/testbed/spec.json");
    if let Ok(spec) = TestbedSpec::parse(path, text)
        && let Ok(catalogue) = Catalogue::bundled()
    {
        let _ = spec.unknown_targets(&catalogue);
    }
}

/// Patterns of releases, and digests.
pub(super) fn values(text: &str) {
    let mut lines = text.lines();
    if let Some(Ok(pattern)) = lines.next().map(ReleasePattern::new) {
        for release in lines.clone() {
            let _ = pattern.matches(release, "amd64");
        }
    }
    for line in lines {
        if let Ok(digest) = line.parse::<Digest>() {
            assert_eq!(digest.to_string().parse().ok(), Some(digest));
        }
    }
}
