// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the eBPF programs and embeds them.
//!
//! - Every `src/bpf/*.bpf.c` is one probe. It is compiled once per map layout (`src/bpf/map_*.h`)
//!   into an object named `PROBE+MAP`. `$OUT_DIR/objects.rs` lists these objects.
//! - Every `src/bpf/sets/*.bpf.c` is one program set, listed in `$OUT_DIR/sets.rs`.
//! - Every `src/bpf/bundled/*.bpf.c` is an object that `bpfassay-tracer object` loads unchanged.
//!   `$OUT_DIR/bundled_objects.rs` lists these objects.
//! - The programs in Rust have been compiled before, if at all. `$OUT_DIR/aya_objects.rs` lists
//!   them.
//!
//! A new probe, map layout or set needs no change here.

#[path = "src/elf_strip.rs"]
mod elf_strip;

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use bpfassay_protocol::Arch;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SOURCES: &str = "src/bpf";
const BUNDLED: &str = "src/bpf/bundled";
const SETS: &str = "src/bpf/sets";

/// Variable with a directory that contains the objects of `bpfassay-tracer-ebpf` (`MAP.o`) for each
/// architecture.
const RUST_OBJECTS: &str = "BPFASSAY_EBPF_OBJECTS";

fn main() -> Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={SOURCES}");
    println!("cargo:rerun-if-env-changed=BPFASSAY_CLANG");
    println!("cargo:rerun-if-env-changed=PATH");
    println!("cargo:rerun-if-env-changed={RUST_OBJECTS}");
    println!("cargo:rerun-if-changed=src/elf_strip.rs");
    link_static_dependencies()?;
    // The address is the one that the builder of the guest's programs sets (`payload.rs` in
    // bpfassay-testbed).
    let address = concat!("BPFASSAY_LINK_AT_", env!("CARGO_PKG_NAME"));
    println!("cargo:rerun-if-env-changed={address}");
    if let Ok(address) = env::var(address) {
        println!("cargo:rustc-link-arg-bins=-Wl,-Ttext-segment={address}");
    }
    // No uprobe is attached to this program, unlike to the workload. Symbols are therefore not
    // needed without debug information.
    if variable("DEBUG")? == "false" {
        println!("cargo:rustc-link-arg-bins=-Wl,--strip-all");
    }

    let out = PathBuf::from(variable("OUT_DIR")?);
    list_rust_objects(&out)?;
    let probes = names(SOURCES, "", ".bpf.c")?;
    let maps = names(SOURCES, "map_", ".h")?;
    let compiler = Compiler::find()?;
    let mut list = String::from("&[\n");
    let mut units = Vec::new();
    for probe in &probes {
        for map in &maps {
            let object = out.join(format!("{probe}+{map}.o"));
            let source = Path::new(SOURCES).join(format!("{probe}.bpf.c"));
            units.push(Unit { source, map, object: object.clone() });
            writeln!(
                list,
                "    ObjectFile {{ probe: {probe:?}, map: {map:?}, elf: &Aligned(*include_bytes!({object:?})).0 }},"
            )?;
        }
    }
    list.push(']');
    compiler.compile_all(&units)?;
    fs::write(out.join("objects.rs"), list).map_err(|error| format!("cannot write the list of objects: {error}"))?;
    list_named(&out, &compiler, SETS, "sets")?;
    list_named(&out, &compiler, BUNDLED, "bundled_objects")
}

/// Compiles the sources in `directory`, and lists their objects by name in the file `list`. They
/// have their own maps and no layouts.
fn list_named(out: &Path, compiler: &Compiler, directory: &str, list: &str) -> Result<()> {
    let (mut objects, mut units) = (Vec::new(), Vec::new());
    for name in names(directory, "", ".bpf.c")? {
        let object = out.join(format!("{list} {name}.o"));
        let source = Path::new(directory).join(format!("{name}.bpf.c"));
        units.push(Unit { source, map: "none", object: object.clone() });
        objects.push((name, object));
    }
    compiler.compile_all(&units)?;
    write_named(out, list, &objects)
}

/// Writes a list of objects by name.
fn write_named(out: &Path, list: &str, objects: &[(String, PathBuf)]) -> Result<()> {
    let mut text = String::from("&[\n");
    for (name, object) in objects {
        writeln!(text, "    NamedObject {{ name: {name:?}, elf: &Aligned(*include_bytes!({object:?})).0 }},")?;
    }
    text.push(']');
    let path = out.join(format!("{list}.rs"));
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()).into())
}

