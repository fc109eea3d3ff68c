// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the plugin for the machine that QEMU is to run on, once for each version of QEMU's
//! plugin interface. For another architecture than the build machine's, cargo's linker for the
//! target is used. If the plugin cannot be compiled, its file is empty, and the library reports
//! that when it is requested a plugin.

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

/// The compiler and its settings.
struct Compiler {
    rustc: OsString,
    target: String,
    /// `None` for the build machine.
    linker: Option<OsString>,
}

/// Returns the compiler for QEMU's machine; `None` if cargo has no linker for it.
fn compiler() -> Result<Option<Compiler>, Box<dyn Error>> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let (host, target) = (env::var("HOST")?, env::var("TARGET")?);
    let arch = |triple: &str| triple.split('-').next().map(str::to_owned);
    // The plugin needs the C library of QEMU, not that of a static program.
    if arch(&host) == arch(&target) {
        return Ok(Some(Compiler { rustc, target: host, linker: None }));
    }
    let has_qemu = env::var("CARGO_CFG_TARGET_ENV")? == "gnu";
    let linker = env::var_os("RUSTC_LINKER").filter(|_| has_qemu);
    Ok(linker.map(|linker| Compiler { rustc, target, linker: Some(linker) }))
}

impl Compiler {
    /// Compiles the plugin for version `api` of the interface as `file`. Returns the success.
    fn makes(&self, api: &str, file: &Path) -> io::Result<bool> {
        let mut rustc = Command::new(&self.rustc);
        rustc.args(["--crate-type", "cdylib", "--crate-name", "bpfassay_plugin", "--edition", "2024"]);
        rustc.args(["--target", &self.target, "-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols"]);
        // A wrapper of QEMU, such as a shell, loads the plugin before the C library, too, but has
        // no functions of QEMU. Partial RELRO makes the linker look functions up when called.
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
