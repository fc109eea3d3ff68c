// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's programs by the digest of their sources, for a command without a checkout.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use bpfassay_packages::{cache::Cache, digest::Digest};
use bpfassay_stage::{PACKAGES, Stage};
use bpfassay_testbed::{
    Arch,
    manifest::Component,
    payload::{Built, Payload, pack},
};
use serde_json::Value;

use crate::common::{bpfassay, printed};

/// Packages of a toolchain: a compiler, and packages whose code is in programs.
const TOOLCHAIN: [&str; 7] =
    ["rustc", "libc6-dev", "libelf-dev", "libgcc-16-dev", "libstd-rust-dev", "libzstd-dev", "zlib1g-dev"];

/// Creates assets of dummy programs, as if they had been built from the checkout.
fn assets(directory: &Path, archs: &[Arch]) -> PathBuf {
    let stage = Stage::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &PACKAGES).unwrap();
    let cache = Cache::open(directory.join("builder")).unwrap();
    let add = |name: &str| cache.add_bytes(name, name.as_bytes()).unwrap();
    let built = archs.iter().map(|&arch| Built {
        payload: Payload {
            arch,
            agent: add(&format!("agent {arch}")),
            tracer: add("tracer"),
            ior: add("ior"),
            source: stage.digest().into(),
        },
        toolchain: TOOLCHAIN
            .map(|name| Component { name: name.into(), version: "1".into(), sha256: Digest::of(name.as_bytes()) })
            .into(),
        toolchain_key: Digest::of(b"toolchain"),
        asset: None,
    });
    let place = directory.join("assets");
    pack(&built.collect::<Vec<_>>(), &place).unwrap();
    place
}

/// Runs `payload` with these arguments, an empty cache and no checkout; returns its exit code and
/// output.
fn payload(directory: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let cache = directory.join("cache");
    let _ = fs::remove_dir_all(&cache);
    let mut command = bpfassay(Path::new("/"));
    command.env("BPFASSAY_SOURCE", "/nonexistent").env_remove("BPFASSAY_FROM");
    let output =
        command.args(["testbed", "payload", "--offline", "--cache"]).arg(cache).args(arguments).output().unwrap();
    (output.status.code(), printed(&output).replace('\n', " "))
}

#[test]
fn without_a_checkout_programs_come_from_the_place_that_offers_them() {
    let work = tempfile::tempdir().unwrap();
    let place = assets(work.path(), &[Arch::X86_64, Arch::Riscv64]);
    let (empty, place) = (work.path().join("empty"), place.to_str().unwrap().to_owned());
    fs::create_dir(&empty).unwrap();
    let from = ["--from", empty.to_str().unwrap(), "--from", &place];
    let (code, printed) = payload(work.path(), &[&["build", "--arch", "x86_64,riscv64"][..], &from].concat());
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("offers no guest programs for x86_64"), "{printed}");
    assert!(printed.contains("taken from") && printed.contains(&Digest::of(b"agent riscv64").to_string()), "{printed}");
    // The programs become files for testbeds of other builders, and replace existing ones.
    let files = work.path().join("files");
    fs::create_dir_all(files.join("riscv64")).unwrap();
    fs::write(files.join("riscv64/bpfassay-guest"), "older, and longer than the other").unwrap();
    let build = ["build", "--arch", "riscv64", "--output", files.to_str().unwrap(), "--from", &place];
    let (code, printed) = payload(work.path(), &build);
    assert_eq!(code, Some(0), "{printed}");
    for (name, content) in [("guest", "agent riscv64"), ("tracer", "tracer"), ("ior", "ior")] {
        let file = files.join(format!("riscv64/bpfassay-{name}"));
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
    }
    assert!(!files.join("x86_64").exists() && printed.contains("programs: "), "{printed}");
    // Fetched programs are packed unchanged.
    let copy = work.path().join("copy");
    let pack = ["pack", copy.to_str().unwrap(), "--arch", "riscv64", "--from", &place];
    assert_eq!(payload(work.path(), &pack).0, Some(0));
    let names: Vec<_> = fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for name in names {
        assert_eq!(fs::read(copy.join(&name)).unwrap(), fs::read(Path::new(&place).join(&name)).unwrap());
    }
}

#[test]
fn without_sources_and_places_the_error_names_what_helps() {
    let work = tempfile::tempdir().unwrap();
    let place = assets(work.path(), &[Arch::X86_64]);
    for from in [&[][..], &["--from", place.to_str().unwrap()]] {
        let (code, printed) = payload(work.path(), &[&["build", "--arch", "aarch64"][..], from].concat());
        assert_eq!(code, Some(3), "{printed}");
        for words in ["aarch64", "/nonexistent", "--from", "BPFASSAY_FROM", "BPFASSAY_SOURCE", "--manifest"] {
            assert!(printed.contains(words), "{words}: {printed}");
        }
    }
    let (code, printed) = payload(work.path(), &["verify", "--arch", "x86_64", "--from", place.to_str().unwrap()]);
    assert!(code == Some(3) && printed.contains("BPFASSAY_SOURCE"), "{printed}");
    let (code, printed) = payload(work.path(), &["build", "--from", "https://user:secret@host.example/"]);
    assert!(code == Some(2) && printed.contains("expected a directory, or the URL of one"), "{printed}");
}

