// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the verifier's and the compiler's output for a tool's programs between two results.

use std::collections::BTreeMap;

use bpfassay_protocol::tool_job::ProgramCode;
use bpfassay_results::{CellResult, Loaded};
use bpfassay_study::Clock;
use serde::{Deserialize, Serialize};

/// A program for which the kernel produced different code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramChange {
    /// The program's name, as the kernel keeps it.
    pub program: String,
    /// The code in the base and in the new results; `None` where the program was not loaded.
    pub code: [Option<ProgramCode>; 2],
}

/// Lists the programs of a tool that differ; none if the tool was not ready in both results.
/// Programs of one name are compared in the order in which they were loaded. The verifier's time is
/// compared under the instruction clock alone: under the wall clock it always differs.
pub(super) fn changes(base: Option<&CellResult>, new: Option<&CellResult>, clock: Clock) -> Vec<ProgramChange> {
    let (Some(base), Some(new)) = (base.and_then(CellResult::loaded), new.and_then(CellResult::loaded)) else {
        return Vec::new();
    };
    let (mut base, new) = (by_name(base), by_name(new));
    let mut changes = Vec::new();
    for (key, code) in new {
        let before = base.remove(&key);
        if before.map(|code| comparable(code, clock)) != Some(comparable(code, clock)) {
            changes.push(ProgramChange { program: key.0.to_owned(), code: [before, Some(code)] });
        }
    }
    let gone = base.into_iter();
    changes.extend(gone.map(|((name, _), code)| ProgramChange { program: name.to_owned(), code: [Some(code), None] }));
    changes
}

/// Removes from `code` what cannot be compared under this clock.
fn comparable(mut code: ProgramCode, clock: Clock) -> ProgramCode {
    if let (Clock::Wall, Some(log)) = (clock, &mut code.log) {
        log.time_us = 0;
    }
    code
}

/// Indexes the programs by name and by how many programs of that name were loaded before.
fn by_name(loaded: &Loaded) -> BTreeMap<(&str, usize), ProgramCode> {
    let mut seen = BTreeMap::<&str, usize>::new();
    let mut programs = BTreeMap::new();
    for program in loaded.programs_by_id() {
        let Some(code) = program.code else { continue };
        let before = seen.entry(&program.name).or_default();
        programs.insert((program.name.as_str(), *before), code);
        *before += 1;
    }
    programs
}
