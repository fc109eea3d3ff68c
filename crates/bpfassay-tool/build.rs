// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates the lists of tool files and program lists that `src/bundled.rs` compiles in.

use std::{
    env,
    error::Error,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let code = list("TOOL_FILES", &root.join("tools"))? + &list("PROGRAM_LISTS", &root.join("packages"))?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("bundled.rs"), code)?;
    Ok(())
}

/// Returns code for the constant `name`: the TOML files in `folder` as pairs of name and text.
fn list(name: &str, folder: &Path) -> Result<String, Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            files.push((name.to_owned(), path));
        }
    }
    files.sort();
    let mut code = format!("const {name}: &[(&str, &str)] = &[\n");
    for (name, path) in &files {
        writeln!(code, "    ({name:?}, include_str!({path:?})),")?;
    }
    writeln!(code, "];")?;
    Ok(code)
}
