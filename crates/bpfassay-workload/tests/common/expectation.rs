// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file format of recorded expectations (see `results/ior-expectations/README.md`).

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::{Case, Observed, workspace};

pub(crate) fn directory() -> PathBuf {
    workspace().join("results/ior-expectations")
}

/// Writes what a real IOR did.
pub(crate) fn write(path: &Path, observed: &[(Case, Observed)]) {
    let mut skeletons: Vec<&str> = Vec::new();
    let mut text = String::new();
    for (case, observed) in observed {
        let skeleton = skeletons.iter().position(|known| *known == observed.skeleton).unwrap_or_else(|| {
            skeletons.push(&observed.skeleton);
            skeletons.len() - 1
        });
        writeln!(text, "\ncase {} ranks {} {}", case.name, case.ranks, if observed.succeeded { "ok" } else { "fails" })
            .unwrap();
        writeln!(text, "input {:016x}", super::checksum(case.describe().as_bytes())).unwrap();
        writeln!(text, "json {skeleton}").unwrap();
        for (rank, calls) in observed.ranks.iter().enumerate() {
            writeln!(text, "rank {rank}").unwrap();
            for call in calls {
                writeln!(text, " {call}").unwrap();
            }
        }
        for file in &observed.files {
            writeln!(text, "left {file}").unwrap();
        }
    }
    let mut whole = String::new();
    for (index, skeleton) in skeletons.iter().enumerate() {
        writeln!(whole, "skeleton {index} {skeleton}").unwrap();
    }
    fs::write(path, whole + &text).unwrap();
}

/// Reads expectations by name of the case, with the checksum of the case's input.
pub(crate) fn read(path: &Path) -> BTreeMap<String, (String, Observed)> {
    let text = fs::read_to_string(path).unwrap();
    let mut skeletons = Vec::new();
    let mut cases: BTreeMap<String, (String, Observed)> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines() {
        if let Some(call) = line.strip_prefix(' ') {
            cases.get_mut(&name).unwrap().1.ranks.last_mut().unwrap().push(call.to_owned());
            continue;
        }
        let Some((kind, rest)) = line.split_once(' ') else { continue };
        match kind {
            "skeleton" => skeletons.push(rest.split_once(' ').unwrap().1.to_owned()),
            "case" => {
                let fields: Vec<&str> = rest.split(' ').collect();
                fields[0].clone_into(&mut name);
                let observed = Observed {
                    succeeded: fields[3] == "ok",
                    ranks: Vec::new(),
                    files: Vec::new(),
                    skeleton: String::new(),
                };
                assert!(cases.insert(name.clone(), (String::new(), observed)).is_none(), "case {name} twice");
            }
            "input" => rest.clone_into(&mut cases.get_mut(&name).unwrap().0),
            "json" => {
                let index: usize = rest.parse().unwrap();
                skeletons[index].clone_into(&mut cases.get_mut(&name).unwrap().1.skeleton);
            }
            "rank" => cases.get_mut(&name).unwrap().1.ranks.push(Vec::new()),
            "left" => cases.get_mut(&name).unwrap().1.files.push(rest.to_owned()),
            _ => panic!("unknown line {line:?}"),
        }
    }
    cases
}

/// Returns the checksum of a case's input.
pub(crate) fn input(case: &Case) -> String {
    format!("{:016x}", super::checksum(case.describe().as_bytes()))
}
