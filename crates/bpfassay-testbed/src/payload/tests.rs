// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

/// A workspace with the shape of this one.
fn workspace() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put(
        "Cargo.toml",
        r#"
            [workspace]
            members = ["crates/*"]
            default-members = ["crates/command"]
            [workspace.dependencies]
            common = { path = "crates/common" }
            command = { path = "crates/command" }
            libc = "0.2"
            [workspace.lints.rust]
            missing_docs = "warn"
            [profile.payload]
            inherits = "release"
            [profile.dev.package.sha2]
            opt-level = 3
        "#,
    );
    put(
        "crates/agent/Cargo.toml",
        r#"
            [package]
            name = "agent"
            [lints]
            workspace = true
            [dependencies]
            libc.workspace = true
            [target.'cfg(unix)'.dependencies]
            common.workspace = true
            [dev-dependencies]
            command.workspace = true
            [[test]]
            name = "boot"
        "#,
    );
    put("crates/agent/src/main.rs", "fn main() {}");
    put("crates/agent/src/bpf/probe.bpf.c", "int x;");
    put("crates/agent/tests/boot.rs", "");
    put("crates/common/Cargo.toml", "[package]\nname = \"common\"\n");
    put("crates/common/build.rs", "fn main() {}");
    put("crates/common/src/lib.rs", "");
    put("crates/command/Cargo.toml", "[package]\nname = \"command\"\n");
    put("crates/command/src/main.rs", "");
    put("Cargo.lock", LOCK);
    directory
}

const LOCK: &str = r#"
version = 4

[[package]]
name = "agent"
version = "0.1.0"
dependencies = ["common", "libc 0.2.1"]

[[package]]
name = "command"
version = "0.1.0"
dependencies = ["serde"]

[[package]]
name = "common"
version = "0.1.0"

[[package]]
name = "libc"
version = "0.2.1"
checksum = "aa"

[[package]]
name = "libc"
version = "0.1.9"
checksum = "bb"

[[package]]
name = "serde"
version = "1.0.0"
checksum = "cc"
"#;

fn stage(directory: &tempfile::TempDir) -> Stage {
    Stage::read(directory.path(), &["agent"]).unwrap()
}

