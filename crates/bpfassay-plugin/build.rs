// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the plugin itself, for the machine that QEMU is to run on, once for each version of
//! QEMU's plugin interface. Where that is another machine than this one, it takes cargo's linker
//! for it. Where the plugin cannot be compiled, there is none, and the library reports that when it
//! is asked for one.

use std::{env, error::Error, ffi::OsString, fs, io, path::Path, process::Command};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rustc-check-cfg=cfg(bpfassay_plugin_api, values(\"1\", \"2\"))");
    let out = env::var("OUT_DIR")?;
    let compiler = compiler()?;
    for api in ["1", "2"] {
        let file = Path::new(&out).join(format!("plugin-{api}.so"));
        let is_compiled = match &compiler {
            Some(compiler) => compiler.makes(api, &file)?,
            None => false,
        };
        if !is_compiled {
            println!("cargo::warning=the plugin for QEMU is left out: there will be no direct cost");
            fs::write(&file, "")?;
        }
    }
    Ok(())
}

/// What the plugin is compiled with.
struct Compiler {
    rustc: OsString,
    target: String,
    /// None for this machine.
    linker: Option<OsString>,
}

/// The compiler for the machine that QEMU is to run on; none where cargo has no linker for it.
fn compiler() -> Result<Option<Compiler>, Box<dyn Error>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let (host, target) = (env::var("HOST")?, env::var("TARGET")?);
    let arch = |triple: &str| triple.split('-').next().map(str::to_owned);
    // For the C library that QEMU has, and not for that of a static program.
    if arch(&host) == arch(&target) {
        return Ok(Some(Compiler { rustc, target: host, linker: None }));
    }
    let has_qemu = env::var("CARGO_CFG_TARGET_ENV")? == "gnu";
    let linker = env::var_os("RUSTC_LINKER").filter(|_| has_qemu);
    Ok(linker.map(|linker| Compiler { rustc, target, linker: Some(linker) }))
}

impl Compiler {
    /// Whether it made the plugin for version `api` of the interface, as `file`.
    fn makes(&self, api: &str, file: &Path) -> io::Result<bool> {
        let mut rustc = Command::new(&self.rustc);
        rustc.args(["--crate-type", "cdylib", "--crate-name", "bpfassay_plugin", "--edition", "2024"]);
        rustc.args(["--target", &self.target, "-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"]);
        // A wrapper of QEMU, such as a shell, loads the plugin before the C library, too. With
        // partial RELRO, functions of QEMU, which a wrapper does not have, are looked up when they
        // are called.
        rustc.args(["-C", "relro-level=partial", "-C", "codegen-units=1"]);
        rustc.arg("--cfg").arg(format!("bpfassay_plugin_api=\"{api}\""));
        if let Some(linker) = &self.linker {
            let mut option = OsString::from("linker=");
            option.push(linker);
            rustc.arg("-C").arg(option);
        }
        Ok(rustc.arg("-o").arg(file).arg("src/qemu.rs").status()?.success())
    }
}
