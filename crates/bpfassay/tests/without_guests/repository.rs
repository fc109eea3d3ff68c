// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the repository as a whole: licences, packages, the paths in pages and scripts, and the
//! walks of the pages `ADDING`. Nothing is tested if the sources are not a git checkout (in Nix's
//! sandbox).

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and reports what it skips"
)]

mod dependencies;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the paths of all existing tracked files, relative to the root, without symbolic links;
/// `None` outside of a checkout.
fn tracked() -> Option<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().ok();
    let Some(output) = output.filter(|output| output.status.success()) else {
        println!("SKIPPED: these sources are no git checkout");
        return None;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let files: Vec<String> = text.split_terminator('\0').filter(|path| is_file(path)).map(str::to_owned).collect();
    assert!(files.len() > 500, "only {} files are tracked", files.len());
    Some(files)
}

fn is_file(path: &str) -> bool {
    fs::symlink_metadata(root().join(path)).is_ok_and(|facts| facts.is_file())
}

fn extension(path: &str) -> Option<&str> {
    Path::new(path).extension()?.to_str()
}

/// Returns the text of a tracked file; `None` if it is not UTF-8.
fn text(path: &str) -> Option<String> {
    String::from_utf8(fs::read(root().join(path)).unwrap()).ok()
}

/// Returns the first lines of a source file, without the one that names the interpreter; `None` for
/// other files.
fn head(path: &str) -> Option<Vec<String>> {
    let text = text(path)?;
    let is_source = match extension(path) {
        Some("rs" | "c" | "h" | "nix" | "sh" | "pl") => true,
        _ => text.starts_with("#!"),
    };
    is_source.then(|| text.lines().skip_while(|line| line.starts_with("#!/")).take(1).map(str::to_owned).collect())
}

#[test]
fn sources_name_their_licence() {
    let Some(files) = tracked() else { return };
    let mut missing = Vec::new();
    let mut count = 0;
    for path in files.iter().filter(|path| !path.starts_with("fuzz/corpus/")) {
        let Some(head) = head(path) else { continue };
        count += 1;
        if !head
            .first()
            .is_some_and(|line| line.contains("SPDX-License-Identifier: ") && line.contains("MIT OR Apache-2.0"))
        {
            missing.push(path);
        }
    }
    assert!(missing.is_empty(), "these files do not begin with their SPDX licence identifier: {missing:#?}");
    assert!(count > 500, "only {count} sources were found");
}

/// Programs for the kernel must have a licence that permits the GPL, because their helpers require
/// it.
#[test]
fn programs_for_the_kernel_permit_the_gpl() {
    let Some(files) = tracked() else { return };
    let programs = |path: &&String| path.ends_with(".bpf.c") || path.starts_with("crates/bpfassay-tracer-ebpf/src/");
    for path in files.iter().filter(programs) {
        let head = head(path).unwrap();
        assert!(head.iter().any(|line| line.contains("GPL-2.0-only OR ")), "{path}: {head:?}");
    }
}

