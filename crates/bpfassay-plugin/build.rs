// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the plugin itself, for the machine that this package is compiled on, once for each version of QEMU's plugin interface. Where that
//! is another machine than QEMU is to run on, or where it cannot be compiled, there is no plugin, and the library says so when it is asked
//! for one.

use std::{env, error::Error, fs, path::Path, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-check-cfg=cfg(bpfassay_plugin_api, values(\"1\", \"2\"))");
    let out = env::var("OUT_DIR")?;
    let (host, target) = (env::var("HOST")?, env::var("TARGET")?);
    let arch = |triple: &str| triple.split('-').next().map(str::to_owned);
    for api in ["1", "2"] {
        let file = Path::new(&out).join(format!("plugin-{api}.so"));
        let is_compiled = arch(&host) == arch(&target) && compile(api, &host, &file)?;
        if !is_compiled {
            println!("cargo::warning=the plugin for QEMU is left out: there will be no direct cost");
            fs::write(&file, "")?;
        }
    }
    Ok(())
}

fn compile(api: &str, host: &str, file: &Path) -> Result<bool, Box<dyn Error>> {
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    // Without a target of its own it is compiled for the C library that QEMU has, and not for that of a static program.
    rustc.args(["--crate-type", "cdylib", "--crate-name", "bpfassay_plugin", "--edition", "2024", "--target", host]);
    rustc.args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols", "-C", "codegen-units=1"]);
    rustc.arg("--cfg").arg(format!("bpfassay_plugin_api=\"{api}\"")).arg("-o").arg(file).arg("src/qemu.rs");
    Ok(rustc.status()?.success())
}
