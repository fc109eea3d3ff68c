// SPDX-License-Identifier: MIT OR Apache-2.0
//! Generates the list of tool files that `src/bundled.rs` compiles in.

use std::{env, error::Error, fmt::Write, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("tools");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut tools = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            tools.push((name.to_owned(), path));
        }
    }
    tools.sort();
    let mut code = String::from("const TOOLS: &[(&str, &str)] = &[\n");
    for (name, path) in &tools {
        writeln!(code, "    ({name:?}, include_str!({path:?})),")?;
    }
    writeln!(code, "];")?;
    let names: Vec<&String> = tools.iter().map(|(name, _)| name).collect();
    writeln!(code, "const TOOL_NAMES: &[&str] = &{names:?};")?;
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("bundled.rs"), code)?;
    Ok(())
}
