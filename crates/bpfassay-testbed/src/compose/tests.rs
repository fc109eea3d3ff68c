// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::{image, manifest::Check, provider::local::arm64_image};

const TEXT: &str = r#"{
  "format": 1,
  "provider": "nix",
  "programs": { "aarch64": "programs" },
  "targets": [
    { "arch": "aarch64", "name": "6.12", "version": "6.12.94", "image": "Image", "modules": null, "config": "config" }
  ]
}"#;

fn parse(text: &str) -> Result<TestbedSpec, SpecError> {
    TestbedSpec::parse(Path::new("r.json"), text.as_bytes())
}

/// Creates a directory with a spec and everything that it names.
fn inputs() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("programs")).unwrap();
    for program in ["bpfassay-guest", "bpfassay-tracer", "bpfassay-ior"] {
        fs::write(directory.path().join("programs").join(program), program).unwrap();
    }
    fs::write(directory.path().join("Image"), arm64_image("6.12.94")).unwrap();
    fs::write(directory.path().join("config"), "CONFIG_BPF=y\n").unwrap();
    let path = directory.path().join("spec.json");
    fs::write(&path, TEXT).unwrap();
    (directory, path)
}

#[test]
fn what_was_composed_and_packed_can_be_moved() {
    let (work, path) = inputs();
    let cache = Cache::open(work.path().join("cache")).unwrap();
    let manifest = compose(&cache, &TestbedSpec::load(&path).unwrap()).unwrap();
    let packed = work.path().join("packed");
    pack(&manifest, &packed).unwrap();
    let elsewhere = work.path().join("elsewhere");
    fs::rename(&packed, &elsewhere).unwrap();
    fs::remove_dir_all(cache.root()).unwrap();
    let loaded = Manifest::load(&elsewhere.join(MANIFEST), Check::Content).unwrap();
    assert_eq!(loaded.provider.name, "nix");
    let target = loaded.target(Arch::Aarch64, "6.12").unwrap();
    assert_eq!((target.kernel.release.as_str(), target.kernel.version.as_deref()), ("6.12.94", Some("6.12.94")));
    assert_eq!(fs::read(&target.kernel.config.as_ref().unwrap().path).unwrap(), b"CONFIG_BPF=y\n");
    assert!(image::GuestImage::from_manifest(target).unwrap().modules().monolithic);
}

#[test]
fn the_same_inputs_make_the_same_testbed() {
    let packed = |_| {
        let (work, path) = inputs();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        pack(&compose(&cache, &TestbedSpec::load(&path).unwrap()).unwrap(), &work.path().join("packed")).unwrap();
        fs::read_to_string(work.path().join("packed").join(MANIFEST)).unwrap()
    };
    assert_eq!(packed(1), packed(2));
}

/// The Debian provider does the same, so that results of both name the same things.
#[test]
fn a_kernel_of_packages_has_their_names_and_modules_by_content() {
    let kernel = |modified: u64, text: &str| {
        let (work, path) = inputs();
        let tree = work.path().join("lib/modules/6.12.94");
        fs::create_dir_all(tree.join("kernel")).unwrap();
        let builtin = fs::File::create(tree.join("modules.builtin")).unwrap();
        fs::write(tree.join("modules.builtin"), text).unwrap();
        builtin.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(modified)).unwrap();
        fs::write(&path, TEXT.replace("null", "\".\"").replace("\"config\" }", &packages("linux-image"))).unwrap();
        let cache = Cache::open(work.path().join("cache")).unwrap();
        compose(&cache, &TestbedSpec::load(&path).unwrap()).unwrap().targets.remove(0).kernel
    };
    let made = kernel(1, "kernel/fs/nfs.ko\n");
    let [package] = made.packages.as_slice() else { panic!("{:?}", made.packages) };
    assert_eq!((package.name.as_str(), package.size), ("linux-image", 3));
    assert_eq!(made.modules, kernel(2, "kernel/fs/nfs.ko\n").modules);
    assert_ne!(made.modules, kernel(1, "kernel/fs/nfsd.ko\n").modules);
    let error = parse(&TEXT.replace("\"config\" }", &packages("linux_x"))).unwrap_err().to_string();
    assert!(error.ends_with("the target aarch64 6.12 names `linux_x`, which is no package"), "{error}");
    let error = parse(&TEXT.replace("\"config\" }", &packages("../linux"))).unwrap_err();
    let error = bpfassay_protocol::with_causes(&error);
    assert!(error.contains("`../linux` is no name of a package"), "{error}");
}