/// Returns what `cargo metadata` reports of the packages of the workspace.
fn packages() -> Vec<serde_json::Value> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1", "--offline"]).current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Checks what `cargo publish` requires, and what a registry shows of a crate.
#[test]
fn packages_are_described() {
    if tracked().is_none() {
        return;
    }
    let packages = packages();
    let published: BTreeMap<&str, &serde_json::Value> = packages
        .iter()
        .filter(|package| package["publish"].as_array().is_none_or(|registries| !registries.is_empty()))
        .map(|package| (package["name"].as_str().unwrap(), package))
        .collect();
    assert!(published.len() > 15, "{:?}", published.keys());
    for (name, package) in &published {
        for key in ["description", "license", "repository", "readme", "rust_version"] {
            assert!(package[key].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {key}");
        }
        let description = package["description"].as_str().unwrap();
        assert!(!description.contains('\n') && description.len() < 140, "{name}: {description}");
        for key in ["keywords", "categories"] {
            assert!((1..=5).contains(&package[key].as_array().unwrap().len()), "{name}: {key}");
        }
        // A package finds its dependencies by version, not by path.
        for dependency in package["dependencies"].as_array().unwrap() {
            let wanted = dependency["name"].as_str().unwrap();
            if !dependency["path"].is_null() && dependency["kind"] != "dev" {
                assert_ne!(dependency["req"], "*", "{name}: the dependency on {wanted} has a path and no version");
                assert!(published.contains_key(wanted), "{name} depends on {wanted}, which is not published");
            }
        }
    }
}

/// The package of a crate has everything that the crate includes at compile time.
#[test]
fn packages_contain_what_they_include() {
    let Some(files) = tracked() else { return };
    let mut found = 0;
    for path in files.iter().filter(|path| path.starts_with("crates/") && extension(path) == Some("rs")) {
        let mut parts = path.split('/');
        let home: PathBuf = parts.by_ref().take(2).collect();
        let is_test = |part: &str| part == "tests" || part == "benches" || part.ends_with("tests.rs");
        if home.ends_with("bpfassay-fuzz") || home.ends_with("bpfassay-chaos") || parts.any(is_test) {
            continue;
        }
        let text = product(&text(path).unwrap());
        for macro_name in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
            for (_, rest) in text.split(macro_name).skip(1).map(|rest| ((), rest)) {
                let named = rest.split('"').next().unwrap();
                let resolved = normalized(&Path::new(path).parent().unwrap().join(named));
                assert!(resolved.starts_with(&home), "{path} includes {named}, which is not in its package");
                found += 1;
            }
        }
    }
    assert!(found > 3, "only {found} included files were found");
}

fn normalized(path: &Path) -> PathBuf {
    let mut result = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => assert!(result.pop(), "{} leaves the repository", path.display()),
            other => result.push(other),
        }
    }
    result
}

