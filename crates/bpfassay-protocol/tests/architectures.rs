// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that docs/how-to/add-a-part.md lists all files that a new architecture touches, of every
//! type, and that each architecture is in each of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use bpfassay_protocol::Arch;

/// The section of the page.
const SECTION: &str = "An architecture\n";

/// An architecture whose name is also a prefix in Linux, Debian, Rust and libbpf.
const NAME: &str = "riscv";

/// The architecture whose files the page links as examples.
const EXAMPLE: Arch = Arch::Riscv64;

/// The device tree of QEMU's board, which shows that a host is itself a guest.
const OTHERS: [&str; 1] = ["riscv-virtio"];

/// Scripts and tests that use some architectures as examples, so that a new one needs no change.
const WITH_EXAMPLES: [&str; 4] = ["ci/checks/any-linux", "ci/checks/cluster", "ci/nix/eval", "ci/nix/tests.nix"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn section() -> String {
    let page = fs::read_to_string(root().join("docs/how-to/add-a-part.md")).unwrap();
    page.split("\n## ").find(|section| section.starts_with(SECTION)).unwrap().to_owned()
}

/// Returns the files that the section links.
fn listed() -> BTreeSet<PathBuf> {
    let section = section();
    let links = section.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.map(|link| root().join("docs/how-to").join(link).canonicalize().unwrap()).collect()
}

/// Collects the files below `directory`, without tests.
fn files(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            if !["tests", "testdata", "snapshots"].contains(&name.as_str()) {
                files(&path, found);
            }
        } else if name != "tests.rs" && !name.ends_with(".md") {
            // A file can be linked into a second crate.
            found.insert(path.canonicalize().unwrap());
        }
    }
}

/// Whether code, not a comment, names the architecture. Text after `#[cfg(test)]` is not searched.
fn names_one(text: &str) -> bool {
    let is_comment = |line: &&str| ["//", "/*", "*", "# "].iter().any(|mark| line.starts_with(mark));
    let code = text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]").filter(|line| !is_comment(line));
    code.map(|line| OTHERS.iter().fold(line.to_lowercase(), |line, other| line.replace(other, "")))
        .any(|line| line.contains(NAME))
}

#[test]
fn a_new_architecture_touches_the_files_that_the_page_lists() {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let directory = entry.unwrap().path();
        if directory.join("src").is_dir() {
            files(&directory.join("src"), &mut all);
        }
        all.extend(Some(directory.join("build.rs")).filter(|path| path.is_file()));
    }
    for directory in ["ci", "kernels", "nix"] {
        files(&root().join(directory), &mut all);
    }
    assert!(all.len() > 600, "{} files", all.len());
    let is_of_one = |path: &&PathBuf| {
        let is_named = path.file_name().unwrap().to_str().unwrap().contains(NAME);
        is_named || fs::read_to_string(path).is_ok_and(|text| names_one(&text))
    };
    let mut found: BTreeSet<PathBuf> = all.iter().filter(is_of_one).cloned().collect();
    for path in WITH_EXAMPLES {
        assert!(found.remove(&root().join(path)), "{path} names no architecture");
    }
    assert_eq!(found, listed(), "the files that name an architecture, and those that docs/how-to/add-a-part.md lists");
    let count = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"][found.len()];
    assert!(section().contains(&format!("touches {count} files")), "the page says how many: {count}");
}

#[test]
fn each_architecture_is_in_the_files_that_the_page_lists() {
    for arch in Arch::ALL {
        let names = [arch.name().to_owned(), format!("__TARGET_ARCH_{}", arch.facts().bpf_target)];
        for path in listed() {
            let file = path.file_name().unwrap().to_str().unwrap();
            let own = path.with_file_name(file.replace(EXAMPLE.name(), arch.name()));
            assert!(own.is_file(), "{arch} has no file {}", own.display());
            let text = fs::read_to_string(&own).unwrap();
            let is_named = own != path || file.contains(EXAMPLE.name()) || names.iter().any(|name| text.contains(name));
            assert!(is_named, "{} has nothing about {arch}", own.display());
        }
    }
}

#[test]
fn comments_and_tests_are_not_code() {
    assert!(names_one("const A: &str = \"riscv64\";"));
    assert!(!names_one("// riscv64\n/* riscv */\n * riscv\n# riscv\n#[cfg(test)]\nconst A: &str = \"riscv64\";"));
    assert!(!names_one("holds(\"proc/device-tree/compatible\", \"riscv-virtio\")"));
}