/// All files below a directory, sorted, as relative paths.
fn listing(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pending.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_stage_holds_what_the_programs_need_and_nothing_else() {
    let directory = workspace();
    let target = tempfile::tempdir().unwrap();
    stage(&directory).write(target.path()).unwrap();
    assert_eq!(
        listing(target.path()),
        [
            "Cargo.lock",
            "Cargo.toml",
            "crates/agent/Cargo.toml",
            "crates/agent/src/bpf/probe.bpf.c",
            "crates/agent/src/main.rs",
            "crates/common/Cargo.toml",
            "crates/common/build.rs",
            "crates/common/src/lib.rs",
        ]
    );
    let read =
        |path: &str| -> toml::Table { toml::from_str(&fs::read_to_string(target.path().join(path)).unwrap()).unwrap() };
    let root = read("Cargo.toml");
    assert_eq!(root["workspace"]["members"].to_string(), r#"["crates/agent", "crates/common"]"#);
    assert!(root["workspace"].get("default-members").is_none());
    assert!(root["workspace"]["dependencies"].get("command").is_none());
    assert_eq!(root["profile"].as_table().unwrap().keys().collect::<Vec<_>>(), ["payload"]);
    let agent = read("crates/agent/Cargo.toml");
    assert!(agent.get("dev-dependencies").is_none() && agent.get("test").is_none() && agent.get("lints").is_none());
}

#[test]
fn the_digest_follows_what_goes_into_the_programs() {
    let directory = workspace();
    let before = stage(&directory).digest();
    let change = |path: &str, from: &str, to: &str| {
        let path = directory.path().join(path);
        let text = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, text.replace(from, to) + if from.is_empty() { to } else { "" }).unwrap();
    };
    for (path, from, to) in [
        ("crates/agent/tests/boot.rs", "", "// a test"),
        ("crates/command/src/main.rs", "", "// the host's command"),
        ("README.md", "", "text"),
        ("Cargo.lock", "checksum = \"cc\"", "checksum = \"cd\""),
        ("Cargo.lock", "checksum = \"bb\"", "checksum = \"bc\""),
        ("Cargo.toml", "opt-level = 3", "opt-level = 2"),
    ] {
        change(path, from, to);
        assert_eq!(stage(&directory).digest(), before, "{path}: {to}");
    }
    let mut seen = vec![before];
    for (path, from, to) in [
        ("crates/agent/src/bpf/probe.bpf.c", "", "int y;"),
        ("crates/common/src/lib.rs", "", "// a change"),
        ("Cargo.lock", "checksum = \"aa\"", "checksum = \"ab\""),
        ("Cargo.toml", "inherits = \"release\"", "inherits = \"release\"\nlto = true"),
    ] {
        change(path, from, to);
        let digest = stage(&directory).digest();
        assert!(!seen.contains(&digest), "{path}: {to}");
        seen.push(digest);
    }
}

#[test]
fn two_checkouts_have_the_same_digest() {
    assert_eq!(stage(&workspace()).digest(), stage(&workspace()).digest());
}

#[test]
fn a_part_of_a_stage_is_what_was_staged() {
    let directory = workspace();
    let whole = stage(&directory);
    let read = Stage::read(directory.path(), &["common"]).unwrap();
    assert_ne!(whole.digest(), read.digest());
    fs::write(directory.path().join("crates/common/src/lib.rs"), "// changed since").unwrap();
    fs::remove_file(directory.path().join("Cargo.lock")).unwrap();
    assert_eq!(whole.part(&["common"]).unwrap(), read);
    assert_eq!(whole.part(&["agent"]).unwrap(), whole);
    let missing = whole.part(&["command"]);
    assert!(matches!(missing, Err(Error::Stage(StageError::NoPackage { .. }))), "{missing:?}");
}

#[test]
fn workspaces_that_are_none_say_so() {
    let directory = workspace();
    let read = || Stage::read(directory.path(), &["agent"]);
    assert!(matches!(Stage::read(directory.path(), &["gone"]), Err(Error::Stage(StageError::NoPackage { .. }))));
    fs::write(directory.path().join("crates/agent/Cargo.toml"), "[package").unwrap();
    assert!(matches!(read(), Err(Error::Stage(StageError::Toml { .. }))));
    let directory = workspace();
    let read = || Stage::read(directory.path(), &["agent"]);
    fs::write(directory.path().join("Cargo.lock"), "no = lock = file").unwrap();
    assert!(matches!(read(), Err(Error::Stage(StageError::Toml { .. }))));
    fs::remove_file(directory.path().join("Cargo.lock")).unwrap();
    assert!(matches!(read(), Err(Error::Io { .. })));
}

#[test]
fn this_workspace_can_be_staged() {
    let stage = Stage::read(&super::workspace().unwrap(), &[AGENT.package, TRACER.package, IOR.package]).unwrap();
    let target = tempfile::tempdir().unwrap();
    stage.write(target.path()).unwrap();
    let files = listing(target.path());
    for file in ["crates/bpfassay-guest/src/main.rs", "crates/bpfassay-protocol/src/lib.rs"] {
        assert!(files.iter().any(|path| path == file), "{file}");
    }
    assert!(!files.iter().any(|path| path.starts_with("crates/bpfassay-testbed/")));
}

#[test]
fn a_failed_build_shows_the_end_of_its_output_and_where_the_rest_is() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("logs/build.log");
    let mut command = Command::new("sh");
    command.args(["-c", "for n in $(seq 40); do echo line $n; done; echo 'error: no such crate' >&2; exit 101"]);
    let run = |program, package| Logged { program, package, log: &log };
    let error = run("sh", "dash").to_end(command, "build it").unwrap_err().to_string();
    assert!(error.starts_with("cannot build it (exit status: 101)"), "{error}");
    assert!(error.contains(log.to_str().unwrap()) && error.ends_with("line 40\nerror: no such crate"), "{error}");
    assert!(!error.contains("line 29\n") && error.contains("line 30\n"), "{error}");
    let missing = run("program", "package").to_end(Command::new("/nonexistent/program"), "x").unwrap_err();
    assert!(matches!(missing, Error::Program { package: "package", .. }));
}

fn recorded_build(cache: &Cache, source: Digest, toolchain_key: Digest) {
    let digest = |text: &str| cache.add_bytes(text, text.as_bytes()).unwrap().digest;
    let recorded = Recorded {
        agent: digest("agent"),
        tracer: digest("tracer"),
        ior: digest("ior"),
        toolchain_key,
        toolchain: vec![Component { name: "rustc".into(), version: "1".into(), sha256: source }],
    };
    cache.record(RECORD, &record_key(source, Arch::Riscv64), &recorded).unwrap();
}

#[test]
fn a_build_is_found_again_until_its_source_its_toolchain_or_a_program_changes() {
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path()).unwrap();
    let (source, toolchain, other) = (Digest::of(b"source"), Digest::of(b"toolchain"), Digest::of(b"other"));
    recorded_build(&cache, source, toolchain);
    let find = |source, arch, toolchain| recorded(&cache, source, arch, toolchain).unwrap();
    let Built { payload, toolchain: components } = find(source, Arch::Riscv64, None).unwrap();
    assert_eq!(fs::read(&payload.tracer.path).unwrap(), b"tracer");
    assert_eq!(components.len(), 1);
    assert!(find(source, Arch::Riscv64, Some(toolchain)).is_some());
    assert!(find(source, Arch::Riscv64, Some(other)).is_none());
    assert!(find(other, Arch::Riscv64, None).is_none());
    assert!(find(source, Arch::X86_64, None).is_none());
    fs::remove_file(&payload.tracer.path).unwrap();
    fs::write(&payload.tracer.path, "damaged").unwrap();
    assert!(find(source, Arch::Riscv64, None).is_none());
}