/// Removes the module of tests and the comment lines from a source.
fn product(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Pages, scripts and Nix files name only existing files of the repository.
#[test]
fn paths_that_are_named_exist() {
    let Some(files) = tracked() else { return };
    let tops = ["crates/", "ci/", "nix/", "docs/", "kernels/", "vm-tests/", "results/", "fuzz/", "ior-configs/"];
    let speaks = |path: &&String| {
        let is_page = extension(path) == Some("md") || path.starts_with(".ci/") || path.starts_with("ci/");
        (is_page || extension(path) == Some("nix") || *path == "Cargo.toml")
            && !path.contains("/tests/")
            && *path != "CHANGELOG.md"
    };
    let mut wrong = Vec::new();
    let mut count = 0;
    for path in files.iter().filter(speaks) {
        let Some(text) = text(path) else { continue };
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with("```")) {
            for named in line.split(|c: char| !(c.is_ascii_alphanumeric() || "/._-*{}$<>".contains(c))) {
                let named = named.trim_start_matches("./").trim_start_matches("../").trim_end_matches(['.', '/']);
                // Skip names with a placeholder, and names of what a build makes.
                let is_pattern = named.contains(['*', '{', '}', '$', '<', '>']) || named.split('/').any(is_placeholder);
                if !tops.iter().any(|top| named.starts_with(top)) || is_pattern {
                    continue;
                }
                count += 1;
                if !root().join(named).exists() {
                    wrong.push(format!("{path}:{}: {named}", number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "these paths do not exist: {wrong:#?}");
    assert!(count > 100, "only {count} paths were found");
}

/// Whether this part of a path stands for any name: `NAME`, `NAME.rs`, `map_NAME.h`.
fn is_placeholder(part: &str) -> bool {
    part.split(['.', '_', '-']).any(|word| {
        word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()) && word != "README" && word != "FORMAT"
    })
}

#[test]
fn nothing_names_a_place_outside() {
    let Some(files) = tracked() else { return };
    let outside = [["..", "shared"].join("/"), ["/work", "shared"].join("/"), ["/work", "wt"].join("/")];
    for path in &files {
        let Some(text) = text(path) else { continue };
        for place in &outside {
            assert!(!text.contains(place.as_str()), "{path} names {place}");
        }
    }
}

/// A walk of the pages `ADDING`: an example of its kind, by the names that only its own files have,
/// and all files that name it.
#[derive(Debug)]
struct Walk {
    kind: String,
    names: Vec<String>,
    files: BTreeSet<String>,
}

/// The pages that walk through adding a thing of each kind.
const ADDING: [&str; 3] =
    ["docs/how-to/add-a-measurement.md", "docs/how-to/add-a-finding.md", "docs/how-to/add-a-part.md"];

/// Returns the text of the pages [`ADDING`].
fn adding() -> String {
    ADDING.map(|page| text(page).unwrap()).concat()
}

/// Returns the walks: blocks of code in the language `walk`.
fn walks() -> Vec<Walk> {
    let page = adding();
    let blocks = page.split("```walk\n").skip(1).map(|block| block.split("```").next().unwrap());
    blocks
        .map(|block| {
            let mut lines = block.lines();
            let (kind, names) = lines.next().unwrap().split_once(": ").unwrap();
            Walk {
                kind: kind.to_owned(),
                names: names.split(", ").map(str::to_owned).collect(),
                files: lines.map(|line| line.split("  ").next().unwrap().to_owned()).collect(),
            }
        })
        .collect()
}

/// Whether `text` contains `name` as a whole word.
fn has_word(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part))
}

/// Exactly the files of a walk name the example of its kind: this test finds a further file that
/// must name it.
#[test]
fn a_walk_lists_every_file() {
    let Some(files) = tracked() else { return };
    let most = BTreeMap::from([
        ("a QEMU device", 2),
        ("a probe", 2),
        ("a workload kind", 2),
        ("a report format", 2),
        ("a finding", 2),
        ("a provider", 2),
    ]);
    let is_product = |path: &&String| {
        path.starts_with("crates/")
            && path.contains("/src/")
            && !path.contains("/tests/")
            && !path.ends_with("tests.rs")
            && !path.contains("/documented")
    };
    let sources: Vec<(&String, String)> = files
        .iter()
        .filter(is_product)
        .filter(|path| !path.starts_with("crates/bpfassay-fuzz") && !path.starts_with("crates/bpfassay-chaos"))
        .filter_map(|path| Some((path, product(&text(path)?))))
        .collect();
    let walks = walks();
    let kinds: BTreeSet<&str> = walks.iter().map(|walk| walk.kind.as_str()).collect();
    assert_eq!(kinds, most.keys().copied().collect(), "docs/how-to/add-a-*.md have a walk for each kind");
    for walk in &walks {
        let found: BTreeSet<String> = sources
            .iter()
            .filter(|(path, text)| {
                walk.names.iter().any(|name| path.ends_with(&format!("/{name}")) || has_word(text, name))
            })
            .map(|(path, _)| (*path).clone())
            .collect();
        assert_eq!(
            found, walk.files,
            "{}: the files that name {:?}, and those that docs/how-to/add-a-*.md list",
            walk.kind, walk.names
        );
        assert!(found.len() <= most[walk.kind.as_str()], "{}: {} files", walk.kind, found.len());
    }
}

/// A change that a block of the pages `ADDING` makes to a file.
#[derive(Debug)]
enum Edit {
    Create(String),
    /// Replaces these lines, which occur once in the file, by others.
    Replace(String, String),
}

/// Returns the blocks of code whose first line names a file: `rust FILE` is a new file, `diff FILE`
/// a change of one.
fn edits(page: &str) -> Vec<(String, Edit)> {
    let mut found = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (head, body) = block.split_once('\n').unwrap();
        let Some((language, path)) = head.split_once(' ') else { continue };
        let lines = |signs: [char; 2]| -> String {
            let wanted = body.lines().filter(|line| line.starts_with(signs));
            wanted.map(|line| format!("{}\n", &line[1..])).collect()
        };
        let edit = match language {
            "rust" => Edit::Create(format!("{body}\n")),
            "diff" => Edit::Replace(lines([' ', '-']), lines([' ', '+'])),
            other => panic!("a block of {other} for {path}"),
        };
        found.push((path.to_owned(), edit));
    }
    found
}

/// Copies `from` with all its contents and times, so that cargo compiles only what changes.
fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if fs::metadata(&source).unwrap().is_dir() {
            copy_tree(&source, &target);
        } else {
            let modified = fs::metadata(&source).unwrap().modified().unwrap();
            fs::copy(&source, &target).unwrap();
            fs::File::options().write(true).open(&target).unwrap().set_modified(modified).unwrap();
        }
    }
}

