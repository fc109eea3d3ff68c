// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks dependencies by deny.toml, without `cargo deny`, whose installation takes longer than all
//! tests: licences, bans and sources, and advisories if a database is available. Other settings of
//! deny.toml are refused.

use std::{collections::BTreeSet, env, fs, path::Path, process::Command};

use semver::{Version, VersionReq};
use serde_json::Value;
use toml::Table;

/// The variable that names a checkout of RustSec's database of advisories.
const ADVISORIES: &str = "BPFASSAY_ADVISORIES";

struct Policy {
    licences: BTreeSet<String>,
    ignored: BTreeSet<String>,
}

impl Policy {
    fn new(text: &str) -> Self {
        let mut policy: Table = text.parse().unwrap();
        let mut lists = |section: &str, key: &str| -> BTreeSet<String> {
            let list = policy[section].as_table_mut().unwrap().remove(key).unwrap();
            list.as_array().unwrap().iter().map(|each| each.as_str().unwrap().to_owned()).collect()
        };
        let (licences, ignored) = (lists("licenses", "allow"), lists("advisories", "ignore"));
        let rest = "[graph]\nall-features = true\n[advisories]\n[licenses]\n\
             [bans]\nmultiple-versions = \"allow\"\nwildcards = \"deny\"\nallow-wildcard-paths = true\n\
             [sources]\nunknown-registry = \"deny\"\nunknown-git = \"deny\"\n";
        assert_eq!(policy, rest.parse().unwrap(), "what this test checks, besides the lists");
        Self { licences, ignored }
    }

    /// Whether this licence expression permits the use of a package; `/` is an old form of `OR`.
    fn permits(&self, expression: &str) -> bool {
        let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = text.split_whitespace().collect();
        let mut words = words.as_slice();
        let permitted = self.any(&mut words);
        assert!(words.is_empty(), "the licence expression `{expression}`, from {words:?}");
        permitted
    }

    fn any(&self, words: &mut &[&str]) -> bool {
        let mut permitted = self.all(words);
        while take(words, "OR") {
            permitted |= self.all(words);
        }
        permitted
    }

    fn all(&self, words: &mut &[&str]) -> bool {
        let mut permitted = self.one(words);
        while take(words, "AND") {
            permitted &= self.one(words);
        }
        permitted
    }

    fn one(&self, words: &mut &[&str]) -> bool {
        if take(words, "(") {
            let permitted = self.any(words);
            assert!(take(words, ")"), "a licence expression without its closing parenthesis");
            return permitted;
        }
        let (name, rest) = words.split_first().unwrap();
        *words = rest;
        if !take(words, "WITH") {
            return self.licences.contains(*name);
        }
        let (exception, rest) = words.split_first().unwrap();
        *words = rest;
        self.licences.contains(&format!("{name} WITH {exception}"))
    }

