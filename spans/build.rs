// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the eBPF programs, as the tracer's build script does.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::Command,
};

use bpfassay_protocol::Arch;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SOURCE: &str = "src/bpf/spans.bpf.c";

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=BPFASSAY_CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    let arch = variable("CARGO_CFG_TARGET_ARCH")?.parse::<Arch>()?.facts().bpf_target;
    // Set by libbpf-sys, which installs the headers of the libbpf that it builds.
    let headers = variable("DEP_BPF_INCLUDE")?;
    let clang = find_clang()?;
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-std=gnu17", "-Wall", "-Wextra", "-Wno-unused-parameter"])
        // The same source gives the same object everywhere: no header of this machine is included.
        .args(["-Werror", "-nostdinc", "-fdebug-compilation-dir=."])
        .arg(format!("-D__TARGET_ARCH_{arch}"))
        .arg("-isystem")
        .arg(&headers)
        .arg(format!("-ffile-prefix-map={headers}=libbpf"))
        .args(["-c", SOURCE, "-o"])
        .arg(Path::new(&variable("OUT_DIR")?).join("spans.o"))
        .status()
        .map_err(|error| format!("cannot start {} to compile the eBPF programs: {error}", clang.display()))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed on {SOURCE} ({status})", clang.display()).into()) }
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| format!("cargo did not set {name}: {error}").into())
}

/// Returns `BPFASSAY_CLANG`, else `clang`, else the newest `clang-NN` on `PATH`.
fn find_clang() -> Result<PathBuf> {
    if let Some(clang) = env::var_os("BPFASSAY_CLANG") {
        return Ok(clang.into());
    }
    let mut newest: Option<(u32, PathBuf)> = None;
    for directory in env::split_paths(&env::var_os("PATH").unwrap_or_default()) {
        let plain = directory.join("clang");
        if plain.is_file() {
            return Ok(plain);
        }
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix("clang-")).and_then(|rest| rest.parse().ok());
            if let Some(version) = version
                && newest.as_ref().is_none_or(|(known, _)| version > *known)
            {
                newest = Some((version, entry.path()));
            }
        }
    }
    newest.map(|(_, path)| path).ok_or_else(|| {
        "no clang on PATH, which compiles the eBPF programs: install it (Debian: apt install clang-19, Nix: \
         llvmPackages.clang-unwrapped) or name one in BPFASSAY_CLANG"
            .into()
    })
}
