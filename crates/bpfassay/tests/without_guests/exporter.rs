// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks `exporter/`: the tracer's systemd unit has the protections of the NixOS module, and the
//! dashboard names exactly the metrics that the tracer serves. `ci/checks/dashboard` and
//! `ci/checks/packages` run both.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and prints what it skips"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

/// Returns the text of a file of the repository; `None`, with a message, if the sources are built
/// without it.
fn text(path: &str) -> Option<String> {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    if !path.exists() {
        println!("SKIPPED: there is no {}", path.display());
        return None;
    }
    Some(fs::read_to_string(path).unwrap())
}

/// Returns the values of a unit by key; several words or lines become a set.
fn unit(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let lines = text.lines().filter(|line| !line.starts_with(['#', '[']));
    let mut unit: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (key, value) in lines.filter_map(|line| line.split_once('=')) {
        unit.entry(key).or_default().extend(value.split(' '));
    }
    unit
}

/// Returns the quoted words of the module's list or string `key`; lists have one word per line.
fn of_module<'a>(module: &'a str, key: &str) -> BTreeSet<&'a str> {
    let rest = module.split_once(&format!("{key} = ")).unwrap_or_else(|| panic!("the module has no {key}")).1;
    let value = rest.split_once(';').unwrap().0;
    if value.starts_with('[') || value.starts_with('"') {
        return value.split('"').skip(1).step_by(2).flat_map(|words| words.split(' ')).collect();
    }
    BTreeSet::from([if value == "true" { "yes" } else { value }])
}

#[test]
fn the_unit_protects_as_the_module_does() {
    let (Some(service), Some(module)) = (text("exporter/bpfassay-tracer.service"), text("nix/module.nix")) else {
        return;
    };
    let unit = unit(&service);
    for key in [
        "CapabilityBoundingSet",
        "DevicePolicy",
        "KeyringMode",
        "LimitMEMLOCK",
        "LockPersonality",
        "MemoryDenyWriteExecute",
        "NoNewPrivileges",
        "ProtectClock",
        "ProtectHostname",
        "Restart",
        "RestartPreventExitStatus",
        "RestrictAddressFamilies",
        "RestrictNamespaces",
        "RestrictRealtime",
        "RestrictSUIDSGID",
        "RuntimeDirectory",
        "StandardInput",
        "StandardOutput",
        "SystemCallArchitectures",
        "SystemCallFilter",
        "UMask",
    ] {
        assert_eq!(unit.get(key), Some(&of_module(&module, key)), "{key}");
    }
    // A mount namespace has other mount ids than the machine.
    for key in ["PrivateTmp", "PrivateDevices", "ProtectSystem", "ProtectHome", "DynamicUser", "ReadOnlyPaths"] {
        assert!(!unit.contains_key(key), "{key} makes a mount namespace");
    }
}

#[test]
fn the_settings_are_those_of_the_unit() {
    let (Some(service), Some(settings)) =
        (text("exporter/bpfassay-tracer.service"), text("exporter/bpfassay-tracer.default"))
    else {
        return;
    };
    let defaults = service.lines().find_map(|line| line.strip_prefix("Environment=")).unwrap();
    let command = service.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    for default in defaults.split(' ') {
        let name = default.split_once('=').unwrap().0;
        assert!(command.contains(&format!("${{{name}}}")) || command.ends_with(&format!("${name}")), "{name}");
        // The comment for a setting shows its default.
        let shown = settings.lines().find_map(|line| line.strip_prefix('#')?.strip_prefix(&format!("{name}=")));
        assert!(
            default.ends_with('=') && shown.is_some()
                || shown.map(|value| format!("{name}={value}")).as_deref() == Some(default),
            "{name}: {shown:?}"
        );
    }
    let listen = defaults.split("LISTEN=").nth(1).unwrap().split(' ').next().unwrap();
    let prometheus = text("exporter/prometheus.yml").unwrap();
    assert!(prometheus.contains(&format!("['{listen}']")), "{listen} is not scraped: {prometheus}");
    let source = text("exporter/grafana/provisioning/datasources/bpfassay.yaml").unwrap();
    let interval = |text: &str, key: &str| text.split_once(key).unwrap().1.lines().next().unwrap().to_owned();
    assert_eq!(interval(&prometheus, "scrape_interval: "), interval(&source, "timeInterval: "));
}

/// Returns the names in `text` that begin with `bpfassay_`.
fn metrics(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names = text.match_indices("bpfassay_").map(|(at, _)| &text[at..]);
    names.map(|rest| rest.split(|c| !is_part(c)).next().unwrap()).collect()
}

#[test]
fn the_dashboard_names_all_that_the_tracer_serves() {
    let (Some(dashboard), Some(golden)) =
        (text("exporter/grafana/bpfassay-tracer.json"), text("crates/bpfassay-tracer/tests/golden/metrics.text"))
    else {
        return;
    };
    let samples: String =
        golden.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut served = metrics(&samples);
    // The parts of a histogram are one metric.
    assert!(served.remove("bpfassay_latency_seconds_count"));
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let expressions: Vec<&str> = targets.map(|target| target["expr"].as_str().unwrap()).collect();
    assert!(expressions.len() > 10, "{expressions:#?}");
    assert_eq!(metrics(&expressions.join("\n")), served);
    // Panels neither overlap nor leave the grid.
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{}", panel["title"]);
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{} lies on another panel", panel["title"]);
        }
    }
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}
