// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console watch on the output of real kernels.
//!
//! `console/*.log` are consoles of Debian's kernels in QEMU: ordinary boots (`boot-*`) and fatal
//! incidents. Those were provoked by `sysrq-trigger` (`crash-*`), or by patching the kernel's text
//! through QEMU's gdb stub. The patched kernel reads address 0 (`oops-*`), executes an undefined
//! instruction (`illegal-*`) or a breakpoint (`brk-*`), or loops (`lockup-*`).
//! `console/messages.tsv` contains single lines that are hard to provoke, from the format strings
//! in the kernel's source.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{fs, path::Path};

use bpfassay_vm::{KernelIncident, KernelIncidentKind, console::Watch};

fn directory() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/console")
}

fn watched(text: &str) -> Vec<KernelIncident> {
    let mut watch = Watch::default();
    let found = text.lines().filter_map(|line| watch.line(line.trim_end())).count();
    assert_eq!(found, watch.incidents().len());
    watch.incidents().to_vec()
}

/// Returns the logs whose names begin with `start`, and their names.
fn logs(start: &str) -> Vec<(String, String)> {
    let mut logs: Vec<_> = fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with(start))
        .map(|name| (name.clone(), String::from_utf8_lossy(&fs::read(directory().join(&name)).unwrap()).into_owned()))
        .collect();
    logs.sort();
    assert!(!logs.is_empty(), "no logs named {start}*");
    logs
}

#[test]
fn ordinary_boots_have_no_incident_but_their_end() {
    for (name, text) in logs("boot-") {
        let incidents = watched(&text);
        // Kernels whose virtio console is a module were booted without a root, and end in a panic.
        let unexpected = incidents.iter().find(|incident| !incident.line.contains("Unable to mount root fs"));
        assert_eq!(unexpected, None, "{name}");
        assert!(text.lines().count() > 100, "{name} is the console of a whole boot");
    }
}

#[test]
fn a_triggered_crash_is_one_panic_with_the_frames_that_led_to_it() {
    for (name, text) in logs("crash-") {
        let incidents = watched(&text);
        assert_eq!(incidents.len(), 1, "{name}: {incidents:?}");
        assert_eq!(incidents[0].kind, KernelIncidentKind::Panic, "{name}");
        assert_eq!(incidents[0].line, "Kernel panic - not syncing: sysrq triggered crash", "{name}");
        assert!(incidents[0].details.iter().any(|line| line.contains("sysrq_handle_crash+")), "{name}: {incidents:?}");
    }
}

#[test]
fn an_oops_is_one_oops_with_its_place_and_then_the_panic() {
    for start in ["oops-", "illegal-", "brk-"] {
        for (name, text) in logs(start) {
            let incidents = watched(&text);
            let kinds: Vec<_> = incidents.iter().map(|incident| incident.kind).collect();
            assert_eq!(kinds, [KernelIncidentKind::Oops, KernelIncidentKind::Panic], "{name}: {incidents:#?}");
            let oops = &incidents[0];
            let place = ["RIP: ", "pc : ", "epc : "];
            assert!(
                oops.details.iter().any(|line| place.iter().any(|start| line.starts_with(start))),
                "{name}: {oops:#?}"
            );
            assert!(oops.details.iter().any(|line| line.starts_with("CPU: ")), "{name}: {oops:#?}");
            assert!(oops.time_us.is_some(), "{name}");
            if start == "oops-" {
                assert!(oops.line.to_lowercase().contains("null pointer"), "{name}: {}", oops.line);
            }
        }
    }
}

#[test]
fn a_kernel_that_loops_is_a_stall_or_a_lockup_and_not_dead() {
    for (name, text) in logs("lockup-") {
        let incidents = watched(&text);
        assert!(!incidents.is_empty(), "{name}");
        for incident in incidents {
            assert!(
                matches!(incident.kind, KernelIncidentKind::SoftLockup | KernelIncidentKind::RcuStall),
                "{name}: {incident:#?}"
            );
        }
    }
}

#[test]
fn single_messages_are_distinguished() {
    let text = fs::read_to_string(directory().join("messages.tsv")).unwrap();
    let mut count = 0;
    for entry in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (kind, line) = entry.split_once('\t').unwrap();
        let expected = match kind {
            "-" => None,
            kind => Some(serde_json::from_value::<KernelIncidentKind>(kind.into()).unwrap()),
        };
        for stamp in ["", "[    1.234567] ", "[12345.000001][    T1] ", "~ # [    1.234567] "] {
            // A message in the middle of a line only counts after a time stamp.
            let found = Watch::default().line(&format!("{stamp}{line}"));
            assert_eq!(found.map(|incident| incident.kind), expected, "{stamp}{line}");
        }
        count += 1;
    }
    assert!(count > 60);
}
