// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the deliberately wrong tools of tests/wrong-tools and the right ones of
//! tests/right-tools.
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Architectures as the tools' sources name them, by `-DFOR_…`.
const ARCHS: [&str; 3] = ["x86_64", "aarch64", "riscv64"];

/// Copies the tool files, scripts and directories of `kind`, `wrong-tools` or `right-tools`, to
/// `directory` and compiles the objects next to them. Returns the tools' names, sorted.
pub(crate) fn build(kind: &str, directory: &Path) -> Vec<String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpfassay/tests").join(kind);
    let clang = clang();
    let mut tools = Vec::new();
    for entry in fs::read_dir(&sources).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            fs::create_dir_all(directory.join(name)).unwrap();
            for file in fs::read_dir(&path).unwrap().map(Result::unwrap) {
                fs::copy(file.path(), directory.join(name).join(file.file_name())).unwrap();
            }
        } else if [".toml", ".pl", ".py", ".bt"].iter().any(|end| name.ends_with(end)) {
            fs::copy(&path, directory.join(name)).unwrap();
            tools.extend(name.strip_suffix(".toml").map(str::to_owned));
        } else if let Some(tool) = name.strip_suffix(".bpf.c") {
            // Sources that read registers differ between architectures, and others do not.
            if fs::read_to_string(&path).unwrap().contains("FOR_") {
                for arch in ARCHS {
                    compile(
                        &clang,
                        &path,
                        &[&format!("-DFOR_{arch}")],
                        &directory.join(format!("{tool}.{arch}.bpf.o")),
                    );
                }
            } else {
                compile(&clang, &path, &[], &directory.join(format!("{tool}.bpf.o")));
            }
        }
    }
    tools.sort();
    tools
}

/// Compiles `source` to `object` for the BPF target, with `more` options.
pub(crate) fn compile(clang: &Path, source: &Path, more: &[&str], object: &Path) {
    const OPTIONS: [&str; 8] = ["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror", "-nostdinc"];
    let mut command = Command::new(clang);
    command.args(OPTIONS).args(["-Wno-unused-function", "-c"]).args(more).arg(source).arg("-o").arg(object);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
}

/// Finds clang like the tracer's build: `BPFASSAY_CLANG`, `clang`, or one with a version.
pub(crate) fn clang() -> PathBuf {
    let candidates = (15..40).rev().map(|version| format!("clang-{version}"));
    let named = env::var("BPFASSAY_CLANG").into_iter().chain(["clang".to_owned()]).chain(candidates);
    let mut found = named.filter(|name| Command::new(name).arg("--version").output().is_ok());
    found.next().unwrap_or_else(|| panic!("no clang here, which compiles the wrong tools: install clang-19")).into()
}
