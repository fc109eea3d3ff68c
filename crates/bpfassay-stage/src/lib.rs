// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sources of the guest's programs: packages of this workspace without their tests, and their
//! part of the lock file.
//!
//! This crate reads a stage, computes its digest, and encodes it for programs that have it compiled
//! in. The command's build script uses the crate, so it has few dependencies. bpfassay-testbed
//! builds the programs.

#![forbid(unsafe_code)]

mod packed_bytes;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};
use toml::{Table, Value};

/// The package of the tracer's eBPF programs in Rust.
pub const EBPF: &str = "bpfassay-tracer-ebpf";

/// Packages whose source determines the guest's programs.
pub const PACKAGES: [&str; 4] = ["bpfassay-guest", "bpfassay-tracer", "bpfassay-workload", EBPF];

/// Cargo's profile for the guest's programs, in the workspace's `Cargo.toml`.
pub const PROFILE: &str = "payload";

type Result<T, E = StageError> = std::result::Result<T, E>;

/// The source of the guest's programs cannot be staged.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// The operating system refused an operation on a file.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation, as a verb ("read", "create").
        action: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Cargo would not accept a manifest or the lock file.
    #[error("cannot understand {}: check it with `cargo metadata`", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The place and the reason.
        #[source]
        source: toml::de::Error,
    },
    /// A manifest cannot be written for the stage.
    #[error("cannot write the manifest of {package} for the build of the guest's programs")]
    Rewrite {
        /// The package.
        package: String,
        /// The reason.
        #[source]
        source: toml::ser::Error,
    },
    /// The bytes are not a stage.
    #[error("these are not the sources of the guest's programs: {problem} at byte {at}")]
    Bytes {
        /// The problem.
        problem: &'static str,
        /// The position in the bytes.
        at: usize,
    },
    /// A package is not in the workspace.
    #[error("the workspace {} has no package {package}, which the guest needs", workspace.display())]
    NoPackage {
        /// The workspace.
        workspace: PathBuf,
        /// The package.
        package: String,
    },
}

impl StageError {
    fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Tables of dependencies of programs and of build scripts.
const DEPENDENCIES: [&str; 2] = ["dependencies", "build-dependencies"];

/// Tables of a manifest that building programs does not need. Their dependencies are left out, too.
const LEFT_OUT: [&str; 5] = ["dev-dependencies", "test", "bench", "example", "lints"];

/// Largest source file, manifest or lock file that is read, in bytes.
const MAX_SOURCE: u64 = 64 << 20;

/// Names of files in a workspace, or in a directory with parts of one.
struct Names {
    manifest: &'static str,
    lock: &'static str,
}

/// Cargo's names.
const OF_WORKSPACE: Names = Names { manifest: "Cargo.toml", lock: "Cargo.lock" };

/// Other names, because cargo omits directories with a `Cargo.toml` from packages.
const OF_PACKAGE: Names = Names { manifest: "manifest.toml", lock: "lock.toml" };

/// The parts of a package's directory that are staged in addition to the manifest.
const PARTS: [&str; 2] = ["src", "build.rs"];

/// The files to build from, by path in the stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    files: BTreeMap<String, Vec<u8>>,
    lock: String,
    packages: BTreeSet<String>,
    digest: [u8; 32],
}

impl Stage {
    /// Reads the files that `packages` of the workspace in `workspace` need.
    ///
    /// # Errors
    /// [`StageError`] if a manifest cannot be understood or a file cannot be read.
    pub fn read(workspace: &Path, packages: &[&str]) -> Result<Self> {
        Self::read_as(&OF_WORKSPACE, workspace, packages)
    }

    /// Like [`Stage::read`], for a directory in another crate's cargo package. The directory has
    /// `manifest.toml` and `lock.toml` in place of `Cargo.toml` and `Cargo.lock`.
    ///
    /// # Errors
    /// The errors of [`Stage::read`].
    pub fn read_packaged(directory: &Path, packages: &[&str]) -> Result<Self> {
        Self::read_as(&OF_PACKAGE, directory, packages)
    }

    fn read_as(names: &Names, workspace: &Path, packages: &[&str]) -> Result<Self> {
        let root = read_toml(&workspace.join(names.manifest))?;
        let lock_path = workspace.join(names.lock);
        let lock = read_text(&lock_path)?;
        Self::collect(root, lock, lock_path, packages, |package, files| stage_package(names, workspace, package, files))
    }

