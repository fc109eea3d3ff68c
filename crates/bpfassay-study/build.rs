// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates the lists of studies and IOR scripts that `src/bundled.rs` compiles in.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// TOML files in studies/ that are not studies.
const NOT_STUDIES: &[&str] = &["kernel-features-expected", "expectations"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let mut code = String::new();

    let studies: Vec<(String, PathBuf)> = files(&root.join("studies"), "toml")?
        .into_iter()
        .map(|(name, path)| (name.trim_end_matches(".toml").to_owned(), path))
        .filter(|(name, _)| !NOT_STUDIES.contains(&name.as_str()))
        .collect();
    let scripts = files(&root.join("ior-configs"), "ior")?;
    for (constant, list) in [("STUDIES", &studies), ("SCRIPTS", &scripts)] {
        writeln!(code, "const {constant}: &[(&str, &str)] = &[")?;
        for (name, path) in list {
            writeln!(code, "    ({name:?}, include_str!({path:?})),")?;
        }
        writeln!(code, "];")?;
    }
    let names: Vec<&String> = studies.iter().map(|(name, _)| name).collect();
    writeln!(code, "const STUDY_NAMES: &[&str] = &{names:?};")?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("bundled.rs"), code)?;
    Ok(())
}

/// Lists the files of `folder` with this extension, sorted by file name.
fn files(folder: &Path, extension: &str) -> Result<Vec<(String, PathBuf)>, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))? {
        let path = entry?.path().canonicalize()?;
        if path.extension().is_some_and(|found| found == extension)
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
        {
            files.push((name.to_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}
