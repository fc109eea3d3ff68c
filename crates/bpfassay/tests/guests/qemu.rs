// SPDX-License-Identifier: MIT OR Apache-2.0
//! The QEMU of `testbed.lock`, unpacked into a cache, boots guests and gives the same figures as
//! the host's QEMU of the same version. Results that it measured are verified with it. A host
//! without QEMU gets a copy from the lock. A guest that differs from the requested one is not
//! measured.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking, and prints what it skips")]

use std::{env, fs, os::unix::fs::PermissionsExt, path::Path};

use bpfassay_chaos::fake_qemu;
use bpfassay_testbed::Arch;
use serde_json::Value;

use crate::common::{bpfassay, guests_wanted, printed, results, stand_in_for_qemu, study};

/// Runs `smoke` on one architecture under the instruction clock, with the QEMU of `source`, into
/// `source`; returns the results and the fingerprint.
fn smoke(directory: &Path, source: &str) -> (Value, String) {
    // QEMU starts as another user.
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = fake_qemu::program(Arch::Riscv64, directory).unwrap();
    let path = format!("{}:{}", hosts.parent().unwrap().display(), env::var("PATH").unwrap());
    let output = bpfassay(directory)
        .arg("run")
        .arg(study("smoke.toml"))
        .args(["--yes", "--arch", "riscv64", "--clock", "instructions", "--qemu", source, "--output", source])
        .env("PATH", path)
        .env_remove("BPFASSAY_QEMU")
        .output()
        .unwrap();
    let printed = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    // The cache can be in root's home directory, which no other user can enter.
    assert!(!printed.contains("QEMU runs as root: it does not start as another user"), "{printed}");
    let line = printed.lines().find_map(|line| line.strip_prefix("fingerprint of the raw figures: "));
    (results(&directory.join(source)), line.unwrap().to_owned())
}

#[test]
fn the_locks_qemu_gives_the_figures_of_the_hosts_of_the_same_version() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (locked, fingerprint) = smoke(directory.path(), "lock");
    let of = |results: &Value, key: &str| results["provenance"][0]["qemu"]["riscv64"][key].clone();
    assert_eq!(of(&locked, "package")["name"], "qemu-system-misc");
    assert!(of(&locked, "path").as_str().unwrap().contains("/trees/qemu/"), "{locked:#}");
    // The host's libraries are not used.
    let journal = fs::read_to_string(directory.path().join("lock/journal.jsonl")).unwrap();
    assert!(journal.contains("--inhibit-cache") && journal.contains("/usr/bin/loader"), "the journal has the command");

    let mut verify = bpfassay(directory.path());
    verify.args(["verify", "lock", "--yes"]).env_remove("BPFASSAY_QEMU");
    // No QEMU of the host can replace it.
    verify.env("PATH", directory.path());
    let output = verify.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", printed(&output));

    let (hosts, of_hosts) = smoke(directory.path(), "host");
    assert_eq!(of(&hosts, "package"), Value::Null);
    if of(&hosts, "program") == of(&locked, "program") {
        assert_eq!(fingerprint, of_hosts);
    } else {
        let [locked, hosts] = [&locked, &hosts].map(|results| of(results, "program")["version"].clone());
        println!("not compared: the host has QEMU {hosts}, testbed.lock has {locked}");
    }
}

/// Adds a CPU, and drops the last kernel parameter, as kernels do with too many of them.
const OTHER_GUEST: &str =
    r#"*' -append '*) for a; do shift; case $a in 1) a=2;; console=*) a=${a% *};; esac; set -- "$@" "$a"; done"#;

#[test]
fn a_guest_that_is_another_than_was_asked_for_is_not_measured() {
    if !guests_wanted() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    stand_in_for_qemu(directory.path(), "x86_64", OTHER_GUEST);
    let path = format!("{}:{}", directory.path().display(), env::var("PATH").unwrap());
    let output = bpfassay(directory.path())
        .arg("run")
        .arg(study("smoke.toml"))
        .args(["--yes", "--arch", "x86_64", "--probe", "none", "--accelerator", "tcg", "--qemu", "host"])
        .args(["--output", "out"])
        .env("PATH", path)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", printed(&output));
    let results = results(&directory.path().join("out"));
    assert_eq!(results["boots"].as_array().unwrap().len(), 1, "{:#}", results["boots"]);
    let outcome = &results["runs"][0]["record"]["outcome"];
    let said = outcome["excerpt"][0].as_str().unwrap();
    let begins = "the guest is not as it was asked for: kernel command line: console=ttyS0 ";
    assert!(outcome["kind"] == "host" && said.starts_with(begins), "{outcome:#}");
    assert!(said.contains(" randomize_kstack_offset=on was asked for, it has "), "{said}");
    assert!(said.ends_with("; CPUs: 1 was asked for, it has 2"), "{said}");
}