    /// Returns the part of this stage that `packages` need. It equals the result of [`Stage::read`]
    /// at the time when this stage was read, even if the workspace has changed since.
    ///
    /// # Errors
    /// [`StageError`] if a manifest cannot be understood, or names a package that does not exist.
    pub fn part(&self, packages: &[&str]) -> Result<Self> {
        let root = self.staged_toml("Cargo.toml")?;
        Self::collect(root, self.lock.clone(), "Cargo.lock".into(), packages, |package, files| {
            let home = format!("crates/{package}/");
            let manifest = format!("{home}Cargo.toml");
            if !self.files.contains_key(&manifest) {
                return Err(StageError::NoPackage { workspace: "of the stage".into(), package: package.to_owned() });
            }
            let of_package = self.files.range(home.clone()..).take_while(|(path, _)| path.starts_with(&home));
            files.extend(of_package.map(|(path, content)| (path.clone(), content.clone())));
            self.staged_toml(&manifest)
        })
    }

    /// Collects `packages` and the packages that they reach. `stage` adds the files of one package
    /// and returns its manifest.
    fn collect(
        mut root: Table,
        lock: String,
        lock_path: PathBuf,
        packages: &[&str],
        stage: impl Fn(&str, &mut BTreeMap<String, Vec<u8>>) -> Result<Table>,
    ) -> Result<Self> {
        let shared = workspace_dependencies(&root);
        let mut files = BTreeMap::new();
        let mut pending: Vec<String> = packages.iter().map(|&name| name.to_owned()).collect();
        let (mut taken, mut used) = (BTreeSet::new(), BTreeSet::new());
        while let Some(package) = pending.pop() {
            if taken.insert(package.clone()) {
                let manifest = stage(&package, &mut files)?;
                used.extend(dependencies(&manifest).map(str::to_owned));
                pending
                    .extend(dependencies(&manifest).filter(|name| shared.get(*name) == Some(&true)).map(str::to_owned));
            }
        }
        strip_workspace(&mut root, &taken, &used);
        put_toml(&mut files, "Cargo.toml", "the workspace", &root)?;
        let locked = locked(&lock, &taken).map_err(|source| StageError::Toml { path: lock_path, source })?;
        let digest = digest(&files, &locked);
        Ok(Self { files, lock, packages: taken, digest })
    }

    /// Parses a manifest of the stage.
    fn staged_toml(&self, path: &str) -> Result<Table> {
        let content = self.files.get(path).map(Vec::as_slice).unwrap_or_default();
        toml::from_slice(content).map_err(|source| StageError::Toml { path: path.into(), source })
    }

    /// Returns the SHA-256 of everything that affects the programs. Only the reachable part of the
    /// lock file is included.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns the inputs of this stage, relative to the workspace: files, and directories with
    /// their whole content.
    pub fn inputs(&self) -> impl Iterator<Item = String> {
        let of_package = |name: &String| ["Cargo.toml", "src", "build.rs"].map(|part| format!("crates/{name}/{part}"));
        ["Cargo.toml", "Cargo.lock"].map(str::to_owned).into_iter().chain(self.packages.iter().flat_map(of_package))
    }

    /// Returns the names of the binaries in `src/bin` of a package, sorted.
    pub fn binaries(&self, package: &str) -> impl Iterator<Item = &str> {
        let directory = format!("crates/{package}/src/bin/");
        self.files.keys().filter_map(move |path| path.strip_prefix(&directory)?.strip_suffix(".rs"))
    }

    /// Writes the stage to `directory` with the whole lock file, which cargo then reduces.
    ///
    /// # Errors
    /// [`StageError::Io`] if a directory or a file cannot be written.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let lock = ("Cargo.lock", self.lock.as_bytes());
        let files = self.files.iter().map(|(path, content)| (path.as_str(), content.as_slice()));
        for (path, content) in files.chain([lock]) {
            let path = directory.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(StageError::io("create", parent))?;
            }
            fs::write(&path, content).map_err(StageError::io("write", &path))?;
        }
        Ok(())
    }
}

fn digest(files: &BTreeMap<String, Vec<u8>>, locked: &BTreeSet<String>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for (path, content) in files {
        part(path.as_bytes());
        part(content);
    }
    part(b"locked");
    for package in locked {
        part(package.as_bytes());
    }
    hasher.finalize().into()
}

/// Stages one package and returns the staged manifest.
fn stage_package(
    names: &Names,
    workspace: &Path,
    package: &str,
    files: &mut BTreeMap<String, Vec<u8>>,
) -> Result<Table> {
    let home = format!("crates/{package}");
    let directory = workspace.join(&home);
    let path = directory.join(names.manifest);
    if !path.is_file() {
        return Err(StageError::NoPackage { workspace: workspace.to_owned(), package: package.to_owned() });
    }
    let mut manifest = read_toml(&path)?;
    for table in LEFT_OUT {
        manifest.remove(table);
    }
    put_toml(files, &format!("{home}/Cargo.toml"), package, &manifest)?;
    for part in PARTS {
        let path = directory.join(part);
        if path.exists() {
            take(&path, &format!("{home}/{part}"), files)?;
        }
    }
    Ok(manifest)
}

