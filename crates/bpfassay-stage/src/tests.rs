// SPDX-License-Identifier: MIT OR Apache-2.0
use std::{fs, path::Path};

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
        |path: &str| -> Table { toml::from_str(&fs::read_to_string(target.path().join(path)).unwrap()).unwrap() };
    let root = read("Cargo.toml");
    assert_eq!(root["workspace"]["members"].to_string(), r#"["crates/agent", "crates/common"]"#);
    assert!(root["workspace"].get("default-members").is_none());
    let shared: Vec<_> = root["workspace"]["dependencies"].as_table().unwrap().keys().collect();
    assert_eq!(shared, ["common", "libc"]);
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
        // A dependency of the host's command alone.
        ("Cargo.toml", "[workspace.dependencies]", "[workspace.dependencies]\nhttp = \"1\""),
    ] {
        change(path, from, to);
        assert_eq!(stage(&directory).digest(), before, "{path}: {to}");
    }
    let mut seen = vec![before];
    for (path, from, to) in [
        ("crates/agent/src/bpf/probe.bpf.c", "", "int y;"),
        ("crates/common/src/lib.rs", "", "// a change"),
        ("Cargo.lock", "checksum = \"aa\"", "checksum = \"ab\""),
        ("Cargo.toml", "libc = \"0.2\"", "libc = \"0.2.1\""),
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
    assert!(matches!(missing, Err(StageError::NoPackage { .. })), "{missing:?}");
}

#[test]
fn workspaces_that_are_none_are_refused() {
    let directory = workspace();
    let read = || Stage::read(directory.path(), &["agent"]);
    assert!(matches!(Stage::read(directory.path(), &["gone"]), Err(StageError::NoPackage { .. })));
    fs::write(directory.path().join("crates/agent/Cargo.toml"), "[package").unwrap();
    assert!(matches!(read(), Err(StageError::Toml { .. })));
    let directory = workspace();
    let read = || Stage::read(directory.path(), &["agent"]);
    fs::write(directory.path().join("Cargo.lock"), "no = lock = file").unwrap();
    assert!(matches!(read(), Err(StageError::Toml { .. })));
    fs::remove_file(directory.path().join("Cargo.lock")).unwrap();
    assert!(matches!(read(), Err(StageError::Io { .. })));
}

#[test]
fn this_workspace_can_be_staged() {
    let stage = Stage::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &PACKAGES).unwrap();
    let target = tempfile::tempdir().unwrap();
    stage.write(target.path()).unwrap();
    let files = listing(target.path());
    for file in ["crates/bpfassay-guest/src/main.rs", "crates/bpfassay-protocol/src/lib.rs"] {
        assert!(files.iter().any(|path| path == file), "{file}");
    }
    assert!(
        !files
            .iter()
            .any(|path| path.starts_with("crates/bpfassay-testbed/") || path.starts_with("crates/bpfassay-packages/"))
    );
}

#[test]
fn bytes_give_the_stage_that_they_were_made_of() {
    let directory = workspace();
    let read = stage(&directory);
    let bytes = read.to_bytes();
    let again = Stage::from_bytes(&bytes, &["agent"]).unwrap();
    assert_eq!((again.digest(), &again.files, &again.lock), (read.digest(), &read.files, &read.lock));
    assert_eq!(again.to_bytes(), bytes);
    // A part of the bytes equals that part of the workspace, too.
    let part = Stage::from_bytes(&bytes, &["common"]).unwrap();
    assert_eq!(part.digest(), Stage::read(directory.path(), &["common"]).unwrap().digest());
}

#[test]
fn bytes_that_are_no_stage_are_refused() {
    let whole = stage(&workspace());
    let bytes = whole.to_bytes();
    for length in 0..bytes.len() {
        // Bytes that end with the end of a file are another stage.
        let is_other = |part: Stage| part.digest() != whole.digest();
        assert!(Stage::from_bytes(&bytes[..length], &["agent"]).map_or(true, is_other), "the first {length} bytes");
    }
    let file = |path: &str, content: &str| {
        let length = |text: &str| (text.len() as u32).to_le_bytes();
        [&length(path)[..], &length(content), path.as_bytes(), content.as_bytes()].concat()
    };
    for path in ["/etc/passwd", "../x", "crates/../../x", "", "crates//x", "."] {
        let hostile = [file("Cargo.lock", LOCK), file(path, "x")].concat();
        let error = Stage::from_bytes(&hostile, &[]).unwrap_err().to_string();
        assert!(error.contains("a path that leaves its directory"), "{path}: {error}");
    }
    let twice = [file("Cargo.lock", LOCK), file("a", "x"), file("a", "y")].concat();
    assert!(Stage::from_bytes(&twice, &[]).unwrap_err().to_string().contains("a second file"));
}

#[test]
fn a_packaged_workspace_gives_the_same_stage() {
    let (directory, packaged) = (workspace(), tempfile::tempdir().unwrap());
    for path in listing(directory.path()).iter().filter(|path| !path.starts_with("crates/command")) {
        let name = path.replace("Cargo.toml", "manifest.toml").replace("Cargo.lock", "lock.toml");
        let to = packaged.path().join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(directory.path().join(path), to).unwrap();
    }
    assert_eq!(Stage::read_packaged(packaged.path(), &["agent"]).unwrap(), stage(&directory));
}