/// Returns the end of a target's JSON, with a package.
fn packages(name: &str) -> String {
    let digest = Digest::of(b"deb");
    format!(
        r#""config", "packages": [
            {{ "name": "{name}", "version": "6.12.94-1", "architecture": "arm64", "size": 3, "sha256": "{digest}" }}
        ] }}"#
    )
}

#[test]
fn a_testbed_is_not_packed_over_another() {
    let (work, path) = inputs();
    let cache = Cache::open(work.path().join("cache")).unwrap();
    let mut manifest = compose(&cache, &TestbedSpec::load(&path).unwrap()).unwrap();
    let packed = work.path().join("packed");
    pack(&manifest, &packed).unwrap();
    assert!(matches!(pack(&manifest, &packed), Err(Error::Packages(PackagesError::Io { action: "create", .. }))));
    manifest.targets[0].kernel.image.sha256 = Digest::of(b"other");
    let other = work.path().join("other");
    assert!(matches!(pack(&manifest, &other), Err(Error::Packages(PackagesError::Mismatch { .. }))));
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "half of a testbed is none");
    // A user's own manifest is neither overwritten nor removed.
    manifest.targets[0].kernel.image.sha256 = Digest::of_file(&manifest.targets[0].kernel.image.path).unwrap();
    fs::write(other.join(MANIFEST), "mine").unwrap();
    assert!(matches!(pack(&manifest, &other), Err(Error::Packages(PackagesError::Io { action: "create", .. }))));
    assert_eq!(fs::read_to_string(other.join(MANIFEST)).unwrap(), "mine");
    assert!(!other.join(FILES).exists());
}

#[test]
fn what_is_missing_or_does_not_fit_is_refused() {
    let (work, path) = inputs();
    let cache = Cache::open(work.path().join("cache")).unwrap();
    let message = |text: &str| {
        fs::write(&path, text).unwrap();
        compose(&cache, &TestbedSpec::load(&path).unwrap()).unwrap_err().to_string()
    };
    let error = message(&TEXT.replace("aarch64", "riscv64"));
    assert!(error.ends_with("is a kernel for aarch64, not for riscv64"), "{error}");
    let error = message(&TEXT.replace("null", "\"programs\""));
    assert!(error.contains("holds no lib/modules/RELEASE/kernel"), "{error}");
    fs::remove_file(work.path().join("programs/bpfassay-ior")).unwrap();
    let error = message(TEXT);
    assert!(error.contains("cannot read") && error.ends_with("programs/bpfassay-ior"), "{error}");
}

#[test]
fn specs_that_contradict_themselves_are_refused() {
    assert!(parse(TEXT).is_ok());
    let (start, end) = TEXT.split_at(TEXT.find("    { ").unwrap());
    let (target, end) = end.split_at(end.find('\n').unwrap());
    let two = format!("{start}{target},\n{target}{end}");
    for (text, problem) in [
        (TEXT.replace("\"format\": 1", "\"format\": 2"), "has format 2"),
        (TEXT.replace("\"name\": \"6.12\"", "\"name\": \"\""), "has no name"),
        (TEXT.replace("{ \"aarch64\": \"programs\" }", "{}"), "no programs for the target aarch64 6.12"),
        (two, "is listed twice"),
        (format!("{start}{end}"), "names no kernel"),
        (TEXT.replace("\"image\"", "\"picture\""), "is no spec of format 1"),
        (TEXT.replace("\"nix\"", "\"N\""), "is no name of a provider"),
        (String::new(), "is no spec of format 1"),
    ] {
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.starts_with("r.json") && error.contains(problem), "{error}");
    }
}

#[test]
fn kernels_that_a_user_added_are_distinguished_from_those_of_the_catalogue() {
    let catalogue = Catalogue::bundled().unwrap();
    assert!(parse(TEXT).unwrap().unknown_targets(&catalogue).is_empty());
    let spec = parse(&TEXT.replace("\"6.12\"", "\"mine\"")).unwrap();
    assert_eq!(spec.unknown_targets(&catalogue)[0].name, "mine");
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }
}
