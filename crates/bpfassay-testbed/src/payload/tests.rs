// SPDX-License-Identifier: MIT OR Apache-2.0
use std::process::Command;

use bpfassay_packages::error::PackagesError;

use super::*;

#[test]
fn a_failed_build_shows_the_end_of_its_output_and_where_the_rest_is() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("logs/build.log");
    let mut command = Command::new("sh");
    command.args(["-c", "for n in $(seq 40); do echo line $n; done; echo 'error: no such crate' >&2; exit 101"]);
    let run = |program, package| LoggedBuild { program, package, log: &log };
    let error = run("sh", "dash").to_end(command, "build it").unwrap_err().to_string();
    assert!(error.starts_with("cannot build it (exit status: 101)"), "{error}");
    assert!(error.contains(log.to_str().unwrap()) && error.ends_with("line 40\nerror: no such crate"), "{error}");
    assert!(!error.contains("line 29\n") && error.contains("line 30\n"), "{error}");
    let missing = run("program", "package").to_end(Command::new("/nonexistent/program"), "x").unwrap_err();
    assert!(matches!(missing, Error::Packages(PackagesError::Program { package: "package", .. })));
}

fn recorded_build(cache: &Cache, source: Digest, toolchain_key: Digest) {
    let digest = |text: &str| cache.add_bytes(text, text.as_bytes()).unwrap().digest;
    let recorded = RecordedPayload {
        agent: digest("agent"),
        tracer: digest("tracer"),
        ior: digest("ior"),
        toolchain_key,
        toolchain: vec![Component { name: "rustc".into(), version: "1".into(), sha256: source }],
        asset: None,
    };
    cache.record(RECORD, &record_key(source, Arch::Riscv64), &recorded).unwrap();
}

#[test]
fn a_build_is_found_again_until_its_source_its_toolchain_or_a_program_changes() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path()).unwrap();
    let (source, toolchain, other) = (Digest::of(b"source"), Digest::of(b"toolchain"), Digest::of(b"other"));
    recorded_build(&cache, source, toolchain);
    let find = |source, arch, toolchain| recorded(&cache, source, arch, toolchain).unwrap();
    let Built { payload, toolchain: components, .. } = find(source, Arch::Riscv64, None).unwrap();
    assert_eq!(fs::read(&payload.tracer.path).unwrap(), b"tracer");
    assert_eq!(components.len(), 1);
    assert!(find(source, Arch::Riscv64, Some(toolchain)).is_some());
    assert!(find(source, Arch::Riscv64, Some(other)).is_none());
    assert!(find(other, Arch::Riscv64, None).is_none());
    assert!(find(source, Arch::X86_64, None).is_none());
    fs::remove_file(&payload.tracer.path).unwrap();
    fs::write(&payload.tracer.path, "damaged").unwrap();
    assert!(find(source, Arch::Riscv64, None).is_none());
}
