// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every study and script of the project is valid, and so is the example in FORMAT.md.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests; clippy.toml spares only the test functions themselves"
)]

use std::path::Path;

use bpfassay_protocol::Arch;
use bpfassay_study::{Available, Interface, Narrowing, Study, WorkloadKind, bundled_studies, expand, load};
use bpfassay_tool::UnderTest;

fn is_sound(study: &Study, available: &Available) {
    let mut study = study.clone();
    let builds = |_| Ok::<_, bpfassay_study::ExpandError>(vec!["6.12.43".to_owned(), "7.2.6".to_owned()]);
    study.resolve_patterns(builds).unwrap();
    if study.probes.is_empty() {
        // The command line names the tools of this study.
        study.test_tool(UnderTest::of(bpfassay_tool::load("vfsstat-libbpf").unwrap().file)).unwrap();
    }
    let study = &study;
    let plan =
        expand(study, &Narrowing::default(), available).unwrap_or_else(|error| panic!("{}: {error}", study.name));
    assert!(plan.runs().count() > 0);
    assert!(!study.description.is_empty());
}

#[test]
fn bundled_studies() {
    for name in bundled_studies::NAMES {
        let study = load(name).unwrap();
        assert_eq!(&study.name, name, "a bundled study has the name of its file");
        is_sound(&study, &Available::default());
    }
}

#[test]
fn bundled_scripts() {
    for script in bundled_studies::script_names() {
        let text = format!(
            "schema = 1\nname = \"s\"\ndescription = \"d\"\nprobes = \"none\"\ntargets = {{ arch = \"x86_64\", kernels = \"6.1\" }}\n\
             file_systems = {{ type = \"tmpfs\", size_mib = 1000 }}\nworkloads = {{ script = \"{script}\" }}\ndesign = {{ replicates = 1, seed = 1 }}\n"
        );
        let find = |name: &str| Ok(bundled_studies::script(name).map(str::to_owned));
        let study = Study::parse(script, &text, &find).unwrap_or_else(|error| panic!("{script}: {error}"));
        let WorkloadKind::Ior(ior) = &study.workloads[0].kind else { panic!("{script}") };
        assert!(!ior.tests.is_empty());
    }
}

#[test]
fn studies_of_the_vm_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vm-tests");
    // Some studies need a real IOR.
    let interfaces = || Interface::ALL.iter().copied().collect();
    let external_ior = Arch::ALL.iter().map(|&arch| (arch, interfaces())).collect();
    let available = Available { external_ior, ..Available::default() };
    let mut found = 0;
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            is_sound(&load(path.to_str().unwrap()).unwrap(), &available);
            found += 1;
        }
    }
    assert!(found >= 3);
}

#[test]
fn the_example_of_the_description() {
    // One study on two pages.
    let pages = [include_str!("../../FORMAT.md"), include_str!("../../../../docs/reference/study-file-design.md")];
    let block = |page: &'static str| page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example = pages.map(block).concat();
    let study =
        Study::parse("FORMAT.md", &example, &|name| Ok(bundled_studies::script(name).map(str::to_owned))).unwrap();
    is_sound(&study, &Available::default());
    // The defaults in the example are the real ones.
    assert_eq!(study.deadlines, bpfassay_study::Deadlines::default());
}