/// Lists the objects in Rust in `aya_objects.rs`. They need a Rust toolchain for eBPF, which the
/// build of the guests' programs has, but hosts do not. The list is empty if the variable is not
/// set, and the tracer reports that.
fn list_rust_objects(out: &Path) -> Result<()> {
    let mut paths = Vec::new();
    if let Some(directory) = env::var_os(RUST_OBJECTS) {
        let directory = PathBuf::from(directory).join(variable("CARGO_CFG_TARGET_ARCH")?);
        println!("cargo:rerun-if-changed={}", directory.display());
        let entries = fs::read_dir(&directory)
            .map_err(|error| format!("cannot read {}, which {RUST_OBJECTS} promises: {error}", directory.display()))?;
        for entry in entries {
            paths.push(entry?.path());
        }
        if paths.is_empty() {
            return Err(format!("{} holds no eBPF objects, though {RUST_OBJECTS} names it", directory.display()).into());
        }
    }
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        let map = path.file_stem().and_then(|name| name.to_str()).ok_or_else(|| format!("{path:?} is not UTF-8"))?;
        objects.push((map.to_owned(), path));
    }
    write_named(out, "aya_objects", &objects)
}

/// Links zstd, which libelf (from elfutils 0.189 on) needs in a static program. No crate links it,
/// because libbpf-sys only names libelf and zlib. It must follow libelf on the linker's command
/// line, so it is an argument and not a library.
fn link_static_dependencies() -> Result<()> {
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") && variable("CARGO_CFG_TARGET_ENV")? == "gnu" {
        println!("cargo:rustc-link-arg=-l:libzstd.a");
    }
    Ok(())
}

/// Returns the part between `prefix` and `suffix` of the names of files in `directory`, sorted.
fn names(directory: &str, prefix: &str, suffix: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().into_string().map_err(|name| format!("{name:?} is not UTF-8"))?;
        if let Some(middle) = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix)) {
            names.push(middle.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|error| format!("cargo did not set {name}: {error}").into())
}

/// A source file, the layout of its maps, and the object that is compiled from both.
struct Unit<'a> {
    source: PathBuf,
    map: &'a str,
    object: PathBuf,
}

struct Compiler {
    clang: PathBuf,
    /// Name of the target's architecture in libbpf's headers.
    arch: &'static str,
    libbpf_headers: String,
}

impl Compiler {
    fn find() -> Result<Self> {
        let arch = variable("CARGO_CFG_TARGET_ARCH")?.parse::<Arch>()?.facts().bpf_target;
        // libbpf-sys sets this variable, and installs the headers of the libbpf that it builds.
        let libbpf_headers = variable("DEP_BPF_INCLUDE")?;
        Ok(Self { clang: find_clang()?, arch, libbpf_headers })
    }

    /// Compiles `units` on all CPUs, because the rest of the build waits for this script.
    fn compile_all(&self, units: &[Unit<'_>]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let work = || -> std::result::Result<(), String> {
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.compile(unit).map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let ended = workers.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ended.collect::<std::result::Result<(), String>>()
        })?;
        Ok(())
    }

    fn compile(&self, unit: &Unit<'_>) -> Result<()> {
        let Unit { source, map, object } = unit;
        let mut command = Command::new(&self.clang);
        command
            .args([
                "-target",
                "bpf",
                "-mcpu=v3",
                "-O2",
                "-g",
                "-std=gnu17",
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
            ])
            // No header of the build machine is included, so that the same source gives the same
            // object everywhere.
            .args(["-nostdinc", "-fdebug-compilation-dir=."])
            .arg(format!("-D__TARGET_ARCH_{}", self.arch))
            .arg(format!("-DMAP_LAYOUT=\"map_{map}.h\""))
            .arg("-isystem")
            .arg(&self.libbpf_headers)
            .arg(format!("-ffile-prefix-map={}=libbpf", self.libbpf_headers))
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(object);
        let status = command
            .status()
            .map_err(|error| format!("cannot start {} to compile the eBPF programs: {error}", self.clang.display()))?;
        if !status.success() {
            return Err(format!("{} failed on {} ({status})", self.clang.display(), source.display()).into());
        }
        strip(object)
    }
}

/// Removes from the object the sections that only debuggers read.
fn strip(object: &Path) -> Result<()> {
    let elf = fs::read(object).map_err(|error| format!("cannot read {}: {error}", object.display()))?;
    let stripped = elf_strip::without_debug_sections(&elf)
        .ok_or_else(|| format!("{} is not an eBPF object of the expected form", object.display()))?;
    fs::write(object, stripped).map_err(|error| format!("cannot write {}: {error}", object.display()).into())
}

/// Returns `BPFASSAY_CLANG`, or `clang`, or the newest `clang-NN` in `PATH`.
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
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let version = name.to_str().and_then(|name| name.strip_prefix("clang-")).and_then(|v| v.parse().ok());
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