#[test]
fn a_damaged_asset_is_an_error_and_nothing_is_built() {
    let work = tempfile::tempdir().unwrap();
    let place = assets(work.path(), &[Arch::X86_64]);
    let files = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
    let archive = files.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "xz")).unwrap();
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, &bytes).unwrap();
    let (code, printed) = payload(work.path(), &["build", "--arch", "x86_64", "--from", place.to_str().unwrap()]);
    assert_eq!(code, Some(3), "{printed}");
    let name = archive.file_name().unwrap().to_str().unwrap();
    assert!(printed.contains(name) && printed.contains(&Digest::of(&bytes).to_string()), "{printed}");
}

/// Checks that NOTICE and the bill of materials name what is linked, with its licence, and nothing
/// that only the build and tests need.
fn contents_are_described(release: &Path) {
    let notice = fs::read_to_string(release.join("NOTICE")).unwrap();
    for (name, is_linked) in
        [("clap 4.", true), ("libbpf-sys 1.", true), ("glibc: LGPL-2.1", true), ("proptest ", false)]
    {
        assert_eq!(notice.contains(&format!("\n  {name}")), is_linked, "{name} in NOTICE");
    }
    assert!(notice.contains("fexit.bpf.c: GPL-2.0-only OR MIT OR Apache-2.0\n"), "no eBPF licences in NOTICE");
    assert!(notice.contains("Permission is hereby granted") && notice.contains("Apache License"), "no texts in NOTICE");
    let materials: Value = serde_json::from_slice(&fs::read(release.join("sbom.cdx.json")).unwrap()).unwrap();
    let components = materials["components"].as_array().unwrap();
    let named = |name: &str| components.iter().filter(|component| component["name"] == name).count();
    assert_eq!((named("serde"), named("aya-ebpf"), named("libelf-dev")), (1, 1, 1));
    // These are a procedural macro, and a dependency of tests.
    assert_eq!((named("serde_derive"), named("proptest")), (0, 0));
    for component in components {
        let is_crate = component["purl"].as_str().is_some_and(|purl| purl.starts_with("pkg:cargo/"));
        let is_ours = component["name"].as_str().unwrap().starts_with("bpfassay");
        assert!(!is_crate || is_ours || component["hashes"][0]["alg"] == "SHA-256", "{component}");
        assert!(!is_crate || component["licenses"][0]["expression"].is_string(), "{component}");
    }
    // Each dependency refers to a component, or to the release itself.
    let known: Vec<&Value> = components.iter().map(|component| &component["bom-ref"]).collect();
    let root = &materials["metadata"]["component"]["bom-ref"];
    for entry in materials["dependencies"].as_array().unwrap() {
        let on = entry["dependsOn"].as_array().unwrap();
        assert!(entry["ref"] == *root || known.contains(&&entry["ref"]), "{entry}");
        assert!(on.iter().all(|on| known.contains(&on)), "{entry}");
    }
}

#[test]
fn a_release_is_all_that_its_user_needs() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/release/make");
    if !script.exists() {
        println!("skipped: there is no ci/release/make beside these sources");
        return;
    }
    // The maker's cache has the built programs.
    let work = tempfile::tempdir().unwrap();
    let (place, cache) = (assets(work.path(), Arch::ALL), work.path().join("cache"));
    assert_eq!(payload(work.path(), &["build", "--from", place.to_str().unwrap()]).0, Some(0));
    let release = work.path().join("release");
    let make = |version: &str| {
        let mut command = std::process::Command::new(&script);
        command.args(["--no-testbed", "--no-packages", "--no-image", "--command", env!("CARGO_BIN_EXE_bpfassay")]);
        command.arg(version).arg(&release);
        // The last step uses the release in the directory `/`, with an empty cache, offline.
        command.env("BPFASSAY_CACHE", &cache).stdin(Stdio::null()).output().unwrap()
    };
    let output = make("0.0.0");
    assert!(output.status.code() == Some(2) && printed(&output).contains("not 0.0.0"), "{}", printed(&output));
    let output = make(env!("CARGO_PKG_VERSION"));
    assert!(output.status.success(), "{}", printed(&output));
    assert!(printed(&output).contains("taken from"), "{}", printed(&output));
    let provenance: Value = serde_json::from_slice(&fs::read(release.join("provenance.json")).unwrap()).unwrap();
    assert_eq!(provenance["version"], env!("CARGO_PKG_VERSION"));
    for arch in Arch::ALL {
        assert_eq!(provenance["guest_programs"][arch.name()]["toolchain"][0]["name"], "rustc", "{provenance}");
    }
    let sums = fs::read_to_string(release.join("SHA256SUMS")).unwrap();
    // The command, two files for each architecture; changelog, notices, bill of materials and
    // provenance.
    assert_eq!(sums.lines().count(), 1 + 2 * Arch::ALL.len() + 4, "{sums}");
    contents_are_described(&release);
    let output = make(env!("CARGO_PKG_VERSION"));
    assert!(output.status.code() == Some(2) && printed(&output).contains("is not empty"), "{}", printed(&output));
}