/// Returns names in `[workspace.dependencies]`, and whether they are packages of this workspace.
fn workspace_dependencies(root: &Table) -> BTreeMap<String, bool> {
    let table = root.get("workspace").and_then(|workspace| workspace.get("dependencies")).and_then(Value::as_table);
    table.into_iter().flatten().map(|(name, value)| (name.clone(), value.get("path").is_some())).collect()
}

/// Returns the names in all dependency tables of a manifest, including those for single targets.
fn dependencies(manifest: &Table) -> impl Iterator<Item = &str> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(|table| table.values());
    let tables = targets.filter_map(Value::as_table).chain([manifest]);
    tables
        .flat_map(|table| DEPENDENCIES.iter().filter_map(|name| table.get(*name).and_then(Value::as_table)))
        .flat_map(|table| table.keys().map(String::as_str))
}

/// Reduces the workspace's manifest to what `packages` need. `used` are the dependencies that they
/// name. Other members, their dependencies, and all profiles are removed, except for the guest's
/// profile and the one that it inherits.
fn strip_workspace(root: &mut Table, packages: &BTreeSet<String>, used: &BTreeSet<String>) {
    if let Some(workspace) = root.get_mut("workspace").and_then(Value::as_table_mut) {
        workspace.remove("default-members");
        workspace.remove("exclude");
        workspace.remove("lints");
        workspace.remove("metadata");
        let members = packages.iter().map(|package| Value::String(format!("crates/{package}"))).collect();
        workspace.insert("members".to_owned(), Value::Array(members));
        if let Some(shared) = workspace.get_mut("dependencies").and_then(Value::as_table_mut) {
            shared.retain(|name, _| used.contains(name));
        }
    }
    if let Some(profiles) = root.get_mut("profile").and_then(Value::as_table_mut) {
        profiles.retain(|name, _| name == PROFILE || name == "release");
    }
}

/// Returns the packages of a lock file that `roots` reach, as `name version checksum`. Development
/// dependencies of the roots are included, because the file does not distinguish them.
fn locked(lock: &str, roots: &BTreeSet<String>) -> Result<BTreeSet<String>, toml::de::Error> {
    let lock: Table = toml::from_str(lock)?;
    let packages: Vec<&Value> = lock.get("package").and_then(Value::as_array).into_iter().flatten().collect();
    let text = |package: &Value, key: &str| package.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut reached = BTreeSet::new();
    let mut pending: Vec<String> = roots.iter().cloned().collect();
    while let Some(wanted) = pending.pop() {
        // `name`, `name version` or `name version (source)`.
        let mut parts = wanted.split(' ');
        let (name, version) = (parts.next().unwrap_or_default(), parts.next());
        for package in &packages {
            if text(package, "name") != name || version.is_some_and(|version| text(package, "version") != version) {
                continue;
            }
            let entry = format!("{name} {} {}", text(package, "version"), text(package, "checksum"));
            if reached.insert(entry) {
                let dependencies = package.get("dependencies").and_then(Value::as_array);
                pending.extend(dependencies.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    Ok(reached)
}

fn read_toml(path: &Path) -> Result<Table> {
    let text = read_text(path)?;
    toml::from_str(&text).map_err(|source| StageError::Toml { path: path.to_owned(), source })
}

/// Reads the file at `path`. A checkout is as trustworthy as the programs that are built from it,
/// so only the size is bounded.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(StageError::io("read", path))?;
    file.take(MAX_SOURCE + 1).read_to_end(&mut content).map_err(StageError::io("read", path))?;
    if content.len() as u64 > MAX_SOURCE {
        let problem = io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_SOURCE} bytes"));
        return Err(StageError::io("read", path)(problem));
    }
    Ok(content)
}

fn read_text(path: &Path) -> Result<String> {
    let no_text =
        |_| StageError::io("read", path)(io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"));
    String::from_utf8(read(path)?).map_err(no_text)
}

fn put_toml(files: &mut BTreeMap<String, Vec<u8>>, path: &str, package: &str, table: &Table) -> Result<()> {
    let text = toml::to_string(table).map_err(|source| StageError::Rewrite { package: package.to_owned(), source })?;
    files.insert(path.to_owned(), text.into_bytes());
    Ok(())
}

/// Collects a file, or all files of a directory. Symbolic links are followed.
fn take(path: &Path, place: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    if !path.is_dir() {
        files.insert(place.to_owned(), read(path)?);
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(StageError::io("read", path))? {
        let entry = entry.map_err(StageError::io("read", path))?;
        let name = entry.file_name().into_string().map_err(|_| {
            StageError::io("stage", &entry.path())(io::Error::new(io::ErrorKind::InvalidData, "its name is not UTF-8"))
        })?;
        take(&entry.path(), &format!("{place}/{name}"), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