/// Follows the walks with code in a copy of the sources, in which no other file changes, and
/// compiles it.
#[test]
fn walks_compile() {
    let Some(files) = tracked() else { return };
    let page = adding();
    let edits = edits(&page);
    let changed: BTreeSet<&str> = edits.iter().map(|(path, _)| path.split('/').nth(1).unwrap()).collect();
    assert!(changed.len() >= 3, "three walks: {changed:?}");

    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walks");
    if copy.exists() {
        fs::remove_dir_all(&copy).unwrap();
    }
    fs::create_dir_all(copy.join("crates")).unwrap();
    for name in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(root().join(name), copy.join(name)).unwrap();
    }
    let crates: BTreeSet<&str> =
        files.iter().filter_map(|path| path.strip_prefix("crates/")?.split('/').next()).collect();
    for name in crates {
        let (from, to) = (root().join("crates").join(name), copy.join("crates").join(name));
        if changed.contains(name) { copy_tree(&from, &to) } else { std::os::unix::fs::symlink(&from, &to).unwrap() }
    }
    for (path, edit) in &edits {
        let file = copy.join(path);
        match edit {
            Edit::Create(text) => {
                assert!(!file.exists(), "{path} exists");
                fs::write(&file, text).unwrap();
            }
            Edit::Replace(old, new) => {
                let text = fs::read_to_string(&file).unwrap();
                // A line can be the beginning of a line in the file.
                let (old, new) = (old.trim_end(), new.trim_end());
                assert_eq!(text.matches(old).count(), 1, "{path} has these lines once:\n{old}");
                fs::write(&file, text.replace(old, new)).unwrap();
            }
        }
    }
    // The copy needs another target directory: cargo names a package by its path within a
    // workspace, and would confuse the copy's packages with the workspace's.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("walks-target");
    let mut check = Command::new(env!("CARGO"));
    check.args(["check", "--offline", "--locked", "--lib"]).env("CARGO_TARGET_DIR", target).current_dir(&copy);
    let output = check.args(changed.iter().flat_map(|name| ["--package", name])).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !printed.contains("warning: "), "{check:?}: {printed}");
}

#[test]
fn each_row_of_the_threat_model_names_a_test() {
    let Some(files) = tracked() else { return };
    let sources: String =
        files.iter().filter(|path| extension(path) == Some("rs")).filter_map(|path| text(path)).collect();
    let page = text("SECURITY.md").unwrap();
    let rows =
        page.lines().skip_while(|line| !line.starts_with("| who |")).skip(2).take_while(|line| line.starts_with('|'));
    let mut count = 0;
    for row in rows {
        count += 1;
        let test = row.split('`').nth_back(1).unwrap_or_else(|| panic!("no test in: {row}"));
        assert!(sources.contains(&format!("fn {test}()")), "SECURITY.md names the test {test}, which does not exist");
    }
    assert!(count >= 10, "only {count} rows were found");
}
