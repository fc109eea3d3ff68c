// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that docs/how-to/add-a-part.md lists all files that a new architecture touches.

#![allow(clippy::unwrap_used, reason = "helpers of tests; clippy.toml spares only the test functions themselves")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Largest number of files that a new architecture can touch, including its own file.
const MOST: usize = 8;

/// An architecture whose name is also a prefix in Linux, Debian, Rust and libbpf.
const NAME: &str = "riscv";

/// The device tree of QEMU's board, which shows that a host is itself a guest.
const OTHERS: [&str; 1] = ["riscv-virtio"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the files that the section links.
fn listed() -> Vec<PathBuf> {
    let page = fs::read_to_string(root().join("docs/how-to/add-a-part.md")).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with("An architecture\n")).unwrap();
    let links = section.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    links.map(|link| root().join("docs/how-to").join(link).canonicalize().unwrap()).collect()
}

/// Collects the sources below `directory`, without tests.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            if !["tests", "testdata", "snapshots"].contains(&name.as_str()) {
                sources(&path, found);
            }
        } else if name != "tests.rs" && [".rs", ".c", ".h"].iter().any(|end| name.ends_with(end)) {
            // A file can be linked into a second crate.
            found.push(path.canonicalize().unwrap());
        }
    }
}

/// Whether code, not a comment, names the architecture. Text after `#[cfg(test)]` is not searched.
fn names_one(text: &str) -> bool {
    let is_comment = |line: &&str| ["//", "/*", "*"].iter().any(|mark| line.starts_with(mark));
    let code = text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]").filter(|line| !is_comment(line));
    code.map(|line| OTHERS.iter().fold(line.to_lowercase(), |line, other| line.replace(other, "")))
        .any(|line| line.contains(NAME))
}

#[test]
fn a_new_architecture_touches_the_files_that_the_page_lists() {
    let listed = listed();
    assert!(listed.len() <= MOST, "{listed:#?}");
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let directory = entry.unwrap().path();
        if directory.join("src").is_dir() {
            sources(&directory.join("src"), &mut found);
        }
        found.extend(Some(directory.join("build.rs")).filter(|path| path.is_file()));
    }
    assert!(found.len() > 300, "{} sources", found.len());
    let naming: Vec<_> = found.iter().filter(|path| names_one(&fs::read_to_string(path).unwrap())).collect();
    let unlisted: Vec<_> = naming.iter().filter(|path| !listed.contains(path)).collect();
    assert!(unlisted.is_empty(), "docs/how-to/add-a-part.md, `An architecture`, does not list {unlisted:#?}");
}

#[test]
fn comments_and_tests_are_not_code() {
    assert!(names_one("const A: &str = \"riscv64\";"));
    assert!(!names_one("// riscv64\n/* riscv */\n * riscv\n#[cfg(test)]\nconst A: &str = \"riscv64\";"));
    assert!(!names_one("holds(\"proc/device-tree/compatible\", \"riscv-virtio\")"));
}
