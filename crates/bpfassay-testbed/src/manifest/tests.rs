// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;

use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("testdata/manifest.json");

fn parse(text: &str) -> Result<Manifest, ManifestError> {
    Manifest::parse(Path::new("m.json"), text.as_bytes())
}

/// A directory with the golden manifest and the files that it names.
fn testbed() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("files")).unwrap();
    fs::write(directory.path().join("files/vmlinuz"), "image").unwrap();
    fs::write(directory.path().join("files/base.cpio"), "base").unwrap();
    let path = directory.path().join("manifest.json");
    fs::write(&path, GOLDEN).unwrap();
    (directory, path)
}

#[test]
fn the_form_is_the_golden_one() {
    let manifest = parse(GOLDEN).unwrap();
    assert_eq!(manifest.to_json().unwrap(), GOLDEN);
    assert_eq!(manifest.provider.name, "debian");
    let target = manifest.target(Arch::Riscv64, "7.2").unwrap();
    assert_eq!(target.kernel.packages[0].version, "7.2.12-1");
    assert_eq!(manifest.target(Arch::X86_64, "7.2"), None);
}

#[test]
fn files_of_no_bytes_and_without_end_are_refused() {
    let (_directory, path) = testbed();
    // The manifest gives the size 0 for a file that can be read without end.
    let endless = |size: u64| {
        let mut value: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
        value["targets"][0]["kernel"]["image"]["path"] = "/dev/zero".into();
        value["targets"][0]["kernel"]["image"]["size"] = size.into();
        fs::write(&path, value.to_string()).unwrap();
        Manifest::load(&path, Check::Content).unwrap_err().to_string()
    };
    assert!(endless(0).contains("has a file of 0 bytes"), "{}", endless(0));
    assert!(endless(5).contains("it is a device and no regular file"), "{}", endless(5));
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let error = Manifest::load(&path, Check::Content).unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("more than 67108864 bytes"), "{error}");
}

#[test]
fn paths_are_relative_to_the_manifest() {
    let (directory, path) = testbed();
    let manifest = Manifest::load(&path, Check::Content).unwrap();
    assert_eq!(manifest.targets[0].kernel.image.path, directory.path().join("files/vmlinuz"));
    // Absolute paths stay the same when the manifest is loaded from another directory.
    let other = tempfile::tempdir().unwrap();
    let copy = other.path().join("copy.json");
    fs::write(&copy, manifest.to_json().unwrap()).unwrap();
    assert_eq!(Manifest::load(&copy, Check::Size).unwrap(), manifest);
}

#[test]
fn files_that_are_missing_or_changed_are_named() {
    let (directory, path) = testbed();
    let image = directory.path().join("files/vmlinuz");
    fs::write(&image, "imagE").unwrap();
    assert!(Manifest::load(&path, Check::Size).is_ok());
    let message = Manifest::load(&path, Check::Content).unwrap_err().to_string();
    assert!(message.contains("files/vmlinuz, which has SHA-256"), "{message}");
    fs::write(&image, "longer").unwrap();
    let message = Manifest::load(&path, Check::Size).unwrap_err().to_string();
    assert!(message.contains("files/vmlinuz, which has 6 bytes, not 5: make the testbed again"), "{message}");
    fs::remove_file(&image).unwrap();
    let message = Manifest::load(&path, Check::Size).unwrap_err().to_string();
    assert!(message.contains("which cannot be read"), "{message}");
}

#[test]
fn what_is_not_a_manifest_is_refused() {
    for (from, to, problem) in [
        ("\"format\": 1", "\"format\": 2", "has format 2, this program reads 1"),
        ("\"release\": \"7.2.12+deb14-riscv64\"", "\"release\": \"\"", "is no testbed manifest"),
        ("\"release\": \"7.2.12+deb14-riscv64\"", "\"release\": \"/etc\"", "is no testbed manifest"),
        ("\"release\": \"7.2.12+deb14-riscv64\"", "\"release\": \"../x\"", "is no testbed manifest"),
        ("\"size\": 5", "\"size\": -5", "is no testbed manifest"),
        ("\"role\"", "\"rôle\"", "is no testbed manifest"),
        ("\"debian\"", "\"De bian\"", "is no name of a provider"),
        ("05ecc141b", "05ecc141", "is no testbed manifest"),
        ("{", "[", "is no testbed manifest"),
    ] {
        let text = GOLDEN.replacen(from, to, 1);
        assert_ne!(text, GOLDEN, "{from}");
        let message = parse(&text).unwrap_err().to_string();
        assert!(message.starts_with("m.json") && message.contains(problem), "{message}");
    }
    let mut twice = parse(GOLDEN).unwrap();
    twice.targets.push(twice.targets[0].clone());
    let message = parse(&twice.to_json().unwrap()).unwrap_err().to_string();
    assert_eq!(message, "m.json: the target riscv64 7.2 is listed twice");
    twice.targets.truncate(1);
    twice.targets[0].initramfs.clear();
    assert!(parse(&twice.to_json().unwrap()).unwrap_err().to_string().contains("has no initramfs"));
}

#[test]
fn the_schema_refuses_what_parsing_refuses() {
    let schema = serde_json::to_value(Manifest::schema()).unwrap();
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["$defs"]["Digest"]["pattern"], "^[0-9a-f]{64}$");
    let required: Vec<_> = schema["required"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert_eq!(required, ["format", "provider", "targets"]);
}

proptest! {
    #[test]
    fn any_bytes_are_a_manifest_or_refused(bytes: Vec<u8>, at in 0..GOLDEN.len(), byte: u8) {
        let _ = Manifest::parse(Path::new("x"), &bytes);
        let mut damaged = GOLDEN.as_bytes().to_vec();
        damaged[at] = byte;
        let _ = Manifest::parse(Path::new("x"), &damaged);
    }
}
