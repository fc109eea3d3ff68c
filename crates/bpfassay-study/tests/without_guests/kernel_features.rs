// SPDX-License-Identifier: MIT OR Apache-2.0
//! The study `kernel-features` tries everything that the tracer offers.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use std::{collections::BTreeSet, fs, path::Path};

use bpfassay_protocol::{
    Arch, ProbeConfiguration,
    probe::{Loader, MapLayout, Probe},
};
use bpfassay_study::{Study, Target, load};

fn study() -> Study {
    load("kernel-features").unwrap()
}

#[test]
fn every_probe_of_libbpf_is_tried_with_every_map_layout() {
    let study = study();
    // Program sets do not count file operations.
    for &probe in Probe::ALL.iter().filter(|&&probe| probe != Probe::Programs) {
        let default = ProbeConfiguration::with_defaults(probe);
        // The baseline has no maps, and task accounting has no counters in maps.
        let maps = if probe.distinguishes_mounts() && !default.is_baseline() {
            &MapLayout::COMPARED
        } else {
            std::slice::from_ref(&default.map)
        };
        for &map in maps {
            let configuration = ProbeConfiguration { map, ..default };
            assert!(study.probes.contains(&configuration), "{configuration}");
        }
    }
}

#[test]
fn every_probe_of_aya_is_tried_with_every_map_layout_that_there_is_an_object_of() {
    let study = study();
    let of_aya: BTreeSet<ProbeConfiguration> =
        study.probes.iter().copied().filter(|one| one.loader == Loader::Aya).collect();
    let probes: BTreeSet<Probe> = of_aya.iter().map(|one| one.probe).collect();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpfassay-tracer-ebpf/src/bin");
    let mut expected = BTreeSet::new();
    for entry in fs::read_dir(sources).unwrap() {
        let map: MapLayout = entry.unwrap().path().file_stem().unwrap().to_str().unwrap().parse().unwrap();
        expected.extend(probes.iter().map(|&probe| ProbeConfiguration {
            map,
            loader: Loader::Aya,
            ..ProbeConfiguration::with_defaults(probe)
        }));
    }
    assert_eq!(of_aya, expected);
}

#[test]
fn expectations_hold_for_every_layout_and_loader() {
    let study = study();
    let target = |arch, kernel: &str| Target { arch, kernel: kernel.to_owned() };
    let is_expected = |target: &Target, probe| study.expectations.iter().any(|one| one.covers(target, probe));
    let without_trampolines = target(Arch::Aarch64, "6.1");
    for &probe in &study.probes {
        let needs_trampolines = matches!(probe.probe, Probe::Fentry | Probe::Fexit | Probe::Complete);
        assert_eq!(is_expected(&without_trampolines, probe), needs_trampolines || probe.probe == Probe::KprobeMulti);
        assert!(!is_expected(&target(Arch::X86_64, "7.2"), probe), "{probe}");
    }
}