    /// Returns the violations by the packages of this `cargo metadata`, for a workspace of the
    /// repository in `root`.
    fn violations(&self, metadata: &Value, root: &Path) -> Vec<String> {
        let mut wrong = Vec::new();
        for package in metadata["packages"].as_array().unwrap() {
            let name = format!("{} {}", package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
            match package["license"].as_str() {
                Some(expression) if self.permits(expression) => {}
                other => wrong.push(format!("{name}: its licence is {other:?}")),
            }
            let is_known = match package["source"].as_str() {
                Some(source) => source == "registry+https://github.com/rust-lang/crates.io-index",
                None => Path::new(package["manifest_path"].as_str().unwrap()).starts_with(root),
            };
            if !is_known {
                wrong.push(format!("{name}: it comes from {}", package["source"]));
            }
            let is_private = package["publish"].as_array().is_some_and(Vec::is_empty);
            for dependency in package["dependencies"].as_array().unwrap().iter().filter(|each| each["req"] == "*") {
                // If no registry has the package, a path is enough.
                let may = !dependency["path"].is_null() && (is_private || dependency["kind"] == "dev");
                if !may {
                    wrong.push(format!("{name}: any version of {} will do", dependency["name"]));
                }
            }
        }
        wrong
    }

    /// Returns the advisories of `database` on the packages of this `cargo metadata`, and the
    /// number of files read.
    fn advisories(&self, metadata: &Value, database: &Path) -> (Vec<String>, usize) {
        let (mut found, mut count) = (Vec::new(), 0);
        for package in metadata["packages"].as_array().unwrap().iter().filter(|package| !package["source"].is_null()) {
            let name = package["name"].as_str().unwrap();
            let version: Version = package["version"].as_str().unwrap().parse().unwrap();
            let Ok(files) = fs::read_dir(database.join("crates").join(name)) else { continue };
            for path in
                files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md"))
            {
                count += 1;
                let text = fs::read_to_string(&path).unwrap();
                let advisory = text.strip_prefix("```toml\n").and_then(|text| text.split("\n```").next()).unwrap();
                let advisory: Table = advisory.parse().unwrap();
                let id = advisory["advisory"]["id"].as_str().unwrap();
                if concerns(&advisory, &version) && !self.ignored.contains(id) {
                    found.push(format!("{name} {version}: {id}"));
                }
            }
        }
        (found, count)
    }
}

/// Removes the next word if it is `word`, and returns whether it was.
fn take(words: &mut &[&str], word: &str) -> bool {
    let is_next = words.first() == Some(&word);
    if is_next {
        *words = &words[1..];
    }
    is_next
}

/// Whether this advisory concerns a version, on Linux.
fn concerns(advisory: &Table, version: &Version) -> bool {
    let matches = |key: &str| {
        let ranges = advisory["versions"].get(key).and_then(toml::Value::as_array);
        ranges.is_some_and(|ranges| {
            ranges.iter().any(|range| range.as_str().unwrap().parse::<VersionReq>().unwrap().matches(version))
        })
    };
    let systems = advisory.get("affected").and_then(|affected| affected.get("os")?.as_array());
    advisory["advisory"].get("withdrawn").is_none()
        && systems.is_none_or(|systems| systems.iter().any(|system| system.as_str() == Some("linux")))
        && !matches("patched")
        && !matches("unaffected")
}

/// Returns the `cargo metadata` of the workspace, and of the one in spans/.
fn metadata() -> [Value; 2] {
    ["", "spans"].map(|workspace| {
        let mut command = Command::new(env!("CARGO"));
        command.args(["metadata", "--format-version", "1", "--all-features", "--locked"]);
        let output = command.current_dir(super::root().join(workspace)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

fn policy() -> Policy {
    Policy::new(&super::text("deny.toml").unwrap())
}

#[test]
fn dependencies_are_permitted() {
    for metadata in metadata() {
        assert!(metadata["packages"].as_array().unwrap().len() > 150);
        let wrong = policy().violations(&metadata, &super::root());
        assert!(wrong.is_empty(), "deny.toml does not permit: {wrong:#?}");
    }
}

#[test]
fn dependencies_have_no_advisories() {
    let Some(database) = env::var_os(ADVISORIES) else {
        println!("SKIPPED: {ADVISORIES} names no database");
        return;
    };
    let found = metadata().map(|metadata| policy().advisories(&metadata, Path::new(&database)));
    let count: usize = found.iter().map(|(_, count)| count).sum();
    assert!(count > 20, "only {count} advisories were read in {}", Path::new(&database).display());
    let found: BTreeSet<&String> = found.iter().flat_map(|(found, _)| found).collect();
    assert!(found.is_empty(), "advisories that deny.toml does not ignore: {found:#?}");
}

#[test]
fn what_is_not_permitted_is_found() {
    let policy = policy();
    for expression in ["MIT", "Unlicense/MIT", "GPL-3.0-only OR ISC", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
        assert!(policy.permits(expression), "{expression}");
    }
    for expression in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "(GPL-3.0-only OR 0BSD) AND MIT", "MIT WITH X-exception"]
    {
        assert!(!policy.permits(expression), "{expression}");
    }
    let crates_io = "registry+https://github.com/rust-lang/crates.io-index";
    let package = |licence: Value, source: Value, req: &str, path: Value| {
        let dependency = serde_json::json!({"name": "b", "req": req, "path": path, "kind": null});
        serde_json::json!({"packages": [{"name": "a", "version": "1.0.0", "license": licence,
            "source": source, "manifest_path": "/elsewhere/Cargo.toml", "publish": null, "dependencies": [dependency]}]})
    };
    let one = |metadata: Value| policy.violations(&metadata, Path::new("/w")).len();
    assert_eq!(one(package("MIT".into(), crates_io.into(), "^1", Value::Null)), 0);
    assert_eq!(one(package(Value::Null, crates_io.into(), "^1", Value::Null)), 1);
    assert_eq!(one(package("GPL-3.0-only".into(), crates_io.into(), "^1", Value::Null)), 1);
    assert_eq!(one(package("MIT".into(), "git+https://example.org/a".into(), "^1", Value::Null)), 1);
    assert_eq!(one(package("MIT".into(), Value::Null, "^1", Value::Null)), 1, "a path outside of the workspace");
    assert_eq!(one(package("MIT".into(), crates_io.into(), "*", Value::Null)), 1);
    assert_eq!(one(package("MIT".into(), crates_io.into(), "*", "/w/b".into())), 1, "published without a version");
}

#[test]
fn an_advisory_is_found_in_the_versions_that_it_concerns() {
    let database = tempfile::tempdir().unwrap();
    let directory = database.path().join("crates/a");
    fs::create_dir_all(&directory).unwrap();
    let advisory = |id: &str, rest: &str| {
        let text = format!("```toml\n[advisory]\nid = \"{id}\"\npackage = \"a\"\n{rest}\n```\n\n# A title\n");
        fs::write(directory.join(format!("{id}.md")), text).unwrap();
    };
    advisory("RUSTSEC-2026-0001", "[versions]\npatched = [\">= 1.2.3\"]\nunaffected = [\"< 1.1.0\"]");
    advisory("RUSTSEC-2026-0002", "withdrawn = \"2026-01-01\"\n[versions]\npatched = []");
    advisory("RUSTSEC-2026-0003", "[affected]\nos = [\"windows\"]\n[versions]\npatched = []");
    let mut policy = policy();
    let found = |policy: &Policy, version: &str| {
        let package = serde_json::json!({"name": "a", "version": version, "source": "registry"});
        policy.advisories(&serde_json::json!({"packages": [package]}), database.path())
    };
    assert_eq!(found(&policy, "1.2.2"), (vec!["a 1.2.2: RUSTSEC-2026-0001".to_owned()], 3));
    assert_eq!(found(&policy, "1.2.3").0, Vec::<String>::new());
    assert_eq!(found(&policy, "1.0.9").0, Vec::<String>::new());
    policy.ignored.insert("RUSTSEC-2026-0001".to_owned());
    assert_eq!(found(&policy, "1.2.2").0, Vec::<String>::new());
}
